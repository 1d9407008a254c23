package stream

import (
	"errors"
	"testing"

	"github.com/octopay/octopay/internal/localstack"
)

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
		s.whole.known = false // as after NATS was away
		if err := s.Whole(t.Context(), from, info.Incarnation); !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("from %d: %v, want %v", from, err, want)
		}
	}
	lose := func(seq uint64) {
		t.Helper()
		st, err := s.handle(t.Context())
		if err == nil {
			err = st.DeleteMsg(t.Context(), seq)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
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
}
