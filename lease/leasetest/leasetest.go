// Package leasetest holds what every lease.Table must do.
package leasetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/octopay/octopay/lease"
)

// A Made is a table to test.
type Made struct {
	Table lease.Table
	// Shift makes d pass on the table's clock at once, for the leases that are there;
	// a negative d makes it step back.
	Shift func(d time.Duration)
	// Close closes the table to those who want worker numbers until d from now.
	Close func(d time.Duration)
}

const term = 5 * time.Minute

// Run runs the suite; each test gets an empty table from open.
func Run(t *testing.T, open func(t *testing.T) Made) {
	for name, test := range map[string]func(*testing.T, Made){
		"a name is held until its lease ends":         heldUntilTheEnd,
		"every holder has a token of its own":         tokens,
		"a renewal moves the end, never back":         renewal,
		"only the last holder renews":                 renewalIsGuarded,
		"a lease that ended is renewed if still free": renewalAfterTheEnd,
		"a released name is free":                     release,
		"only the last holder releases":               releaseIsGuarded,
		"taken names are listed by prefix":            taken,
		"of many at once one gets the name":           oneOfMany,
		"a closed table gives out no worker number":   closed,
		"a context that has ended changes nothing":    endedContext,
		"answers tell times as ms and UTC":            times,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func acquire(t *testing.T, m Made, name, holder string) lease.Lease {
	t.Helper()
	l, err := m.Table.Acquire(t.Context(), name, holder, term)
	if err != nil {
		t.Fatalf("acquire %s for %s: %v", name, holder, err)
	}
	return l
}

func refused(t *testing.T, m Made, name, holder string) {
	t.Helper()
	if l, err := m.Table.Acquire(t.Context(), name, holder, term); !errors.Is(err, lease.ErrTaken) {
		t.Fatalf("acquire %s for %s: %+v, %v; want ErrTaken", name, holder, l, err)
	}
}

func heldUntilTheEnd(t *testing.T, m Made) {
	l := acquire(t, m, "a", "one")
	if l.Name != "a" || l.Holder != "one" || l.Token != 1 || l.Until.Sub(l.Now) != term {
		t.Errorf("%+v", l)
	}
	refused(t, m, "a", "two")
	refused(t, m, "a", "one") // a lost answer is not a lease
	acquire(t, m, "b", "two")
	m.Shift(4 * time.Minute)
	refused(t, m, "a", "two")
	m.Shift(time.Minute)
	acquire(t, m, "a", "two")
	m.Shift(-time.Hour)
	refused(t, m, "a", "three")
}

func tokens(t *testing.T, m Made) {
	for want := int64(1); want <= 3; want++ {
		if l := acquire(t, m, "a", fmt.Sprint("holder ", want)); l.Token != want {
			t.Errorf("token %d, want %d", l.Token, want)
		}
		refused(t, m, "a", "other")
		m.Shift(term)
	}
	l := acquire(t, m, "a", "holder 3") // the same holder again is another one
	if l.Token != 4 {
		t.Errorf("token %d, want 4", l.Token)
	}
	renewed, err := m.Table.Renew(t.Context(), l, term)
	if err != nil || renewed.Token != 4 {
		t.Errorf("a renewal: token %d, %v; want 4", renewed.Token, err)
	}
}

func renewal(t *testing.T, m Made) {
	l := acquire(t, m, "a", "one")
	m.Shift(4 * time.Minute)
	renewed, err := m.Table.Renew(t.Context(), l, term)
	if err != nil {
		t.Fatal(err)
	}
	if renewed.Name != "a" || renewed.Holder != "one" || renewed.Until.Sub(renewed.Now) != term {
		t.Errorf("%+v", renewed)
	}
	m.Shift(2 * time.Minute)
	refused(t, m, "a", "two")
	shorter, err := m.Table.Renew(t.Context(), renewed, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if left := shorter.Until.Sub(shorter.Now); left < 2*time.Minute {
		t.Errorf("a shorter term moved the end back: %s are left", left)
	}
	m.Shift(-time.Hour)
	back, err := m.Table.Renew(t.Context(), shorter, term)
	if err != nil {
		t.Fatal(err)
	}
	if left := back.Until.Sub(back.Now); left < time.Hour {
		t.Errorf("a clock that stepped back moved the end back: %s are left", left)
	}
}

func renewalIsGuarded(t *testing.T, m Made) {
	old := acquire(t, m, "a", "one")
	m.Shift(term)
	l := acquire(t, m, "a", "two")
	if _, err := m.Table.Renew(t.Context(), old, time.Hour); !errors.Is(err, lease.ErrLost) {
		t.Errorf("the holder before renews: %v", err)
	}
	for name, other := range map[string]lease.Lease{
		"another's token":  {Name: "a", Holder: "two", Token: l.Token - 1},
		"another's holder": {Name: "a", Holder: "one", Token: l.Token},
		"another name":     {Name: "b", Holder: "two", Token: l.Token},
	} {
		if _, err := m.Table.Renew(t.Context(), other, time.Hour); !errors.Is(err, lease.ErrLost) {
			t.Errorf("%s renews: %v", name, err)
		}
	}
	m.Shift(term)
	acquire(t, m, "a", "three") // so none of them moved the end
}

func renewalAfterTheEnd(t *testing.T, m Made) {
	l := acquire(t, m, "a", "one")
	m.Shift(2 * term)
	renewed, err := m.Table.Renew(t.Context(), l, term)
	if err != nil || renewed.Until.Sub(renewed.Now) != term {
		t.Fatalf("%+v, %v", renewed, err)
	}
	refused(t, m, "a", "two")
}

func release(t *testing.T, m Made) {
	l := acquire(t, m, "a", "one")
	for range 2 {
		if err := m.Table.Release(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Table.Renew(t.Context(), l, term); !errors.Is(err, lease.ErrLost) {
		t.Errorf("a renewal that comes after the release: %v, want ErrLost", err)
	}
	if next := acquire(t, m, "a", "two"); next.Token != l.Token+1 {
		t.Errorf("token %d, want %d", next.Token, l.Token+1)
	}
}

func releaseIsGuarded(t *testing.T, m Made) {
	old := acquire(t, m, "a", "one")
	m.Shift(term)
	l := acquire(t, m, "a", "two")
	for name, other := range map[string]lease.Lease{
		"the holder before": old,
		"another's token":   {Name: "a", Holder: "two", Token: l.Token - 1},
		"another's holder":  {Name: "a", Holder: "one", Token: l.Token},
		"another name":      {Name: "b", Holder: "two", Token: l.Token},
	} {
		if err := m.Table.Release(t.Context(), other); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	refused(t, m, "a", "three")
	m.Shift(2 * term)
	if err := m.Table.Release(t.Context(), l); err != nil { // ended long ago: its end must not move up
		t.Error(err)
	}
	acquire(t, m, "a", "three")
}

func taken(t *testing.T, m Made) {
	list := func(want ...string) {
		t.Helper()
		got, now, err := m.Table.Taken(t.Context(), "a/")
		if err != nil || now.IsZero() || len(got) != len(want) {
			t.Fatalf("%v, %s, %v; want %v", got, now, err, want)
		}
		for _, name := range want {
			if !got[name] {
				t.Fatalf("%v; want %v", got, want)
			}
		}
	}
	list()
	l := acquire(t, m, "a/1", "one")
	acquire(t, m, "b/1", "one")
	list("a/1")
	m.Shift(time.Minute)
	acquire(t, m, "a/2", "one")
	list("a/1", "a/2")
	m.Shift(4 * time.Minute)
	list("a/2")
	if now := mustNow(t, m); now.Before(l.Now) {
		t.Errorf("the clock says %s, and said %s before", now, l.Now)
	}
}

func mustNow(t *testing.T, m Made) time.Time {
	t.Helper()
	_, now, err := m.Table.Taken(t.Context(), "a/")
	if err != nil {
		t.Fatal(err)
	}
	return now
}

func oneOfMany(t *testing.T, m Made) {
	for round := range 3 {
		var got, lost atomic.Int64
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				switch _, err := m.Table.Acquire(t.Context(), "a", fmt.Sprint("holder ", i), term); {
				case err == nil:
					got.Add(1)
				case errors.Is(err, lease.ErrTaken):
					lost.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got.Load() != 1 || lost.Load() != 19 {
			t.Fatalf("round %d: %d got the name, %d were refused", round, got.Load(), lost.Load())
		}
		m.Shift(term)
	}
}

func closed(t *testing.T, m Made) {
	held := acquire(t, m, "worker/7", "one")
	m.Close(term)
	for _, left := range []time.Duration{time.Minute, 4*time.Minute - time.Second} {
		for _, name := range []string{"worker/5", "worker/7"} {
			if l, err := m.Table.Acquire(t.Context(), name, "two", term); !errors.Is(err, lease.ErrClosed) {
				t.Errorf("%s: %+v, %v; want ErrClosed", name, l, err)
			}
		}
		m.Shift(left)
	}
	// Other names are given, and leases that are there go on.
	other := acquire(t, m, "worker", "one")
	if err := m.Table.Release(t.Context(), other); err != nil {
		t.Error(err)
	}
	if _, err := m.Table.Renew(t.Context(), held, term); err != nil {
		t.Errorf("a renewal: %v", err)
	}
	taken, _, err := m.Table.Taken(t.Context(), "worker/")
	if err != nil || len(taken) != 1 || !taken["worker/7"] {
		t.Errorf("%v are taken, %v", taken, err)
	}
	m.Shift(time.Second)
	acquire(t, m, "worker/5", "two")
	refused(t, m, "worker/7", "two")
	m.Shift(-time.Hour)
	if _, err := m.Table.Acquire(t.Context(), "worker/6", "two", term); !errors.Is(err, lease.ErrClosed) {
		t.Errorf("the clock stepped back before the end of that time: %v", err)
	}
}

func endedContext(t *testing.T, m Made) {
	l := acquire(t, m, "a", "one")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Table.Acquire(ctx, "b", "one", term); !errors.Is(err, context.Canceled) {
		t.Errorf("acquire: %v", err)
	}
	if _, err := m.Table.Renew(ctx, l, 10*term); !errors.Is(err, context.Canceled) {
		t.Errorf("renew: %v", err)
	}
	if err := m.Table.Release(ctx, l); !errors.Is(err, context.Canceled) {
		t.Errorf("release: %v", err)
	}
	if _, _, err := m.Table.Taken(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("taken: %v", err)
	}
	refused(t, m, "a", "two")
	acquire(t, m, "b", "two")
}

func times(t *testing.T, m Made) {
	before := time.Now()
	l := acquire(t, m, "a", "one")
	if l.Now.Truncate(time.Millisecond) != l.Now || l.Until.Truncate(time.Millisecond) != l.Until {
		t.Errorf("now %s, until %s: not whole ms", l.Now, l.Until)
	}
	if l.Now.Location() != time.UTC || l.Until.Location() != time.UTC {
		t.Errorf("now %s, until %s: not UTC", l.Now, l.Until)
	}
	if l.SentAt.Before(before) || l.SentAt.After(time.Now()) || l.End().Sub(l.SentAt) != term-time.Millisecond {
		t.Errorf("sent at %s, ends at %s", l.SentAt, l.End())
	}
	if l.SentAt == l.SentAt.Round(0) { //nolint:staticcheck // Equal would not see the monotonic reading
		t.Error("the moment of sending has lost its monotonic reading")
	}
}
