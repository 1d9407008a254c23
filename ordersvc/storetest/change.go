package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/slot"
)

// born stores a new order and returns it.
func born(t testing.TB, s ordersvc.Store, uid int64, number string) schema.Order {
	t.Helper()
	r := insert(t, s, Order(uid, number))[0]
	if r.Err != nil || r.Taken {
		t.Fatalf("order %s: %+v", number, r)
	}
	return r.Order
}

func change(o schema.Order, do ordersvc.Operation) ordersvc.Change {
	return ordersvc.Change{Order: o.OrderID(), Do: do, By: ordersvc.By{Actor: "channel", KeyID: "k1", RequestID: "r"}}
}

// alter does changes of one database and fails the test unless there is one answer for
// each. Any goroutine may call it.
func alter(t testing.TB, s ordersvc.Store, changes ...ordersvc.Change) []ordersvc.Changed {
	t.Helper()
	database := slot.DatabaseOfInfo(changes[0].Order.Info(), Databases)
	out := s.Change(background, database, changes)
	if len(out) != len(changes) {
		t.Errorf("%d answers for %d changes", len(out), len(changes))
		return make([]ordersvc.Changed, len(changes))
	}
	return out
}

// persist is alter that goes on with what finds no lock in time.
func persist(t testing.TB, s ordersvc.Store, changes ...ordersvc.Change) []ordersvc.Changed {
	t.Helper()
	out := alter(t, s, changes...)
	for i := range out {
		for errors.Is(out[i].Err, cluster.ErrUnavailable) {
			out[i] = alter(t, s, changes[i])[0]
		}
	}
	return out
}

// lives fails the test unless what is stored of an order is l, and its journal makes it.
func lives(t testing.TB, s ordersvc.Store, l ordersvc.Life) {
	t.Helper()
	stored(t, s, l.Order)
	entries, err := s.Journal(background, Place(l.Order.UID), l.Order.ID)
	if err != nil || !slices.Equal(entries, l.Journal) {
		t.Errorf("the journal is %+v (%v), answered was %+v", entries, err, l.Journal)
	}
	folded, err := ordersvc.Fold(ordersvc.Born(l.Order), entries)
	if err == nil && len(entries) == 0 {
		folded.UpdatedAt = l.Order.UpdatedAt
	}
	if err != nil {
		t.Errorf("the journal can't be: %v", err)
	}
	same(t, "the journal", folded, l.Order)
}

// lived reads what is stored of an order, whose journal must make its row.
func lived(t testing.TB, s ordersvc.Store, o schema.Order) (schema.Order, []schema.Entry) {
	t.Helper()
	now, err := s.Order(background, Place(o.UID), o.ID)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := s.Journal(background, Place(o.UID), o.ID)
	if err != nil {
		t.Fatal(err)
	}
	lives(t, s, ordersvc.Life{Order: now, Journal: entries})
	return now, entries
}

func pay(o schema.Order, number string) ordersvc.Pay {
	return ordersvc.Pay{Channel: "wechat", TradeNo: number, Amount: o.Amount, Currency: o.Currency}
}

func wholeLife(t *testing.T, s ordersvc.Store) {
	o := born(t, s, Buyer(4, 4), "whole-life")
	paid := pay(o, "4200")
	paid.PaidAt = schema.MillisOf(began)
	wrong := paid
	wrong.TradeNo, wrong.Amount = "4201", paid.Amount+1
	seq := int64(1)
	for _, step := range []struct {
		do     ordersvc.Operation
		want   error
		kind   schema.Kind
		status schema.Status
	}{
		{wrong, ordersvc.ErrAmountMismatch, schema.KindUnappliedPayment, schema.Created},
		{paid, nil, schema.KindPaid, schema.Paid},
		{pay(o, "4202"), ordersvc.ErrAlreadyPaid, schema.KindUnappliedPayment, schema.Paid},
		{ordersvc.Return{No: "r1", Amount: 100, Reason: "scratched ✂"}, nil, schema.KindRefunded, schema.PartiallyRefunded},
		{ordersvc.ReturnResult{No: "r1", ChannelRefundNo: "c1"}, nil, schema.KindRefundFailed, schema.PartiallyRefunded},
		{ordersvc.ReturnResult{No: "r1", Succeeded: true}, nil, schema.KindRefundSucceeded, schema.PartiallyRefunded},
		{ordersvc.Return{No: "r2", Amount: o.Amount - 100}, nil, schema.KindRefunded, schema.Refunded},
		{ordersvc.ReturnUnapplied{Seq: 2, No: "r3"}, nil, schema.KindUnappliedRefunded, schema.Refunded},
		{ordersvc.VoidUnapplied{Seq: 4, Reason: "paid out by hand"}, nil, schema.KindUnappliedVoided, schema.Refunded},
	} {
		var first ordersvc.Changed
		for _, again := range []bool{false, true} {
			r := alter(t, s, change(o, step.do))[0]
			if !errors.Is(r.Err, step.want) || (r.Err == nil) != (step.want == nil) {
				t.Fatalf("%+v: %v, want %v", step.do, r.Err, step.want)
			}
			if !again {
				first, seq = r, seq+1
			}
			if r.Replayed != again || r.Entry != first.Entry || r.Entry.Seq != seq || r.Entry.Kind != step.kind {
				t.Errorf("%+v, again: %v: replayed %v, entry %+v", step.do, again, r.Replayed, r.Entry)
			}
			if r.Life.Order.Status != step.status || r.Life.Order.Ver != seq {
				t.Errorf("%+v, again: %v: %+v", step.do, again, r.Life.Order)
			}
			lives(t, s, r.Life)
		}
	}
}

func changesInOneCall(t *testing.T, s ordersvc.Store) {
	a, b := born(t, s, Buyer(6, 1), "in-one-call"), born(t, s, Buyer(6, 2), "in-one-call")
	nobody := Order(Buyer(6, 3), "nobody")
	rs := alter(t, s,
		change(a, pay(a, "1")), change(b, ordersvc.Close{Reason: schema.ByBuyer}), change(nobody, pay(a, "1")),
		change(a, ordersvc.Return{No: "r", Amount: a.Amount}), change(b, pay(b, "2")), change(a, pay(a, "1")),
		change(a, ordersvc.Return{No: "r2", Amount: 1}),
	)
	for i, want := range []error{nil, nil, ordersvc.ErrNotFound, nil, nil, nil, ordersvc.ErrFullyRefunded} {
		if !errors.Is(rs[i].Err, want) || (want == nil) != (rs[i].Err == nil) {
			t.Fatalf("answer %d: %v, want %v", i, rs[i].Err, want)
		}
	}
	for i, want := range []schema.Status{schema.Paid, schema.Closed, 0, schema.Refunded, schema.Closed, schema.Refunded, schema.Refunded} {
		if got := rs[i].Life.Order.Status; got != want {
			t.Errorf("answer %d: the order is %s, want %s", i, got, want)
		}
	}
	if e := rs[4].Entry; e.Kind != schema.KindUnappliedPayment || e.Reason != ordersvc.UnappliedLate {
		t.Errorf("the late payment is %+v", e)
	}
	if !rs[5].Replayed || rs[5].Entry != rs[0].Entry {
		t.Errorf("the repeat is %+v", rs[5])
	}
	lives(t, s, rs[6].Life)
	lives(t, s, rs[4].Life)
}

func foreignChange(t *testing.T, s ordersvc.Store) {
	o := born(t, s, Buyer(2, 7), "foreign")
	mine := change(o, ordersvc.Close{Reason: schema.ByMerchant})
	otherBuyer, otherMerchant, otherPlace := mine, mine, mine
	otherBuyer.UID = o.UID + slot.Count
	otherMerchant.BID = o.BID + 1
	otherPlace.Order = Order(Buyer(2, 8), "elsewhere").OrderID()
	for i, r := range alter(t, s, otherBuyer, otherMerchant, otherPlace) {
		if !errors.Is(r.Err, ordersvc.ErrNotFound) || r.Life.Order != (schema.Order{}) {
			t.Errorf("foreign %d: %+v", i, r)
		}
	}
	lives(t, s, ordersvc.Life{Order: o})
	mine.UID, mine.BID = o.UID, o.BID
	if r := alter(t, s, mine)[0]; r.Err != nil || r.Life.Order.Status != schema.Closed {
		t.Errorf("its own: %+v", r)
	}
}

func refusedChange(t *testing.T, s ordersvc.Store) {
	var all []ordersvc.Change
	for i := range 9 {
		o := born(t, s, Buyer(3, i), "refused-change")
		all = append(all, change(o, ordersvc.Close{Reason: schema.ByMerchant}))
	}
	all[4].By.RequestID = strings.Repeat("x", 65) // wider than its column
	for i, r := range alter(t, s, all...) {
		if (r.Err != nil) != (i == 4) {
			t.Errorf("change %d: %v", i, r.Err)
		}
		want := schema.Closed
		if i == 4 {
			want = schema.Created
		}
		o, err := s.Order(background, Place(uidOf(all[i])), all[i].Order.Snowflake())
		if err != nil || o.Status != want {
			t.Errorf("order %d is %s (%v), want %s", i, o.Status, err, want)
		}
	}
}

// uidOf returns a uid of the change's slot.
func uidOf(c ordersvc.Change) int64 {
	return slot.Count + int64(c.Order.Info()-1)*slot.Tables + int64(c.Order.Table())
}

func expiry(t *testing.T, s ordersvc.Store) {
	early, late := Order(Buyer(7, 7), "early"), Order(Buyer(7, 7), "late")
	now := schema.MillisOf(time.Now())
	early.ExpiresAt = now + 60_000
	late.ExpiresAt = now - 40_000 // over for half a minute, by whatever clock
	insert(t, s, early, late)
	due, err := s.Due(background, Place(late.UID).Database, 1000)
	if err != nil {
		t.Fatal(err)
	}
	has := func(o schema.Order) bool {
		return slices.Contains(due, ordersvc.Due{ID: o.OrderID(), ExpiresAt: o.ExpiresAt.Time()})
	}
	if !has(late) || has(early) {
		t.Errorf("due is %v", due)
	}
	if one, err := s.Due(background, Place(late.UID).Database, 1); err != nil || len(one) != 1 {
		t.Errorf("at most one: %v, %v", one, err)
	}
	rs := alter(t, s, change(early, ordersvc.Expire{}), change(late, ordersvc.Expire{}), change(late, ordersvc.Expire{}))
	if !errors.Is(rs[0].Err, ordersvc.ErrNotExpired) || rs[1].Err != nil || !errors.Is(rs[2].Err, ordersvc.ErrNotExpired) {
		t.Fatalf("%v, %v, %v", rs[0].Err, rs[1].Err, rs[2].Err)
	}
	if due, err = s.Due(background, Place(late.UID).Database, 1000); err != nil || has(late) {
		t.Errorf("closed, it is due: %v, %v", due, err)
	}
	if o := rs[1].Life.Order; o.Status != schema.Closed || o.CloseReason != schema.Expired || o.ClosedAt != o.UpdatedAt {
		t.Errorf("%+v", o)
	}
	lives(t, s, rs[1].Life)
	lives(t, s, rs[0].Life)
}

// Fault 2. Each refund alone would fit, two never do.
func parallelRefunds(t *testing.T, s ordersvc.Store) {
	const n = 50
	o := born(t, s, Buyer(8, 5), "refunds")
	alter(t, s, change(o, pay(o, "1")))
	results := make([]ordersvc.Changed, n)
	together(n, func(i int) {
		results[i] = alter(t, s, change(o, ordersvc.Return{No: fmt.Sprint("r", i), Amount: o.Amount * 6 / 10}))[0]
	})
	accepted := 0
	var life ordersvc.Life
	for _, r := range results {
		switch {
		case r.Err == nil:
			accepted++
			life = r.Life
		case !errors.Is(r.Err, ordersvc.ErrExceedsPaid):
			t.Error(r.Err)
		}
	}
	if accepted != 1 {
		t.Fatalf("%d refunds of 60 %% were accepted", accepted)
	}
	lives(t, s, life)
}

// One payment told many times is applied once; a payment against a close: one wins, and
// the money of the loser is recorded.
func parallelPayAndClose(t *testing.T, s ordersvc.Store) {
	const n = 30
	for round := range 10 {
		o := born(t, s, Buyer(1, round), "pay-and-close")
		results := make([]ordersvc.Changed, n)
		together(n, func(i int) {
			if i%2 == 0 {
				results[i] = alter(t, s, change(o, pay(o, "1")))[0]
			} else {
				results[i] = alter(t, s, change(o, ordersvc.Close{Reason: schema.ByBuyer}))[0]
			}
		})
		firstPay, firstClose := 0, 0
		for i, r := range results {
			switch {
			case i%2 == 0 && r.Err == nil && !r.Replayed:
				firstPay++
			case i%2 == 1 && r.Err == nil && !r.Replayed:
				firstClose++
			case i%2 == 0 && r.Err != nil, i%2 == 1 && r.Err != nil && !errors.Is(r.Err, ordersvc.ErrAlreadyPaid):
				t.Error(r.Err)
			}
		}
		now, entries := lived(t, s, o)
		switch now.Status {
		case schema.Paid:
			if firstPay != 1 || firstClose != 0 || len(entries) != 1 {
				t.Errorf("paid: %d payments, %d closes, %d entries", firstPay, firstClose, len(entries))
			}
		case schema.Closed:
			if firstPay != 1 || firstClose != 1 || len(entries) != 2 || now.Unapplied != 1 {
				t.Errorf("closed: %d payments, %d closes, %d entries, %d unapplied", firstPay, firstClose, len(entries), now.Unapplied)
			}
		default:
			t.Errorf("it is %s", now.Status)
		}
	}
}

// Fault 6. A payment and the end of its time at the same moment, a thousand times: one
// wins, and the money of a payment that lost is recorded beside the closed order.
func parallelPayAndExpiry(t *testing.T, s ordersvc.Store) {
	const rounds, each = 50, 20
	paid, closed := 0, 0
	for round := range rounds {
		var all []schema.Order
		for i := range each {
			o := Order(Buyer(2, i%slot.Tables), "pay-and-expiry")
			o.ExpiresAt = schema.MillisOf(time.Now()) - 2*ordersvc.ExpiryGrace
			all = append(all, o)
		}
		var pays, expires []ordersvc.Change
		for i, r := range insert(t, s, all...) {
			all[i] = r.Order
			pays = append(pays, change(all[i], pay(all[i], "1")))
			expires = append(expires, change(all[i], ordersvc.Expire{}))
		}
		sides := [2][]ordersvc.Change{pays, expires}
		var results [2][]ordersvc.Changed
		together(2, func(i int) {
			side := (i + round) % 2 // who is woken first
			results[side] = persist(t, s, sides[side]...)
		})
		for i, o := range all {
			payment, expiry := results[0][i], results[1][i]
			now, entries := lived(t, s, o)
			if payment.Err != nil || payment.Replayed || payment.Entry.Op == "" {
				t.Errorf("the payment: %+v", payment)
			}
			switch now.Status {
			case schema.Paid:
				paid++
				if !errors.Is(expiry.Err, ordersvc.ErrNotExpired) || len(entries) != 1 || now.Unapplied != 0 {
					t.Errorf("paid, expiry said %v, %d entries, %d unapplied", expiry.Err, len(entries), now.Unapplied)
				}
			case schema.Closed:
				closed++
				if expiry.Err != nil || len(entries) != 2 || now.Unapplied != 1 || now.PaidAmount != 0 ||
					entries[1].Kind != schema.KindUnappliedPayment || entries[1].Reason != ordersvc.UnappliedLate || entries[1].Amount != o.Amount {
					t.Errorf("closed, expiry said %v: %+v", expiry.Err, entries)
				}
			default:
				t.Errorf("it is %s", now.Status)
			}
		}
	}
	if paid+closed != rounds*each || paid == 0 || closed == 0 {
		t.Errorf("of %d orders %d were paid and %d expired", rounds*each, paid, closed)
	}
}
