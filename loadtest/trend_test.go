package main

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/octopay/octopay/loadtest/report"
	"pgregory.net/rapid"
)

func series(minutes int, f func(hours float64) float64) (out []point) {
	for at := time.Duration(0); at <= time.Duration(minutes)*time.Minute; at += 5 * time.Second {
		out = append(out, point{at, f(at.Hours())})
	}
	return out
}

func TestWhatGrowsIsTold(t *testing.T) {
	noise := func(h float64) float64 { return math.Sin(h * 9000) }
	for name, c := range map[string]struct {
		f     func(h float64) float64
		share float64
		bad   bool
		want  string
	}{
		"flat":                     {func(float64) float64 { return 40 }, 0.05, false, "steady"},
		"nothing":                  {func(float64) float64 { return 0 }, 0.05, false, "steady"},
		"up and down":              {func(h float64) float64 { return 40 + 10*noise(h) }, 0.05, false, "steady"},
		"falls":                    {func(h float64) float64 { return 400 - 100*h }, 0.05, false, "steady"},
		"grows by a little":        {func(h float64) float64 { return 1000 + 20*h }, 0.05, false, "+20 MiB in an hour: steady"},
		"grows":                    {func(h float64) float64 { return 1000 + 100*h }, 0.05, true, "it GROWS, more than 5 %"},
		"grows under noise":        {func(h float64) float64 { return 1000 + 400*h + 20*noise(h) }, 0.05, true, "GROWS"},
		"grows, as it should":      {func(h float64) float64 { return 1000 + 900*h }, 0, false, "in an hour."},
		"grew until it had enough": {func(h float64) float64 { return 1000 * min(h*60, 10) }, 0.05, false, "steady"},
	} {
		got := trend{what: "x", unit: " MiB", points: series(30, c.f), share: c.share, settled: 10 * time.Minute}.verdict()
		if got.Bad != c.bad || !strings.Contains(got.Text, c.want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := (trend{what: "x", points: series(14, noise), share: 0.05, settled: 10 * time.Minute}).verdict(); got.Bad || !strings.Contains(got.Text, "says nothing yet") {
		t.Errorf("too short: %+v", got)
	}
}

// What never falls is told apart by whether it goes on rising: the highest of the same at
// random hardly ever does, what leaks a piece every two minutes always.
func TestAMarkGrowsOnlyWhileItGoesOnRising(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	verdict := func(value func(h float64) float64) (report.Sentence, int) {
		high := 0.0
		m := trend{what: "x", mark: true, share: 0.05, settled: 10 * time.Minute}
		m.points = series(30, func(h float64) float64 {
			high = max(high, value(h))
			return high
		})
		return m.verdict(), m.rises()
	}
	grew, rose := 0, 0
	const runs = 1000
	for range runs {
		got, n := verdict(func(float64) float64 { return 10 + rng.ExpFloat64() })
		if got.Bad {
			grew++
		}
		if n > 0 {
			rose++
		}
	}
	if grew > runs/50 || rose < runs/2 {
		t.Errorf("of %d marks that don't leak %d rose and %d grew", runs, rose, grew)
	}
	got, n := verdict(func(h float64) float64 { return 10 + math.Floor(30*h) })
	if !got.Bad || n != quarters || !strings.Contains(got.Text, "risen in 4 of 4 quarters of the time: it GROWS") {
		t.Errorf("a leak: %+v", got)
	}
	if got, n := verdict(func(h float64) float64 { return 10 + math.Floor(3*h) }); got.Bad || n != 1 || !strings.HasSuffix(got.Text, "1 of 4 quarters of the time: steady.") {
		t.Errorf("one more thread: %+v", got)
	}
}

// The line through points of a line is that line.
func TestALineIsFound(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		from, perHour := rapid.Float64Range(-1e6, 1e6).Draw(rt, "from"), rapid.Float64Range(-1e6, 1e6).Draw(rt, "per hour")
		minutes := rapid.IntRange(2, 120).Draw(rt, "minutes")
		_, got, around, n := trend{points: series(minutes, func(h float64) float64 { return from + perHour*h })}.line()
		if n < pointsLeast || math.Abs(got-perHour) > 1e-3+1e-6*math.Abs(perHour) || around > 1e-3 {
			rt.Fatalf("%v in an hour, %v around, of %d points; want %v", got, around, n, perHour)
		}
	})
}
