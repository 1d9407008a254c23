package rig

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/octopay/octopay/loadtest/baseline"
	"github.com/octopay/octopay/loadtest/proc"
	"github.com/octopay/octopay/loadtest/report"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

const (
	cpuEvery    = 200 * time.Millisecond
	scrapeEvery = time.Second
)

// A Record is what a rig's programs did during a run: their CPU time, and what orderd and
// syncerd say of themselves once a second. It begins before the run, and Fill takes from
// it what falls into the time that the run measured.
type Record struct {
	target string
	ended  context.CancelFunc
	done   chan struct{}

	// Set by CaughtUp.
	caughtUp time.Time
	share    float64

	// Read after done.
	cpu    []cpuSample
	said   []saidSample
	gone   map[string]bool // programs of which a process wasn't there at some sample
	faults error
}

// A cpuSample is the CPU time of each program since its start.
type cpuSample struct {
	at   time.Time
	used map[string]time.Duration
}

// A saidSample is what metrics said at a moment.
type saidSample struct {
	at           time.Time
	orders, txns float64  // of all lanes, since the start
	lag          *float64 // seconds, the largest; nil: nobody said
}

// Record begins a record of a run against a target: octopay, or a baseline. Of the
// programs it has those that take part, also one that isn't there any more. Stop or Fill
// end it.
func (r *Rig) Record(target string) *Record {
	pids := r.expected()
	for _, program := range []string{"orderd", baseline.Direct, baseline.Echo} {
		if program != target && (program != "orderd" || target != Octopay) {
			delete(pids, program)
		}
	}
	ops := r.Ops("syncerd")
	if target == Octopay {
		ops = append(r.Ops("orderd"), ops...)
	}
	return record(target, pids, ops)
}

// Watch is Record for a service that no rig started, of which only ops ports are known.
func Watch(target string, ops []string) *Record { return record(target, nil, ops) }

func record(target string, pids map[string][]int, ops []string) *Record {
	ctx, cancel := context.WithCancel(context.Background())
	rec := &Record{target: target, ended: cancel, done: make(chan struct{}), gone: map[string]bool{}}
	rec.sample(pids)
	go func() {
		defer close(rec.done)
		var wait sync.WaitGroup
		wait.Go(func() { each(ctx, cpuEvery, func() { rec.sample(pids) }) })
		wait.Go(func() { each(ctx, scrapeEvery, func() { rec.scrape(ctx, ops) }) })
		wait.Wait()
		// What happened since the last look belongs to the run's last second.
		rec.sample(pids)
		rec.scrape(context.WithoutCancel(ctx), ops)
	}()
	return rec
}

// Octopay is the target that isn't a baseline.
const Octopay = "octopay"

// each calls f now, and then as often as that until ctx ends.
func each(ctx context.Context, every time.Duration, f func()) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		f()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Stop ends the record.
func (rec *Record) Stop() {
	rec.ended()
	<-rec.done
}

// CaughtUp says that the mirror has now what was stored since the record began, of which
// the run itself stored that share. Of the mirror's programs Fill then takes the share of
// what they used until now: they work on when the run has ended.
func (rec *Record) CaughtUp(share float64) { rec.caughtUp, rec.share = time.Now(), share }

// mirrors are the programs that carry orders into the mirror.
var mirrors = []string{"syncerd", Mirror, Broker}

// sample reads the CPU times. A program that has ended is in no later sample.
func (rec *Record) sample(pids map[string][]int) {
	s := cpuSample{at: time.Now(), used: map[string]time.Duration{}}
	for program, of := range pids {
		if used, err := proc.CPU(of...); err == nil {
			s.used[program] = used
		} else if errors.Is(err, os.ErrNotExist) {
			rec.gone[program] = true
		} else {
			rec.faults = err
		}
	}
	rec.cpu = append(rec.cpu, s)
}

func (rec *Record) scrape(ctx context.Context, ops []string) {
	s := saidSample{at: time.Now()}
	for _, url := range ops {
		families, err := Metrics(ctx, url)
		if err != nil {
			return // a program that is frozen, or ends: the run's own figures say so
		}
		for _, m := range families["octopay_lane_batch_orders"].GetMetric() {
			s.orders += m.GetHistogram().GetSampleSum()
			s.txns += float64(m.GetHistogram().GetSampleCount())
		}
		for _, m := range families["octopay_mirror_lag_seconds"].GetMetric() {
			if v := m.GetGauge().GetValue(); s.lag == nil || v > *s.lag {
				s.lag = &v
			}
		}
	}
	rec.said = append(rec.said, s)
}

// Metrics reads the metrics of an ops port.
func Metrics(ctx context.Context, ops string) (map[string]*dto.MetricFamily, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, ops+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("rig: %s/metrics: %s", ops, resp.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(resp.Body)
}

// Sum returns the sum of a metric, a counter or a gauge, over all its labels; 0 without
// it.
func Sum(families map[string]*dto.MetricFamily, name string) (sum float64) {
	for _, m := range families[name].GetMetric() {
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return sum
}

// Fill ends the record and fills in a run that has ended: the CPU that each program used
// in the time that was measured, and for each of its seconds the lanes' batches and the
// mirror's lag. What the run has already stays. A program that wasn't there all the time
// makes the run invalid: the figures of the others are of something else.
func (rec *Record) Fill(run *report.Run) error {
	rec.Stop()
	run.Target = rec.target
	if run.CPUSec == nil {
		run.CPUSec = map[string]float64{}
	}
	begin := run.Started
	end := begin.Add(time.Duration(run.DurationSec * float64(time.Second)))
	for program, used := range used(rec.cpu, begin, end) {
		if _, has := run.CPUSec[program]; !has {
			run.CPUSec[program] = used.Seconds()
		}
	}
	if len(rec.cpu) > 0 && !rec.caughtUp.IsZero() {
		all := used(rec.cpu, rec.cpu[0].at, rec.caughtUp)
		for _, program := range mirrors {
			if spent, has := all[program]; has {
				run.CPUSec[program] = rec.share * spent.Seconds()
			}
		}
	}
	for _, program := range slices.Sorted(maps.Keys(rec.gone)) {
		delete(run.CPUSec, program)
		run.Invalid = append(run.Invalid, program+" ended while it was measured")
	}
	describe(run.Seconds, rec.said, begin)
	return rec.faults
}

// used returns the CPU time of each program between two moments. It was read a few times
// a second, and between two readings it is taken to rise evenly. A program that wasn't
// there all the time is left out.
func used(samples []cpuSample, begin, end time.Time) map[string]time.Duration {
	out := map[string]time.Duration{}
	if len(samples) == 0 {
		return out
	}
	for program := range samples[0].used {
		from, okFrom := at(samples, begin, program)
		to, okTo := at(samples, end, program)
		if okFrom && okTo {
			out[program] = to - from
		}
	}
	return out
}

// at returns the CPU time of a program at a moment. Before the first sample and after the
// last it is theirs.
func at(samples []cpuSample, t time.Time, program string) (time.Duration, bool) {
	i := slices.IndexFunc(samples, func(s cpuSample) bool { return !s.at.Before(t) })
	switch i {
	case -1:
		i = len(samples) - 1
		fallthrough
	case 0:
		used, ok := samples[i].used[program]
		return used, ok
	}
	a, b := samples[i-1], samples[i]
	from, okFrom := a.used[program]
	to, okTo := b.used[program]
	share := float64(t.Sub(a.at)) / float64(b.at.Sub(a.at))
	return from + time.Duration(share*float64(to-from)), okFrom && okTo
}

// describe fills in the seconds of a run that began then.
func describe(seconds []report.Second, said []saidSample, began time.Time) {
	for i := range seconds {
		s := &seconds[i]
		from := began.Add(time.Duration(s.At) * time.Second)
		to := from.Add(time.Second)
		orders := counterAt(said, to, sumOf) - counterAt(said, from, sumOf)
		txns := counterAt(said, to, countOf) - counterAt(said, from, countOf)
		if mean := orders / txns; txns > 0 && !math.IsInf(mean, 0) {
			s.LaneBatch = &mean
		}
		for _, x := range said {
			if x.lag != nil && !x.at.Before(from) && x.at.Before(to) {
				lag := *x.lag
				s.MirrorLagSec = &lag
			}
		}
	}
}

func sumOf(s saidSample) float64   { return s.orders }
func countOf(s saidSample) float64 { return s.txns }

// counterAt returns a counter at a moment; between two readings it is taken to rise
// evenly.
func counterAt(said []saidSample, t time.Time, of func(saidSample) float64) float64 {
	i := slices.IndexFunc(said, func(s saidSample) bool { return !s.at.Before(t) })
	switch {
	case len(said) == 0:
		return 0
	case i < 0:
		return of(said[len(said)-1])
	case i == 0:
		return of(said[0])
	}
	a, b := said[i-1], said[i]
	share := float64(t.Sub(a.at)) / float64(b.at.Sub(a.at))
	return of(a) + share*(of(b)-of(a))
}
