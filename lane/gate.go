package lane

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// A Gate bounds how many transactions of one kind are in flight on one server. The
// lanes that wait for it are served in the order of their arrival. nil has no
// bound. A transaction that takes over half a second isn't counted any more.
type Gate struct {
	places *semaphore.Weighted
}

// NewGate returns a Gate for n transactions. Below 1 it takes the default, 2: the
// server syncs one to disk while it works on the other; measured throughput falls
// with more.
func NewGate(n int) *Gate {
	if n < 1 {
		n = 2
	}
	return &Gate{semaphore.NewWeighted(int64(n))}
}

// placeMax is how long a transaction keeps its place. One that takes longer does not
// load its server, it waits: for a lock, or because nothing answers. So a database that
// is locked up doesn't keep the others of its server waiting.
const placeMax = 500 * time.Millisecond

// acquire waits for a place and returns how to give it back; ctx must not end.
func (g *Gate) acquire(ctx context.Context) (leave func()) {
	if g == nil {
		return func() {}
	}
	if err := g.places.Acquire(ctx, 1); err != nil {
		panic("lane: the wait for a gate was cancelled")
	}
	release := sync.OnceFunc(func() { g.places.Release(1) })
	late := time.AfterFunc(placeMax, release)
	return func() {
		late.Stop()
		release()
	}
}
