package mysqlstore

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/faultproxy"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/ordersvc/storetest"
	"github.com/octopay/octopay/schema"
)

// What a Change sends: the packet that locks, and the one that writes.
var (
	isLocks  = faultproxy.Query(" FOR UPDATE;")
	isWrites = faultproxy.Query("SET @n=0;")
)

func TestFaultsOfChanges(t *testing.T) {
	stack := localstack.Test(t, localstack.UID)
	for _, c := range []struct {
		name string
		test func(*testing.T, *world)
	}{
		{"fault 1 and 3: the connection is cut around the writes", cutWrites},
		{"the connection is cut around the locks", cutLocks},
		{"an order that was changed between the packets is not written over", changedBetween},
		{"the journal's insert fails: the order isn't changed", failingEntry},
		{"fault 2: three processes refund at once", threeProcessesRefund},
		{"an order that somebody locks doesn't hold up new orders", lockedOrder},
		{"what is due is found by index", dueByIndex},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, newWorld(t, stack)) })
	}
}

func (w *world) change(changes ...ordersvc.Change) []ordersvc.Changed {
	return w.Change(background, storetest.Place(uidOf(changes[0])).Database, changes)
}

func uidOf(c ordersvc.Change) int64 { return int64(640 + 10*(c.Order.Info()-1) + c.Order.Table()) }

func changeOf(o schema.Order, do ordersvc.Operation) ordersvc.Change {
	return ordersvc.Change{Order: o.OrderID(), Do: do, By: ordersvc.By{Actor: "app", KeyID: "k", RequestID: "r"}}
}

func paying(o schema.Order) ordersvc.Change {
	return changeOf(o, ordersvc.Pay{Channel: "wechat", TradeNo: "4200", Amount: o.Amount, Currency: o.Currency})
}

// born makes new orders of one database and returns them as they are stored.
func (w *world) born(t testing.TB, all ...schema.Order) []schema.Order {
	t.Helper()
	for i, r := range w.insert(all...) {
		w.made(t, all[i], r)
		all[i] = r.Order
	}
	return all
}

// entries returns the stored journal of an order, which must make its row.
func (w *world) entries(t testing.TB, o schema.Order) []schema.Entry {
	t.Helper()
	now, err := w.Order(background, storetest.Place(o.UID), o.ID)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := w.Journal(background, storetest.Place(o.UID), o.ID)
	if err != nil {
		t.Fatal(err)
	}
	folded, err := ordersvc.Fold(ordersvc.Born(now), entries)
	if len(entries) == 0 {
		folded.UpdatedAt = now.UpdatedAt
	}
	if err != nil || folded != now {
		t.Errorf("the journal makes %+v (%v), the row is %+v", folded, err, now)
	}
	return entries
}

// Wherever the connection is cut around the packet that writes: each change is there
// once, and is answered as done now, not as a repeat of somebody else's.
func cutWrites(t *testing.T, w *world) {
	for point := faultproxy.BeforePacket; point <= faultproxy.AfterReply; point++ {
		t.Run(point.String(), func(t *testing.T) {
			w := newWorld(t, w.stack)
			all := w.born(t, orders(3, 1, "cut-writes-"+point.String())...)
			var pays, returns []ordersvc.Change
			for _, o := range all {
				pays = append(pays, paying(o))
				returns = append(returns, changeOf(o, ordersvc.Return{No: "r", Amount: 1}))
			}
			cut := w.proxy.Arm(point, isWrites)
			results := w.change(append(pays, returns...)...)
			<-cut.Done()
			for i, r := range results {
				if r.Err != nil || r.Replayed {
					t.Errorf("change %d: replayed %v, %v", i, r.Replayed, r.Err)
				}
				if o := r.Life.Order; o.Ver != r.Entry.Seq || o.Status != r.Entry.To || len(r.Life.Journal) != int(o.Ver)-1 {
					t.Errorf("change %d left version %d, answered is %d, %s, with %d entries", i, r.Entry.Seq, o.Ver, o.Status, len(r.Life.Journal))
				}
			}
			for i, o := range all {
				entries := w.entries(t, o)
				if len(entries) != 2 || entries[0] != results[i].Entry || entries[1] != results[len(all)+i].Entry {
					t.Errorf("order %d: %+v", i, entries)
				}
			}
			for i, r := range w.change(pays...) {
				if r.Err != nil || !r.Replayed || r.Entry != results[i].Entry {
					t.Errorf("again, change %d: replayed %v, %v", i, r.Replayed, r.Err)
				}
			}
		})
	}
}

// The packet that locks writes nothing, so whatever becomes of it, the outcome is known.
func cutLocks(t *testing.T, w *world) {
	for point := faultproxy.BeforePacket; point <= faultproxy.AfterReply; point++ {
		t.Run(point.String(), func(t *testing.T) {
			w := newWorld(t, w.stack)
			o := w.born(t, storetest.Order(storetest.Buyer(4, 1), "cut-locks-"+point.String()))[0]
			cut := w.proxy.Arm(point, isLocks)
			r := w.change(paying(o))[0]
			<-cut.Done()
			if r.Err != nil || r.Replayed || r.Life.Order.Status != schema.Paid {
				t.Errorf("%+v", r)
			}
			if n := len(w.entries(t, o)); n != 1 {
				t.Errorf("%d entries", n)
			}
		})
	}
	// No connection comes back: unavailable, and nothing was written.
	o := w.born(t, storetest.Order(storetest.Buyer(4, 2), "cut-locks"))[0]
	w.change(changeOf(o, ordersvc.Expire{})) // there is a connection now
	cut := w.proxy.Arm(faultproxy.AfterReply, isLocks)
	w.proxy.Refuse(true)
	r := w.change(paying(o))[0]
	<-cut.Done()
	w.proxy.Refuse(false)
	if !errors.Is(r.Err, cluster.ErrUnavailable) || errors.Is(r.Err, ordersvc.ErrUnknown) {
		t.Errorf("%v", r.Err)
	}
	if n := len(w.entries(t, o)); n != 0 {
		t.Errorf("%d entries", n)
	}
}

// Somebody who doesn't lock writes between the two packets. The write refuses itself as a
// whole; the batch's other orders are changed all the same.
func changedBetween(t *testing.T, w *world) {
	all := w.born(t, orders(5, 1, "between")...)
	var pays []ordersvc.Change
	for _, o := range all {
		pays = append(pays, paying(o))
	}
	// It can't be done with another session, which would wait for the lock: the store's
	// own connection does it, as a part of the packet that locks.
	guilty := all[7]
	sent := 0
	w.proxy.Arm(faultproxy.BeforePacket, func(packet []byte) bool {
		if isWrites(packet) {
			sent++
		}
		return false
	})
	name := "`" + w.schema(5) + "`.between"
	w.exec(t, fmt.Sprintf("CREATE TRIGGER %s BEFORE UPDATE ON %s FOR EACH ROW IF OLD.id = %d AND NEW.ver = 2 THEN SET NEW.ver = OLD.ver, NEW.status = OLD.status, NEW.paid_amount = OLD.paid_amount, NEW.channel = OLD.channel, NEW.channel_trade_no = OLD.channel_trade_no, NEW.updated_at = OLD.updated_at, NEW.paid_at = OLD.paid_at; END IF",
		name, w.table(guilty.UID), guilty.ID))
	t.Cleanup(func() { w.exec(t, "DROP TRIGGER "+name) })
	for i, r := range w.change(pays...) {
		if (r.Err != nil) != (i == 7) {
			t.Errorf("order %d: %v", i, r.Err)
		}
		if i == 7 && (errors.Is(r.Err, ordersvc.ErrUnknown) || errors.Is(r.Err, cluster.ErrUnavailable)) {
			t.Errorf("order %d: %v", i, r.Err)
		}
	}
	for i, o := range all {
		want := 1
		if i == 7 {
			want = 0
		}
		if n := len(w.entries(t, o)); n != want {
			t.Errorf("order %d has %d entries, want %d", i, n, want)
		}
	}
	if sent < 2 {
		t.Errorf("%d packets: the fault did not happen", sent)
	}
}

func failingEntry(t *testing.T, w *world) {
	all := w.born(t, orders(6, 1, "failing-entry")...)
	guilty := all[3]
	name := "`" + w.schema(6) + "`.failing_entry"
	w.exec(t, fmt.Sprintf("CREATE TRIGGER %s BEFORE INSERT ON %s FOR EACH ROW IF NEW.order_id = %d THEN SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1644; END IF",
		name, journalTable(w.schema(6), storetest.Place(guilty.UID).Table), guilty.ID))
	t.Cleanup(func() { w.exec(t, "DROP TRIGGER "+name) })
	var pays []ordersvc.Change
	for _, o := range all {
		pays = append(pays, paying(o))
	}
	for i, r := range w.change(pays...) {
		if (r.Err != nil) != (i == 3) {
			t.Errorf("order %d: %v", i, r.Err)
		}
	}
	for i, o := range all {
		want := 1
		if i == 3 {
			want = 0
		}
		if n := len(w.entries(t, o)); n != want {
			t.Errorf("order %d has %d entries, want %d", i, n, want)
		}
	}
}

// Fault 2, over processes that share nothing but the database. Who doesn't get a lock in
// time asks again.
func threeProcessesRefund(t *testing.T, w *world) {
	stores := []*Store{w.Store, open(t, w.stack), open(t, w.stack)}
	for round := range 5 {
		all := w.born(t, orders(7, 1, fmt.Sprint("refunds-", round))...)
		for _, o := range all {
			w.change(paying(o))
		}
		accepted := make([][]int, len(stores))
		var calls sync.WaitGroup
		for p, s := range stores {
			accepted[p] = make([]int, len(all))
			calls.Go(func() {
				for n := range 4 {
					for left := order(len(all), n%2 == 1); len(left) > 0; {
						var changes []ordersvc.Change
						for _, i := range left {
							changes = append(changes, changeOf(all[i], ordersvc.Return{No: fmt.Sprint("r", p, n), Amount: all[i].Amount * 6 / 10}))
						}
						var again []int
						for at, r := range s.Change(background, 7, changes) {
							switch i := left[at]; {
							case r.Err == nil:
								accepted[p][i]++
							case errors.Is(r.Err, cluster.ErrUnavailable):
								again = append(again, i)
							case !errors.Is(r.Err, ordersvc.ErrExceedsPaid):
								t.Errorf("order %d: %v", i, r.Err)
							}
						}
						left = again
					}
				}
			})
		}
		calls.Wait()
		for i, o := range all {
			sum := accepted[0][i] + accepted[1][i] + accepted[2][i]
			if n := len(w.entries(t, o)); sum != 1 || n != 2 {
				t.Errorf("order %d: %d refunds of 60 %% accepted, %d entries", i, sum, n)
			}
		}
	}
}

// order returns the numbers below n, or from n down.
func order(n int, back bool) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	if back {
		slices.Reverse(all)
	}
	return all
}

// Somebody holds the lock of one order. Its change is refused in time; orders are made
// meanwhile.
func lockedOrder(t *testing.T, w *world) {
	o := w.born(t, storetest.Order(storetest.Buyer(8, 1), "locked"))[0]
	tx, err := w.admin.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.Exec("SELECT 1 FROM "+w.table(o.UID)+" WHERE id = ? FOR UPDATE", o.ID); err != nil {
		t.Fatal(err)
	}
	changed := make(chan ordersvc.Changed)
	go func() { changed <- w.change(paying(o))[0] }()
	made := 0
	for n := 0; ; n++ {
		fresh := storetest.Order(storetest.Buyer(8, 1), fmt.Sprint("meanwhile-", n))
		w.made(t, fresh, w.insert(fresh)[0])
		select {
		case r := <-changed:
			if !errors.Is(r.Err, cluster.ErrUnavailable) {
				t.Errorf("the locked order: %v", r.Err)
			}
			if made == 0 {
				t.Error("no order was made meanwhile")
			}
			if n := len(w.entries(t, o)); n != 0 {
				t.Errorf("%d entries", n)
			}
			return
		default:
			made++
		}
	}
}

func dueByIndex(t *testing.T, w *world) {
	var table, kind, key string
	query := "SELECT id,uid,expires_at FROM " + orderTable(w.schema(1), 1) +
		" FORCE INDEX (expiry) WHERE status='created' AND expires_at<=UTC_TIMESTAMP(3)-INTERVAL 30 SECOND ORDER BY expires_at LIMIT 10"
	var id, sel, possible, length, ref, rows, extra any
	if err := w.admin.QueryRow("EXPLAIN "+query).Scan(&id, &sel, &table, &kind, &possible, &key, &length, &ref, &rows, &extra); err != nil {
		t.Fatal(err)
	}
	if kind != "range" || key != "expiry" || fmt.Sprintf("%s", extra) == "" {
		t.Errorf("it is read by %s of %s, %s", kind, key, extra)
	}
	if e := fmt.Sprintf("%s", extra); slices.Contains([]string{"Using filesort"}, e) {
		t.Errorf("it sorts: %s", e)
	}
}
