package openapitest

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// recorder is a testing.TB that notes failures instead of failing.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Errorf(string, ...any) { r.failed = true }
func (r *recorder) Helper()               {}

// canned answers every request the same.
type canned struct {
	status int
	header http.Header
	body   string
}

func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: c.status, Header: c.header, Body: io.NopCloser(strings.NewReader(c.body)), Request: r}, nil
}

func header(pairs ...string) http.Header {
	h := http.Header{"X-Request-Id": {"r1"}, "Cache-Control": {"no-store"}, "Content-Type": {"application/json"}}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

const (
	order      = `{"order_id":"15770253150322220879872","uid":"9527","bid":"1001","out_trade_no":"A-1","amount":1,"currency":"CNY","subject":"s","status":"created","version":1,"paid_amount":0,"refunded_amount":0,"channel":null,"channel_trade_no":null,"metadata":{},"unapplied_payments":0,"close_reason":null,"created_at":"2026-11-30T16:00:00.123Z","updated_at":"2026-11-30T16:00:00.125Z","expires_at":"2026-11-30T16:30:00.123Z","paid_at":null,"closed_at":null}`
	request    = `{"uid":"9527","bid":1001,"out_trade_no":"A-1","amount":1,"currency":"CNY","subject":"s"}`
	location   = "/v1/orders/15770253150322220879872"
	notAllowed = `{"type":"urn:octopay:error:method_not_allowed","title":"t","status":405,"code":"method_not_allowed","detail":"d","request_id":"r1","retryable":false}`
	notFound   = `{"type":"urn:octopay:error:not_found","title":"t","status":404,"code":"not_found","detail":"d","request_id":"r1","retryable":false}`
)

// Whoever checks everything must be seen to find something.
func TestTransportFindsWhatBreaksTheContract(t *testing.T) {
	created := canned{201, header("Location", location), order}
	problem := header("Content-Type", "application/problem+json")
	for _, tc := range []struct {
		name, method, path, body string
		answer                   canned
		fails                    bool
	}{
		{"a create that is right", "POST", "/v1/orders", request, created, false},
		{"a 201 without Location", "POST", "/v1/orders", request, canned{201, header(), order}, true},
		{"an answer that may be cached", "POST", "/v1/orders", request, canned{201, header("Location", location, "Cache-Control", "public"), order}, true},
		{"a status that isn't in the contract", "POST", "/v1/orders", request, canned{202, header(), order}, true},
		{"an amount as text", "POST", "/v1/orders", request, canned{201, header("Location", location), strings.Replace(order, `"amount":1`, `"amount":"1"`, 1)}, true},
		{"a time without ms", "POST", "/v1/orders", request, canned{201, header("Location", location), strings.Replace(order, `00.123Z`, `00Z`, 1)}, true},
		{"a field left out", "POST", "/v1/orders", request, canned{201, header("Location", location), strings.Replace(order, `"paid_at":null,`, ``, 1)}, true},
		{"a forbidden request that was accepted", "POST", "/v1/orders", strings.Replace(request, `"amount":1`, `"amount":0`, 1), created, true},
		{"an unknown field that was accepted", "POST", "/v1/orders", strings.Replace(request, `"amount":1`, `"amount":1,"Amount":2`, 1), created, true},
		{"a path outside the contract that was served", "GET", "/v1/else", "", canned{200, header(), "{}"}, true},
		{"a path outside the contract that was refused", "GET", "/v1/else", "", canned{404, problem, notFound}, false},
		{"a refusal as plain text", "GET", "/v1/else", "", canned{404, header("Content-Type", "text/plain"), notFound}, true},
		{"a refusal without a code", "GET", "/v1/else", "", canned{404, problem, `{"title":"t"}`}, true},
		{"a method outside the contract, with those there are", "PUT", "/v1/orders", "", canned{405, header("Content-Type", "application/problem+json", "Allow", "GET, HEAD, POST"), notAllowed}, false},
		{"a method outside the contract, without those there are", "PUT", "/v1/orders", "", canned{405, problem, notAllowed}, true},
		{"a path outside the contract with another path's code", "GET", "/v1/else", "", canned{404, problem, strings.Replace(notFound, `"code":"not`, `"code":"order_not`, 1)}, true},
		{"a path outside the contract that is a failure", "GET", "/v1/else", "", canned{500, problem, notFound}, true},
		{"a path outside the contract, refused to HEAD", "HEAD", "/v1/else", "", canned{404, problem, ""}, false},
		{"a path that only looks like one of ours", "GET", "/v1/orders/%31", "", canned{404, problem, notFound}, false},
		{"a mirror's list without how far it has come", "GET", "/v1/merchants/1/orders", "", canned{200, header(), `{"data":[],"has_more":false,"next_cursor":null}`}, true},
		{"the same to HEAD", "HEAD", "/v1/merchants/1/orders", "", canned{200, header(), ``}, true},
		{"a HEAD that is right", "HEAD", "/v1/users/1/orders", "", canned{200, header(), ``}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rec := &recorder{TB: t}
			var body io.Reader
			if tc.body != "" {
				body = strings.NewReader(tc.body)
			}
			r, err := http.NewRequest(tc.method, "http://localhost"+tc.path, body)
			if err != nil {
				t.Fatal(err)
			}
			if tc.body != "" {
				r.Header.Set("Content-Type", "application/json")
			}
			res, err := Transport(rec, tc.answer).RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if rec.failed != tc.fails {
				t.Errorf("failed = %t, want %t", rec.failed, tc.fails)
			}
		})
	}
}
