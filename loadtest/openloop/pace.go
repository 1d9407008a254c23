package openloop

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"time"
)

// A Pace says when requests are due: how many per second at each moment, and whether
// they come evenly or as independent buyers do.
type Pace struct {
	name   string
	shape  func(total float64) []leg // of a run of total seconds
	random bool                      // arrivals of a Poisson process
	seed   uint64
	err    error
}

// String says what it is, such as "ramp 100/s to 2000/s".
func (p Pace) String() string { return p.name }

// Bounds of a Pace.
const (
	RateMax = 1_000_000 // per second
	// hitsMax bounds a run: the due times of random arrivals are held in memory.
	hitsMax  = 20_000_000
	stepsMax = 1_000
)

// Constant is rate requests per second.
func Constant(rate float64) Pace {
	return pace(fmt.Sprintf("constant %g/s", rate), func(total float64) []leg {
		return []leg{{total, rate, rate}}
	}, rate)
}

// Ramp rises, or falls, evenly over the whole run.
func Ramp(from, to float64) Pace {
	return pace(fmt.Sprintf("ramp %g/s to %g/s", from, to), func(total float64) []leg {
		return []leg{{total, from, to}}
	}, from, to)
}

// Step goes from one rate to the other in steps that last equally long.
func Step(from, to float64, steps int) Pace {
	p := pace(fmt.Sprintf("%d steps %g/s to %g/s", steps, from, to), func(total float64) (legs []leg) {
		for i := range steps {
			rate := from + (to-from)*float64(i)/float64(steps-1)
			legs = append(legs, leg{total / float64(steps), rate, rate})
		}
		return legs
	}, from, to)
	if steps < 2 || steps > stepsMax {
		p.err = fmt.Errorf("openloop: there must be 2 to %d steps", stepsMax)
	}
	return p
}

// Spike is base, and peak during the middle fifth of the run: before it there is time
// to see what is usual, and after it whether that comes back.
func Spike(base, peak float64) Pace {
	return pace(fmt.Sprintf("spike %g/s to %g/s", base, peak), func(total float64) []leg {
		return []leg{{total * 2 / 5, base, base}, {total / 5, peak, peak}, {total * 2 / 5, base, base}}
	}, base, peak)
}

// Poisson is p with arrivals of a Poisson process of p's rate: as many on average, and
// independent of each other. The same seed makes the same ones.
func (p Pace) Poisson(seed uint64) Pace {
	p.name, p.random, p.seed = p.name+", Poisson", true, seed
	return p
}

// Check says what is wrong with a run of so long at this pace.
func (p Pace) Check(total time.Duration) error {
	_, err := p.schedule(total)
	return err
}

func pace(name string, shape func(float64) []leg, rates ...float64) Pace {
	p := Pace{name: name, shape: shape}
	sum := 0.0
	for _, r := range rates {
		if !(r >= 0 && r <= RateMax) {
			p.err = fmt.Errorf("openloop: a rate must be from 0 to %d per second", RateMax)
		}
		sum += r
	}
	if sum == 0 {
		p.err = errors.New("openloop: a rate must be above 0")
	}
	return p
}

// A leg is a part of a run in which the rate goes evenly from one to another.
type leg struct{ seconds, from, to float64 }

func (l leg) hits() float64 { return l.seconds * (l.from + l.to) / 2 }

// at returns when hit x of the leg is due, in seconds since its beginning: where the
// integral of the rate is x.
func (l leg) at(x float64) float64 {
	slope := (l.to - l.from) / l.seconds
	// The solution of from*t + slope*t*t/2 = x that takes no difference of near numbers.
	root := math.Sqrt(max(0, l.from*l.from+2*slope*x))
	if l.from+root == 0 {
		return 0
	}
	return min(max(0, 2*x/(l.from+root)), l.seconds)
}

// A schedule is the due times of a run. It is not changed once made.
type schedule struct {
	legs   []leg
	before []float64 // hits before each leg
	start  []float64 // seconds before each leg
	n      int
	random []time.Duration // the due times themselves, of random arrivals
}

// schedule returns the due times of a run.
func (p Pace) schedule(total time.Duration) (*schedule, error) {
	switch {
	case p.shape == nil:
		return nil, errors.New("openloop: there is no pace")
	case p.err != nil:
		return nil, p.err
	case total <= 0:
		return nil, errors.New("openloop: a run must last longer than nothing")
	}
	s := &schedule{legs: p.shape(total.Seconds())}
	var hits, seconds float64
	for _, l := range s.legs {
		s.before, s.start = append(s.before, hits), append(s.start, seconds)
		hits += l.hits()
		seconds += l.seconds
	}
	if hits > hitsMax {
		return nil, fmt.Errorf("openloop: a run can have %d requests, not %.0f", hitsMax, hits)
	}
	if !p.random {
		s.n = int(math.Round(hits))
		return s, nil
	}
	// Unit arrivals, mapped to where the integral of the rate is as much.
	rng := rand.New(rand.NewPCG(p.seed, 0x706f6973736f6e))
	s.random = make([]time.Duration, 0, int(hits)+1)
	for x := rng.ExpFloat64(); x < hits; x += rng.ExpFloat64() {
		s.random = append(s.random, s.atHits(x))
	}
	s.n = len(s.random)
	return s, nil
}

// at returns when hit n is due, since the beginning. It never falls as n rises.
func (s *schedule) at(n int) time.Duration {
	if s.random != nil {
		return s.random[n]
	}
	return s.atHits(float64(n))
}

func (s *schedule) atHits(x float64) time.Duration {
	i := sort.Search(len(s.legs), func(i int) bool { return s.before[i] > x }) - 1
	return time.Duration((s.start[i] + s.legs[i].at(x-s.before[i])) * float64(time.Second))
}

// due returns how many hits are due before t.
func (s *schedule) due(t time.Duration) int {
	return sort.Search(s.n, func(n int) bool { return s.at(n) >= t })
}
