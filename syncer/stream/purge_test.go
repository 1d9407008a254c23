package stream

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/octopay/octopay/internal/localstack"
	"golang.org/x/sync/errgroup"
)

func TestPurge(t *testing.T) {
	s := open(t, localstack.Test(t, localstack.NATS), Config{})
	ensure(t, s)
	w := writer(t, s, "uid-a")
	if _, err := s.Purge(t.Context(), time.Now(), []uint64{0}, 0); err != nil {
		t.Error("an empty stream:", err)
	}
	rows(t, w, 0, "1", "2", "3", "4", "5", "6")
	long, short := time.Hour, time.Nanosecond
	for _, c := range []struct {
		name      string
		keep      time.Duration
		drop      time.Duration
		applied   []uint64
		wantFirst uint64
	}{
		{"young messages stay", long, long, []uint64{6, 6}, 1},
		{"nobody has applied anything", short, long, []uint64{0, 4}, 1},
		{"the slowest reader counts", short, long, []uint64{2, 4}, 3},
		{"a reader that doesn't move isn't waited for", short, short, []uint64{2, 6}, 7},
		{"all is applied", short, long, []uint64{6, 6}, 7},
	} {
		s.config.KeepFor, s.config.DropAfter = c.keep, c.drop
		kept, err := s.Purge(t.Context(), time.Now(), c.applied, 0)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		info, err := s.Info(t.Context())
		if err != nil || info.First != c.wantFirst {
			t.Errorf("%s: the stream begins at %d, want %d, %v", c.name, info.First, c.wantFirst, err)
		}
		if dropped := c.applied[0]+1 < kept; dropped != (c.drop == short) {
			t.Errorf("%s: the first reader is dropped: %v", c.name, dropped)
		}
		if c.wantFirst == 7 {
			rows(t, w, 0, "7")
			break
		}
	}
	s.config.KeepFor, s.config.DropAfter = long, long
	if got := since(t, s, time.Now().Add(time.Hour)); got != 8 {
		t.Errorf("the first message of the future is %d", got)
	}
	if got := since(t, s, time.Now().Add(-time.Hour)); got != 7 {
		t.Errorf("the first message of the last hour is %d", got)
	}
}

// A message that is missing says nothing of how old those before it are.
func TestWhatIsNewIsFoundBeforeAHole(t *testing.T) {
	s := open(t, localstack.Test(t, localstack.NATS), Config{})
	ensure(t, s)
	rows(t, writer(t, s, "uid-a"), 0, slices.Repeat([]string{"rows"}, 8)...)
	for seq := uint64(4); seq <= 6; seq++ {
		lose(t, s, seq)
	}
	if got := since(t, s, time.Now().Add(-time.Hour)); got != 1 {
		t.Errorf("the first message of the last hour is %d", got)
	}
	lose(t, s, 8)
	if got := since(t, s, time.Now().Add(-time.Hour)); got != 1 {
		t.Errorf("without the last message it is %d", got)
	}
	if got := since(t, s, time.Now().Add(time.Hour)); got != 8 {
		t.Errorf("the first message of the future is %d", got)
	}
}

// What all have applied is kept only while there is room for what is new.
func TestPurgeMakesRoom(t *testing.T) {
	for _, c := range []struct {
		name      string
		size      int
		full      uint64
		applied   []uint64
		wantFirst uint64
	}{
		{"there is room", 1, 0, []uint64{8, 8}, 1},
		{"a writer found it full", 1, 1, []uint64{8, 8}, 5},
		{"it is nearly full", 7 << 10, 0, []uint64{8, 8}, 5},
		{"it is not so full", 5 << 10, 0, []uint64{8, 8}, 1},
		{"what a reader lacks stays", 7 << 10, 1, []uint64{2, 8}, 3},
		{"nobody has applied anything", 7 << 10, 1, []uint64{0, 0}, 1},
	} {
		s := open(t, localstack.Test(t, localstack.NATS), Config{MaxBytes: 64 << 10})
		ensure(t, s)
		rows(t, writer(t, s, "uid-a"), 0, slices.Repeat([]string{strings.Repeat("x", c.size)}, 8)...)
		if _, err := s.Purge(t.Context(), time.Now(), c.applied, c.full); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if info, err := s.Info(t.Context()); err != nil || info.First != c.wantFirst || info.Last != 8 {
			t.Errorf("%s: the stream is %+v, want to begin at %d, %v", c.name, info, c.wantFirst, err)
		}
	}
}

func since(t *testing.T, s *Stream, at time.Time) uint64 {
	t.Helper()
	st, err := s.handle(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seq, err := firstSince(t.Context(), st, st.CachedInfo().State, at)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

// Of many who purge for one and the same lack of room one takes the older half, and the
// last mark of a server that is alive stays.
func TestOfManyPurgesOneMakesRoom(t *testing.T) {
	stack := localstack.Test(t, localstack.NATS)
	s := open(t, stack, Config{})
	ensure(t, s)
	w := writer(t, s, "uid-a")
	const n = 64
	rows(t, w, 0, slices.Repeat([]string{"rows"}, n/2)...)
	mark(t, w, 1, 1000)
	rows(t, w, 0, slices.Repeat([]string{"rows"}, n/2-1)...)
	purges := func(full, first uint64) {
		t.Helper()
		var all errgroup.Group
		for range 4 { // processes
			of := open(t, stack, Config{})
			for range 2 { // collectors
				all.Go(func() error {
					_, err := of.Purge(t.Context(), time.Now(), []uint64{n, n}, full)
					return err
				})
			}
		}
		if err := all.Wait(); err != nil {
			t.Fatal(err)
		}
		if info, err := s.Info(t.Context()); err != nil || info.First != first || info.Last != n {
			t.Errorf("after purges for a stream that is full from %d on it is %+v, want to begin at %d, %v", full, info, first, err)
		}
	}
	purges(1, n/2+1)
	if last, ok := writer(t, s, "uid-a").Last(); !ok || last.At != 1000 {
		t.Errorf("the last mark is %+v, %v", last, ok)
	}
	purges(1, n/2+1) // one that comes late
	first, err := s.WaitFull(t.Context())
	if err != nil || first != n/2+1 {
		t.Fatalf("it begins at %d, %v", first, err)
	}
	purges(first, n/2+1+n/4) // it is full again
}
