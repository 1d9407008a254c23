package conflict_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/apply"
	"github.com/octopay/octopay/syncer/conflict"
	"github.com/octopay/octopay/syncer/conflict/conflicttest"
	"github.com/octopay/octopay/syncer/mirror"
)

func TestMain(m *testing.M) { eventually.Main(m) }

func TestMemory(t *testing.T) {
	conflicttest.Run(t, func(t *testing.T) conflicttest.Installation {
		m, err := shardmap.New(shardmap.OneServer(shardmap.Server{Name: "memory", Address: "memory:0"}, 8))
		if err != nil {
			t.Fatal(err)
		}
		copies := mirror.NewMemory(m)
		return conflicttest.Installation{Map: m, Target: copies.Target, News: copies, Table: conflict.NewMemory(m.Size())}
	})
}

func TestSQL(t *testing.T) {
	s := localstack.Test(t, localstack.BID, localstack.Meta)
	c := s.Cluster(t)
	conflicttest.Run(t, func(t *testing.T) conflicttest.Installation {
		empty(t, c)
		return conflicttest.Installation{
			Map: s.Map, News: mirror.NewSQL(c), Table: conflict.NewSQL(c),
			Target: func(n int) apply.Target {
				target := apply.NewSQL(c.Database(shardmap.BID, n), s.Map.Epoch())
				t.Cleanup(func() { _ = target.Close() })
				return target
			},
		}
	})
}

// empty makes all databases of the mirror, and the conflicts, as they were when they were
// made.
func empty(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	run := func(db *cluster.Database, statements ...string) {
		t.Helper()
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		text := strings.ReplaceAll(strings.Join(statements, ";"), "@", "`"+db.Schema()+"`.")
		if _, err := conn.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	for n := range c.Map().Size() {
		statements := []string{"DELETE FROM @mark", "DELETE FROM @conflict_scan", "DELETE FROM @payment_reference", "UPDATE @progress SET incarnation='', stream_seq=0, stored_at=0"}
		for table := range 10 {
			statements = append(statements, fmt.Sprintf("DELETE FROM @order_%d", table), fmt.Sprintf("DELETE FROM @journal_%d", table))
		}
		run(c.Database(shardmap.BID, n+1), statements...)
	}
	run(c.Meta(), "DELETE FROM @conflict", "DELETE FROM @conflict_order")
}

// What is too many is not kept, and is counted. The rows that fill the table are made by the
// server.
func TestConflictsHaveABound(t *testing.T) {
	s := localstack.Test(t, localstack.BID, localstack.Meta)
	c := s.Cluster(t)
	table := conflict.NewSQL(c)
	conn, err := c.Meta().Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	fill := fmt.Sprintf("INSERT INTO `%[1]s`.conflict (kind, bid, number, orders, found_at) SELECT 'out_trade_no', 1, CONCAT('n', seq), 2, UTC_TIMESTAMP(3) FROM `%[1]s`.seq_1_to_%[2]d", c.Meta().Schema(), conflict.ConflictsMax-1)
	if _, err := conn.ExecContext(t.Context(), fill); err != nil {
		t.Fatal(err)
	}
	pair := func(kind conflict.Kind, number string) conflict.Pair {
		return conflict.Pair{Kind: kind, BID: 1, Number: number, Orders: [2]conflict.Order{{ID: 1, UID: 1, BID: 1}, {ID: 2, UID: 2, BID: 1}}}
	}
	added, err := table.Add(context.Background(), []conflict.Pair{
		pair(conflict.OutTradeNo, "last"), pair(conflict.OutTradeNo, "too many"), pair(conflict.OutTradeNo, "n7"), pair(conflict.ChannelTradeNo, "wechat:1"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(added.New[1:], added.Unlisted[1:]); got != "[1 1] [1 0]" {
		t.Errorf("new and unlisted, by kind: %s", got)
	}
}
