package mirrortest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/apply"
	"github.com/octopay/octopay/syncer/mirror"
	"pgregory.net/rapid"
)

// newEntry is an entry of an order, which says of what kind it is and which number it has.
func newEntry(order, seq, bid int64, kind schema.Kind) schema.Entry {
	return schema.Entry{
		OrderID: order, Seq: seq, UID: 9527, BID: bid, Op: fmt.Sprintf("%s:%d", kind, seq), Kind: kind, Amount: seq, Currency: "CNY",
		From: schema.Paid, To: schema.Paid, Ref: fmt.Sprintf("wechat:%d-%d", order, seq), Actor: "channel", RequestID: "r", RecordedAt: 1000,
	}
}

// feeders returns a feeder for each of some databases, and merchants of them: two tables of
// one database, two merchants of one table, another database.
func feeders(m Mirror) (of map[int64]*feeder, bids []int64) {
	six, three := feed(m, 6), feed(m, 3)
	bids = []int64{six.bid(0), six.bid(1), six.bid(10), three.bid(4)}
	return map[int64]*feeder{bids[0]: six, bids[1]: six, bids[2]: six, bids[3]: three}, bids
}

var someKinds = []schema.Kind{schema.KindPaid, schema.KindRefunded, schema.KindUnappliedPayment, schema.KindUnappliedRefunded, schema.KindRefundFailed}

// pages walks a list of entries to its end, calling between after each page but the last.
func (m Mirror) pages(t T, q mirror.EntryQuery, between func()) (found []mirror.Found, until []schema.Millis) {
	t.Helper()
	q.Before = mirror.Newest
	for {
		p, err := m.Reader.Entries(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Found) > q.Limit {
			t.Fatalf("%d entries of at most %d", len(p.Found), q.Limit)
		}
		found, until = append(found, p.Found...), append(until, p.CompleteUntil)
		if p.Next == (mirror.Position{}) {
			return found, until
		}
		if p.Next.Compare(q.Before) >= 0 {
			t.Fatalf("the page behind %v goes on behind %v", q.Before, p.Next)
		}
		q.Before = p.Next
		if between != nil {
			between()
		}
	}
}

// model is what a list of entries holds, made in the simplest way.
func model(all []schema.Entry, q mirror.EntryQuery) (want []mirror.Found) {
	for _, e := range all {
		if q.BID != 0 && e.BID != q.BID || !slices.Contains(q.Kinds, e.Kind) {
			continue
		}
		var journal []schema.Entry
		for _, o := range all {
			if o.OrderID == e.OrderID && (o.Seq == e.Seq || q.Beside != nil && isBeside(e, o)) {
				journal = append(journal, o)
			}
		}
		slices.SortFunc(journal, func(a, b schema.Entry) int { return int(a.Seq - b.Seq) })
		if q.Match == nil || q.Match(&e, journal) {
			want = append(want, mirror.Found{Entry: e, Journal: journal})
		}
	}
	slices.SortFunc(want, func(a, b mirror.Found) int { return position(b.Entry).Compare(position(a.Entry)) })
	return want
}

func position(e schema.Entry) mirror.Position {
	return mirror.Position{Order: e.OrderID, Seq: e.Seq}
}

// settling is the operation that settles an entry in these tests.
func settling(e *schema.Entry) string { return fmt.Sprintf("settles:%d", e.Seq) }

// beside names what settles an entry, and what has its reference: what stands for what
// became of an unapplied payment or a refund. isBeside says the same.
func beside(e *schema.Entry) mirror.Beside {
	return mirror.Beside{Ops: []string{settling(e), "nothing"}, Ref: e.Ref, Kinds: []schema.Kind{schema.KindRefunded, schema.KindRefundFailed}}
}

func isBeside(e, o schema.Entry) bool {
	return o.Op == settling(&e) || e.Ref != "" && o.Ref == e.Ref && (o.Kind == schema.KindRefunded || o.Kind == schema.KindRefundFailed)
}

// open reports that nothing settles an entry.
func open(e *schema.Entry, journal []schema.Entry) bool {
	return !slices.ContainsFunc(journal, func(o schema.Entry) bool { return o.Op == settling(e) })
}

func entryLists(t *testing.T, m Mirror) {
	of, bids := feeders(m)
	var all []schema.Entry
	for i := range int64(60) {
		order, bid := 1000+i*3, bids[i%4]
		var entries []apply.Entry
		for seq := range 1 + i%7 {
			e := newEntry(order, seq+2, bid, someKinds[(i+seq)%int64(len(someKinds))])
			switch { // entries of one order and of others have references and operations in common
			case seq%3 == 2:
				e.Ref = ""
			case i%2 == 0:
				e.Ref = fmt.Sprintf("n%d", seq/3)
			}
			if i%3 == 0 && seq > 0 {
				e.Op = fmt.Sprintf("settles:%d", seq+1)
			}
			all, entries = append(all, e), append(entries, entry(e))
		}
		of[bid].apply(t, apply.Change{Entries: entries})
	}
	rapid.Check(t, func(t *rapid.T) {
		q := mirror.EntryQuery{
			BID:   rapid.SampledFrom(append([]int64{0, 0, of[bids[0]].bid(2)}, bids...)).Draw(t, "bid"),
			Kinds: rapid.SliceOfNDistinct(rapid.SampledFrom(someKinds), 1, 3, rapid.ID[schema.Kind]).Draw(t, "kinds"),
			Limit: rapid.IntRange(1, 30).Draw(t, "limit"),
		}
		if rapid.Bool().Draw(t, "beside") {
			q.Beside = beside
			if rapid.Bool().Draw(t, "open") {
				q.Match = open
			}
		}
		got, _ := m.pages(t, q, nil)
		if diff := cmp.Diff(model(all, q), got); diff != "" {
			t.Fatalf("the list of %+v differs:\n%s", q, diff)
		}
	})
}

// While somebody walks, orders come, older ones get entries, and what was in the list
// leaves it. What was there from the first page to the last comes exactly once.
func entryWalk(t *testing.T, m Mirror) {
	of, bids := feeders(m)
	servers := m.Map.Servers(shardmap.UID)
	var all []schema.Entry
	var clock schema.Millis
	add := func(e schema.Entry) {
		clock += 10
		c := apply.Change{Entries: []apply.Entry{entry(e)}}
		for _, s := range servers {
			c.Marks = append(c.Marks, mark(s.Name, uint64(clock), clock))
		}
		of[e.BID].apply(t, c)
		all = append(all, e)
	}
	for i := range int64(40) {
		add(newEntry(1000+i*10, 3, bids[i%4], schema.KindUnappliedPayment))
	}
	for _, bid := range []int64{0, bids[0]} {
		q := mirror.EntryQuery{BID: bid, Kinds: []schema.Kind{schema.KindUnappliedPayment}, Beside: beside, Match: open, Limit: 2}
		before := model(all, q)
		step := int64(0)
		got, until := m.pages(t, q, func() {
			step++
			to := bids[step%4]
			if bid != 0 {
				to = bid
			}
			// Newer than all, older than all, in between, and one that is settled.
			add(newEntry(5000+10*clock64(clock), 3, to, schema.KindUnappliedPayment))
			add(newEntry(10+step+bid, 3, to, schema.KindUnappliedPayment))
			e := before[(step*7)%int64(len(before))].Entry
			add(newEntry(e.OrderID, 100+clock64(clock), e.BID, schema.KindUnappliedPayment))
			settled := newEntry(e.OrderID, 1000+clock64(clock), e.BID, schema.KindUnappliedRefunded)
			settled.Op = settling(&e)
			add(settled)
		})
		if step < 4 {
			t.Fatalf("the walk had %d pages", step+1)
		}
		times := map[mirror.Position]int{}
		last := mirror.Newest
		for _, f := range got {
			times[position(f.Entry)]++
			if position(f.Entry).Compare(last) >= 0 {
				t.Fatalf("%v comes behind %v", position(f.Entry), last)
			}
			last = position(f.Entry)
		}
		// All that was there at first and still is.
		stayed := 0
		after := model(all, q)
		for _, f := range before {
			p := position(f.Entry)
			if slices.ContainsFunc(after, func(f mirror.Found) bool { return position(f.Entry) == p }) {
				stayed++
				if times[p] != 1 {
					t.Errorf("%v stayed and came %d times", p, times[p])
				}
			}
		}
		for p, n := range times {
			if n > 1 {
				t.Errorf("%v came %d times", p, n)
			}
		}
		if stayed == 0 || stayed == len(before) {
			t.Errorf("%d of %d stayed", stayed, len(before))
		}
		if !slices.IsSorted(until) {
			t.Errorf("complete until %v", until)
		}
	}
	// Of all merchants it is the least of all databases, and most have no mark yet.
	if _, until := m.pages(t, mirror.EntryQuery{Kinds: someKinds[:1], Limit: 1}, nil); until[0] != 0 {
		t.Errorf("all merchants' list is complete until %d", until[0])
	}
	if _, until := m.pages(t, mirror.EntryQuery{BID: bids[0], Kinds: someKinds[:1], Limit: 1}, nil); until[0] == 0 {
		t.Error("a merchant's list is complete until 1970")
	}
}

func clock64(m schema.Millis) int64 { return int64(m) }

// A page that finds nothing ends, and goes on where it ended.
func entriesExamined(t *testing.T, m Mirror) {
	f := feed(m, 2)
	bid := f.bid(0)
	const orders, per = 6_200, 1_000
	for from := int64(0); from < orders; from += per {
		var c apply.Change
		for i := from; i < min(from+per, orders); i++ {
			c.Entries = append(c.Entries, entry(newEntry(1+i, 2, bid, schema.KindUnappliedPayment)))
		}
		f.apply(t, c)
	}
	for _, of := range []int64{bid, 0} {
		asked, inPage, pages := 0, 0, 1
		q := mirror.EntryQuery{BID: of, Kinds: []schema.Kind{schema.KindUnappliedPayment}, Limit: 100, Match: func(e *schema.Entry, _ []schema.Entry) bool {
			asked++
			inPage++
			return e.OrderID == 7
		}}
		found, _ := m.pages(t, q, func() {
			// Each was examined as a row of the list and as a row of a journal.
			if 2*inPage > mirror.ExaminedMax {
				t.Errorf("one page examined %d", 2*inPage)
			}
			inPage = 0
			pages++
		})
		if len(found) != 1 || asked != orders || pages < 2 {
			t.Errorf("found %d in %d pages, asked %d times", len(found), pages, asked)
		}
	}
}

// A journal that has thousands of entries costs a page no more than others: what comes along
// with an entry is what is beside it.
func entriesOfOneOrder(t *testing.T, m Mirror) {
	f := feed(m, 4)
	bid := f.bid(0)
	const payments, settled, limit = 3_000, 30, 100
	var c apply.Change
	for seq := range int64(payments) {
		c.Entries = append(c.Entries, entry(newEntry(1, 2+seq, bid, schema.KindUnappliedPayment)))
	}
	for i := range int64(settled) {
		e := newEntry(1, 2+payments+i, bid, schema.KindUnappliedRefunded)
		e.Op = fmt.Sprintf("settles:%d", 2+i*100)
		c.Entries = append(c.Entries, entry(e))
	}
	f.apply(t, c)
	for _, of := range []int64{bid, 0} {
		q := mirror.EntryQuery{BID: of, Kinds: []schema.Kind{schema.KindUnappliedPayment}, Beside: beside, Limit: limit}
		found, until := m.pages(t, q, nil)
		two := 0
		for i, f := range found {
			if want := int64(1 + payments - i); f.Entry.Seq != want {
				t.Fatalf("entry %d comes where %d should", f.Entry.Seq, want)
			}
			switch n := len(f.Journal); {
			case n == 2 && f.Journal[0] == f.Entry && f.Journal[1].Op == settling(&f.Entry):
				two++
			case n != 1 || f.Journal[0] != f.Entry:
				t.Fatalf("with entry %d come %d of its journal", f.Entry.Seq, n)
			}
		}
		if len(found) != payments || two != settled || len(until) != payments/limit {
			t.Errorf("found %d, %d of them settled, in %d pages", len(found), two, len(until))
		}
		q.Match = open
		if found, _ := m.pages(t, q, nil); len(found) != payments-settled {
			t.Errorf("%d are open", len(found))
		}
	}
}
