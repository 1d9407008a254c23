// Package openloop sends requests when they are due, whether or not earlier ones were
// answered, as buyers do who don't know of each other.
//
// When request n is due is a function of the pace and of n. Its latency counts from
// that moment: a service that stands still for two seconds keeps all waiting who were
// due meanwhile, and the figures say so, also where the generator itself couldn't send
// in time. How far it was behind is measured beside it, and a run in which that is too
// much says that its figures mean nothing.
//
// It sends with vegeta. What a request is decides package traffic; whether what was
// acknowledged is stored, package check.
package openloop

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"

	"github.com/octopay/octopay/loadtest/report"
	"github.com/octopay/octopay/loadtest/traffic"
)

// A Config is how to send. Zero values are the defaults.
type Config struct {
	URL        string // of the service: scheme, host, port
	Key        string // sent as Authorization: Bearer; none
	Pace       Pace
	Duration   time.Duration
	Timeout    time.Duration // of one request, from when it is sent; 10 s
	WorkersMax int           // requests under way at most; 2000
	// Second is called when a second has ended with what is known of it then: answers
	// of its requests that come later are missing. The run's own series has them.
	Second func(report.Second)
}

// lateMax is how far behind a request may still be sent: what is due and not sent then
// is dropped, so that a run ends.
const lateMax = 100 * time.Millisecond

// Run sends the requests of plan, from number 0 on, until c.Duration has passed, and
// waits for their answers. Beside the figures it returns the creates that were
// acknowledged, as traffic.Ledger has it. When ctx ends before that, sending ends: the run
// is of the time until then, and invalid.
func Run(ctx context.Context, plan *traffic.Plan, c Config) (report.Run, []traffic.Ack, error) {
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	if c.WorkersMax == 0 {
		c.WorkersMax = 2000
	}
	base, err := url.Parse(c.URL)
	switch {
	case err != nil:
		return report.Run{}, nil, fmt.Errorf("openloop: %w", err)
	case base.Host == "" || base.Scheme != "http" && base.Scheme != "https":
		return report.Run{}, nil, errors.New("openloop: the URL must be like http://127.0.0.1:8080")
	case c.Timeout < 0 || c.WorkersMax < 0:
		return report.Run{}, nil, errors.New("openloop: neither time-out nor workers can be below 0")
	}
	due, err := c.Pace.schedule(c.Duration)
	if err != nil {
		return report.Run{}, nil, err
	}

	wire := newWire(c, plan)
	defer wire.base.CloseIdleConnections()
	attacker := vegeta.NewAttacker(
		vegeta.Client(&http.Client{
			Transport: wire, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}),
		vegeta.Workers(uint64(min(c.WorkersMax, 64))), vegeta.MaxWorkers(uint64(c.WorkersMax)),
	)
	clock := newPacer(ctx, due, c.Duration+lateMax)
	requests := &requests{plan: plan, base: strings.TrimSuffix(c.URL, "/"), header: http.Header{}}
	if c.Key != "" {
		requests.header.Set("Authorization", "Bearer "+c.Key)
	}
	cpu := ownCPU()
	results := attacker.Attack(requests.targeter(), clock, 0, "")
	<-clock.began

	m := newMeter(plan, due, clock.start, c)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for running := true; running; {
		select {
		case r, ok := <-results:
			if running = ok; ok {
				m.add(r, wire)
			}
		case now := <-tick.C:
			if ctx.Err() == nil { // the seconds in which last answers are waited for aren't of the run
				m.progress(now.Sub(clock.start), requests.sent())
			}
		}
	}
	run := m.run(clock.early)
	run.CPUSec = map[string]float64{"generator": (ownCPU() - cpu).Seconds()}
	return run, m.ledger.Acks(), nil
}

// The requests of a plan, one after the other.
type requests struct {
	plan   *traffic.Plan
	base   string
	header http.Header
	next   atomic.Uint64
}

// sent returns how many were sent.
func (q *requests) sent() int64 { return int64(q.next.Load()) }

// targeter gives them to vegeta. The number of a request is its URL's fragment: that is
// not sent, and comes back with the result.
func (q *requests) targeter() vegeta.Targeter {
	withBody := q.header.Clone()
	withBody.Set("Content-Type", "application/json")
	return func(t *vegeta.Target) error {
		n := q.next.Add(1) - 1
		r := q.plan.Request(n)
		t.Method, t.URL, t.Body, t.Header = r.Method, q.base+r.Target+"#"+strconv.FormatUint(n, 10), r.Body, q.header
		if r.Body != nil {
			t.Header = withBody
		}
		return nil
	}
}

// A pacer holds vegeta back until the next request is due.
type pacer struct {
	stop <-chan struct{} // closed: nothing more is sent
	due  *schedule
	last time.Duration // after it nothing is sent

	once  sync.Once
	began chan struct{} // closed when start is set
	start time.Time
	timer *time.Timer
	// early is when sending ended though there was more to send; 0: it didn't. It is read
	// when vegeta has ended.
	early time.Duration
}

func newPacer(ctx context.Context, due *schedule, last time.Duration) *pacer {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return &pacer{stop: ctx.Done(), due: due, last: last, began: make(chan struct{}), timer: timer}
}

// Pace implements vegeta.Pacer. It is called by one goroutine. It waits itself: while
// vegeta waits it can't be stopped.
func (p *pacer) Pace(elapsed time.Duration, hits uint64) (wait time.Duration, stop bool) {
	p.once.Do(func() {
		p.start = time.Now().Add(-elapsed)
		close(p.began)
	})
	if hits >= uint64(p.due.n) || elapsed > p.last {
		return 0, true
	}
	if wait := p.due.at(int(hits)) - elapsed; wait > 0 {
		p.timer.Reset(wait)
		select {
		case <-p.timer.C:
		case <-p.stop:
		}
	}
	select {
	case <-p.stop:
		p.early = max(1, time.Since(p.start))
		return 0, true
	default:
		return 0, false
	}
}

// Rate implements vegeta.Pacer, which shows it and does nothing by it.
func (p *pacer) Rate(time.Duration) float64 { return 0 }

// ownCPU is what this process has used.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
