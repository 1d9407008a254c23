// Package tap is the source of a mirror whose truth is a store in this process: it is
// told every commit, in order, and keeps each until it is published.
//
// It decides what happens when commits come faster than they are published: it holds
// a bounded number of rows, and without room the store is to refuse new ones (Room).
// Nothing is dropped, and nobody waits under the store's lock. In production the binlog
// is the buffer; here there is no other.
//
// A position counts the commits: 0-0-n lies behind the n-th. Commits that were saved
// are forgotten, so a stream that is lost can't be made again from a Tap
// (source.ErrPurged).
package tap

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/syncer/source"
)

// rowsMax bounds the rows held: some seconds of a fast store.
const rowsMax = 100_000

// ErrFull reports that the publishing is too far behind for more commits.
var ErrFull = errors.New("tap: the mirror is too far behind")

// A Tap is a source.Source. It is safe for concurrent use.
type Tap struct {
	now func() schema.Millis

	mu      sync.Mutex
	news    chan struct{} // closed and replaced when a commit comes
	commits []commit      // those numbered saved+1 … saved+len
	saved   uint64
	rows    int
	max     int
}

type commit struct {
	orders  []schema.Order
	entries []schema.Entry
}

// New returns a Tap. now is the store's clock and its promise: whatever is stamped
// earlier than it returns was told to Commit before it returned. So it takes the lock
// under which the store stamps and calls Commit.
func New(now func() schema.Millis) *Tap {
	return &Tap{now: now, news: make(chan struct{}), max: rowsMax}
}

// Room returns ErrFull when as many rows are held as may be. The store asks, under its
// lock, before it takes new rows; the last commit may go over.
func (t *Tap) Room() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows >= t.max {
		return ErrFull
	}
	return nil
}

// Commit tells of one commit; the rows are not changed afterwards. The store calls it
// in the order of its commits, under its lock. It doesn't wait.
func (t *Tap) Commit(orders []schema.Order, entries []schema.Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.commits = append(t.commits, commit{orders, entries})
	t.rows += len(orders) + len(entries)
	close(t.news)
	t.news = make(chan struct{})
}

func at(n uint64) source.Position {
	if n == 0 {
		return source.Position{}
	}
	return source.Position{}.With(source.GTID{Seq: n})
}

// number is the inverse of at.
func number(p source.Position) (uint64, error) {
	if p.IsZero() {
		return 0, nil
	}
	var n uint64
	if _, err := fmt.Sscanf(p.String(), "0-0-%d", &n); err != nil || at(n).String() != p.String() {
		return 0, errors.New("tap: the position is of another source")
	}
	return n, nil
}

// Open implements source.Source.
func (t *Tap) Open(_ context.Context, after source.Position) (source.Reader, error) {
	n, err := number(after)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if n < t.saved {
		return nil, fmt.Errorf("tap: %w", &source.PurgedError{Oldest: at(t.saved)})
	}
	if n > t.saved+uint64(len(t.commits)) {
		return nil, errors.New("tap: the position lies behind the newest commit")
	}
	return &reader{t: t, next: n + 1}, nil
}

// Clock implements source.Source.
func (t *Tap) Clock(context.Context) (source.Clock, error) { return clock{t}, nil }

// Now implements source.Source.
func (t *Tap) Now(context.Context) (schema.Millis, error) { return t.now(), nil }

type clock struct{ t *Tap }

// Stamp implements source.Clock.
func (c clock) Stamp(context.Context) (source.Stamp, error) {
	now := c.t.now()
	// After now: what is stamped earlier has been told.
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	return source.Stamp{At: now, Now: now, Position: at(c.t.saved + uint64(len(c.t.commits)))}, nil
}

// Close implements source.Clock.
func (c clock) Close() error { return nil }

type reader struct {
	t    *Tap
	next uint64 // number of the next commit
}

// Next implements source.Reader.
func (r *reader) Next(ctx context.Context) (source.Batch, error) {
	for {
		r.t.mu.Lock()
		news := r.t.news
		if r.next <= r.t.saved {
			defer r.t.mu.Unlock()
			return source.Batch{}, fmt.Errorf("tap: another reader saved more: %w", &source.PurgedError{Oldest: at(r.t.saved)})
		}
		if i := r.next - r.t.saved - 1; i < uint64(len(r.t.commits)) {
			c := r.t.commits[i]
			r.t.mu.Unlock()
			b := source.Batch{Orders: c.orders, Entries: c.entries, End: at(r.next)}
			r.next++
			return b, nil
		}
		r.t.mu.Unlock()
		select {
		case <-news:
		case <-ctx.Done():
			return source.Batch{}, ctx.Err()
		}
	}
}

// Saved implements source.Reader: it makes room.
func (r *reader) Saved(p source.Position) {
	n, err := number(p)
	if err != nil {
		return
	}
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	for r.t.saved < n && len(r.t.commits) > 0 {
		r.t.rows -= len(r.t.commits[0].orders) + len(r.t.commits[0].entries)
		r.t.commits[0] = commit{}
		r.t.commits = r.t.commits[1:]
		r.t.saved++
	}
}

// Close implements source.Reader.
func (r *reader) Close() error { return nil }
