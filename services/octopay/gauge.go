package main

import (
	"fmt"
	"time"

	"github.com/schollz/progressbar/v3"
)

// gaugeEvery is how often a line says how far a check is where nobody watches.
const gaugeEvery = 5 * time.Second

// A gauge tells how far a check of orders is, on stderr: a bar where a person watches, and
// otherwise a line now and then, which also says from where on a check that was ended can
// go on. It is used under its owner's lock.
type gauge struct {
	to    console
	about int64 // orders, as the servers guess
	said  time.Time
	bar   *progressbar.ProgressBar
}

func newGauge(to console, about int64) *gauge {
	g := &gauge{to: to, about: max(about, 1), said: time.Now()}
	if watched(to.err) {
		g.bar = progressbar.NewOptions64(g.about,
			progressbar.OptionSetWriter(to.err),
			progressbar.OptionSetDescription("checking"),
			progressbar.OptionShowCount(),
			progressbar.OptionShowIts(),
			progressbar.OptionSetItsString("orders"),
			progressbar.OptionSetWidth(30),
			progressbar.OptionThrottle(200*time.Millisecond),
			progressbar.OptionClearOnFinish())
	}
	return g
}

// tell says how far it is at a time.
func (g *gauge) tell(now time.Time, sum *orderSum, position int64) {
	if g.bar != nil {
		_ = g.bar.Set64(min(sum.Orders, g.about)) // it was a guess
		return
	}
	if now.Sub(g.said) < gaugeEvery {
		return
	}
	g.said = now
	fmt.Fprintf(g.to.err, "octopay: %d of about %d orders, and all that were made before %s; differences: %d\n",
		sum.Orders, max(g.about, sum.Orders), goOn(position), sum.Differences)
}

// aside makes room for a line of something else.
func (g *gauge) aside() {
	if g.bar != nil {
		_ = g.bar.Clear()
	}
}

func (g *gauge) end() {
	if g.bar != nil {
		_ = g.bar.Finish()
	}
}
