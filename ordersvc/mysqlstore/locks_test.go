package mysqlstore

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/lane"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/ordersvc/storetest"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/slot"
)

// The insert waits for the key's lock and its client is cut off: the server goes on
// waiting, and may insert later. Whatever the holder does, and however many of our
// attempts wait then: exactly one order, and the truth about it.
func cutInLockWait(t *testing.T, w *world) {
	for _, end := range []string{"ROLLBACK", "COMMIT"} {
		for _, attempts := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s while %d wait", end, attempts), func(t *testing.T) {
				w := newWorld(t, w.stack)
				o, neighbour := storetest.Order(storetest.Buyer(4, 1), "lock-wait"), storetest.Order(storetest.Buyer(4, 2), "neighbour")
				w.waitsForLocks(t, 4) // those that come after the cut give up, and come again
				h := w.holder(t)
				held := h.insert(t, w.table(o.UID), o)
				results := make(chan []ordersvc.Result)
				go func() { results <- w.insert(o, neighbour) }()
				eventually.True(t, "the insert waits", func() bool { return w.waiting(t, w.table(o.UID)) == 1 })
				if n := w.proxy.CutAll(); n == 0 {
					t.Fatal("nothing was cut")
				}
				eventually.True(t, "that many wait", func() bool { return w.waiting(t, w.table(o.UID)) >= attempts })
				h.exec(t, end)
				r := <-results
				w.made(t, neighbour, r[1])
				if end == "ROLLBACK" {
					w.made(t, o, r[0])
				} else if r[0].Err != nil || !r[0].Taken || r[0].Order != held {
					t.Errorf("got %+v, want the holder's order", r[0])
				}
				eventually.True(t, "nobody waits any more", func() bool { return w.waiting(t, w.table(o.UID)) == 0 })
				if n := w.count(t, o); n != 1 {
					t.Errorf("the key is stored %d times", n)
				}
			})
		}
	}
}

// Each process mints ids of its own for the same keys. One of them makes each order,
// the others are given it; nobody sees an error.
func threeProcesses(t *testing.T, w *world) {
	const keys = 40
	processes := []*Store{w.Store, open(t, w.stack), open(t, w.stack)}
	for round := range 5 {
		var buyers [keys]int64
		for i := range buyers {
			buyers[i] = storetest.Buyer(6, i%slot.Tables)
		}
		var all sync.WaitGroup
		sent := make([][]schema.Order, len(processes))
		results := make([][]ordersvc.Result, len(processes))
		for p, s := range processes {
			for _, k := range rand.Perm(keys) {
				sent[p] = append(sent[p], storetest.Order(buyers[k], fmt.Sprintf("three-%d", round)))
			}
			all.Go(func() { results[p] = s.Insert(background, 6, sent[p]) })
		}
		all.Wait()
		made := map[int64]schema.Order{}
		for p := range processes {
			for i, o := range sent[p] {
				if r := results[p][i]; r.Err == nil && !r.Taken {
					if _, twice := made[o.UID]; twice {
						t.Fatalf("two processes made order %s of %d", o.OutTradeNo, o.UID)
					}
					w.made(t, o, r)
					made[o.UID] = r.Order
				}
			}
		}
		for p := range processes {
			for i, o := range sent[p] {
				if r := results[p][i]; r.Err != nil || r.Order != made[o.UID] {
					t.Errorf("process %d was answered %+v, the order is %+v", p, r, made[o.UID])
				}
			}
		}
	}
}

func (w *world) deadlocks(t *testing.T) (n int) {
	var name string
	if err := w.admin.QueryRowContext(background, "SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'").Scan(&name, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Two writers upsert the same new keys, in opposite order of arrival. Sorted they
// never deadlock; the twin, in the order of arrival, does.
func oppositeOrder(t *testing.T, w *world) {
	const keys, rounds = 200, 20
	conns := make([]*sql.Conn, 2)
	for i := range conns {
		c, err := w.cluster.Database(shardmap.UID, 8).Conn(background)
		if err != nil {
			t.Fatal(err)
		}
		defer cluster.Discard(c)
		conns[i] = c
	}
	// race runs one round and returns how many of the two deadlocked.
	race := func(sorted bool) (deadlocked int) {
		uid := storetest.Buyer(8, 5)
		var all sync.WaitGroup
		start := make(chan struct{})
		errs := make([]error, len(conns))
		for i, c := range conns {
			var batch []schema.Order
			var arrival part
			for n := range keys {
				if i == 1 {
					n = keys - 1 - n
				}
				batch = append(batch, storetest.Order(uid, fmt.Sprintf("opposite-%03d", n)))
				arrival.orders = append(arrival.orders, len(batch)-1)
			}
			arrival.table = slot.Table(uid)
			order := []part{arrival}
			if sorted {
				order = parts(batch)
			}
			all.Go(func() {
				<-start
				_, _, errs[i] = sendInsert(background, c, w.schema(8), 1, batch, order)
				if errs[i] != nil {
					errs[i] = errors.Join(errs[i], rollback(background, c))
				}
			})
		}
		close(start)
		all.Wait()
		for _, err := range errs {
			var said *mysql.MySQLError
			switch {
			case err == nil:
			case errors.As(err, &said) && said.Number == 1213:
				deadlocked++
			case errors.As(err, &said) && said.Number == 1205: // the disk took its second
			default:
				t.Fatal(err)
			}
		}
		return deadlocked
	}
	for range rounds {
		if race(true) > 0 {
			t.Fatal("sorted rows deadlocked")
		}
	}
	eventually.True(t, "a deadlock of rows in the order of arrival", func() bool { return race(false) > 0 })
}

// A real deadlock, in which the packet is the victim: it runs again, and whoever was
// first has the keys.
func deadlocked(t *testing.T, w *world) {
	uid := storetest.Buyer(8, 7)
	neighbour := storetest.Order(storetest.Buyer(8, 1), "neighbour") // in a table before
	a, b := storetest.Order(uid, "deadlock-a"), storetest.Order(uid, "deadlock-b")
	h := w.holder(t)
	for n := range 50 { // the server gives up the transaction that changed less
		h.insert(t, w.table(uid), storetest.Order(uid, fmt.Sprintf("weight-%d", n)))
	}
	hisB := h.insert(t, w.table(uid), b)
	before := w.deadlocks(t)
	w.waitsForLocks(t, 8)
	results := make(chan []ordersvc.Result)
	go func() { results <- w.insert(b, a, neighbour) }()
	eventually.True(t, "the insert has a and waits for b", func() bool { return w.waiting(t, w.table(uid)) == 1 })
	hisA := h.insert(t, w.table(uid), a)
	h.exec(t, "COMMIT")
	r := <-results
	if w.deadlocks(t) == before {
		t.Error("there was no deadlock")
	}
	for i, his := range []schema.Order{hisB, hisA} {
		if r[i].Err != nil || !r[i].Taken || r[i].Order != his {
			t.Errorf("got %+v, want the holder's %+v", r[i], his)
		}
	}
	w.made(t, neighbour, r[2])
}

// A lock that is held for longer than the whole budget: the last attempt is cut off
// while it waits, so nobody can say that it won't get the lock after all.
func lockedForEver(t *testing.T, w *world) {
	full := w.budget
	w.connected(t, 4)
	w.budget = lane.Budget{Transaction: 300 * time.Millisecond, Settle: 300 * time.Millisecond}
	o, neighbour := storetest.Order(storetest.Buyer(4, 3), "for-ever"), storetest.Order(storetest.Buyer(4, 4), "for-ever")
	h := w.holder(t)
	h.insert(t, w.table(o.UID), o)
	for i, r := range w.insert(o, neighbour) {
		if !errors.Is(r.Err, ordersvc.ErrUnknown) {
			t.Errorf("order %d: %+v, want unknown", i, r)
		}
	}
	h.exec(t, "ROLLBACK")
	w.budget = full
	r := w.insert(o, neighbour)
	w.made(t, o, r[0])
	w.made(t, neighbour, r[1])
}

// Locks that aren't got in four attempts, each rolled back: nothing was written.
func lockedOften(t *testing.T, w *world) {
	w.trap(t, orderTable(w.schema(4), 5), "locked", 1213)
	packets := w.packets()
	locked, neighbour := storetest.Order(storetest.Buyer(4, 5), "often"), storetest.Order(storetest.Buyer(4, 4), "often")
	locked.Subject = "locked"
	for i, r := range w.insert(neighbour, locked) {
		if !errors.Is(r.Err, cluster.ErrUnavailable) {
			t.Errorf("order %d: %+v, want unavailable", i, r)
		}
	}
	if n := len(packets.all()); n != 4 {
		t.Errorf("%d packets, want 4", n)
	}
	w.absent(t, locked)
	w.absent(t, neighbour)
}
