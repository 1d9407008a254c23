package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/ordersvc/memstore"
	"github.com/octopay/octopay/ordersvc/storetest"
	"github.com/octopay/octopay/schema"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(testing.TB) ordersvc.Store { return memstore.New(memstore.Config{}) })
}

func insert(s *memstore.Store, orders ...schema.Order) []ordersvc.Result {
	return s.Insert(context.Background(), storetest.Place(orders[0].UID).Database, orders)
}

func TestFullStore(t *testing.T) {
	s := memstore.New(memstore.Config{OrdersMax: 2})
	uid := storetest.Buyer(1, 1)
	a, b, c := storetest.Order(uid, "a"), storetest.Order(uid, "b"), storetest.Order(uid, "c")
	r := insert(s, a, b, c)
	if r[0].Err != nil || r[1].Err != nil {
		t.Fatalf("below the maximum: %v, %v", r[0].Err, r[1].Err)
	}
	if !errors.Is(r[2].Err, cluster.ErrUnavailable) {
		t.Errorf("above the maximum: %v, want ErrUnavailable", r[2].Err)
	}
	if r := insert(s, storetest.Order(uid, "a")); !r[0].Taken || r[0].Order.ID != a.ID {
		t.Errorf("a repeat in a full store: %+v", r[0])
	}
}

func TestAStoreWithoutRoomRefusesNewOrdersAlone(t *testing.T) {
	var full error
	s := memstore.New(memstore.Config{Room: func() error { return full }})
	uid := storetest.Buyer(1, 1)
	a := storetest.Order(uid, "a")
	if r := insert(s, a); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	full = errors.New("the mirror is behind")
	r := insert(s, storetest.Order(uid, "a"), storetest.Order(uid, "b"))
	if !r[0].Taken || r[0].Order.ID != a.ID {
		t.Errorf("a repeat: %+v", r[0])
	}
	if !errors.Is(r[1].Err, cluster.ErrUnavailable) || !errors.Is(r[1].Err, full) {
		t.Errorf("a new order: %v", r[1].Err)
	}
	full = nil
	if r := insert(s, storetest.Order(uid, "b")); r[0].Err != nil || r[0].Taken {
		t.Errorf("with room again: %+v", r[0])
	}
}

// Orders reach the hook in the order of their stamps, each once, as they are
// stored; what wasn't stored doesn't.
func TestOnCommit(t *testing.T) {
	var stamps []schema.Millis
	var got []schema.Order
	s := memstore.New(memstore.Config{OnCommit: func(stamp schema.Millis, orders []schema.Order, _ []schema.Entry) {
		stamps = append(stamps, stamp)
		got = append(got, orders...)
	}})
	var all sync.WaitGroup
	shared := storetest.Buyer(1, 2)
	for i := range 20 {
		all.Go(func() {
			insert(s, storetest.Order(storetest.Buyer(1, 1), fmt.Sprint(i)), storetest.Order(shared, "shared"))
		})
	}
	all.Wait()
	if len(got) != 21 {
		t.Errorf("%d orders were committed, want 20 and the shared one", len(got))
	}
	for i := 1; i < len(stamps); i++ {
		if stamps[i] < stamps[i-1] {
			t.Errorf("stamp %d lies before the one ahead of it", i)
		}
	}
	for _, o := range got {
		stored, err := s.Order(context.Background(), storetest.Place(o.UID), o.ID)
		if err != nil || stored != o {
			t.Errorf("committed %+v, stored %+v, %v", o, stored, err)
		}
	}
}

// Now is a promise: what is stamped later is not stamped earlier, even when the
// clock steps back.
func TestNow(t *testing.T) {
	clock := time.Now().Add(time.Hour)
	var last schema.Millis
	s := memstore.New(memstore.Config{
		Clock:    func() time.Time { return clock },
		OnCommit: func(stamp schema.Millis, _ []schema.Order, _ []schema.Entry) { last = stamp },
	})
	mark := s.Now()
	if mark != schema.MillisOf(clock) {
		t.Errorf("now is %v", mark.Time())
	}
	clock = clock.Add(-10 * time.Minute)
	r := insert(s, storetest.Order(storetest.Buyer(1, 1), "now"))
	if last < mark || r[0].Order.UpdatedAt < mark {
		t.Errorf("stamped %v after the mark %v", last.Time(), mark.Time())
	}
	clock = clock.Add(time.Hour)
	if s.Now() <= mark {
		t.Error("the clock stands still")
	}
}

func BenchmarkInsert(b *testing.B) {
	s := memstore.New(memstore.Config{OrdersMax: 1 << 30})
	uid := storetest.Buyer(1, 1)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%20 == 0 {
			uid = storetest.Buyer(1, 1)
		}
		if r := insert(s, storetest.Order(uid, fmt.Sprint(i))); r[0].Err != nil {
			b.Fatal(r[0].Err)
		}
	}
}
