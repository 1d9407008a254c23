package mirror_test

import (
	"context"
	"testing"

	"github.com/octopay/octopay/internal/faultproxy"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/apply"
	"github.com/octopay/octopay/syncer/mirror"
	"github.com/octopay/octopay/syncer/source"
	"github.com/octopay/octopay/syncer/stream"
)

// Before each statement of a list the applier applies one more order, and the mark
// behind it. Whatever the list says it is complete until, is in it.
func TestTheProgressIsReadBeforeTheRows(t *testing.T) {
	const bid = 1001
	stack := localstack.Test(t, localstack.BID)
	database := stack.Map.Locate(bid).Database
	target := apply.NewSQL(stack.Cluster(t).Database(shardmap.BID, database), stack.Map.Epoch())
	defer func() { _ = target.Close() }()
	server := stack.Map.Servers(shardmap.UID)[0].Name
	at := apply.Progress{}
	stamp := func(n uint64) schema.Millis { return schema.Millis(1000 * n) }
	more := func() {
		n := at.Seq + 1
		o := schema.Order{
			ID: int64(n), UID: 9527, BID: bid, OutTradeNo: "n", Amount: 1, Currency: "CNY", Subject: "s", Metadata: "{}",
			Status: schema.Created, Ver: 1, CreatedBy: "app", RequestID: "r", ExpiresAt: 1000, UpdatedAt: stamp(n),
		}
		c := &apply.Change{
			From: at, To: apply.Progress{Incarnation: "MIRROR@1", Seq: n, StoredAt: int64(n)}, Orders: []apply.Order{{Order: o}},
			Marks: []stream.Mark{{Server: server, Position: source.Position{}.With(source.GTID{Domain: 1, Server: 1, Seq: n}), At: stamp(n) + 1}},
		}
		if _, err := target.Apply(context.Background(), c); err != nil {
			t.Error(err)
		}
		at = c.To
	}
	more()
	proxy := faultproxy.New(t, stack.Server("bid-a").Address())
	reader := mirror.NewSQL(stack.Via(t, "bid-a", proxy.Addr()).Cluster(t))
	statements := 0
	proxy.Arm(faultproxy.BeforePacket, func(packet []byte) bool {
		if faultproxy.Query("`.mark")(packet) || faultproxy.Query("`.order_")(packet) {
			statements++
			more()
		}
		return false
	})
	page, err := reader.List(t.Context(), mirror.Query{BID: bid, Before: 1<<63 - 1, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	if statements < 2 {
		t.Fatalf("%d statements: nothing came between them", statements)
	}
	if page.CompleteUntil < stamp(1) {
		t.Errorf("complete until %d: the marks weren't read", page.CompleteUntil)
	}
	for n := uint64(1); stamp(n) < page.CompleteUntil; n++ {
		if len(page.Orders) < int(n) {
			t.Fatalf("complete until %d, but the order of %d is not among the %d", page.CompleteUntil, stamp(n), len(page.Orders))
		}
	}
}

// The same of lists of entries: before each of their statements one more entry is applied.
func TestTheProgressIsReadBeforeTheEntries(t *testing.T) {
	const bid = 1001
	stack := localstack.Test(t, localstack.BID)
	database := stack.Map.Locate(bid).Database
	target := apply.NewSQL(stack.Cluster(t).Database(shardmap.BID, database), stack.Map.Epoch())
	defer func() { _ = target.Close() }()
	server := stack.Map.Servers(shardmap.UID)[0].Name
	at := apply.Progress{}
	stamp := func(n uint64) schema.Millis { return schema.Millis(1000 * n) }
	more := func() {
		n := at.Seq + 1
		e := schema.Entry{
			OrderID: int64(n), Seq: 2, UID: 9527, BID: bid, Op: "op", Kind: schema.KindUnappliedPayment, Amount: 1, Currency: "CNY",
			From: schema.Closed, To: schema.Closed, Ref: "wechat:1", Actor: "channel", RequestID: "r", RecordedAt: stamp(n),
		}
		c := &apply.Change{
			From: at, To: apply.Progress{Incarnation: "MIRROR@1", Seq: n, StoredAt: int64(n)}, Entries: []apply.Entry{{Entry: e}},
			Marks: []stream.Mark{{Server: server, Position: source.Position{}.With(source.GTID{Domain: 1, Server: 1, Seq: n}), At: stamp(n) + 1}},
		}
		if _, err := target.Apply(context.Background(), c); err != nil {
			t.Error(err)
		}
		at = c.To
	}
	more()
	proxy := faultproxy.New(t, stack.Server("bid-a").Address())
	reader := mirror.NewSQL(stack.Via(t, "bid-a", proxy.Addr()).Cluster(t))
	statements := 0
	proxy.Arm(faultproxy.BeforePacket, func(packet []byte) bool {
		if faultproxy.Query("`.mark")(packet) || faultproxy.Query("`.journal_")(packet) {
			statements++
			more()
		}
		return false
	})
	page, err := reader.Entries(t.Context(), mirror.EntryQuery{BID: bid, Kinds: []schema.Kind{schema.KindUnappliedPayment}, Before: mirror.Newest, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	if statements < 3 {
		t.Fatalf("%d statements: nothing came between them", statements)
	}
	if page.CompleteUntil < stamp(1) {
		t.Errorf("complete until %d: the marks weren't read", page.CompleteUntil)
	}
	for n := uint64(1); stamp(n) < page.CompleteUntil; n++ {
		if len(page.Found) < int(n) {
			t.Fatalf("complete until %d, but the entry of %d is not among the %d", page.CompleteUntil, stamp(n), len(page.Found))
		}
	}
}
