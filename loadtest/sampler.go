package main

import (
	"context"
	"sync"
	"time"

	"github.com/octopay/octopay/loadtest/report"
	"github.com/octopay/octopay/loadtest/scrape"
)

// A sampler looks each second at what the service says of itself: how many orders its
// lanes write together, and how far behind the mirror is.
type sampler struct {
	ops []string // base URLs of ops ports

	stop    context.CancelFunc
	wg      sync.WaitGroup
	seconds []sample
}

// A sample is of one second. What couldn't be read is absent.
type sample struct{ batch, lag *float64 }

// start begins; the first second begins now.
func (s *sampler) start(ctx context.Context) {
	if len(s.ops) == 0 {
		return
	}
	ctx, s.stop = context.WithCancel(ctx)
	s.wg.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		orders, batches, _, ok := s.look(ctx)
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			o, b, lag, now := s.look(ctx)
			one := sample{lag: lag}
			if ok && now && b > batches && o >= orders { // less: a program began anew
				mean := (o - orders) / (b - batches)
				one.batch = &mean
			}
			orders, batches, ok = o, b, now
			s.seconds = append(s.seconds, one)
		}
	})
}

// look reads all ops ports. ok reports whether each answered.
func (s *sampler) look(ctx context.Context) (orders, batches float64, lag *float64, ok bool) {
	ok = true
	for _, base := range s.ops {
		m, err := scrape.Get(ctx, base)
		if err != nil {
			ok = false
			continue
		}
		orders += m.Sum("octopay_lane_batch_orders_sum")
		batches += m.Sum("octopay_lane_batch_orders_count")
		if l, found := m.Max("octopay_mirror_lag_seconds"); found && (lag == nil || l > *lag) {
			lag = &l
		}
	}
	return orders, batches, lag, ok
}

// end ends it.
func (s *sampler) end() {
	if s.stop != nil {
		s.stop()
		s.wg.Wait()
	}
}

// enter enters what it saw into the seconds of a run, after its end.
func (s *sampler) enter(seconds []report.Second) {
	for i := range min(len(seconds), len(s.seconds)) {
		seconds[i].LaneBatch, seconds[i].MirrorLagSec = s.seconds[i].batch, s.seconds[i].lag
	}
}
