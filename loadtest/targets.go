package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	vegeta "github.com/tsenart/vegeta/v12/lib"

	"github.com/octopay/octopay/loadtest/stock"
	"github.com/octopay/octopay/loadtest/traffic"
)

// targetsCmd writes requests for vegeta. Their order is random only as far as the plan
// says: the same seed and name make the same ones.
type targetsCmd struct {
	requests `embed:""`

	N    int    `short:"n" default:"10000" placeholder:"N" help:"How many requests. Without -lazy vegeta begins again when it has sent them all: a create is then a repeat."`
	URL  string `name:"url" default:"http://127.0.0.1:8080" placeholder:"URL" help:"The service."`
	Name string `placeholder:"NAME" help:"The first part of each out_trade_no, of 0-9 and a-z; without it one that was never used."`
}

// Run does it.
func (t targetsCmd) Run(ctx context.Context, c console) error {
	if t.N < 1 || t.N > 100_000_000 {
		return usage("-n must be from 1 to 100000000")
	}
	if t.Name == "" && !c.given["name"] {
		t.Name = newName()
	}
	if _, err := traffic.New(traffic.Config{Run: t.Name}); err != nil {
		return usage("--name: %w", err)
	}
	key, err := c.key()
	if err := first(err, isURL("url", t.URL), t.check(c)); err != nil {
		return err
	}
	service := stock.Service{URL: strings.TrimSuffix(t.URL, "/"), Key: key}
	if mix, err := traffic.ParseMix(t.Scenario); err == nil && reads(mix) {
		if err := service.Reach(ctx); err != nil { // it makes orders first
			return err
		}
	}
	plan, _, _, err := t.plan(ctx, service, t.Name, c)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(c.out, 1<<16)
	targets := json.NewEncoder(w) // vegeta's own writes the headers in any order
	targets.SetEscapeHTML(false)
	for n := range uint64(t.N) {
		r := plan.Request(n)
		target := vegeta.Target{Method: r.Method, URL: service.URL + r.Target, Body: r.Body, Header: http.Header{}}
		if r.Body != nil {
			target.Header.Set("Content-Type", "application/json")
		}
		if service.Key != "" {
			target.Header.Set("Authorization", "Bearer "+service.Key)
		}
		if err := targets.Encode(&target); err != nil {
			return err
		}
		if n%1000 == 0 && ctx.Err() != nil {
			return errors.Join(w.Flush(), ctx.Err())
		}
	}
	return w.Flush()
}
