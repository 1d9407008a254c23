package stream

import (
	"bytes"
	"strings"
	"testing"

	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/syncer/internal/gen"
	"github.com/octopay/octopay/syncer/mirrorpb"
	"github.com/octopay/octopay/syncer/source"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

// wire returns the wire form of every row of a batch with its group, in order.
func wire(b source.Batch) (rows [Groups][]*mirrorpb.Row) {
	add := func(bid int64, r *mirrorpb.Row) {
		g := 0
		if bid > 0 {
			g = mirrorpb.Group(bid)
		}
		rows[g] = append(rows[g], r)
	}
	for _, o := range b.Orders {
		add(o.BID, &mirrorpb.Row{Row: &mirrorpb.Row_Order{Order: mirrorpb.FromOrder(&o)}})
	}
	for _, e := range b.Entries {
		add(e.BID, &mirrorpb.Row{Row: &mirrorpb.Row_Entry{Entry: mirrorpb.FromEntry(&e)}})
	}
	for _, x := range b.Broken {
		add(x.BID, &mirrorpb.Row{Row: &mirrorpb.Row_Broken{Broken: &mirrorpb.Broken{Table: x.Table, Bid: x.BID, Reason: x.Reason, Text: x.Text}}})
	}
	return rows
}

func unpack(t interface{ Fatal(...any) }, p Packed) []*mirrorpb.Row {
	var m mirrorpb.Rows
	if err := proto.Unmarshal(p.Data, &m); err != nil {
		t.Fatal(err)
	}
	if m.GetServer() != "uid-a" || len(m.GetRows()) != p.Rows {
		t.Fatal("the message names another server, or another number of rows", m.GetServer(), len(m.GetRows()), p.Rows)
	}
	return m.GetRows()
}

func TestPacking(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		max := rapid.SampledFrom([]int{1, 300, 1000, 20_000}).Draw(t, "max")
		p := NewPacker("uid-a", max)
		for range rapid.IntRange(1, 3).Draw(t, "takes") { // a Packer is used again and again
			var want [Groups][]*mirrorpb.Row
			for range rapid.IntRange(0, 4).Draw(t, "batches") {
				var b source.Batch
				for range rapid.IntRange(0, 3).Draw(t, "orders") {
					b.Orders = append(b.Orders, gen.Order(t, gen.Key().Draw(t, "uid"), gen.Key().Draw(t, "bid"), gen.Snowflake().Draw(t, "id"), 1))
				}
				for range rapid.IntRange(0, 2).Draw(t, "entries") {
					b.Entries = append(b.Entries, gen.Entry(t, gen.Key().Draw(t, "uid"), gen.Key().Draw(t, "bid"), gen.Snowflake().Draw(t, "id"), 2))
				}
				if rapid.Bool().Draw(t, "a broken one") {
					b.Broken = append(b.Broken, source.Broken{Table: "x.order_1", BID: rapid.Int64Range(0, 90).Draw(t, "bid"), Reason: "r", Text: "t"})
				}
				if err := p.Add(b); err != nil {
					t.Fatal(err)
				}
				for g, rows := range wire(b) {
					want[g] = append(want[g], rows...)
				}
			}
			var got [Groups][]*mirrorpb.Row
			for _, m := range p.Take() {
				if len(m.Data) > max && m.Rows > 1 {
					t.Fatalf("%d rows in %d bytes, the bound is %d", m.Rows, len(m.Data), max)
				}
				got[m.Group] = append(got[m.Group], unpack(t, m)...)
			}
			for g := range want {
				if len(got[g]) != len(want[g]) {
					t.Fatalf("group %d: %d rows of %d", g, len(got[g]), len(want[g]))
				}
				for i := range want[g] {
					if !proto.Equal(got[g][i], want[g][i]) {
						t.Fatalf("group %d, row %d: %v, want %v", g, i, got[g][i], want[g][i])
					}
				}
			}
		}
		if left := p.Take(); len(left) != 0 || p.Full() {
			t.Fatal("rows are left after Take")
		}
	})
}

// Fault 18: a message above the broker's maximum stopped everything.
func TestFault18AHugeRowGoesAlone(t *testing.T) {
	small := schema.Order{ID: 1, UID: 1, BID: 1, Ver: 1}
	huge := schema.Order{ID: 2, UID: 1, BID: 1, Ver: 1, Metadata: strings.Repeat("x", 400<<10)}
	p := NewPacker("uid-a", MessageBytes)
	if err := p.Add(source.Batch{Orders: []schema.Order{small, huge, small}}); err != nil {
		t.Fatal(err)
	}
	var rows []int
	for _, m := range p.Take() {
		rows = append(rows, m.Rows)
		if len(m.Data) > MessageBytes != (m.Rows == 1 && bytes.Contains(m.Data, []byte("xxxx"))) {
			t.Errorf("a message of %d rows has %d bytes", m.Rows, len(m.Data))
		}
	}
	if len(rows) != 3 {
		t.Errorf("packed as %v, want each alone", rows)
	}
}

// What can't be written as an order is passed on as broken, in the place where its
// merchant's database finds it.
func TestAnOrderThatCannotBeWrittenIsPackedAsBroken(t *testing.T) {
	p := NewPacker("uid-a", MessageBytes)
	bad := []schema.Order{
		{ID: 1, UID: 9527, BID: 0, Ver: 1},
		{ID: 2, UID: -5, BID: 1001, Ver: 1},
		{ID: 3, UID: 9527, BID: 1001, Ver: 1, Subject: "\xff"},
	}
	entries := []schema.Entry{
		{OrderID: 1, Seq: 2, UID: 9527, BID: -3},
		{OrderID: 3, Seq: 2, UID: 9527, BID: 1001, Reason: "\xff"},
	}
	if err := p.Add(source.Batch{Orders: bad, Entries: entries}); err != nil {
		t.Fatal(err)
	}
	broken := map[int]int{}
	for _, m := range p.Take() {
		for _, r := range unpack(t, m) {
			if r.GetBroken() == nil {
				t.Errorf("packed as %v", r)
			}
			broken[m.Group]++
		}
	}
	if broken[0] != 2 || broken[mirrorpb.Group(1001)] != 3 {
		t.Errorf("broken rows by group: %v", broken)
	}
}
