package mysqlstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/faultproxy"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/lane"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/ordersvc/storetest"
	"github.com/octopay/octopay/shardmap"
	"gopkg.in/yaml.v3"
)

// lookAfter runs the store's cluster until the test ends.
func (w *world) lookAfter(t *testing.T) {
	ctx, stop := context.WithCancel(background)
	done := make(chan error, 1)
	go func() { done <- w.cluster.Run(ctx, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A server gets another address while orders are written: those of the old epoch are
// refused, those of the new one go there, each is stored once, and nothing is asked of
// the old address any more.
func TestANewerMapWhileOrdersAreWritten(t *testing.T) {
	stack := localstack.Test(t, localstack.UID, localstack.Meta)
	w := newWorld(t, stack)
	next := faultproxy.New(t, stack.Server("uid-a").Address())
	var spec shardmap.Spec
	if err := yaml.Unmarshal(stack.Via(t, "uid-a", next.Addr()).Map.Text(), &spec); err != nil {
		t.Fatal(err)
	}
	spec.Epoch = 2
	second, err := shardmap.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	w.lookAfter(t)
	first := storetest.Order(storetest.Buyer(7, 1), "first")
	w.made(t, first, w.insert(first)[0])
	var old int
	if err := w.creates[6].conn.QueryRowContext(background, "SELECT CONNECTION_ID()").Scan(&old); err != nil {
		t.Fatal(err)
	}
	meta := second.Meta().Schema
	refused := 0
	for i, p := range second.Databases(shardmap.UID) {
		if i == 7 { // in the midst of it
			o := storetest.Order(storetest.Buyer(7, 1), "between")
			if r := w.insert(o)[0]; !errors.Is(r.Err, cluster.ErrUnavailable) {
				t.Errorf("under the raised epoch: %+v, want unavailable", r)
			}
			w.absent(t, o)
			refused++
			if _, err := w.admin.Exec("INSERT INTO `"+meta+"`.shard_map (epoch, hash, text) VALUES (?, ?, ?)", 2, second.Hash(), string(second.Text())); err != nil {
				t.Fatal(err)
			}
		}
		w.exec(t, "UPDATE `"+p.Schema+"`.owner SET epoch = 2")
	}
	for n := 0; ; n++ {
		o := storetest.Order(storetest.Buyer(7, 1), fmt.Sprint("moved-", n))
		r := w.insert(o)[0]
		if r.Err == nil {
			if now := w.cluster.Database(shardmap.UID, 7).Epoch(); now != 2 {
				t.Errorf("an order was stored under epoch %d", now)
			}
			w.made(t, o, r)
			break
		}
		if !errors.Is(r.Err, cluster.ErrUnavailable) {
			t.Fatalf("got %+v, want unavailable", r)
		}
		w.absent(t, o)
		refused++
	}
	t.Logf("%d orders were refused", refused)
	eventually.True(t, "the second map is in use", func() bool { return w.cluster.Map().Hash() == second.Hash() })
	if next.Accepted() == 0 {
		t.Error("no connections to the new address")
	}
	eventually.True(t, "the old connection is gone", func() bool {
		return w.number(t, "SELECT COUNT(*) FROM information_schema.processlist WHERE id = ?", old) == 0
	})
	before := w.packets() // of the old address
	for d := 1; d <= 8; d++ {
		o := storetest.Order(storetest.Buyer(d, 2), "after")
		w.made(t, o, w.insert(o)[0])
	}
	if n := len(before.all()); n != 0 {
		t.Errorf("%d packets to the old address", n)
	}
}

// numbers makes ids of one worker.
type numbers struct{ last atomic.Int64 }

func (n *numbers) Next(uid int64) (idgen.ID, error) {
	return idgen.Make(uid, idgen.FirstAt(time.Now())|n.last.Add(1)), nil
}
func (*numbers) GiveBack(int) {}

// Fault 28. Two databases of a healthy server are locked up, more than it takes
// transactions at once. Whoever wants the others waits for none of that.
func TestALockedUpDatabaseDoesNotStarveItsNeighbours(t *testing.T) {
	stack := localstack.Test(t, localstack.UID, localstack.Meta)
	w := newWorld(t, stack)
	w.lookAfter(t)
	c := w.cluster
	service := ordersvc.NewService(c.Map, w.Store, &numbers{}, ordersvc.Config{
		Available: func(n int) error { return c.Database(shardmap.UID, n).Writable() },
	})
	ctx, stop := context.WithCancel(background)
	var run, creates sync.WaitGroup
	run.Go(func() { _ = service.Run(ctx) })
	defer run.Wait()
	defer stop()

	h := w.holder(t)
	locked := []int{1, 2}
	for _, d := range locked {
		h.exec(t, "SELECT * FROM `"+w.schema(d)+"`.owner FOR UPDATE")
	}
	create := func(database int, number string) error {
		_, err := service.Create(background, ordersvc.New{
			Key: ordersvc.Key{UID: storetest.Buyer(database, 3), BID: 1, OutTradeNo: number}, Amount: 1, Currency: "CNY",
			Subject: "x", Metadata: "{}", ExpiresIn: time.Minute, Actor: "app",
		})
		return err
	}
	over := make(chan struct{})
	var away atomic.Int64
	for _, d := range locked {
		for i := range 4 { // there is always one that waits
			creates.Go(func() {
				tick := time.NewTicker(20 * time.Millisecond)
				defer tick.Stop()
				for n := 0; ; n++ {
					select {
					case <-over:
						return
					case <-tick.C:
					}
					start := time.Now()
					err := create(d, fmt.Sprintf("locked-%d-%d", i, n))
					switch {
					case errors.Is(err, ordersvc.ErrUnknown), errors.Is(err, cluster.ErrUnavailable), errors.Is(err, lane.ErrWait):
						away.Add(1)
					default:
						t.Errorf("an order of a locked database got %v", err)
					}
					if took := time.Since(start); took > eventually.Patience {
						t.Errorf("it was answered after %s", took)
					}
				}
			})
		}
	}
	eventually.True(t, "transactions wait in both", func() bool {
		return w.number(t, "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE ? AND state = 'Statistics'", "SELECT IF(COUNT(IF(epoch%") >= 2
	})
	// Until the locked ones have come back for a place.
	orders := 0
	for limit := time.Now().Add(4 * time.Minute); away.Load() < 8 && time.Now().Before(limit); {
		for d := 3; d <= 8; d++ {
			if err := create(d, fmt.Sprint("beside-", orders)); err != nil {
				t.Errorf("an order of database %d got %v", d, err)
			}
			orders++
		}
	}
	close(over)
	creates.Wait()
	if away.Load() < 8 || orders == 0 {
		t.Errorf("%d orders of locked databases were answered, %d beside them", away.Load(), orders)
	}
	t.Logf("%d orders beside %d answers of locked databases", orders, away.Load())
}
