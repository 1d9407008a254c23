package apply

import (
	"fmt"
	"strings"
	"testing"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/mirrorpb"
)

const benchRows = 500 // in one message and one transaction

func benchOrder(i int64) schema.Order {
	return schema.Order{
		ID: 253150322220879872 + i, UID: 9527, BID: 1, OutTradeNo: fmt.Sprintf("20261130-%06d", i), Amount: 19900, Currency: "CNY",
		Subject: "Le Max 2", Metadata: `{"sku":"lm2-64"}`, Status: schema.Created, Ver: 1, CreatedBy: "app", RequestID: "0123456789abcdef",
		ExpiresAt: 1796040000000, UpdatedAt: 1796038200000,
	}
}

func perOrder(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*benchRows), "ns/order")
}

// From a message to the change that applies it.
func BenchmarkGather(b *testing.B) {
	m := testMap(b, 8)
	rows := make([]*mirrorpb.Row, benchRows)
	for i := range rows {
		rows[i] = orderRow(benchOrder(int64(i)))
	}
	msg := message(b, 1, rows...)
	b.ReportAllocs()
	for b.Loop() {
		g := newGatherer(m, 1, "now")
		g.add(msg)
		if c := g.change(Progress{}); len(c.Orders) != benchRows {
			b.Fatal(len(c.Orders))
		}
	}
	perOrder(b)
}

// From a change to the packet that the driver is given.
func BenchmarkPacket(b *testing.B) {
	c := &Change{}
	for i := range int64(benchRows) {
		c.Orders = append(c.Orders, Order{Order: benchOrder(i)})
	}
	databases := cluster.Open(testMap(b, 8), cluster.Config{})
	defer databases.Close()
	t := NewSQL(databases.Database(shardmap.BID, 1), 1)
	b.ReportAllocs()
	for b.Loop() {
		if p := t.packet(c, 0); len(p.args) < benchRows {
			b.Fatal(len(p.args))
		}
	}
	perOrder(b)
}

// The upsert on a server, of rows that are new and of rows that are stored already; each
// with the guard against another order's row, and as it would be without.
func BenchmarkUpsert(b *testing.B) {
	stack := localstack.Test(b, localstack.BID)
	t := NewSQL(stack.Cluster(b).Database(shardmap.BID, 1), 1)
	conn, err := t.db.Conn(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer cluster.Discard(conn)
	next := int64(0)
	for _, stored := range []bool{false, true} {
		for _, guard := range []bool{false, true} {
			b.Run(fmt.Sprintf("stored=%v/guard=%v", stored, guard), func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					c := &Change{}
					if !stored {
						next += benchRows
					}
					for i := range int64(benchRows) {
						o := benchOrder(next + i)
						o.Ver = 1
						c.Orders = append(c.Orders, Order{Order: o})
					}
					var p packet
					p.add("BEGIN;")
					t.rows(&p, c)
					p.add("COMMIT")
					text := p.text.String()
					if !guard {
						text = strings.ReplaceAll(text, sameOrder, "uid=IF(VALUES(ver)>ver,VALUES(uid),uid),bid=IF(VALUES(ver)>ver,VALUES(bid),bid)")
					}
					b.StartTimer()
					if _, err := conn.ExecContext(b.Context(), text, p.args...); err != nil {
						b.Fatal(err)
					}
				}
				perOrder(b)
			})
		}
	}
}
