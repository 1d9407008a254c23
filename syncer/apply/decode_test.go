package apply

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/slot"
	"github.com/octopay/octopay/syncer/internal/gen"
	"github.com/octopay/octopay/syncer/mirrorpb"
	"github.com/octopay/octopay/syncer/source"
	"github.com/octopay/octopay/syncer/stream"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

// testMap returns a map of n databases on two servers of each cluster.
func testMap(t interface{ Fatal(...any) }, n int) *shardmap.Map {
	spec := shardmap.Spec{Epoch: 1, Meta: "uid-a"}
	for i, name := range []string{"uid-a", "uid-b", "bid-a", "bid-b"} {
		spec.Servers = append(spec.Servers, shardmap.Server{Name: name, Address: fmt.Sprintf("127.0.0.1:%d", 1000+i)})
	}
	for d := 1; d <= n; d++ {
		spec.UID = append(spec.UID, shardmap.Placement{Database: d, Server: []string{"uid-a", "uid-b"}[d%2]})
		spec.BID = append(spec.BID, shardmap.Placement{Database: d, Server: []string{"bid-a", "bid-b"}[d%2]})
	}
	m, err := shardmap.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// bidOf returns a merchant of bid database d of n, the i-th.
func bidOf(d, n, i int) int64 {
	for bid := int64(1 + i*slot.Count); ; bid++ {
		if slot.Of(bid).Database(n) == d {
			return bid
		}
	}
}

func message(t interface{ Fatal(...any) }, seq uint64, rows ...*mirrorpb.Row) stream.Message {
	data, err := proto.Marshal(&mirrorpb.Rows{Server: "uid-a", Rows: rows})
	if err != nil {
		t.Fatal(err)
	}
	return stream.Message{Seq: seq, StoredAt: int64(seq) * 10, Subject: "mirror.row.0", Data: data}
}

func orderRow(o schema.Order) *mirrorpb.Row {
	return &mirrorpb.Row{Row: &mirrorpb.Row_Order{Order: mirrorpb.FromOrder(&o)}}
}

func entryRow(e schema.Entry) *mirrorpb.Row {
	return &mirrorpb.Row{Row: &mirrorpb.Row_Entry{Entry: mirrorpb.FromEntry(&e)}}
}

// A change holds the newest state of each order and each entry once, of this
// database alone, sorted, and ends at the last message.
func TestGathering(t *testing.T) {
	for _, n := range []int{8, 16} {
		m := testMap(t, n)
		rapid.Check(t, func(t *rapid.T) {
			d := rapid.IntRange(1, n).Draw(t, "database")
			g := newGatherer(m, d, "now")
			orders, entries := map[int64]schema.Order{}, map[[2]int64]schema.Entry{}
			rows, skipped, seq := 0, 0, uint64(100)
			for range rapid.IntRange(1, 5).Draw(t, "messages") {
				var wire []*mirrorpb.Row
				for range rapid.IntRange(1, 6).Draw(t, "rows") {
					rows++
					id := rapid.Int64Range(1, 5).Draw(t, "id")
					ver := rapid.Int64Range(1, 4).Draw(t, "ver")
					// An id is one order's: its buyer and merchant follow from it.
					ours := d
					if n == 16 && id == 5 {
						ours = (d+7)%16 + 1 // the other database of the group
						skipped++
					}
					bid, uid := bidOf(ours, n, int(id)), 1000+id
					if rapid.Bool().Draw(t, "an order") {
						o := gen.Order(t, uid, bid, id, ver)
						wire = append(wire, orderRow(o))
						if old, ok := orders[id]; ours == d && (!ok || ver > old.Ver) {
							orders[id] = o
						}
					} else {
						// The same entry is always the same.
						e := schema.Entry{OrderID: id, Seq: ver + 1, UID: uid, BID: bid, Op: fmt.Sprint(id, ver), Kind: schema.KindPaid, From: schema.Created, To: schema.Paid, RecordedAt: 5}
						wire = append(wire, entryRow(e))
						if ours == d {
							entries[[2]int64{id, e.Seq}] = e
						}
					}
				}
				seq++
				g.add(message(t, seq, wire...))
			}
			from := Progress{Incarnation: "now", Seq: 100}
			c := g.change(from)
			if c.From != from || c.To != (Progress{"now", seq, int64(seq) * 10}) {
				t.Fatalf("from %v to %v", c.From, c.To)
			}
			if len(c.Orders) != len(orders) || len(c.Entries) != len(entries) || len(c.Letters) != 0 {
				t.Fatalf("%d orders of %d, %d entries of %d, dead letters %v", len(c.Orders), len(orders), len(c.Entries), len(entries), c.Letters)
			}
			for i, o := range c.Orders {
				if want := orders[o.ID]; o.Order != want || i > 0 && c.Orders[i-1].ID >= o.ID {
					t.Fatalf("order %d is %+v, want %+v", i, o.Order, want)
				}
				// The origin is what a dead letter would keep: it decodes to the same.
				if r, err := decodeRow(o.Origin.Payload); err != nil || *r.order != o.Order {
					t.Fatalf("the origin of %d holds %+v, %v", o.ID, r, err)
				}
			}
			for i, e := range c.Entries {
				if e.Entry != entries[[2]int64{e.OrderID, e.Seq}] {
					t.Fatalf("entry %d is %+v", i, e.Entry)
				}
				if i > 0 {
					before := c.Entries[i-1]
					if before.OrderID > e.OrderID || before.OrderID == e.OrderID && before.Seq >= e.Seq {
						t.Fatal("entries aren't sorted")
					}
				}
			}
			if g.rows != rows || g.skipped != skipped {
				t.Fatalf("%d rows of %d, %d skipped", g.rows, rows, g.skipped)
			}
		})
	}
}

func TestMarksOfThisStreamAndMapCount(t *testing.T) {
	g := newGatherer(testMap(t, 8), 1, "now")
	mark := func(seq uint64, server string, at schema.Millis, incarnation string) {
		g.add(stream.Message{Seq: seq, Incarnation: incarnation, Mark: &stream.Mark{Server: server, At: at}})
	}
	mark(1, "uid-b", 10, "now")
	mark(2, "uid-a", 10, "now")
	mark(3, "uid-a", 20, "now")
	mark(4, "uid-z", 10, "now") // no server of the map
	mark(5, "bid-a", 10, "now") // no uid server
	if g.foreign {
		t.Error("marks of this stream are taken for another's")
	}
	mark(6, "uid-a", 99, "before")
	if !g.foreign {
		t.Error("a mark of another stream isn't noticed")
	}
	mark(7, "", 0, "") // unreadable
	want := []stream.Mark{{Server: "uid-a", At: 20}, {Server: "uid-b", At: 10}}
	if c := g.change(Progress{}); !cmp.Equal(c.Marks, want, cmp.Comparer(func(a, b source.Position) bool { return a.String() == b.String() })) || c.To.Seq != 7 {
		t.Errorf("marks %v up to %d", c.Marks, c.To.Seq)
	}
	if !g.empty() {
		t.Error("only marks were gathered")
	}
}

// Each kind of poison is set aside alone: its neighbours are applied.
func TestPoison(t *testing.T) {
	const d, n = 3, 16
	m := testMap(t, n)
	bid := bidOf(d, n, 0)
	good := schema.Order{ID: 1, UID: 9527, BID: bid, Status: schema.Created, Ver: 1, ExpiresAt: 1, UpdatedAt: 1}
	order := func(f func(*mirrorpb.Order)) *mirrorpb.Row {
		w := mirrorpb.FromOrder(&good)
		f(w)
		return &mirrorpb.Row{Row: &mirrorpb.Row_Order{Order: w}}
	}
	entry := func(f func(*mirrorpb.Entry)) *mirrorpb.Row {
		w := mirrorpb.FromEntry(&schema.Entry{OrderID: 1, Seq: 2, UID: 9527, BID: bid, Kind: schema.KindPaid, From: schema.Created, To: schema.Paid, RecordedAt: 1})
		f(w)
		return &mirrorpb.Row{Row: &mirrorpb.Row_Entry{Entry: w}}
	}
	broken := func(bid int64) *mirrorpb.Row {
		return &mirrorpb.Row{Row: &mirrorpb.Row_Broken{Broken: &mirrorpb.Broken{Table: "x.order_1", Bid: bid, Reason: "zero date", Text: "id=5"}}}
	}
	for _, c := range []struct {
		name, reason string
		row          *mirrorpb.Row
	}{
		{"a bid of another group", "another group", order(func(o *mirrorpb.Order) { o.Bid += 10 })},
		{"an entry of another group", "another group", entry(func(e *mirrorpb.Entry) { e.Bid += 10 })},
		{"an id that disagrees with its uid", "disagree", order(func(o *mirrorpb.Order) { o.Uid++ })},
		{"an entry whose id disagrees", "disagree", entry(func(e *mirrorpb.Entry) { e.Uid += 10 })},
		{"no bid", "bid", order(func(o *mirrorpb.Order) { o.Bid = 0 })},
		{"a row that the collector couldn't understand", "zero date", broken(bid)},
		{"one without a bid", "zero date", broken(0)},
		{"a broken row of another group", "another group", broken(bid + 10)},
		{"nothing", "unknown kind", &mirrorpb.Row{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGatherer(m, d, "now")
			neighbour := good
			neighbour.ID = 2
			g.add(message(t, 7, orderRow(neighbour), c.row, orderRow(good)))
			ch := g.change(Progress{})
			if len(ch.Orders) != 2 || len(ch.Letters) != 1 {
				t.Fatalf("%d orders, dead letters %+v", len(ch.Orders), ch.Letters)
			}
			l := ch.Letters[0]
			if l.LetterKey != (LetterKey{"now", 7, 1}) || !strings.Contains(l.Reason, c.reason) || l.Subject == "" {
				t.Errorf("the dead letter is %+v, want one about %q", l, c.reason)
			}
			if _, err := decodeRow(l.Payload); c.row.Row != nil && err != nil && !strings.Contains(l.Reason, err.Error()) {
				t.Errorf("the payload isn't the row: %v", err)
			}
		})
	}
	t.Run("a broken row of the group's other database is skipped", func(t *testing.T) {
		g := newGatherer(m, d, "now")
		g.add(message(t, 7, broken(bidOf(d+8, n, 0))))
		if len(g.letters) != 0 || g.skipped != 1 {
			t.Errorf("%d dead letters, %d skipped", len(g.letters), g.skipped)
		}
	})
	for name, data := range map[string]string{
		"noise": "\xff\xff\xff\xff", "nothing": "", "a length beyond the end": "\x12\x7fabc", "no rows": "\x0a\x05uid-a", "cut in a field": "\x0a",
	} {
		t.Run("a message of "+name, func(t *testing.T) {
			g := newGatherer(m, d, "now")
			g.add(stream.Message{Seq: 8, Subject: "mirror.row.2", Data: []byte(data)})
			if len(g.letters) != 1 || g.letters[0].LetterKey != (LetterKey{"now", 8, -1}) || string(g.letters[0].Payload) != data {
				t.Errorf("dead letters %+v", g.letters)
			}
			if g.empty() {
				t.Error("a message that is a dead letter counts as nothing")
			}
		})
	}
	t.Run("an undecodable row", func(t *testing.T) {
		g := newGatherer(m, d, "now")
		g.add(stream.Message{Seq: 9, Data: []byte("\x12\x03\xff\xff\xff")})
		if len(g.letters) != 1 || g.letters[0].Item != 0 || !strings.Contains(g.letters[0].Reason, "undecodable") {
			t.Errorf("dead letters %+v", g.letters)
		}
	})
}

// FuzzMessage: no message, whatever is in it, stops an applier or vanishes. What is
// understood travels unchanged, and the reason of a dead letter fits its column.
func FuzzMessage(f *testing.F) {
	m := testMap(f, 8)
	o := schema.Order{ID: 1, UID: 9527, BID: 1, Status: schema.Created, Ver: 1, ExpiresAt: 1, UpdatedAt: 1}
	f.Add(message(f, 1, orderRow(o)).Data)
	f.Add([]byte("\x12\x03\xff\xff\xff"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		g := newGatherer(m, 1, "now")
		g.add(stream.Message{Seq: 1, Data: data})
		c := g.change(Progress{})
		if c.To.Seq != 1 {
			t.Fatal("the message isn't passed")
		}
		if len(c.Orders)+len(c.Entries)+len(c.Letters)+g.skipped == 0 {
			t.Fatal("the message vanished")
		}
		for _, l := range c.Letters {
			if n := len([]rune(l.Reason)); n == 0 || n > reasonMax {
				t.Fatalf("a reason of %d characters", n)
			}
		}
		var rows []*mirrorpb.Row
		for _, o := range c.Orders {
			rows = append(rows, orderRow(o.Order))
		}
		for _, e := range c.Entries {
			rows = append(rows, entryRow(e.Entry))
		}
		if len(rows) == 0 {
			return
		}
		again := newGatherer(m, 1, "now")
		again.add(message(t, 1, rows...))
		same := again.change(Progress{})
		if len(same.Letters) > 0 || len(same.Orders) != len(c.Orders) || len(same.Entries) != len(c.Entries) {
			t.Fatalf("%+v became %+v", c, same)
		}
		for i := range c.Orders {
			if same.Orders[i].Order != c.Orders[i].Order {
				t.Fatalf("%+v became %+v", c.Orders[i].Order, same.Orders[i].Order)
			}
		}
		for i := range c.Entries {
			if same.Entries[i].Entry != c.Entries[i].Entry {
				t.Fatalf("%+v became %+v", c.Entries[i].Entry, same.Entries[i].Entry)
			}
		}
	})
}

func TestBegin(t *testing.T) {
	stored := func(_ context.Context, seq uint64) (int64, error) { return int64(seq) * 10, nil }
	for _, c := range []struct {
		name     string
		progress Progress
		info     stream.Info
		from     uint64
		err      error
	}{
		{"a new database and a new stream", Progress{}, stream.Info{Incarnation: "a", First: 1, Last: 0}, 1, nil},
		{"a new database and a young stream", Progress{}, stream.Info{Incarnation: "a", First: 1, Last: 50}, 1, nil},
		{"a new database and a stream that was purged", Progress{}, stream.Info{Incarnation: "a", First: 2, Last: 50}, 0, ErrRefill},
		{"behind the progress", Progress{"a", 5, 50}, stream.Info{Incarnation: "a", First: 1, Last: 9}, 6, nil},
		{"everything is applied", Progress{"a", 9, 90}, stream.Info{Incarnation: "a", First: 1, Last: 9}, 10, nil},
		{"everything is applied and purged", Progress{"a", 9, 90}, stream.Info{Incarnation: "a", First: 10, Last: 9}, 10, nil},
		{"the next message is the first", Progress{"a", 5, 50}, stream.Info{Incarnation: "a", First: 6, Last: 9}, 6, nil},
		{"the next message is gone", Progress{"a", 5, 50}, stream.Info{Incarnation: "a", First: 7, Last: 9}, 0, ErrRefill},
		{"another stream begins anew", Progress{"a", 5, 50}, stream.Info{Incarnation: "b", First: 1, Last: 2}, 1, nil},
		{"another stream was purged", Progress{"a", 5, 50}, stream.Info{Incarnation: "b", First: 4, Last: 9}, 0, ErrRefill},
		{"the stream ends before the progress", Progress{"a", 5, 50}, stream.Info{Incarnation: "a", First: 1, Last: 4}, 0, ErrLost},
		{"the stream is empty and should not be", Progress{"a", 5, 50}, stream.Info{Incarnation: "a", First: 1, Last: 0}, 0, ErrLost},
		{"a sequence was given to another message", Progress{"a", 5, 51}, stream.Info{Incarnation: "a", First: 1, Last: 9}, 0, ErrLost},
		{"when the message was stored isn't known", Progress{"a", 5, 0}, stream.Info{Incarnation: "a", First: 1, Last: 9}, 6, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			from, err := Begin(t.Context(), c.progress, c.info, stored)
			if from != c.from || !errors.Is(err, c.err) {
				t.Errorf("from %d, %v; want %d, %v", from, err, c.from, c.err)
			}
		})
	}
	t.Run("the message was purged meanwhile", func(t *testing.T) {
		gone := func(context.Context, uint64) (int64, error) { return 0, nil }
		if from, err := Begin(t.Context(), Progress{"a", 5, 50}, stream.Info{Incarnation: "a", First: 5, Last: 9}, gone); from != 6 || err != nil {
			t.Error(from, err)
		}
	})
	t.Run("NATS doesn't answer", func(t *testing.T) {
		away := func(context.Context, uint64) (int64, error) { return 0, errors.New("away") }
		if _, err := Begin(t.Context(), Progress{"a", 5, 50}, stream.Info{Incarnation: "a", First: 5, Last: 9}, away); err == nil || errors.Is(err, ErrLost) {
			t.Error(err)
		}
	})
}
