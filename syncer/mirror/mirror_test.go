package mirror_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/apply"
	"github.com/octopay/octopay/syncer/mirror"
	"github.com/octopay/octopay/syncer/mirror/mirrortest"
)

func TestMain(m *testing.M) { eventually.Main(m) }

func twoServers(t *testing.T) *shardmap.Map {
	t.Helper()
	spec := shardmap.Spec{Epoch: 1, Meta: "uid-a"}
	for i, name := range []string{"uid-a", "uid-b", "bid-a"} {
		spec.Servers = append(spec.Servers, shardmap.Server{Name: name, Address: fmt.Sprintf("127.0.0.1:%d", 1000+i)})
	}
	for d := 1; d <= 8; d++ {
		spec.UID = append(spec.UID, shardmap.Placement{Database: d, Server: []string{"uid-a", "uid-b"}[d%2]})
		spec.BID = append(spec.BID, shardmap.Placement{Database: d, Server: "bid-a"})
	}
	m, err := shardmap.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMemory(t *testing.T) {
	mirrortest.Run(t, func(t *testing.T) mirrortest.Mirror {
		m := twoServers(t)
		memory := mirror.NewMemory(m)
		return mirrortest.Mirror{
			Map: m, Target: memory.Target, Reader: memory,
			Entries: func(_ testing.TB, bid, order int64) []schema.Entry { return memory.Journal(bid, order) },
		}
	})
}

func TestSQL(t *testing.T) {
	s := localstack.Test(t, localstack.BID)
	c := s.Cluster(t)
	mirrortest.Run(t, func(t *testing.T) mirrortest.Mirror {
		empty(t, c)
		return mirrortest.Mirror{
			Map: s.Map, Reader: mirror.NewSQL(c),
			Target: func(n int) apply.Target {
				target := apply.NewSQL(c.Database(shardmap.BID, n), s.Map.Epoch())
				t.Cleanup(func() { _ = target.Close() })
				return target
			},
			Entries: func(_ testing.TB, bid, order int64) []schema.Entry { return entries(t, c, bid, order) },
		}
	})
}

// empty makes all databases of the mirror as they were when they were made.
func empty(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	for n := range c.Map().Size() {
		db := c.Database(shardmap.BID, n+1)
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("DELETE FROM `%[1]s`.mark; DELETE FROM `%[1]s`.dead_letter; UPDATE `%[1]s`.progress SET incarnation='', stream_seq=0, stored_at=0", db.Schema())
		for table := range 10 {
			text += fmt.Sprintf("; DELETE FROM `%[1]s`.order_%[2]d; DELETE FROM `%[1]s`.journal_%[2]d", db.Schema(), table)
		}
		if _, err := conn.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
}

func entries(t *testing.T, c *cluster.Cluster, bid, order int64) (out []schema.Entry) {
	t.Helper()
	at := c.Map().Locate(bid)
	db := c.Database(shardmap.BID, at.Database)
	err := db.Read(context.Background(), func(ctx context.Context, conn *sql.Conn) error {
		rows, err := conn.QueryContext(ctx, fmt.Sprintf("SELECT %s FROM `%s`.journal_%d WHERE bid = ? AND order_id = ? ORDER BY seq",
			schema.List(schema.EntryColumns), db.Schema(), at.Table), bid, order)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var e schema.Entry
			if err := rows.Scan(e.Fields()...); err != nil {
				return err
			}
			out = append(out, e)
		}
		return rows.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
