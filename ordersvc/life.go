package ordersvc

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/octopay/octopay/schema"
)

// A move is what an operation does to an order in one state.
type move uint8

const (
	illegal   move = iota // never asked: the zero value of the table
	pays                  // -> paid
	closes                // -> closed
	refunds               // -> partially_refunded, or refunded when nothing is left
	duplicate             // the money is recorded beside the payment that was applied
	late                  // the money is recorded beside the closed order
	stays                 // nothing is left to do
	isPaid                // ErrAlreadyPaid
	notPaid               // ErrNotPaid
	isClosed              // ErrClosed
	isSpent               // ErrFullyRefunded
)

// moves is the life of an order: what each operation that depends on its state does in
// it. The columns are the states in their order: created, paid, partially_refunded,
// refunded, closed. Results of refunds and the settling of unapplied payments don't
// depend on the order's state, and never change it.
var moves = map[schema.Kind][schema.Closed + 1]move{
	schema.KindPaid:     {0, pays, duplicate, duplicate, duplicate, late},
	schema.KindClosed:   {0, closes, isPaid, isPaid, isPaid, stays},
	schema.KindRefunded: {0, notPaid, refunds, refunds, isSpent, isClosed},
}

// edge reports whether an entry of this kind may lead from one state to another: what moves
// says, as the reader of a journal sees it.
func edge(kind schema.Kind, from, to schema.Status) bool {
	switch m := moves[kind][min(from, schema.Closed)]; m {
	case pays:
		return to == schema.Paid
	case closes:
		return to == schema.Closed
	case refunds:
		return to == schema.PartiallyRefunded || to == schema.Refunded
	case illegal:
		// A kind that the table doesn't have changes no state.
		_, has := moves[kind]
		return !has && kind != schema.KindCreated && from == to
	}
	return false
}

// RefundsMax is how many refunds one order can have; those of unapplied payments don't
// count.
const RefundsMax = 50

// ExpiryGrace is how long after expires_at an order may be closed for it: the payment of
// the last second arrives later than its time.
const ExpiryGrace = schema.Millis(30_000)

// The kinds of unapplied payment, as the journal has them in reason.
const (
	UnappliedLate      = "late"      // the order was closed
	UnappliedDuplicate = "duplicate" // another payment was applied
	UnappliedAmount    = "amount"    // another amount than the order's
	UnappliedCurrency  = "currency"  // another currency than the order's
)

// A Life is an order with its whole journal, oldest first. It is what an operation is
// decided by.
type Life struct {
	Order   schema.Order
	Journal []schema.Entry
}

// find returns the entry of an operation, or nil.
func (l *Life) find(op string) *schema.Entry {
	for i := range l.Journal {
		if l.Journal[i].Op == op {
			return &l.Journal[i]
		}
	}
	return nil
}

// Born returns the row as it was created, from the columns that never change.
func Born(o schema.Order) schema.Order {
	return schema.Order{
		ID: o.ID, UID: o.UID, BID: o.BID, OutTradeNo: o.OutTradeNo,
		Amount: o.Amount, Currency: o.Currency, Subject: o.Subject, Metadata: o.Metadata,
		Status: schema.Created, Ver: 1, CreatedBy: o.CreatedBy, RequestID: o.RequestID,
		ExpiresAt: o.ExpiresAt,
		// Of a row that has a journal nobody knows any more when it was written.
		UpdatedAt: o.CreatedAt(),
	}
}

// Fold returns the row that a creation and its journal make. The error is a *Fault: the
// first entry that can't follow what was before it.
func Fold(born schema.Order, journal []schema.Entry) (schema.Order, error) {
	o := born
	for i := range journal {
		if f := advance(&o, &journal[i]); f != nil {
			return schema.Order{}, f
		}
	}
	return o, nil
}

// advance turns o into what e made of it. It is the one place where the columns of an
// order change. With a fault o is as it was.
func advance(o *schema.Order, e *schema.Entry) *Fault {
	switch {
	case e.OrderID != o.ID:
		return differs(e.Seq, "order_id", e.OrderID, o.ID)
	case e.UID != o.UID:
		return differs(e.Seq, "uid", e.UID, o.UID)
	case e.BID != o.BID:
		return differs(e.Seq, "bid", e.BID, o.BID)
	case e.Seq <= o.Ver:
		return breaks(e.Seq, "seq", fmt.Sprintf("doesn't rise above version %d", o.Ver))
	case e.From != o.Status:
		return differs(e.Seq, "from_status", e.From, o.Status)
	case !edge(e.Kind, e.From, e.To):
		return breaks(e.Seq, "to_status", fmt.Sprintf("is %s; no entry of kind %s leads there from %s", e.To, e.Kind, e.From))
	case e.RecordedAt < o.UpdatedAt:
		return breaks(e.Seq, "recorded_at", fmt.Sprintf("is %s; the version before is of %s", shown(e.RecordedAt), shown(o.UpdatedAt)))
	}
	n := *o
	switch e.Kind {
	case schema.KindPaid:
		if e.Amount != o.Amount {
			return differs(e.Seq, "amount", e.Amount, o.Amount)
		}
		if e.Currency != o.Currency {
			return differs(e.Seq, "currency", e.Currency, o.Currency)
		}
		n.PaidAmount, n.PaidAt = e.Amount, e.PaidAt
		n.Channel, n.ChannelTradeNo = ParseRef(e.Ref)
	case schema.KindClosed:
		reason, err := schema.ParseCloseReason(e.Reason)
		if err != nil {
			return breaks(e.Seq, "reason", "is none of merchant, buyer and expired")
		}
		n.CloseReason, n.ClosedAt = reason, e.RecordedAt
	case schema.KindRefunded:
		left := o.PaidAmount - o.RefundedAmount
		if e.Amount < 1 || e.Amount > left || (e.Amount == left) != (e.To == schema.Refunded) {
			return breaks(e.Seq, "amount", fmt.Sprintf("is %d, and it leads to %s; %d of the payment are left", e.Amount, e.To, left))
		}
		n.RefundedAmount += e.Amount
	case schema.KindUnappliedPayment:
		n.Unapplied++
	}
	n.Status, n.Ver, n.UpdatedAt = e.To, e.Seq, e.RecordedAt
	*o = n
	return nil
}

// Until returns the life up to the entry seq, as it was then. The error is Fold's.
func (l *Life) Until(seq int64) (Life, error) {
	n := 0
	for n < len(l.Journal) && l.Journal[n].Seq <= seq {
		n++
	}
	o, err := Fold(Born(l.Order), l.Journal[:n])
	return Life{o, l.Journal[:n:n]}, err
}

// Ref returns how a payment is called outside: "wechat:4200…".
func Ref(channel, tradeNo string) string { return channel + ":" + tradeNo }

// ParseRef is the inverse of Ref; a channel's name has no colon.
func ParseRef(ref string) (channel, tradeNo string) {
	channel, tradeNo, _ = strings.Cut(ref, ":")
	return channel, tradeNo
}

// A RefundStatus is how far a refund is.
type RefundStatus string

// The states of a refund. A failed one is still owed, and may yet succeed.
const (
	RefundAccepted  RefundStatus = "accepted"
	RefundSucceeded RefundStatus = "succeeded"
	RefundFailed    RefundStatus = "failed"
)

// A Refund is money on its way back, a fold of the journal. It is of the applied
// payment, or the whole of an unapplied one.
type Refund struct {
	Entry           schema.Entry // that accepted it: seq, amount, currency, reason, recorded_at
	Unapplied       int64        // seq of the unapplied payment; 0: of the applied one
	Status          RefundStatus
	ChannelRefundNo string
	FinishedAt      schema.Millis // of its newest result; 0 when there is none
}

// No is the refund's number.
func (r Refund) No() string { return r.Entry.Ref }

// Refunds returns the refunds of an order, newest first.
func (l *Life) Refunds() (all []Refund) {
	for i := len(l.Journal) - 1; i >= 0; i-- {
		if r, ok := l.refund(&l.Journal[i]); ok {
			all = append(all, r)
		}
	}
	return all
}

// Refund returns the refund with this number.
func (l *Life) Refund(no string) (Refund, bool) {
	for i := range l.Journal {
		if l.Journal[i].Ref == no {
			if r, ok := l.refund(&l.Journal[i]); ok {
				return r, true
			}
		}
	}
	return Refund{}, false
}

// refund returns the refund that e accepted, if it did.
func (l *Life) refund(e *schema.Entry) (r Refund, ok bool) {
	switch e.Kind {
	case schema.KindRefunded:
	case schema.KindUnappliedRefunded:
		r.Unapplied = settledSeq(e)
	default:
		return r, false
	}
	r.Entry, r.Status = *e, RefundAccepted
	for i := range l.Journal {
		result := &l.Journal[i]
		if result.Ref != e.Ref {
			continue
		}
		switch result.Kind {
		case schema.KindRefundSucceeded:
			r.Status = RefundSucceeded
		case schema.KindRefundFailed:
			r.Status = RefundFailed
		default:
			continue
		}
		r.ChannelRefundNo, r.FinishedAt = result.ChannelRefundNo, result.RecordedAt
	}
	return r, true
}

// An UnappliedState says what became of an unapplied payment.
type UnappliedState string

// The states of an unapplied payment.
const (
	UnappliedOpen     UnappliedState = "open"
	UnappliedRefunded UnappliedState = "refunded"
	UnappliedVoided   UnappliedState = "voided"
)

// An Unapplied is a payment that could not be applied, a fold of the journal.
type Unapplied struct {
	Entry   schema.Entry // that recorded it; its Reason is the kind
	State   UnappliedState
	Settled schema.Entry // that refunded or voided it; zero while it is open
}

// Unapplied returns the unapplied payment that the entry seq recorded.
func (l *Life) Unapplied(seq int64) (u Unapplied, ok bool) {
	for i := range l.Journal {
		e := &l.Journal[i]
		switch {
		case e.Kind == schema.KindUnappliedPayment && e.Seq == seq:
			u.Entry, u.State, ok = *e, UnappliedOpen, true
		case e.Kind == schema.KindUnappliedRefunded && settledSeq(e) == seq:
			u.State, u.Settled = UnappliedRefunded, *e
		case e.Kind == schema.KindUnappliedVoided && settledSeq(e) == seq:
			u.State, u.Settled = UnappliedVoided, *e
		}
	}
	return u, ok
}

// The operations that settle an unapplied payment, by the seq of the entry that recorded it.
func unappliedRefundOp(seq int64) string { return fmt.Sprintf("unapplied_refund:%d", seq) }
func unappliedVoidOp(seq int64) string   { return fmt.Sprintf("unapplied_void:%d", seq) }

// UnappliedOps returns the operations of which one settles the unapplied payment that the
// entry seq recorded. By that entry and theirs alone, Unapplied says what it says by the
// whole journal.
func UnappliedOps(seq int64) []string { return []string{unappliedRefundOp(seq), unappliedVoidOp(seq)} }

// RefundKinds returns the kinds of the entries that have the number of a refund in Ref: one
// that accepted it, and at most one of each result. By these alone Refund says what it says
// by the whole journal.
func RefundKinds() []schema.Kind {
	return []schema.Kind{schema.KindRefunded, schema.KindUnappliedRefunded, schema.KindRefundSucceeded, schema.KindRefundFailed}
}

// settledSeq returns which unapplied payment e settled: its op ends with it.
func settledSeq(e *schema.Entry) int64 {
	_, seq, _ := strings.Cut(e.Op, ":")
	n, _ := strconv.ParseInt(seq, 10, 64) // 0, which none has, for what can't be read
	return n
}
