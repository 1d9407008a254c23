package main

import (
	"context"
	"fmt"
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
	Scenario  string  `default:"create" placeholder:"MIX" help:"create, get, look-up, list-by-uid, list-by-bid, repeat, or a mix such as create=3,get=5. Before reads the orders are made that they read."`
	Known     int     `default:"10000" placeholder:"N" help:"How many orders reads read."`
	Buyers    int64   `default:"1000000" placeholder:"N" help:"How many buyers there are."`
	Merchants int     `default:"1000" placeholder:"N" help:"How many merchants there are."`
	Zipf      float64 `default:"0" placeholder:"S" help:"Merchant k has a share like 1/k^S; 0: all have the same."`
	HotBuyer  float64 `default:"0" placeholder:"SHARE" help:"Share of the orders that one buyer makes, 0 to 1."`
	Seed      uint64  `default:"1" placeholder:"N" help:"Of all choices."`
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
	}
	reads, lists := false, false
	for _, s := range mix {
		reads = reads || !s.Kind.Writes()
		lists = lists || s.Kind == traffic.ListByMerchant
	}
	if reads {
		if r.Known < 1 || r.Known > 1_000_000 {
			return nil, nil, nil, usage("--known must be from 1 to 1000000")
		}
		known := config
		known.Run += "k"
		p, err := traffic.New(known)
		if err != nil {
			return nil, nil, nil, usage("%w", err)
		}
		c.say("making %d orders to be read", r.Known)
		if config.Known, err = stock.Make(ctx, s, p, r.Known, nil); err != nil {
			return nil, nil, nil, err
		}
		if lists {
			c.say("waiting until the mirror has them")
			if err := stock.AwaitMirror(ctx, s, config.Known); err != nil {
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
func (c console) key() string { return c.variable("LOADTEST_KEY") }

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
