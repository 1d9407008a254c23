// Package mirrorpb is the wire format of the mirror: what the stream carries, and how
// rows are turned into it and back. Other teams may read it; mirror.proto is its
// documentation.
//
// It decides which messages can be understood. What happens to one that can't is
// left to its reader.
package mirrorpb

import (
	"errors"
	"fmt"

	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/schema"
)

//go:generate ./generate.sh

// Groups is the number of groups that merchants are divided into; the rows of one
// group share a subject. Part of the wire format. Every cluster size is a multiple
// of it, so a database has rows of one group only.
const Groups = 8

// Group returns the group of a merchant, 0 … Groups-1. bid must be at least 1.
func Group(bid int64) int { return int(uint64(bid) / 10 % Groups) }

// GroupOfDatabase returns the group of everything in bid database d, 1 … N.
func GroupOfDatabase(d int) int { return (d - 1) % Groups }

// FromOrder returns the wire form of o.
func FromOrder(o *schema.Order) *Order {
	return &Order{
		OrderId: o.OrderID().String(), Uid: o.UID, Bid: o.BID, OutTradeNo: o.OutTradeNo,
		Amount: o.Amount, Currency: o.Currency, Subject: o.Subject, Metadata: o.Metadata,
		Status: Status(o.Status), Ver: o.Ver, PaidAmount: o.PaidAmount, RefundedAmount: o.RefundedAmount,
		Channel: o.Channel, ChannelTradeNo: o.ChannelTradeNo, UnappliedPayments: o.Unapplied,
		CloseReason: CloseReason(o.CloseReason), CreatedBy: o.CreatedBy, RequestId: o.RequestID,
		ExpiresAtMs: int64(o.ExpiresAt), UpdatedAtMs: int64(o.UpdatedAt),
		PaidAtMs: int64(o.PaidAt), ClosedAtMs: int64(o.ClosedAt),
	}
}

// Row returns the row that o is the wire form of. The error, without values, says
// what can't be true of a row.
func (o *Order) Row() (schema.Order, error) {
	id, err := snowflake(o.GetOrderId(), o.GetUid(), o.GetBid())
	switch {
	case err != nil:
		return schema.Order{}, err
	case o.GetStatus() < Status_STATUS_CREATED || o.GetStatus() > Status_STATUS_CLOSED:
		return schema.Order{}, errors.New("unknown status")
	case o.GetCloseReason() < 0 || o.GetCloseReason() > CloseReason_CLOSE_REASON_EXPIRED:
		return schema.Order{}, errors.New("unknown close_reason")
	case o.GetVer() < 1:
		return schema.Order{}, errors.New("ver is below 1")
	case o.GetExpiresAtMs() == 0 || o.GetUpdatedAtMs() == 0:
		return schema.Order{}, errors.New("a time is missing")
	}
	return schema.Order{
		ID: id, UID: o.GetUid(), BID: o.GetBid(), OutTradeNo: o.GetOutTradeNo(),
		Amount: o.GetAmount(), Currency: o.GetCurrency(), Subject: o.GetSubject(), Metadata: o.GetMetadata(),
		Status: schema.Status(o.GetStatus()), Ver: o.GetVer(), PaidAmount: o.GetPaidAmount(), RefundedAmount: o.GetRefundedAmount(),
		Channel: o.GetChannel(), ChannelTradeNo: o.GetChannelTradeNo(), Unapplied: o.GetUnappliedPayments(),
		CloseReason: schema.CloseReason(o.GetCloseReason()), CreatedBy: o.GetCreatedBy(), RequestID: o.GetRequestId(),
		ExpiresAt: schema.Millis(o.GetExpiresAtMs()), UpdatedAt: schema.Millis(o.GetUpdatedAtMs()),
		PaidAt: schema.Millis(o.GetPaidAtMs()), ClosedAt: schema.Millis(o.GetClosedAtMs()),
	}, nil
}

// FromEntry returns the wire form of e.
func FromEntry(e *schema.Entry) *Entry {
	return &Entry{
		OrderId: idgen.Make(e.UID, e.OrderID).String(), Seq: e.Seq, Uid: e.UID, Bid: e.BID,
		Op: e.Op, Kind: Kind(e.Kind), Amount: e.Amount, Currency: e.Currency,
		From: Status(e.From), To: Status(e.To), Ref: e.Ref, Reason: e.Reason,
		Actor: e.Actor, KeyId: e.KeyID, RequestId: e.RequestID, RecordedAtMs: int64(e.RecordedAt),
		PaidAtMs: int64(e.PaidAt), ChannelRefundNo: e.ChannelRefundNo,
	}
}

// Row returns the row that e is the wire form of. The error, without values, says
// what can't be true of a row.
func (e *Entry) Row() (schema.Entry, error) {
	id, err := snowflake(e.GetOrderId(), e.GetUid(), e.GetBid())
	switch {
	case err != nil:
		return schema.Entry{}, err
	case e.GetKind() < Kind_KIND_PAID || e.GetKind() > Kind_KIND_UNAPPLIED_VOIDED:
		return schema.Entry{}, errors.New("unknown kind")
	case e.GetFrom() < Status_STATUS_CREATED || e.GetFrom() > Status_STATUS_CLOSED,
		e.GetTo() < Status_STATUS_CREATED || e.GetTo() > Status_STATUS_CLOSED:
		return schema.Entry{}, errors.New("unknown status")
	case e.GetSeq() < 2:
		return schema.Entry{}, errors.New("seq is below 2")
	case e.GetRecordedAtMs() == 0:
		return schema.Entry{}, errors.New("recorded_at is missing")
	}
	return schema.Entry{
		OrderID: id, Seq: e.GetSeq(), UID: e.GetUid(), BID: e.GetBid(),
		Op: e.GetOp(), Kind: schema.Kind(e.GetKind()), Amount: e.GetAmount(), Currency: e.GetCurrency(),
		From: schema.Status(e.GetFrom()), To: schema.Status(e.GetTo()), Ref: e.GetRef(), Reason: e.GetReason(),
		Actor: e.GetActor(), KeyID: e.GetKeyId(), RequestID: e.GetRequestId(), RecordedAt: schema.Millis(e.GetRecordedAtMs()),
		PaidAt: schema.Millis(e.GetPaidAtMs()), ChannelRefundNo: e.GetChannelRefundNo(),
	}, nil
}

// snowflake checks that an order id, its buyer and its merchant can belong together.
func snowflake(orderID string, uid, bid int64) (int64, error) {
	switch {
	case uid < 1:
		return 0, errors.New("uid is below 1")
	case bid < 1:
		return 0, errors.New("bid is below 1")
	}
	id, err := idgen.Parse(orderID)
	if err != nil {
		return 0, fmt.Errorf("order_id: %w", err)
	}
	if !id.Of(uid) {
		return 0, errors.New("the parts of order_id disagree with uid")
	}
	return id.Snowflake(), nil
}
