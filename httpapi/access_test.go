package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/octopay/octopay/auth"
	"github.com/octopay/octopay/httpapi/openapitest"
)

// fakeKeys is keys by their text, and what is said of every signature.
type fakeKeys struct {
	keys map[string]auth.Key
	err  error // of every key
	sign func(key auth.Key, h auth.Signature, orderID string, body []byte) error
}

func (f *fakeKeys) Verify(text string) (auth.Key, error) {
	if f.err != nil {
		return auth.Key{}, f.err
	}
	if k, ok := f.keys[text]; ok {
		return k, nil
	}
	return auth.Key{}, auth.ErrUnauthenticated
}

func (f *fakeKeys) VerifySignature(key auth.Key, h auth.Signature, orderID string, body []byte, _ time.Time) error {
	if f.sign == nil {
		return nil
	}
	return f.sign(key, h, orderID, body)
}

// as returns the header of a key.
func as(key string) []string { return []string{"Authorization", "Bearer " + key} }

var developmentKeys = map[string]string{"app": "dev-app", "merchant": "dev-merchant-1001", "channel": "dev-channel", "ops": "dev-ops"}

// The role matrix, written a second time: who may make each call of the contract.
var matrix = map[string]string{
	"POST /v1/orders":                                            "app merchant",
	"GET /v1/orders":                                             "app merchant ops",
	"POST /v1/orders/batch":                                      "app merchant",
	"GET /v1/orders/{order_id}":                                  "app merchant ops",
	"POST /v1/orders/{order_id}/pay":                             "channel",
	"POST /v1/orders/{order_id}/close":                           "app merchant",
	"POST /v1/orders/{order_id}/refunds":                         "app merchant",
	"GET /v1/orders/{order_id}/refunds":                          "app merchant ops",
	"GET /v1/orders/{order_id}/refunds/{out_refund_no}":          "app merchant ops",
	"POST /v1/orders/{order_id}/refunds/{out_refund_no}/result":  "channel",
	"POST /v1/orders/{order_id}/unapplied-payments/{seq}/refund": "app merchant",
	"POST /v1/orders/{order_id}/unapplied-payments/{seq}/void":   "ops",
	"GET /v1/users/{uid}/orders":                                 "app ops",
	"GET /v1/merchants/{bid}/orders":                             "app merchant ops",
	"GET /v1/merchants/{bid}/unapplied-payments":                 "app merchant ops",
	"GET /v1/admin/unapplied-payments":                           "ops",
	"GET /v1/admin/refunds":                                      "ops",
	"GET /v1/admin/conflicts":                                    "ops",
}

// Every call of the contract, by every role, without a key, and with a wrong one.
func TestWhoMayMakeWhichCall(t *testing.T) {
	s := start(t)
	paths := strings.NewReplacer("{order_id}", "15770253150322220879872", "{out_refund_no}", "r", "{seq}", "2", "{uid}", "9527", "{bid}", "1001")
	seen := 0
	for path, item := range openapitest.Document(t).Paths.Map() {
		for method := range item.Operations() {
			call, target := method+" "+path, paths.Replace(path)
			may, known := matrix[call]
			if !known {
				if path != "/openapi.yaml" {
					t.Errorf("nobody says who may %s", call)
				}
				s.send(method, target, "", "Authorization", "").is(200, "")
				continue
			}
			seen++
			for role, key := range developmentKeys {
				got := s.send(method, target, "", as(key)...)
				denied := got.status == 403 && got.object()["code"] == "scope_denied"
				if want := !strings.Contains(" "+may+" ", " "+role+" "); denied != want {
					t.Errorf("%s as %s: %d %s", call, role, got.status, got.body)
				}
			}
			for _, header := range []string{"", "Bearer", "Bearer ", "Bearer dev-nobody", "Basic ZGV2LWFwcDo=", "dev-app", "Bearer dev-app x"} {
				got := s.send(method, target, "", "Authorization", header).is(401, "unauthenticated")
				if got.header.Get("WWW-Authenticate") != "Bearer" {
					t.Errorf("%s with %q has no WWW-Authenticate", call, header)
				}
			}
		}
	}
	if seen != len(matrix) {
		t.Errorf("%d of %d calls are in the contract", seen, len(matrix))
	}
	if s.orders.calls > 12*len(matrix) {
		t.Errorf("%d calls came through", s.orders.calls)
	}
}

// Who calls is known before anything of the request is looked at, and what a role may do
// before its query and body are.
func TestTheKeyComesFirst(t *testing.T) {
	s := start(t)
	s.send("POST", "/v1/orders?x=1", "{", "Authorization", "Bearer dev-nobody").is(401, "unauthenticated")
	s.send("POST", "/v1/orders?x=1", "{", as("dev-ops")...).is(403, "scope_denied")
	s.send("POST", "/v1/orders?x=1", "{", as("dev-app")...).is(400, "malformed_json")
	s.send("POST", "/v1/nowhere", "{", "Authorization", "Bearer dev-nobody").is(404, "not_found")
	s.send("PUT", "/v1/orders", "{", "Authorization", "Bearer dev-nobody").is(405, "method_not_allowed")
	two, err := http.NewRequest("GET", s.url+"/v1/orders?uid=1&bid=1&out_trade_no=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	two.Header["Authorization"] = []string{"Bearer dev-app", "Bearer dev-ops"}
	s.do(two).is(401, "unauthenticated")
	s.api.Drain()
	s.send("GET", "/v1/orders", "", "Authorization", "Bearer dev-nobody").is(401, "unauthenticated")
	s.send("GET", "/v1/users/1/orders", "", as("dev-channel")...).is(503, "draining")
}

// Nobody can say whether a key is good: that is 503, so that the caller keeps it.
func TestKeysThatAreNotKnownNow(t *testing.T) {
	s := start(t, func(c *Config) { c.Keys = &fakeKeys{err: auth.ErrUnavailable} })
	if got := s.create(body()).is(503, "shard_unavailable"); got.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}

// Another merchant's objects are not there, on every call that a merchant has.
func TestAnotherMerchantsObjects(t *testing.T) {
	s := start(t, func(c *Config) {
		c.Keys = &fakeKeys{keys: map[string]auth.Key{
			"1": {ID: "1", Role: auth.Merchant, BID: 1001, Refunds: true}, "2": {ID: "2", Role: auth.Merchant, BID: 1002, Refunds: true},
			"dev-channel": {ID: "c", Role: auth.Channel}, "dev-app": {ID: "a", Role: auth.App},
		}}
	})
	other := as("2")
	s.send("POST", "/v1/orders", body(), other...).is(403, "scope_denied")
	id := s.send("POST", "/v1/orders", body(), as("1")...).is(201, "").object()["order_id"].(string)
	order := "/v1/orders/" + id
	s.post(id, "/pay", money("1", 19900, "CNY")).is(200, "")
	s.post(id, "/pay", money("2", 19900, "CNY")).is(409, "order_already_paid")
	s.send("POST", order+"/refunds", refund("r", 1), as("1")...).is(201, "")
	before := s.get(order, as("1")...).body
	for _, path := range []string{order, order + "?include=journal", order + "/refunds", order + "/refunds/r", "/v1/orders?uid=9527&bid=1001&out_trade_no=20261130-000017"} {
		s.get(path, as("1")...).is(200, "")
		s.get(path, other...).is(404, "order_not_found")
	}
	s.get("/v1/merchants/1001/orders", as("1")...).is(200, "")
	s.get("/v1/merchants/1001/orders", other...).is(404, "merchant_not_found")
	if got := s.get("/v1/merchants/1001/unapplied-payments", as("1")...).is(200, "").object()["data"].([]any); len(got) != 1 {
		t.Errorf("its own unapplied payments: %v", got)
	}
	s.get("/v1/merchants/1001/unapplied-payments", other...).is(404, "merchant_not_found")
	if got := s.get("/v1/merchants/1002/unapplied-payments", other...).is(200, "").object()["data"].([]any); len(got) != 0 {
		t.Errorf("another's unapplied payments: %v", got)
	}
	s.send("POST", order+"/close", "", other...).is(404, "order_not_found")
	s.send("POST", order+"/refunds", refund("q", 1), other...).is(404, "order_not_found")
	s.send("POST", order+"/unapplied-payments/3/refund", `{"out_refund_no":"q"}`, other...).is(404, "order_not_found")
	got := s.send("POST", "/v1/orders/batch", `{"orders":[`+body()+`,`+body("bid", "1002")+`]}`, other...).is(200, "").object()["results"].([]any)
	if status := fmt.Sprint(got[0].(map[string]any)["status"], got[1].(map[string]any)["status"]); status != "403 201" {
		t.Errorf("%s: %v", status, got)
	}
	if after := s.get(order, as("1")...).body; after != before {
		t.Errorf("it was %s, is %s", before, after)
	}
}

// An app's key refunds only if it was made so.
func TestAnAppThatMayNotRefund(t *testing.T) {
	s := start(t, func(c *Config) {
		c.Keys = &fakeKeys{keys: map[string]auth.Key{"dev-app": {ID: "a", Role: auth.App}, "dev-channel": {ID: "c", Role: auth.Channel}}}
	})
	id := s.paid("1")
	s.post(id, "/refunds", refund("r", 1)).is(403, "scope_denied")
	s.post(id, "/unapplied-payments/3/refund", `{"out_refund_no":"r"}`).is(403, "scope_denied")
	s.get("/v1/orders/"+id).has("refunded_amount", 0)
}

// What is signed is the order of the path and the bytes of the body.
func TestPaymentResultsAreSigned(t *testing.T) {
	var orderID, text string
	var h auth.Signature
	var err error
	s := start(t, func(c *Config) {
		c.Keys = &fakeKeys{
			keys: map[string]auth.Key{"dev-app": {ID: "a", Role: auth.App}, "dev-channel": {ID: "c", Role: auth.Channel, Signed: true}},
			sign: func(key auth.Key, sent auth.Signature, id string, body []byte) error {
				if key.Role == auth.Channel {
					orderID, text, h = id, string(body), sent
					return err
				}
				return nil
			},
		}
	})
	id := s.made("1")
	headers := []string{"webhook-id", "msg_1", "webhook-timestamp", "1800000000", "webhook-signature", "v1,abc="}
	for code, of := range map[string]error{"signature_invalid": auth.ErrSignature, "timestamp_skew": auth.ErrSkew} {
		err = of
		got := s.post(id, "/pay", money("1", 19900, "CNY"), headers...)
		if code == "signature_invalid" {
			got.is(401, "signature_invalid")
		} else {
			got.is(401, "timestamp_skew")
		}
		s.post(id, "/refunds/r/result", `{"result":"failed"}`, headers...).is(401, "")
		s.post(id, "/pay", `{`, headers...).is(401, "") // before it is read as anything
	}
	s.get("/v1/orders/"+id).has("version", 1)
	err = nil
	body := money("1", 19900, "CNY") + " "
	s.post(id, "/pay", body, headers...).is(200, "")
	if orderID != id || text != body || h != (auth.Signature{ID: "msg_1", Timestamp: "1800000000", Signature: "v1,abc="}) {
		t.Errorf("verified was %s, %s, %+v", orderID, text, h)
	}
}

// Whose key and which request made an entry is for ops alone.
func TestTheJournalTellsOpsMore(t *testing.T) {
	s := start(t)
	id := s.paid("1")
	path := "/v1/orders/" + id + "?include=journal"
	if got := s.get(path).is(200, "").body; strings.Contains(got, "key_id") || strings.Contains(got, `"request_id"`) {
		t.Errorf("%s", got)
	}
	journal := s.get(path, as("dev-ops")...).is(200, "").object()["journal"].([]any)
	if e := journal[1].(map[string]any); e["key_id"] != "dev-channel" || e["request_id"] == "" || e["actor"] != "channel" {
		t.Errorf("%v", e)
	}
}

// A header of a signature that comes twice is none: what stands before us may have looked at
// the other one.
func TestAHeaderOfASignatureThatComesTwiceIsNone(t *testing.T) {
	var seen []auth.Signature
	s := start(t, func(c *Config) {
		c.Keys = &fakeKeys{
			keys: map[string]auth.Key{"dev-app": {ID: "a", Role: auth.App}, "dev-channel": {ID: "c", Role: auth.Channel, Signed: true}},
			sign: func(_ auth.Key, sent auth.Signature, _ string, _ []byte) error {
				seen = append(seen, sent)
				return auth.ErrSignature
			},
		}
	})
	id := s.made("1")
	for _, twice := range []string{"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"} {
		req, err := http.NewRequest("POST", s.url+"/v1/orders/"+id+"/pay", strings.NewReader(money("1", 19900, "CNY")))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		for _, name := range []string{"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"} {
			req.Header.Set(name, "1")
		}
		req.Header.Add(twice, "1")
		s.do(req).is(401, "signature_invalid")
	}
	want := []auth.Signature{{ID: "", Timestamp: "1", Signature: "1"}, {ID: "1", Timestamp: "", Signature: "1"}, {ID: "1", Timestamp: "1", Signature: ""}}
	if !slices.Equal(seen, want) {
		t.Errorf("verified were %+v, want %+v", seen, want)
	}
}
