package stream

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"golang.org/x/sync/errgroup"
)

// lose deletes a message between others, as NATS loses it.
func lose(t *testing.T, s *Stream, seq uint64) {
	t.Helper()
	st, err := s.handle(t.Context())
	if err == nil {
		err = st.DeleteMsg(t.Context(), seq)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestAMissingMessageIsAHole(t *testing.T) {
	s := open(t, localstack.Test(t, localstack.NATS), Config{})
	info := ensure(t, s)
	w := writer(t, s, "uid-a")
	for n := range uint64(10) { // 1 to 20
		rows(t, w, int(n)%Groups, "rows")
		mark(t, w, n, 0)
	}
	whole := func(from uint64, want error) {
		t.Helper()
		s.whole = whole{} // as after NATS was away
		if err := s.Whole(t.Context(), from, info.Incarnation); !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("from %d: %v, want %v", from, err, want)
		}
	}
	lose := func(seq uint64) { t.Helper(); lose(t, s, seq) }
	whole(1, nil)
	lose(7)
	whole(1, ErrHole)
	whole(7, ErrHole)
	whole(8, nil)
	whole(20, nil)
	whole(21, nil)
	lose(20) // nothing comes behind it
	whole(8, ErrHole)
	whole(21, nil)
	// What is purged from the beginning, meanwhile, is no hole.
	if st, err := s.handle(t.Context()); err != nil || st.Purge(t.Context()) != nil {
		t.Fatal(err)
	}
	whole(8, ErrInterrupted)
	whole(21, nil)
	if err := s.Whole(t.Context(), 25, info.Incarnation); err != nil || !s.whole.covers(30, info.Incarnation, s.connection()) {
		t.Errorf("%v; what was looked at isn't known", err)
	}
	if s.whole.covers(20, info.Incarnation, s.connection()) || s.whole.covers(30, "another", s.connection()) || s.whole.covers(30, info.Incarnation, s.connection()+1) {
		t.Error("known is what was not looked at")
	}
	if err := s.Whole(t.Context(), 1, "another"); !errors.Is(err, ErrInterrupted) {
		t.Errorf("of another incarnation: %v", err)
	}
	if err := s.hole(t.Context(), 1, "another"); !errors.Is(err, ErrInterrupted) {
		t.Errorf("the stream was made anew while it was read: %v", err)
	}
}

// However many ask, a message's header is read once.
func TestAStreamIsLookedAtOnce(t *testing.T) {
	stack := localstack.Test(t, localstack.NATS)
	s := open(t, stack, Config{})
	info := ensure(t, s)
	rows(t, writer(t, s, "uid-a"), 0, slices.Repeat([]string{"rows"}, 20)...)
	made, err := connect(t, stack.NATSURL).SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.CREATED." + s.Name() + ".>")
	if err == nil {
		_, err = s.Info(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	// readers waits for the first, and a moment for another one.
	readers := func() (n int) {
		t.Helper()
		for wait := eventually.Patience; ; wait = 200 * time.Millisecond {
			if _, err := made.NextMsg(wait); errors.Is(err, nats.ErrTimeout) {
				return n
			} else if err != nil {
				t.Fatal(err)
			}
			n++
		}
	}
	var all errgroup.Group
	for range 10 {
		all.Go(func() error { return s.Whole(t.Context(), 10, info.Incarnation) })
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := readers(); n != 1 {
		t.Errorf("%d have read it, want 1", n)
	}
	// What was looked at isn't read again, also where more is asked for.
	lose(t, s, 15)
	if err := s.Whole(t.Context(), 5, info.Incarnation); err != nil {
		t.Errorf("from 5 on: %v", err)
	}
	lose(t, s, 3)
	if err := s.Whole(t.Context(), 1, info.Incarnation); !errors.Is(err, ErrHole) {
		t.Errorf("from 1 on: %v", err)
	}
	// Whoever waits for another to look can leave.
	s.looking <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Whole(ctx, 1, info.Incarnation); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait without an end: %v", err)
	}
}
