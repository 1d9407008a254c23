package ordersvc_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/ordersvc/memstore"
	"github.com/octopay/octopay/schema"
)

// frozen is a store of which one database answers after 6 s that the outcome is unknown.
type frozen struct {
	*memstore.Store
	database int
	inserts  atomic.Int64 // into that one
}

func (f *frozen) Insert(ctx context.Context, database int, orders []schema.Order) []ordersvc.Result {
	if database != f.database {
		return f.Store.Insert(ctx, database, orders)
	}
	f.inserts.Add(1)
	time.Sleep(6 * time.Second)
	results := make([]ordersvc.Result, len(orders))
	for i := range results {
		results[i].Err = ordersvc.ErrUnknown
	}
	return results
}

// Fault 28. Who waits in the lane of a database that turns out to be away is told so,
// who comes later doesn't wait, and all others notice nothing, also on its server.
func TestNobodyQueuesForADatabaseThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := shards(t)
		uid := func(database int) int64 { return int64(10*(database-1)) + 7 + 640 }
		store := &frozen{Store: memstore.New(memstore.Config{}), database: 3}
		var away atomic.Bool
		ids := &scripted{}
		for n := range int64(1000) {
			ids.snowflakes = append(ids.snowflakes, snowflake(1, n))
		}
		s := ordersvc.NewService(fixed(m), store, ids, ordersvc.Config{Available: func(database int) error {
			if database == store.database && away.Load() {
				return fmt.Errorf("%w: a test says so", cluster.ErrUnavailable)
			}
			return nil
		}})
		ctx, stop := context.WithCancel(context.Background())
		var run, creates sync.WaitGroup
		run.Go(func() { _ = s.Run(ctx) })
		create := func(database int, number string, want error, within time.Duration) {
			creates.Go(func() {
				start := time.Now()
				n := newOrder(number)
				n.UID = uid(database)
				if m.Locate(n.UID).Database != database {
					t.Errorf("uid %d isn't of database %d", n.UID, database)
				}
				_, err := s.Create(context.Background(), n)
				if !errors.Is(err, want) || (want == nil) != (err == nil) {
					t.Errorf("%s: %v, want %v", number, err, want)
				}
				if took := time.Since(start); took > within {
					t.Errorf("%s: answered after %s, want %s", number, took, within)
				}
			})
			synctest.Wait()
		}
		create(3, "in flight", ordersvc.ErrUnknown, 6*time.Second)
		create(3, "in the queue", cluster.ErrUnavailable, 2500*time.Millisecond)
		time.Sleep(time.Second)
		away.Store(true)
		create(3, "late", cluster.ErrUnavailable, 0)
		for d := 1; d <= m.Size(); d++ {
			if d != 3 {
				create(d, "beside it", nil, 0)
			}
		}
		creates.Wait()
		if n := store.inserts.Load(); n != 1 {
			t.Errorf("%d transactions of the database that is away, want 1", n)
		}
		stop()
		run.Wait()
	})
}
