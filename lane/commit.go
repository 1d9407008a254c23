package lane

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/octopay/octopay/internal/dberr"
)

// A Budget bounds the time of one Commit. Zero values are the defaults.
type Budget struct {
	Transaction time.Duration // for the batch, retries and halves included; 3 s
	Settle      time.Duration // more, from the first unknown outcome on; 3 s
}

func (b Budget) withDefaults() Budget {
	if b.Transaction <= 0 {
		b.Transaction = 3 * time.Second
	}
	if b.Settle <= 0 {
		b.Settle = 3 * time.Second
	}
	return b
}

const (
	retriesMax = 3 // of a transaction that didn't get its locks
	pauseMin   = 5 * time.Millisecond
	pauseMax   = 200 * time.Millisecond
)

// An Outcome is the fate of one operation: its result, or why there is none.
//
// Err is ErrUnknown, ErrNotRun, or the error of the last attempt, after which
// nothing of the operation was or will be written; dberr.Of tells its class.
type Outcome[R any] struct {
	Result R
	Err    error
}

// An Attempt runs ops in one transaction, once, and returns one result for each, in
// order. ctx carries the deadline. When it returns an error, either no part of the
// transaction was or will be written, or dberr.Of(err) is Unknown.
//
// To run the same operations again MUST be safe, also while an earlier attempt of
// unknown outcome still runs: whoever comes second changes nothing and returns what
// the first did. After an error an attempt uses another connection, or one whose
// rollback was confirmed.
type Attempt[O, R any] func(ctx context.Context, ops []O) ([]R, error)

// Commit runs ops by attempts until the fate of each is known, or its time is up.
//
//	lock not got      the batch again, at most 3 times, with jitter
//	unavailable       all of it is answered with that (not sent, read-only, epoch)
//	refused           halves, again and again, so that only the guilty operation is
//	                  answered with it (also a duplicate key, a packet too big, and
//	                  a table that is missing)
//	outcome unknown   the same batch again, until an attempt succeeds
//
// An attempt of unknown outcome may yet commit, however the later ones fail. So from
// then on every operation of it has its result from an attempt that succeeded, or
// ErrUnknown. Halving stays right: each operation that succeeds in a half has its
// final result, which the late commit can't change.
//
// The end of ctx doesn't interrupt.
func Commit[O, R any](ctx context.Context, b Budget, ops []O, attempt Attempt[O, R]) []Outcome[R] {
	b = b.withDefaults()
	c := committer[O, R]{ctx: context.WithoutCancel(ctx), settle: b.Settle, attempt: attempt}
	out := make([]Outcome[R], len(ops))
	c.commit(ops, out, state{until: time.Now().Add(b.Transaction)})
	return out
}

type committer[O, R any] struct {
	ctx     context.Context
	settle  time.Duration
	attempt Attempt[O, R]
}

// A state is what the attempts so far mean for the operations that they had in
// common.
type state struct {
	unknown bool      // one of them may yet commit
	until   time.Time // no attempt after that
	cause   error     // of the last one's failure; nil before the first
}

// commit fills out, which is as long as ops.
func (c *committer[O, R]) commit(ops []O, out []Outcome[R], s state) {
	if len(ops) == 0 {
		return
	}
	for tries := 0; ; tries++ {
		if s.cause != nil && !time.Now().Before(s.until) {
			fail(out, s, ErrNotRun)
			return
		}
		results, err := c.try(ops, s.until)
		class := dberr.Of(err)
		if class == dberr.None {
			for i, r := range results {
				out[i].Result = r
			}
			return
		}
		s.cause = err
		if class == dberr.Unknown && !s.unknown {
			s.unknown, s.until = true, time.Now().Add(c.settle)
			tries = 0
		}
		switch {
		case class == dberr.Refused, class == dberr.Duplicate, class == dberr.TooBig, class == dberr.Missing:
			if len(ops) == 1 {
				fail(out, s, err)
				return
			}
			half := len(ops) / 2
			c.commit(ops[:half], out[:half], s)
			c.commit(ops[half:], out[half:], s)
			return
		case s.unknown:
			// Only an attempt that succeeds can tell, whatever this one met.
		case class == dberr.Retryable && tries < retriesMax:
		default:
			fail(out, s, err)
			return
		}
		time.Sleep(min(pause(tries), time.Until(s.until)))
	}
}

func (c *committer[O, R]) try(ops []O, until time.Time) ([]R, error) {
	ctx, cancel := context.WithDeadline(c.ctx, until)
	defer cancel()
	results, err := c.attempt(ctx, ops)
	if err == nil && len(results) != len(ops) {
		panic("lane: an attempt returned another number of results than it got operations")
	}
	return results, err
}

// fail answers all of out with err, or with ErrUnknown when that is all that can be
// said.
func fail[R any](out []Outcome[R], s state, err error) {
	// Here the cause is text only: its class is not the class of these answers.
	switch {
	case s.unknown:
		err = fmt.Errorf("%w: %s", ErrUnknown, dberr.Clean(s.cause).Error())
	case errors.Is(err, ErrNotRun):
		err = fmt.Errorf("%w: %s", ErrNotRun, dberr.Clean(s.cause).Error())
	}
	for i := range out {
		out[i].Err = err
	}
}

// pause returns how long to wait after so many tries: doubling, and never equal in
// two processes that met each other's locks.
func pause(tries int) time.Duration {
	d := min(pauseMin<<min(tries, 10), pauseMax)
	return d/2 + rand.N(d)
}
