package stream

import (
	"testing"

	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/syncer/source"
)

// From rows of a transaction to messages.
func BenchmarkPack(b *testing.B) {
	const rows = 500
	var batch source.Batch
	for i := range int64(rows) {
		batch.Orders = append(batch.Orders, schema.Order{
			ID: 253150322220879872 + i, UID: 9527, BID: 1 + i, OutTradeNo: "20261130-000017", Amount: 19900, Currency: "CNY",
			Subject: "Le Max 2", Metadata: `{"sku":"lm2-64"}`, Status: schema.Created, Ver: 1, CreatedBy: "app", RequestID: "0123456789abcdef",
			ExpiresAt: 1796040000000, UpdatedAt: 1796038200000,
		})
	}
	p := NewPacker("uid-a", MessageBytes)
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Add(batch); err != nil {
			b.Fatal(err)
		}
		if len(p.Take()) != Groups {
			b.Fatal("a group is missing")
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*rows), "ns/order")
}
