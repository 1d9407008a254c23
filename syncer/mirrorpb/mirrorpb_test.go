package mirrorpb_test

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/slot"
	"github.com/octopay/octopay/syncer/internal/gen"
	"github.com/octopay/octopay/syncer/mirrorpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

func TestOrdersTravelUnchanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := gen.Order(t, gen.Key().Draw(t, "uid"), gen.Key().Draw(t, "bid"), gen.Snowflake().Draw(t, "id"), rapid.Int64Range(1, 9).Draw(t, "ver"))
		data, err := proto.Marshal(mirrorpb.FromOrder(&o))
		if err != nil {
			t.Fatal(err)
		}
		var wire mirrorpb.Order
		if err := proto.Unmarshal(data, &wire); err != nil {
			t.Fatal(err)
		}
		if back, err := wire.Row(); err != nil || back != o {
			t.Fatalf("%+v\ncame back as\n%+v, %v", o, back, err)
		}
	})
}

func TestEntriesTravelUnchanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := gen.Entry(t, gen.Key().Draw(t, "uid"), gen.Key().Draw(t, "bid"), gen.Snowflake().Draw(t, "id"), rapid.Int64Range(2, 9).Draw(t, "seq"))
		data, err := proto.Marshal(mirrorpb.FromEntry(&e))
		if err != nil {
			t.Fatal(err)
		}
		var wire mirrorpb.Entry
		if err := proto.Unmarshal(data, &wire); err != nil {
			t.Fatal(err)
		}
		if back, err := wire.Row(); err != nil || back != e {
			t.Fatalf("%+v\ncame back as\n%+v, %v", e, back, err)
		}
	})
}

// The bytes are read by programs of other versions and other teams.
func TestTheBytesOfAnOrderStayTheSame(t *testing.T) {
	o := schema.Order{
		ID: 253150322220879872, UID: 9527, BID: 1001, OutTradeNo: "20261130-000017", Amount: 19900, Currency: "CNY",
		Subject: "Le Max 2", Metadata: `{"sku":"lm2-64"}`, Status: schema.PartiallyRefunded, Ver: 3, PaidAmount: 19900, RefundedAmount: 100,
		Channel: "wechat", ChannelTradeNo: "4200", Unapplied: 1, CloseReason: schema.Expired, CreatedBy: "app", RequestID: "r-1",
		ExpiresAt: 1796040000000, UpdatedAt: 1796038200000, PaidAt: 1796038200001, ClosedAt: 1796038200002,
	}
	const want = "0a17313537373032353331353033323232323038373938373210b74a18e907220f32303236313133302d303030303137" +
		"28bc9b013203434e593a084c65204d6178203242107b22736b75223a226c6d322d3634227d4803500358bc9b0160646a" +
		"0677656368617472043432303078018001038a0103617070920103722d3198018084cee2a234a001c095e0e1a234a801" +
		"c195e0e1a234b001c295e0e1a234"
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(mirrorpb.FromOrder(&o))
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(data); got != want {
		t.Errorf("written as\n%s, not as\n%s", got, want)
	}
	old, err := hex.DecodeString(want)
	if err != nil {
		t.Fatal(err)
	}
	var wire mirrorpb.Order
	if err := proto.Unmarshal(old, &wire); err != nil {
		t.Fatal(err)
	}
	if back, err := wire.Row(); err != nil || back != o {
		t.Errorf("read as %+v, %v", back, err)
	}
}

func TestRowsThatCannotBeAreRefused(t *testing.T) {
	good := schema.Order{ID: 5, UID: 9527, BID: 1001, Status: schema.Created, Ver: 1, ExpiresAt: 1, UpdatedAt: 1}
	entry := schema.Entry{OrderID: 5, Seq: 2, UID: 9527, BID: 1001, Kind: schema.KindPaid, From: schema.Created, To: schema.Paid, RecordedAt: 1}
	order := func(f func(*mirrorpb.Order)) func() error {
		return func() error { w := mirrorpb.FromOrder(&good); f(w); _, err := w.Row(); return err }
	}
	ent := func(f func(*mirrorpb.Entry)) func() error {
		return func() error { w := mirrorpb.FromEntry(&entry); f(w); _, err := w.Row(); return err }
	}
	for _, c := range []struct {
		name, reason string
		row          func() error
	}{
		{"a good order", "", order(func(*mirrorpb.Order) {})},
		{"a good entry", "", ent(func(*mirrorpb.Entry) {})},
		{"no uid", "uid", order(func(o *mirrorpb.Order) { o.Uid = 0 })},
		{"no bid", "bid", order(func(o *mirrorpb.Order) { o.Bid = -1 })},
		{"no id", "order_id", order(func(o *mirrorpb.Order) { o.OrderId = "" })},
		{"an id of another version", "order_id", order(func(o *mirrorpb.Order) { o.OrderId = "2" + o.OrderId[1:] })},
		{"the id of another buyer's table", "disagree", order(func(o *mirrorpb.Order) { o.Uid++ })},
		{"the id of another buyer's database", "disagree", order(func(o *mirrorpb.Order) { o.Uid += 10 })},
		{"a status of the future", "status", order(func(o *mirrorpb.Order) { o.Status = 6 })},
		{"no status", "status", order(func(o *mirrorpb.Order) { o.Status = 0 })},
		{"a close_reason of the future", "close_reason", order(func(o *mirrorpb.Order) { o.CloseReason = 4 })},
		{"no ver", "ver", order(func(o *mirrorpb.Order) { o.Ver = 0 })},
		{"no expires_at", "time", order(func(o *mirrorpb.Order) { o.ExpiresAtMs = 0 })},
		{"no updated_at", "time", order(func(o *mirrorpb.Order) { o.UpdatedAtMs = 0 })},
		{"an entry of another buyer's order", "disagree", ent(func(e *mirrorpb.Entry) { e.Uid++ })},
		{"a kind that is never stored", "kind", ent(func(e *mirrorpb.Entry) { e.Kind = 0 })},
		{"a kind of the future", "kind", ent(func(e *mirrorpb.Entry) { e.Kind = 9 })},
		{"from nowhere", "status", ent(func(e *mirrorpb.Entry) { e.From = 0 })},
		{"to a status of the future", "status", ent(func(e *mirrorpb.Entry) { e.To = 6 })},
		{"an entry for the creation", "seq", ent(func(e *mirrorpb.Entry) { e.Seq = 1 })},
		{"no recorded_at", "recorded_at", ent(func(e *mirrorpb.Entry) { e.RecordedAtMs = 0 })},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.row()
			if (err == nil) != (c.reason == "") || err != nil && !strings.Contains(err.Error(), c.reason) {
				t.Errorf("got %v, want one about %q", err, c.reason)
			}
		})
	}
}

// A database has rows of one group, at every size of the cluster.
func TestADatabaseHasOneGroup(t *testing.T) {
	for _, n := range []int{8, 16, 32, 64} {
		for bid := int64(1); bid <= 2*slot.Count; bid++ {
			d := slot.Of(bid).Database(n)
			if g := mirrorpb.Group(bid); g != mirrorpb.GroupOfDatabase(d) {
				t.Fatalf("bid %d is in database %d of %d, which is of group %d, but its group is %d", bid, d, n, mirrorpb.GroupOfDatabase(d), g)
			}
		}
	}
}
