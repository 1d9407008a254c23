package lease_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/lease"
	"github.com/octopay/octopay/lease/leasetest"
)

// metaExec runs one statement on the meta database.
func metaExec(t *testing.T, db *cluster.Database, format string, args ...any) {
	t.Helper()
	c, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.ExecContext(t.Context(), fmt.Sprintf(format, "`"+db.Schema()+"`.lease"), args...); err != nil {
		t.Fatal(err)
	}
}

func TestSQL(t *testing.T) {
	meta := localstack.Test(t, localstack.Meta).Cluster(t).Meta()
	leasetest.Run(t, func(t *testing.T) leasetest.Made {
		metaExec(t, meta, "DELETE FROM %s WHERE name <> 'worker/'")
		metaExec(t, meta, "UPDATE %s SET until_ms = 0")
		return leasetest.Made{
			Table: lease.NewSQL(meta),
			// That all leases end earlier by d is what d later looks like.
			Shift: func(d time.Duration) {
				metaExec(t, meta, "UPDATE %s SET until_ms = until_ms - ?", d.Milliseconds())
			},
			Close: func(d time.Duration) { // ms are cut on the way
				metaExec(t, meta, "UPDATE %s SET until_ms = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000 + ? WHERE name = 'worker/'", d.Milliseconds())
			},
		}
	})
}

// Whatever the session's time zone is, the table's time is that of all others.
func TestSQLTimeKnowsNoTimeZone(t *testing.T) {
	meta := localstack.Test(t, localstack.Meta).Cluster(t).Meta()
	_, now, err := lease.NewSQL(meta).Taken(t.Context(), "a/")
	if err != nil {
		t.Fatal(err)
	}
	if off := time.Since(now).Abs(); off > time.Minute {
		t.Errorf("the server on this machine says %s, %s off", now, off)
	}
	c, err := meta.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Discard(c)
	for _, zone := range []string{"+08:00", "-11:00", "SYSTEM"} {
		var session string
		var ms int64
		for _, step := range []string{"SET time_zone = '" + zone + "'", lease.SetNow} {
			if _, err := c.ExecContext(t.Context(), step); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.QueryRowContext(t.Context(), "SELECT @@time_zone, @now").Scan(&session, &ms); err != nil {
			t.Fatal(err)
		}
		if off := time.UnixMilli(ms).Sub(now).Abs(); session != zone || off > time.Minute {
			t.Errorf("in zone %s the time is %s off", session, off)
		}
	}
}

// Between the making of the table and the decision from when on it gives out worker
// numbers, it gives out none.
func TestSQLWithoutADecisionIsClosed(t *testing.T) {
	meta := localstack.Test(t, localstack.Meta).Cluster(t).Meta()
	table := lease.NewSQL(meta)
	metaExec(t, meta, "DELETE FROM %s")
	if _, err := table.Acquire(t.Context(), "worker/5", "one", lease.Term); !errors.Is(err, lease.ErrClosed) {
		t.Errorf("%v, want ErrClosed", err)
	}
	gen, log := new(idgen.Generator), newLogs()
	run(t, lease.NewWorker(table, lease.NewHolder(), gen, log.logger()))
	log.wait(t, "octopay migrate has not ended")
	if id, err := gen.Next(9527); !errors.Is(err, idgen.ErrLeaseEnded) {
		t.Errorf("%s, %v; want ErrLeaseEnded", id, err)
	}
	metaExec(t, meta, "INSERT INTO %s VALUES ('worker/', '', 0, 0)")
	log.wait(t, "acquired")
	if _, err := gen.Next(9527); err != nil {
		t.Error(err)
	}
}

// Fault 9: two processes shared a worker number. All numbers are acquired at once by as
// many processes: each gets one, no two the same, and the next one is told that there is
// none.
func TestAllWorkerNumbersAtOnce(t *testing.T) {
	meta := localstack.Test(t, localstack.Meta).Cluster(t).Meta()
	table := lease.NewSQL(meta)
	var (
		mu  sync.Mutex
		got = map[string]string{}
		wg  sync.WaitGroup
	)
	const holders = 4 // each number is wanted by two of them
	for i := range holders {
		wg.Go(func() {
			holder := "holder " + strconv.Itoa(i)
			for n := range idgen.Workers / 2 {
				name := "worker/" + strconv.Itoa((n+i*idgen.Workers/holders)%idgen.Workers)
				_, err := table.Acquire(t.Context(), name, holder, lease.Term)
				if errors.Is(err, lease.ErrTaken) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if other, dup := got[name]; dup {
					t.Errorf("%s is given to %s and to %s", name, other, holder)
				}
				got[name] = holder
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(got) != idgen.Workers {
		t.Fatalf("%d numbers were given", len(got))
	}
	taken, _, err := table.Taken(t.Context(), "worker/")
	if err != nil || len(taken) != idgen.Workers {
		t.Fatalf("%d numbers are taken, %v", len(taken), err)
	}

	// Full: a worker waits, and gets the first number that becomes free.
	gen, log := new(idgen.Generator), newLogs()
	run(t, lease.NewWorker(table, lease.NewHolder(), gen, log.logger()))
	log.wait(t, "all 1,024 worker numbers are taken")
	if id, err := gen.Next(9527); !errors.Is(err, idgen.ErrLeaseEnded) {
		t.Errorf("%s, %v; want ErrLeaseEnded", id, err)
	}
	metaExec(t, meta, "UPDATE %s SET until_ms = 0 WHERE name = 'worker/77'")
	log.wait(t, "acquired")
	id, err := gen.Next(9527)
	if err != nil || id.Worker() != 77 {
		t.Errorf("worker %d, %v; want 77", id.Worker(), err)
	}
	if off := time.Since(id.Time()).Abs(); off > time.Minute {
		t.Errorf("the id's time is %s off", off)
	}
}

// A request that waits for a lock gives up, and is no lease, though the server may do
// it later.
func TestSQLWaitsForALockNoLongerThanItsContext(t *testing.T) {
	meta := localstack.Test(t, localstack.Meta).Cluster(t).Meta()
	table := lease.NewSQL(meta)
	l, err := table.Acquire(t.Context(), "a", "one", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	c, err := meta.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Discard(c)
	// A test that stands still for a while keeps its lock.
	if _, err := c.ExecContext(t.Context(), "SET idle_transaction_timeout = 0"); err != nil {
		t.Fatal(err)
	}
	tx, err := c.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var name string
	if err := tx.QueryRowContext(t.Context(), "SELECT name FROM `"+meta.Schema()+"`.lease WHERE name = 'a' FOR UPDATE").Scan(&name); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := table.Renew(ctx, l, time.Hour); err == nil || errors.Is(err, lease.ErrLost) {
		t.Errorf("a renewal behind a lock: %v; want that its outcome is unknown", err)
	}
	if err := tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		t.Fatal(err)
	}
	if _, err := table.Renew(t.Context(), l, time.Minute); err != nil {
		t.Errorf("after the lock is gone: %v", err)
	}
}
