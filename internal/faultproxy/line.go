package faultproxy

import (
	"io"
	"net"
	"sync"
	"time"
)

// A Way is a direction.
type Way int

const (
	// ToServer is what clients say.
	ToServer Way = iota
	// ToClient is what the server says.
	ToClient

	ways
)

// A Traffic says what was carried one way.
type Traffic struct {
	Packets int   // passed on, at least begun
	Bytes   int64 // passed on
	Delayed int   // packets that waited for Delay
	Held    int   // packets, ends and new connections that waited for the end of a Freeze
	Slowed  int   // pieces of packets that waited for Throttle
}

// slack is how long a throttled line's unused bandwidth is kept, and how much of it one
// piece takes: timers are not exact.
const slack = 20 * time.Millisecond

// A line is one way of all connections, and what is wrong with it.
type line struct {
	mu      sync.Mutex
	frozen  bool
	delay   time.Duration
	rate    int           // bytes per second; 0: as fast as it goes
	free    time.Time     // when the next piece may go, at rate
	changed chan struct{} // closed when what is wrong changes
	traffic Traffic
}

func (l *line) set(change func(*line)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l)
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *line) isFrozen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.frozen
}

func (l *line) held() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.traffic.Held
}

// ready waits until what came at a time may pass; false: the link is gone before. Of
// what is no packet, came is zero, and it waits only for the end of a freeze.
func (l *line) ready(gone <-chan struct{}, came time.Time) bool {
	var held, delayed bool
	return l.wait(gone, func(now time.Time) (time.Duration, bool) {
		left := came.Add(l.delay).Sub(now)
		switch {
		case l.frozen:
			if !held {
				held = true
				l.traffic.Held++
			}
			return 0, false
		case !came.IsZero() && left > 0:
			if !delayed {
				delayed = true
				l.traffic.Delayed++
			}
			return left, false
		}
		return 0, true
	})
}

// pass writes a packet that is ready.
func (l *line) pass(gone <-chan struct{}, to io.Writer, packet []byte) error {
	for first := true; len(packet) > 0; first = false {
		size := len(packet)
		slowed := false
		if !l.wait(gone, func(now time.Time) (time.Duration, bool) {
			if l.frozen {
				return 0, false
			}
			if l.rate == 0 {
				return 0, true
			}
			if left := l.free.Sub(now); left > 0 {
				if !slowed {
					slowed = true
					l.traffic.Slowed++
				}
				return left, false
			}
			size = min(size, max(1, int(slack.Seconds()*float64(l.rate))))
			if kept := now.Add(-slack); l.free.Before(kept) {
				l.free = kept
			}
			l.free = l.free.Add(time.Duration(size) * time.Second / time.Duration(l.rate))
			return 0, true
		}) {
			return net.ErrClosed
		}
		// Counted before the other side can notice.
		l.carried(first, size)
		if n, err := to.Write(packet[:size]); err != nil {
			l.carried(false, n-size)
			return err
		}
		packet = packet[size:]
	}
	return nil
}

// carried counts bytes of a packet, and the packet with its first ones.
func (l *line) carried(first bool, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.traffic.Bytes += int64(bytes)
	if first {
		l.traffic.Packets++
	}
}

// wait asks, under l.mu, until the answer is yes; false: the link is gone before. After
// a no it asks again when anything changed, or when the time in the answer is over, if
// it says one.
func (l *line) wait(gone <-chan struct{}, ask func(now time.Time) (again time.Duration, yes bool)) bool {
	for {
		select {
		case <-gone:
			return false
		default:
		}
		l.mu.Lock()
		again, yes := ask(time.Now())
		changed := l.changed
		l.mu.Unlock()
		if yes {
			return true
		}
		var over <-chan time.Time
		if again > 0 {
			over = time.After(again)
		}
		select {
		case <-gone:
			return false
		case <-changed:
		case <-over:
		}
	}
}
