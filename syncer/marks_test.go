package syncer

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/syncer/source"
	"pgregory.net/rapid"
)

func pos(n uint64) source.Position {
	if n == 0 {
		return source.Position{}
	}
	return source.Position{}.With(source.GTID{Domain: 1, Server: 1, Seq: n})
}

// A mark's time is that of a stamp whose position is reached, or the one the marker
// began with; it never falls; and once all is reached it is the newest stamp's.
func TestMarker(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		floor := schema.Millis(rapid.Int64Range(0, 50).Draw(t, "floor"))
		m := &marker{at: floor}
		var stamps []source.Stamp
		written, published := uint64(0), uint64(0)
		last := floor
		newest := floor
		for range rapid.IntRange(1, 900).Draw(t, "steps") {
			written += uint64(rapid.IntRange(0, 2).Draw(t, "written"))
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0: // publish some
				published = min(written, published+uint64(rapid.IntRange(0, 5).Draw(t, "published")))
				at := m.reach(pos(published))
				true_ := at == floor
				for _, s := range stamps {
					true_ = true_ || s.At == at && pos(published).Covers(s.Position)
				}
				if !true_ || at < last {
					t.Fatalf("a mark at %d says %d after %d", published, at, last)
				}
				last = at
			default:
				s := source.Stamp{At: newest + schema.Millis(rapid.IntRange(-5, 5).Draw(t, "at")), Position: pos(written)}
				newest = max(newest, s.At)
				stamps = append(stamps, s)
				m.stamp(s)
				if len(m.waiting) > stampsMax {
					t.Fatalf("%d stamps wait", len(m.waiting))
				}
			}
		}
		if at := m.reach(pos(written)); at != newest {
			t.Fatalf("all is published, but the mark says %d, the newest stamp %d", at, newest)
		}
	})
}

// A clock that stepped back is noticed while one looks, and at the first look of a life:
// below what was promised before there may be orders again.
func TestAClockThatSteppedBackIsNoticed(t *testing.T) {
	const promised = schema.Millis(1_000_000)
	begin := time.Now()
	type look struct {
		after time.Duration // since the first
		now   schema.Millis
		by    time.Duration
		late  time.Duration // the answer was read
	}
	for name, looks := range map[string][]look{
		"it goes on":                        {{0, promised + 1000, 0, 0}, {time.Second, promised + 2000, 0, 0}, {time.Hour, promised + 3_601_000, 0, 0}},
		"it is corrected a little":          {{0, promised + 1000, 0, 0}, {time.Second, promised + 1000, 0, 0}},
		"it steps back while one looks":     {{0, promised + 9000, 0, 0}, {time.Second, promised + 5000, 5 * time.Second, 0}, {2 * time.Second, promised + 6000, 0, 0}},
		"it stepped back before":            {{0, promised - 600_000, 10 * time.Minute, 0}, {time.Second, promised - 599_000, 0, 0}},
		"just what was promised":            {{0, promised, 0, 0}},
		"it stepped back before, and again": {{0, promised - 1, time.Millisecond, 0}, {time.Second, promised - 10_001, 11 * time.Second, 0}},
		"an answer is read late":            {{0, promised + 1000, 0, 0}, {time.Second, promised + 2000, 0, 9 * time.Second}, {11 * time.Second, promised + 12_000, 0, 0}},
		"it steps back, and answers late":   {{0, promised + 9000, 0, 0}, {time.Second, promised + 5000, 5 * time.Second, 9 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			b := backstep{promised: promised}
			for i, l := range looks {
				if by := b.by(l.now, begin.Add(l.after), begin.Add(l.after+l.late)); by != l.by {
					t.Errorf("look %d says %s, want %s", i, by, l.by)
				}
			}
		})
	}
	if first := (&backstep{}); first.by(5000, begin, begin) != 0 {
		t.Error("nothing was promised, but the clock stepped back")
	}
}

// At rest marks begin every markEvery exactly, whatever their acks take of it; between
// batches they never begin earlier.
func TestMarksKeepTheirPace(t *testing.T) {
	for name, batches := range map[string]bool{"at rest": false, "between batches": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPace(markEvery)
				defer p.stop()
				var begun []time.Time
				for len(begun) < 200 {
					if batches {
						select {
						case <-p.timer.C:
						case <-time.After(rand.N(2 * markEvery)):
						}
					} else {
						<-p.timer.C
					}
					if !p.begin() {
						if !batches {
							t.Fatal("the timer fired before its time")
						}
						continue
					}
					begun = append(begun, time.Now())
					time.Sleep(rand.N(markEvery)) // until its ack
					p.end()
				}
				for i, at := range begun[1:] {
					if pause := at.Sub(begun[i]); pause != markEvery {
						t.Fatalf("mark %d began %s after the one before", i+1, pause)
					}
				}
			})
		})
	}
}
