package faultproxy

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// In fake time a line is exact: whatever the packets, none comes before it may, and the
// line is no slower than it says.
func TestALineKeepsItsRate(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rate := rapid.IntRange(1, 1<<20).Draw(rt, "rate")
		sizes := rapid.SliceOfN(rapid.IntRange(1, rate), 1, 10).Draw(rt, "sizes")
		total := 0
		for _, n := range sizes {
			total += n
		}
		synctest.Test(t, func(t *testing.T) {
			l := &line{changed: make(chan struct{}), rate: rate}
			var out bytes.Buffer
			begin := time.Now()
			for _, n := range sizes {
				if err := l.pass(nil, &out, make([]byte, n)); err != nil {
					rt.Fatal(err)
				}
			}
			// The last piece goes when the line is free: the time of all before it.
			took, whole := time.Since(begin), time.Duration(float64(total)/float64(rate)*float64(time.Second))
			most := max(slack, time.Second/time.Duration(rate))
			if took > whole+slack || took < whole-2*most-slack {
				rt.Errorf("%d bytes at %d/s took %s", total, rate, took)
			}
			if out.Len() != total || l.traffic.Bytes != int64(total) || l.traffic.Packets != len(sizes) {
				rt.Errorf("%d of %d bytes, %+v", out.Len(), total, l.traffic)
			}
		})
	})
}

// Delayed packets wait beside each other, not after each other.
func TestADelayCostsNoBandwidth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &line{changed: make(chan struct{}), delay: time.Second}
		came := time.Now()
		for i := range 100 {
			if !l.ready(nil, came.Add(time.Duration(i)*time.Millisecond)) {
				t.Fatal("gone")
			}
		}
		if took := time.Since(came); took != time.Second+99*time.Millisecond || l.traffic.Delayed != 100 {
			t.Errorf("100 packets, one a millisecond, took %s; %+v", took, l.traffic)
		}
	})
}

// What waits notices at once that it need not wait any longer.
func TestALineThatChangesWakesWhoWaits(t *testing.T) {
	for name, spoil := range map[string]func(*line){
		"frozen":    func(l *line) { l.frozen = true },
		"delayed":   func(l *line) { l.delay = time.Hour },
		"throttled": func(l *line) { l.rate = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &line{changed: make(chan struct{})}
				spoil(l)
				begin := time.Now()
				done := make(chan error, 1)
				go func() {
					l.ready(nil, time.Now())
					done <- l.pass(nil, &bytes.Buffer{}, make([]byte, 1000))
				}()
				synctest.Wait()
				select {
				case <-done:
					t.Fatal("it did not wait")
				default:
				}
				l.set(func(l *line) { l.frozen, l.delay, l.rate = false, 0, 0 })
				if err := <-done; err != nil || time.Since(begin) != 0 {
					t.Errorf("after %s: %v", time.Since(begin), err)
				}
			})
		})
	}
}
