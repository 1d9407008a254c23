package httpapi

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/octopay/octopay/auth"
)

// paces counts what is asked of a merchant's rate, and has calls left for some.
type paces struct {
	mu    sync.Mutex
	asked []int64
	left  map[int64]int // a merchant that isn't here has no rate
}

func (p *paces) within(bid int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, bid)
	n, limited := p.left[bid]
	if !limited {
		return true
	}
	if n == 0 {
		return false
	}
	p.left[bid] = n - 1
	return true
}

// leave gives a merchant n calls.
func (p *paces) leave(bid int64, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left[bid] = n
}

// counted returns of which merchants calls were counted since it was asked before.
func (p *paces) counted() []int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked := p.asked
	p.asked = nil
	return asked
}

// paced runs an API in which merchants have so many calls left.
func paced(t *testing.T, left map[int64]int) (*service, *paces) {
	p := &paces{left: left}
	return start(t, func(c *Config) {
		c.WithinRate = p.within
		c.Keys = &fakeKeys{keys: map[string]auth.Key{
			"dev-app": {ID: "a", Role: auth.App, Refunds: true}, "dev-channel": {ID: "c", Role: auth.Channel}, "dev-ops": {ID: "o", Role: auth.Ops},
			"1001": {ID: "1", Role: auth.Merchant, BID: 1001, Refunds: true}, "1002": {ID: "2", Role: auth.Merchant, BID: 1002, Refunds: true},
		}}
	}), p
}

// What counts, and for whom: a merchant's call for the merchant, an app's for the one that
// it names, all else for nobody.
func TestWhichCallsCountForWhichMerchant(t *testing.T) {
	s, p := paced(t, nil)
	id := s.paid("1")
	p.counted()
	const lookup = "/v1/orders?uid=9527&bid=1001&out_trade_no=1"
	order := "/v1/orders/" + id
	for _, c := range []struct {
		name, key, method, path, body string
		want                          []int64
	}{
		{"a merchant's create", "1001", "POST", "/v1/orders", body("out_trade_no", `"2"`), []int64{1001}},
		{"an app's create", "dev-app", "POST", "/v1/orders", body("out_trade_no", `"3"`, "bid", "1003"), []int64{1003}},
		{"a repeat", "dev-app", "POST", "/v1/orders", body("out_trade_no", `"3"`, "bid", "1003"), []int64{1003}},
		{"a merchant's create for another", "1001", "POST", "/v1/orders", body("bid", "1003"), nil},
		{"a create that is wrong", "1001", "POST", "/v1/orders", body("amount", "0"), nil},
		{"a merchant's batch", "1001", "POST", "/v1/orders/batch", `{"orders":[` + body() + `,` + body("bid", "1002") + `,` + body("amount", "0") + `,` + body("uid", "1") + `]}`, []int64{1001, 1001}},
		{"an app's batch", "dev-app", "POST", "/v1/orders/batch", `{"orders":[` + body() + `,` + body("bid", "1002") + `]}`, []int64{1001, 1002}},
		{"a merchant's look-up", "1001", "GET", lookup, "", []int64{1001}},
		{"a merchant's look-up of another's", "1002", "GET", lookup, "", []int64{1002}},
		{"an app's look-up", "dev-app", "GET", lookup, "", []int64{1001}},
		{"an operator's look-up", "dev-ops", "GET", lookup, "", nil},
		{"a merchant's read", "1001", "GET", order, "", []int64{1001}},
		{"a merchant's read of nothing", "1001", "GET", "/v1/orders/nothing", "", []int64{1001}},
		{"a merchant's read of refunds", "1001", "GET", order + "/refunds", "", []int64{1001}},
		{"a merchant's refund", "1001", "POST", order + "/refunds", refund("r", 1), []int64{1001}},
		{"a merchant's close", "1001", "POST", order + "/close", "", []int64{1001}},
		{"an app's read", "dev-app", "GET", order, "", nil},
		{"an app's refund", "dev-app", "POST", order + "/refunds", refund("r", 1), nil},
		{"an operator's read", "dev-ops", "GET", order, "", nil},
		{"a payment", "dev-channel", "POST", order + "/pay", money("1", 19900, "CNY"), nil},
		{"a refund's result", "dev-channel", "POST", order + "/refunds/r/result", `{"result":"succeeded"}`, nil},
		{"a merchant's list", "1001", "GET", "/v1/merchants/1001/orders", "", []int64{1001}},
		{"a list of another", "1002", "GET", "/v1/merchants/1001/orders", "", []int64{1002}},
		{"an app's list", "dev-app", "GET", "/v1/merchants/1001/orders", "", []int64{1001}},
		{"an operator's list", "dev-ops", "GET", "/v1/merchants/1001/orders", "", nil},
		{"a merchant's unapplied payments", "1001", "GET", "/v1/merchants/1001/unapplied-payments", "", []int64{1001}},
		{"an app's look at them", "dev-app", "GET", "/v1/merchants/1001/unapplied-payments", "", []int64{1001}},
		{"an operator's look at all", "dev-ops", "GET", "/v1/admin/refunds", "", nil},
		{"a buyer's list", "dev-app", "GET", "/v1/users/9527/orders", "", nil},
		{"a path that there isn't", "1001", "GET", "/v1/nowhere", "", nil},
		{"another role's call", "1001", "GET", "/v1/users/9527/orders", "", nil},
	} {
		s.send(c.method, c.path, c.body, as(c.key)...)
		if got := p.counted(); !slices.Equal(got, c.want) {
			t.Errorf("%s: counted for %v, want %v", c.name, got, c.want)
		}
	}
}

func TestAMerchantOverItsRateIsRefusedAtItsPlaceInTheOrderOfDecisions(t *testing.T) {
	s, p := paced(t, map[int64]int{1001: 0, 1002: 1})
	for _, key := range []string{"1001", "dev-app"} {
		got := s.send("POST", "/v1/orders", body(), append(as(key), "X-Request-Id", "r-1")...).is(429, "rate_limited")
		if after, err := strconv.Atoi(got.header.Get("Retry-After")); err != nil || after < 1 {
			t.Errorf("Retry-After %q", got.header.Get("Retry-After"))
		}
		if got.header.Get("X-Request-Id") != "r-1" || strings.Contains(got.body, "r-1") || got.object()["retryable"] != true || got.header.Get("X-Shed-Reason") != "" {
			t.Errorf("%v %s", got.header, got.body)
		}
		s.get("/v1/merchants/1001/orders", as(key)...).is(429, "rate_limited")
		s.get("/v1/orders?uid=9527&bid=1001&out_trade_no=1", as(key)...).is(429, "rate_limited")
	}
	if s.orders.calls > 0 {
		t.Error("it reached the orders")
	}
	// What is decided before it is told first, and costs nothing of the rate.
	s.get("/v1/nowhere", as("1001")...).is(404, "not_found")
	s.send("POST", "/v1/orders", body("amount", "0"), as("1001")...).is(400, "invalid_parameter")
	s.send("POST", "/v1/orders", body("bid", "1003"), as("1001")...).is(403, "scope_denied")
	// What is decided behind it isn't told.
	s.get("/v1/orders/nothing", as("1001")...).is(429, "rate_limited")
	s.get("/v1/merchants/1003/orders", as("1001")...).is(429, "rate_limited")
	s.send("POST", "/v1/orders/nothing/close", "", as("1001")...).is(429, "rate_limited")
	// The others notice nothing.
	s.send("POST", "/v1/orders", body("bid", "1003")).is(201, "")
	s.send("POST", "/v1/orders", body("bid", "1002"), as("1002")...).is(201, "")
	s.send("POST", "/v1/orders", body("bid", "1002"), as("1002")...).is(429, "rate_limited") // a repeat too
	p.leave(1002, 1)
	s.send("POST", "/v1/orders", body("bid", "1002"), as("1002")...).is(200, "")
	// Money comes in, whatever the rate is.
	p.leave(1001, 1)
	id := s.made("1")
	s.post(id, "/pay", money("1", 19900, "CNY")).is(200, "")
	s.get("/v1/orders/"+id, as("dev-ops")...).is(200, "")
	s.get("/v1/orders/"+id, as("1001")...).is(429, "rate_limited")
}

// An order of a batch has the fate that it would have had alone.
func TestABatchOverTheRateIsTakenInPart(t *testing.T) {
	s, _ := paced(t, map[int64]int{1001: 2, 1002: 0})
	var orders []string
	for i := range 4 {
		orders = append(orders, body("out_trade_no", fmt.Sprintf(`"%d"`, i)))
	}
	orders = append(orders, body("bid", "1002"), body("bid", "1003"))
	results := s.send("POST", "/v1/orders/batch", `{"orders":[`+strings.Join(orders, ",")+`]}`).is(200, "").object()["results"].([]any)
	var got []string
	for _, r := range results {
		got = append(got, fmt.Sprint(r.(map[string]any)["status"]))
	}
	if want := []string{"201", "201", "429", "429", "429", "201"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if e := results[2].(map[string]any)["error"].(map[string]any); e["code"] != "rate_limited" {
		t.Errorf("%v", e)
	}
}
