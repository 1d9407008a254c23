package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/octopay/octopay/loadtest/openloop"
	"github.com/octopay/octopay/loadtest/proc"
	"github.com/octopay/octopay/loadtest/report"
	"github.com/octopay/octopay/loadtest/rig"
)

// soakCmd measures for a long time what must not grow.
type soakCmd struct {
	Duration   time.Duration `default:"30m" help:"How long it lasts."`
	Rate       float64       `default:"1000" placeholder:"R" help:"Creates per second, an open loop: well below what the machine can do."`
	Every      time.Duration `default:"5s" help:"How often it is looked at."`
	BufferPool string        `default:"1G" help:"Of each MariaDB server."`
	Out        string        `default:"loadtest/results" placeholder:"DIR" help:"Where the results are put, by date."`
}

// streamKept is how long the stream keeps what is applied, after which it should be as
// large as it stays.
const streamKept = 10 * time.Minute

// Run does it.
func (s soakCmd) Run(ctx context.Context, out console) error {
	switch {
	case s.Duration < 10*time.Second || s.Duration > 24*time.Hour:
		return usage("--duration must be from 10s to 24h")
	case s.Every < 100*time.Millisecond || s.Every > s.Duration/5:
		return usage("--every must be from 100ms to a fifth of --duration")
	case !(s.Rate > 0 && s.Rate <= openloop.RateMax):
		return usage("--rate must be above 0, and %d at most", openloop.RateMax)
	}
	if err := isMemory("buffer-pool", s.BufferPool); err != nil {
		return err
	}
	c := campaign{Duration: time.Second, Warmup: time.Second, Rounds: 1, Seed: 1, Out: s.Out}
	return c.conduct(ctx, out, "soak", fmt.Sprintf("%g creates per second for %s", s.Rate, s.Duration), s.Duration+20*time.Minute, func(ctx context.Context, d *report.Document) (err error) {
		r, err := rig.Start(ctx, rig.Config{Syncerd: true, BufferPool: s.BufferPool}, func(line string) { out.say("%s", line) })
		if err != nil {
			return err
		}
		defer func() { err = ended(err, r.Close()) }()
		enter(d, r)
		w := newWatch(r)
		// The check after the load is no part of it: less works then, and other things.
		watching, stop := context.WithTimeout(ctx, s.Duration)
		var watched sync.WaitGroup
		watched.Go(func() { w.run(watching, s.Every) })
		run, err := c.open(ctx, r, s.Rate, s.Duration, out.progress(report.Open, s.Duration))
		stop()
		watched.Wait()
		if run.Sent > 0 {
			d.Runs = append(d.Runs, run)
		}
		d.Findings = append(d.Findings, w.verdict(s.Duration)...)
		return err
	})
}

// A watch looks at what must not grow.
type watch struct {
	r      *rig.Rig
	began  time.Time
	series map[string]*trend
	names  []string // of the series, in order
	missed int      // looks at which something didn't answer
}

func newWatch(r *rig.Rig) *watch {
	return &watch{r: r, began: time.Now(), series: map[string]*trend{}}
}

// run looks again and again until ctx ends.
func (w *watch) run(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		w.look(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// What may grow by how much in an hour, as a share of its mean. Goroutines, connections
// and files have no reason to. Memory goes up and down with the collector.
const (
	countShare  = 0.05
	memoryShare = 0.20
	streamShare = 0.20
	// asItShould is of what grows by what is stored: MariaDB's and NATS's memory.
	asItShould = 0
)

func (w *watch) look(ctx context.Context) {
	at := time.Since(w.began)
	add := func(what, unit string, share, value float64) *trend {
		t := w.series[what]
		if t == nil {
			t = &trend{what: what, unit: unit, share: share}
			w.series[what] = t
			w.names = append(w.names, what)
		}
		t.points = append(t.points, point{at, value})
		return t
	}
	pids := w.r.Pids()
	for _, program := range []string{"orderd", "syncerd", rig.Truth, rig.Mirror, rig.Broker} {
		share := memoryShare
		if program != "orderd" && program != "syncerd" {
			share = asItShould
		}
		for _, pid := range pids[program] {
			u, err := proc.Of(pid)
			if err != nil {
				w.missed++
				continue
			}
			add(program+": memory", " MiB", share, float64(u.RSSBytes)/(1<<20))
			add(program+": file descriptors", "", countShare, float64(u.FDs))
			// Go makes a thread when all it has are in system calls, and never ends one.
			add(program+": threads", "", countShare, float64(u.Threads)).mark = program != rig.Truth && program != rig.Mirror
		}
		for _, ops := range w.r.Ops(program) {
			m, err := rig.Metrics(ctx, ops)
			if err != nil {
				if ctx.Err() == nil {
					w.missed++
				}
				continue
			}
			add(program+": goroutines", "", countShare, rig.Sum(m, "go_goroutines"))
			add(program+": database connections", "", countShare, rig.Sum(m, "octopay_database_connections"))
			if program == "syncerd" {
				add("the mirror's stream", " MiB", streamShare, rig.Sum(m, "octopay_mirror_stream_bytes")/(1<<20))
			}
		}
	}
}

// verdict says of each whether it grew, after a third of the time, in which pools and
// caches fill.
func (w *watch) verdict(duration time.Duration) (all []report.Sentence) {
	for _, name := range w.names {
		t := *w.series[name]
		t.settled = duration / 3
		if name == "the mirror's stream" {
			t.settled = max(t.settled, streamKept+2*time.Minute)
		}
		all = append(all, t.verdict())
	}
	if w.missed > 0 {
		all = append(all, report.Sentence{Bad: true, Text: fmt.Sprintf("%d times something did not answer when it was looked at.", w.missed)})
	}
	return all
}
