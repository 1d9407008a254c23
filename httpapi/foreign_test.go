package httpapi

import (
	"slices"
	"strings"
	"testing"

	"github.com/octopay/octopay/auth"
	"github.com/octopay/octopay/httpapi/openapitest"
)

// Every call of the contract that a merchant may make about an order or a merchant in its
// path: of another merchant's it is 404, whatever else is in it, and nothing changes.
func TestAnotherMerchantsObjectsInEveryCall(t *testing.T) {
	s := start(t, func(c *Config) {
		c.Keys = &fakeKeys{keys: map[string]auth.Key{
			"own": {ID: "1", Role: auth.Merchant, BID: 1001, Refunds: true}, "other": {ID: "2", Role: auth.Merchant, BID: 1002, Refunds: true},
			"dev-channel": {ID: "c", Role: auth.Channel}, "dev-app": {ID: "a", Role: auth.App},
		}}
	})
	// One that every call finds something to do with.
	id := s.paid("1")
	s.post(id, "/pay", money("2", 19900, "CNY")).is(409, "order_already_paid")
	s.send("POST", "/v1/orders/"+id+"/refunds", refund("r", 1), as("own")...).is(201, "")
	var seen []string
	for _, c := range openapitest.Calls(t) {
		role, ofOrder, ofMerchant := matrix[c.String()], slices.Contains(c.Params, "order_id"), slices.Contains(c.Params, "bid")
		if !ofOrder && !ofMerchant || !slices.Contains(strings.Fields(role), "merchant") {
			continue
		}
		seen = append(seen, c.String())
		target := c.Target("order_id", id, "out_refund_no", "r", "seq", "3", "bid", "1001")
		before := s.get("/v1/orders/"+id+"?include=journal", as("own")...).is(200, "").body
		code := "order_not_found"
		if ofMerchant {
			code = "merchant_not_found"
		}
		s.send(c.Method, target, c.Body(), as("other")...).is(404, code)
		s.send(c.Method, target+"?uid=1", c.Body(), as("other")...)
		if after := s.get("/v1/orders/"+id+"?include=journal", as("own")...).body; after != before {
			t.Errorf("%s: it was %s, is %s", c, before, after)
		}
		// Its own merchant is told more: what was asked for was there.
		if got := s.send(c.Method, target, c.Body(), as("own")...); got.status == 404 || got.status == 403 || got.status == 401 {
			t.Errorf("%s by its own merchant: %d %s", c, got.status, got.body)
		}
	}
	if len(seen) < 7 {
		t.Errorf("only %v were tried", seen)
	}
}
