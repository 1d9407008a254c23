// Package closedloop sends as much as a number of connections can carry: each sends
// its next request when it has the answer to the last. That says what a service can
// do at most; how long people wait it doesn't say, since nobody waits for a
// connection that doesn't send (package openloop does).
//
// It sends with wrk, which takes little of the machine that the service runs on too.
// The requests are written into files before the run, and a Lua program in wrk reads
// them, one after the other.
package closedloop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/octopay/octopay/loadtest/report"
	"github.com/octopay/octopay/loadtest/traffic"
)

// A Config is how to send. Zero values are the defaults.
type Config struct {
	URL         string // of the service: http, host, port
	Key         string // sent as Authorization: Bearer; none
	Connections int    // 64
	Threads     int    // of wrk, which share the connections evenly; 2, or 1 where that doesn't go
	// Warmup is sent before what is measured, and says how many requests to prepare
	// for it; 2 s. What it wrote is acknowledged as well.
	Warmup   time.Duration
	Duration time.Duration // whole seconds
	// Second is called when a second has ended, with its answers by status; it has no
	// latencies. Which of them were no orders is known at the end.
	Second func(report.Second)
	Begin  func() // called right before what is measured
}

// Bounds of a run.
const (
	warmupRate = 40_000  // requests of one order that are prepared for a second of warming up
	bytesMax   = 8 << 30 // of files
	// spare is how many more requests are prepared than the warm-up would have sent in
	// the time: nothing is as fast when it begins.
	spare = 2.0
)

// late is how long wrk waits for an answer before it leaves it out of its latencies.
// The service answers everything in 10 s.
const late = 15 * time.Second

// Run sends the requests of plan, from number first on, for c.Duration, and returns
// beside the figures the creates that were acknowledged, as traffic.Ledger has it. Which
// numbers were sent isn't known to the last one: another run of the same plan must
// begin far above. Requests that are under way at the end are cut off.
//
// Latencies are wrk's. They count from the sending, and for each slow answer wrk adds
// those of the requests that its connection would have sent meanwhile, at its mean
// pace; that is an estimate, where package openloop measures. When ctx ends before that,
// sending ends: the run is of the time until then, and invalid.
func Run(ctx context.Context, plan *traffic.Plan, first uint64, c Config) (run report.Run, acks []traffic.Ack, err error) {
	base, err := c.check()
	if err != nil {
		return report.Run{}, nil, err
	}
	wrk, err := find(ctx)
	if err != nil {
		return report.Run{}, nil, err
	}
	dir, err := os.MkdirTemp("", "octopay-wrk-")
	if err != nil {
		return report.Run{}, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	lines := header(base, c.Key)
	judge := judge{plan, traffic.NewLedger(plan)}
	send := func(name string, n int, d time.Duration, c Config) (o outcome, err error) {
		w := wrkRun{binary: wrk, dir: filepath.Join(dir, name), config: c, duration: d, writes: plan.Creates(), answerMax: plan.AnswerMax()}
		if err := os.Mkdir(w.dir, 0o700); err != nil {
			return o, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(w.dir)) }()
		if err := write(w.dir, plan, first, n, c.Threads, lines); err != nil {
			return o, err
		}
		if o, err = w.run(ctx); err != nil || o.DurationUS == 0 {
			return o, err
		}
		err = judge.take(w.dir, c.Threads, o.until(first), &o)
		first += uint64(n)
		return o, err
	}
	n := warmupRate*int(c.Warmup/time.Second)/plan.PerRequest() + c.Connections
	warm, err := send("warmup", n, c.Warmup, Config{URL: c.URL, Connections: c.Connections, Threads: c.Threads})
	if err != nil {
		return report.Run{}, nil, fmt.Errorf("warming up: %w", err)
	}
	before := warm.report(plan, c).Unsettled()
	if ctx.Err() != nil {
		run = outcome{started: time.Now()}.report(plan, c)
		run.UnsettledBefore = before
		return run, judge.ledger.Acks(), nil
	}
	perSecond := float64(warm.sent()) / (float64(warm.DurationUS) / 1e6)
	n = int(math.Ceil(perSecond*c.Duration.Seconds()*spare)) + 100*c.Connections
	o, err := send("run", n, c.Duration, c)
	if err != nil {
		return report.Run{}, nil, err
	}
	run = o.report(plan, c)
	run.UnsettledBefore = before
	if o.Empty > 0 {
		run.Invalid = append(run.Invalid, fmt.Sprintf(
			"the %d requests that were prepared ran out: the service was over %g times as fast as in the %s of warming up, which should last longer", n, spare, c.Warmup))
	}
	return run, judge.ledger.Acks(), nil
}

// check fills in defaults and returns the service's URL.
func (c *Config) check() (*url.URL, error) {
	if c.Connections == 0 {
		c.Connections = 64
	}
	if c.Threads == 0 {
		c.Threads = 2 - c.Connections%2
	}
	if c.Warmup == 0 {
		c.Warmup = 2 * time.Second
	}
	base, err := url.Parse(c.URL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("closedloop: %w", err)
	case base.Host == "" || base.Scheme != "http" || strings.Trim(base.Path, "/") != "":
		return nil, errors.New("closedloop: the URL must be like http://127.0.0.1:8080")
	case c.Threads < 1 || c.Connections < 1 || c.Connections%c.Threads != 0:
		return nil, errors.New("closedloop: threads must share the connections evenly")
	case c.Duration < time.Second || c.Duration%time.Second != 0 || c.Warmup < time.Second || c.Warmup%time.Second != 0:
		return nil, errors.New("closedloop: the time to measure, and to warm up, must be whole seconds, one at least")
	case strings.ContainsAny(c.Key, "\r\n"):
		return nil, errors.New("closedloop: a key is one line")
	}
	return base, nil
}

// clockApart is how far clocks may be apart that measure the same seconds.
const clockApart = 50 * time.Millisecond

// report turns what wrk says into figures.
func (o outcome) report(plan *traffic.Plan, c Config) report.Run {
	ms := func(us float64) float64 { return us / 1000 }
	l := o.LatencyUS
	run := report.Run{
		Scenario: plan.Scenario(), Loop: report.Closed,
		Generator:  fmt.Sprintf("closed loop, wrk, %d connections", c.Connections),
		PerRequest: report.PerRequest(plan), Seed: plan.Seed, Started: o.started.UTC(), DurationSec: float64(o.DurationUS) / 1e6,
		Offered: o.sent(), Sent: o.sent(), ByAnswer: map[string]int64{}, Failures: slices.Clone(o.failures), Seconds: o.seconds,
		LatencyMs: report.Quantiles{P50: ms(l[0]), P90: ms(l[1]), P99: ms(l[2]), P999: ms(l[3]), Max: ms(l[4])},
		CPUSec:    map[string]float64{"generator": o.cpu.Seconds()},
	}
	maps.Copy(run.ByAnswer, o.ByAnswer)
	// wrk counts some connections that broke and not others: it takes one that the
	// service closed for the end of an answer. But it never has more requests under way
	// than connections.
	unanswered := run.Sent - o.Answered
	if broken := min(max(o.Read+o.Write, unanswered-int64(c.Connections)), unanswered); broken > 0 {
		run.ByAnswer[report.NoAnswer] = broken
		run.Failures.Add(report.NoAnswer, "the connection broke", fmt.Sprintf("wrk says: %d times in reading, %d in writing, and closed otherwise", o.Read, o.Write), broken)
	}
	run.Cut = unanswered - run.ByAnswer[report.NoAnswer]
	if o.Connect > 0 {
		run.Failures.Add(report.NotConnected, "attempt to connect, which is no request", "", o.Connect)
	}
	if o.DurationUS > 0 {
		run.PerSecond = float64(run.Succeeded()) / run.DurationSec
	}
	// wrk's clock isn't ours. Where its requests ran out that is said.
	if ended := time.Duration(o.DurationUS) * time.Microsecond; o.Empty == 0 && ended < c.Duration-clockApart {
		run.Invalid = append(run.Invalid, report.EndedEarly(run.DurationSec, c.Duration.Seconds()))
	}
	if o.Late > 0 {
		run.Invalid = append(run.Invalid, fmt.Sprintf("%d answers took longer than %s, and are not in the latencies", o.Late, late))
	}
	run.Invalid = append(run.Invalid, run.Doubts()...)
	return run
}
