package cluster_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/dberr"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/faultproxy"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/shardmap"
	"gopkg.in/yaml.v3"
)

// A logbook is a log that a test reads.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// look runs c until the test ends, or what it returns is called.
func look(t *testing.T, c *cluster.Cluster) (log *logbook, stop func() error) {
	t.Helper()
	log = &logbook{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, slog.New(slog.NewTextHandler(log, nil))) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() {
		_ = stop()
		if t.Failed() {
			t.Logf("the handles' log:\n%s", log)
		}
	})
	return log, stop
}

// change returns m with a change.
func change(t *testing.T, m *shardmap.Map, how func(*shardmap.Spec)) *shardmap.Map {
	t.Helper()
	var spec shardmap.Spec
	if err := yaml.Unmarshal(m.Text(), &spec); err != nil {
		t.Fatal(err)
	}
	how(&spec)
	out, err := shardmap.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func exec(t *testing.T, db *sql.DB, text string, args ...any) {
	t.Helper()
	if _, err := db.Exec(text, args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// put makes m the map in force.
func put(t *testing.T, stack *localstack.Stack, m *shardmap.Map) {
	t.Helper()
	exec(t, stack.Admin(t, "uid-a"), "INSERT INTO `"+m.Meta().Schema+"`.shard_map (epoch, hash, text) VALUES (?, ?, ?)", m.Epoch(), m.Hash(), string(m.Text()))
}

func refusesWriters(t *testing.T, d *cluster.Database) {
	t.Helper()
	w, err := d.Conn(t.Context())
	if err == nil {
		w.Close()
	}
	if !errors.Is(err, cluster.ErrUnavailable) {
		t.Errorf("a writer of %s got %v, want ErrUnavailable", d.Place(), err)
	}
}

// A connection that was good when it was made must not serve for long after its
// database has begun to obey another map, or has become another one.
func TestNoReadIsServedUnderAnOldMap(t *testing.T) {
	stack := localstack.Test(t, localstack.UID)
	t.Run("after", func(t *testing.T) {
		for i, c := range []oldMap{
			{"a higher epoch, looked after", "epoch = epoch + 1", true},
			{"a higher epoch", "epoch = epoch + 1", false},
			{"another number, looked after", "`database` = 9", true},
			{"another number", "`database` = 9", false},
			{"another cluster, looked after", "cluster = 'bid'", true},
			{"another cluster", "cluster = 'bid'", false},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.test(t, stack, i+1)
			})
		}
	})
}

type oldMap struct {
	name, set   string
	lookedAfter bool
}

func (o oldMap) test(t *testing.T, stack *localstack.Stack, number int) {
	const within = 2 * time.Second
	admin := stack.Admin(t, "uid-a")
	c := stack.Cluster(t)
	if o.lookedAfter {
		_, stop := look(t, c)
		defer stop()
	}
	d := c.Database(shardmap.UID, number)
	before, err := query(t, d, "SELECT CONNECTION_ID()")
	if err != nil {
		t.Fatal(err)
	}
	exec(t, admin, "UPDATE `"+d.Schema()+"`.owner SET "+o.set)
	changed := time.Now()
	refused := 0
	for refused < 50 {
		began := time.Now()
		id, err := query(t, d, "SELECT CONNECTION_ID()")
		switch {
		case err == nil && refused > 0:
			t.Fatal("a read was served after one was refused")
		case err == nil:
			if id != before && !o.lookedAfter {
				t.Fatalf("it was connection %s, the test needs %s", id, before)
			}
			if late := began.Sub(changed); late > within {
				t.Fatalf("a read was served %s after the change", late)
			}
		case dberr.Of(err) == dberr.Stale:
			refused++
		case !errors.Is(err, cluster.ErrUnavailable): // of which the machine can be to blame
			t.Fatal(err)
		}
	}
	if _, err := query(t, c.Database(shardmap.UID, 8), "SELECT 1"); err != nil {
		t.Errorf("another database: %v", err)
	}
	if o.lookedAfter {
		// Nobody has to ask to know it now, also not for writing.
		if err := d.Readable(); !errors.Is(err, cluster.ErrUnavailable) {
			t.Errorf("readable: %v", err)
		}
		refusesWriters(t, d)
	}
	exec(t, admin, "REPLACE INTO `"+d.Schema()+"`.owner VALUES (1, 'uid', ?, 1)", number)
	eventually.True(t, "it serves again", func() bool { _, err := query(t, d, "SELECT 1"); return err == nil })
}

// A newer map, in which a server has another address, takes over while reads and a
// writer are at work.
func TestANewerMapIsFollowed(t *testing.T) {
	stack := localstack.Test(t, localstack.UID, localstack.Meta)
	admin := stack.Admin(t, "uid-a")
	proxy := faultproxy.New(t, stack.Server("uid-a").Address())
	first := stack.Map
	second := change(t, stack.Via(t, "uid-a", proxy.Addr()).Map, func(s *shardmap.Spec) { s.Epoch = 2 })
	c := stack.Cluster(t)
	put(t, stack, first)
	log, stop := look(t, c)
	changed := c.Changed(first)
	d := c.Database(shardmap.UID, 3)

	w, err := d.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var writer string
	if err := w.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&writer); err != nil {
		t.Fatal(err)
	}
	var reader string
	inside, leave, left := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		left <- d.Read(t.Context(), func(ctx context.Context, conn *sql.Conn) error {
			close(inside)
			<-leave
			return conn.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&reader)
		})
	}()
	<-inside
	if n := proxy.Accepted(); n != 0 {
		t.Fatalf("%d connections to the new address under the old map", n)
	}
	// In the order in which an operator does it: the databases, then the map.
	for _, place := range second.Databases(shardmap.UID) {
		exec(t, admin, "UPDATE `"+place.Schema+"`.owner SET epoch = 2")
	}
	if err := cluster.PutMapInForce(t.Context(), stack.Cluster(t), second); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	case <-time.After(eventually.Patience):
		t.Fatal("the newer map is not followed")
	}
	if m := c.Map(); m.Hash() != second.Hash() || d.Epoch() != 2 || d.Place().Server.Address != proxy.Addr() {
		t.Errorf("epoch %d, the database has %d at %s", m.Epoch(), d.Epoch(), d.Place().Server.Address)
	}
	select {
	case <-c.Changed(first):
	default:
		t.Error("the map of before hasn't changed")
	}
	select {
	case <-c.Changed(c.Map()):
		t.Error("the map of now has changed")
	default:
	}
	close(leave)
	if err := <-left; err != nil {
		t.Errorf("a read that was under way: %v", err)
	}
	now, err := query(t, d, "SELECT CONNECTION_ID()")
	if err != nil || now == reader || proxy.Accepted() == 0 {
		t.Errorf("a read on connection %s, before it was %s: %v; %d go to the new address", now, reader, err, proxy.Accepted())
	}
	if err := c.Meta().Writable(); err != nil {
		t.Errorf("the meta database: %v", err)
	}
	// The writer's was in use. Its guard refuses; given back it is closed.
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	eventually.True(t, "the connections of the old epoch are closed", func() bool {
		var n int
		if err := admin.QueryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE id IN (?, ?)", reader, writer).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
	eventually.True(t, "every uid database serves", func() bool {
		for _, place := range second.Databases(shardmap.UID) {
			if c.Database(shardmap.UID, place.Number).Writable() != nil {
				return false
			}
		}
		return true
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "msg=\"shard map\" epoch=2") {
		t.Error("the log doesn't name the new map")
	}
}

// A database obeys a map that the meta database doesn't have yet: the process asks, and
// follows the map as soon as it is there.
func TestARaisedOwnerRowComesBeforeItsMap(t *testing.T) {
	stack := localstack.Test(t, localstack.UID, localstack.Meta)
	admin := stack.Admin(t, "uid-a")
	second := change(t, stack.Map, func(s *shardmap.Spec) { s.Epoch = 2 })
	c := stack.Cluster(t)
	look(t, c)
	d := c.Database(shardmap.UID, 5)
	exec(t, admin, "UPDATE `"+d.Schema()+"`.owner SET epoch = 2")
	eventually.True(t, "it is refused", func() bool { return d.Readable() != nil })
	if _, err := query(t, c.Database(shardmap.UID, 4), "SELECT 1"); err != nil {
		t.Errorf("its neighbour: %v", err)
	}
	if err := cluster.PutMapInForce(t.Context(), stack.Cluster(t), second); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "it is read under the newer map", func() bool { _, err := query(t, d, "SELECT 1"); return err == nil && c.Map().Epoch() == 2 })
	// The others still obey the old one, and their word counts.
	if _, err := query(t, c.Database(shardmap.UID, 4), "SELECT 1"); !errors.Is(err, cluster.ErrUnavailable) {
		t.Errorf("its neighbour, of a lower epoch: %v", err)
	}
}

// Growing isn't done by reading another map: it is refused, and said.
func TestAMapOfAnotherSizeOrPrefixIsNotFollowed(t *testing.T) {
	stack := localstack.Test(t, localstack.UID, localstack.Meta)
	c := stack.Cluster(t)
	log, _ := look(t, c)
	store := func(epoch shardmap.Epoch, how func(*shardmap.Spec)) {
		m := change(t, stack.Map, func(s *shardmap.Spec) { s.Epoch = epoch; how(s) })
		exec(t, stack.Admin(t, "uid-a"), "INSERT INTO `"+stack.Map.Meta().Schema+"`.shard_map (epoch, hash, text) VALUES (?, ?, ?)", m.Epoch(), m.Hash(), string(m.Text()))
	}
	store(2, func(s *shardmap.Spec) {
		for d := 9; d <= 16; d++ {
			s.UID = append(s.UID, shardmap.Placement{Database: d, Server: "uid-a"})
			s.BID = append(s.BID, shardmap.Placement{Database: d, Server: "bid-a"})
		}
	})
	eventually.True(t, "the refusal of a size is logged", func() bool { return strings.Contains(log.String(), "has 16 databases") })
	store(3, func(s *shardmap.Spec) { s.Prefix = "other_" })
	eventually.True(t, "the refusal of a prefix is logged", func() bool { return strings.Contains(log.String(), "other_") })
	if m := c.Map(); m != stack.Map {
		t.Errorf("epoch %d is in use", m.Epoch())
	}
	if _, err := query(t, c.Database(shardmap.UID, 1), "SELECT 1"); err != nil {
		t.Errorf("under the map of before: %v", err)
	}
	store(4, func(*shardmap.Spec) {})
	eventually.True(t, "one of the same size is followed", func() bool { return c.Map().Epoch() == 4 })
}

func TestAConflictingMapEndsRun(t *testing.T) {
	stack := localstack.Test(t, localstack.UID, localstack.Meta)
	other := change(t, stack.Map, func(s *shardmap.Spec) {
		s.Servers = append(s.Servers, shardmap.Server{Name: "another", Address: "127.0.0.1:1"})
	})
	put(t, stack, other)
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Patience)
	defer cancel()
	err := stack.Cluster(t).Run(ctx, slog.New(slog.DiscardHandler))
	if !errors.Is(err, cluster.ErrMapConflict) || !strings.Contains(fmt.Sprint(err), other.Hash()) || !strings.Contains(fmt.Sprint(err), stack.Map.Hash()) {
		t.Errorf("Run ended with %v, want a conflict that names both", err)
	}
}
