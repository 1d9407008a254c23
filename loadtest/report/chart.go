package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A chart is a drawing that the page's template writes as SVG. Everything in it is
// placed already; lines and labels take their colours from the page.
//
// The drawing is our own, since what there is for Go (gonum.org/v1/plot) brings nine
// modules, with fonts, PDF and LaTeX among them, and can't follow a page from light
// to dark.
type chart struct {
	Title  string
	Width  int
	Height int
	XLabel string
	YLabel string
	XTicks []tick
	YTicks []tick
	Lines  []drawn
	Legend bool // the lines' names are shown
	Plot   struct{ Left, Top, Right, Bottom float64 }
}

type tick struct {
	At    string
	Label string
}

// drawn is a series in the coordinates of the drawing.
type drawn struct {
	Name  string
	Class string      // its colour and dashes
	Path  string      // of an SVG path
	Dots  [][2]string // points without a neighbour, which a path doesn't show
}

// A series is one figure over time. What wasn't measured is NaN, and stays a gap.
type series struct {
	name  string
	class string
	y     []float64
}

const (
	chartWidth, chartHeight                       = 560, 250
	marginLeft, marginRight, marginTop, marginLow = 64, 14, 28, 42
)

// draw places series over x, which is seconds and rises. It draws nothing, and says so,
// when no series has a point.
func draw(title, unit string, x []float64, all []series) (c chart, ok bool) {
	least, most := math.Inf(1), math.Inf(-1)
	for _, s := range all {
		for _, y := range s.y {
			if known(y) {
				least, most = min(least, y), max(most, y)
			}
		}
	}
	if most < least {
		return c, false
	}
	c = chart{Title: title, Width: chartWidth, Height: chartHeight}
	c.Plot.Left, c.Plot.Top = marginLeft, marginTop
	c.Plot.Right, c.Plot.Bottom = chartWidth-marginRight, chartHeight-marginLow

	first, last := x[0], max(x[len(x)-1], x[0]+1)
	xUnit, per := "s", 1.0
	if last-first > 600 {
		xUnit, per = "min", 60
	}
	c.XLabel = "since the beginning, " + xUnit
	atX := func(x float64) float64 { return c.Plot.Left + (x-first)/(last-first)*(c.Plot.Right-c.Plot.Left) }
	for _, t := range linearTicks(first/per, last/per, 10) {
		if t != math.Trunc(t) {
			continue // of a short run: there is no half second
		}
		c.XTicks = append(c.XTicks, tick{coordinate(atX(t * per)), figureOfTick(t)})
	}

	// Percentiles can lie a thousandfold apart: on a straight scale a median would be
	// a line on the floor.
	c.YLabel = unit
	scale, ticks := straight(most)
	if least > 0 && most/least > 50 {
		c.YLabel += " (log)"
		scale, ticks = logarithmic(least, most)
	}
	atY := func(y float64) float64 { return c.Plot.Bottom - scale(y)*(c.Plot.Bottom-c.Plot.Top) }
	for _, t := range ticks {
		c.YTicks = append(c.YTicks, tick{coordinate(atY(t)), figureOfTick(t)})
	}

	for _, s := range all {
		d := drawn{Name: s.name, Class: s.class}
		var path strings.Builder
		for i, y := range s.y {
			if !known(y) {
				continue
			}
			px, py := coordinate(atX(x[i])), coordinate(atY(y))
			before := i > 0 && known(s.y[i-1])
			after := i+1 < len(s.y) && known(s.y[i+1])
			switch {
			case before:
				fmt.Fprintf(&path, "L%s %s", px, py)
			case after:
				fmt.Fprintf(&path, "M%s %s", px, py)
			default:
				d.Dots = append(d.Dots, [2]string{px, py})
			}
		}
		if d.Path = path.String(); d.Path != "" || d.Dots != nil {
			c.Lines = append(c.Lines, d)
		}
	}
	c.Legend = len(c.Lines) > 1
	return c, true
}

// straight returns the scale from 0 to most, as a share of the height.
func straight(most float64) (scale func(float64) float64, ticks []float64) {
	if most <= 0 {
		most = 1
	}
	ticks = linearTicks(0, most, 5)
	step := most
	if len(ticks) > 1 {
		step = ticks[1] - ticks[0]
	}
	top := math.Ceil(most/step-1e-9) * step
	if top > ticks[len(ticks)-1]+step/2 {
		ticks = append(ticks, top)
	}
	return func(y float64) float64 { return y / top }, ticks
}

// logarithmic returns the scale from the power of ten below least to the one above
// most.
func logarithmic(least, most float64) (scale func(float64) float64, ticks []float64) {
	low, high := math.Floor(math.Log10(least)+1e-9), math.Ceil(math.Log10(most)-1e-9)
	for e := low; e <= high; e++ {
		ticks = append(ticks, math.Pow(10, e))
	}
	return func(y float64) float64 { return (math.Log10(y) - low) / (high - low) }, ticks
}

// linearTicks returns the multiples of 1, 2 or 5 times a power of ten from low to high,
// about as many as are wanted.
func linearTicks(low, high float64, wanted int) (ticks []float64) {
	rough := (high - low) / float64(wanted)
	step := math.Pow(10, math.Floor(math.Log10(rough)))
	for _, m := range []float64{1, 2, 5, 10} {
		if m*step >= rough*0.999 {
			step *= m
			break
		}
	}
	for k := math.Ceil(low/step - 1e-9); k*step <= high*(1+1e-9); k++ {
		ticks = append(ticks, k*step)
	}
	return ticks
}

func known(y float64) bool { return !math.IsNaN(y) && !math.IsInf(y, 0) }

// coordinate writes a place in the drawing.
func coordinate(x float64) string { return strconv.FormatFloat(x, 'f', 1, 64) }

// figureOfTick writes a round number.
func figureOfTick(x float64) string {
	if x == math.Trunc(x) && math.Abs(x) < 1e15 {
		return count(int64(x))
	}
	return strconv.FormatFloat(x, 'g', 4, 64)
}

// The drawings whose only line needs its name, too.
const (
	throughput    = "Throughput"
	answersByCode = "Answers by code"
)

// charts returns the drawings of a run: what was measured of it.
func (r Run) charts() (out []chart) {
	if len(r.Seconds) == 0 {
		return nil
	}
	x := make([]float64, len(r.Seconds))
	for i, s := range r.Seconds {
		x[i] = float64(s.At)
	}
	over := func(name, class string, of func(Second) float64) series {
		s := series{name: name, class: class, y: make([]float64, len(r.Seconds))}
		for i, second := range r.Seconds {
			s.y[i] = of(second)
		}
		return s
	}
	add := func(title, unit string, all ...series) {
		if c, ok := draw(title, unit, x, all); ok {
			c.Legend = c.Legend || title == throughput || title == answersByCode
			out = append(out, c)
		}
	}
	latency := func(name, class string, of func(Quantiles) float64) series {
		return over(name, class, func(s Second) float64 {
			if s.LatencyMs == nil {
				return math.NaN()
			}
			return of(*s.LatencyMs)
		})
	}
	optional := func(x *float64) float64 {
		if x == nil {
			return math.NaN()
		}
		return *x
	}
	due := func(s Second) float64 { return float64(s.Offered) }
	if r.Loop != Open {
		due = func(Second) float64 { return math.NaN() } // nothing ever was
	}
	add(throughput, "requests/s",
		over("due", "muted", due),
		over("answered with success", "c1", func(s Second) float64 { return float64(succeeded(s.ByAnswer)) }))
	add("Latency from the intended send time", "ms",
		latency("p50", "c2", func(q Quantiles) float64 { return q.P50 }),
		latency("p90", "c3", func(q Quantiles) float64 { return q.P90 }),
		latency("p99", "c1", func(q Quantiles) float64 { return q.P99 }),
		latency("p99.9", "c5", func(q Quantiles) float64 { return q.P999 }),
		latency("max", "c6", func(q Quantiles) float64 { return q.Max }))
	var byAnswer []series
	for _, answer := range r.answers() {
		byAnswer = append(byAnswer, over(answer.name, answer.class, func(s Second) (sum float64) {
			for _, code := range answer.codes {
				sum += float64(s.ByAnswer[code])
			}
			return sum
		}))
	}
	add(answersByCode, "answers/s", byAnswer...)
	add("Orders in a lane's transaction", "orders, mean", over("orders", "c1", func(s Second) float64 { return optional(s.LaneBatch) }))
	add("Mirror lag", "s, largest", over("lag", "c2", func(s Second) float64 { return optional(s.MirrorLagSec) }))
	return out
}

// An answerLine is a line of the drawing of answers.
type answerLine struct {
	name  string
	class string
	codes []string
}

// answers returns the lines of the drawing of answers: the most frequent codes, and
// one for all others. Refusals and errors have the colours of warnings.
func (r Run) answers() (lines []answerLine) {
	const most = 6
	var codes []string
	for code := range r.ByAnswer {
		codes = append(codes, code)
	}
	slices.SortFunc(codes, func(a, b string) int {
		if d := r.ByAnswer[b] - r.ByAnswer[a]; d != 0 {
			return int(max(-1, min(1, d)))
		}
		return strings.Compare(a, b)
	})
	rest := codes[min(most, len(codes)):]
	codes = codes[:len(codes)-len(rest)]
	slices.Sort(codes)
	wanted := map[byte][]string{'2': {"c1", "c2"}, '4': {"c3", "c8"}, '5': {"c6", "c7"}, 'e': {"c5"}, 'n': {"c7", "c6"}}
	free := []string{"c4", "c5", "c8", "c7", "c3", "c2", "c6", "c1"}
	for _, code := range codes {
		at := 0
		for _, class := range wanted[(code + " ")[0]] {
			if i := slices.Index(free, class); i >= 0 {
				at = i
				break
			}
		}
		lines = append(lines, answerLine{code, free[at], []string{code}})
		free = slices.Delete(free, at, at+1)
	}
	if len(rest) > 0 {
		lines = append(lines, answerLine{"others", "muted", rest})
	}
	return lines
}
