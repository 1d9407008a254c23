package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"
)

// Config says how a Keeper holds names. Zero values are the defaults.
type Config struct {
	// Term is how long a name stays taken after its holder is gone, 3 s. It is renewed
	// three times in a Term, and whoever waits asks three times in a Term: the next
	// holder begins at most 4/3 of it, and the time of an answer, after the last one
	// went away without a word.
	Term time.Duration
	Log  *slog.Logger // slog.Default()
}

// A Keeper holds names of a Table. It is safe for concurrent use.
type Keeper struct {
	table  Table
	holder string
	term   time.Duration
	log    *slog.Logger
}

// NewKeeper returns a keeper that holds names as holder, which must be this process's
// alone (see NewHolder).
func NewKeeper(table Table, holder string, c Config) *Keeper {
	if c.Term <= 0 {
		c.Term = 3 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return &Keeper{table: table, holder: holder, term: c.Term, log: c.Log}
}

// Hold waits until it has the name, calls f once, and gives the name back. The context
// of f ends with ctx, or at the moment at which the lease could have ended; the cause
// is then ErrLost. f should return soon after.
//
// While it waits, it calls taken, unless that is nil, as often as it hears that the name is
// taken. By whom it doesn't hear: it can be by this keeper, before, whose lease has yet to
// end. A table that doesn't answer says nothing of that kind.
//
// Hold returns what f returned; ErrLost if the lease was lost and f returned nil or
// that its context ended; or the error of ctx, if that ended before the name was had.
func (k *Keeper) Hold(ctx context.Context, name string, taken func(), f func(ctx context.Context) error) error {
	l, err := k.wait(ctx, name, taken)
	if err != nil {
		return err
	}
	k.log.Info("lease: holding", "name", name, "token", l.Token)

	held, lose := context.WithCancelCause(ctx)
	stop, renewing := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(renewing)
		k.renew(held, l, lose, stop)
	}()
	err = f(held)
	lost := errors.Is(context.Cause(held), ErrLost)
	close(stop)
	lose(nil) // ends a renewal under way
	<-renewing

	if lost {
		k.log.Warn("lease: lost", "name", name, "token", l.Token)
		if err == nil || errors.Is(err, context.Canceled) {
			return fmt.Errorf("%w: %s", ErrLost, name)
		}
		return err
	}
	// So that the next holder needn't wait for the end. If it doesn't work, it waits.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.term/3)
	defer cancel()
	if rerr := k.table.Release(last, l); rerr != nil {
		k.log.Warn("lease: not given back; it ends by itself", "name", name, "error", rerr)
	}
	return err
}

// wait acquires the name, or returns the error of ctx.
func (k *Keeper) wait(ctx context.Context, name string, taken func()) (Lease, error) {
	var said string
	for {
		if err := ctx.Err(); err != nil {
			return Lease{}, err
		}
		try, cancel := context.WithTimeout(ctx, k.term/3)
		l, err := k.table.Acquire(try, name, k.holder, k.term)
		cancel()
		state := "somebody else holds it"
		switch {
		case err == nil && time.Now().Before(l.End()):
			return l, nil
		case err == nil:
			state = "the table answers too slowly"
		case !errors.Is(err, ErrTaken):
			state = "the table does not answer"
		case taken != nil:
			taken()
		}
		if state != said && ctx.Err() == nil {
			k.log.Info("lease: waiting", "name", name, "because", state, "error", err)
			said = state
		}
		pause(ctx, k.term/3)
	}
}

// renew keeps l until stop is closed or ctx ends. It calls lose with ErrLost when the
// lease is lost, and at the moment at which it could have ended, also while a renewal
// waits for its answer.
func (k *Keeper) renew(ctx context.Context, l Lease, lose context.CancelCauseFunc, stop <-chan struct{}) {
	// An end that a stepped-back clock put far off is not relied on.
	end := func(l Lease) time.Duration { return min(time.Until(l.End()), time.Until(l.SentAt.Add(k.term))) }
	ended := time.AfterFunc(end(l), func() { lose(ErrLost) })
	defer ended.Stop()
	tick := time.NewTicker(k.term / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-stop:
			return
		case <-ctx.Done():
			return
		}
		try, cancel := context.WithTimeout(ctx, k.term/3)
		renewed, err := k.table.Renew(try, l, k.term)
		cancel()
		switch {
		case err == nil:
			l = renewed
			if !ended.Stop() {
				return // it ended before the answer was there
			}
			ended.Reset(end(l))
		case errors.Is(err, ErrLost):
			lose(ErrLost)
			return
		case ctx.Err() == nil:
			k.log.Warn("lease: not renewed", "name", l.Name, "token", l.Token, "error", err)
		}
	}
}

// pause waits for about d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d - rand.N(d/4+1))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
