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
