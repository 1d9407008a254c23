package ordersvc_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/schema"
	"pgregory.net/rapid"
)

const t0 = schema.Millis(1_800_000_000_000)

// newLife is an order of 100.00 that expires half an hour after t0.
func newLife() ordersvc.Life {
	n := newOrder("life")
	n.Amount, n.Currency = 10_000, "CNY"
	o := n.Order(idgen.Make(n.UID, idgen.FirstAt(t0.Time())))
	o.ExpiresAt, o.UpdatedAt = t0+1_800_000, t0
	return ordersvc.Life{Order: o}
}

func by(l *ordersvc.Life, do ordersvc.Operation) *ordersvc.Change {
	return &ordersvc.Change{Order: l.Order.OrderID(), Do: do, By: ordersvc.By{Actor: "app", KeyID: "k", RequestID: "r"}}
}

var (
	payment  = ordersvc.Pay{Channel: "wechat", TradeNo: "4200:1", Amount: 10_000, Currency: "CNY", PaidAt: t0 + 5}
	payment2 = ordersvc.Pay{Channel: "alipay", TradeNo: "4200:1", Amount: 10_000, Currency: "CNY"}
	dear     = ordersvc.Pay{Channel: "wechat", TradeNo: "4200:1", Amount: 10_001, Currency: "CNY"}
	dear2    = ordersvc.Pay{Channel: "wechat", TradeNo: "4200:2", Amount: 10_001, Currency: "CNY"}
	dollars  = ordersvc.Pay{Channel: "wechat", TradeNo: "4200:1", Amount: 10_000, Currency: "USD"}
	byBuyer  = ordersvc.Close{Reason: schema.ByBuyer}
	part     = ordersvc.Return{No: "part", Amount: 4_000, Reason: "scratched"}
	rest     = ordersvc.Return{No: "rest", Amount: 6_000}
	whole    = ordersvc.Return{No: "whole", Amount: 10_000}
)

// Each line is a story: what happened, what is asked for, and what comes of it. The last
// operation is then asked for once more: nothing more happens, and the answer is the
// same, or that it is a repeat.
func TestALifeStepByStep(t *testing.T) {
	type ops []ordersvc.Operation
	for _, c := range []struct {
		story  string
		before ops
		do     ordersvc.Operation
		now    schema.Millis // after t0
		err    error
		status schema.Status
		kind   schema.Kind // of the entry; created: none
		reason string
	}{
		{"a payment", nil, payment, 1, nil, schema.Paid, schema.KindPaid, ""},
		{"a payment after its time", nil, payment, 10_000_000, nil, schema.Paid, schema.KindPaid, ""},
		{"too much", nil, dear, 1, ordersvc.ErrAmountMismatch, schema.Created, schema.KindUnappliedPayment, "amount"},
		{"the right sum under a number that came with too much", ops{dear}, payment, 1, nil, schema.Paid, schema.KindPaid, ""},
		{"other money", nil, dollars, 1, ordersvc.ErrCurrencyMismatch, schema.Created, schema.KindUnappliedPayment, "currency"},
		{"a second payment", ops{payment}, payment2, 1, ordersvc.ErrAlreadyPaid, schema.Paid, schema.KindUnappliedPayment, "duplicate"},
		{"a second payment of too much", ops{payment2}, dear, 1, ordersvc.ErrAlreadyPaid, schema.Paid, schema.KindUnappliedPayment, "duplicate"},
		{"the payment with another sum", ops{payment}, dear, 1, ordersvc.ErrTradeNoReused, schema.Paid, 0, ""},
		{"the payment in other money", ops{payment}, dollars, 1, ordersvc.ErrTradeNoReused, schema.Paid, 0, ""},
		{"a late payment", ops{byBuyer}, payment, 1, nil, schema.Closed, schema.KindUnappliedPayment, "late"},
		{"a second payment after refunds", ops{payment, whole}, payment2, 1, ordersvc.ErrAlreadyPaid, schema.Refunded, schema.KindUnappliedPayment, "duplicate"},
		{"a close", nil, byBuyer, 1, nil, schema.Closed, schema.KindClosed, "buyer"},
		{"a close of a paid order", ops{payment}, byBuyer, 1, ordersvc.ErrAlreadyPaid, schema.Paid, 0, ""},
		{"a close of a refunded order", ops{payment, whole}, byBuyer, 1, ordersvc.ErrAlreadyPaid, schema.Refunded, 0, ""},
		{"expiry", nil, ordersvc.Expire{}, 1_830_000, nil, schema.Closed, schema.KindClosed, "expired"},
		{"expiry a ms too early", nil, ordersvc.Expire{}, 1_829_999, ordersvc.ErrNotExpired, schema.Created, 0, ""},
		{"expiry of a paid order", ops{payment}, ordersvc.Expire{}, 9_000_000, ordersvc.ErrNotExpired, schema.Paid, 0, ""},
		{"a refund of a part", ops{payment}, part, 1, nil, schema.PartiallyRefunded, schema.KindRefunded, "scratched"},
		{"a refund of the rest", ops{payment, part}, rest, 1, nil, schema.Refunded, schema.KindRefunded, ""},
		{"a refund of the whole", ops{payment}, whole, 1, nil, schema.Refunded, schema.KindRefunded, ""},
		{"a refund of more than is left", ops{payment, part}, whole, 1, ordersvc.ErrExceedsPaid, schema.PartiallyRefunded, 0, ""},
		{"a refund when nothing is left", ops{payment, whole}, part, 1, ordersvc.ErrFullyRefunded, schema.Refunded, 0, ""},
		{"a refund before the payment", nil, part, 1, ordersvc.ErrNotPaid, schema.Created, 0, ""},
		{"a refund of a closed order", ops{byBuyer}, part, 1, ordersvc.ErrClosed, schema.Closed, 0, ""},
		{"a refund's number with another sum", ops{payment, part}, ordersvc.Return{No: "part", Amount: 1}, 1, ordersvc.ErrRefundNoReused, schema.PartiallyRefunded, 0, ""},
		{"a refund failed", ops{payment, part}, ordersvc.ReturnResult{No: "part"}, 1, nil, schema.PartiallyRefunded, schema.KindRefundFailed, ""},
		{"a failed refund succeeded", ops{payment, part, ordersvc.ReturnResult{No: "part"}}, ordersvc.ReturnResult{No: "part", Succeeded: true}, 1, nil, schema.PartiallyRefunded, schema.KindRefundSucceeded, ""},
		{"a refund that succeeded failed", ops{payment, part, ordersvc.ReturnResult{No: "part", Succeeded: true}}, ordersvc.ReturnResult{No: "part"}, 1, ordersvc.ErrRefundSucceeded, schema.PartiallyRefunded, 0, ""},
		{"a result of no refund", ops{payment, part}, ordersvc.ReturnResult{No: "rest"}, 1, ordersvc.ErrRefundNotFound, schema.PartiallyRefunded, 0, ""},
		{"the refund of a late payment", ops{byBuyer, payment}, ordersvc.ReturnUnapplied{Seq: 3, No: "u", Reason: "late"}, 1, nil, schema.Closed, schema.KindUnappliedRefunded, "late"},
		{"its result", ops{byBuyer, payment, ordersvc.ReturnUnapplied{Seq: 3, No: "u"}}, ordersvc.ReturnResult{No: "u", Succeeded: true}, 1, nil, schema.Closed, schema.KindRefundSucceeded, ""},
		{"a second refund of a late payment", ops{byBuyer, payment, ordersvc.ReturnUnapplied{Seq: 3, No: "u"}}, ordersvc.ReturnUnapplied{Seq: 3, No: "v"}, 1, ordersvc.ErrSettled, schema.Closed, 0, ""},
		{"its void after its refund", ops{byBuyer, payment, ordersvc.ReturnUnapplied{Seq: 3, No: "u"}}, ordersvc.VoidUnapplied{Seq: 3, Reason: "x"}, 1, ordersvc.ErrSettled, schema.Closed, 0, ""},
		{"its void", ops{byBuyer, payment}, ordersvc.VoidUnapplied{Seq: 3, Reason: "by hand"}, 1, nil, schema.Closed, schema.KindUnappliedVoided, "by hand"},
		{"its refund after its void", ops{byBuyer, payment, ordersvc.VoidUnapplied{Seq: 3, Reason: "x"}}, ordersvc.ReturnUnapplied{Seq: 3, No: "u"}, 1, ordersvc.ErrSettled, schema.Closed, 0, ""},
		{"a refund of what is no unapplied payment", ops{byBuyer, payment}, ordersvc.ReturnUnapplied{Seq: 2, No: "u"}, 1, ordersvc.ErrUnappliedNotFound, schema.Closed, 0, ""},
		{"a void of what is no unapplied payment", nil, ordersvc.VoidUnapplied{Seq: 1, Reason: "x"}, 1, ordersvc.ErrUnappliedNotFound, schema.Created, 0, ""},
		{"a refund under the number of an unapplied payment's", ops{dear2, payment, ordersvc.ReturnUnapplied{Seq: 2, No: "part"}}, ordersvc.Return{No: "part", Amount: 10_001}, 1, ordersvc.ErrRefundNoReused, schema.Paid, 0, ""},
		{"an unapplied payment's refund under the number of a refund", ops{dear2, payment, part}, ordersvc.ReturnUnapplied{Seq: 2, No: "part"}, 1, ordersvc.ErrRefundNoReused, schema.PartiallyRefunded, 0, ""},
		{"a refund of what was told before the payment that it is", ops{dear, payment}, ordersvc.ReturnUnapplied{Seq: 2, No: "u"}, 1, ordersvc.ErrTradeNoReused, schema.Paid, 0, ""},
		{"the void of that", ops{dear, payment}, ordersvc.VoidUnapplied{Seq: 2, Reason: "told wrongly"}, 1, nil, schema.Paid, schema.KindUnappliedVoided, "told wrongly"},
		{"a second refund of one payment that was told with two sums", ops{byBuyer, payment, dear, ordersvc.ReturnUnapplied{Seq: 4, No: "u"}}, ordersvc.ReturnUnapplied{Seq: 3, No: "v"}, 1, ordersvc.ErrTradeNoReused, schema.Closed, 0, ""},
		{"the right sum under a number that was given back", ops{dear, ordersvc.ReturnUnapplied{Seq: 2, No: "u"}}, payment, 1, ordersvc.ErrTradeNoReused, schema.Created, 0, ""},
		{"the right sum under another number", ops{dear2, ordersvc.ReturnUnapplied{Seq: 2, No: "u"}}, payment, 1, nil, schema.Paid, schema.KindPaid, ""},
	} {
		t.Run(c.story, func(t *testing.T) {
			l := newLife()
			for _, op := range c.before {
				l.Apply(by(&l, op), t0)
			}
			before := l.Order.Ver
			first := l.Apply(by(&l, c.do), t0+c.now)
			if !errors.Is(first.Err, c.err) || (c.err == nil) != (first.Err == nil) || first.Replayed {
				t.Fatalf("replayed %v, %v; want %v", first.Replayed, first.Err, c.err)
			}
			if l.Order.Status != c.status || first.Entry.Kind != c.kind || first.Entry.Reason != c.reason {
				t.Errorf("%s, %+v", l.Order.Status, first.Entry)
			}
			wrote := int64(0)
			if c.kind != schema.KindCreated {
				wrote = 1
			}
			if l.Order.Ver != before+wrote {
				t.Errorf("version %d after %d", l.Order.Ver, before)
			}
			legal(t, l)
			if _, expires := c.do.(ordersvc.Expire); expires {
				return // nobody asks for it again
			}
			again := l.Apply(by(&l, c.do), t0+c.now+10)
			if l.Order.Ver != before+wrote || again.Entry != first.Entry {
				t.Errorf("the repeat wrote %+v", again.Entry)
			}
			if !errors.Is(again.Err, c.err) || again.Replayed != (wrote == 1) {
				t.Errorf("the repeat: replayed %v, %v", again.Replayed, again.Err)
			}
		})
	}
}

// legal fails the test unless l can be.
func legal(t rapid.TB, l ordersvc.Life) {
	t.Helper()
	folded, err := ordersvc.Fold(ordersvc.Born(l.Order), l.Journal)
	if len(l.Journal) == 0 {
		folded.UpdatedAt = l.Order.UpdatedAt
	}
	if err != nil || folded != l.Order {
		t.Fatalf("the journal makes %+v (%v), the row is %+v", folded, err, l.Order)
	}
	if faults := ordersvc.Audit(l.Order, l.Journal); len(faults) > 0 {
		t.Fatalf("%+v, of %+v", faults, l)
	}
	o := l.Order
	if o.RefundedAmount < 0 || o.RefundedAmount > o.PaidAmount || o.PaidAmount > o.Amount {
		t.Fatalf("amounts: %+v", o)
	}
	// By the few entries that say what became of an unapplied payment or a refund, it is what
	// it is by the whole journal.
	part := func(is func(e *schema.Entry) bool) (p ordersvc.Life) {
		for i := range l.Journal {
			if is(&l.Journal[i]) {
				p.Journal = append(p.Journal, l.Journal[i])
			}
		}
		return p
	}
	for i := range l.Journal {
		e := &l.Journal[i]
		settles := ordersvc.UnappliedOps(e.Seq)
		few := part(func(o *schema.Entry) bool { return o.Seq == e.Seq || slices.Contains(settles, o.Op) })
		got, is := few.Unapplied(e.Seq)
		if want, wantIs := l.Unapplied(e.Seq); is != wantIs || got != want || len(few.Journal) > 2 {
			t.Fatalf("by %d entries %+v, by all %+v", len(few.Journal), got, want)
		}
		few = part(func(o *schema.Entry) bool { return o.Ref == e.Ref && slices.Contains(ordersvc.RefundKinds(), o.Kind) })
		refund, is := few.Refund(e.Ref)
		if want, wantIs := l.Refund(e.Ref); is != wantIs || refund != want || e.Ref != "" && len(few.Journal) > 3 {
			t.Fatalf("by %d entries %+v, by all %+v", len(few.Journal), refund, want)
		}
	}
	count, ops := map[schema.Kind]int{}, map[string]bool{}
	for _, e := range l.Journal {
		count[e.Kind]++
		if ops[e.Op] {
			t.Fatalf("%s is there twice", e.Op)
		}
		ops[e.Op] = true
	}
	if count[schema.KindPaid] > 1 || count[schema.KindClosed] > 1 || count[schema.KindPaid]+count[schema.KindClosed] > 1 {
		t.Fatalf("%v", count)
	}
	if int64(count[schema.KindUnappliedPayment]) != o.Unapplied || count[schema.KindRefunded] > ordersvc.RefundsMax {
		t.Fatalf("%v, %+v", count, o)
	}
	switch want := map[bool]schema.Status{true: schema.Paid, false: schema.PartiallyRefunded}; {
	case o.PaidAmount == 0 && (o.Status == schema.Paid || o.Status == schema.PartiallyRefunded || o.Status == schema.Refunded),
		o.PaidAmount > 0 && o.RefundedAmount == o.PaidAmount && o.Status != schema.Refunded,
		o.PaidAmount > 0 && o.RefundedAmount < o.PaidAmount && o.Status != want[o.RefundedAmount == 0]:
		t.Fatalf("%+v", o)
	}
}

// Fault 6. Every order in which a payment, a close, a refund and the expiry can come,
// each up to three times: what comes again changes nothing, and no paid order closes, no
// closed one is paid.
func TestFault6EveryPermutation(t *testing.T) {
	all := []ordersvc.Operation{payment, byBuyer, whole, ordersvc.Expire{}}
	const late = t0 + 3_600_000
	count := 0
	var walk func(l ordersvc.Life, used [4]int, first []ordersvc.Operation)
	walk = func(l ordersvc.Life, used [4]int, first []ordersvc.Operation) {
		count++
		for i, op := range all {
			if used[i] == 3 {
				continue
			}
			next := ordersvc.Life{Order: l.Order, Journal: slices.Clone(l.Journal)}
			r := next.Apply(by(&next, op), late)
			if used[i] > 0 && slices.Contains(first, op) && next.Order.Status != l.Order.Status {
				t.Fatalf("again %T: from %s to %s", op, l.Order.Status, next.Order.Status)
			}
			if l.Order.Status == schema.Closed && next.Order.Status != schema.Closed || l.Order.PaidAmount > 0 && next.Order.PaidAmount != l.Order.PaidAmount {
				t.Fatalf("%T: from %+v to %+v", op, l.Order, next.Order)
			}
			if next.Order.Ver > l.Order.Ver {
				legal(t, next)
			}
			did := first
			if r.Err == nil {
				did = append(slices.Clone(first), op)
			}
			now := used
			now[i]++
			walk(next, now, did)
		}
	}
	walk(newLife(), [4]int{}, nil)
	t.Logf("%d histories", count)
}

// Whatever is asked for, in whatever order, at whatever times: the life stays legal, what
// was done is done once, and the time never falls.
func TestAnyLifeIsLegal(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := newLife()
		now := t0
		amount := rapid.Custom(func(rt *rapid.T) int64 {
			return rapid.OneOf(rapid.Just(int64(10_000)), rapid.Int64Range(1, 12_000)).Draw(rt, "amount")
		})
		number := rapid.Custom(func(rt *rapid.T) string { return fmt.Sprint("n", rapid.IntRange(0, 60).Draw(rt, "no")) })
		op := rapid.OneOf(
			rapid.Custom(func(rt *rapid.T) ordersvc.Operation {
				return ordersvc.Pay{
					Channel: rapid.SampledFrom([]string{"wechat", "alipay"}).Draw(rt, "channel"), TradeNo: fmt.Sprint(rapid.IntRange(0, 3).Draw(rt, "trade")),
					Amount: amount.Draw(rt, "paid"), Currency: rapid.SampledFrom([]string{"CNY", "CNY", "USD"}).Draw(rt, "currency"),
				}
			}),
			rapid.SampledFrom([]ordersvc.Operation{byBuyer, ordersvc.Expire{}}),
			rapid.Custom(func(rt *rapid.T) ordersvc.Operation {
				return ordersvc.Return{No: number.Draw(rt, "no"), Amount: rapid.Int64Range(1, 400).Draw(rt, "back")}
			}),
			rapid.Custom(func(rt *rapid.T) ordersvc.Operation {
				return ordersvc.Return{No: number.Draw(rt, "no"), Amount: amount.Draw(rt, "back")}
			}),
			rapid.Custom(func(rt *rapid.T) ordersvc.Operation {
				return ordersvc.ReturnResult{No: number.Draw(rt, "no"), Succeeded: rapid.Bool().Draw(rt, "succeeded")}
			}),
			rapid.Custom(func(rt *rapid.T) ordersvc.Operation {
				return ordersvc.ReturnUnapplied{Seq: int64(rapid.IntRange(1, 20).Draw(rt, "seq")), No: number.Draw(rt, "no")}
			}),
			rapid.Custom(func(rt *rapid.T) ordersvc.Operation {
				return ordersvc.VoidUnapplied{Seq: int64(rapid.IntRange(1, 20).Draw(rt, "seq")), Reason: "x"}
			}),
		)
		for _, do := range rapid.SliceOfN(op, 1, 120).Draw(rt, "ops") {
			now += schema.Millis(rapid.Int64Range(-1_000, 60_000).Draw(rt, "passed"))
			was := l.Order
			r := l.Apply(by(&l, do), now)
			switch {
			case l.Order.Ver > was.Ver && (r.Replayed || r.Entry.Seq != l.Order.Ver || r.Entry != l.Journal[len(l.Journal)-1]):
				rt.Fatalf("%+v wrote %+v", do, r)
			case l.Order.Ver == was.Ver && l.Order != was:
				rt.Fatalf("%+v changed the row without an entry", do)
			case l.Order.UpdatedAt < was.UpdatedAt:
				rt.Fatalf("%+v: the time fell", do)
			case r.Err == nil && r.Life.Order != l.Order:
				rt.Fatalf("%+v answers %+v", do, r.Life.Order)
			}
			legal(rt, l)
		}
	})
}

// A journal that can't be is found, entry by entry.
func TestFoldFindsWhatCannotBe(t *testing.T) {
	l := newLife()
	for _, op := range []ordersvc.Operation{dear, payment, part, ordersvc.ReturnResult{No: "part", Succeeded: true}, rest} {
		l.Apply(by(&l, op), t0)
	}
	legal(t, l)
	for name, spoil := range map[string]func([]schema.Entry) []schema.Entry{
		"one is missing in the states": func(j []schema.Entry) []schema.Entry { return append(j[:1:1], j[2:]...) },
		"another order":                func(j []schema.Entry) []schema.Entry { j[2].OrderID++; return j },
		"another buyer":                func(j []schema.Entry) []schema.Entry { j[2].UID++; return j },
		"seq falls":                    func(j []schema.Entry) []schema.Entry { j[2].Seq = 2; return j },
		"time falls":                   func(j []schema.Entry) []schema.Entry { j[2].RecordedAt--; return j },
		"an edge that there isn't":     func(j []schema.Entry) []schema.Entry { j[0].To = schema.Paid; return j },
		"more refunded than paid":      func(j []schema.Entry) []schema.Entry { j[2].Amount = 10_001; return j[:3] },
		"refunded, with a rest":        func(j []schema.Entry) []schema.Entry { j[4].Amount--; return j },
		"another sum paid":             func(j []schema.Entry) []schema.Entry { j[1].Amount++; return j },
		"a creation":                   func(j []schema.Entry) []schema.Entry { j[0].Kind = schema.KindCreated; return j },
	} {
		if _, err := ordersvc.Fold(ordersvc.Born(l.Order), spoil(slices.Clone(l.Journal))); err == nil {
			t.Errorf("%s: nothing was found", name)
		}
	}
}
