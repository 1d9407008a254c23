package ordersvc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/lane"
	"github.com/octopay/octopay/lease"
	"github.com/octopay/octopay/shardmap"
	"golang.org/x/sync/errgroup"
)

// An ExpiryConfig says how orders expire. Zero values are the defaults.
type ExpiryConfig struct {
	Every time.Duration // between two looks at a database where nothing is due; 1 s
	Most  int           // orders closed at once; 200
	Log   *slog.Logger  // slog.Default()
	// Observe is called after each look that found something: how many were closed, and
	// how long the one that waited longest had been due, by this process's clock. nil: it
	// isn't called.
	Observe func(closed int, overdue time.Duration)
}

// Expire closes the orders of all databases that weren't paid in time, until ctx ends. Of
// the processes that do, keeper lets one look at a database at a time; two at once do
// no harm, since what is due is decided anew under each order's lock, by the store's
// clock (see Expire as an Operation).
func (s *Service) Expire(ctx context.Context, keeper *lease.Keeper, c ExpiryConfig) error {
	if c.Every <= 0 {
		c.Every = time.Second
	}
	if c.Most <= 0 {
		c.Most = 200
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	var g errgroup.Group
	for _, db := range s.shards().Databases(shardmap.UID) {
		g.Go(func() error {
			for ctx.Err() == nil {
				// A lease that is lost is waited for again.
				_ = keeper.Hold(ctx, fmt.Sprintf("expiry.%02d", db.Number), nil, func(ctx context.Context) error {
					s.expireOne(ctx, db.Number, c)
					return nil
				})
			}
			return nil
		})
	}
	return g.Wait()
}

// expireOne looks at one database until ctx ends.
func (s *Service) expireOne(ctx context.Context, database int, c ExpiryConfig) {
	said := ""
	for ctx.Err() == nil {
		due, err := s.store.Due(ctx, database, c.Most)
		if err == nil && len(due) > 0 {
			err = s.expire(ctx, database, due, c)
		}
		if ctx.Err() != nil {
			return
		}
		what := ""
		if err != nil {
			what = err.Error()
			if what != said {
				c.Log.Warn("expiry: not now", "database", database, "error", err)
			}
		}
		said = what
		if err != nil || len(due) < c.Most {
			select {
			case <-time.After(c.Every):
			case <-ctx.Done():
			}
		}
	}
}

// A Due is an order that may be closed for its time.
type Due struct {
	ID        idgen.ID
	ExpiresAt time.Time
}

// expire closes these orders, those that are still to be closed. The error is the first
// that isn't an order's own.
func (s *Service) expire(ctx context.Context, database int, due []Due, c ExpiryConfig) (err error) {
	begin, cancel := context.WithTimeout(ctx, beginMax)
	defer cancel()
	type entered struct {
		ticket lane.Ticket[Change, Changed]
		err    error
	}
	all := make([]entered, len(due))
	for i, d := range due {
		change := Change{Order: d.ID, By: By{Actor: "expiry", RequestID: "expiry"}, Do: Expire{}}
		all[i].ticket, all[i].err = s.changes[database-1].Enter(change, changeBytes)
	}
	closed, overdue := 0, time.Duration(0)
	for i, e := range all {
		if e.err == nil {
			var r Changed
			if r, e.err = e.ticket.Wait(begin, context.WithoutCancel(ctx)); e.err == nil {
				e.err = r.Err
			}
		}
		switch {
		case e.err == nil:
			closed++
			overdue = max(overdue, time.Since(due[i].ExpiresAt))
		case errors.Is(e.err, ErrNotExpired): // paid, or closed, meanwhile
		case err == nil:
			err = s.why(database, e.err)
		}
	}
	if closed > 0 && c.Observe != nil {
		c.Observe(closed, overdue)
	}
	return err
}
