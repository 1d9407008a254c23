package cluster_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/shardmap"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func names(places []shardmap.Database) (out []string) {
	for _, p := range places {
		out = append(out, p.String())
	}
	return out
}

// on returns the names of the uid databases on a server.
func on(m *shardmap.Map, server string) (out []string) {
	for _, p := range m.Databases(shardmap.UID) {
		if p.Server.Name == server {
			out = append(out, p.String())
		}
	}
	return out
}

// reads reads every uid database until stop is called, and counts what each was told.
// A fault is an answer that is neither.
func reads(t *testing.T, c *cluster.Cluster) (served, refused []*atomic.Int64, stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{}, c.Map().Size())
	for n := range c.Map().Size() {
		served, refused = append(served, &atomic.Int64{}), append(refused, &atomic.Int64{})
		go func() {
			defer func() { done <- struct{}{} }()
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				switch err := ping(c.Database(shardmap.UID, n+1)); {
				case err == nil:
					served[n].Add(1)
				case errors.Is(err, cluster.ErrUnavailable), errors.Is(err, cluster.ErrBusy):
					refused[n].Add(1)
				default:
					t.Errorf("database %d: %v", n+1, err)
				}
			}
		}()
	}
	return served, refused, func() {
		cancel()
		for range c.Map().Size() {
			<-done
		}
	}
}

func ping(d *cluster.Database) error {
	return d.Read(context.Background(), func(ctx context.Context, c *sql.Conn) error {
		var one int
		return c.QueryRowContext(ctx, "SELECT COUNT(*) FROM `"+d.Schema()+"`.owner").Scan(&one)
	})
}

// Fault 28. Of two uid servers one freezes, crashes, or is demoted, and a database on it
// is dropped. What is on it is refused without being asked, all else notices nothing,
// and it serves again when it is back.
func TestOneServerAwayConcernsItsDatabasesAlone(t *testing.T) {
	stack := localstack.Private(t, localstack.Options{Need: []localstack.Need{localstack.UID, localstack.BID, localstack.Meta}, UIDServers: 2})
	admin, server := stack.Admin(t, "uid-b"), stack.Server("uid-b")
	c := stack.Cluster(t)
	log, _ := look(t, c)
	on := on(stack.Map, "uid-b")
	healthy := func() bool {
		h := c.Health()
		return len(h.Unavailable)+len(h.ReadOnly) == 0 && h.Serving
	}
	for _, f := range []struct {
		name        string
		begin, end  func() error
		unavailable []string
		readOnly    []string
	}{
		{"frozen", server.Pause, server.Continue, on, nil},
		{"killed", server.Kill, func() error { return server.Start(t.Context()) }, on, nil},
		{"demoted",
			func() error { _, err := admin.Exec("SET GLOBAL read_only = ON"); return err },
			func() error { _, err := admin.Exec("SET GLOBAL read_only = OFF"); return err }, nil, on},
		{"one database gone",
			func() error { return renameOwner(admin, stack.Map.Database(shardmap.UID, 4), "owner", "owner_away") },
			func() error { return renameOwner(admin, stack.Map.Database(shardmap.UID, 4), "owner_away", "owner") },
			[]string{stack.Map.Database(shardmap.UID, 4).String()}, nil},
	} {
		t.Run(f.name, func(t *testing.T) {
			eventually.True(t, "all is well", healthy)
			served, refused, stop := reads(t, c)
			defer stop()
			eventually.True(t, "all are read", func() bool {
				return !slices.ContainsFunc(served, func(n *atomic.Int64) bool { return n.Load() == 0 })
			})
			if err := f.begin(); err != nil {
				t.Fatal(err)
			}
			took := eventually.True(t, "exactly those are known to be away", func() bool {
				h := c.Health()
				return slices.Equal(names(h.Unavailable), f.unavailable) && slices.Equal(names(h.ReadOnly), f.readOnly) && h.Serving
			})
			t.Logf("known after %s", took)
			for _, name := range append(f.unavailable, f.readOnly...) {
				eventually.True(t, "it is logged of "+name, func() bool {
					return strings.Count(log.String(), "serve all\" database="+name) == 1+strings.Count(log.String(), "serves\" database="+name)
				})
			}
			var before, then []int64
			for n := range served {
				before = append(before, served[n].Load())
			}
			eventually.True(t, "the others go on", func() bool {
				for n, place := range stack.Map.Databases(shardmap.UID) {
					if !slices.Contains(f.unavailable, place.String()) && served[n].Load() < before[n]+20 {
						return false
					}
				}
				return true
			})
			for n, place := range stack.Map.Databases(shardmap.UID) {
				d := c.Database(shardmap.UID, n+1)
				away := slices.Contains(f.unavailable, place.String())
				if away {
					// A read that was let in before may end yet, by its deadline.
					if err := ping(d); !errors.Is(err, cluster.ErrUnavailable) {
						t.Errorf("%s: a read got %v", place, err)
					}
				}
				if away || slices.Contains(f.readOnly, place.String()) {
					refusesWriters(t, d)
				} else if w, err := d.Conn(t.Context()); err != nil {
					t.Errorf("%s: a writer got %v", place, err)
				} else {
					w.Close()
				}
				if n := refused[n].Load(); !away && n > 0 {
					t.Errorf("%s: %d reads were refused", place, n)
				}
				then = append(then, served[n].Load())
			}
			if err := f.end(); err != nil {
				t.Fatal(err)
			}
			took = eventually.True(t, "all is well again", healthy)
			t.Logf("all again after %s", took)
			eventually.True(t, "that is logged too", func() bool {
				return strings.Count(log.String(), "does not serve all") == strings.Count(log.String(), "the database serves")
			})
			eventually.True(t, "all are read again", func() bool {
				for n := range served {
					if served[n].Load() == then[n] {
						return false
					}
				}
				return true
			})
		})
	}
}

func renameOwner(admin *sql.DB, place shardmap.Database, from, to string) error {
	_, err := admin.Exec("RENAME TABLE `" + place.Schema + "`." + from + " TO `" + place.Schema + "`." + to)
	return err
}

// A server that answers, and whose meta database can't be read, is as one that is away to
// who needs what is in it.
func TestAMetaDatabaseWhoseTablesAreLockedIsUnavailable(t *testing.T) {
	stack := localstack.Test(t, localstack.UID, localstack.BID, localstack.Meta)
	c := stack.Cluster(t)
	look(t, c)
	unavailable := func(want ...string) func() bool {
		return func() bool {
			h := c.Health()
			return slices.Equal(names(h.Unavailable), want) && len(h.ReadOnly) == 0 && h.Serving
		}
	}
	eventually.True(t, "all is well", func() bool { return unavailable()() && c.Database(shardmap.UID, 1).Readable() == nil })
	meta := c.Meta().Place()
	conn, err := stack.Admin(t, meta.Server.Name).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Discard(conn)
	if _, err := conn.ExecContext(t.Context(), "LOCK TABLES `"+meta.Schema+"`.shard_map WRITE"); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "it is known", unavailable(meta.String()))
	if _, err := conn.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "it serves again", unavailable())
}

// A server that is away is not asked by every read.
func TestASilentServerIsLeftAlone(t *testing.T) {
	stack := localstack.Test(t, localstack.UID)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			asked.Add(1)
			conn.Close()
		}
	}()
	defer func() { l.Close(); <-over }()
	c := stack.Via(t, "uid-a", l.Addr().String()).Cluster(t)
	const calls = 300
	start := time.Now()
	for range calls {
		if err := ping(c.Database(shardmap.UID, 1)); !errors.Is(err, cluster.ErrUnavailable) {
			t.Fatalf("got %v", err)
		}
	}
	// Three in a row, and one each 100 ms; a read may dial three times.
	most := 3 * (3 + int64(time.Since(start)/(100*time.Millisecond)) + 1)
	if n := asked.Load(); n == 0 || n > most {
		t.Errorf("it was asked %d times by %d reads, want at most %d", n, calls, most)
	}
}

// What the database answered, and what it was never asked, is no failure of it.
func TestWhatIsNoFailureOpensNothing(t *testing.T) {
	stack := localstack.Test(t, localstack.UID)
	c := cluster.Open(stack.Map, cluster.Config{User: stack.User, Password: stack.Password, ReadPermits: 1, PermitWait: time.Millisecond})
	defer c.Close()
	d := c.Database(shardmap.UID, 1)
	say := func(text string) func() error {
		return func() error { _, err := query(t, d, text); return err }
	}
	insert := "INSERT INTO `" + d.Schema() + "`.owner VALUES (1, 'uid', 1, 1)"
	left, leave := context.WithCancel(t.Context())
	leave()
	for name, call := range map[string]func() error{
		"a refused statement":    say("SELECT nothing"),
		"a duplicate key":        say(insert),
		"a table that is absent": say("SELECT * FROM `" + d.Schema() + "`.absent"),
		"no row":                 say("SELECT 'x' FROM `" + d.Schema() + "`.owner WHERE id = 2"),
		"no permit": func() (err error) {
			held := d.Read(t.Context(), func(context.Context, *sql.Conn) error {
				_, err = query(t, d, "SELECT 1")
				return nil
			})
			if held != nil || !errors.Is(err, cluster.ErrBusy) {
				t.Errorf("%v, %v", held, err)
			}
			return err
		},
		"a caller that has left": func() error { _, err := d.Conn(left); return err },
	} {
		for range 10 {
			if err := call(); err == nil {
				t.Errorf("%s: no error", name)
			}
			if err := d.Writable(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	err := testutil.CollectAndCompare(c, strings.NewReader("# HELP octopay_database_up 1 while reads or writes of the database are taken.\n"+
		"# TYPE octopay_database_up gauge\n"+up(c)), "octopay_database_up")
	if err != nil {
		t.Error(err)
	}
}

// up is the health of a cluster that is well, in the metrics' words.
func up(c *cluster.Cluster) string {
	var b strings.Builder
	for _, d := range c.All() {
		cl := string(d.Place().Cluster)
		if cl == "" {
			cl = "meta"
		}
		for _, pool := range []string{"read", "write"} {
			fmt.Fprintf(&b, "octopay_database_up{cluster=%q,database=%q,pool=%q} 1\n", cl, d.Schema(), pool)
		}
	}
	return b.String()
}

// Writes have a health of their own: when they get no answer, reads go on, and the next
// write that is answered ends it.
func TestWritesThatAreNotAnsweredAreRefusedForAWhile(t *testing.T) {
	stack := localstack.Test(t, localstack.UID, localstack.Meta)
	c := stack.Cluster(t)
	look(t, c)
	d := c.Database(shardmap.UID, 1)
	wrote := func(err error) { d.Wrote(err) }
	for range 2 {
		wrote(context.DeadlineExceeded)
	}
	wrote(nil) // not in a row
	for range 2 {
		wrote(context.DeadlineExceeded)
	}
	if err := d.Writable(); err != nil {
		t.Fatalf("after two in a row: %v", err)
	}
	// refused fails a write, and looks. It is so for a second: a test that stood still as
	// long does it again.
	refused := func() {
		t.Helper()
		for {
			began := time.Now()
			wrote(context.DeadlineExceeded)
			away := c.Health().ReadOnly
			w, err := d.Conn(t.Context())
			if err == nil {
				w.Close()
			}
			if time.Since(began) >= time.Second {
				continue
			}
			if !errors.Is(err, cluster.ErrUnavailable) || !slices.Equal(names(away), []string{d.Place().String()}) {
				t.Errorf("a writer got %v, %v take no writes", err, names(away))
			}
			return
		}
	}
	refused()
	if _, err := query(t, d, "SELECT 1"); err != nil {
		t.Errorf("a read: %v", err)
	}
	eventually.True(t, "one may try", func() bool { return d.Writable() == nil })
	refused()
	eventually.True(t, "one may try", func() bool { return d.Writable() == nil })
	wrote(nil)
	wrote(context.DeadlineExceeded)
	if err := d.Writable(); err != nil {
		t.Errorf("after one that was answered: %v", err)
	}
}
