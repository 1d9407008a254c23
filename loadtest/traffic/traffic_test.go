package traffic

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func plan(t *testing.T, c Config) *Plan {
	t.Helper()
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var known = []Known{{ID: "15770253150322220879872", UID: 9527, BID: 1001, OutTradeNo: "a|1"}}

func TestEachKindIsSentAsTheContractSays(t *testing.T) {
	for kind, target := range map[Kind]string{
		Create:         "POST /v1/orders",
		Get:            "GET /v1/orders/15770253150322220879872",
		LookUp:         "GET /v1/orders?uid=9527&bid=1001&out_trade_no=a%7C1",
		ListByUser:     "GET /v1/users/9527/orders",
		ListByMerchant: "GET /v1/merchants/1001/orders",
	} {
		r := plan(t, Config{Run: "r1", Mix: []Share{{kind, 1}}, Known: known}).Request(7)
		if got := r.Method + " " + r.Target; got != target || r.Kind != kind || (r.Body != nil) != kind.Writes() {
			t.Errorf("%s is sent as %s, with a body: %t", kind, got, r.Body != nil)
		}
	}
}

// What is stored under a number is what was sent under it, by whichever process.
func TestRequestsAreAFunctionOfThePlanAndTheirNumber(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := Config{
			Run: "r1", Seed: rapid.Uint64().Draw(rt, "seed"), Buyers: rapid.Int64Range(1, math.MaxInt64).Draw(rt, "buyers"),
			Merchants: rapid.IntRange(1, 50).Draw(rt, "merchants"), Zipf: rapid.Float64Range(0, 3).Draw(rt, "zipf"),
			Mix: []Share{{Create, 2}, {Repeat, 3}, {Get, 1}}, Known: known,
		}
		a, b := plan(t, c), plan(t, c)
		n := rapid.Uint64Range(0, 1<<40).Draw(rt, "n")
		r := a.Request(n)
		if again := b.Request(n); string(again.Body) != string(r.Body) || again.Target != r.Target {
			rt.Fatalf("request %d is %s and %s", n, r.Body, again.Body)
		}
		if !r.Kind.Writes() {
			return
		}
		if r.Order > n || r.Kind == Create != (r.Order == n) {
			rt.Fatalf("request %d, a %s, is of order %d", n, r.Kind, r.Order)
		}
		var sent struct {
			UID, BID   int64  `json:",string"`
			OutTradeNo string `json:"out_trade_no"`
			Amount     int64
			Currency   string
			Subject    string
			Metadata   json.RawMessage
		}
		if err := json.Unmarshal(r.Body, &sent); err != nil {
			rt.Fatal(err)
		}
		number, ok := b.Number(sent.OutTradeNo)
		if !ok || number != r.Order {
			rt.Fatalf("%s is number %d, %t; want %d", sent.OutTradeNo, number, ok, r.Order)
		}
		o := b.Order(number)
		got := Order{sent.UID, sent.BID, sent.OutTradeNo, sent.Amount, sent.Currency, sent.Subject, o.SKU}
		if got != o || string(sent.Metadata) != o.Metadata() {
			rt.Fatalf("sent %s, want %+v", r.Body, o)
		}
		if o.UID < 1 || o.UID > c.Buyers || o.BID < firstBID || o.BID >= firstBID+int64(c.Merchants) {
			rt.Fatalf("%+v", o)
		}
	})
}

func TestNumbersOfOthersAreNotOurs(t *testing.T) {
	p := plan(t, Config{Run: "r1"})
	for _, s := range []string{"", "r1", "r1-", "r2-1", "r1-01", "r1-+1", "r1-x", "r1-18446744073709551616", "r11-1"} {
		if n, ok := p.Number(s); ok {
			t.Errorf("%q is number %d", s, n)
		}
	}
	reads := plan(t, Config{Run: "r1", Mix: []Share{{Get, 1}}, Known: known})
	if _, ok := reads.Number("r1-1"); ok {
		t.Error("a read made an order")
	}
}

func TestSharesAreWhatWasAskedFor(t *testing.T) {
	const n = 20_000
	p := plan(t, Config{Run: "r1", Seed: 3, Merchants: 100, Zipf: 1, HotBuyer: 0.25, Mix: []Share{{Create, 3}, {Get, 1}}, Known: known})
	var creates, hot, first, second int
	for i := range uint64(n) {
		if r := p.Request(i); r.Kind != Create {
			continue
		}
		creates++
		o := p.Order(i)
		if o.UID == 1 {
			hot++
		}
		switch o.BID {
		case firstBID:
			first++
		case firstBID + 1:
			second++
		}
	}
	near := func(what string, got, want float64) {
		if math.Abs(got-want) > 0.15*want {
			t.Errorf("%s: %.3f, want %.3f", what, got, want)
		}
	}
	near("creates", float64(creates)/n, 0.75)
	near("the hot buyer's", float64(hot)/float64(creates), 0.25)
	near("the first merchant's over the second's", float64(first)/float64(second), 2)
	near("the first merchant's", float64(first)/float64(creates), 1/5.187) // 1/H(100)
}

func TestAMixIsReadAsItIsWritten(t *testing.T) {
	for text, scenario := range map[string]string{
		"get": "get", "get=7": "get", "create=3,look-up": "create=3,look-up=1", "create=1,repeat=2,list-by-bid=3": "create=1,repeat=2,list-by-bid=3",
	} {
		mix, err := ParseMix(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := plan(t, Config{Run: "r1", Mix: mix, Known: known}).Scenario(); got != scenario {
			t.Errorf("%q is %q, want %q", text, got, scenario)
		}
	}
	for _, text := range []string{"", "pay", "get=0", "get=", "get=1.5", "get,", "get=1=2", " get"} {
		if mix, err := ParseMix(text); err == nil {
			t.Errorf("%q is %v", text, mix)
		}
	}
}

func TestWhatIsWrongWithAPlanIsNamed(t *testing.T) {
	for want, c := range map[string]Config{
		"name":            {Run: "A"},
		"a buyer":         {Run: "r", Buyers: -1},
		"1 to 100000":     {Run: "r", Merchants: MerchantsMax + 1},
		"exponent":        {Run: "r", Zipf: math.NaN()},
		"hot buyer":       {Run: "r", HotBuyer: 1.1},
		`kind of request`: {Run: "r", Mix: []Share{{"pay", 1}}},
		"weight of get":   {Run: "r", Mix: []Share{{Get, 0}}, Known: known},
		"that get could":  {Run: "r", Mix: []Share{{Get, 1}}},
	} {
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}

func BenchmarkRequest(b *testing.B) {
	p, err := New(Config{Run: "r1", Zipf: 1.1})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	n := uint64(0)
	for b.Loop() {
		p.Request(n)
		n++
	}
}

// A batch is as many creates in one request, each with a number that no other request has.
func TestABatchHasOrdersOfItsOwn(t *testing.T) {
	p := plan(t, Config{Run: "r1", Mix: []Share{{Create, 2}, {Batch, 2}, {Repeat, 1}, {Get, 1}}, BatchSize: 7, Known: known})
	if p.PerRequest() != 7 || p.Scenario() != "create=2,batch=2,repeat=1,get=1" {
		t.Errorf("%d, %s", p.PerRequest(), p.Scenario())
	}
	type sent struct {
		UID        int64  `json:",string"`
		OutTradeNo string `json:"out_trade_no"`
	}
	numbers := map[uint64]bool{}
	kinds := map[Kind]int{}
	for n := range uint64(500) {
		r := p.Request(n)
		kinds[r.Kind]++
		first, orders := p.Writes(n)
		if p.Batches(n) != (r.Kind == Batch) || orders > 0 && first != r.Order {
			t.Fatalf("request %d, a %s, is of %d orders from %d on", n, r.Kind, orders, first)
		}
		switch r.Kind {
		case Create:
			if first != n*7 || orders != 1 || numbers[first] {
				t.Errorf("request %d creates %d from %d on", n, orders, first)
			}
			numbers[first] = true
		case Repeat:
			if !numbers[first] || orders != 1 || p.kind(first/7) != Create {
				t.Errorf("request %d repeats %d", n, first)
			}
		case Batch:
			var all struct{ Orders []sent }
			if err := json.Unmarshal(r.Body, &all); err != nil || len(all.Orders) != 7 || orders != 7 || first != n*7 || r.Target != "/v1/orders/batch" {
				t.Fatalf("request %d: %v, %s", n, err, r.Body)
			}
			for i, o := range all.Orders {
				number, ok := p.Number(o.OutTradeNo)
				if want := first + uint64(i); !ok || number != want || numbers[want] || p.Order(number).UID != o.UID {
					t.Errorf("order %d of request %d is number %d, %t", i, n, number, ok)
				}
				numbers[number] = true
			}
		}
		if _, ok := p.Number(fmt.Sprint("r1-", n*7+1)); ok != (r.Kind == Batch) {
			t.Errorf("request %d, a %s, has a second order: %t", n, r.Kind, ok)
		}
	}
	if len(kinds) != 4 {
		t.Errorf("%v", kinds)
	}
	for _, size := range []int{-1, BatchMax + 1} {
		if _, err := New(Config{Run: "r1", BatchSize: size}); err == nil {
			t.Errorf("a batch of %d", size)
		}
	}
	if p := plan(t, Config{Run: "r1", Mix: []Share{{Batch, 1}}}); p.PerRequest() != 50 {
		t.Errorf("a batch has %d orders", p.PerRequest())
	}
}
