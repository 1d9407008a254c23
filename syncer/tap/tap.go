// Package tap is the source of a mirror whose truth is a store in this process: it is
// told every commit, in order, and keeps each until it is published.
//
// It decides what happens when commits come faster than they are published: it holds
// a bounded number of rows, and a commit waits for room. Nothing is dropped. In
// production the binlog is the buffer; here there is no other.
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

// A Tap is a source.Source. It is safe for concurrent use.
type Tap struct {
	now func() schema.Millis

	mu      sync.Mutex
	room    sync.Cond     // signalled when rows falls
	news    chan struct{} // closed and replaced when a commit comes
	commits []commit      // those numbered saved+1 … saved+len
	saved   uint64
	rows    int
	max     int
	closed  bool

	asking *answer // of a call of now that is under way
}

type answer struct {
	done chan struct{} // closed when now is set
	now  schema.Millis
}

type commit struct {
	orders  []schema.Order
	entries []schema.Entry
}

// New returns a Tap. now is the store's clock and its promise: whatever is stamped
// earlier than it returns was told to Commit before it returned. So it takes the lock
// under which the store stamps and calls Commit.
func New(now func() schema.Millis) *Tap {
	t := &Tap{now: now, news: make(chan struct{}), max: rowsMax}
	t.room.L = &t.mu
	return t
}

// Commit tells of one commit; the rows are not changed afterwards. The store calls it
// in the order of its commits, under its lock. It returns at once unless the
// publishing is far behind: then it waits for room. After Close it does nothing.
func (t *Tap) Commit(orders []schema.Order, entries []schema.Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for !t.closed && t.rows >= t.max {
		t.room.Wait()
	}
	if t.closed {
		return
	}
	t.commits = append(t.commits, commit{orders, entries})
	t.rows += len(orders) + len(entries)
	close(t.news)
	t.news = make(chan struct{})
}

// Close ends all waiting. Later commits are not told to anybody.
func (t *Tap) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.room.Broadcast()
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
func (t *Tap) Now(ctx context.Context) (schema.Millis, error) { return t.ask(ctx) }

// ask calls now, which can wait for a lock that is held by a commit that waits for
// room. So that a collector can always go on and make room, ask gives up with ctx;
// the call under way is then the next one's.
func (t *Tap) ask(ctx context.Context) (schema.Millis, error) {
	t.mu.Lock()
	asking := t.asking
	if asking == nil {
		asking = &answer{done: make(chan struct{})}
		t.asking = asking
		go func() {
			asking.now = t.now()
			t.mu.Lock()
			t.asking = nil
			t.mu.Unlock()
			close(asking.done)
		}()
	}
	t.mu.Unlock()
	select {
	case <-asking.done:
		return asking.now, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

type clock struct{ t *Tap }

// Stamp implements source.Clock.
func (c clock) Stamp(ctx context.Context) (source.Stamp, error) {
	now, err := c.t.ask(ctx)
	if err != nil {
		return source.Stamp{}, err
	}
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
	r.t.room.Broadcast()
}

// Close implements source.Reader.
func (r *reader) Close() error { return nil }
