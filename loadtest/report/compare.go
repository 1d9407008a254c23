package report

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// A Set is targets side by side under the same load: in each round every target ran
// once, one after the other. What a machine does meanwhile (a noisy neighbour, heat)
// falls on all targets of a round alike, so ratios are taken within rounds.
type Set struct {
	Name      string   `json:"name"`      // such as "create, 512 connections"
	Baselines []string `json:"baselines"` // the targets that the others are compared with
	Rounds    [][]Run  `json:"rounds"`
}

// A Spread is the median of some figures with the least and the greatest of them, and
// how many there were. Of none, all is 0.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	N      int     `json:"n"`
}

// A Row is what the valid runs of one target in a Set come to.
type Row struct {
	Target    string            `json:"target"`
	Runs      int               `json:"runs"`
	Invalid   int               `json:"invalid"` // of Runs; they are left out of all figures
	Failed    int               `json:"failed"`  // of Runs, whose check failed; left out as well
	PerSecond Spread            `json:"per_second"`
	Other     Spread            `json:"other"`      // share of the answers that were not of success, %
	Ratio     map[string]Spread `json:"ratio"`      // of PerSecond, by baseline: in the rounds that have both
	LatencyMs Quantiles         `json:"latency_ms"` // the median of each
	CPUMicros map[string]Spread `json:"cpu_micros"` // for each answer of success, by program
	CPURatio  map[string]Spread `json:"cpu_ratio"`  // of all programs but the generator together, by baseline
}

// GeneratorProgram is the name in Run.CPUSec of the program that sends the requests.
// Its work is not the target's.
const GeneratorProgram = "generator"

// Compare returns a row for each target, in the order in which they first ran.
func (s Set) Compare() []Row {
	var rows []*Row
	byTarget := map[string]*Row{}
	figures := map[string][]Run{}
	for _, round := range s.Rounds {
		for _, run := range round {
			row := byTarget[run.Target]
			if row == nil {
				row = &Row{Target: run.Target, Ratio: map[string]Spread{}, CPUMicros: map[string]Spread{}, CPURatio: map[string]Spread{}}
				byTarget[run.Target] = row
				rows = append(rows, row)
			}
			row.Runs++
			switch {
			case !run.Valid():
				row.Invalid++
			case run.Fails():
				row.Failed++
			default:
				figures[run.Target] = append(figures[run.Target], run)
			}
		}
	}
	out := make([]Row, len(rows))
	for i, row := range rows {
		s.fill(row, figures[row.Target])
		out[i] = *row
	}
	return out
}

func (s Set) fill(row *Row, runs []Run) {
	row.PerSecond = spread(each(runs, func(r Run) float64 { return r.PerSecond }))
	row.Other = spread(each(runs, func(r Run) float64 {
		answers := int64(0)
		for _, n := range r.ByAnswer {
			answers += n
		}
		return 100 * float64(answers-r.Succeeded()) / float64(answers)
	}))
	for _, q := range []struct {
		to *float64
		of func(Quantiles) float64
	}{
		{&row.LatencyMs.P50, func(q Quantiles) float64 { return q.P50 }},
		{&row.LatencyMs.P90, func(q Quantiles) float64 { return q.P90 }},
		{&row.LatencyMs.P99, func(q Quantiles) float64 { return q.P99 }},
		{&row.LatencyMs.P999, func(q Quantiles) float64 { return q.P999 }},
		{&row.LatencyMs.Max, func(q Quantiles) float64 { return q.Max }},
	} {
		*q.to = spread(each(runs, func(r Run) float64 { return q.of(r.LatencyMs) })).Median
	}
	for _, program := range programs(runs) {
		row.CPUMicros[program] = spread(each(runs, func(r Run) float64 {
			sec, ok := r.CPUSec[program]
			if !ok {
				return math.NaN()
			}
			return perAnswer(r, sec)
		}))
	}
	for _, baseline := range s.Baselines {
		if baseline == row.Target {
			continue
		}
		if r := spread(s.within(row.Target, baseline, func(r Run) float64 { return r.PerSecond })); r.N > 0 {
			row.Ratio[baseline] = r
		}
		if r := spread(s.within(row.Target, baseline, cpuOfTarget)); r.N > 0 {
			row.CPURatio[baseline] = r
		}
	}
}

// within returns the ratios target : baseline of a figure, one for each round in which
// both have it.
func (s Set) within(target, baseline string, figure func(Run) float64) (ratios []float64) {
	for _, round := range s.Rounds {
		of := func(name string) float64 {
			i := slices.IndexFunc(round, func(r Run) bool { return r.Target == name && !r.Fails() })
			if i < 0 {
				return math.NaN()
			}
			return figure(round[i])
		}
		ratios = append(ratios, of(target)/of(baseline))
	}
	return ratios
}

// cpuOfTarget returns the microseconds of CPU that the programs of the target used for
// an answer of success; NaN when they weren't measured.
func cpuOfTarget(r Run) float64 {
	sum, measured := 0.0, false
	for program, sec := range r.CPUSec {
		if program != GeneratorProgram {
			sum, measured = sum+sec, true
		}
	}
	if !measured {
		return math.NaN()
	}
	return perAnswer(r, sum)
}

// perAnswer returns seconds as microseconds for each answer of success; NaN when there
// was none.
func perAnswer(r Run, sec float64) float64 {
	if r.Succeeded() == 0 {
		return math.NaN()
	}
	return sec * 1e6 / float64(r.Succeeded())
}

// spread returns the spread of the figures that are numbers.
func spread(figures []float64) Spread {
	figures = slices.DeleteFunc(slices.Clone(figures), func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) })
	n := len(figures)
	if n == 0 {
		return Spread{}
	}
	slices.Sort(figures)
	return Spread{Median: (figures[(n-1)/2] + figures[n/2]) / 2, Min: figures[0], Max: figures[n-1], N: n}
}

func each(runs []Run, figure func(Run) float64) []float64 {
	out := make([]float64, len(runs))
	for i, r := range runs {
		out[i] = figure(r)
	}
	return out
}

// programs returns the programs whose CPU was measured, the generator last.
func programs(runs []Run) []string {
	set := map[string]bool{}
	for _, r := range runs {
		for program := range r.CPUSec {
			set[program] = true
		}
	}
	return slices.SortedFunc(maps.Keys(set), func(a, b string) int {
		if g := compareBool(a == GeneratorProgram, b == GeneratorProgram); g != 0 {
			return g
		}
		return cmp.Compare(a, b)
	})
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
