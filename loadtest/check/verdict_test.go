package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/loadtest/report"
	"github.com/octopay/octopay/loadtest/traffic"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"pgregory.net/rapid"
)

func shards(t rapid.TB) *shardmap.Map {
	t.Helper()
	m, err := shardmap.New(shardmap.OneServer(shardmap.Server{Name: "a", Address: "a:1"}, 8))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func planOf(t rapid.TB, c traffic.Config) *traffic.Plan {
	t.Helper()
	p, err := traffic.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var start = idgen.FirstAt(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))

// stored returns the row that create n becomes as the i-th of a run.
func stored(p *traffic.Plan, n uint64, i int) schema.Order {
	id := start + int64(i)<<22
	o := wanted(p.Order(n), schema.Order{ID: id, RequestID: "r"})
	o.UpdatedAt = o.CreatedAt() + 3
	return o
}

func ackOf(o schema.Order) traffic.Ack {
	return traffic.Ack{ID: o.OrderID(), OutTradeNo: o.OutTradeNo}
}

func put(m *shardmap.Map, o schema.Order) (truth, mirror placed) {
	return placed{o, m.Locate(o.UID)}, placed{o, m.Locate(o.BID)}
}

// judged runs the windows over rows.
func judged(t rapid.TB, plans []*traffic.Plan, acks Acks, c Config, truth, mirror []placed) report.Check {
	t.Helper()
	v := newVerdict(shards(t), plans, acks, c)
	last := start
	for _, r := range slices.Concat(truth, mirror) {
		last = max(last, r.ID)
	}
	if len(v.acks) > 0 {
		last = max(last, v.acks[len(v.acks)-1].id)
	}
	within := func(rows []placed, from, until int64) (out []placed) {
		for _, r := range rows {
			if r.ID >= from && r.ID < until && v.ours(r.Order) {
				out = append(out, r)
			}
		}
		return out
	}
	for from := start; from <= last; {
		until := min(v.end(from), last+1)
		v.window(from, until, within(truth, from, until), within(mirror, from, until))
		from = until
	}
	return v.result()
}

// What is as it must be passes, whatever the order in which it comes, and rows of
// others are nobody's business.
func TestARunThatIsRightPasses(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := shards(rt)
		p, other := planOf(rt, traffic.Config{Run: "r1", Seed: 1}), planOf(rt, traffic.Config{Run: "r2", Seed: 2})
		n := rapid.IntRange(0, 60).Draw(rt, "orders")
		open := rapid.IntRange(0, n).Draw(rt, "open")
		var acks Acks
		var truth, mirror []placed
		for i := range n {
			o := stored(p, uint64(100+i), i)
			a, b := put(m, o)
			truth, mirror = append(truth, a), append(mirror, b)
			if i >= open {
				acks = append(acks, ackOf(o))
			}
			foreign, _ := put(m, stored(other, uint64(i), 1000+i))
			truth = append(truth, foreign)
		}
		acks = rapid.Permutation(acks).Draw(rt, "acks")
		truth = rapid.Permutation(truth).Draw(rt, "rows")
		got := judged(rt, []*traffic.Plan{p}, acks, Config{Mirror: true, OpenMax: open}, truth, mirror)
		want := report.Check{Acknowledged: n - open, Found: n - open, Open: open, Mirror: true}
		if fmt.Sprint(got) != fmt.Sprint(want) || got.Fails() {
			rt.Fatalf("%+v, want %+v", got, want)
		}
		if open > 0 {
			if got := judged(rt, []*traffic.Plan{p}, acks, Config{OpenMax: open - 1}, truth, nil); got.Wrong != 1 || !got.Fails() {
				rt.Fatalf("one more is open than can be: %+v", got)
			}
		}
	})
}

// Each column, in either cluster.
func TestEachColumnCounts(t *testing.T) {
	changes := map[string]func(*schema.Order){
		"uid":                func(o *schema.Order) { o.UID += 640 },
		"bid":                func(o *schema.Order) { o.BID += 640 },
		"out_trade_no":       func(o *schema.Order) { o.OutTradeNo = "r1-99" },
		"amount":             func(o *schema.Order) { o.Amount++ },
		"currency":           func(o *schema.Order) { o.Currency = "cny" },
		"subject":            func(o *schema.Order) { o.Subject += " " },
		"metadata":           func(o *schema.Order) { o.Metadata = "{}" },
		"status":             func(o *schema.Order) { o.Status = schema.Paid },
		"ver":                func(o *schema.Order) { o.Ver++ },
		"paid_amount":        func(o *schema.Order) { o.PaidAmount++ },
		"refunded_amount":    func(o *schema.Order) { o.RefundedAmount++ },
		"channel":            func(o *schema.Order) { o.Channel = "x" },
		"channel_trade_no":   func(o *schema.Order) { o.ChannelTradeNo = "x" },
		"unapplied_payments": func(o *schema.Order) { o.Unapplied++ },
		"close_reason":       func(o *schema.Order) { o.CloseReason = schema.ByBuyer },
		"created_by":         func(o *schema.Order) { o.CreatedBy = "merchant" },
		"request_id":         func(o *schema.Order) { o.RequestID = "s" },
		"expires_at":         func(o *schema.Order) { o.ExpiresAt++ },
		"updated_at":         func(o *schema.Order) { o.UpdatedAt = o.CreatedAt() - 1 },
		"paid_at":            func(o *schema.Order) { o.PaidAt = 1 },
		"closed_at":          func(o *schema.Order) { o.ClosedAt = 1 },
	}
	m, p := shards(t), planOf(t, traffic.Config{Run: "r1"})
	for _, column := range schema.OrderColumns {
		change := changes[column]
		if change == nil {
			if column != "id" { // it is what names the row
				t.Errorf("nothing changes %s", column)
			}
			continue
		}
		o := stored(p, 7, 0)
		a, b := put(m, o)
		acks, name := Acks{ackOf(o)}, o.OrderID().String()
		other := o
		change(&other)
		if got := judged(t, []*traffic.Plan{p}, acks, Config{Mirror: true}, []placed{a}, []placed{{other, b.at}}); got.Unequal != 1 ||
			got.Wrong != 0 || len(got.Named) != 1 || !strings.HasPrefix(got.Named[0], name+" unequal") || !strings.Contains(got.Named[0], column) {
			t.Errorf("%s in the mirror: %+v", column, got)
		}
		got := judged(t, []*traffic.Plan{p}, acks, Config{Mirror: true}, []placed{{other, a.at}}, []placed{b})
		if got.Unequal != 1 || !strings.Contains(strings.Join(got.Named, "\n"), column) {
			t.Errorf("%s in the truth, compared with the mirror: %+v", column, got)
		}
		// Nobody sent a request_id that is known; all else is the request's.
		if want := 1; column != "request_id" && (got.Wrong != want || !strings.HasPrefix(got.Named[0], name+" wrong")) {
			t.Errorf("%s in the truth: %+v", column, got)
		}
	}
}

// What befalls one row of a cluster, and what it must be called.
func TestWhatIsWrongIsCountedAndNamed(t *testing.T) {
	m, p := shards(t), planOf(t, traffic.Config{Run: "r1"})
	elsewhere := func(r placed) placed {
		r.at.Table = (r.at.Table + 1) % 10
		return r
	}
	for name, c := range map[string]struct {
		change func(truth, mirror *[]placed, acks *Acks)
		want   report.Check
		named  string
	}{
		"the truth lacks it": {func(truth, _ *[]placed, _ *Acks) { *truth = (*truth)[1:] },
			report.Check{Acknowledged: 3, Found: 2, Missing: 1, Unequal: 1}, "missing"},
		"the mirror lacks it": {func(_, mirror *[]placed, _ *Acks) { *mirror = (*mirror)[1:] },
			report.Check{Acknowledged: 3, Found: 3, Unequal: 1}, "not in the mirror"},
		"both lack it": {func(truth, mirror *[]placed, _ *Acks) { *truth, *mirror = (*truth)[1:], (*mirror)[1:] },
			report.Check{Acknowledged: 3, Found: 2, Missing: 1}, "missing"},
		"the truth has it twice": {func(truth, _ *[]placed, _ *Acks) { *truth = append(*truth, elsewhere((*truth)[0])) },
			report.Check{Acknowledged: 3, Found: 3, Doubled: 1}, "doubled: in table"},
		"the mirror has it twice": {func(_, mirror *[]placed, _ *Acks) { *mirror = append(*mirror, elsewhere((*mirror)[0])) },
			report.Check{Acknowledged: 3, Found: 3, Unequal: 1}, "twice"},
		"another table of the truth": {func(truth, _ *[]placed, _ *Acks) { (*truth)[0] = elsewhere((*truth)[0]) },
			report.Check{Acknowledged: 3, Found: 3, Wrong: 1}, "belongs in"},
		"another table of the mirror": {func(_, mirror *[]placed, _ *Acks) { (*mirror)[0] = elsewhere((*mirror)[0]) },
			report.Check{Acknowledged: 3, Found: 3, Unequal: 1}, "belongs in"},
		"two ids of one create": {func(truth, mirror *[]placed, _ *Acks) {
			again := stored(p, 0, 5)
			a, b := put(m, again)
			*truth, *mirror = append(*truth, a), append(*mirror, b)
		}, report.Check{Acknowledged: 3, Found: 3, Doubled: 1}, "another id"},
		"one id for two creates": {func(_, _ *[]placed, acks *Acks) { *acks = append(*acks, (*acks)[0]) },
			report.Check{Acknowledged: 3, Found: 3, Doubled: 1}, "two creates"},
		"the id of another buyer": {func(_, _ *[]placed, acks *Acks) {
			(*acks)[0].ID = idgen.Make(p.Order(0).UID+10, (*acks)[0].ID.Snowflake())
		}, report.Check{Acknowledged: 3, Found: 3, Wrong: 1}, "its buyer's id is"},
		"one id for another create too": {func(_, _ *[]placed, acks *Acks) {
			*acks = append(*acks, traffic.Ack{ID: (*acks)[0].ID, OutTradeNo: "r1-7"})
		}, report.Check{Acknowledged: 3, Found: 3, Doubled: 1}, "two creates"},
		"the answers of two creates swapped": {func(_, _ *[]placed, acks *Acks) {
			(*acks)[0].OutTradeNo, (*acks)[1].OutTradeNo = (*acks)[1].OutTradeNo, (*acks)[0].OutTradeNo
		}, report.Check{Acknowledged: 3, Found: 3, Wrong: 2}, `acknowledged to "r1-1", stored for r1-0`},
		"only the mirror has it": {func(_, mirror *[]placed, _ *Acks) {
			_, b := put(m, stored(p, 9, 9))
			*mirror = append(*mirror, b)
		}, report.Check{Acknowledged: 3, Found: 3, Unequal: 1}, "the truth hasn't"},
		"stored without an answer": {func(truth, mirror *[]placed, _ *Acks) {
			a, b := put(m, stored(p, 9, 9))
			*truth, *mirror = append(*truth, a), append(*mirror, b)
		}, report.Check{Acknowledged: 3, Found: 3, Open: 1, Wrong: 1}, "never acknowledged"},
		"a number that nobody sent": {func(truth, mirror *[]placed, _ *Acks) {
			o := stored(p, 9, 9)
			o.OutTradeNo = "r1-09"
			a, b := put(m, o)
			*truth, *mirror = append(*truth, a), append(*mirror, b)
		}, report.Check{Acknowledged: 3, Found: 3, Wrong: 1}, "no create of this run"},
	} {
		t.Run(name, func(t *testing.T) {
			var truth, mirror []placed
			var acks Acks
			for i := range 3 {
				o := stored(p, uint64(i), i)
				a, b := put(m, o)
				truth, mirror, acks = append(truth, a), append(mirror, b), append(acks, ackOf(o))
			}
			c.change(&truth, &mirror, &acks)
			got := judged(t, []*traffic.Plan{p}, acks, Config{Mirror: true}, truth, mirror)
			named := strings.Join(got.Named, "\n")
			got.Named, c.want.Mirror = nil, true
			if fmt.Sprint(got) != fmt.Sprint(c.want) || !got.Fails() || !strings.Contains(named, c.named) {
				t.Errorf("%+v, named\n%s\nwant %+v, %s", got, named, c.want, c.named)
			}
		})
	}
}

// Repeats are answered with the order that there is.
func TestARepeatMayBeAcknowledgedAgain(t *testing.T) {
	p := planOf(t, traffic.Config{Run: "r1", Mix: []traffic.Share{{Kind: traffic.Create, Weight: 1}, {Kind: traffic.Repeat, Weight: 1}}})
	a, _ := put(shards(t), stored(p, 0, 0))
	id := ackOf(a.Order)
	got := judged(t, []*traffic.Plan{p}, Acks{id, id, id}, Config{}, []placed{a}, nil)
	if got.Fails() || got.Acknowledged != 1 || got.Found != 1 {
		t.Errorf("%+v", got)
	}
}

// However many are wrong, ten are named.
func TestTheFirstTenAreNamed(t *testing.T) {
	p := planOf(t, traffic.Config{Run: "r1"})
	var acks Acks
	for i := range 25 {
		acks = append(acks, ackOf(stored(p, uint64(i), i)))
	}
	got := judged(t, []*traffic.Plan{p}, acks, Config{}, nil, nil)
	if got.Missing != 25 || len(got.Named) != 10 || !strings.HasPrefix(got.Named[0], acks[0].ID.String()) {
		t.Errorf("%+v", got)
	}
}

// A window is bounded by what was acknowledged and by time, and windows leave no gap.
func TestWindowsAreBounded(t *testing.T) {
	p := planOf(t, traffic.Config{Run: "r1"})
	o := stored(p, 0, 0)
	acks := make(Acks, 50_000)
	for i := range acks {
		acks[i].ID = idgen.Make(o.UID, start+int64(i))
	}
	v := newVerdict(shards(t), []*traffic.Plan{p}, acks, Config{})
	from := start
	for range 2 {
		until := v.end(from)
		if n := v.before(until) - v.before(from); n != windowAcks {
			t.Fatalf("a window of %d acknowledged orders", n)
		}
		from = until
	}
	until := v.end(from)
	if took := idgen.SnowflakeTime(until).Sub(idgen.SnowflakeTime(from)); took != windowTime {
		t.Errorf("a window of %s", took)
	}
	if n := v.before(until); n != len(acks) {
		t.Errorf("%d of %d orders are before the end", n, len(acks))
	}
}
