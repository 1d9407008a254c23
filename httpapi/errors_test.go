package httpapi

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/lane"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/payconfig"
)

// calls are one request to each call that asks the stores.
var calls = []struct{ method, path string }{
	{"POST", "/v1/orders"},
	{"GET", "/v1/orders?uid=1&bid=1&out_trade_no=1"},
	{"GET", "/v1/orders/15770253150322220879872"},
	{"HEAD", "/v1/orders/15770253150322220879872"},
	{"GET", "/v1/users/1/orders"},
	{"GET", "/v1/merchants/1/orders"},
}

// all sends every call and hands each answer to see.
func (s *service) all(see func(method, path string, got answer)) {
	s.t.Helper()
	for _, c := range calls {
		sent := ""
		if c.method == "POST" {
			sent = body()
		}
		see(c.method, c.path, s.send(c.method, c.path, sent))
	}
}

func TestWhatGoesWrongInsideHasOneAnswer(t *testing.T) {
	const secret = "6222020012345678"
	wrapped := func(err error) error { return fmt.Errorf("database 3: %w: dial tcp 10.1.2.3:3306: refused", err) }
	for _, tc := range []struct {
		name        string
		err         error
		write, read string // codes
		shed        string
	}{
		{"a lane without room", lane.ErrFull, "overloaded", "overloaded", "queue_full"},
		{"a wait that was too long", wrapped(lane.ErrWait), "overloaded", "overloaded", "queue_wait"},
		{"a lane that is closed", lane.ErrClosed, "draining", "draining", ""},
		{"a database without a free place", wrapped(cluster.ErrBusy), "overloaded", "overloaded", "database"},
		{"a database that is away", wrapped(cluster.ErrUnavailable), "shard_unavailable", "shard_unavailable", ""},
		{"no worker number", wrapped(ordersvc.ErrNoWorker), "shard_unavailable", "shard_unavailable", ""},
		{"an outcome that wasn't learned", wrapped(ordersvc.ErrUnknown), "outcome_unknown", "shard_unavailable", ""},
		{"an outcome that wasn't learned, since the database went away",
			fmt.Errorf("%w: %w", cluster.ErrUnavailable, ordersvc.ErrUnknown), "outcome_unknown", "shard_unavailable", ""},
		{"a deadline", wrapped(context.DeadlineExceeded), "outcome_unknown", "shard_unavailable", ""},
		{"an id made twice", ordersvc.ErrDuplicateID, "internal", "internal", ""},
		{"anything else", errors.New("Error 1366: Incorrect value: '" + secret + "'"), "internal", "internal", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := start(t)
			s.orders.err = tc.err
			s.all(func(method, path string, got answer) {
				want := tc.read
				if method == "POST" {
					want = tc.write
				}
				if method == "HEAD" {
					return // it has no body
				}
				o := got.object()
				if o["code"] != want || o["retryable"] != true {
					t.Errorf("%s %s: %s, want %s", method, path, got.body, want)
				}
				if shed := got.header.Get("X-Shed-Reason"); shed != tc.shed {
					t.Errorf("%s %s: X-Shed-Reason %q", method, path, shed)
				}
				after, _ := strconv.Atoi(got.header.Get("Retry-After"))
				if (got.status == 503) != (after >= 1) {
					t.Errorf("%s %s: %d with Retry-After %q", method, path, got.status, got.header.Get("Retry-After"))
				}
				for _, inside := range []string{"10.1.2.3", "database 3", "1366", secret} {
					if strings.Contains(got.body, inside) {
						t.Errorf("%s %s tells what is inside: %s", method, path, got.body)
					}
				}
			})
			if strings.Contains(s.log.String(), secret) {
				t.Errorf("the log has a value: %s", s.log.String())
			}
		})
	}
}

func TestACallThatTakesTooLongIsAnswered(t *testing.T) {
	s := start(t, func(c *Config) { c.CallTimeout = 200 * time.Millisecond })
	s.orders.block, s.orders.began = make(chan struct{}), make(chan struct{}, len(calls))
	s.all(func(method, path string, got answer) {
		switch method {
		case "POST":
			got.is(504, "outcome_unknown")
		case "GET":
			got.is(503, "shard_unavailable")
		}
	})
}

func TestRetryAfterIsJittered(t *testing.T) {
	s := start(t)
	s.orders.err = cluster.ErrUnavailable
	seen := map[string]bool{}
	for range 200 {
		seen[s.get("/v1/users/1/orders").is(503, "shard_unavailable").header.Get("Retry-After")] = true
	}
	if len(seen) < 3 {
		t.Errorf("always one of %v", seen)
	}
}

// A refusal is made once: its body is the same bytes for everybody.
func TestRefusalsCarryTheRequestIdInTheHeaderOnly(t *testing.T) {
	s := start(t)
	s.orders.err = lane.ErrFull
	a, b := s.create(body()).is(503, "overloaded"), s.create(body()).is(503, "overloaded")
	if a.body != b.body || strings.Contains(a.body, "request_id") || a.header.Get("X-Request-Id") == "" {
		t.Errorf("%v %s", a.header, a.body)
	}
}

func TestAPanicIsAnswered500AndTheServiceGoesOn(t *testing.T) {
	const secret = "6222020012345678"
	var fields map[string]int
	for name, thrown := range map[string]any{
		"a text": secret, "an error": errors.New(secret), "a number": 6222020012345678,
		"the runtime's": func() (err any) {
			defer func() { err = recover() }()
			fields[secret] = 1
			return nil
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.orders.panics = thrown
			s.all(func(method, _ string, got answer) {
				if method != "HEAD" {
					got.is(500, "internal")
				}
			})
			s.orders.panics = nil
			s.create(body()).is(201, "")
			log := s.log.String()
			if !strings.Contains(log, `"msg":"panic"`) || !strings.Contains(log, "fakeOrders") {
				t.Errorf("the log doesn't say where: %s", log)
			}
			if strings.Contains(log, secret) {
				t.Errorf("the log has the value: %s", log)
			}
		})
	}
}

// What the config doesn't allow is answered with its code.
func TestCreatesThatTheConfigDoesNotAllow(t *testing.T) {
	s := start(t)
	s.orders.err = payconfig.ErrMerchantNotFound
	s.create(body()).is(404, "merchant_not_found")
	s.orders.err = payconfig.ErrNotRead
	s.create(body()).is(503, "shard_unavailable")
	s.orders.err = payconfig.ErrMerchantDisabled
	s.create(body()).is(403, "merchant_disabled")
	s.orders.err = payconfig.ErrCurrencyUnsupported
	s.create(body()).is(422, "currency_unsupported")
}
