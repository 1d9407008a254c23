package ordersvc_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/schema"
)

// longLife has an entry of each kind that a paid order can have:
// 2 unapplied, 3 paid, 4 refunded, 5 failed, 6 succeeded, 7 unapplied refunded, 8 refunded.
func longLife(t *testing.T) ordersvc.Life {
	t.Helper()
	l := newLife()
	for _, op := range []ordersvc.Operation{
		dear2, payment, part, ordersvc.ReturnResult{No: "part"}, ordersvc.ReturnResult{No: "part", Succeeded: true, ChannelRefundNo: "c"},
		ordersvc.ReturnUnapplied{Seq: 2, No: "u"}, rest,
	} {
		l.Apply(by(&l, op), t0+10)
	}
	if legal(t, l); len(l.Journal) != 7 {
		t.Fatal(l.Journal)
	}
	return l
}

// Each line spoils one thing, and says all that is then found.
func TestAuditNamesWhatIsWrong(t *testing.T) {
	at := func(seq int64, change func(*schema.Entry)) func(*ordersvc.Life) {
		return func(l *ordersvc.Life) { change(&l.Journal[seq-2]) }
	}
	row := func(change func(*schema.Order)) func(*ordersvc.Life) {
		return func(l *ordersvc.Life) { change(&l.Order) }
	}
	for _, c := range []struct {
		name  string
		spoil func(*ordersvc.Life)
		want  []string
	}{
		{"nothing", func(*ordersvc.Life) {}, nil},
		{"id", row(func(o *schema.Order) { o.ID++ }), []string{"entry 2: order_id is "}},
		{"uid", row(func(o *schema.Order) { o.UID += 640 }), []string{"entry 2: uid is"}},
		{"bid", row(func(o *schema.Order) { o.BID++ }), []string{"entry 2: bid is"}},
		{"no buyer", row(func(o *schema.Order) { o.UID = 0 }), []string{"uid is 0; uids begin with 1", "entry 2: uid is"}},
		{"out_trade_no", row(func(o *schema.Order) { o.OutTradeNo = "-secret" }), []string{"out_trade_no is none that a creation takes"}},
		{"amount", row(func(o *schema.Order) { o.Amount++ }), []string{"entry 2: reason is another than", "entry 3: amount is 10000; should be 10001"}},
		{"no amount", row(func(o *schema.Order) { o.Amount = 0 }), []string{"amount is 0; should be 1 to 9007199254740991", "entry 3: amount is 10000; should be 0", "paid_amount is 10000, of 0"}},
		{"currency", row(func(o *schema.Order) { o.Currency = "USD" }), []string{"entry 2: reason is another than", "entry 3: currency is CNY; should be USD"}},
		{"no currency", row(func(o *schema.Order) { o.Currency = "cn" }), []string{"currency is not three capital letters", "entry 2: reason", "entry 3: currency is CNY; should be cn"}},
		{"subject", row(func(o *schema.Order) { o.Subject = "" }), []string{"subject is empty, too long, or no text"}},
		{"metadata", row(func(o *schema.Order) { o.Metadata = `{"a":1}` }), []string{"metadata is no JSON object of at most 16 texts"}},
		{"metadata null", row(func(o *schema.Order) { o.Metadata = `null` }), []string{"metadata is no JSON object of at most 16 texts"}},
		{"status", row(func(o *schema.Order) { o.Status = schema.Closed }), []string{"status is closed; should be refunded"}},
		{"ver", row(func(o *schema.Order) { o.Ver++ }), []string{"ver is 9; should be 8"}},
		{"paid_amount", row(func(o *schema.Order) { o.PaidAmount-- }), []string{"paid_amount is 9999; should be 10000"}},
		{"refunded_amount", row(func(o *schema.Order) { o.RefundedAmount++ }), []string{"refunded_amount is 10001; should be 10000"}},
		{"channel", row(func(o *schema.Order) { o.Channel = "secret" }), []string{"channel differs from what its journal makes"}},
		{"channel_trade_no", row(func(o *schema.Order) { o.ChannelTradeNo = "" }), []string{"channel_trade_no differs from what its journal makes"}},
		{"unapplied_payments", row(func(o *schema.Order) { o.Unapplied = 0 }), []string{"unapplied_payments is 0; should be 1"}},
		{"close_reason", row(func(o *schema.Order) { o.CloseReason = schema.ByBuyer }), []string{"close_reason is buyer; should be null"}},
		{"created_by", row(func(o *schema.Order) { o.CreatedBy = "secret" }), []string{"created_by is neither app nor merchant"}},
		{"request_id", row(func(o *schema.Order) { o.RequestID = "a secret" }), []string{"request_id is none that a request has"}},
		{"expires_at", row(func(o *schema.Order) { o.ExpiresAt = t0 }), []string{"expires_at is 2027-01-15 08:00:00.000 UTC; the order was made at 2027-01-15 08:00:00.000 UTC and expires 60 to 86400 seconds later"}},
		{"updated_at", row(func(o *schema.Order) { o.UpdatedAt++ }), []string{"updated_at is 2027-01-15 08:00:00.011 UTC; should be 2027-01-15 08:00:00.010 UTC"}},
		{"paid_at", row(func(o *schema.Order) { o.PaidAt = 0 }), []string{"paid_at is null; should be 2027-01-15 08:00:00.005 UTC"}},
		{"closed_at", row(func(o *schema.Order) { o.ClosedAt = t0 }), []string{"closed_at is 2027-01-15 08:00:00.000 UTC; should be null"}},
		{"no journal", func(l *ordersvc.Life) { l.Journal = nil }, []string{"status is refunded; should be created", "ver is 8; should be 1", "paid_amount", "refunded_amount", "channel", "channel_trade_no", "unapplied_payments", "paid_at"}},
		{"updated before it was made", func(l *ordersvc.Life) { *l = newLife(); l.Order.UpdatedAt-- }, []string{"updated_at is 2027-01-15 07:59:59.999 UTC; should be 2027-01-15 08:00:00.000 UTC"}},

		{"the first entry is missing", func(l *ordersvc.Life) { l.Journal = l.Journal[1:] }, []string{"entry 3: seq is 3; the entry before has 1, so 2 is missing", "entry 7: op settles no unapplied payment before it", "unapplied_payments is 1; should be 0"}},
		{"the payment is missing", func(l *ordersvc.Life) { l.Journal = slices.Delete(l.Journal, 1, 2) }, []string{"entry 4: seq is 4; the entry before has 2, so 3 is missing", "entry 4: from_status is paid; should be created"}},
		{"one that changed no column is missing", func(l *ordersvc.Life) { l.Journal = slices.Delete(l.Journal, 3, 4) }, []string{"entry 6: seq is 6; the entry before has 4, so 5 is missing"}},
		{"the last is missing", func(l *ordersvc.Life) { l.Journal = l.Journal[:6] }, []string{"status is refunded; should be partially_refunded", "ver is 8; should be 7", "refunded_amount is 10000; should be 4000"}},
		{"a second payment", func(l *ordersvc.Life) {
			e := l.Journal[1]
			e.Seq, e.Op, e.Ref, e.RecordedAt = 9, "pay:wechat:4201", "wechat:4201", l.Order.UpdatedAt
			l.Journal, l.Order.Ver = append(l.Journal, e), 9
		}, []string{"entry 9: from_status is created; should be refunded"}},
		{"a second payment that says that it follows", func(l *ordersvc.Life) {
			e := l.Journal[1]
			e.Seq, e.Op, e.Ref, e.RecordedAt, e.From = 9, "pay:wechat:4201", "wechat:4201", l.Order.UpdatedAt, schema.Refunded
			l.Journal, l.Order.Ver = append(l.Journal, e), 9
		}, []string{"entry 9: to_status is paid; no entry of kind paid leads there from refunded"}},
		{"a closed order is paid", func(l *ordersvc.Life) {
			*l = newLife()
			l.Apply(by(l, byBuyer), t0+10)
			l.Apply(by(l, payment), t0+10) // late
			e := &l.Journal[1]
			e.Kind, e.Op, e.To, e.Reason, e.PaidAt = schema.KindPaid, "pay:"+e.Ref, schema.Paid, "", t0
			l.Order.Status, l.Order.PaidAmount, l.Order.PaidAt = schema.Paid, 10_000, t0
		}, []string{"entry 3: to_status is paid; no entry of kind paid leads there from closed"}},

		{"an entry's seq", at(8, func(e *schema.Entry) { e.Seq = 10 }), []string{"entry 10: seq is 10; the entry before has 7, so 8 is missing", "ver is 8; should be 10"}},
		{"an entry's seq is the creation's", at(2, func(e *schema.Entry) { e.Seq = 1 }), []string{"entry 1: seq doesn't rise above version 1"}},
		{"an entry's uid", at(4, func(e *schema.Entry) { e.UID++ }), []string{"entry 4: uid is"}},
		{"an entry's bid", at(4, func(e *schema.Entry) { e.BID++ }), []string{"entry 4: bid is"}},
		{"an entry's kind", at(6, func(e *schema.Entry) { e.Kind = schema.KindRefundFailed }), []string{"entry 6: op is another operation than"}},
		{"an entry's op", at(8, func(e *schema.Entry) { e.Op = "refund:secret" }), []string{"entry 8: op is another operation than"}},
		{"the amount of a payment", at(3, func(e *schema.Entry) { e.Amount++ }), []string{"entry 3: amount is 10001; should be 10000"}},
		{"the amount of a refund", at(4, func(e *schema.Entry) { e.Amount++ }), []string{"entry 5: amount is 4000; should be 4001", "entry 6: amount is 4000; should be 4001", "entry 8: amount is 6000, and it leads to refunded; 5999 of the payment are left"}},
		{"the amount of a result", at(5, func(e *schema.Entry) { e.Amount++ }), []string{"entry 5: amount is 4001; should be 4000"}},
		{"the amount of an unapplied payment", at(2, func(e *schema.Entry) { e.Amount++ }), []string{"entry 2: op is another", "entry 7: amount is 10001; should be 10002"}},
		{"the currency of a refund", at(4, func(e *schema.Entry) { e.Currency = "USD" }), []string{"entry 4: currency is USD; should be CNY", "entry 5: currency is CNY; should be USD", "entry 6: currency"}},
		{"from", at(8, func(e *schema.Entry) { e.From = schema.Paid }), []string{"entry 8: from_status is paid; should be partially_refunded"}},
		{"to", at(8, func(e *schema.Entry) { e.To = schema.PartiallyRefunded }), []string{"entry 8: amount is 6000, and it leads to partially_refunded; 6000 of the payment are left"}},
		{"the payment's ref", at(3, func(e *schema.Entry) { e.Ref = "wechat:secret" }), []string{"entry 3: op is another", "channel_trade_no differs from what its journal makes"}},
		{"the payment has no ref", at(3, func(e *schema.Entry) { e.Ref = "" }), []string{"entry 3: ref names no payment", "entry 3: op is another", "channel differs", "channel_trade_no differs"}},
		{"a refund's ref", at(4, func(e *schema.Entry) { e.Ref = "secret" }), []string{"entry 4: op is another", "entry 5: ref is of no refund before it", "entry 6: ref is of no refund before it"}},
		{"two refunds have one number", at(8, func(e *schema.Entry) { e.Ref, e.Op = "part", "refund:part" }), []string{"entry 8: ref is no number of its own for a refund"}},
		{"a refund that succeeded failed", func(l *ordersvc.Life) {
			l.Journal[3].Kind, l.Journal[3].Op = schema.KindRefundSucceeded, "refund_result:part:succeeded"
			l.Journal[4].Kind, l.Journal[4].Op = schema.KindRefundFailed, "refund_result:part:failed"
		}, []string{"entry 6: kind is a result of a refund that has succeeded before"}},
		{"an unapplied payment's reason", at(2, func(e *schema.Entry) { e.Reason = "late" }), []string{"entry 2: reason is another than the order and the payment make"}},
		{"a payment has a reason", at(3, func(e *schema.Entry) { e.Reason = "secret" }), []string{"entry 3: reason is set; an entry of this kind has none"}},
		{"a refund's reason is no text", at(4, func(e *schema.Entry) { e.Reason = "secret \xff" }), []string{"entry 4: reason is too long, or no text"}},
		{"a refund's reason is too long", at(7, func(e *schema.Entry) { e.Reason = strings.Repeat("é", 257) }), []string{"entry 7: reason is too long, or no text"}},
		{"another reason of a refund", at(4, func(e *schema.Entry) { e.Reason = strings.Repeat("é", 256) }), nil},
		{"actor", at(4, func(e *schema.Entry) { e.Actor = "secret" }), []string{"entry 4: actor is none of app, merchant, channel, ops and expiry"}},
		{"key_id", at(4, func(e *schema.Entry) { e.KeyID = "a secret" }), []string{"entry 4: key_id is none that a key has"}},
		{"no key_id", at(4, func(e *schema.Entry) { e.KeyID = "" }), nil},
		{"an entry's request_id", at(4, func(e *schema.Entry) { e.RequestID = "" }), []string{"entry 4: request_id is none that a request has"}},
		{"recorded_at", at(5, func(e *schema.Entry) { e.RecordedAt-- }), []string{"entry 5: recorded_at is 2027-01-15 08:00:00.009 UTC; the version before is of 2027-01-15 08:00:00.010 UTC"}},
		{"the payment's paid_at", at(3, func(e *schema.Entry) { e.PaidAt++ }), []string{"paid_at is 2027-01-15 08:00:00.005 UTC; should be 2027-01-15 08:00:00.006 UTC"}},
		{"the payment has no paid_at", at(3, func(e *schema.Entry) { e.PaidAt = 0 }), []string{"entry 3: paid_at is null; an entry of kind paid has one", "paid_at is 2027-01-15 08:00:00.005 UTC; should be null"}},
		{"a refund has a paid_at", at(4, func(e *schema.Entry) { e.PaidAt = t0 }), []string{"entry 4: paid_at is 2027-01-15 08:00:00.000 UTC; an entry of kind paid has one, and no other"}},
		{"a payment has a channel_refund_no", at(3, func(e *schema.Entry) { e.ChannelRefundNo = "secret" }), []string{"entry 3: channel_refund_no is set; only a refund's result has one"}},
		{"a result's channel_refund_no", at(6, func(e *schema.Entry) { e.ChannelRefundNo = "a secret" }), []string{"entry 6: channel_refund_no is none that a channel gives"}},
		{"an unapplied payment is settled twice", func(l *ordersvc.Life) {
			e := l.Journal[5]
			e.Kind, e.Op, e.Seq, e.Ref = schema.KindUnappliedVoided, "unapplied_void:2", 9, ""
			e.From, e.To = schema.Refunded, schema.Refunded
			l.Journal, l.Order.Ver = append(l.Journal, e), 9
		}, []string{"entry 9: op settles an unapplied payment that was settled before"}},
		{"a close that has a sum", func(l *ordersvc.Life) {
			*l = newLife()
			l.Apply(by(l, byBuyer), t0+10)
			l.Journal[0].Amount = 1
		}, []string{"entry 2: amount is 1; should be 0"}},
		{"a close for no reason", func(l *ordersvc.Life) {
			*l = newLife()
			l.Apply(by(l, byBuyer), t0+10)
			l.Journal[0].Reason = "secret"
		}, []string{"entry 2: reason is none of merchant, buyer and expired"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := longLife(t)
			c.spoil(&l)
			var got []string
			for _, f := range ordersvc.Audit(l.Order, l.Journal) {
				got = append(got, f.Error())
			}
			if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
				t.Errorf("found are\n%q, want\n%q", got, c.want)
			}
			if strings.Contains(strings.Join(got, ""), "secret") {
				t.Errorf("it says a text of others: %q", got)
			}
		})
	}
}

// The 51st refund is one too many.
func TestAuditCountsRefunds(t *testing.T) {
	l := newLife()
	l.Apply(by(&l, payment), t0)
	for range ordersvc.RefundsMax + 1 {
		e := schema.Entry{
			OrderID: l.Order.ID, UID: l.Order.UID, BID: l.Order.BID, Seq: l.Order.Ver + 1, Kind: schema.KindRefunded, Amount: 1, Currency: "CNY",
			From: l.Order.Status, To: schema.PartiallyRefunded, RecordedAt: l.Order.UpdatedAt, Actor: "app", RequestID: "r",
		}
		e.Ref = strings.Repeat("n", int(e.Seq))
		e.Op = "refund:" + e.Ref
		l.Journal = append(l.Journal, e)
		l.Order.Status, l.Order.Ver, l.Order.RefundedAmount = e.To, e.Seq, l.Order.RefundedAmount+1
	}
	faults := ordersvc.Audit(l.Order, l.Journal)
	if len(faults) != 1 || faults[0].Error() != "entry 53: kind makes it refund 51 of this order; 50 are the most" {
		t.Errorf("%+v", faults)
	}
}
