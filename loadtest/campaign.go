package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/loadtest/baseline"
	"github.com/octopay/octopay/loadtest/check"
	"github.com/octopay/octopay/loadtest/closedloop"
	"github.com/octopay/octopay/loadtest/openloop"
	"github.com/octopay/octopay/loadtest/report"
	"github.com/octopay/octopay/loadtest/rig"
	"github.com/octopay/octopay/loadtest/traffic"
)

// A campaign is the flags of the commands that make many runs, on a stack of their own.
type campaign struct {
	Duration time.Duration `default:"8s" help:"How long each closed loop is measured; whole seconds."`
	Warmup   time.Duration `default:"2s" help:"How long each warms up before that; whole seconds."`
	Rounds   int           `default:"3" placeholder:"N" help:"How often all targets run, one after the other; their order changes."`
	Seed     uint64        `default:"1" placeholder:"N" help:"Of all choices."`
	Out      string        `default:"loadtest/results" placeholder:"DIR" help:"Where the results are put, by date."`
}

func (c campaign) check() error {
	for name, d := range map[string]time.Duration{"--duration": c.Duration, "--warmup": c.Warmup} {
		if d < time.Second || d%time.Second != 0 {
			return usage("%s must be whole seconds, and one at least", name)
		}
	}
	if c.Rounds < 1 || c.Rounds > 100 {
		return usage("--rounds must be from 1 to 100")
	}
	return nil
}

// eachOf is an error when one of a flag's values isn't from least to most, or there is none.
func eachOf(flag string, values []int, least, most int) error {
	if len(values) == 0 {
		return usage("--%s needs a value", flag)
	}
	for i, n := range values {
		if n < least || n > most {
			return usage("--%s must be from %d to %d, not %d", flag, least, most, n)
		}
		if slices.Contains(values[:i], n) {
			return usage("--%s has %d twice", flag, n)
		}
	}
	return nil
}

// errMost ends what took too long.
var errMost = errors.New("it took longer than --most")

// conduct calls f, which adds what it measured to a document, and then writes the
// document as DATE-name, also where f failed or took longer than most.
func (c campaign) conduct(ctx context.Context, out console, name, title string, most time.Duration, f func(ctx context.Context, d *report.Document) error) error {
	if err := c.check(); err != nil {
		return err
	}
	if most <= 0 {
		return usage("--most must be above 0")
	}
	if err := os.MkdirAll(c.Out, 0o755); err != nil {
		return err
	}
	d := report.Document{
		Title: title, Started: time.Now().UTC(), Machine: machine(), Versions: versions(ctx),
		Command: strings.TrimSpace("go run ./loadtest " + strings.Join(out.args, " ")),
	}
	limited, cancel := context.WithTimeoutCause(ctx, most, errMost)
	defer cancel()
	err := f(limited, &d)
	if err != nil && limited.Err() != nil {
		err = errors.Join(err, context.Cause(limited))
	}
	if err != nil {
		d.Findings = append(d.Findings, unfinished(err))
	}
	d.Findings = append(d.Findings, report.Sentence{Text: fmt.Sprintf("It took %s in all.", time.Since(d.Started).Round(time.Second))})
	name = d.Started.Format(time.DateOnly) + "-" + name
	written := errors.Join(write(d, c.Out, name), put(filepath.Join(c.Out, name+".md"), d.Markdown))
	if written == nil {
		out.say("written: %s.md, .json, .html", filepath.Join(c.Out, name))
	}
	for _, f := range d.Findings {
		if f.Bad && err == nil {
			err = errFound
		}
	}
	return verdict(d, errors.Join(err, d.Text(out.out), written))
}

// unfinished says what went wrong beside what was measured.
func unfinished(err error) report.Sentence {
	if onlyEnding(err) {
		return report.Sentence{Bad: true, Text: "What it ran on did not end as it should: " + err.Error()}
	}
	return report.Sentence{Bad: true, Text: "It didn't come to its end: " + err.Error()}
}

// errFound ends a command that found something that must not be; it has said what.
var errFound = errors.New("something is not as it must be")

// enter enters what a rig says of itself into a document.
func enter(d *report.Document, r *rig.Rig) {
	for _, e := range r.Engines {
		if v := e.String(); !slices.Contains(d.Versions, v) {
			d.Versions = append(d.Versions, v)
		}
	}
}

// A contender is what runs in a round.
type contender struct {
	target string
	run    func(ctx context.Context) (report.Run, error)
}

// rounds lets contenders run one after the other, as often as that, in the order that
// turn says. What has run is in the set that d gets, also after an error.
func (c campaign) rounds(ctx context.Context, out console, d *report.Document, name string, baselines []string, contenders ...contender) error {
	d.Sets = append(d.Sets, report.Set{Name: name, Baselines: baselines})
	set := &d.Sets[len(d.Sets)-1]
	for round := range c.Rounds {
		set.Rounds = append(set.Rounds, nil)
		for _, i := range turn(len(contenders), round) {
			one := contenders[i]
			run, err := one.run(ctx)
			run.Target = one.target
			if err == nil || run.Sent > 0 { // also of one that failed later
				set.Rounds[round] = append(set.Rounds[round], run)
			}
			if err != nil {
				return fmt.Errorf("%s, %s: %w", name, one.target, err)
			}
			out.tell(fmt.Sprintf("%s, round %d of %d", name, round+1, c.Rounds), run)
		}
	}
	return nil
}

// turn returns the order in which n contenders run in a round. What one leaves behind,
// such as pages to be written, slows whoever comes next; so in n rounds each has each
// place once, and where n is even each follows each other once (a Williams design).
func turn(n, round int) []int {
	out := make([]int, n)
	for i := range out {
		// 0, 1, n-1, 2, n-2, …
		at := (i + 1) / 2
		if i%2 == 0 {
			at = n - at
		}
		out[i] = (at + round) % n
	}
	return out
}

// tell says what a run came to.
func (c console) tell(name string, run report.Run) {
	line := fmt.Sprintf("%-60s %-24s %8.0f/s", name, run.Target, run.PerSecond)
	if run.LatencyMs != (report.Quantiles{}) {
		line += fmt.Sprintf("  p99 %.1f ms", run.LatencyMs.P99)
	}
	if k := run.Check; k != nil {
		line += fmt.Sprintf("  %d of %d found", k.Found, k.Acknowledged)
	}
	for _, s := range run.Verdict() {
		if s.Bad {
			line += "\n    " + s.Text
		}
	}
	c.say("%s", line)
}

// newPlan returns a plan of a run that there never was.
func (c campaign) newPlan(change func(*traffic.Config)) (*traffic.Plan, error) {
	config := traffic.Config{Run: newName(), Seed: c.Seed}
	if change != nil {
		change(&config)
	}
	return traffic.New(config)
}

// closed is a closed loop against a target of a rig that serves at url. check is called
// when it has ended, and the record goes on until then; nil: there is none.
func (c campaign) closed(ctx context.Context, r *rig.Rig, target, url string, plan *traffic.Plan, connections int, check func(*report.Run, check.Acks, *rig.Record) error) (report.Run, error) {
	r.Quiet(ctx)
	record := r.Record(target)
	defer record.Stop()
	run, acks, err := closedloop.Run(ctx, plan, 0, closedloop.Config{URL: url, Key: r.Key(), Connections: connections, Warmup: c.Warmup, Duration: c.Duration})
	// A run that ended early is invalid, and there is no time for others.
	if err = errors.Join(err, ctx.Err()); err == nil && check != nil {
		err = check(&run, acks, record)
	}
	err = errors.Join(err, record.Fill(&run))
	return run, err
}

// mirrorWithin is how long a mirror may take to catch up with a run.
const mirrorWithin = 5 * time.Minute

// caughtUp returns what is to be called when the mirror has what was stored since the
// record began: acks are of all that.
func caughtUp(record *rig.Record, run *report.Run, acks check.Acks) func() {
	made := map[int64]bool{}
	for _, a := range acks {
		made[a.ID.Snowflake()] = true
	}
	if len(made) == 0 {
		return nil
	}
	share := min(1, float64(run.ByAnswer["201"])/float64(len(made)))
	return func() { record.CaughtUp(share) }
}

// creates is a closed loop of creates, and its check where the target stores them.
func (c campaign) creates(ctx context.Context, r *rig.Rig, target, url string, connections int, mirror bool) (report.Run, error) {
	plan, err := c.newPlan(nil)
	if err != nil {
		return report.Run{}, err
	}
	if target == baseline.Echo {
		return c.closed(ctx, r, target, url, plan, connections, nil)
	}
	return c.closed(ctx, r, target, url, plan, connections, func(run *report.Run, acks check.Acks, record *rig.Record) error {
		config := check.Config{Mirror: mirror, Within: mirrorWithin, CaughtUp: caughtUp(record, run, acks)}
		of := r
		if target == baseline.Direct {
			of, config.Settle = nil, baseline.DirectSettle
		}
		return checked(ctx, r.Cluster(), of, run, []*traffic.Plan{plan}, acks, config)
	})
}

// checked checks a run. of is the rig whose orderd it was against; nil: it wasn't.
func checked(ctx context.Context, c *cluster.Cluster, of *rig.Rig, run *report.Run, plans []*traffic.Plan, acks check.Acks, config check.Config) error {
	config.OpenMax = int(run.Unsettled())
	if of != nil {
		config.Idle = of.Idle
		if len(of.Gone()) > 0 {
			config.Within = time.Second // nobody may be there who completes it
		}
	}
	result, err := check.Check(ctx, c, plans, acks, config)
	if err == nil || errors.Is(err, check.ErrMirror) {
		run.Check = &result
	}
	return err
}

// raw is what the databases do alone, with so many orders in flight, and transactions, and
// the check of what it stored.
func (c campaign) raw(ctx context.Context, r *rig.Rig, inFlight, atOnce int) (report.Run, error) {
	plan, err := c.newPlan(nil)
	if err != nil {
		return report.Run{}, err
	}
	r.Quiet(ctx)
	began := time.Now()
	run, err := r.Raw(ctx, baseline.RawJob{Plan: plan.Config, InFlight: inFlight, AtOnce: atOnce, Warmup: c.Warmup, Duration: c.Duration})
	if err != nil {
		return run, err
	}
	result, err := check.Check(ctx, r.Cluster(), []*traffic.Plan{plan}, nil, check.Config{
		Since: began, Unnamed: int(run.Succeeded()), OpenMax: math.MaxInt, // it also stored while it warmed up
		Idle: func(context.Context) bool { return true }, // it has ended
	})
	if err == nil {
		run.Check = &result
	}
	return run, err
}

// open is an open loop of creates against octopay at a constant rate, after it warmed up,
// and its check.
func (c campaign) open(ctx context.Context, r *rig.Rig, rate float64, d time.Duration, progress func(report.Second)) (report.Run, error) {
	plan, err := c.newPlan(nil)
	if err != nil {
		return report.Run{}, err
	}
	before, err := again(plan, "w")
	if err != nil {
		return report.Run{}, err
	}
	pace := openloop.Constant(rate)
	record := r.Record(rig.Octopay)
	defer record.Stop()
	warm, acks, err := openloop.Run(ctx, before, openloop.Config{URL: r.URL(), Key: r.Key(), Pace: pace, Duration: c.Warmup})
	if err != nil {
		return report.Run{}, err
	}
	run, more, err := openloop.Run(ctx, plan, openloop.Config{URL: r.URL(), Key: r.Key(), Pace: pace, Duration: d, Second: progress})
	run.UnsettledBefore = warm.Unsettled()
	acks = append(acks, more...)
	if err = errors.Join(err, ctx.Err()); err == nil {
		config := check.Config{Mirror: true, Within: mirrorWithin, CaughtUp: caughtUp(record, &run, acks)}
		err = checked(ctx, r.Cluster(), r, &run, []*traffic.Plan{before, plan}, acks, config)
	}
	err = errors.Join(err, record.Fill(&run))
	return run, err
}
