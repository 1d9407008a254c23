package mysqlstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/lane"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/ordersvc/storetest"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/slot"
)

func TestMain(m *testing.M) { eventually.Main(m) }

// open returns a store over the stack, as one process has it, but with more time: how busy
// the machine is must not decide what becomes of an order. Tests of what is not settled in
// time set their own.
func open(t testing.TB, stack *localstack.Stack) *Store {
	s := New(stack.Cluster(t))
	s.budget = lane.Budget{Transaction: time.Minute, Settle: time.Minute}
	s.turn = time.Minute
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return s
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t testing.TB) ordersvc.Store { return open(t, localstack.Test(t, localstack.UID)) })
}

// BenchmarkInsert is one packet over one connection, synced to disk: what one lane
// does alone.
func BenchmarkInsert(b *testing.B) {
	s := open(b, localstack.Test(b, localstack.UID))
	for _, n := range []int{1, 32, 512} {
		b.Run(fmt.Sprintf("orders=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				batch := make([]schema.Order, n)
				for i := range batch {
					batch[i] = storetest.Order(storetest.Buyer(1, i%slot.Tables), "bench")
				}
				for _, r := range s.Insert(background, 1, batch) {
					if r.Err != nil {
						b.Fatal(r.Err)
					}
				}
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "orders/s")
		})
	}
}
