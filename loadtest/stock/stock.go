// Package stock makes the orders that the reads of a load test read, before it begins,
// and waits until the mirror has them; and it makes sure that a service is there at all.
// It measures nothing.
package stock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/octopay/octopay/loadtest/traffic"
)

// A Service is where orders are made.
type Service struct {
	URL string // scheme, host, port
	Key string // sent as Authorization: Bearer; none
}

const (
	atOnce = 64
	// within is how long one order may take, with all its repeats, and the mirror.
	within = time.Minute
	// between is the time between two attempts.
	between = 100 * time.Millisecond
)

// sayEvery is how often it is said how far a long wait is.
const sayEvery = 5 * time.Second

// reachWithin is how long a service has for its first answer.
const reachWithin = 5 * time.Second

// Reach makes sure that somebody answers at the URL, takes the key, and answers as Octopay
// does. That it is too busy just now is no error.
func (s Service) Reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	client, leave := newClient()
	defer leave()
	resp, err := s.do(ctx, client, http.MethodGet, "/v1/orders?uid=1&bid=1&out_trade_no=reach", nil)
	if err != nil {
		return fmt.Errorf("nobody answers at %s: %w", s.URL, err)
	}
	// What the answer says doesn't matter, and it may never end.
	_ = resp.Body.Close()
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch status := resp.StatusCode; {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return fmt.Errorf("%s refuses the key in LOADTEST_KEY: %s", s.URL, resp.Status)
	case status >= 500 || status == http.StatusTooManyRequests:
		return nil
	case status == http.StatusOK && kind == "application/json", status == http.StatusNotFound && kind == "application/problem+json":
		return nil
	}
	return fmt.Errorf("%s is not Octopay: it answers %s to a look-up", s.URL, resp.Status)
}

// Make creates the first n orders of plan, whose requests must all be creates, and
// returns them in this order. A create that was refused for now, or whose outcome is
// unknown, is repeated. say is told now and then how far it is and what keeps it; it may be
// nil.
func Make(ctx context.Context, s Service, plan *traffic.Plan, n int, say func(string)) ([]traffic.Known, error) {
	if len(plan.Mix) != 1 || plan.Mix[0].Kind != traffic.Create {
		return nil, errors.New("stock: a plan that makes orders has creates alone")
	}
	client, leave := newClient()
	defer leave()
	known := make([]traffic.Known, n)
	var next, done atomic.Int64
	var w watcher
	defer w.every(say, func() string { return fmt.Sprintf("%d of %d orders are made", done.Load(), n) })()
	g, ctx := errgroup.WithContext(ctx)
	for range min(atOnce, n) {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				o := plan.Order(uint64(i))
				id, err := s.create(ctx, client, plan.Request(uint64(i)), o, &w)
				if err != nil {
					return fmt.Errorf("stock: order %d: %w", i, err)
				}
				known[i] = traffic.Known{ID: id, UID: o.UID, BID: o.BID, OutTradeNo: o.OutTradeNo}
				done.Add(1)
			}
		})
	}
	return known, g.Wait()
}

// create sends the create of an order until it is acknowledged.
func (s Service) create(ctx context.Context, client *http.Client, r traffic.Request, o traffic.Order, w *watcher) (id string, err error) {
	err = retry(ctx, w, func(ctx context.Context) (again bool, err error) {
		status, header, body, err := s.send(ctx, client, r.Method, r.Target, r.Body)
		switch {
		case err != nil:
			return true, err
		case status == http.StatusOK || status == http.StatusCreated:
			accepted, fault := o.Accepts(traffic.Success{Status: status, Replayed: header.Get("Idempotent-Replayed") == "true", Body: body})
			if fault != nil {
				return false, fmt.Errorf("%s: %s", fault.Kind, fault.Text)
			}
			id = accepted.String()
			return false, nil
		}
		return status >= 500 || status == http.StatusTooManyRequests, fmt.Errorf("%d %s", status, body)
	})
	return id, err
}

// AwaitMirror waits until the lists of the merchants of all known orders are complete
// up to now. say is told now and then what it waits for; it may be nil.
func AwaitMirror(ctx context.Context, s Service, known []traffic.Known, say func(string)) error {
	client, leave := newClient()
	defer leave()
	now := time.Now()
	var merchant atomic.Int64
	var w watcher
	defer w.every(say, func() string { return fmt.Sprintf("waiting for the mirror of merchant %d", merchant.Load()) })()
	seen := map[int64]bool{}
	for _, k := range known {
		if seen[k.BID] {
			continue
		}
		seen[k.BID] = true
		merchant.Store(k.BID)
		err := retry(ctx, &w, func(ctx context.Context) (again bool, err error) {
			status, header, body, err := s.send(ctx, client, http.MethodGet, "/v1/merchants/"+strconv.FormatInt(k.BID, 10)+"/orders?limit=1", nil)
			if err != nil {
				return true, err
			}
			if status != http.StatusOK {
				return status >= 500, fmt.Errorf("%d %s", status, body)
			}
			until, err := time.Parse(time.RFC3339, header.Get("X-Mirror-Complete-Until"))
			if err != nil {
				return false, err
			}
			if until.Before(now) {
				return true, fmt.Errorf("it is complete until %s", until)
			}
			return false, nil
		})
		if err != nil {
			return fmt.Errorf("stock: the mirror, merchant %d: %w", k.BID, err)
		}
	}
	return nil
}

// A watcher knows what a wait was last kept by.
type watcher struct{ last atomic.Pointer[error] }

// every tells say now and then what state returns, and what the wait was last kept by,
// until the function that it returns is called.
func (w *watcher) every(say func(string), state func() string) (end func()) {
	if say == nil {
		return func() {}
	}
	ended, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(sayEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				text := state()
				if err := w.last.Load(); err != nil {
					text += fmt.Sprintf("; the last answer that kept it: %.200v", *err)
				}
				say(text)
			case <-ended:
				return
			}
		}
	}()
	return func() { close(ended); <-gone }
}

// retry calls f until it needn't be called again, or a minute has passed.
func retry(ctx context.Context, w *watcher, f func(context.Context) (again bool, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		again, err := f(ctx)
		if err == nil || !again {
			return err
		}
		w.last.Store(&err)
		wait := time.NewTimer(between)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return errors.Join(ctx.Err(), err)
		}
	}
}

func newClient() (client *http.Client, leave func()) {
	transport := &http.Transport{MaxIdleConns: atOnce, MaxIdleConnsPerHost: atOnce, DisableCompression: true}
	return &http.Client{
		Transport: transport, Timeout: 15 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, transport.CloseIdleConnections
}

func (s Service) send(ctx context.Context, client *http.Client, method, target string, body []byte) (status int, header http.Header, answer []byte, err error) {
	resp, err := s.do(ctx, client, method, target, body)
	if err != nil {
		return 0, nil, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, resp.Header, answer, err
}

func (s Service) do(ctx context.Context, client *http.Client, method, target string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.URL+target, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if s.Key != "" {
		req.Header.Set("Authorization", "Bearer "+s.Key)
	}
	return client.Do(req)
}
