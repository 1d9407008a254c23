package idgen

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// A Grant is the right to make ids as one worker until a time, as learnt from one
// answer of the clock that leases worker numbers.
type Grant struct {
	Worker int       // 0 … Workers-1
	Until  time.Time // no id reaches this time; that clock
	Now    time.Time // what that clock said …
	SentAt time.Time // … to a request sent at this moment; this process's monotonic clock
}

var (
	// ErrLeaseEnded reports that the generator has no valid worker number at this
	// time. Nothing was issued.
	ErrLeaseEnded = errors.New("idgen: no valid worker number")
	// ErrFull reports that all ids of the millisecond are used up. Nothing was
	// issued; the next millisecond has room.
	ErrFull = errors.New("idgen: all ids of this millisecond are used up")
	// ErrBehind reports a grant whose clock lies behind ids already made, by more
	// than is worth waiting for. Another worker number has to be acquired.
	ErrBehind = errors.New("idgen: the clock stepped back behind ids already made")
)

// behindMax is how far the leasing clock may step back before its worker number is
// given up: below it, Next waits.
const behindMax = 10 * time.Millisecond

// A Generator makes ids as one worker at a time. Its time is the leasing clock's
// time of the last grant plus the monotonic time since that request was sent, so it
// never runs ahead of that clock. It is safe for concurrent use. The zero value has
// no worker number.
type Generator struct {
	mu     sync.Mutex
	grant  Grant
	valid  bool
	last   int64 // ms of the newest id of grant.Worker
	seq    int   // its sequence
	issued bool  // whether grant.Worker has made an id here
}

// Grant gives the generator a worker number, or renews the one it has. A renewal
// never makes ids go back: when its clock lies before ids already made, it is
// ErrBehind if waiting is not worth it, and the number is no longer used.
func (g *Generator) Grant(grant Grant) error {
	if grant.Worker < 0 || grant.Worker >= Workers {
		return fmt.Errorf("idgen: worker number %d is outside 0 … %d", grant.Worker, Workers-1)
	}
	if grant.Now.Before(Epoch) || !grant.Until.Before(End) {
		return fmt.Errorf("idgen: the leasing clock is outside %s … %s", Epoch.Format(time.DateOnly), End.Format(time.DateOnly))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.valid || grant.Worker != g.grant.Worker {
		g.last, g.seq, g.issued = 0, 0, false
	}
	g.grant, g.valid = grant, true
	if g.issued && g.last-ticks(g.at(grant.SentAt)) > behindMax.Milliseconds() {
		g.valid = false
		return ErrBehind
	}
	return nil
}

// Revoke takes the worker number away. Nothing is issued until the next Grant.
func (g *Generator) Revoke() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.valid = false
}

// Worker returns the worker number in use, and whether there is a valid one.
func (g *Generator) Worker() (int, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.grant.Worker, g.valid && g.at(time.Now()).Before(g.grant.Until)
}

// Next returns a new id for uid, waiting while a millisecond is used up. See
// NextAt.
func (g *Generator) Next(uid int64) (ID, error) {
	for {
		id, err := g.NextAt(time.Now(), uid)
		if !errors.Is(err, ErrFull) {
			return id, err
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// NextAt is Next at time t, a reading of this process's monotonic clock, but
// returns ErrFull instead of waiting. The snowflakes of one worker number strictly
// increase, whatever the sequence of times; at or beyond the end of the lease
// NextAt returns ErrLeaseEnded and issues nothing.
func (g *Generator) NextAt(t time.Time, uid int64) (ID, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.valid {
		return ID{}, ErrLeaseEnded
	}
	now := g.at(t)
	ms := ticks(now)
	if !now.Before(g.grant.Until) || ms >= ticks(g.grant.Until) || ms < 0 {
		return ID{}, ErrLeaseEnded
	}
	seq := 0
	if g.issued && ms <= g.last {
		// The millisecond is the newest one, or the clock stepped back a little:
		// go on within the newest, never ahead of it.
		if g.seq == PerMilli-1 {
			return ID{}, ErrFull
		}
		ms, seq = g.last, g.seq+1
	}
	if ms >= ticks(g.grant.Until) {
		return ID{}, ErrLeaseEnded
	}
	g.last, g.seq, g.issued = ms, seq, true
	return Make(uid, ms<<timeShift|int64(g.grant.Worker)<<SeqBits|int64(seq)), nil
}

// at returns the leasing clock's time at t.
func (g *Generator) at(t time.Time) time.Time { return g.grant.Now.Add(t.Sub(g.grant.SentAt)) }

func ticks(t time.Time) int64 { return t.Sub(Epoch).Milliseconds() }
