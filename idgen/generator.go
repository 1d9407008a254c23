package idgen

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// A Grant is the right to make ids as one worker until a time, as learnt from one
// answer of the clock that leases worker numbers. The times of that clock are whole
// ms.
type Grant struct {
	Worker int       // 0 … Workers-1
	Token  int64     // from 1; another one each time that the number is acquired
	Until  time.Time // no id reaches this time; that clock
	Now    time.Time // what that clock said …
	SentAt time.Time // … to a request sent at this moment; time.Now(), as it came
}

var (
	// ErrLeaseEnded reports that the generator has no valid worker number at this
	// time. Nothing was issued.
	ErrLeaseEnded = errors.New("idgen: no valid worker number")
	// ErrFull reports that all ids of the millisecond are used up. Nothing was
	// issued; a later millisecond has room.
	ErrFull = errors.New("idgen: all ids of this millisecond are used up")
	// ErrBehind reports a grant whose clock lies behind ids already made, by more
	// than is worth waiting for. Another worker number has to be acquired.
	ErrBehind = errors.New("idgen: the clock stepped back behind ids already made")
	// ErrRevoked reports a grant of a number that was taken away while the request
	// for it was under way. Another worker number has to be acquired.
	ErrRevoked = errors.New("idgen: the worker number was given back")
)

// behindMax is how far a grant may take the generator's time back before its number
// is given up. A renewal that was slow to arrive puts that time ahead, and the next one
// puts it back, so on a busy machine a little of it is daily life. Meanwhile ids go on
// in the newest ms, which has room for 4,096, and then wait; giving the number up would
// refuse creates until there is another one.
const behindMax = time.Second

// A Generator makes ids as one worker at a time. Its time is what the leasing clock
// said at the last grant plus the monotonic time since that request was sent; the
// wall clock is never read. That clock was read after the request was sent, so the
// generator's time is behind it by no more than its rounding, and ahead of it by no
// more than the round trip. No promise depends on that: what bounds ids is the time in
// them, not the moment at which they are made.
//
// A Generator is safe for concurrent use. The zero value has no worker number.
type Generator struct {
	mu    sync.Mutex
	grant Grant
	valid bool
	// floor is, for each number, the lowest ms<<SeqBits|seq that may still be issued
	// with it here: above all that this process issued with it, under whatever
	// token, and from the time on at which it was acquired.
	floor [Workers]int64
}

// Grant gives the generator a worker number, or renews the one it has. See GrantAt.
func (g *Generator) Grant(grant Grant) error { return g.GrantAt(time.Now(), grant) }

// GrantAt is Grant at time t, when the answer is there. A number that is acquired,
// which its token shows, makes no id before grant.Now, also when a renewal tells
// later that the clock stepped back: the time before belongs to those who held it
// earlier. A renewal never makes ids go back; ErrBehind if waiting is not worth it.
// After an error the generator uses this number no more under this token.
func (g *Generator) GrantAt(t time.Time, grant Grant) error {
	if grant.Worker < 0 || grant.Worker >= Workers || grant.Token < 1 {
		return fmt.Errorf("idgen: worker number %d, token %d: numbers are 0 … %d, tokens from 1", grant.Worker, grant.Token, Workers-1)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	same := grant.Worker == g.grant.Worker && grant.Token == g.grant.Token
	if same && !g.valid {
		return ErrRevoked
	}
	acquired := !same
	g.grant, g.valid = grant, false
	if grant.Now.Before(Epoch) || !grant.Until.Before(End) {
		return fmt.Errorf("idgen: the leasing clock says %s; the layout of ids ends %s and begins %s",
			grant.Now.Format(time.DateTime), End.Format(time.DateTime), Epoch.Format(time.DateTime))
	}
	floor := &g.floor[grant.Worker]
	if acquired {
		*floor = max(*floor, ticks(grant.Now)<<SeqBits)
	}
	if *floor>>SeqBits-ticks(g.at(t)) > behindMax.Milliseconds() {
		return ErrBehind
	}
	g.valid = true
	return nil
}

// Revoke takes the worker number away, and reports whether it was the one in use.
// Nothing is issued until it, or another number, is granted under another token.
func (g *Generator) Revoke(worker int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.valid || g.grant.Worker != worker {
		return false
	}
	g.valid = false
	return true
}

// Worker returns the worker number in use and for how long the generator may use it
// if it isn't renewed. Without a valid number that is 0.
func (g *Generator) Worker() (number int, left time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.valid {
		return 0, 0
	}
	return g.grant.Worker, max(0, g.grant.Until.Sub(g.at(time.Now())))
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

// NextAt is Next at time t, a reading of time.Now(), but returns ErrFull instead of
// waiting. The snowflakes of one worker number strictly increase, whatever the
// sequence of times and grants; at or beyond the end of the lease NextAt returns
// ErrLeaseEnded and issues nothing.
func (g *Generator) NextAt(t time.Time, uid int64) (ID, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.valid {
		return ID{}, ErrLeaseEnded
	}
	now, end := ticks(g.at(t)), ticks(g.grant.Until)
	next := max(g.floor[g.grant.Worker], now<<SeqBits)
	ms, seq := next>>SeqBits, next&(PerMilli-1)
	switch {
	case now >= end || ms >= end:
		return ID{}, ErrLeaseEnded
	case ms > now && seq == 0:
		// To begin a millisecond before its time would be to run ahead of the clock.
		// One that is begun goes on, though a grant took the time back behind it.
		return ID{}, ErrFull
	}
	g.floor[g.grant.Worker] = next + 1
	return Make(uid, ms<<timeShift|int64(g.grant.Worker)<<SeqBits|seq), nil
}

// at returns the leasing clock's time at t. A t before the request was sent is one
// that was read before the grant came: it counts as that moment. Both times carry
// monotonic readings, and Sub uses them alone.
func (g *Generator) at(t time.Time) time.Time {
	return g.grant.Now.Add(max(0, t.Sub(g.grant.SentAt)))
}

// ticks returns the ms of t since Epoch, which t must not be before.
func ticks(t time.Time) int64 { return t.Sub(Epoch).Milliseconds() }
