package tap

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/syncer/source"
)

func TestMain(m *testing.M) { eventually.Main(m) }

// A store stamps and tells its commits under one lock. It is a channel, because fake
// time doesn't pass while somebody waits for a mutex.
type store struct {
	mu  chan struct{}
	tap *Tap
	id  int64
}

func newStore() *store {
	s := &store{mu: make(chan struct{}, 1)}
	s.tap = New(s.now)
	return s
}

func (s *store) now() schema.Millis {
	s.mu <- struct{}{}
	defer func() { <-s.mu }()
	return schema.MillisOf(time.Now())
}

func (s *store) insert(n int) {
	s.mu <- struct{}{}
	defer func() { <-s.mu }()
	stamp := schema.MillisOf(time.Now())
	var orders []schema.Order
	for range n {
		s.id++
		orders = append(orders, schema.Order{ID: s.id, UpdatedAt: stamp})
	}
	s.tap.Commit(orders, nil)
}

func open(t *testing.T, tap *Tap, after source.Position) source.Reader {
	t.Helper()
	r, err := tap.Open(t.Context(), after)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// read returns the ids of the next n commits, and the position behind them.
func read(t *testing.T, r source.Reader, n int) (ids []int64, end source.Position) {
	t.Helper()
	for range n {
		b, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range b.Orders {
			ids = append(ids, o.ID)
		}
		end = b.End
	}
	return ids, end
}

func TestCommitsComeInOrderFromAnyPositionKept(t *testing.T) {
	s := newStore()
	s.insert(1)
	s.insert(2)
	r := open(t, s.tap, source.Position{})
	ids, two := read(t, r, 2)
	if len(ids) != 3 || ids[0] != 1 || ids[2] != 3 || two.String() != "0-0-2" {
		t.Errorf("read %v up to %s", ids, two)
	}
	s.insert(1)
	s.insert(1)
	if ids, _ := read(t, open(t, s.tap, two), 2); ids[0] != 4 || ids[1] != 5 {
		t.Errorf("behind %s: %v", two, ids)
	}
	if ids, _ := read(t, open(t, s.tap, source.Position{}), 1); ids[0] != 1 {
		t.Errorf("from the beginning: %v", ids)
	}
	r.Saved(two)
	if ids, _ := read(t, open(t, s.tap, two), 2); ids[0] != 4 {
		t.Errorf("behind what was saved: %v", ids)
	}
	var purged *source.PurgedError
	if _, err := s.tap.Open(t.Context(), source.Position{}); !errors.Is(err, source.ErrPurged) || !errors.As(err, &purged) || purged.Oldest.String() != "0-0-2" {
		t.Errorf("what was saved and forgotten: %v", err)
	}
	for _, text := range []string{"0-0-5", "0-1-1", "1-0-1", "0-0-1,1-1-1"} {
		p, err := source.ParsePosition(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.tap.Open(t.Context(), p); err == nil || errors.Is(err, source.ErrPurged) {
			t.Errorf("behind %s: %v", text, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	last := open(t, s.tap, two)
	read(t, last, 2)
	if _, err := last.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for a commit: %v", err)
	}
}

// A stamp is a promise: whatever is stamped before it lies before its position.
func TestStampsAreTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		clock, err := s.tap.Clock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer clock.Close()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for range 300 {
					s.insert(1)
					time.Sleep(time.Millisecond)
				}
			})
		}
		var stamps []source.Stamp
		for range 100 {
			stamp, err := clock.Stamp(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			stamps = append(stamps, stamp)
			time.Sleep(3 * time.Millisecond)
		}
		wg.Wait()
		r := open(t, s.tap, source.Position{})
		for range 900 {
			b, err := r.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, stamp := range stamps {
				if b.Orders[0].UpdatedAt < stamp.At && !stamp.Position.Covers(b.End) {
					t.Fatalf("the commit at %s is stamped %d, but a stamp of %d is at %s", b.End, b.Orders[0].UpdatedAt, stamp.At, stamp.Position)
				}
			}
		}
		if last := stamps[len(stamps)-1]; last.Position.IsZero() || last.At <= stamps[0].At {
			t.Errorf("the last stamp is %+v", last)
		}
	})
}

func TestWithoutRoomTheStoreIsToldAndTheCollectorMakesIt(t *testing.T) {
	s := newStore()
	s.tap.max = 10
	for i, want := range []error{nil, nil, ErrFull} {
		if err := s.tap.Room(); !errors.Is(err, want) {
			t.Errorf("before commit %d: %v, want %v", i+1, err, want)
		}
		if want == nil {
			s.insert(6) // the last one may go over: a commit is never cut
		}
	}
	clock, err := s.tap.Clock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer clock.Close()
	if stamp, err := clock.Stamp(t.Context()); err != nil || stamp.Position.String() != "0-0-2" {
		t.Errorf("a stamp without room: %+v, %v", stamp, err)
	}
	r := open(t, s.tap, source.Position{})
	_, end := read(t, r, 1)
	r.Saved(end)
	if err := s.tap.Room(); err != nil {
		t.Errorf("there is room, but %v", err)
	}
	if ids, _ := read(t, r, 1); len(ids) != 6 {
		t.Errorf("%d of 6 rows followed", len(ids))
	}
	if now, err := s.tap.Now(t.Context()); err != nil || now == 0 {
		t.Errorf("now is %d, %v", now, err)
	}
}

// Of two readers the one that is behind what the other saved has lost its place.
func TestASlowerReaderIsTold(t *testing.T) {
	s := newStore()
	slow, fast := open(t, s.tap, source.Position{}), open(t, s.tap, source.Position{})
	s.insert(1)
	_, end := read(t, fast, 1)
	fast.Saved(end)
	if _, err := slow.Next(t.Context()); !errors.Is(err, source.ErrPurged) {
		t.Errorf("the slower reader: %v", err)
	}
}
