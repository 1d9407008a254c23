// Package lane is the group commit of operations: it gathers what arrives while a
// transaction is in flight and hands it to the next one.
//
//	Enter ──┐
//	Enter ──┼─> queue ──(gate)──> one batch in flight ──> commit ──> each Ticket its result
//	Enter ──┘
//
// It decides when a batch begins, what is in it, and what a caller is told who
// could not wait (Lane); how many transactions of one server are in flight (Gate);
// and what follows from a transaction that failed (Commit). It leaves to its users
// what an operation is and how a batch of them is written, and does no I/O itself.
//
// A database has a Lane for each kind of operation, so that a locked row that holds
// up changes of orders doesn't hold up new orders.
//
// The one promise behind all of it: an operation is never answered "not written"
// when it could have been, or could yet be. Such an answer is ErrUnknown.
package lane

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

var (
	// ErrUnknown reports a write whose outcome was not learned. Running the same
	// operation again is safe and settles it.
	ErrUnknown = errors.New("outcome unknown")
	// ErrFull reports a lane without room. Nothing was written.
	ErrFull = errors.New("lane: queue is full")
	// ErrWait reports an operation that was withdrawn because it waited too long
	// before its transaction began. Nothing was written.
	ErrWait = errors.New("lane: waited too long")
	// ErrClosed reports a lane that no longer takes operations. Nothing was written.
	ErrClosed = errors.New("lane: closed")
	// ErrNotRun reports an operation whose batch used up its time before a
	// transaction with this operation could succeed. Nothing was written.
	ErrNotRun = errors.New("lane: no time left to run it")
)

// A Config bounds a Lane. Zero values are the defaults.
type Config struct {
	OpsMax     int           // operations in one transaction; 512
	BytesMax   int           // their bytes; 1 MiB. A larger operation runs alone
	QueueOps   int           // operations waiting; 2,048
	QueueBytes int           // their bytes; 8 MiB
	OutcomeMax time.Duration // how long a Ticket waits after its transaction began; 7 s
	Gate       *Gate         // shared by the lanes of one kind of one server; nil: no bound
	Observe    func(Batch)   // called after each batch by Run; nil: not called
}

func (c Config) withDefaults() Config {
	set := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	set(&c.OpsMax, 512)
	set(&c.BytesMax, 1<<20)
	set(&c.QueueOps, 2048)
	set(&c.QueueBytes, 8<<20)
	if c.OutcomeMax <= 0 {
		// Above what Commit takes at most, so that its answer is the one given.
		c.OutcomeMax = 7 * time.Second
	}
	return c
}

// A Batch is what is observed of one batch.
type Batch struct {
	Ops, Bytes int
	Waited     time.Duration // of its oldest operation, until it began
	Took       time.Duration // from then until its outcome
}

// A Lane runs operations of type O in batches, one batch at a time, in the order
// of their arrival. R is the result of one operation. It is safe for concurrent
// use.
type Lane[O, R any] struct {
	config Config
	commit func(ctx context.Context, ops []O) []R

	mu      sync.Mutex
	changed *sync.Cond // the queue got something, or the lane was closed
	queue   []*waiter[O, R]
	bytes   int // of the queue
	running bool
	closed  bool
}

// A waiter is an operation in the lane. It is in the queue until it is withdrawn
// or its batch begins, and from then on it will be answered.
type waiter[O, R any] struct {
	op     O
	bytes  int
	since  time.Time
	answer chan answer[R] // has room for the one answer
}

type answer[R any] struct {
	result R
	err    error
}

// give answers w, unless it is answered already.
func (w *waiter[O, R]) give(r R, err error) {
	select {
	case w.answer <- answer[R]{r, err}:
	default:
	}
}

// New returns a Lane whose batches are written by commit. commit returns one
// result for each operation, in order; it ends within a bounded time of its own,
// since its ctx is not cancelled.
func New[O, R any](c Config, commit func(ctx context.Context, ops []O) []R) *Lane[O, R] {
	l := &Lane[O, R]{config: c.withDefaults(), commit: commit}
	l.changed = sync.NewCond(&l.mu)
	return l
}

// Enter puts op, which takes so many bytes, into the lane. With ErrFull and ErrClosed
// nothing was written; else op will be, unless its Ticket is given up in time.
func (l *Lane[O, R]) Enter(op O, bytes int) (Ticket[O, R], error) {
	w := &waiter[O, R]{op: op, bytes: bytes, since: time.Now(), answer: make(chan answer[R], 1)}
	return Ticket[O, R]{l, w}, l.add(w)
}

// A Ticket is an operation in a lane. Wait is called once.
type Ticket[O, R any] struct {
	lane *Lane[O, R]
	w    *waiter[O, R]
}

// Wait waits for the operation's result.
//
// Nothing was written when the error is ErrWait: begin ended before the batch began, and
// the operation was withdrawn. Once the batch has begun the end of begin no longer
// matters: Wait waits for the outcome until end ends, at most Config.OutcomeMax, and then
// returns ErrUnknown. Other errors are for commit to put into its results.
func (t Ticket[O, R]) Wait(begin, end context.Context) (R, error) {
	var none R
	select {
	case a := <-t.w.answer:
		return a.result, a.err
	case <-begin.Done():
		if t.lane.withdraw(t.w) {
			return none, ErrWait
		}
	}
	select {
	case a := <-t.w.answer:
		return a.result, a.err
	case <-end.Done():
		return none, ErrUnknown
	}
}

func (l *Lane[O, R]) add(w *waiter[O, R]) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return ErrClosed
	case len(l.queue) >= l.config.QueueOps,
		len(l.queue) > 0 && l.bytes+w.bytes > l.config.QueueBytes:
		return ErrFull
	}
	l.queue = append(l.queue, w)
	l.bytes += w.bytes
	l.changed.Signal()
	return nil
}

// withdraw takes w out of the queue and reports whether it was still there.
func (l *Lane[O, R]) withdraw(w *waiter[O, R]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.queue, w)
	if i < 0 {
		return false
	}
	l.queue = slices.Delete(l.queue, i, i+1)
	l.bytes -= w.bytes
	return true
}

// Depth returns how many operations wait for their batch to begin, and their bytes.
func (l *Lane[O, R]) Depth() (ops, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue), l.bytes
}

// Run writes batches until ctx ends. Then the lane takes nothing new, and Run
// returns when everything that it had taken is answered. It may be called once.
func (l *Lane[O, R]) Run(ctx context.Context) error {
	if !l.start() {
		return errors.New("lane: Run was called before")
	}
	stop := context.AfterFunc(ctx, l.close)
	defer stop()
	ctx = context.WithoutCancel(ctx)
	for l.wait() {
		// The batch is taken after the gate: what arrives meanwhile goes with it.
		leave := l.config.Gate.acquire(ctx)
		if batch := l.take(); len(batch) > 0 {
			l.run(ctx, batch)
		}
		leave()
	}
	return nil
}

func (l *Lane[O, R]) start() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.running
	l.running = true
	return !was
}

func (l *Lane[O, R]) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.changed.Signal()
}

// wait waits for something in the queue; false: there will be nothing any more.
func (l *Lane[O, R]) wait() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) == 0 && !l.closed {
		l.changed.Wait()
	}
	return len(l.queue) > 0
}

// take takes the next batch out of the queue; it is empty when everything was
// withdrawn.
func (l *Lane[O, R]) take() []*waiter[O, R] {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, bytes := 0, 0
	for n < len(l.queue) && n < l.config.OpsMax && (n == 0 || bytes+l.queue[n].bytes <= l.config.BytesMax) {
		bytes += l.queue[n].bytes
		n++
	}
	batch := slices.Clone(l.queue[:n])
	l.queue = slices.Delete(l.queue, 0, n)
	l.bytes -= bytes
	return batch
}

// guarded is commit, whose panic ends the process without telling what was in it.
func (l *Lane[O, R]) guarded(ctx context.Context, ops []O) []R {
	defer crash()
	return l.commit(ctx, ops)
}

// run writes a batch and answers every operation of it exactly once.
func (l *Lane[O, R]) run(ctx context.Context, batch []*waiter[O, R]) {
	began := time.Now()
	seen := Batch{Ops: len(batch), Waited: began.Sub(batch[0].since)}
	ops := make([]O, len(batch))
	for i, w := range batch {
		ops[i] = w.op
		seen.Bytes += w.bytes
	}
	late := time.AfterFunc(l.config.OutcomeMax, func() {
		for _, w := range batch {
			var none R
			w.give(none, ErrUnknown)
		}
	})
	results := l.guarded(ctx, ops)
	late.Stop()
	if len(results) != len(ops) {
		panic("lane: commit returned another number of results than it got operations")
	}
	for i, w := range batch {
		w.give(results[i], nil)
	}
	if l.config.Observe != nil {
		seen.Took = time.Since(began)
		l.config.Observe(seen)
	}
}
