package cluster_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/faultproxy"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/shardmap"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMain(m *testing.M) { eventually.Main(m) }

// query reads one text value.
func query(t *testing.T, d *cluster.Database, text string) (s string, err error) {
	t.Helper()
	err = d.Read(t.Context(), func(ctx context.Context, c *sql.Conn) error {
		return c.QueryRowContext(ctx, text).Scan(&s)
	})
	return s, err
}

func TestEverySessionHasTheSettingsThatTheRestReliesOn(t *testing.T) {
	c := localstack.Test(t, localstack.UID, localstack.Meta).Cluster(t)
	w, err := c.Database(shardmap.UID, 1).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for name, want := range map[string]string{
		"tx_isolation": "READ-COMMITTED", "innodb_lock_wait_timeout": "1", "lock_wait_timeout": "2",
		"idle_transaction_timeout": "2", "time_zone": "+00:00", "sql_mode": "STRICT_ALL_TABLES",
		"character_set_client": "utf8mb4", "character_set_connection": "utf8mb4", "character_set_results": "utf8mb4",
	} {
		got, err := query(t, c.Database(shardmap.UID, 8), "SELECT @@SESSION."+name)
		if err != nil || got != want {
			t.Errorf("reader's %s = %q, want %q (%v)", name, got, want, err)
		}
		if err := w.QueryRowContext(t.Context(), "SELECT @@SESSION."+name).Scan(&got); err != nil || got != want {
			t.Errorf("writer's %s = %q, want %q (%v)", name, got, want, err)
		}
	}
}

// Fault 14: a statement that names no schema ran somewhere.
func TestNoConnectionHasADefaultDatabase(t *testing.T) {
	c := localstack.Test(t, localstack.UID, localstack.Meta).Cluster(t)
	for _, d := range []*cluster.Database{c.Database(shardmap.UID, 1), c.Meta()} {
		_, err := query(t, d, "SELECT COUNT(*) FROM owner")
		var said *mysql.MySQLError
		if !errors.As(err, &said) || said.Number != 1046 {
			t.Errorf("%s: error %v, want 1046, no database selected", d.Schema(), err)
		}
		w, err := d.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.ExecContext(t.Context(), "DELETE FROM order_0"); !errors.As(err, &said) || said.Number != 1046 {
			t.Errorf("%s: error %v, want 1046, no database selected", d.Schema(), err)
		}
		w.Close()
	}
}

func TestADatabaseThatIsNotTheMapsIsNotUsed(t *testing.T) {
	stack := localstack.Test(t, localstack.UID)
	admin := stack.Admin(t, "uid-a")
	for name, change := range map[string]string{
		"another number":     "SET `database` = 2",
		"another cluster":    "SET cluster = 'bid'",
		"a higher epoch":     "SET epoch = epoch + 1",
		"a lower epoch":      "SET epoch = epoch - 1",
		"no row":             "",
		"no such database":   "DROP",
		"as it should be it": "SET id = 1",
	} {
		t.Run(name, func(t *testing.T) {
			place := stack.Map.Database(shardmap.UID, 1)
			owner := "`" + place.Schema + "`.owner"
			statement := "UPDATE " + owner + " " + change
			switch change {
			case "":
				statement = "DELETE FROM " + owner
			case "DROP":
				statement = "RENAME TABLE " + owner + " TO `" + place.Schema + "`.owner_away"
			}
			if _, err := admin.Exec(statement); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if change == "DROP" {
					statement = "RENAME TABLE `" + place.Schema + "`.owner_away TO " + owner
				} else {
					statement = "REPLACE INTO " + owner + " VALUES (1, 'uid', 1, 1)"
				}
				if _, err := admin.Exec(statement); err != nil {
					t.Fatal(err)
				}
			})
			c := stack.Cluster(t)
			_, err := query(t, c.Database(shardmap.UID, 1), "SELECT 1")
			w, werr := c.Database(shardmap.UID, 1).Conn(t.Context())
			if werr == nil {
				w.Close()
			}
			if change == "SET id = 1" {
				if err != nil || werr != nil {
					t.Fatalf("refused: %v, %v", err, werr)
				}
				return
			}
			if !errors.Is(err, cluster.ErrUnavailable) || !errors.Is(werr, cluster.ErrUnavailable) {
				t.Errorf("reader %v, writer %v; want ErrUnavailable", err, werr)
			}
			if _, err := query(t, c.Database(shardmap.UID, 2), "SELECT 1"); err != nil {
				t.Errorf("its neighbour: %v", err)
			}
		})
	}
}

func TestADatabaseWhoseServerIsAwayIsUnavailable(t *testing.T) {
	c := localstack.Test(t, localstack.UID).Via(t, "uid-a", faultproxy.Nobody(t)).Cluster(t)
	if _, err := query(t, c.Database(shardmap.UID, 1), "SELECT 1"); !errors.Is(err, cluster.ErrUnavailable) {
		t.Errorf("reader: %v", err)
	}
	if _, err := c.Database(shardmap.UID, 1).Conn(t.Context()); !errors.Is(err, cluster.ErrUnavailable) {
		t.Errorf("writer: %v", err)
	}
}

func TestAReadWithoutAPermitIsRefusedAndNeverWaitsInThePool(t *testing.T) {
	stack := localstack.Test(t, localstack.UID)
	c := cluster.Open(stack.Map, cluster.Config{User: stack.User, Password: stack.Password, ReadPermits: 2, PermitWait: time.Millisecond})
	defer c.Close()
	d := c.Database(shardmap.UID, 1)
	inside, leave, done := make(chan struct{}), make(chan struct{}), make(chan error)
	for range 2 {
		go func() {
			done <- d.Read(t.Context(), func(ctx context.Context, conn *sql.Conn) error {
				err := conn.PingContext(ctx)
				inside <- struct{}{}
				<-leave
				return err
			})
		}()
	}
	<-inside
	<-inside
	if _, err := query(t, d, "SELECT 1"); !errors.Is(err, cluster.ErrBusy) || errors.Is(err, cluster.ErrUnavailable) {
		t.Errorf("a third read: %v, want ErrBusy", err)
	}
	if _, err := query(t, c.Database(shardmap.UID, 2), "SELECT 1"); err != nil {
		t.Errorf("another database: %v", err)
	}
	close(leave)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if _, err := query(t, d, "SELECT 1"); err != nil {
		t.Errorf("after they left: %v", err)
	}
	r := prometheus.NewRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "octopay_database_connection_waits_total" {
			for _, m := range f.GetMetric() {
				if m.GetCounter().GetValue() != 0 {
					t.Errorf("somebody waited inside a pool: %v", m)
				}
			}
		}
	}
	if err := testutil.CollectAndCompare(c, strings.NewReader(
		"# HELP octopay_shard_map_epoch Epoch of the shard map in use, by its hash.\n# TYPE octopay_shard_map_epoch gauge\n"+
			"octopay_shard_map_epoch{hash=\""+stack.Map.Hash()+"\"} 1\n"), "octopay_shard_map_epoch"); err != nil {
		t.Error(err)
	}
}

func TestAClientThatLeavesCostsNoConnection(t *testing.T) {
	c := localstack.Test(t, localstack.UID).Cluster(t)
	d := c.Database(shardmap.UID, 1)
	ctx, leave := context.WithCancel(t.Context())
	err := d.Read(ctx, func(ctx context.Context, conn *sql.Conn) error {
		leave()
		_, err := conn.ExecContext(ctx, "DO 1")
		return err
	})
	if err != nil {
		t.Errorf("the statement of a client that left: %v", err)
	}
}

func TestADiscardedConnectionRollsBack(t *testing.T) {
	c := localstack.Test(t, localstack.UID).Cluster(t)
	d := c.Database(shardmap.UID, 1)
	w, err := d.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.ExecContext(t.Context(), "BEGIN; UPDATE `"+d.Schema()+"`.owner SET epoch = 7"); err != nil {
		t.Fatal(err)
	}
	cluster.Discard(w)
	// The next writer doesn't get the half transaction, and the row is unlocked.
	w, err = d.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var epoch int
	if err := w.QueryRowContext(t.Context(), "SELECT epoch FROM `"+d.Schema()+"`.owner FOR UPDATE").Scan(&epoch); err != nil || epoch != 1 {
		t.Errorf("epoch %d (%v), want 1", epoch, err)
	}
}

// Fault 23: a driver and a session disagreed on the time zone.
func TestTimesAreUTCWhereverTheProcessIs(t *testing.T) {
	shanghai, err := time.LoadLocation("Asia/Shanghai")
	if err != nil {
		t.Fatal(err)
	}
	local := time.Local
	time.Local = shanghai
	t.Cleanup(func() { time.Local = local })
	c := localstack.Test(t, localstack.UID).Cluster(t)
	var utc, read time.Time
	err = c.Database(shardmap.UID, 1).Read(t.Context(), func(ctx context.Context, conn *sql.Conn) error {
		var ms int64
		if err := conn.QueryRowContext(ctx, "SELECT CAST(UNIX_TIMESTAMP(UTC_TIMESTAMP(3)) * 1000 AS SIGNED), UTC_TIMESTAMP(3)").Scan(&ms, &read); err != nil {
			return err
		}
		utc = time.UnixMilli(ms)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if d := read.Sub(utc).Abs(); d > time.Minute {
		t.Errorf("the session's UTC_TIMESTAMP reads as %s, it is %s", read, utc)
	}
	if d := time.Since(read).Abs(); d > time.Minute {
		t.Errorf("UTC_TIMESTAMP is %s away from this process's clock", d)
	}
}
