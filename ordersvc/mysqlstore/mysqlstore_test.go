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

// BenchmarkChangeOfALongLife is one more payment that can't be applied, on an order that has
// so many of them: each change reads the whole journal under the order's lock.
func BenchmarkChangeOfALongLife(b *testing.B) {
	stack := localstack.Test(b, localstack.UID)
	for _, n := range []int{0, 100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("entries=%d", n), func(b *testing.B) {
			w := newWorld(b, stack)
			o := w.born(b, storetest.Order(storetest.Buyer(1, 3), fmt.Sprint("long", n)))[0]
			if n > 0 {
				p := storetest.Place(o.UID)
				w.exec(b, fmt.Sprintf("INSERT INTO %s (order_id, seq, uid, bid, op, kind, amount, currency, from_status, to_status, ref, reason, actor, key_id, request_id, recorded_at)"+
					" SELECT %d, seq, %d, %d, CONCAT('unapplied:wechat:42000000', seq, ':1CNY'), 'unapplied_payment', 1, 'CNY', 'created', 'created', CONCAT('wechat:42000000', seq), 'amount', 'channel', 'abcdefghij', '0123456789abcdef', UTC_TIMESTAMP(3)"+
					" FROM `%s`.seq_2_to_%d", journalTable(w.schema(p.Database), p.Table), o.ID, o.UID, o.BID, w.schema(p.Database), n+1),
					fmt.Sprintf("UPDATE %s SET ver = %d, unapplied_payments = %d WHERE id = %d", w.table(o.UID), n+1, n, o.ID))
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i++
				r := w.change(changeOf(o, ordersvc.Pay{Channel: "wechat", TradeNo: fmt.Sprint("n", i), Amount: o.Amount + 1, Currency: o.Currency}))
				if r[0].Entry.Seq == 0 {
					b.Fatal(r[0].Err)
				}
			}
		})
	}
}
