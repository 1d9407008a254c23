package main

import (
	"fmt"
	"math"
	"time"

	"github.com/octopay/octopay/loadtest/report"
)

// A point is what something was, so long after the beginning.
type point struct {
	at    time.Duration
	value float64
}

// A trend is whether something grows while the load stays the same.
type trend struct {
	what   string
	unit   string
	points []point // in order
	// share is what it may grow by in an hour, of its mean; 0: any growth is as it
	// should be, and only told.
	share float64
	// mark says that it never falls, by its nature: the highest it ever was.
	mark bool
	// settled is when it has reached what it stays at, if it stays.
	settled time.Duration
}

// A line is laid through so many points at least, of so long a time.
const (
	pointsLeast = 10
	seenLeast   = 5 * time.Minute
)

// line lays a line through the settled points: their mean, what it rises by in an hour,
// and how far the points lie from it (standard deviation).
func (t trend) line() (mean, perHour, around float64, n int) {
	var xs, ys []float64
	for _, p := range t.points {
		if p.at >= t.settled {
			xs, ys = append(xs, p.at.Hours()), append(ys, p.value)
		}
	}
	if n = len(xs); n < pointsLeast {
		return 0, 0, 0, n
	}
	var mx, my float64
	for i := range xs {
		mx, my = mx+xs[i]/float64(n), my+ys[i]/float64(n)
	}
	var xx, xy float64
	for i := range xs {
		xx += (xs[i] - mx) * (xs[i] - mx)
		xy += (xs[i] - mx) * (ys[i] - my)
	}
	perHour = xy / xx
	for i := range xs {
		r := ys[i] - my - perHour*(xs[i]-mx)
		around += r * r
	}
	return my, perHour, math.Sqrt(around / float64(n)), n
}

// quarters is in how many parts a mark is looked at.
const quarters = 4

// rises returns in how many quarters of the settled time it was higher than ever before.
func (t trend) rises() (n int) {
	last := t.points[len(t.points)-1].at
	high := math.Inf(-1)
	risen := [quarters]bool{}
	for _, p := range t.points {
		if p.value <= high {
			continue
		}
		high = p.value
		if p.at >= t.settled {
			risen[min(int(quarters*(p.at-t.settled)/max(last-t.settled, 1)), quarters-1)] = true
		}
	}
	for _, is := range risen {
		if is {
			n++
		}
	}
	return n
}

// verdict says whether it grows: it does when in an hour it would rise by more than its
// share, and did rise, in the time that was looked at, by more than what it goes up and
// down by anyway.
//
// A mark never falls, so a line through it always rises. But the highest of ever more of
// the same is beaten ever more rarely, the n-th time with a chance of 1 in n; what leaks
// goes on. So a mark grows when it also rose in each quarter of the time: one that doesn't
// leak, looked at from a third of the time on, does in 3 of 1,000 cases.
func (t trend) verdict() report.Sentence {
	mean, perHour, around, n := t.line()
	seen := time.Duration(0)
	if n > 0 {
		seen = t.points[len(t.points)-1].at - t.settled
	}
	if n < pointsLeast || seen < seenLeast {
		return report.Sentence{Text: fmt.Sprintf("%s: %s, which says nothing yet: it was looked at for less than %s after the first %s.",
			t.what, t.last(), seenLeast, t.settled.Round(time.Second))}
	}
	text := fmt.Sprintf("%s: %s%s on average, %+.3g%s in an hour", t.what, short(mean), t.unit, perHour, t.unit)
	if t.mark {
		text = fmt.Sprintf("%s: %s, %+.3g%s in an hour, risen in %d of %d quarters of the time", t.what, t.last(), perHour, t.unit, t.rises(), quarters)
	}
	switch {
	case t.share == 0:
		return report.Sentence{Text: text + "."}
	case t.mark && t.rises() < quarters:
	case perHour > t.share*mean && perHour*seen.Hours() > 2*around:
		return report.Sentence{Bad: true, Text: fmt.Sprintf("%s: it GROWS, more than %.0f %% in an hour.", text, 100*t.share)}
	}
	return report.Sentence{Text: text + ": steady."}
}

func short(x float64) string {
	if math.Abs(x) >= 100 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

// last returns the newest value.
func (t trend) last() string {
	if len(t.points) == 0 {
		return "nothing"
	}
	return short(t.points[len(t.points)-1].value) + t.unit
}
