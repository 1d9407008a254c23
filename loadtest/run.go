package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/octopay/octopay/loadtest/check"
	"github.com/octopay/octopay/loadtest/closedloop"
	"github.com/octopay/octopay/loadtest/openloop"
	"github.com/octopay/octopay/loadtest/report"
	"github.com/octopay/octopay/loadtest/traffic"
)

// runCmd measures one scenario.
type runCmd struct {
	requests `embed:""`
	where    `embed:""`

	Closed   int           `placeholder:"N" help:"Closed loop: N connections, each of which sends when it was answered. Says what the service can do at most. The default, with 64."`
	Rate     float64       `placeholder:"R" help:"Open loop: R requests per second (of a ramp, steps or a spike the highest), whether or not earlier ones were answered. Says how long people wait."`
	Pace     string        `enum:"constant,ramp,step,spike,poisson" default:"constant" help:"Of the open loop: constant; ramp, step, spike from --from to --rate; poisson: independent arrivals, --rate on average."`
	From     float64       `placeholder:"R" help:"Where a ramp, steps or a spike begin; a tenth of --rate."`
	Steps    int           `default:"5" placeholder:"N" help:"How many steps."`
	Duration time.Duration `default:"10s" help:"How long it is measured."`
	Warmup   time.Duration `default:"2s" help:"How long requests are sent before that which aren't measured."`
	Timeout  time.Duration `default:"10s" help:"How long the open loop waits for an answer."`
	Workers  int           `default:"2000" placeholder:"N" help:"How many requests of the open loop are under way at most."`
	Out      string        `placeholder:"DIR" help:"Where run.json and run.html are put; without it there are none."`
}

// Run does it. Whatever goes wrong once something was measured, that is reported.
func (r runCmd) Run(ctx context.Context, c console) (err error) {
	if err := r.check(c); err != nil {
		return err
	}
	if r.Out != "" {
		if err := os.MkdirAll(r.Out, 0o755); err != nil {
			return err
		}
	}
	s, err := r.where.start(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = ended(err, s.close()) }()
	d := report.Document{
		Title: "Load test: " + r.Scenario, Started: time.Now().UTC(), Machine: machine(),
		Versions: append(versions(ctx), s.versions...), Command: "go run ./loadtest " + strings.Join(c.args, " "),
	}
	plan, plans, acks, err := r.plan(ctx, s.service, newName(), c)
	if err != nil {
		return err
	}
	known := len(acks)
	// It begins before the warm-up, whose orders the mirror carries during the run.
	record := s.record()
	defer record.Stop()
	var warm report.Run
	if r.Rate != 0 && r.Warmup > 0 { // the closed loop warms up by itself
		p, err := again(plan, "w")
		if err != nil {
			return err
		}
		var more []traffic.Ack
		if warm, more, err = r.warmUp(ctx, s, p, c); err != nil {
			return err
		}
		plans, acks = append(plans, p), append(acks, more...)
	}
	one, more, err := r.measure(ctx, s, plan, c)
	if err != nil && one.Sent == 0 {
		return err
	}
	acks, plans = append(acks, more...), append(plans, plan)
	one.UnsettledBefore += warm.Unsettled()   // the closed loop has set its own
	if s.cluster != nil && ctx.Err() == nil { // who ended it doesn't want to wait for that
		c.say("comparing what is stored with %s", count(int64(len(acks)), "acknowledgement", "acknowledgements"))
		config := check.Config{Mirror: s.mirror, Within: r.MirrorWithin, Since: d.Started, Say: c.line, CaughtUp: caughtUp(record, &one, acks[known:])}
		err = errors.Join(err, checked(ctx, s.cluster, s.rig, &one, plans, acks, config))
	}
	err = errors.Join(err, record.Fill(&one))
	if err != nil {
		d.Findings = append(d.Findings, unfinished(err))
	}
	d.Runs = []report.Run{one}
	return verdict(d, errors.Join(err, d.Text(c.out), write(d, r.Out, "run")))
}

// check says what is wrong with the flags, before anything is started.
func (r runCmd) check(c console) error {
	if c.given["closed"] && c.given["rate"] {
		return usage("--closed and --rate exclude each other: a closed loop sends when it was answered")
	}
	if r.Duration < time.Second || r.Duration > 24*time.Hour {
		return usage("--duration must be from 1s to 24h")
	}
	if r.Warmup < 0 || r.Warmup > time.Hour {
		return usage("--warmup must be from 0s to 1h")
	}
	loop := r.checkClosed
	if c.given["rate"] {
		loop = r.checkOpen
	}
	return first(loop(c), r.requests.check(c), r.where.check(c))
}

func (r runCmd) checkClosed(c console) error {
	for name, d := range map[string]time.Duration{"duration": r.Duration, "warmup": r.Warmup} {
		if d < time.Second || d%time.Second != 0 {
			return usage("--%s of the closed loop must be whole seconds, and one at least: it prepares as many requests as the time of warming up lets it expect", name)
		}
	}
	if c.given["closed"] && (r.Closed < 1 || r.Closed > connectionsMax) {
		return usage("--closed must be from 1 to %d", connectionsMax)
	}
	if strings.HasPrefix(r.URL, "https:") {
		return usage("--url of the closed loop must begin with http:; the open one, --rate, can do https:")
	}
	return c.only("belongs to --rate: in a closed loop the answers decide when is sent", "pace", "from", "steps", "timeout", "workers")
}

// connectionsMax bounds the connections of a closed loop: a port is needed for each.
const connectionsMax = 20_000

func (r runCmd) checkOpen(c console) error {
	if !(r.Rate > 0 && r.Rate <= openloop.RateMax) {
		return usage("--rate must be above 0, and %d at most", openloop.RateMax)
	}
	if r.Pace == "constant" || r.Pace == "poisson" {
		if err := c.only("belongs to --pace ramp, step or spike: the others have one rate", "from"); err != nil {
			return err
		}
	}
	if r.Pace != "step" {
		if err := c.only("belongs to --pace step", "steps"); err != nil {
			return err
		}
	}
	switch {
	case c.given["from"] && !(r.From > 0 && r.From <= r.Rate):
		return usage("--from must be above 0, and --rate at most: --rate is the highest")
	case r.Timeout < time.Millisecond || r.Timeout > time.Hour:
		return usage("--timeout must be from 1ms to 1h")
	case r.Workers < 1 || r.Workers > connectionsMax:
		return usage("--workers must be from 1 to %d", connectionsMax)
	}
	if err := r.pace().Check(r.Duration); err != nil {
		return usage("%w", err)
	}
	return nil
}

// again returns a plan of the same requests under another name.
func again(plan *traffic.Plan, suffix string) (*traffic.Plan, error) {
	config := plan.Config
	config.Run += suffix
	return traffic.New(config)
}

// warmUp sends requests of the open loop that aren't measured, at the rate that it
// begins with: a service that was just started has neither connections nor pages.
func (r runCmd) warmUp(ctx context.Context, s *service, plan *traffic.Plan, c console) (report.Run, []traffic.Ack, error) {
	rate := r.Rate
	if r.Pace != "constant" && r.Pace != "poisson" {
		rate = cmp.Or(r.From, r.Rate/10)
	}
	c.say("warming up for %s", r.Warmup)
	return openloop.Run(ctx, plan, openloop.Config{
		URL: s.service.URL, Key: s.service.Key, Pace: openloop.Constant(rate), Duration: r.Warmup, Timeout: r.Timeout, WorkersMax: r.Workers,
	})
}

// measure sends the requests, by one loop or the other.
func (r runCmd) measure(ctx context.Context, s *service, plan *traffic.Plan, c console) (one report.Run, acks []traffic.Ack, err error) {
	if r.Rate != 0 {
		c.say("open loop, %s for %s", r.pace(), r.Duration)
		one, acks, err = openloop.Run(ctx, plan, openloop.Config{
			URL: s.service.URL, Key: s.service.Key, Pace: r.pace(), Duration: r.Duration, Timeout: r.Timeout, WorkersMax: r.Workers,
			Second: c.progress(report.Open, r.Duration),
		})
	} else {
		c.say("closed loop, %d connections, for %s after %s of warming up", cmp.Or(r.Closed, 64), r.Duration, r.Warmup)
		one, acks, err = closedloop.Run(ctx, plan, 0, closedloop.Config{
			URL: s.service.URL, Key: s.service.Key, Connections: r.Closed, Duration: r.Duration, Warmup: r.Warmup,
			Second: c.progress(report.Closed, r.Duration),
		})
	}
	return one, acks, err
}

// pace returns when requests are due.
func (r runCmd) pace() openloop.Pace {
	from := cmp.Or(r.From, r.Rate/10)
	switch r.Pace {
	case "ramp":
		return openloop.Ramp(from, r.Rate)
	case "step":
		return openloop.Step(from, r.Rate, r.Steps)
	case "spike":
		return openloop.Spike(from, r.Rate)
	case "poisson":
		return openloop.Constant(r.Rate).Poisson(r.Seed)
	}
	return openloop.Constant(r.Rate)
}

// progress returns what shows a second of a loop that lasts so long: at most 60 of them.
func (c console) progress(loop string, duration time.Duration) func(report.Second) {
	every := max(1, int(duration/time.Minute))
	return func(s report.Second) {
		if (s.At+1)%every != 0 {
			return
		}
		answered := int64(0)
		var parts []string
		for answer, n := range s.ByAnswer {
			answered += n
			parts = append(parts, fmt.Sprintf("%s: %d", answer, n))
		}
		slices.Sort(parts)
		line := fmt.Sprintf("%5d s  ", s.At+1)
		if loop == report.Open {
			line += fmt.Sprintf("%6d due  %6d sent  ", s.Offered, s.Sent)
		}
		line += strings.Join(parts, "  ")
		if waiting := s.Sent - answered; waiting > 0 {
			line += fmt.Sprintf("  no answer yet: %d", waiting)
		}
		if q := s.LatencyMs; q != nil {
			line += fmt.Sprintf("  p50 %.1f ms  p99 %.1f ms", q.P50, q.P99)
		}
		c.say("%s", line)
	}
}

// write puts a document into dir, as NAME.json and NAME.html; "" is nowhere.
func write(d report.Document, dir, name string) error {
	if dir == "" {
		return nil
	}
	return errors.Join(put(filepath.Join(dir, name+".json"), d.JSON), put(filepath.Join(dir, name+".html"), d.HTML))
}

// put makes a file.
func put(file string, write func(io.Writer) error) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// verdict turns what a document says, and what else went wrong, into how the program
// ends. That a run is invalid decides only where nothing worse happened; that what it ran
// on then ended badly is not worse.
func verdict(d report.Document, other error) error {
	runs := slices.Clone(d.Runs)
	for _, s := range d.Sets {
		for _, round := range s.Rounds {
			runs = append(runs, round...)
		}
	}
	failed := slices.ContainsFunc(runs, func(r report.Run) bool { return r.Check != nil && r.Check.Fails() })
	invalid := slices.ContainsFunc(runs, func(r report.Run) bool { return !r.Valid() })
	switch {
	case failed:
		return errors.Join(errCheck, other)
	case invalid && onlyEnding(other):
		return errors.Join(errInvalid, other)
	}
	return other
}

// An endError is what went wrong when a stack was ended.
type endError struct{ error }

func (e endError) Unwrap() error { return e.error }
func (endError) ending()         {}

// ended joins an error of what was done on a stack with that of its end.
func ended(err, end error) error {
	if end == nil {
		return err
	}
	return errors.Join(err, endError{end})
}

// onlyEnding reports whether nothing went wrong but the end of stacks.
func onlyEnding(err error) bool {
	if err == nil {
		return true
	}
	// The error itself, and not one that it wraps among others.
	if _, is := err.(interface{ ending() }); is {
		return true
	}
	many, is := err.(interface{ Unwrap() []error })
	return is && !slices.ContainsFunc(many.Unwrap(), func(one error) bool { return !onlyEnding(one) })
}
