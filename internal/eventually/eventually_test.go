package eventually_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/octopay/octopay/internal/eventually"
)

// An ending keeps what ends its test.
type ending struct {
	testing.TB
	said string
}

func (*ending) Helper() {}

func (e *ending) Fatalf(format string, args ...any) {
	e.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// said runs f, and returns what ended it.
func said(t *testing.T, f func(testing.TB)) string {
	e := &ending{TB: t}
	over := make(chan struct{})
	go func() { defer close(over); f(e) }()
	<-over
	return e.said
}

func TestWhatComesIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		comes := func() bool { return time.Since(begin) >= eventually.Patience }
		if took := eventually.True(t, "it comes", comes); took != eventually.Patience {
			t.Errorf("it took %s", took)
		}
	})
}

func TestWhatNeverComesEndsTheTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		got := said(t, func(t testing.TB) { eventually.True(t, "it comes", func() bool { return false }) })
		if took := time.Since(begin); took <= eventually.Patience || took > eventually.Patience+time.Second || !strings.Contains(got, "it comes") {
			t.Errorf("after %s: %q", took, got)
		}
		got = said(t, func(t testing.TB) { eventually.Nil(t, "it comes", func() error { return errors.New("refused") }) })
		if !strings.Contains(got, "it comes: refused") {
			t.Errorf("said %q", got)
		}
	})
}

// A test that stood still itself for longer than the limit looks once more.
func TestTheLastLookIsAfterTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		eventually.Within(t, time.Second, "it is there at the second look", func() bool {
			if looks++; looks == 1 {
				time.Sleep(time.Minute)
			}
			return looks == 2
		})
	})
}
