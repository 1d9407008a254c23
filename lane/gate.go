package lane

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// A Gate bounds how many transactions of one kind are in flight on one server. The
// lanes that wait for it are served in the order of their arrival. nil has no
// bound.
type Gate struct{ places *semaphore.Weighted }

// NewGate returns a Gate for n transactions. Below 1 it takes the default, 2: the
// server syncs one to disk while it works on the other; measured throughput falls
// with more.
func NewGate(n int) *Gate {
	if n < 1 {
		n = 2
	}
	return &Gate{semaphore.NewWeighted(int64(n))}
}

// acquire waits for a place; ctx must not end.
func (g *Gate) acquire(ctx context.Context) {
	if g == nil {
		return
	}
	if err := g.places.Acquire(ctx, 1); err != nil {
		panic("lane: the wait for a gate was cancelled")
	}
}

func (g *Gate) release() {
	if g != nil {
		g.places.Release(1)
	}
}
