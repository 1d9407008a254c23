// Package mirrortest is the conformance suite of mirrors: what every apply.Target must
// do with a change, and what a mirror.Reader must then say.
package mirrortest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/slot"
	"github.com/octopay/octopay/syncer/apply"
	"github.com/octopay/octopay/syncer/internal/gen"
	"github.com/octopay/octopay/syncer/mirror"
	"github.com/octopay/octopay/syncer/source"
	"github.com/octopay/octopay/syncer/stream"
	"pgregory.net/rapid"
)

// A Mirror is what is tested: empty at first.
type Mirror struct {
	Map    *shardmap.Map
	Target func(database int) apply.Target
	Reader mirror.Reader
	// Entries returns the journal of an order in the mirror of bid, in order.
	Entries func(t testing.TB, bid, order int64) []schema.Entry
}

// Run tests mirrors; open makes an empty one.
func Run(t *testing.T, open func(t *testing.T) Mirror) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, m Mirror)
	}{
		{"ARowTakesThePlaceOfAnOlderState", newest},
		{"ChangesFollowTheirProgress", progress},
		{"TwoAppliersAtOnce", race},
		{"MarksStandStillWhileADeadLetterIsOpen", letters},
		{"ATimeNeverFalls", times},
		{"Lists", lists},
		{"ListsOfEntries", entryLists},
		{"AWalkWhileEntriesCome", entryWalk},
		{"APageOfEntriesExaminesSoMany", entriesExamined},
		{"AnOrderWithThousandsOfEntries", entriesOfOneOrder},
		{"CompleteUntil", complete},
		{"RetryAndDrop", settle},
		{"TwoOrdersWithOneID", taken},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

// A feeder makes changes for one database.
type feeder struct {
	Mirror
	target apply.Target
	at     apply.Progress
}

func feed(m Mirror, database int) *feeder {
	return &feeder{Mirror: m, target: m.Target(database), at: apply.Progress{}}
}

// bid returns the i-th merchant of the feeder's database.
func (f *feeder) bid(i int) int64 {
	d, n := f.target.Place().Number, f.Map.Size()
	return int64((d-1)*slot.Tables + i%slot.Tables + i/slot.Tables*n*slot.Tables + n*slot.Tables)
}

func (f *feeder) next() apply.Progress {
	return apply.Progress{Incarnation: "MIRROR@1", Seq: f.at.Seq + 1, StoredAt: int64(f.at.Seq+1) * 10}
}

// T is what tests fail with: a *testing.T or a *rapid.T.
type T interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func (f *feeder) apply(t T, c apply.Change) int {
	t.Helper()
	c.From, c.To = f.at, f.next()
	slices.SortFunc(c.Orders, func(a, b apply.Order) int { return int(a.ID - b.ID) })
	open, err := f.target.Apply(context.Background(), &c)
	if err != nil {
		t.Fatal(err)
	}
	f.at = c.To
	return open
}

func (f *feeder) list(t T, q mirror.Query) ([]schema.Order, schema.Millis) {
	t.Helper()
	q.Before, q.Limit = 1<<63-1, 7
	var all []schema.Order
	var until schema.Millis
	for page := 0; ; page++ {
		p, err := f.Reader.List(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Orders) > q.Limit || p.Next >= q.Before {
			t.Fatalf("a page of %d orders goes on at %d, it began at %d", len(p.Orders), p.Next, q.Before)
		}
		if page == 0 {
			until = p.CompleteUntil
		}
		all = append(all, p.Orders...)
		if p.Next == 0 {
			return all, until
		}
		q.Before = p.Next
	}
}

func order(o schema.Order) apply.Order { return apply.Order{Order: o} }

func entry(e schema.Entry) apply.Entry { return apply.Entry{Entry: e} }

// Whatever states come, in whatever order and how often, the newest stays, whole.
func newest(t *testing.T, m Mirror) {
	f := feed(m, 3)
	var base int64
	rapid.Check(t, func(t *rapid.T) {
		base += 10 // the ids of each run are its own
		bid := f.bid(rapid.IntRange(0, 30).Draw(t, "merchant"))
		newest := map[int64]schema.Order{}
		entries := map[int64]map[int64]schema.Entry{}
		for range rapid.IntRange(1, 6).Draw(t, "changes") {
			var c apply.Change
			states := map[int64]schema.Order{}
			for range rapid.IntRange(0, 4).Draw(t, "orders") {
				id := base + rapid.Int64Range(0, 3).Draw(t, "id")
				states[id] = gen.Order(t, 9000+id%10, bid, id, rapid.Int64Range(1, 5).Draw(t, "ver"))
			}
			for id, o := range states {
				c.Orders = append(c.Orders, order(o))
				if old, ok := newest[id]; !ok || o.Ver > old.Ver {
					newest[id] = o
				}
			}
			id := base + rapid.Int64Range(0, 3).Draw(t, "order of entries")
			for seq := range rapid.Int64Range(2, 5).Draw(t, "entries") {
				e, ok := entries[id][seq+2]
				if !ok {
					e = gen.Entry(t, 9000+id%10, bid, id, seq+2)
					if entries[id] == nil {
						entries[id] = map[int64]schema.Entry{}
					}
					entries[id][seq+2] = e
				}
				c.Entries = append(c.Entries, entry(e))
			}
			f.apply(t, c)
		}
		got, _ := f.list(t, mirror.Query{BID: bid, Min: base})
		slices.Reverse(got)
		var want []schema.Order
		for _, id := range slices.Sorted(maps.Keys(newest)) {
			want = append(want, newest[id])
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("the list differs:\n%s", diff)
		}
		for id, of := range entries {
			var want []schema.Entry
			for _, seq := range slices.Sorted(maps.Keys(of)) {
				want = append(want, of[seq])
			}
			if diff := cmp.Diff(want, m.Entries(nil, bid, id)); diff != "" {
				t.Fatalf("the journal of %d differs:\n%s", id, diff)
			}
		}
	})
}

func newOrder(id, bid int64) schema.Order {
	return schema.Order{
		ID: id, UID: 9527, BID: bid, OutTradeNo: fmt.Sprint("n", id), Amount: 1, Currency: "CNY", Subject: "s", Metadata: "{}",
		Status: schema.Created, Ver: 1, CreatedBy: "app", RequestID: "r", ExpiresAt: 1000, UpdatedAt: 1000,
	}
}

func progress(t *testing.T, m Mirror) {
	f := feed(m, 1)
	ctx := t.Context()
	state := func() apply.State {
		t.Helper()
		s, err := f.target.State(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := state(); s.Progress != (apply.Progress{}) || len(s.Marks) != 0 || s.Letters != 0 {
		t.Fatalf("an empty mirror says %+v", s)
	}
	f.apply(t, apply.Change{Orders: []apply.Order{order(newOrder(1, f.bid(0)))}})
	if s := state(); s.Progress != f.at {
		t.Fatalf("the progress is %+v, %+v was applied", s.Progress, f.at)
	}
	// What doesn't begin at the progress changes nothing.
	for _, from := range []apply.Progress{
		{}, {Incarnation: f.at.Incarnation, Seq: f.at.Seq + 1, StoredAt: f.at.StoredAt},
		{Incarnation: "MIRROR@2", Seq: f.at.Seq, StoredAt: f.at.StoredAt},
		{Incarnation: f.at.Incarnation, Seq: f.at.Seq, StoredAt: f.at.StoredAt + 1},
	} {
		_, err := f.target.Apply(ctx, &apply.Change{
			From: from, To: f.next(), Orders: []apply.Order{order(newOrder(2, f.bid(0)))},
			Letters: []apply.Letter{{LetterKey: apply.LetterKey{Incarnation: "MIRROR@1", Seq: 9}}},
			Marks:   []stream.Mark{{Server: "uid-a", At: 5000}},
		})
		if !errors.Is(err, apply.ErrMoved) {
			t.Errorf("from %+v: %v", from, err)
		}
	}
	if s := state(); s.Progress != f.at || len(s.Marks) != 0 || s.Letters != 0 {
		t.Errorf("after changes that were refused: %+v", s)
	}
	if got, _ := f.list(t, mirror.Query{BID: f.bid(0)}); len(got) != 1 {
		t.Errorf("%d orders, want 1", len(got))
	}
	// Another incarnation of the stream counts from its own beginning.
	c := apply.Change{From: f.at, To: apply.Progress{Incarnation: "MIRROR@2", Seq: 1, StoredAt: 7}}
	if _, err := f.target.Apply(ctx, &c); err != nil {
		t.Fatal(err)
	}
	if s := state(); s.Progress != c.To {
		t.Errorf("the progress is %+v, want %+v", s.Progress, c.To)
	}
}

// Of appliers that begin at the same progress one wins.
func race(t *testing.T, m Mirror) {
	f := feed(m, 2)
	for round := range 5 {
		var wg sync.WaitGroup
		errs := make([]error, 4)
		for i := range errs {
			wg.Go(func() {
				o := newOrder(int64(1+round), f.bid(0))
				o.Subject = fmt.Sprint(i)
				c := apply.Change{From: f.at, To: f.next(), Orders: []apply.Order{order(o)}}
				_, errs[i] = m.Target(2).Apply(t.Context(), &c)
			})
		}
		wg.Wait()
		won := -1
		for i, err := range errs {
			if err == nil {
				if won >= 0 {
					t.Fatalf("appliers %d and %d both applied", won, i)
				}
				won = i
			} else if !errors.Is(err, apply.ErrMoved) {
				t.Fatal(err)
			}
		}
		if won < 0 {
			t.Fatal("nobody applied")
		}
		f.at = f.next()
		got, _ := f.list(t, mirror.Query{BID: f.bid(0)})
		if len(got) != round+1 || got[0].Subject != fmt.Sprint(won) {
			t.Fatalf("round %d: %d orders, the newest of %s; %d won", round, len(got), got[0].Subject, won)
		}
	}
}

func mark(server string, n uint64, at schema.Millis) stream.Mark {
	return stream.Mark{Server: server, Position: source.Position{}.With(source.GTID{Domain: 1, Server: 1, Seq: n}), At: at}
}

func letter(seq uint64, item int) apply.Letter {
	return apply.Letter{
		LetterKey: apply.LetterKey{Incarnation: "MIRROR@1", Seq: seq, Item: item},
		Subject:   "mirror.row.3", Reason: "no reason \u00e9", Payload: []byte{0, 255, '\'', '\\'},
	}
}

func letters(t *testing.T, m Mirror) {
	f := feed(m, 4)
	ctx := t.Context()
	at := func() string {
		t.Helper()
		s, err := f.target.State(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s %d, %d open", s.Marks["uid-a"].Position, s.Marks["uid-a"].At, s.Letters)
	}
	want := func(what, want string) {
		t.Helper()
		if got := at(); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	f.apply(t, apply.Change{Marks: []stream.Mark{mark("uid-a", 1, 1000)}})
	want("a mark", "1-1-1 1000, 0 open")
	bad := letter(7, 1)
	if open := f.apply(t, apply.Change{Letters: []apply.Letter{bad, letter(8, -1)}, Marks: []stream.Mark{mark("uid-a", 2, 2000)},
		Orders: []apply.Order{order(newOrder(1, f.bid(0)))}}); open != 2 {
		t.Errorf("%d are open, want 2", open)
	}
	want("with the dead letters", "1-1-1 1000, 2 open")
	f.apply(t, apply.Change{Marks: []stream.Mark{mark("uid-a", 3, 3000)}, Orders: []apply.Order{order(newOrder(2, f.bid(0)))}})
	want("behind them", "1-1-1 1000, 2 open")
	if got, _ := f.list(t, mirror.Query{BID: f.bid(0)}); len(got) != 2 {
		t.Errorf("rows stand still too: %d of 2", len(got))
	}
	open, err := f.target.Letters(ctx, 100)
	if err != nil || len(open) != 2 {
		t.Fatalf("%d letters, %v", len(open), err)
	}
	if l := open[0]; l.LetterKey != bad.LetterKey || l.Subject != bad.Subject || !slices.Equal(l.Payload, bad.Payload) || l.FoundAt == 0 || l.Reason == "" {
		t.Errorf("the dead letter is %+v", l)
	}
	if some, err := f.target.Letters(ctx, 1); err != nil || len(some) != 1 {
		t.Errorf("%d of at most 1, %v", len(some), err)
	}
	if err := f.target.Settle(ctx, bad.LetterKey, apply.LetterDropped, nil, nil); err != nil {
		t.Fatal(err)
	}
	want("one is settled", "1-1-1 1000, 1 open")
	f.apply(t, apply.Change{Marks: []stream.Mark{mark("uid-a", 4, 4000)}})
	want("one is left", "1-1-1 1000, 1 open")
	for _, key := range []apply.LetterKey{bad.LetterKey, {Incarnation: "MIRROR@1", Seq: 99}} {
		if err := f.target.Settle(ctx, key, apply.LetterDropped, nil, nil); !errors.Is(err, apply.ErrNoLetter) {
			t.Errorf("settling what isn't open: %v", err)
		}
	}
	if err := f.target.Settle(ctx, letter(8, -1).LetterKey, apply.LetterRetried, []apply.Order{order(newOrder(3, f.bid(0)))}, nil); err != nil {
		t.Fatal(err)
	}
	if got, _ := f.list(t, mirror.Query{BID: f.bid(0)}); len(got) != 3 {
		t.Errorf("the retried row isn't there: %d of 3", len(got))
	}
	f.apply(t, apply.Change{Marks: []stream.Mark{mark("uid-a", 5, 5000)}})
	want("all are settled", "1-1-5 5000, 0 open")
}

// In a stream made anew older marks come first.
func times(t *testing.T, m Mirror) {
	f := feed(m, 5)
	for _, c := range []struct {
		mark stream.Mark
		want string
	}{
		{mark("uid-a", 5, 0), "1-1-5 0"}, // nothing is promised yet
		{mark("uid-a", 7, 0), "1-1-7 0"},
		{mark("uid-a", 9, 5000), "1-1-9 5000"},
		{mark("uid-a", 3, 0), "1-1-9 5000"},
		{mark("uid-a", 8, 4999), "1-1-9 5000"},
		{mark("uid-a", 11, 5000), "1-1-11 5000"},
		{mark("uid-a", 12, 5001), "1-1-12 5001"},
	} {
		f.apply(t, apply.Change{Marks: []stream.Mark{c.mark}})
		s, err := f.target.State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%s %d", s.Marks["uid-a"].Position, s.Marks["uid-a"].At); got != c.want {
			t.Errorf("after %s %d: %s, want %s", c.mark.Position, c.mark.At, got, c.want)
		}
	}
}

func lists(t *testing.T, m Mirror) {
	f := feed(m, 6)
	bids := []int64{f.bid(0), f.bid(1), f.bid(10)} // two tables; two merchants share one
	var all []schema.Order
	for i := range int64(60) {
		o := newOrder(1000+i*3, bids[i%3])
		o.Status = schema.Status(1 + i%5)
		o.OutTradeNo = fmt.Sprintf("n%d", i%4)
		all = append(all, o)
		f.apply(t, apply.Change{Orders: []apply.Order{order(o)}})
	}
	slices.Reverse(all)
	rapid.Check(t, func(t *rapid.T) {
		q := mirror.Query{
			BID:    rapid.SampledFrom(append(bids, f.bid(2))).Draw(t, "bid"),
			Status: schema.Status(rapid.IntRange(0, 5).Draw(t, "status")),
			Min:    rapid.Int64Range(990, 1190).Draw(t, "min"),
			Before: rapid.OneOf(rapid.Int64Range(990, 1190), rapid.Just(int64(1<<63-1))).Draw(t, "before"),
			Limit:  rapid.IntRange(1, 12).Draw(t, "limit"),
		}
		if rapid.Bool().Draw(t, "by number") {
			q.OutTradeNo = fmt.Sprintf("n%d", rapid.IntRange(0, 4).Draw(t, "number"))
		}
		var want, got []schema.Order
		for _, o := range all {
			if o.BID == q.BID && o.ID >= q.Min && o.ID < q.Before &&
				(q.Status == 0 || o.Status == q.Status) && (q.OutTradeNo == "" || o.OutTradeNo == q.OutTradeNo) {
				want = append(want, o)
			}
		}
		for {
			p, err := m.Reader.List(context.Background(), q)
			if err != nil {
				t.Fatal(err)
			}
			if len(p.Orders) > q.Limit || p.Next != 0 && (p.Next >= q.Before || p.Next < q.Min) {
				t.Fatalf("%d orders of at most %d, next at %d", len(p.Orders), q.Limit, p.Next)
			}
			got = append(got, p.Orders...)
			if p.Next == 0 {
				break
			}
			q.Before = p.Next
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("the list differs:\n%s", diff)
		}
	})
}

func complete(t *testing.T, m Mirror) {
	f := feed(m, 7)
	servers := m.Map.Servers(shardmap.UID)
	until := func() schema.Millis {
		_, until := f.list(t, mirror.Query{BID: f.bid(0)})
		return until
	}
	if got := until(); got != 0 {
		t.Errorf("before any mark: %d", got)
	}
	for i, s := range servers {
		f.apply(t, apply.Change{Marks: []stream.Mark{mark(s.Name, 1, schema.Millis(9000-1000*i))}})
		want := schema.Millis(0)
		if i == len(servers)-1 {
			want = schema.Millis(9000 - 1000*i)
		}
		if got := until(); got != want {
			t.Errorf("with marks of %d of %d servers: %d, want %d", i+1, len(servers), got, want)
		}
	}
	f.apply(t, apply.Change{Marks: []stream.Mark{mark(servers[len(servers)-1].Name, 2, 20_000)}})
	want := schema.Millis(20_000)
	if len(servers) > 1 {
		want = schema.Millis(9000 - 1000*(len(servers)-2))
	}
	if got := until(); got != want {
		t.Errorf("the least of all servers is %d, want %d", got, want)
	}
	if _, other := feed(m, 8).list(t, mirror.Query{BID: feed(m, 8).bid(0)}); other != 0 {
		t.Errorf("marks of one database count in another: %d", other)
	}
}
