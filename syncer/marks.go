package syncer

import (
	"sync"
	"time"

	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/syncer/source"
)

// stampsMax bounds the stamps that wait for their position to be published.
const stampsMax = 256

// A marker turns stamps into the times of marks: a stamp counts once everything up
// to its position is published, and the time never falls.
type marker struct {
	mu      sync.Mutex
	at      schema.Millis  // of the newest mark
	waiting []source.Stamp // by position and time, rising
}

// stamp takes a new stamp in.
func (m *marker) stamp(s source.Stamp) {
	m.mu.Lock()
	defer m.mu.Unlock()
	newest := m.at
	if n := len(m.waiting); n > 0 {
		newest = m.waiting[n-1].At
	}
	if s.At <= newest {
		return
	}
	if len(m.waiting) == stampsMax {
		// Far behind. Any of them may be missing: marks then come in larger steps.
		for i := range stampsMax / 2 {
			m.waiting[i] = m.waiting[2*i+1]
		}
		m.waiting = m.waiting[:stampsMax/2]
	}
	m.waiting = append(m.waiting, s)
}

// reach returns the time of a mark at a position, up to which all is published.
func (m *marker) reach(position source.Position) schema.Millis {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for n < len(m.waiting) && position.Covers(m.waiting[n].Position) {
		m.at = m.waiting[n].At
		n++
	}
	m.waiting = append(m.waiting[:0], m.waiting[n:]...)
	return m.at
}

// clockBackMax is how far a server's clock may step back unsaid.
const clockBackMax = time.Second

// A backstep finds out that a server's clock stepped back: while this looks, by our own
// clock; and before, as a server does that was started again, by what was promised.
type backstep struct {
	promised schema.Millis // by the last mark of an earlier life
	now      schema.Millis // of the server
	answered time.Time     // when it had said so; zero: never yet
}

// by returns how far the server's clock stepped back since it was last looked at, at least;
// 0 if it didn't. It showed now at some time between asked and answered: whoever stands
// still with an answer in his hands must not take that for a step.
func (b *backstep) by(now schema.Millis, asked, answered time.Time) (by time.Duration) {
	if b.answered.IsZero() {
		// A mark's time was some while ago what the server's clock said, or less. So
		// any time below it is behind.
		by = max(0, b.promised.Time().Sub(now.Time()))
	} else if by = asked.Sub(b.answered) - now.Time().Sub(b.now.Time()); by <= clockBackMax {
		by = 0
	}
	b.now, b.answered = now, answered
	return by
}

// A pace begins something no more often than every so often, and, when nothing else is
// in the way, no more rarely: how long the thing itself takes is part of the pause.
type pace struct {
	every time.Duration
	last  time.Time   // when it was begun last
	timer *time.Timer // fires when it is due again
}

func newPace(every time.Duration) *pace {
	return &pace{every: every, last: time.Now(), timer: time.NewTimer(every)}
}

// begin reports whether it is due; then it begins now.
func (p *pace) begin() bool {
	now := time.Now()
	if now.Sub(p.last) < p.every {
		return false
	}
	p.last = now
	return true
}

// end is called after what begin allowed.
func (p *pace) end() { p.timer.Reset(time.Until(p.last.Add(p.every))) }

func (p *pace) stop() { p.timer.Stop() }
