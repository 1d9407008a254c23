package httpapi

import (
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/schema"
)

// appendOrder appends an order as clients see it. Its metadata is canonical JSON
// already and goes out as it is stored.
func appendOrder(b []byte, o *schema.Order) []byte {
	return append(appendOpenOrder(b, o), '}')
}

// appendOrderAndJournal appends an order with its journal, oldest first. The creation
// isn't stored as an entry: the order's own columns, which never change, are it. Whose key
// and which request made an entry is for ops.
func appendOrderAndJournal(b []byte, o *schema.Order, journal []schema.Entry, ops bool) []byte {
	b = append(appendOpenOrder(b, o), `,"journal":[{"seq":1,"kind":"created","amount":`...)
	b = strconv.AppendInt(b, o.Amount, 10)
	b = appendText(append(b, `,"currency":`...), o.Currency)
	b = append(b, `,"from":null,"to":"created","ref":null,"recorded_at":`...)
	b = appendTime(b, o.CreatedAt())
	b = appendText(append(b, `,"actor":`...), o.CreatedBy)
	if ops {
		b = appendText(append(b, `,"key_id":null,"request_id":`...), o.RequestID)
	}
	b = append(b, '}')
	for i := range journal {
		b = appendEntry(append(b, ','), &journal[i], ops)
	}
	return append(b, "]}"...)
}

// appendOpenOrder is appendOrder without the closing brace.
func appendOpenOrder(b []byte, o *schema.Order) []byte {
	b = append(b, `{"order_id":"`...)
	b = o.OrderID().AppendTo(b)
	b = append(b, `","uid":"`...)
	b = strconv.AppendInt(b, o.UID, 10)
	b = append(b, `","bid":"`...)
	b = strconv.AppendInt(b, o.BID, 10)
	b = appendText(append(b, `","out_trade_no":`...), o.OutTradeNo)
	b = strconv.AppendInt(append(b, `,"amount":`...), o.Amount, 10)
	b = appendText(append(b, `,"currency":`...), o.Currency)
	b = appendText(append(b, `,"subject":`...), o.Subject)
	b = append(append(b, `,"status":"`...), o.Status.String()...)
	b = strconv.AppendInt(append(b, `","version":`...), o.Ver, 10)
	b = strconv.AppendInt(append(b, `,"paid_amount":`...), o.PaidAmount, 10)
	b = strconv.AppendInt(append(b, `,"refunded_amount":`...), o.RefundedAmount, 10)
	b = appendTextOrNull(append(b, `,"channel":`...), o.Channel)
	b = appendTextOrNull(append(b, `,"channel_trade_no":`...), o.ChannelTradeNo)
	b = append(append(b, `,"metadata":`...), o.Metadata...)
	b = strconv.AppendInt(append(b, `,"unapplied_payments":`...), o.Unapplied, 10)
	b = append(b, `,"close_reason":`...)
	if o.CloseReason == 0 {
		b = append(b, "null"...)
	} else {
		b = append(append(append(b, '"'), o.CloseReason.String()...), '"')
	}
	b = appendTime(append(b, `,"created_at":`...), o.CreatedAt())
	b = appendTime(append(b, `,"updated_at":`...), o.UpdatedAt)
	b = appendTime(append(b, `,"expires_at":`...), o.ExpiresAt)
	b = appendTimeOrNull(append(b, `,"paid_at":`...), o.PaidAt)
	return appendTimeOrNull(append(b, `,"closed_at":`...), o.ClosedAt)
}

// appendEntry appends a stored journal entry. An entry without money has neither
// amount nor currency.
func appendEntry(b []byte, e *schema.Entry, ops bool) []byte {
	b = strconv.AppendInt(append(b, `{"seq":`...), e.Seq, 10)
	b = append(append(b, `,"kind":"`...), e.Kind.String()...)
	b = append(b, `","amount":`...)
	if e.Currency == "" {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendInt(b, e.Amount, 10)
	}
	b = appendTextOrNull(append(b, `,"currency":`...), e.Currency)
	b = append(append(b, `,"from":"`...), e.From.String()...)
	b = append(append(b, `","to":"`...), e.To.String()...)
	b = appendTextOrNull(append(b, `","ref":`...), e.Ref)
	b = appendTime(append(b, `,"recorded_at":`...), e.RecordedAt)
	b = appendText(append(b, `,"actor":`...), e.Actor)
	if ops {
		b = appendTextOrNull(append(b, `,"key_id":`...), e.KeyID)
		b = appendText(append(b, `,"request_id":`...), e.RequestID)
	}
	return append(b, '}')
}

// appendRefund appends a refund. Its id is that of the entry that accepted it.
func appendRefund(b []byte, o *schema.Order, r *ordersvc.Refund) []byte {
	return append(appendOpenRefund(b, o.OrderID(), r), '}')
}

// appendRefundOfAll appends a refund with its order, its buyer and its merchant.
func appendRefundOfAll(b []byte, r *ordersvc.Refund) []byte {
	e := &r.Entry
	id := idgen.Make(e.UID, e.OrderID)
	b = append(appendOpenRefund(b, id, r), `,"order_id":"`...)
	b = strconv.AppendInt(append(id.AppendTo(b), `","uid":"`...), e.UID, 10)
	b = strconv.AppendInt(append(b, `","bid":"`...), e.BID, 10)
	return append(b, `"}`...)
}

// appendOpenRefund is appendRefund without the closing brace.
func appendOpenRefund(b []byte, order idgen.ID, r *ordersvc.Refund) []byte {
	b = append(b, `{"refund_id":"`...)
	b = append(order.AppendTo(b), '.')
	b = strconv.AppendInt(b, r.Entry.Seq, 10)
	b = appendText(append(b, `","out_refund_no":`...), r.No())
	b = strconv.AppendInt(append(b, `,"amount":`...), r.Entry.Amount, 10)
	b = appendText(append(b, `,"currency":`...), r.Entry.Currency)
	b = appendTextOrNull(append(b, `,"reason":`...), r.Entry.Reason)
	b = appendText(append(b, `,"status":`...), string(r.Status))
	b = appendTextOrNull(append(b, `,"channel_refund_no":`...), r.ChannelRefundNo)
	b = append(b, `,"unapplied_payment":`...)
	if r.Unapplied == 0 {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendInt(b, r.Unapplied, 10)
	}
	b = appendTime(append(b, `,"created_at":`...), r.Entry.RecordedAt)
	return appendTimeOrNull(append(b, `,"finished_at":`...), r.FinishedAt)
}

// appendUnapplied appends an unapplied payment.
func appendUnapplied(b []byte, u *ordersvc.Unapplied) []byte {
	e := &u.Entry
	b = append(b, `{"order_id":"`...)
	b = idgen.Make(e.UID, e.OrderID).AppendTo(b)
	b = strconv.AppendInt(append(b, `","seq":`...), e.Seq, 10)
	b = strconv.AppendInt(append(b, `,"uid":"`...), e.UID, 10)
	b = strconv.AppendInt(append(b, `","bid":"`...), e.BID, 10)
	b = appendText(append(b, `","kind":`...), e.Reason)
	b = appendText(append(b, `,"state":`...), string(u.State))
	channel, number := ordersvc.ParseRef(e.Ref)
	b = appendText(append(b, `,"channel":`...), channel)
	b = appendText(append(b, `,"channel_trade_no":`...), number)
	b = strconv.AppendInt(append(b, `,"amount":`...), e.Amount, 10)
	b = appendText(append(b, `,"currency":`...), e.Currency)
	b = appendTime(append(b, `,"recorded_at":`...), e.RecordedAt)
	b = appendTextOrNull(append(b, `,"out_refund_no":`...), u.Settled.Ref)
	b = appendTextOrNull(append(b, `,"reason":`...), u.Settled.Reason)
	b = appendTimeOrNull(append(b, `,"settled_at":`...), u.Settled.RecordedAt)
	return append(b, '}')
}

// appendPage appends one page of a list of orders. next is its next cursor, "" at the end.
func appendPage(b []byte, orders []schema.Order, next string) []byte {
	return appendList(b, orders, next, appendOrder)
}

// appendList appends one page of a list, each row by appendRow.
func appendList[T any](b []byte, rows []T, next string, appendRow func([]byte, *T) []byte) []byte {
	b = append(b, `{"data":[`...)
	for i := range rows {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendRow(b, &rows[i])
	}
	b = append(b, `],"has_more":`...)
	b = strconv.AppendBool(b, next != "")
	b = appendTextOrNull(append(b, `,"next_cursor":`...), next)
	return append(b, '}')
}

// appendText appends s quoted, escaping as little as JSON allows. What isn't UTF-8
// becomes U+FFFD: an answer is valid JSON, whatever is stored.
func appendText(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s)
	return b
}

func appendTextOrNull(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return appendText(b, s)
}

// timeLayout always has three digits of ms.
const timeLayout = "2006-01-02T15:04:05.000Z"

// appendTime appends m as timeLayout. Package time writes RFC 3339 without a fraction
// several times faster than any other layout, so only the ms are written here.
func appendTime(b []byte, m schema.Millis) []byte {
	t := m.Time()
	b = t.AppendFormat(append(b, '"'), time.RFC3339)
	ms := t.Nanosecond() / int(time.Millisecond)
	return append(b[:len(b)-len("Z")], '.', '0'+byte(ms/100), '0'+byte(ms/10%10), '0'+byte(ms%10), 'Z', '"')
}

func appendTimeOrNull(b []byte, m schema.Millis) []byte {
	if m == 0 {
		return append(b, "null"...)
	}
	return appendTime(b, m)
}
