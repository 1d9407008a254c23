package e2e_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/octopay/octopay/auth"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
)

// A cast is a key of every role. The merchant's bid is 1001.
type cast struct {
	app, merchant, ops string
	channel            *channelKey
	store              *auth.Store
}

// newCast makes keys; a program that is started with settings knows them.
func newCast(t *testing.T, stack *localstack.Stack) *cast {
	t.Helper()
	masters, err := auth.ParseMasters(masterKey)
	if err != nil {
		t.Fatal(err)
	}
	c := &cast{channel: newChannel(t, stack), store: auth.NewStore(stack.Cluster(t).Meta(), masters)}
	for _, k := range []struct {
		spec auth.Spec
		text *string
	}{
		{auth.Spec{Role: auth.App, Refunds: true}, &c.app},
		{auth.Spec{Role: auth.Merchant, BID: 1001}, &c.merchant},
		{auth.Spec{Role: auth.Ops}, &c.ops},
	} {
		made, err := c.store.Create(t.Context(), k.spec, "test")
		if err != nil {
			t.Fatal(err)
		}
		*k.text = made.Text
	}
	return c
}

// settings are what a program needs to know of the stack of a cast.
func (c *cast) settings(t *testing.T, stack *localstack.Stack) []string {
	t.Helper()
	return append(environment(t, stack), "OCTOPAY_MASTER_KEY="+masterKey)
}

// who returns the key of a role that may make a call, and what signs it.
func (c *cast) who(path string) (key string, sign func(*http.Request, []byte)) {
	path, _, _ = strings.Cut(path, "?")
	switch {
	case strings.HasSuffix(path, "/pay"), strings.HasSuffix(path, "/result"):
		return c.channel.text, c.channel.sign(orderOf(path))
	case strings.HasSuffix(path, "/void"), strings.HasPrefix(path, "/v1/admin/"):
		return c.ops, nil
	}
	return c.app, nil
}

// orderOf returns the order in a path, as it is written there.
func orderOf(path string) string {
	parts := strings.Split(path, "/")
	if len(parts) < 4 {
		return ""
	}
	return parts[3]
}

// send sends a request as it is, as a role that may unless its header says who, again while
// the service is too busy.
func (c *cast) send(t testing.TB, method, base, target, body string, header http.Header) (answer, error) {
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Patience)
	defer cancel()
	for {
		var r io.Reader
		if body != "" {
			r = strings.NewReader(body)
		}
		req, err := http.NewRequestWithContext(ctx, method, base+target, r)
		if err != nil {
			return answer{}, fmt.Errorf("%s %q: %w", method, target, err)
		}
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		key, sign := c.who(target)
		req.Header.Set("Authorization", "Bearer "+key)
		if sign != nil {
			sign(req, []byte(body))
		}
		maps.Copy(req.Header, header)
		resp, err := (&http.Client{Timeout: 30 * time.Second, Transport: connections}).Do(req)
		if err != nil {
			return answer{}, err
		}
		raw, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusServiceUnavailable && resp.StatusCode != http.StatusGatewayTimeout {
			return answer{resp.StatusCode, resp.Header, raw}, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return answer{resp.StatusCode, resp.Header, raw}, ctx.Err()
		}
	}
}

// must is send of what must be answered with a status.
func (c *cast) must(t testing.TB, status int, method, base, target, body string) answer {
	t.Helper()
	a, err := c.send(t, method, base, target, body, nil)
	if err != nil || a.status != status {
		t.Fatalf("%s %s %s: %s, %v; want %d", method, target, body, a, err, status)
	}
	return a
}

// born creates an order of merchant 1001 and returns its id.
func (c *cast) born(t testing.TB, base, number string, amount int64, currency string) string {
	t.Helper()
	body := fmt.Sprintf(`{"uid":"9527","bid":"1001","out_trade_no":%q,"amount":%d,"currency":%q,"subject":"Le Max 2"}`, number, amount, currency)
	return c.must(t, http.StatusCreated, http.MethodPost, base, "/v1/orders", body).order(t).OrderID
}

// payment is the body of a payment result.
func payment(number string, amount int64, currency string) string {
	return fmt.Sprintf(`{"channel":"wechat","channel_trade_no":%q,"amount":%d,"currency":%q}`, number, amount, currency)
}
