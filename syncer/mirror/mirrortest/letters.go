package mirrortest

import (
	"errors"
	"testing"

	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/syncer/apply"
	"github.com/octopay/octopay/syncer/mirror"
	"github.com/octopay/octopay/syncer/mirrorpb"
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
