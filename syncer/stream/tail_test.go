package stream

import (
	"testing"
	"time"

	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
)

func TestATailReadsAllAndLeavesNothing(t *testing.T) {
	s := open(t, localstack.Test(t, localstack.NATS), Config{MaxBytes: 1 << 20})
	ensure(t, s)
	w := writer(t, s, "uid-a")
	for group := range Groups {
		rows(t, w, group, "x") // one after the other
	}
	mark(t, w, 1, 1000)

	at, err := s.StoredAt(t.Context(), 3)
	if err != nil || at == 0 {
		t.Fatal(at, err)
	}
	for want, since := range map[uint64]time.Time{1: {}, 3: time.Unix(0, at), 4: time.Unix(0, at+1), Groups + 2: time.Now().Add(time.Hour)} {
		if got, err := s.FirstSince(t.Context(), since); got != want || err != nil {
			t.Errorf("since %s: %d, want %d, %v", since, got, want, err)
		}
	}

	all, err := s.Tail(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	for seq := uint64(3); seq <= Groups+1; seq++ {
		m, err := all.Next(t.Context(), eventually.Patience)
		if err != nil || m.Seq != seq || (m.Mark != nil) != (seq == Groups+1) {
			t.Fatalf("message %d is %+v, %v", seq, m, err)
		}
	}
	one, err := s.TailGroup(t.Context(), 5, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, seq := range []uint64{6, Groups + 1} {
		if m, err := one.Next(t.Context(), eventually.Patience); err != nil || m.Seq != seq {
			t.Errorf("of group 5: message %d, want %d, %v", m.Seq, seq, err)
		}
	}
	all.Close()
	one.Close()
	st, err := s.js.Stream(t.Context(), s.Name())
	if err != nil || st.CachedInfo().State.Consumers != 0 {
		t.Errorf("NATS keeps %d consumers, %v", st.CachedInfo().State.Consumers, err)
	}
}
