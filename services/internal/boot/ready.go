package boot

import (
	"slices"
	"sync"
)

// Readiness is what a program still waits for. It is safe for concurrent use; the
// zero value waits for nothing.
type Readiness struct {
	mu       sync.Mutex
	waiting  []string
	draining bool
}

// Waiting says that the program isn't ready before what is there, see Arrived.
func (r *Readiness) Waiting(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = append(r.waiting, what)
}

// Arrived says that what is there.
func (r *Readiness) Arrived(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = slices.DeleteFunc(r.waiting, func(s string) bool { return s == what })
}

// Missing returns what the program waits for; empty means ready.
func (r *Readiness) Missing() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.waiting)
}

// Drain says that the program is ending.
func (r *Readiness) Drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.draining = true
}

// Draining reports whether the program is ending.
func (r *Readiness) Draining() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.draining
}
