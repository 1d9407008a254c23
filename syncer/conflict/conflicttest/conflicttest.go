// Package conflicttest is the conformance suite of what scans for conflicts read and keep:
// every mirror.Follower and every conflict.Table, together.
package conflicttest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/slot"
	"github.com/octopay/octopay/syncer/apply"
	"github.com/octopay/octopay/syncer/conflict"
	"github.com/octopay/octopay/syncer/mirror"
	"github.com/octopay/octopay/syncer/source"
	"github.com/octopay/octopay/syncer/stream"
	"pgregory.net/rapid"
)

// An Installation is what is tested: empty at first.
type Installation struct {
	Map    *shardmap.Map
	Target func(database int) apply.Target
	News   mirror.Follower
	Table  conflict.Table
}

// Run tests installations; open makes an empty one.
func Run(t *testing.T, open func(t *testing.T) Installation) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, r *rig)
	}{
		{"ANumberOfTwoBuyers", numbers},
		{"APaymentOnTwoOrders", payments},
		{"ARowInFlightIsNotPassedBy", inFlight},
		{"WhateverComesAndWhoeverIsKilled", whatever},
		{"AConflictHasSoManyOrders", ordersMax},
		{"AReachNeverGoesBack", reaches},
		{"OneIsTheFirst", firsts},
		{"TwoAddAtOnce", adds},
		{"ManyAreAdded", many},
		{"OneSnowflakeOfTwoBuyers", oneSnowflake},
		{"WhatWasAddedCountsWhateverFails", counted},
		{"Lists", lists},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, newRig(open(t))) })
	}
}

// T is what tests fail with: a *testing.T or a *rapid.T.
type T interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// A rig is an installation that is fed.
type rig struct {
	Installation
	targets []apply.Target
	at      []apply.Progress
	// all that was applied, the newest state
	orders  map[int64]schema.Order
	entries []schema.Entry
	ids     int64
}

func newRig(i Installation) *rig {
	r := &rig{Installation: i, orders: map[int64]schema.Order{}, at: make([]apply.Progress, i.Map.Size())}
	for n := range i.Map.Size() {
		r.targets = append(r.targets, i.Target(n+1))
	}
	return r
}

// bid returns the i-th merchant of a database.
func (r *rig) bid(database, i int) int64 {
	size := r.Map.Size()
	return int64((database-1)*slot.Tables + i%slot.Tables + (1+i/slot.Tables)*size*slot.Tables)
}

func (r *rig) apply(t T, database int, c apply.Change) {
	t.Helper()
	c.From = r.at[database-1]
	c.To = apply.Progress{Incarnation: "MIRROR@1", Seq: c.From.Seq + 1, StoredAt: int64(c.From.Seq+1) * 10}
	if _, err := r.targets[database-1].Apply(context.Background(), &c); err != nil {
		t.Fatal(err)
	}
	r.at[database-1] = c.To
}

// order applies a state of an order; id 0 is a new one.
func (r *rig) order(t T, id, uid, bid int64, number string, stamped schema.Millis) int64 {
	t.Helper()
	if id == 0 {
		r.ids++
		id = r.ids
	}
	o := schema.Order{
		ID: id, UID: uid, BID: bid, OutTradeNo: number, Amount: 1, Currency: "CNY", Subject: "s", Metadata: "{}",
		Status: schema.Created, Ver: r.orders[id].Ver + 1, CreatedBy: "app", RequestID: "r", ExpiresAt: 1000, UpdatedAt: stamped,
	}
	r.orders[id] = o
	r.apply(t, r.Map.Locate(bid).Database, apply.Change{Orders: []apply.Order{{Order: o}}})
	return id
}

// pay applies an entry of a payment.
func (r *rig) pay(t T, id, bid, seq int64, kind schema.Kind, ref string, recorded schema.Millis) {
	t.Helper()
	e := schema.Entry{
		OrderID: id, Seq: seq, UID: 9000 + id, BID: bid, Op: fmt.Sprint(kind, seq), Kind: kind, Amount: 1, Currency: "CNY",
		From: schema.Paid, To: schema.Paid, Ref: ref, Actor: "channel", RequestID: "r", RecordedAt: recorded,
	}
	r.entries = append(r.entries, e)
	r.apply(t, r.Map.Locate(bid).Database, apply.Change{Entries: []apply.Entry{{Entry: e}}})
}

// complete says to a database that all that was stamped before at is there.
func (r *rig) complete(t T, database int, at schema.Millis) {
	t.Helper()
	var c apply.Change
	for _, s := range r.Map.Servers(shardmap.UID) {
		c.Marks = append(c.Marks, stream.Mark{Server: s.Name, Position: source.Position{}.With(source.GTID{Domain: 1, Server: 1, Seq: r.at[database-1].Seq + 1}), At: at})
	}
	r.apply(t, database, c)
}

func (r *rig) completeAll(t T, at schema.Millis) {
	t.Helper()
	for n := range r.Map.Size() {
		r.complete(t, n+1, at)
	}
}

func (r *rig) scan(database int) *conflict.Scan {
	return &conflict.Scan{Database: database, News: few{r.News}, Table: r.Table}
}

// few is a Follower that is asked for few rows at once.
type few struct{ mirror.Follower }

func (f few) News(ctx context.Context, n int, reach mirror.Reach, most int) (mirror.News, error) {
	return f.Follower.News(ctx, n, reach, min(most, 3))
}

func (r *rig) pass(t T, databases ...int) {
	t.Helper()
	for _, n := range databases {
		if err := r.scan(n).Pass(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// found returns all conflicts, each as "kind bid number: order order".
func (r *rig) found(t T) []string {
	t.Helper()
	var out []string
	for q := (conflict.Query{Before: 1<<63 - 1, Limit: 7}); ; {
		page, err := r.Table.List(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range page.Conflicts {
			line := fmt.Sprintf("%s %d %s:", c.Kind, c.BID, c.Number)
			for _, o := range c.Orders {
				line += fmt.Sprint(" ", o.ID)
			}
			out = append(out, line)
		}
		if page.Next == 0 {
			slices.Sort(out)
			return out
		}
		q.Before = page.Next
	}
}

func (r *rig) want(t *testing.T, what string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if diff := cmp.Diff(want, r.found(t)); diff != "" {
		t.Errorf("%s:\n%s", what, diff)
	}
}

// numbers: it is found when both are there, in whichever order they were stamped; once;
// and the third joins.
func numbers(t *testing.T, r *rig) {
	a, b, c := r.bid(2, 0), r.bid(2, 10), r.bid(2, 1)
	x := r.order(t, 0, 1, a, "N-1", 1000)
	r.order(t, 0, 1, b, "N-1", 1001) // another merchant's, in the same table
	r.order(t, 0, 1, c, "N-1", 1002) // and in another table
	r.order(t, 0, 2, a, "n-1", 1003) // another number: case counts
	r.complete(t, 2, 2000)
	r.pass(t, 2)
	r.want(t, "no number is anybody else's")
	y := r.order(t, 0, 2, a, "N-1", 2500)
	r.complete(t, 2, 3000)
	r.pass(t, 2)
	first := fmt.Sprintf("out_trade_no %d N-1: %d %d", a, x, y)
	r.want(t, "two buyers", first)
	// What changes is looked at again, and says nothing new.
	r.order(t, y, 2, a, "N-1", 3500)
	r.order(t, x, 1, a, "N-1", 3500)
	r.complete(t, 2, 4000)
	r.pass(t, 2)
	r.want(t, "after changes", first)
	z := r.order(t, 0, 3, a, "N-1", 4500)
	r.complete(t, 2, 5000)
	r.pass(t, 2, 2)
	r.want(t, "three buyers", first+fmt.Sprintf(" %d", z))
	page, err := r.Table.List(t.Context(), conflict.Query{Before: 1<<63 - 1, Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	got := page.Conflicts[0]
	if o := got.Orders[2]; o.UID != 3 || o.BID != a || o.Seq != 0 || o.FoundAt < got.FoundAt || got.FoundAt == 0 {
		t.Errorf("the third is %+v of %+v", o, got)
	}
}

// payments: of two merchants whose orders are in two databases, applied or not.
func payments(t *testing.T, r *rig) {
	a, b, c := r.bid(1, 0), r.bid(5, 3), r.bid(8, 2)
	r.pay(t, 11, a, 2, schema.KindPaid, "wechat:1", 1000)
	r.pay(t, 12, b, 2, schema.KindPaid, "alipay:1", 1000)             // another channel's
	r.pay(t, 12, b, 3, schema.KindUnappliedPayment, "alipay:1", 1001) // and again, of another amount
	r.pay(t, 12, b, 4, schema.KindRefunded, "wechat:1", 1002)         // a refund has numbers of its own
	r.completeAll(t, 2000)
	r.pass(t, 1, 5, 8)
	r.want(t, "no payment is on two orders")
	r.pay(t, 13, b, 2, schema.KindUnappliedPayment, "wechat:1", 2100)
	r.completeAll(t, 3000)
	r.pass(t, 8, 5, 1)
	r.want(t, "money that is booked on two orders", "channel_trade_no 0 wechat:1: 11 13")
	r.pay(t, 14, c, 2, schema.KindUnappliedPayment, "wechat:1", 3100)
	r.pay(t, 13, b, 3, schema.KindUnappliedPayment, "wechat:1", 3100)
	r.pay(t, 14, c, 3, schema.KindPaid, "wechat:2", 3101)
	r.completeAll(t, 4000)
	r.pass(t, 8, 5, 1, 8)
	r.want(t, "three orders", "channel_trade_no 0 wechat:1: 11 13 14")
	page, err := r.Table.List(t.Context(), conflict.Query{Before: 1<<63 - 1, Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	if o := page.Conflicts[0].Orders[2]; o.UID != 9014 || o.BID != c || o.Seq != 2 {
		t.Errorf("the third is %+v", o)
	}
}

// inFlight: a transaction took its stamp before others that are there already, and is
// still open. The mark stands before it; what is behind the mark is left for later, and so
// the row is met when it comes.
func inFlight(t *testing.T, r *rig) {
	a := r.bid(3, 0)
	x := r.order(t, 0, 1, a, "N", 1000)
	r.pay(t, x, a, 2, schema.KindPaid, "wechat:1", 1000)
	r.complete(t, 3, 2000)
	r.pass(t, 3)
	// In flight are an order and a payment stamped 2100. Later ones are there.
	later := r.order(t, 0, 2, a, "other", 2500)
	r.pay(t, later, a, 2, schema.KindPaid, "wechat:9", 2500)
	r.complete(t, 3, 2099)
	r.pass(t, 3, 3)
	if reach, err := r.Table.Reach(t.Context(), 3); err != nil || reach.Until() > 2099 {
		t.Errorf("complete until 2099, it was scanned until %d, %v", reach.Until(), err)
	}
	r.want(t, "while it is in flight")
	y := r.order(t, 0, 3, a, "N", 2100)
	r.pay(t, y, a, 2, schema.KindUnappliedPayment, "wechat:1", 2100)
	r.complete(t, 3, 3000)
	r.pass(t, 3)
	r.want(t, "when it has come", fmt.Sprintf("out_trade_no %d N: %d %d", a, x, y), fmt.Sprintf("channel_trade_no 0 wechat:1: %d %d", x, y))
}

// A killer is a Table at which whoever calls it dies: before or after a call is done.
type killer struct {
	conflict.Table
	calls int // until then
	after bool
}

var errKilled = errors.New("killed")

func (k *killer) dies() bool { k.calls--; return k.calls < 0 }

func (k *killer) First(ctx context.Context, p []mirror.Payment) ([]mirror.Payment, error) {
	dies := k.dies()
	if dies && !k.after {
		return nil, errKilled
	}
	out, err := k.Table.First(ctx, p)
	if dies {
		err = errKilled
	}
	return out, err
}

func (k *killer) Add(ctx context.Context, p []conflict.Pair) (conflict.Added, error) {
	dies := k.dies()
	if dies && !k.after {
		return conflict.Added{}, errKilled
	}
	out, err := k.Table.Add(ctx, p)
	if dies {
		err = errKilled
	}
	return out, err
}

func (k *killer) Save(ctx context.Context, n int, reach mirror.Reach) error {
	dies := k.dies()
	if dies && !k.after {
		return errKilled
	}
	err := k.Table.Save(ctx, n, reach)
	if dies {
		err = errKilled
	}
	return err
}

// whatever: rows come in any order behind their stamps, marks lag, scans die at any step
// and others go on, two scan one database at once. In the end what is listed is what the
// rows share, no more and no less.
func whatever(t *testing.T, r *rig) {
	databases := []int{2, 3}
	run := int64(0)
	rapid.Check(t, func(t *rapid.T) {
		run++
		number := func(i int) string { return fmt.Sprintf("r%d-%d", run, i) }
		clock := schema.Millis(run * 1_000_000)
		held := map[int]schema.Millis{} // the stamp of what is in flight, by database
		var made []int64
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			clock += schema.Millis(rapid.IntRange(0, 2).Draw(t, "time"))
			database := rapid.SampledFrom(databases).Draw(t, "database")
			bid := r.bid(database, rapid.SampledFrom([]int{0, 1, 10}).Draw(t, "merchant"))
			stamp := clock
			if at, ok := held[database]; ok && rapid.Bool().Draw(t, "what was in flight") {
				stamp = at + schema.Millis(rapid.IntRange(0, 1).Draw(t, "later"))
			}
			switch rapid.IntRange(0, 7).Draw(t, "step") {
			case 0, 1:
				made = append(made, r.order(t, 0, 0, bid, number(rapid.IntRange(0, 2).Draw(t, "number")), stamp))
			case 2:
				if len(made) > 0 {
					o := r.orders[rapid.SampledFrom(made).Draw(t, "order")]
					r.order(t, o.ID, o.UID, o.BID, o.OutTradeNo, max(clock, o.UpdatedAt))
				}
			case 3:
				r.ids++
				kind := rapid.SampledFrom([]schema.Kind{schema.KindPaid, schema.KindUnappliedPayment}).Draw(t, "kind")
				r.pay(t, r.ids, bid, 2, kind, "wechat:"+number(rapid.IntRange(0, 2).Draw(t, "payment")), stamp)
			case 4: // Something stamped now stays in flight for a while, or all has come.
				if _, ok := held[database]; ok {
					delete(held, database)
				} else {
					held[database] = clock
				}
			case 5, 6, 7:
				k := &killer{r.Table, rapid.IntRange(0, 4).Draw(t, "calls"), rapid.Bool().Draw(t, "after")}
				s := r.scan(database)
				s.Table = k
				if err := s.Pass(context.Background()); err != nil && !errors.Is(err, errKilled) {
					t.Fatal(err)
				}
			}
			at := clock
			if h, ok := held[database]; ok {
				at = h
			}
			r.complete(t, database, at)
		}
		for _, database := range databases {
			r.complete(t, database, clock+10)
		}
		var wg sync.WaitGroup
		errs := make([]error, 2*len(databases))
		for i := range errs {
			wg.Go(func() { errs[i] = r.scan(databases[i/2]).Pass(context.Background()) })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		got := slices.DeleteFunc(r.found(t), func(line string) bool { return !strings.Contains(line, fmt.Sprintf("r%d-", run)) })
		if want := r.model(fmt.Sprintf("r%d-", run)); !slices.Equal(want, got) {
			t.Fatalf("found differs from what there is:\n%s", cmp.Diff(want, got))
		}
	})
}

// model is what the rows with some numbers share, found in the simplest way.
func (r *rig) model(prefix string) (want []string) {
	of := map[string]map[int64]bool{}
	share := func(what string, id int64) {
		if of[what] == nil {
			of[what] = map[int64]bool{}
		}
		of[what][id] = true
	}
	for id, o := range r.orders {
		if strings.HasPrefix(o.OutTradeNo, prefix) {
			share(fmt.Sprintf("out_trade_no %d %s:", o.BID, o.OutTradeNo), id)
		}
	}
	for _, e := range r.entries {
		if strings.HasPrefix(e.Ref, "wechat:"+prefix) {
			share(fmt.Sprintf("channel_trade_no 0 %s:", e.Ref), e.OrderID)
		}
	}
	for what, ids := range of {
		if len(ids) > 1 {
			for _, id := range slices.Sorted(maps.Keys(ids)) {
				what += fmt.Sprint(" ", id)
			}
			want = append(want, what)
		}
	}
	slices.Sort(want)
	return want
}

func ordersMax(t *testing.T, r *rig) {
	a := r.bid(4, 0)
	const n = conflict.OrdersMax + 7
	for i := range n {
		r.order(t, 0, int64(i+1), a, "always", schema.Millis(1000+i))
		r.pay(t, r.ids, a, 2, schema.KindPaid, "wechat:always", schema.Millis(1000+i))
	}
	r.complete(t, 4, 9000)
	r.pass(t, 4, 4)
	page, err := r.Table.List(t.Context(), conflict.Query{Before: 1<<63 - 1, Limit: 100})
	if err != nil || len(page.Conflicts) != 2 {
		t.Fatalf("%d conflicts, %v", len(page.Conflicts), err)
	}
	for _, c := range page.Conflicts {
		if len(c.Orders) != conflict.OrdersMax {
			t.Errorf("%s has %d orders", c.Kind, len(c.Orders))
		}
	}
}

func reaches(t *testing.T, r *rig) {
	ctx := t.Context()
	get := func(n int) mirror.Reach {
		t.Helper()
		reach, err := r.Table.Reach(ctx, n)
		if err != nil {
			t.Fatal(err)
		}
		return reach
	}
	if get(1) != (mirror.Reach{}) {
		t.Errorf("at first: %+v", get(1))
	}
	var want mirror.Reach
	for i, step := range []struct {
		save  mirror.Stamp
		moves bool
	}{
		{mirror.Stamp{At: 5000, Order: 7, Seq: 2}, true},
		{mirror.Stamp{At: 4999, Order: 9, Seq: 9}, false},
		{mirror.Stamp{At: 5000, Order: 6, Seq: 9}, false},
		{mirror.Stamp{At: 5000, Order: 7, Seq: 1}, false},
		{mirror.Stamp{At: 5000, Order: 7, Seq: 3}, true},
		{mirror.Stamp{At: 5000, Order: 8, Seq: 0}, true},
		{mirror.Stamp{At: 5001, Order: 0, Seq: 0}, true},
		{mirror.Stamp{}, false},
	} {
		save := want
		save.Orders[3], save.Entries[9] = step.save, step.save
		if err := r.Table.Save(ctx, 1, save); err != nil {
			t.Fatal(err)
		}
		if step.moves {
			want.Orders[3], want.Entries[9] = step.save, step.save
		}
		if got := get(1); got != want {
			t.Fatalf("step %d: %+v, want %+v", i, got, want)
		}
	}
	if get(2) != (mirror.Reach{}) {
		t.Errorf("another database's is %+v", get(2))
	}
	page, err := r.Table.List(ctx, conflict.Query{Before: 1<<63 - 1, Limit: 1})
	if err != nil || page.CompleteUntil != 0 {
		t.Errorf("complete until %d, %v", page.CompleteUntil, err)
	}
	for n := range r.Map.Size() {
		var reach mirror.Reach
		for i := range slot.Tables {
			reach.Orders[i].At, reach.Entries[i].At = schema.Millis(9000-n), schema.Millis(9000+i)
		}
		if err := r.Table.Save(ctx, n+1, reach); err != nil {
			t.Fatal(err)
		}
	}
	page, err = r.Table.List(ctx, conflict.Query{Before: 1<<63 - 1, Limit: 1})
	if want := schema.Millis(9000 - r.Map.Size() + 1); err != nil || page.CompleteUntil != want {
		t.Errorf("complete until %d, want %d, %v", page.CompleteUntil, want, err)
	}
}

// firsts: whoever asks, of one reference one payment is the first, for ever.
func firsts(t *testing.T, r *rig) {
	const askers, refs = 4, 60
	got := make([][]mirror.Payment, askers)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() {
			var ask []mirror.Payment
			for n := range refs {
				ref := fmt.Sprintf("wechat:%d", (n*(i+1))%refs)
				ask = append(ask, mirror.Payment{Ref: ref, Order: int64(1000*i + n), Seq: 2, UID: 1, BID: 2}, mirror.Payment{Ref: ref, Order: int64(1000*i + n), Seq: 3, UID: 1, BID: 2})
			}
			out, err := r.Table.First(t.Context(), ask)
			if err != nil || len(out) != len(ask) {
				t.Errorf("%d of %d, %v", len(out), len(ask), err)
			}
			got[i] = out
		})
	}
	wg.Wait()
	first := map[string]mirror.Payment{}
	for _, all := range got {
		for _, p := range all {
			if f, ok := first[p.Ref]; ok && f != p {
				t.Errorf("%s was first of %+v and of %+v", p.Ref, f, p)
			}
			first[p.Ref] = p
		}
	}
	if none, err := r.Table.First(t.Context(), nil); err != nil || len(none) != 0 {
		t.Errorf("of nothing: %v, %v", none, err)
	}
}

// adds: of those who add one conflict at once one finds it.
func adds(t *testing.T, r *rig) {
	var wg sync.WaitGroup
	added := make([]conflict.Added, 4)
	for i := range added {
		wg.Go(func() {
			var pairs []conflict.Pair
			for n := range 10 {
				pairs = append(pairs, conflict.Pair{Kind: conflict.ChannelTradeNo, Number: fmt.Sprintf("wechat:%d", n), Orders: [2]conflict.Order{{ID: 1, UID: 1, BID: 1, Seq: 2}, {ID: int64(2 + i), UID: 2, BID: 2, Seq: 2}}})
			}
			var err error
			if added[i], err = r.Table.Add(t.Context(), pairs); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	sum := 0
	for _, a := range added {
		sum += a.New[conflict.ChannelTradeNo]
	}
	if sum != 10 {
		t.Errorf("10 conflicts were found %d times", sum)
	}
	for _, line := range r.found(t) {
		if !strings.HasSuffix(line, ": 1 2 3 4 5") {
			t.Error(line)
		}
	}
}

// many: of more pairs than are written at once, in any order and some twice, each is listed
// with its orders, once.
func many(t *testing.T, r *rig) {
	const numbers = 230
	pair := func(n, first, second int) conflict.Pair {
		return conflict.Pair{Kind: conflict.OutTradeNo, BID: int64(1 + n%3), Number: fmt.Sprint("n", n), Orders: [2]conflict.Order{{ID: int64(first), UID: 1, BID: int64(1 + n%3)}, {ID: int64(second), UID: 2, BID: int64(1 + n%3)}}}
	}
	var pairs []conflict.Pair
	for n := range numbers {
		pairs = append(pairs, pair(numbers-1-n, 1, 2), pair(n, 1, 3), pair(n, 1, 3))
	}
	for i, want := range []int{numbers, 0} {
		added, err := r.Table.Add(t.Context(), pairs)
		if err != nil || added.New[conflict.OutTradeNo] != want {
			t.Errorf("the %d. time: %+v, %v; want %d", i+1, added, err, want)
		}
	}
	if added, err := r.Table.Add(t.Context(), []conflict.Pair{pair(7, 1, 4)}); err != nil || added != (conflict.Added{}) {
		t.Errorf("one that joins: %+v, %v", added, err)
	}
	got := r.found(t)
	if len(got) != numbers {
		t.Errorf("%d conflicts of %d", len(got), numbers)
	}
	for _, line := range got {
		orders := ": 1 2 3"
		if strings.HasPrefix(line, "out_trade_no 2 n7:") {
			orders += " 4"
		}
		if !strings.HasSuffix(line, orders) {
			t.Errorf("%s, want %s", line, orders)
		}
	}
}

// oneSnowflake: ids of two buyers' orders differ though their snowflakes are one.
func oneSnowflake(t *testing.T, r *rig) {
	pair := conflict.Pair{Kind: conflict.ChannelTradeNo, Number: "wechat:1", Orders: [2]conflict.Order{{ID: 7, UID: 2, BID: 1, Seq: 2}, {ID: 7, UID: 1, BID: 1, Seq: 3}}}
	for range 2 {
		if _, err := r.Table.Add(t.Context(), []conflict.Pair{pair}); err != nil {
			t.Fatal(err)
		}
	}
	page, err := r.Table.List(t.Context(), conflict.Query{Before: 1<<63 - 1, Limit: 1})
	if err != nil || len(page.Conflicts) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	var got []string
	for _, o := range page.Conflicts[0].Orders {
		got = append(got, fmt.Sprint(o.ID, o.UID, o.Seq))
	}
	if want := []string{"7 1 3", "7 2 2"}; !slices.Equal(got, want) {
		t.Errorf("orders %v, want %v", got, want)
	}
}

// counted: a conflict that was added is counted by the look that added it, though that look
// fails when it saves its reach; the one after it finds nothing new.
func counted(t *testing.T, r *rig) {
	a := r.bid(6, 0)
	r.order(t, 0, 1, a, "N", 1000)
	r.order(t, 0, 2, a, "N", 1001)
	r.complete(t, 6, 9000)
	var reports []conflict.Report
	scan := r.scan(6)
	scan.Observe = func(r conflict.Report) { reports = append(reports, r) }
	scan.Table = &killer{r.Table, 2, false} // First, Add, and not Save
	if err := scan.Pass(t.Context()); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	if len(reports) != 1 || reports[0].Added.New[conflict.OutTradeNo] != 1 || reports[0].Rows != 0 || reports[0].Until != 0 {
		t.Fatalf("of a look that failed: %+v", reports)
	}
	scan.Table = r.Table
	if err := scan.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if last := reports[len(reports)-1]; len(reports) < 2 || last.Added != (conflict.Added{}) || last.Until == 0 {
		t.Errorf("of the next: %+v", reports[1:])
	}
}

func lists(t *testing.T, r *rig) {
	for i := range 23 {
		kind := conflict.Kinds[i%2]
		if _, err := r.Table.Add(t.Context(), []conflict.Pair{{Kind: kind, Number: fmt.Sprint("n", i), Orders: [2]conflict.Order{{ID: 1, UID: 1, BID: 1}, {ID: 2, UID: 2, BID: 1}}}}); err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		q := conflict.Query{Kind: conflict.Kind(rapid.IntRange(0, 2).Draw(t, "kind")), Before: 1<<63 - 1, Limit: rapid.IntRange(1, 30).Draw(t, "limit")}
		var got, want []string
		for i := 22; i >= 0; i-- {
			if q.Kind == 0 || conflict.Kinds[i%2] == q.Kind {
				want = append(want, fmt.Sprint("n", i))
			}
		}
		for {
			page, err := r.Table.List(context.Background(), q)
			if err != nil {
				t.Fatal(err)
			}
			if len(page.Conflicts) > q.Limit || page.Next != 0 && page.Next >= q.Before {
				t.Fatalf("%d conflicts of at most %d, next at %d", len(page.Conflicts), q.Limit, page.Next)
			}
			for _, c := range page.Conflicts {
				got = append(got, c.Number)
			}
			if page.Next == 0 {
				break
			}
			q.Before = page.Next
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	})
}
