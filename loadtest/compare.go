package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/octopay/octopay/loadtest/baseline"
	"github.com/octopay/octopay/loadtest/check"
	"github.com/octopay/octopay/loadtest/openloop"
	"github.com/octopay/octopay/loadtest/report"
	"github.com/octopay/octopay/loadtest/rig"
	"github.com/octopay/octopay/loadtest/stock"
	"github.com/octopay/octopay/loadtest/traffic"
)

// compareCmd measures Octopay beside its baselines, on one stack.
type compareCmd struct {
	campaign `embed:""`

	Most        time.Duration `default:"15m" help:"How long all of it may take; then it ends with what it has."`
	Connections []int         `default:"64,512" help:"Of the closed loops of creates."`
	Readers     int           `default:"64" placeholder:"N" help:"Connections of the closed loops of reads."`
	Reading     time.Duration `default:"4s" help:"How long each closed loop of reads is measured, in place of --duration; whole seconds."`
	Known       int           `default:"20000" placeholder:"N" help:"How many orders reads read."`
	Rate        float64       `default:"1000" placeholder:"R" help:"Of the open loop, creates per second: well below what the machine can do, or its latencies are a queue's."`
	Steady      time.Duration `default:"30s" help:"How long the open loop is measured."`
	BufferPool  string        `default:"2G" help:"Of each MariaDB server."`
	RawAtOnce   int           `default:"2" placeholder:"N" help:"Transactions that raw has in flight; the lanes have 2."`
	Pool        int           `default:"64" placeholder:"N" help:"Connections of direct to each server."`
}

// Run does it.
func (c compareCmd) Run(ctx context.Context, out console) error {
	if !(c.Rate > 0 && c.Rate <= openloop.RateMax) {
		return usage("--rate must be above 0, and %d at most", openloop.RateMax)
	}
	if c.Steady < time.Second {
		return usage("--steady must be 1s at least")
	}
	if c.Reading < time.Second || c.Reading%time.Second != 0 {
		return usage("--reading must be whole seconds")
	}
	if err := first(
		// raw has one order in each database at least.
		eachOf("connections", c.Connections, rig.DatabasesDefault, connectionsMax),
		eachOf("known", []int{c.Known}, 1, knownMax), eachOf("readers", []int{c.Readers}, 1, connectionsMax),
		eachOf("pool", []int{c.Pool}, 1, 1000), eachOf("raw-at-once", []int{c.RawAtOnce}, 1, 1000), isMemory("buffer-pool", c.BufferPool),
	); err != nil {
		return err
	}
	return c.conduct(ctx, out, "load", "Octopay side by side with its baselines", c.Most, func(ctx context.Context, d *report.Document) (err error) {
		r, err := rig.Start(ctx, rig.Config{BufferPool: c.BufferPool, Syncerd: true, Pool: c.Pool}, func(line string) { out.say("%s", line) })
		if err != nil {
			return err
		}
		defer func() { err = ended(err, r.Close()) }()
		enter(d, r)
		d.Findings = append(d.Findings, report.Sentence{Text: fmt.Sprintf(
			"direct has %d connections to each server; raw has %d transactions in flight (the lanes have 2), each with a database's share of the connections' number of orders; latencies of transactions are no latencies of orders, so raw has none.", c.Pool, c.RawAtOnce)})
		urls := map[string]string{rig.Octopay: r.URL()}
		for _, kind := range []string{baseline.Direct, baseline.Echo} {
			if urls[kind], _, _, err = r.Baseline(ctx, kind); err != nil {
				return err
			}
		}
		// First what needs the mirror to be caught up, last what leaves most behind.
		for _, part := range []func(context.Context, console, *report.Document, *rig.Rig, map[string]string) error{
			c.steady, c.reads, c.mirror, c.batches, c.writes,
		} {
			if err := part(ctx, out, d, r, urls); err != nil {
				return err
			}
		}
		return nil
	})
}

// steady measures latencies where nothing is scarce.
func (c compareCmd) steady(ctx context.Context, out console, d *report.Document, r *rig.Rig, _ map[string]string) error {
	run, err := c.open(ctx, r, c.Rate, c.Steady, nil)
	if run.Sent > 0 {
		out.tell("creates, open loop", run)
		d.Runs = append(d.Runs, run)
	}
	return err
}

// reads compares each kind of read with one SELECT.
func (c compareCmd) reads(ctx context.Context, out console, d *report.Document, r *rig.Rig, urls map[string]string) error {
	// Ten orders of each buyer, so that a buyer's list is one.
	made, err := c.newPlan(func(t *traffic.Config) { t.Buyers = int64(max(1, c.Known/10)) })
	if err != nil {
		return err
	}
	out.say("making %d orders that reads read", c.Known)
	known, err := stock.Make(ctx, stock.Service{URL: r.URL(), Key: r.Key()}, made, c.Known, out.line)
	if err != nil {
		return err
	}
	if err := check.AwaitMirror(ctx, r.Cluster(), mirrorWithin, out.line); err != nil {
		return err
	}
	if err := r.StopSyncerd(); err != nil {
		return err
	}
	m := c.campaign
	m.Duration = c.Reading
	for _, kind := range traffic.Kinds {
		if kind.Writes() {
			continue
		}
		read := func(target string) contender {
			return contender{target, func(ctx context.Context) (report.Run, error) {
				plan, err := c.newPlan(func(t *traffic.Config) { t.Known, t.Mix = known, []traffic.Share{{Kind: kind, Weight: 1}} })
				if err != nil {
					return report.Run{}, err
				}
				return m.closed(ctx, r, target, urls[target], plan, c.Readers, nil)
			}}
		}
		name := fmt.Sprintf("%s, %d connections, without syncerd", kind, c.Readers)
		if err := c.rounds(ctx, out, d, name, []string{baseline.Direct}, read(rig.Octopay), read(baseline.Direct)); err != nil {
			return err
		}
	}
	return nil
}

// mirror compares creates while they are mirrored with creates that aren't.
func (c compareCmd) mirror(ctx context.Context, out console, d *report.Document, r *rig.Rig, urls map[string]string) error {
	const with, without = "octopay with syncerd", "octopay without syncerd"
	connections := c.Connections[0]
	creates := func(target string) contender {
		return contender{target, func(ctx context.Context) (report.Run, error) {
			if target == without {
				return c.creates(ctx, r, rig.Octopay, urls[rig.Octopay], connections, false)
			}
			if err := r.StartSyncerd(ctx); err != nil {
				return report.Run{}, err
			}
			// What the others left is not this run's.
			if err := check.AwaitMirror(ctx, r.Cluster(), mirrorWithin, out.line); err != nil {
				return report.Run{}, err
			}
			run, err := c.creates(ctx, r, rig.Octopay, urls[rig.Octopay], connections, true)
			return run, errors.Join(err, r.StopSyncerd())
		}}
	}
	name := fmt.Sprintf("create, %d connections, with and without syncerd", connections)
	return c.rounds(ctx, out, d, name, []string{without}, creates(with), creates(without))
}

// batchConnections is how many connections send batches: as many orders are under way as
// with some hundreds that send creates.
const batchConnections = 16

// batches compares creates in batches with creates one by one, of as many orders under way.
func (c compareCmd) batches(ctx context.Context, out console, d *report.Document, r *rig.Rig, _ map[string]string) error {
	const together, alone = "batches", "single creates"
	m := c.campaign
	m.Duration = c.Reading
	send := func(target string, connections int, mix traffic.Kind) contender {
		return contender{target, func(ctx context.Context) (report.Run, error) {
			plan, err := c.newPlan(func(t *traffic.Config) { t.Mix = []traffic.Share{{Kind: mix, Weight: 1}} })
			if err != nil {
				return report.Run{}, err
			}
			return m.closed(ctx, r, rig.Octopay, r.URL(), plan, connections, func(run *report.Run, acks check.Acks, _ *rig.Record) error {
				return checked(ctx, r.Cluster(), r, run, []*traffic.Plan{plan}, acks, check.Config{})
			})
		}}
	}
	plan, err := c.newPlan(func(t *traffic.Config) { t.Mix = []traffic.Share{{Kind: traffic.Batch, Weight: 1}} })
	if err != nil {
		return err
	}
	orders := batchConnections * plan.PerRequest()
	name := fmt.Sprintf("create, %d orders under way, in batches of %d and one by one, without syncerd", orders, plan.PerRequest())
	return c.rounds(ctx, out, d, name, []string{alone}, send(together, batchConnections, traffic.Batch), send(alone, orders, traffic.Create))
}

// writes compares creates with all baselines.
func (c compareCmd) writes(ctx context.Context, out console, d *report.Document, r *rig.Rig, urls map[string]string) error {
	for _, connections := range c.Connections {
		serve := func(target string) contender {
			return contender{target, func(ctx context.Context) (report.Run, error) {
				return c.creates(ctx, r, target, urls[target], connections, false)
			}}
		}
		raw := contender{baseline.Raw, func(ctx context.Context) (report.Run, error) { return c.raw(ctx, r, connections, c.RawAtOnce) }}
		contenders := []contender{serve(rig.Octopay), serve(baseline.Direct), serve(baseline.Echo), raw}
		var baselines []string
		for _, one := range contenders[1:] {
			baselines = append(baselines, one.target)
		}
		name := fmt.Sprintf("create, %d connections, without syncerd", connections)
		if err := c.rounds(ctx, out, d, name, baselines, contenders...); err != nil {
			return err
		}
	}
	return nil
}
