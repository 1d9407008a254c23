package report

import (
	"math"
	"slices"
)

// A Spread is one figure of runs that were repeated. It has the median, since a mean is
// the word of the one run that something else disturbed.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Runs   int     `json:"runs"`
}

// SpreadOf returns the spread of values. What is no finite number is left out; the
// spread of nothing is zero.
func SpreadOf(values ...float64) Spread {
	v := slices.DeleteFunc(slices.Clone(values), func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) })
	if len(v) == 0 {
		return Spread{}
	}
	slices.Sort(v)
	mid := len(v) / 2
	median := v[mid]
	if len(v)%2 == 0 {
		median = (v[mid-1] + v[mid]) / 2
	}
	return Spread{Median: median, Min: v[0], Max: v[len(v)-1], Runs: len(v)}
}

// RatioOf returns the spread of a[i] / b[i]. a and b are figures of runs that alternated:
// those with one index ran one after the other, so that what changes slowly on the
// machine is in both. Where there is no such pair, or b is 0, there is no ratio.
func RatioOf(a, b []float64) Spread {
	var ratios []float64
	for i := range min(len(a), len(b)) {
		ratios = append(ratios, a[i]/b[i]) // 0/0 and x/0 are no numbers, see SpreadOf
	}
	return SpreadOf(ratios...)
}

// Succeeded returns how many requests were answered 2xx.
func (r *Run) Succeeded() (n int64) {
	for answer, count := range r.ByAnswer {
		if len(answer) == 3 && answer[0] == '2' {
			n += count
		}
	}
	return n
}

// CPUPerRequest returns how many µs of CPU a program used for each request that was
// answered 2xx; NaN when none was.
func (r *Run) CPUPerRequest(program string) float64 {
	n := r.Succeeded()
	if n == 0 {
		return math.NaN()
	}
	return r.CPUSec[program] / float64(n) * 1e6
}
