package openloop

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func mustSchedule(t interface{ Fatal(...any) }, p Pace, total time.Duration) *schedule {
	s, err := p.schedule(total)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// integral is the number of requests of legs before t, summed up in small pieces.
func integral(legs []leg, t float64) (hits float64) {
	for _, l := range legs {
		in := min(t, l.seconds)
		if in <= 0 {
			break
		}
		hits += in * (l.from + (l.from + (l.to-l.from)*in/l.seconds)) / 2
		t -= l.seconds
	}
	return hits
}

func anyPace(t *rapid.T) Pace {
	rate := func(name string) float64 {
		return rapid.SampledFrom([]float64{0.1, 30, 500, 3000}).Draw(t, name+"'s scale") * rapid.Float64Range(0.1, 1).Draw(t, name)
	}
	a, b := rate("a"), rate("b")
	return rapid.SampledFrom([]Pace{
		Constant(a), Ramp(a, b), Ramp(0, b), Ramp(a, 0), Step(a, b, rapid.IntRange(2, 20).Draw(t, "steps")), Spike(a, b), Spike(0, b),
	}).Draw(t, "pace")
}

// At every moment as many requests are due as the rate's integral says, and the due
// times never fall.
func TestWhatIsDueIsTheIntegralOfTheRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyPace(t)
		total := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 7 * time.Second, 20 * time.Second}).Draw(t, "scale") +
			time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "more"))
		s := mustSchedule(t, p, total)
		if want := integral(s.legs, total.Seconds()); math.Abs(float64(s.n)-want) > 0.51 {
			t.Fatalf("%s offers %d requests in %s, want %.2f", p, s.n, total, want)
		}
		last := time.Duration(0)
		for n := range s.n {
			at := s.at(n)
			if at < last || at > total {
				t.Fatalf("%s: request %d is due at %s, the one before it at %s, of %s", p, n, at, last, total)
			}
			if want := integral(s.legs, at.Seconds()); math.Abs(float64(n)-want) > 0.01+1e-9*float64(n) {
				t.Fatalf("%s: request %d is due at %s, when %.3f are", p, n, at, want)
			}
			last = at
		}
		at := time.Duration(rapid.Int64Range(0, int64(total)).Draw(t, "at"))
		if got, want := s.due(at), integral(s.legs, at.Seconds()); math.Abs(float64(got)-want) > 1.01 {
			t.Fatalf("%s: %d are due before %s, want %.2f", p, got, at, want)
		}
	})
}

// Arrivals of a Poisson process: in parts of a run that expect m of them there are m
// on average, with a variance of m. Both are within four standard deviations for each
// of these seeds.
func TestPoissonArrivalsHaveTheMeanAndTheVarianceOfTheirRate(t *testing.T) {
	for seed := range uint64(20) {
		for _, p := range []Pace{Constant(1000), Spike(500, 2500), Step(500, 1500, 4)} {
			const total = 50 * time.Second
			even := mustSchedule(t, p, total)
			s := mustSchedule(t, p.Poisson(seed), total)
			if !slices.IsSorted(s.random) {
				t.Fatalf("%s: the due times fall", p)
			}
			if want := float64(even.n); math.Abs(float64(s.n)-want) > 4*math.Sqrt(want) {
				t.Errorf("%s, seed %d: %d requests, want about %.0f", p, seed, s.n, want)
			}
			// Parts of equal expectation: between the due times of every tenth even one.
			const expected = 10
			var squares float64
			parts := even.n/expected - 1
			for i := range parts {
				got := s.due(even.at((i+1)*expected)) - s.due(even.at(i*expected))
				squares += math.Pow(float64(got-expected), 2)
			}
			// The variance of a Poisson variable's squared distance is m + 2m².
			variance, deviation := squares/float64(parts), math.Sqrt((expected+2*expected*expected)/float64(parts))
			if math.Abs(variance-expected) > 4*deviation {
				t.Errorf("%s, seed %d: the variance is %.2f, want %d ± %.2f", p, seed, variance, expected, 4*deviation)
			}
		}
	}
}

func TestTheSameSeedMakesTheSameArrivals(t *testing.T) {
	a, b := mustSchedule(t, Constant(500).Poisson(7), time.Minute), mustSchedule(t, Constant(500).Poisson(7), time.Minute)
	if !slices.Equal(a.random, b.random) {
		t.Error("one seed made two sequences")
	}
	if c := mustSchedule(t, Constant(500).Poisson(8), time.Minute); slices.Equal(a.random, c.random) {
		t.Error("two seeds made one sequence")
	}
}

func TestWhatIsWrongWithAPaceIsNamed(t *testing.T) {
	for want, p := range map[string]Pace{
		"no pace":        {},
		"above 0":        Constant(0),
		"from 0":         Ramp(-1, 5),
		"per second":     Constant(math.Inf(1)),
		"0 to":           Spike(1, math.NaN()),
		"2 to":           Step(1, 2, 1),
		"20000000 requ":  Constant(RateMax),
		"longer than no": Constant(1),
	} {
		total := time.Minute
		if strings.HasPrefix(want, "longer") {
			total = 0
		}
		if err := p.Check(total); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", p, err, want)
		}
	}
}

func TestAPaceSaysWhatItIs(t *testing.T) {
	for want, p := range map[string]Pace{
		"constant 500/s": Constant(500), "ramp 0/s to 2000/s": Ramp(0, 2000), "5 steps 100/s to 500/s": Step(100, 500, 5),
		"spike 100/s to 2000/s, Poisson": Spike(100, 2000).Poisson(1),
	} {
		if p.String() != want {
			t.Errorf("%q, want %q", p, want)
		}
	}
}
