package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/loadtest/stock"
	"github.com/octopay/octopay/loadtest/traffic"
)

// A requests is the flags that say what is sent.
type requests struct {
	Scenario  string  `default:"create" placeholder:"MIX" help:"create, batch, get, look-up, list-by-uid, list-by-bid, repeat, or a mix such as create=3,get=5. Before reads the orders are made that they read."`
	BatchSize int     `name:"batch-size" default:"50" placeholder:"N" help:"How many orders a batch has."`
	Known     int     `default:"10000" placeholder:"N" help:"How many orders reads read."`
	Buyers    int64   `default:"1000000" placeholder:"N" help:"How many buyers there are."`
	Merchants int     `default:"1000" placeholder:"N" help:"How many merchants there are."`
	Zipf      float64 `default:"0" placeholder:"S" help:"Merchant k has a share like 1/k^S; 0: all have the same."`
	HotBuyer  float64 `default:"0" placeholder:"SHARE" help:"Share of the orders that one buyer makes, 0 to 1."`
	Seed      uint64  `default:"1" placeholder:"N" help:"Of all choices."`
}

// check says what is wrong with the flags.
func (r requests) check(c console) error {
	mix, err := traffic.ParseMix(r.Scenario)
	if err != nil {
		return usage("--scenario: %w", err)
	}
	seen := map[traffic.Kind]bool{}
	for _, s := range mix {
		if seen[s.Kind] {
			return usage("--scenario has %s twice; its weights are to be added up", s.Kind)
		}
		seen[s.Kind] = true
	}
	if !reads(mix) {
		if err := c.only("belongs to a scenario that reads: no other needs orders before the run", "known"); err != nil {
			return err
		}
	}
	if !seen[traffic.Batch] {
		if err := c.only("belongs to a scenario with batches", "batch-size"); err != nil {
			return err
		}
	}
	switch {
	case r.BatchSize < 1 || r.BatchSize > traffic.BatchMax:
		return usage("--batch-size must be from 1 to %d", traffic.BatchMax)
	case r.Known < 1 || r.Known > knownMax:
		return usage("--known must be from 1 to %d", knownMax)
	case r.Buyers < 1:
		return usage("--buyers must be 1 at least")
	case r.Merchants < 1 || r.Merchants > traffic.MerchantsMax:
		return usage("--merchants must be from 1 to %d", traffic.MerchantsMax)
	case !(r.Zipf >= 0 && r.Zipf <= 10):
		return usage("--zipf must be from 0 to 10")
	case !(r.HotBuyer >= 0 && r.HotBuyer <= 1):
		return usage("--hot-buyer is a share, from 0 to 1")
	}
	return nil
}

// knownMax bounds the orders that reads read: all of them are in memory.
const knownMax = 1_000_000

// reads reports whether a mix has requests that read.
func reads(mix []traffic.Share) bool {
	return slices.ContainsFunc(mix, func(s traffic.Share) bool { return !s.Kind.Writes() })
}

// plan returns the plan of the requests, and the plans of the orders that were made
// for it, with their acknowledgements. name begins the names of both.
func (r requests) plan(ctx context.Context, s stock.Service, name string, c console) (plan *traffic.Plan, before []*traffic.Plan, acks []traffic.Ack, err error) {
	mix, err := traffic.ParseMix(r.Scenario)
	if err != nil {
		return nil, nil, nil, usage("%w", err)
	}
	config := traffic.Config{
		Run: name, Seed: r.Seed, Buyers: r.Buyers, Merchants: r.Merchants, Zipf: r.Zipf, HotBuyer: r.HotBuyer,
		BatchSize: r.BatchSize,
	}
	if reads(mix) {
		known := config
		known.Run += "k"
		p, err := traffic.New(known)
		if err != nil {
			return nil, nil, nil, usage("%w", err)
		}
		c.say("making %d orders to be read", r.Known)
		if config.Known, err = stock.Make(ctx, s, p, r.Known, c.line); err != nil {
			return nil, nil, nil, err
		}
		if slices.ContainsFunc(mix, func(s traffic.Share) bool { return s.Kind == traffic.ListByMerchant }) {
			c.say("waiting until the mirror has them")
			if err := stock.AwaitMirror(ctx, s, config.Known, c.line); err != nil {
				return nil, nil, nil, err
			}
		}
		before = append(before, p)
		for _, k := range config.Known {
			id, err := idgen.Parse(k.ID)
			if err != nil {
				return nil, nil, nil, fmt.Errorf("the answer to a create: %w", err)
			}
			acks = append(acks, traffic.Ack{ID: id, OutTradeNo: k.OutTradeNo})
		}
	}
	config.Mix = mix
	if plan, err = traffic.New(config); err != nil {
		return nil, nil, nil, usage("%w", err)
	}
	return plan, before, acks, nil
}

// newName returns a name that no run had before: a service that was measured keeps its
// orders, and the same out_trade_no again would be a replay.
var newName = func() func() string {
	var mu sync.Mutex
	var last int64
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		last = max(last+1, time.Now().UnixMilli())
		return "l" + strconv.FormatInt(last, 36)
	}
}()

// key returns the key of the service from the environment.
func (c console) key() (string, error) {
	key := c.variable("LOADTEST_KEY")
	if strings.ContainsAny(key, "\r\n") {
		return "", usage("LOADTEST_KEY must be one line")
	}
	return key, nil
}

// service returns the service at url, which must answer.
func (c console) service(ctx context.Context, url string) (stock.Service, error) {
	key, err := c.key()
	if err != nil {
		return stock.Service{}, err
	}
	s := stock.Service{URL: strings.TrimSuffix(url, "/"), Key: key}
	return s, s.Reach(ctx)
}

// isURL is an error when a flag isn't the address of a service.
func isURL(flag, text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
		return usage("--%s must be like http://127.0.0.1:8080", flag)
	}
	return nil
}

func (c console) variable(name string) (value string) {
	for _, pair := range c.environ {
		if key, is, _ := strings.Cut(pair, "="); key == name {
			value = is
		}
	}
	return value
}

// count writes n of something.
func count(n int64, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}
