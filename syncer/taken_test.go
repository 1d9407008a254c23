package syncer_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/lease"
	"github.com/octopay/octopay/syncer/source"
	"github.com/prometheus/client_golang/prometheus"
)

// The age of the newest mark is told by the process that collects. It grows when that
// process fails, for whatever reason; it is gone when another one has the lease; and it is
// that of the stream, and not of what this process published before, when the lease is back.
func TestTheAgeOfMarksIsToldByWhoeverCollects(t *testing.T) {
	t.Parallel()
	r := newRig(t, localstack.Test(t, localstack.NATS))
	parts, store, _ := r.inMemory()
	src := &faulty{Source: store.tap}
	parts.Sources["uid-a"] = src
	table := &sulky{Table: lease.NewMemory(nil)}
	keeper := func(holder string, table lease.Table) *lease.Keeper {
		return lease.NewKeeper(table, holder, lease.Config{Term: 3 * time.Second, Log: r.log})
	}
	parts.Leaser = keeper("one", table)
	service := r.of(parts)
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(service)
	r.run(service)
	age := func() (float64, bool) {
		t.Helper()
		v, ok := metric(t, reg, "octopay_mirror_published_lag_seconds")["uid-a"]
		return v, ok
	}
	above := func(least float64) func() bool {
		return func() bool {
			v, ok := age()
			if !ok {
				t.Fatal("nobody tells how old the newest mark is")
			}
			return v > least
		}
	}
	eventually.True(t, "marks are made", func() bool { _, ok := age(); return ok })
	src.unstamped.Store(true)
	eventually.True(t, "lives fail", func() bool { return src.failed.Load() > 2 })
	eventually.True(t, "the age grows", above(3))
	src.unstamped.Store(false)
	eventually.True(t, "it is young again", func() bool { v, _ := age(); return v < 3 })
	table.silent.Store(true)
	eventually.True(t, "it waits, though nobody has its lease", func() bool {
		return service.States()["collector/uid-a"] != "running" && table.asked.Load() > 10
	})
	eventually.True(t, "the age grows", above(3))

	// Another process takes the name, which the first one hears when it asks again.
	end, held, over := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		over <- keeper("two", table.Table).Hold(t.Context(), "collector/uid-a", nil, func(context.Context) error {
			close(held)
			<-end
			return nil
		})
	}()
	<-held
	table.silent.Store(false)
	eventually.True(t, "the other one tells", func() bool { _, ok := age(); return !ok })
	// Before it publishes anything.
	src.shut.Store(true)
	close(end)
	if err := <-over; err != nil {
		t.Error(err)
	}
	eventually.True(t, "it tells how old the mark in the stream is", func() bool { v, ok := age(); return ok && v > 3 })
}

// faulty is a source that fails.
type faulty struct {
	source.Source
	shut, unstamped atomic.Bool
	failed          atomic.Int64
}

var errFaulty = errors.New("the server is away")

func (f *faulty) fails(on *atomic.Bool) error {
	if !on.Load() {
		return nil
	}
	f.failed.Add(1)
	return errFaulty
}

func (f *faulty) Open(ctx context.Context, after source.Position) (source.Reader, error) {
	if err := f.fails(&f.shut); err != nil {
		return nil, err
	}
	return f.Source.Open(ctx, after)
}

func (f *faulty) Clock(ctx context.Context) (source.Clock, error) {
	c, err := f.Source.Clock(ctx)
	return faultyClock{c, f}, err
}

type faultyClock struct {
	source.Clock
	f *faulty
}

func (c faultyClock) Stamp(ctx context.Context) (source.Stamp, error) {
	if err := c.f.fails(&c.f.unstamped); err != nil {
		return source.Stamp{}, err
	}
	return c.Clock.Stamp(ctx)
}

// sulky is a table of leases that doesn't answer while it is silent.
type sulky struct {
	lease.Table
	silent atomic.Bool
	asked  atomic.Int64 // meanwhile
}

func (s *sulky) answers() error {
	if !s.silent.Load() {
		return nil
	}
	s.asked.Add(1)
	return errors.New("the table is away")
}

func (s *sulky) Acquire(ctx context.Context, name, holder string, term time.Duration) (lease.Lease, error) {
	if err := s.answers(); err != nil {
		return lease.Lease{}, err
	}
	return s.Table.Acquire(ctx, name, holder, term)
}

func (s *sulky) Renew(ctx context.Context, l lease.Lease, term time.Duration) (lease.Lease, error) {
	if err := s.answers(); err != nil {
		return lease.Lease{}, err
	}
	return s.Table.Renew(ctx, l, term)
}

func (s *sulky) Release(ctx context.Context, l lease.Lease) error {
	if err := s.answers(); err != nil {
		return err
	}
	return s.Table.Release(ctx, l)
}
