package payconfig

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Bounds of what a merchant may send at once, see Burst.
const (
	burstMin   = 500 // a whole batch
	burstShare = 10  // of a second
)

// Burst returns how many calls a merchant with this rate may make at once after it was
// quiet: a tenth of a second's, and never less than 500, the orders of a whole batch. A
// smaller one would refuse calls of a merchant that keeps its rate, since they don't come
// evenly: of calls that come at random, exactly at the rate, a burst of 100 passes 99.6 %.
func Burst(perSecond int) int { return max(burstMin, perSecond/burstShare) }

// Rates holds merchants to the rates of the config in force, each process for itself: a
// merchant that is served by n processes has up to n times its rate. It knows only the
// merchants to which that config gives a rate, so the config bounds it. It is safe for
// concurrent use.
type Rates struct {
	config func() *Snapshot
	now    func() time.Time // never goes back
	mu     sync.Mutex       // of the change to another config
	force  atomic.Pointer[paces]
}

// A paces is what a config says of rates.
type paces struct {
	config    *Snapshot
	merchants map[int64]*pace // those that have a rate
}

// A pace is what a merchant has left.
type pace struct {
	mu  sync.Mutex // so that the times that the limiter sees never go back: it would give twice
	of  int        // calls a second
	lim *rate.Limiter
}

// NewRates returns the rates of a config; config returns the one in force, never an older
// one than it has returned before.
func NewRates(config func() *Snapshot) *Rates { return &Rates{config: config, now: time.Now} }

// Allow reports whether a merchant may make a call now, and counts it if so. A merchant
// to which the config gives no rate always may. It takes no memory, and waits for nobody
// but for others of the same merchant, and for the first call after a change of config.
func (r *Rates) Allow(bid int64) bool {
	f := r.force.Load()
	if f == nil || f.config != r.config() {
		f = r.follow()
	}
	p := f.merchants[bid]
	if p == nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lim.AllowN(r.now(), 1)
}

// follow takes over the config in force. A merchant keeps what it has left, also when its
// rate is another one, so that no change of the config is a fresh start for those that it
// doesn't concern; one that begins to have a rate begins with a whole burst.
func (r *Rates) follow() *paces {
	r.mu.Lock()
	defer r.mu.Unlock()
	config := r.config()
	before := r.force.Load()
	if before != nil && before.config == config {
		return before // somebody else was here
	}
	now := &paces{config: config, merchants: map[int64]*pace{}}
	for i := range config.merchants {
		m := &config.merchants[i]
		if m.Rate == 0 {
			continue
		}
		var p *pace
		if before != nil {
			p = before.merchants[m.BID]
		}
		if p == nil {
			p = &pace{of: m.Rate, lim: rate.NewLimiter(rate.Limit(m.Rate), Burst(m.Rate))}
		} else {
			p.become(m.Rate, r.now)
		}
		now.merchants[m.BID] = p
	}
	r.force.Store(now)
	return now
}

// become changes the rate.
func (p *pace) become(perSecond int, now func() time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == perSecond {
		return
	}
	at := now()
	p.of = perSecond
	p.lim.SetLimitAt(at, rate.Limit(perSecond))
	p.lim.SetBurstAt(at, Burst(perSecond))
}
