// Package eventually waits, in tests, for what another goroutine, process or server does.
// It decides how often to look, and how long is too long: so long that only what never
// comes takes longer, however busy the machine is.
package eventually

import (
	"errors"
	"testing"
	"time"
)

const (
	// Patience is how long True and Nil wait. What never comes is known after it, and a
	// test that goroutine, disk or server keeps waiting for some seconds is not.
	Patience = 90 * time.Second
	every    = 5 * time.Millisecond
)

var errNotYet = errors.New("not yet")

// True returns when holds does, and how long that took. It ends the test when holds
// returns false for longer than Patience.
func True(t testing.TB, what string, holds func() bool) time.Duration {
	t.Helper()
	return Within(t, Patience, what, holds)
}

// Within is True for what may take longer than others, or needs not be waited for so long.
func Within(t testing.TB, limit time.Duration, what string, holds func() bool) time.Duration {
	t.Helper()
	return wait(t, limit, what, func() error {
		if holds() {
			return nil
		}
		return errNotYet
	})
}

// Nil returns when f returns nil. When that takes longer than Patience it ends the test,
// and says what f returned last.
func Nil(t testing.TB, what string, f func() error) {
	t.Helper()
	wait(t, Patience, what, f)
}

func wait(t testing.TB, limit time.Duration, what string, f func() error) time.Duration {
	t.Helper()
	start := time.Now()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		// Looked at before f is called, so that f is asked once more after the limit:
		// this goroutine can have stood still all the while.
		late := time.Since(start) > limit
		err := f()
		if err == nil {
			return time.Since(start)
		}
		if late {
			t.Fatalf("not within %s: %s: %v", limit, what, err)
		}
		<-tick.C
	}
}
