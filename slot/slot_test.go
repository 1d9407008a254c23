package slot_test

import (
	"testing"

	"github.com/octopay/octopay/slot"
	"pgregory.net/rapid"
)

func TestWorkedExampleOfUID9527(t *testing.T) {
	const uid = 9527
	if got := slot.Table(uid); got != 7 {
		t.Errorf("table = %d, want 7", got)
	}
	if got := slot.Info(uid); got != 57 {
		t.Errorf("info = %d, want 57", got)
	}
	for n, want := range map[int]int{8: 1, 16: 9, 32: 25, 64: 57} {
		if got := slot.Of(uid).Database(n); got != want {
			t.Errorf("database of %d = %d, want %d", n, got, want)
		}
	}
}

// The definition, written as the design states it and not as the package
// computes it.
func TestPlacementFollowsItsDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.Int64Range(1, 1<<63-1).Draw(t, "key")
		n := rapid.SampledFrom([]int{8, 16, 32, 64}).Draw(t, "n")
		s := slot.Of(key)
		if want := slot.Slot(key % 640); s != want {
			t.Fatalf("slot = %d, want %d", s, want)
		}
		if got, want := s.Database(n), int((key/10)%int64(n))+1; got != want {
			t.Fatalf("database = %d, want %d", got, want)
		}
		if got, want := slot.Table(key), int(key%10); got != want {
			t.Fatalf("table = %d, want %d", got, want)
		}
		if got, want := slot.Info(key), int((key/10)%64)+1; got != want {
			t.Fatalf("info = %d, want %d", got, want)
		}
	})
}

func TestDoublingMovesAKeyOnlyToItsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := slot.Of(rapid.Int64Range(1, 1<<63-1).Draw(t, "key"))
		n := rapid.SampledFrom([]int{8, 16, 32}).Draw(t, "n")
		before, after := s.Database(n), s.Database(2*n)
		if after != before && after != before+n {
			t.Fatalf("doubling %d moves database %d to %d", n, before, after)
		}
	})
}

func TestDatabaseFromInfoAgreesWithPlacement(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.Int64Range(1, 1<<63-1).Draw(t, "key")
		for _, n := range []int{8, 16, 32, 64} {
			if a, b := slot.DatabaseOfInfo(slot.Info(key), n), slot.Of(key).Database(n); a != b {
				t.Fatalf("of %d: database %d from the info, %d from the key", n, a, b)
			}
		}
	})
}

func TestKeysBelowOnePanic(t *testing.T) {
	for _, key := range []int64{0, -1, -1 << 63} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("key %d has a slot", key)
				}
			}()
			slot.Of(key)
		}()
	}
}

func TestValidSizes(t *testing.T) {
	for n := -1; n <= 130; n++ {
		want := n == 8 || n == 16 || n == 32 || n == 64
		if slot.ValidSize(n) != want {
			t.Errorf("ValidSize(%d) = %v", n, !want)
		}
	}
}
