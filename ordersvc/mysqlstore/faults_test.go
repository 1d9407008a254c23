package mysqlstore

import (
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/ordersvc/storetest"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/slot"
)

func TestFaults(t *testing.T) {
	stack := localstack.Test(t, localstack.UID)
	for _, c := range []struct {
		name string
		test func(*testing.T, *world)
	}{
		{"statement k of a packet fails, for every k", failingStatement},
		{"a table is gone", missingTable},
		{"the half of a failed packet is never committed", halfTransaction},
		{"fault 1 and 3: the connection is cut around a packet", cuts},
		{"fault 1: the connection is cut while rows are read back", readBackCut},
		{"fault 1: the connection is cut while the insert waits for a lock", cutInLockWait},
		{"a database that went away is unavailable", away},
		{"a database of unknown outcome that went away stays unknown", awayInFlight},
		{"a connection that was killed while idle is replaced", killedIdle},
		{"fault 4 and 5: three processes insert the same keys", threeProcesses},
		{"fault 14: no statement can reach an unqualified table", unqualified},
		{"fault 26: upserts of two writers in opposite order", oppositeOrder},
		{"fault 26: a deadlock is tried again", deadlocked},
		{"a lock that nobody gives up", lockedForEver},
		{"deadlocks without end", lockedOften},
		{"the epoch was raised", epochRaised},
		{"the server was demoted within the packet", demoted},
		{"keys are read back and pages found by index", indexes},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, newWorld(t, stack)) })
	}
}

// A packet's INSERT into each of its tables fails once. After the next packet of this
// lane the guilty order doesn't exist, and each of the others exists once.
func failingStatement(t *testing.T, w *world) {
	for k := range slot.Tables {
		w.trap(t, orderTable(w.schema(1), k), "guilty", 1644)
	}
	for k := range slot.Tables {
		all := orders(1, 2, fmt.Sprintf("k%d", k))
		guilty := 2*k + k%2
		all[guilty].Subject = "guilty"
		results := w.insert(all...)
		next := storetest.Order(storetest.Buyer(1, 0), fmt.Sprintf("k%d-next", k))
		w.made(t, next, w.insert(next)[0])
		for i, o := range all {
			if i != guilty {
				w.made(t, o, results[i])
				continue
			}
			w.absent(t, o)
			if err := results[i].Err; err == nil || errors.Is(err, ordersvc.ErrUnknown) || errors.Is(err, cluster.ErrUnavailable) {
				t.Errorf("the guilty order was answered with %v", err)
			}
		}
	}
}

func missingTable(t *testing.T, w *world) {
	const gone = 6
	table := orderTable(w.schema(1), gone)
	w.exec(t, "RENAME TABLE "+table+" TO "+table+"_away")
	all := orders(1, 1, "missing-table")
	results := w.insert(all...)
	w.exec(t, "RENAME TABLE "+table+"_away TO "+table)
	for i, o := range all {
		if i != gone {
			w.made(t, o, results[i])
			continue
		}
		w.absent(t, o)
		if !errors.Is(results[i].Err, cluster.ErrUnavailable) {
			t.Errorf("an order of a table that wasn't there got %+v, want unavailable", results[i])
		}
	}
}

// The first part of a packet has run and the second fails in a way that ends the
// batch. What was told "not written" must stay so whatever the lane does next.
func halfTransaction(t *testing.T, w *world) {
	// A lock that is never got is answered with "unavailable" after 4 attempts.
	w.trap(t, orderTable(w.schema(2), 1), "locked", 1205)
	half, failing := storetest.Order(storetest.Buyer(2, 0), "half"), storetest.Order(storetest.Buyer(2, 1), "failing")
	failing.Subject = "locked"
	for i, r := range w.insert(half, failing) {
		if !errors.Is(r.Err, cluster.ErrUnavailable) {
			t.Fatalf("order %d: %+v, want unavailable", i, r)
		}
	}
	next := storetest.Order(storetest.Buyer(2, 2), "next")
	w.made(t, next, w.insert(next)[0])
	w.absent(t, half)
	w.absent(t, failing)
}

var unqualifiedName = regexp.MustCompile("(FROM|INTO) +[^`( ]")

func unqualified(t *testing.T, w *world) {
	packets := w.packets()
	all := orders(7, 1, "qualified")
	for i, r := range w.insert(all...) {
		w.made(t, all[i], r)
	}
	for _, text := range packets.all() {
		if name := unqualifiedName.FindString(text); name != "" {
			t.Errorf("a statement names a table without its database: %s", name)
		}
	}
	_, err := w.creates[6].conn.ExecContext(background, "DELETE FROM order_0 WHERE id = 1")
	var said *mysql.MySQLError
	if !errors.As(err, &said) || said.Number != 1046 {
		t.Errorf("a statement without a database got %v, want 1046", err)
	}
}

// A connection that was good when it was opened meets a database whose epoch was
// raised since: only the packet itself can notice.
func epochRaised(t *testing.T, w *world) {
	first := storetest.Order(storetest.Buyer(7, 1), "first")
	w.made(t, first, w.insert(first)[0])
	// A connection of the old epoch for the twin.
	old, err := w.cluster.Database(shardmap.UID, 7).Conn(background)
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Discard(old)
	owner := "`" + w.schema(7) + "`.owner"
	for name, statement := range map[string]string{
		"raised":  "UPDATE " + owner + " SET epoch = 2",
		"missing": "DELETE FROM " + owner,
	} {
		t.Run(name, func(t *testing.T) {
			packets := w.packets()
			w.exec(t, statement)
			o := storetest.Order(storetest.Buyer(7, 1), "epoch-"+name)
			for range 2 { // over the old connection, and when there is none
				if r := w.insert(o)[0]; !errors.Is(r.Err, cluster.ErrUnavailable) {
					t.Errorf("got %+v, want unavailable", r)
				}
			}
			w.absent(t, o)
			if n := len(packets.all()); n != 1 {
				t.Errorf("%d packets met the raised epoch, want 1", n)
			}
			if name == "raised" { // nothing but the packet's guard has refused it
				if _, err := insert(background, old, w.schema(7), 2, []schema.Order{o}); err != nil || w.count(t, o) != 1 {
					t.Errorf("without the guard: %v, stored %d times", err, w.count(t, o))
				}
			}
			w.exec(t, "REPLACE INTO "+owner+" VALUES (1, 'uid', 7, 1)")
			w.made(t, o, w.insert(o)[0])
		})
	}
}

func demoted(t *testing.T, w *world) {
	all := orders(7, 1, "demoted")
	all[9].Subject = "demoted"
	w.trap(t, orderTable(w.schema(7), 9), "demoted", 1290)
	for i, r := range w.insert(all...) {
		if !errors.Is(r.Err, cluster.ErrUnavailable) {
			t.Errorf("order %d: %+v, want unavailable", i, r)
		}
	}
	// The next packet must not commit what the failed one left open.
	next := storetest.Order(storetest.Buyer(7, 2), "next")
	w.made(t, next, w.insert(next)[0])
	for _, o := range all {
		w.absent(t, o)
	}
}

// handlers returns how many rows the storage engine was asked for by f, in order of
// an index and in no order.
func handlers(t *testing.T, c *sql.Conn, f func()) (ordered, unordered int) {
	t.Helper()
	sum := func(names string) (n int) {
		if err := c.QueryRowContext(background, "SELECT SUM(variable_value) FROM information_schema.session_status WHERE variable_name IN ("+names+")").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	const byIndex, scan = "'Handler_read_key','Handler_read_next','Handler_read_prev'", "'Handler_read_rnd_next'"
	ordered, unordered = sum(byIndex), sum(scan)
	f()
	return sum(byIndex) - ordered, sum(scan) - unordered
}

// In a table of many rows the keys of a large batch, and a page that matches nothing,
// cost what they should, by what the storage engine says.
func indexes(t *testing.T, w *world) {
	const others, buyers = 3000, 10
	uids := make([]int64, buyers)
	for i := range uids {
		uids[i] = storetest.Buyer(5, 8)
	}
	var all []schema.Order
	for n := range others {
		all = append(all, storetest.Order(uids[n%buyers], fmt.Sprintf("index-%d", n)))
	}
	for n := 0; n < others; n += 500 {
		w.insert(all[n : n+500]...)
	}
	c, err := w.cluster.Database(shardmap.UID, 5).Conn(background)
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Discard(c)
	const batch = 512
	index := make([]int, batch)
	for i := range index {
		index[i] = 3 * i
	}
	ordered, unordered := handlers(t, c, func() {
		stored, err := readKeys(background, c, w.table(uids[0]), all, index)
		if err != nil || len(stored) != batch {
			t.Errorf("%d of %d keys read back, %v", len(stored), batch, err)
		}
	})
	if ordered > 3*batch || unordered > 20 { // asking takes a few
		t.Errorf("%d keys: %d rows by index, %d in a scan", batch, ordered, unordered)
	}
	ordered, unordered = handlers(t, c, func() {
		page, err := list(background, c, w.table(uids[0]), ordersvc.Query{UID: uids[0], Before: 1<<63 - 1, Limit: 20, Status: schema.Paid})
		if err != nil || len(page.Orders) != 0 {
			t.Errorf("%d orders, %v", len(page.Orders), err)
		}
	})
	if of := others / buyers; ordered < of || ordered > 2*of+10 || unordered > 20 { // asking takes a few
		t.Errorf("a page over %d orders: %d rows by index, %d in a scan", of, ordered, unordered)
	}
}
