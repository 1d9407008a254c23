package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

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

// errMost ends what took too long.
var errMost = errors.New("it took longer than --most")

// conduct calls f, which adds what it measured to a document, and then writes the
// document as DATE-name, also where f failed or took longer than most.
func (c campaign) conduct(ctx context.Context, out console, name, title string, most time.Duration, f func(ctx context.Context, d *report.Document) error) error {
	if err := c.check(); err != nil {
		return err
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
		d.Findings = append(d.Findings, report.Sentence{Bad: true, Text: "It didn't come to its end: " + err.Error()})
	}
	d.Findings = append(d.Findings, report.Sentence{Text: fmt.Sprintf("It took %s in all.", time.Since(d.Started).Round(time.Second))})
	name = d.Started.Format(time.DateOnly) + "-" + name
	written := errors.Join(write(d, c.Out, name), markdown(d, filepath.Join(c.Out, name+".md")))
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

// errFound ends a command that found something that must not be; it has said what.
var errFound = errors.New("something is not as it must be")

func markdown(d report.Document, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(d.Markdown(io.Writer(f)), f.Close())
}

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
			if err != nil {
				return fmt.Errorf("%s, %s: %w", name, one.target, err)
			}
			run.Target = one.target
			set.Rounds[round] = append(set.Rounds[round], run)
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
	line := fmt.Sprintf("%-60s %-24s %8.0f/s  p99 %.1f ms", name, run.Target, run.PerSecond, run.LatencyMs.P99)
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

// closed is a closed loop against a target of a rig that serves at url.
func (c campaign) closed(ctx context.Context, r *rig.Rig, target, url string, plan *traffic.Plan, connections int) (report.Run, check.Acks, error) {
	r.Quiet(ctx)
	record := r.Record(target)
	run, acks, err := closedloop.Run(ctx, plan, 0, closedloop.Config{URL: url, Connections: connections, Warmup: c.Warmup, Duration: c.Duration})
	// A run that ended early is invalid, and there is no time for others.
	err = errors.Join(err, record.Fill(&run), ctx.Err())
	return run, acks, err
}

// creates is a closed loop of creates, and its check where the target stores them.
func (c campaign) creates(ctx context.Context, r *rig.Rig, target, url string, connections int, mirror bool) (report.Run, error) {
	plan, err := c.newPlan(nil)
	if err != nil {
		return report.Run{}, err
	}
	run, acks, err := c.closed(ctx, r, target, url, plan, connections)
	if err != nil || target == baseline.Echo {
		return run, err
	}
	err = checked(ctx, r, &run, []*traffic.Plan{plan}, acks, mirror)
	return run, err
}

// checked checks a run.
func checked(ctx context.Context, r *rig.Rig, run *report.Run, plans []*traffic.Plan, acks check.Acks, mirror bool) error {
	result, err := check.Check(ctx, r.Cluster(), plans, acks, check.Config{
		Mirror: mirror, Within: 5 * time.Minute, OpenMax: int(run.Unsettled()),
	})
	if err != nil {
		return err
	}
	run.Check = &result
	return nil
}

// raw is what the databases do alone, with so many orders in flight, and transactions.
func (c campaign) raw(ctx context.Context, r *rig.Rig, inFlight, atOnce int) (report.Run, error) {
	plan, err := c.newPlan(nil)
	if err != nil {
		return report.Run{}, err
	}
	r.Quiet(ctx)
	return r.Raw(ctx, baseline.RawJob{Plan: plan.Config, InFlight: inFlight, AtOnce: atOnce, Warmup: c.Warmup, Duration: c.Duration})
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
	warm, acks, err := openloop.Run(ctx, before, openloop.Config{URL: r.URL(), Pace: pace, Duration: c.Warmup})
	if err != nil {
		return report.Run{}, err
	}
	record := r.Record(rig.Octopay)
	run, more, err := openloop.Run(ctx, plan, openloop.Config{URL: r.URL(), Pace: pace, Duration: d, Second: progress})
	if err := errors.Join(err, record.Fill(&run), ctx.Err()); err != nil {
		return run, err
	}
	run.UnsettledBefore = warm.Unsettled()
	err = checked(ctx, r, &run, []*traffic.Plan{before, plan}, append(acks, more...), true)
	return run, err
}
