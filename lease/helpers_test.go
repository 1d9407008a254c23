package lease_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/octopay/octopay/lease"
)

// logs keeps what is logged, for tests that wait for a line.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func newLogs() *logs { return &logs{more: make(chan struct{}, 1)} }

func (l *logs) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return l.text.Write(p)
}

func (l *logs) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), s)
}

// wait returns when a line with s was logged.
func (l *logs) wait(t *testing.T, s string) {
	t.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for l.count(s) == 0 {
		select {
		case <-l.more:
		case <-limit.C:
			t.Fatalf("no line with %q among:\n%s", s, l.text.String())
		}
	}
}

// A runner is what has a Run.
type runner interface{ Run(context.Context) error }

// run runs r until stop is called or the test ends.
func run(t *testing.T, r runner) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// settle lets requests that are still on their way at the end of a bubble arrive.
func settle(t *testing.T) { t.Cleanup(func() { time.Sleep(time.Minute) }) }

var errLine = errors.New("the line is dead")

// A line is the way from one process to the table. Both ways can be slow or dead.
type line struct {
	lease.Table
	mu                  sync.Mutex
	there, back         time.Duration
	deadThere, deadBack bool
	nThere, nBack       int                // requests and answers that were lost
	nLate               int                // answers that came after their request was given up
	told                map[string]telling // the newest of each name
	age                 func() int         // of the table; nil: it is always the same one
}

// A telling is a lease and the table that told it.
type telling struct {
	lease.Lease
	age int
}

func (l *line) set(there, back time.Duration, deadThere, deadBack bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.there, l.back, l.deadThere, l.deadBack = there, back, deadThere, deadBack
}

// last returns the newest lease of a worker number, as the table told.
func (l *line) last(number int) telling {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.told["worker/"+strconv.Itoa(number)]
}

func (l *line) lostThere() int { l.mu.Lock(); defer l.mu.Unlock(); return l.nThere }
func (l *line) lostBack() int  { l.mu.Lock(); defer l.mu.Unlock(); return l.nBack }
func (l *line) late() int      { l.mu.Lock(); defer l.mu.Unlock(); return l.nLate }

// call carries a request there and its answer back. A request on its way is carried
// out, though its sender may have given up.
func (l *line) call(ctx context.Context, f func(context.Context) error) error {
	l.mu.Lock()
	there, back, deadThere, deadBack := l.there, l.back, l.deadThere, l.deadBack
	l.mu.Unlock()
	lost := func(n *int) { l.mu.Lock(); *n++; l.mu.Unlock() }
	if deadThere {
		lost(&l.nThere)
		return errLine
	}
	answer := make(chan error, 1)
	go func() {
		time.Sleep(there)
		err := f(context.WithoutCancel(ctx))
		time.Sleep(back)
		if deadBack {
			lost(&l.nBack)
			err = errLine
		}
		answer <- err
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		lost(&l.nLate)
		return ctx.Err()
	}
}

func (l *line) lease(ctx context.Context, f func(context.Context) (lease.Lease, error)) (lease.Lease, error) {
	sent := time.Now()
	var got lease.Lease
	var age int
	err := l.call(ctx, func(ctx context.Context) (err error) {
		if l.age != nil {
			age = l.age()
		}
		got, err = f(ctx)
		return err
	})
	if err != nil {
		return lease.Lease{}, err
	}
	got.SentAt = sent
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told == nil {
		l.told = map[string]telling{}
	}
	l.told[got.Name] = telling{got, age}
	return got, nil
}

func (l *line) Acquire(ctx context.Context, name, holder string, term time.Duration) (lease.Lease, error) {
	return l.lease(ctx, func(ctx context.Context) (lease.Lease, error) { return l.Table.Acquire(ctx, name, holder, term) })
}

func (l *line) Renew(ctx context.Context, old lease.Lease, term time.Duration) (lease.Lease, error) {
	return l.lease(ctx, func(ctx context.Context) (lease.Lease, error) { return l.Table.Renew(ctx, old, term) })
}

func (l *line) Release(ctx context.Context, old lease.Lease) error {
	return l.call(ctx, func(ctx context.Context) error { return l.Table.Release(ctx, old) })
}

func (l *line) Taken(ctx context.Context, prefix string) (map[string]bool, time.Time, error) {
	var got map[string]bool
	var now time.Time
	err := l.call(ctx, func(ctx context.Context) (err error) {
		got, now, err = l.Table.Taken(ctx, prefix)
		return err
	})
	if err != nil { // got and now may be the request's, which is still on its way
		return nil, time.Time{}, err
	}
	return got, now, nil
}
