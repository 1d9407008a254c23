package report

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestASpreadIsTheMedianAndTheEnds(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for name, c := range map[string]struct {
		values []float64
		want   Spread
	}{
		"nothing":              {nil, Spread{}},
		"one":                  {[]float64{3}, Spread{3, 3, 3, 1}},
		"an odd number":        {[]float64{9, 1, 4}, Spread{4, 1, 9, 3}},
		"an even number":       {[]float64{9, 1, 4, 2}, Spread{3, 1, 9, 4}},
		"what is no number":    {[]float64{nan, 5, inf, -inf}, Spread{5, 5, 5, 1}},
		"nothing that is some": {[]float64{nan, inf}, Spread{}},
	} {
		if got := SpreadOf(c.values...); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// As many values are at or below the median as at or above it, and the values stay as
// they were.
func TestTheMedianIsInTheMiddle(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(-1e9, 1e9), 1, 30).Draw(rt, "values")
		before := slices.Clone(values)
		s := SpreadOf(values...)
		if !slices.Equal(values, before) {
			rt.Fatal("the values were changed")
		}
		var below, above int
		for _, v := range values {
			if v < s.Min || v > s.Max {
				rt.Fatalf("%v is outside of %+v", v, s)
			}
			if v <= s.Median {
				below++
			}
			if v >= s.Median {
				above++
			}
		}
		if half := len(values) / 2; below < half || above < half || s.Runs != len(values) {
			rt.Fatalf("%d at or below, %d at or above of %d: %+v", below, above, len(values), s)
		}
	})
}

// What slows both of a pair by the same factor changes no ratio.
func TestARatioIsOfPairs(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(rt, "pairs")
		a, b := make([]float64, n), make([]float64, n)
		for i := range n {
			machine := rapid.Float64Range(0.1, 10).Draw(rt, "speed of the machine")
			a[i], b[i] = 8000*machine, 2000*machine
		}
		if s := RatioOf(a, b); math.Abs(s.Median-4) > 1e-9 || s.Max-s.Min > 1e-9 || s.Runs != n {
			rt.Fatalf("%+v", s)
		}
	})
	if s := RatioOf([]float64{6, 0, 8, 5}, []float64{2, 0, 0}); s != (Spread{3, 3, 3, 1}) {
		t.Errorf("pairs without a ratio: %+v", s)
	}
}

func TestCPUIsOfWhatSucceeded(t *testing.T) {
	r := Run{ByAnswer: map[string]int64{"201": 60, "200": 40, "503": 900, "error": 9}, CPUSec: map[string]float64{"orderd": 0.02}}
	if got := r.CPUPerRequest("orderd"); math.Abs(got-200) > 1e-9 {
		t.Errorf("%v µs", got)
	}
	if got := r.CPUPerRequest("mariadbd"); got != 0 {
		t.Errorf("a program that wasn't there: %v µs", got)
	}
	if got := (&Run{}).CPUPerRequest("orderd"); !math.IsNaN(got) {
		t.Errorf("of no request: %v µs", got)
	}
}
