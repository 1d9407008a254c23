// Package gen draws rows for the property tests of the mirror: everything that the
// columns can hold, edges first.
package gen

import (
	"fmt"
	"strings"
	"time"

	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/schema"
	"pgregory.net/rapid"
)

var (
	ascii   = rapid.StringMatching(`[0-9A-Za-z_.:|*-]{1,64}`)
	channel = rapid.StringMatching(`[a-z0-9_]{1,32}`)
	// characters of one to four bytes of UTF-8, and what SQL texts must escape
	text   = rapid.StringOfN(rapid.SampledFrom([]rune("aZ09 '\"\\%_;\u00e9\u4e2d\U0001F600\u200b")), 0, 256, -1)
	amount = rapid.Int64Range(1, 1<<53-1)
	// DATETIME(3) in years with four digits
	millis = rapid.Int64Range(1, time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC).UnixMilli())
)

// Key draws a uid or bid.
func Key() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Int64Range(1, 700), rapid.Int64Range(1, 1<<63-1))
}

// Snowflake draws a stored id.
func Snowflake() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Int64Range(0, 50), rapid.Int64Range(0, 1<<63-1),
		rapid.Just(idgen.FirstAt(time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC))))
}

func optional[T any](t *rapid.T, label string, g *rapid.Generator[T]) (v T) {
	if rapid.Bool().Draw(t, "has "+label) {
		v = g.Draw(t, label)
	}
	return v
}

// Order draws an order of a buyer and a merchant.
func Order(t *rapid.T, uid, bid, id, ver int64) schema.Order {
	o := schema.Order{
		ID: id, UID: uid, BID: bid, OutTradeNo: ascii.Draw(t, "out_trade_no"),
		Amount: amount.Draw(t, "amount"), Currency: rapid.SampledFrom([]string{"CNY", "JPY", "KWD"}).Draw(t, "currency"),
		Subject: text.Filter(func(s string) bool { return s != "" }).Draw(t, "subject"),
		Status:  rapid.SampledFrom([]schema.Status{schema.Created, schema.Paid, schema.PartiallyRefunded, schema.Refunded, schema.Closed}).Draw(t, "status"),
		Ver:     ver, PaidAmount: rapid.Int64Range(0, 1<<53-1).Draw(t, "paid"), RefundedAmount: rapid.Int64Range(0, 1<<53-1).Draw(t, "refunded"),
		Channel: optional(t, "channel", channel), ChannelTradeNo: optional(t, "channel_trade_no", ascii),
		Unapplied:   rapid.Int64Range(0, 9).Draw(t, "unapplied"),
		CloseReason: schema.CloseReason(rapid.IntRange(0, 3).Draw(t, "close_reason")),
		CreatedBy:   rapid.SampledFrom([]string{"app", "merchant"}).Draw(t, "created_by"),
		RequestID:   ascii.Draw(t, "request_id"),
		ExpiresAt:   schema.Millis(millis.Draw(t, "expires_at")), UpdatedAt: schema.Millis(millis.Draw(t, "updated_at")),
		PaidAt: schema.Millis(optional(t, "paid_at", millis)), ClosedAt: schema.Millis(optional(t, "closed_at", millis)),
	}
	o.Metadata = fmt.Sprintf("{%q:%q}", "k", optional(t, "metadata", text))
	return o
}

// Entry draws a journal entry.
func Entry(t *rapid.T, uid, bid, order, seq int64) schema.Entry {
	status := rapid.SampledFrom([]schema.Status{schema.Created, schema.Paid, schema.PartiallyRefunded, schema.Refunded, schema.Closed})
	return schema.Entry{
		OrderID: order, Seq: seq, UID: uid, BID: bid,
		Op:     fmt.Sprintf("op:%d:%s", seq, ascii.Draw(t, "op")),
		Kind:   schema.Kind(rapid.IntRange(int(schema.KindPaid), int(schema.KindUnappliedVoided)).Draw(t, "kind")),
		Amount: rapid.Int64Range(0, 1<<53-1).Draw(t, "amount"), Currency: optional(t, "currency", rapid.Just("CNY")),
		From: status.Draw(t, "from"), To: status.Draw(t, "to"),
		Ref: optional(t, "ref", ascii), Reason: strings.TrimRight(optional(t, "reason", text), " "),
		Actor: rapid.SampledFrom([]string{"channel", "app", "merchant", "expiry"}).Draw(t, "actor"),
		KeyID: optional(t, "key_id", ascii), RequestID: ascii.Draw(t, "request_id"),
		RecordedAt: schema.Millis(millis.Draw(t, "recorded_at")),
		PaidAt:     schema.Millis(optional(t, "paid_at", millis)),

		ChannelRefundNo: optional(t, "channel_refund_no", ascii),
	}
}
