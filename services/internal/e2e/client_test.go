package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/octopay/octopay/httpapi/openapitest"
	"github.com/octopay/octopay/internal/eventually"
)

// connections are what every test talks HTTP over: many, kept alive.
var connections = &http.Transport{MaxIdleConnsPerHost: 256, MaxConnsPerHost: 256}

// calls counts, since holding every one of ten thousand answers to the contract takes
// longer than making them.
var calls atomic.Int64

// contractEvery is how many calls go by unseen between two that are compared with the
// contract.
const contractEvery = 50

// A request is the body of a create.
type request struct {
	UID        string            `json:"uid"`
	BID        string            `json:"bid"`
	OutTradeNo string            `json:"out_trade_no"`
	Amount     int64             `json:"amount"`
	Currency   string            `json:"currency"`
	Subject    string            `json:"subject"`
	Metadata   map[string]string `json:"metadata,omitempty"`
}

// An order is what the tests read of one.
type order struct {
	OrderID    string            `json:"order_id"`
	UID        string            `json:"uid"`
	BID        string            `json:"bid"`
	OutTradeNo string            `json:"out_trade_no"`
	Amount     int64             `json:"amount"`
	Currency   string            `json:"currency"`
	Subject    string            `json:"subject"`
	Metadata   map[string]string `json:"metadata"`
	Status     string            `json:"status"`
	Version    int64             `json:"version"`
	UpdatedAt  time.Time         `json:"updated_at"`
	CreatedAt  time.Time         `json:"created_at"`
}

// An answer is what came back. raw is the body without white space around it.
type answer struct {
	status int
	header http.Header
	raw    []byte
}

func (a answer) String() string { return fmt.Sprintf("%d %s", a.status, a.raw) }

// call makes one request with the key of an app; an error is a connection's, not an answer.
func call(t testing.TB, ctx context.Context, method, target string, body any) (answer, error) {
	u, err := url.Parse(target)
	if err != nil {
		return answer{}, err
	}
	return callAs(t, ctx, keyOf(t, u.Host), method, target, body, nil)
}

// callAs is call with another key; sign, unless it is nil, is given the request and the body.
func callAs(t testing.TB, ctx context.Context, key, method, target string, body any, sign func(*http.Request, []byte)) (answer, error) {
	var text []byte
	var r io.Reader
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return answer{}, err
		}
		r = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, target, r)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if sign != nil {
		sign(req, text)
	}
	client := &http.Client{Timeout: 15 * time.Second, Transport: connections}
	if calls.Add(1)%contractEvery == 1 {
		client.Transport = openapitest.Transport(t, connections)
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, bytes.TrimSpace(raw)}, err
}

// A settled is the answer that a create was given for good.
type settled struct {
	answer
	unknown int // attempts that may have made the order without saying so
	told    int // of these, those that were answered with that
}

// settle repeats a create until it is answered for good, as a client should: what is
// retryable, and whatever left the outcome open. Each attempt goes to the next api.
func settle(t testing.TB, api func() string, r request) (s settled, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for {
		s.answer, err = call(t, ctx, http.MethodPost, api()+"/v1/orders", r)
		switch {
		case err != nil && strings.Contains(err.Error(), "connection refused"):
		case err == nil && s.status == http.StatusInternalServerError:
			return s, fmt.Errorf("no fault of another part is an internal error: %s", s.answer)
		case err == nil && s.status == http.StatusGatewayTimeout:
			s.told++
			s.unknown++
		case err != nil:
			s.unknown++
		case s.status != http.StatusServiceUnavailable:
			return s, nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return s, fmt.Errorf("not settled in 5 minutes: %s, %w", s.answer, errors.Join(err, ctx.Err()))
		}
	}
}

// each returns the urls in turn.
func each(urls ...string) func() string {
	var n atomic.Int64
	return func() string { return urls[int(n.Add(1))%len(urls)] }
}

// read gets target, again while the service is too busy.
func read(t testing.TB, target string) (a answer, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Patience)
	defer cancel()
	for {
		a, err = call(t, ctx, http.MethodGet, target, nil)
		if err != nil || a.status != http.StatusServiceUnavailable {
			return a, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return a, ctx.Err()
		}
	}
}

// mustGet reads target, which must be there.
func mustGet(t testing.TB, target string) answer {
	t.Helper()
	a, err := read(t, target)
	if err != nil {
		t.Fatal(err)
	}
	if a.status != http.StatusOK {
		t.Fatalf("GET %s: %s", target, a)
	}
	return a
}

func (a answer) order(t testing.TB) order {
	t.Helper()
	var o order
	if err := json.Unmarshal(a.raw, &o); err != nil {
		t.Fatalf("%v in %s", err, a)
	}
	return o
}

// walk reads a whole list, page by page, and returns the raw orders by id; one that
// comes twice is a fault.
func walk(t testing.TB, target string, limit int) map[string]string {
	t.Helper()
	all := map[string]string{}
	cursor, last := "", ""
	for {
		q := url.Values{"limit": {fmt.Sprint(limit)}}
		if cursor != "" {
			q.Set("cursor", cursor)
		}
		var page struct {
			Data       []json.RawMessage `json:"data"`
			HasMore    bool              `json:"has_more"`
			NextCursor *string           `json:"next_cursor"`
		}
		a := mustGet(t, target+"?"+q.Encode())
		if err := json.Unmarshal(a.raw, &page); err != nil {
			t.Fatalf("%v in %s", err, a)
		}
		for _, raw := range page.Data {
			id := answer{raw: raw}.order(t).OrderID
			if _, twice := all[id]; twice {
				t.Fatalf("%s lists %s twice", target, id)
			}
			if snowflake := id[4:]; last != "" && snowflake >= last {
				t.Fatalf("%s is not newest first", target)
			} else {
				last = snowflake
			}
			all[id] = string(raw)
		}
		if page.HasMore != (page.NextCursor != nil) {
			t.Fatalf("%s: has_more is %v, next_cursor %v", target, page.HasMore, page.NextCursor)
		}
		if !page.HasMore {
			return all
		}
		cursor = *page.NextCursor
	}
}
