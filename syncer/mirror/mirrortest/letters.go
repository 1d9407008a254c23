package mirrortest

import (
	"errors"
	"testing"

	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/slot"
	"github.com/octopay/octopay/syncer/apply"
	"github.com/octopay/octopay/syncer/mirror"
	"github.com/octopay/octopay/syncer/mirrorpb"
	"github.com/octopay/octopay/syncer/stream"
	"google.golang.org/protobuf/proto"
)

func wireOrder(t *testing.T, o schema.Order) []byte {
	t.Helper()
	data, err := proto.Marshal(&mirrorpb.Row{Row: &mirrorpb.Row_Order{Order: mirrorpb.FromOrder(&o)}})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A dead letter that can be understood now is applied, guarded as ever; one that
// can't stays open; one that is dropped is gone.
func settle(t *testing.T, m Mirror) {
	f := feed(m, 8)
	ctx := t.Context()
	bid := f.bid(0)
	stored := newOrder(1, bid)
	stored.Ver, stored.Status = 3, schema.Paid
	older, fresh, foreign := newOrder(1, bid), newOrder(2, bid), newOrder(3, bid+10)

	put := func(seq uint64, item int, payload []byte) apply.Letter {
		l := letter(seq, item)
		l.Payload = payload
		return l
	}
	whole, err := proto.Marshal(&mirrorpb.Rows{Rows: []*mirrorpb.Row{
		{Row: &mirrorpb.Row_Order{Order: mirrorpb.FromOrder(&fresh)}},
		{Row: &mirrorpb.Row_Entry{Entry: mirrorpb.FromEntry(&schema.Entry{OrderID: 2, Seq: 2, UID: fresh.UID, BID: bid, Kind: schema.KindPaid, From: schema.Created, To: schema.Paid, Op: "o", Actor: "a", RequestID: "r", RecordedAt: 5})}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	good := []apply.Letter{put(1, 0, wireOrder(t, older)), put(2, -1, whole)}
	bad := []apply.Letter{put(3, 0, wireOrder(t, foreign)), put(4, 0, []byte{255}), put(5, -1, []byte{255})}
	f.apply(t, apply.Change{Orders: []apply.Order{order(stored)}, Letters: append(good, bad...)})

	for _, l := range good {
		if err := apply.Retry(ctx, f.target, m.Map, l); err != nil {
			t.Errorf("retry %+v: %v", l.LetterKey, err)
		}
		if err := apply.Retry(ctx, f.target, m.Map, l); !errors.Is(err, apply.ErrNoLetter) {
			t.Errorf("retry %+v again: %v", l.LetterKey, err)
		}
	}
	for _, l := range bad {
		if err := apply.Retry(ctx, f.target, m.Map, l); err == nil || errors.Is(err, apply.ErrNoLetter) {
			t.Errorf("retry %+v: %v", l.LetterKey, err)
		}
	}
	got, _ := f.list(t, mirror.Query{BID: bid})
	if len(got) != 2 || got[0] != fresh || got[1] != stored {
		t.Errorf("the list is %+v", got)
	}
	if e := m.Entries(t, bid, 2); len(e) != 1 || e[0].Kind != schema.KindPaid {
		t.Errorf("the journal is %+v", e)
	}
	if open, err := f.target.Letters(ctx, 10); err != nil || len(open) != len(bad) {
		t.Errorf("%d dead letters are open, want %d, %v", len(open), len(bad), err)
	}
	for _, l := range bad {
		if err := apply.Drop(ctx, f.target, l.LetterKey); err != nil {
			t.Errorf("drop %+v: %v", l.LetterKey, err)
		}
		if err := apply.Drop(ctx, f.target, l.LetterKey); !errors.Is(err, apply.ErrNoLetter) {
			t.Errorf("drop %+v again: %v", l.LetterKey, err)
		}
	}
	if s, err := f.target.State(ctx); err != nil || s.Letters != 0 {
		t.Errorf("%d dead letters are open, %v", s.Letters, err)
	}
}

// Two orders with one id, of two buyers or of two merchants: the one that is stored stays
// as it is, whatever the versions are, and the other is no secret.
func taken(t *testing.T, m Mirror) {
	f := feed(m, 2)
	ctx := t.Context()
	bid, neighbour := f.bid(0), f.bid(10) // two merchants of one table
	if bid%slot.Tables != neighbour%slot.Tables {
		t.Fatal("the merchants are in two tables: the test shows nothing")
	}
	entryOf := func(o schema.Order) schema.Entry {
		return schema.Entry{OrderID: o.ID, Seq: 2, UID: o.UID, BID: o.BID, Kind: schema.KindPaid, From: schema.Created, To: schema.Paid, Op: "o", Actor: "a", RequestID: "r", RecordedAt: 5}
	}
	at := func(o schema.Order, item int) apply.Order {
		return apply.Order{Order: o, Origin: apply.Origin{Seq: 50, Item: item, Subject: "mirror.row.1", Payload: wireOrder(t, o)}}
	}
	stored := newOrder(10, bid)
	stored.Ver, stored.Status = 3, schema.Paid
	if n := f.apply(t, apply.Change{Orders: []apply.Order{order(stored)}, Entries: []apply.Entry{entry(entryOf(stored))}}); n != 0 {
		t.Fatalf("%d dead letters", n)
	}
	older, newer, elsewhere, fresh := stored, stored, stored, newOrder(11, bid)
	older.UID, older.Ver = stored.UID+10, 1
	newer.UID, newer.Ver = stored.UID+20, 9
	elsewhere.BID = neighbour
	twin := fresh
	twin.UID += 10
	theirs := apply.Entry{Entry: entryOf(newer), Origin: apply.Origin{Seq: 51, Item: 9, Payload: []byte("wire")}}
	n := f.apply(t, apply.Change{
		Orders:  []apply.Order{at(older, 0), at(newer, 1), at(elsewhere, 2), at(fresh, 3), at(twin, 4)},
		Entries: []apply.Entry{theirs},
		Marks:   []stream.Mark{mark("uid-a", 1, 1000)},
	})
	if n != 5 {
		t.Errorf("%d dead letters, want 5", n)
	}
	letters, err := f.target.Letters(ctx, 10)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range letters {
		if l.Reason != "another order has this id" || len(l.Payload) == 0 || l.Item == 3 {
			t.Errorf("a dead letter is %+v", l)
		}
		if l.Seq == 51 {
			continue
		}
		if err := apply.Retry(ctx, f.target, m.Map, l); err == nil || errors.Is(err, apply.ErrNoLetter) {
			t.Errorf("retry %+v: %v", l.LetterKey, err)
		}
	}
	if got, until := f.list(t, mirror.Query{BID: bid}); len(got) != 2 || got[0] != fresh || got[1] != stored || until != 0 {
		t.Errorf("the list is %+v, complete until %d", got, until)
	}
	if got, _ := f.list(t, mirror.Query{BID: neighbour}); len(got) != 0 {
		t.Errorf("the other merchant's list is %+v", got)
	}
	if e := m.Entries(t, bid, stored.ID); len(e) != 1 || e[0] != entryOf(stored) {
		t.Errorf("the journal is %+v", e)
	}
	if s, err := f.target.State(ctx); err != nil || s.Letters != n {
		t.Errorf("%d dead letters are open, %v", s.Letters, err)
	}
}
