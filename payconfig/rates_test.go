package payconfig

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// ratesOf are the rates of configs that a test puts in force one after the other.
func ratesOf(t *testing.T, text string) (r *Rates, put func(text string)) {
	t.Helper()
	var force atomic.Pointer[Snapshot]
	put = func(text string) { force.Store(mustDecode(t, text)) }
	put(text)
	return NewRates(force.Load), put
}

// rates is a config in which merchants, pairs of bid and rate, have rates; 0 is none.
func rates(pairs ...int) string {
	var list []string
	for i := 0; i < len(pairs); i += 2 {
		fields := []string{"bid", strconv.Quote(strconv.Itoa(pairs[i]))}
		if pairs[i+1] > 0 {
			fields = append(fields, "rate", strconv.Itoa(pairs[i+1]))
		}
		list = append(list, merchant(fields...))
	}
	return config("merchants", "["+strings.Join(list, ",")+"]")
}

// allowed counts how many of n calls a merchant may make now.
func allowed(r *Rates, bid int64, n int) (passed int) {
	for range n {
		if r.Allow(bid) {
			passed++
		}
	}
	return passed
}

func TestAMerchantIsHeldToItsRateAndTheOthersAreNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := ratesOf(t, rates(1, 100, 2, 0, 3, 100))
		if n := allowed(r, 1, 10_000); n != burstMin {
			t.Errorf("at once %d pass, want the burst of %d", n, burstMin)
		}
		for name, bid := range map[string]int64{"one without a rate": 2, "one that the config doesn't know": 4} {
			if n := allowed(r, bid, 10_000); n != 10_000 {
				t.Errorf("%s: %d of 10000 pass", name, n)
			}
		}
		if n := allowed(r, 3, 1); n != 1 {
			t.Error("a merchant pays for another")
		}
		time.Sleep(time.Second)
		if n := allowed(r, 1, 10_000); n != 100 {
			t.Errorf("a second later %d pass, want 100", n)
		}
		time.Sleep(time.Hour)
		if n := allowed(r, 1, 10_000); n != burstMin {
			t.Errorf("after an hour %d pass, want the burst of %d", n, burstMin)
		}
	})
}

func TestTheBurstIsAWholeBatchOrATenthOfASecond(t *testing.T) {
	for perSecond, want := range map[int]int{1: 500, 500: 500, 5000: 500, 5010: 501, 100_000: 10_000, RateMax: 100_000} {
		if got := Burst(perSecond); got != want {
			t.Errorf("%d a second: %d, want %d", perSecond, got, want)
		}
	}
}

// However a config changes, what a merchant has used up stays used up.
func TestAChangeOfConfigIsNoFreshStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, put := ratesOf(t, rates(1, 100))
		if n := allowed(r, 1, 1000); n != burstMin {
			t.Fatalf("%d pass", n)
		}
		put(rates(1, 100)) // the same, under another pointer
		if n := allowed(r, 1, 1000); n != 0 {
			t.Errorf("the same config again: %d pass at once", n)
		}
		put(rates(1, 100, 2, 7))
		if n := allowed(r, 1, 1000); n != 0 {
			t.Errorf("a config with another merchant: %d pass at once", n)
		}
		put(rates(1, 10_000))
		if n := allowed(r, 1, 1000); n != 0 {
			t.Errorf("with a higher rate %d pass at once", n)
		}
		time.Sleep(50 * time.Millisecond)
		if n := allowed(r, 1, 10_000); n != 500 {
			t.Errorf("with the higher rate %d pass after 50 ms, want 500", n)
		}
		time.Sleep(time.Minute)
		put(rates(1, 1))
		if n := allowed(r, 1, 10_000); n != burstMin {
			t.Errorf("what was left under the higher rate is %d under the lower, want its burst of %d", n, burstMin)
		}
		time.Sleep(3 * time.Second)
		if n := allowed(r, 1, 1000); n != 3 {
			t.Errorf("with the lower rate %d pass after 3 s, want 3", n)
		}
	})
}

func TestAMerchantThatHasNoRateAnyMoreIsForgotten(t *testing.T) {
	r, put := ratesOf(t, rates(1, 100, 2, 100, 3, 100))
	r.Allow(1)
	if n := len(r.force.Load().merchants); n != 3 {
		t.Fatalf("%d merchants have a rate", n)
	}
	put(rates(1, 0, 3, 100))
	if n := allowed(r, 1, 2*burstMin); n != 2*burstMin {
		t.Errorf("without a rate %d of %d pass", n, 2*burstMin)
	}
	if m := r.force.Load().merchants; len(m) != 1 || m[3] == nil {
		t.Errorf("it keeps %v", m)
	}
	// What nobody configured takes no memory.
	for bid := range int64(100_000) {
		r.Allow(1000 + bid)
	}
	if n := len(r.force.Load().merchants); n != 1 {
		t.Errorf("it keeps %d merchants", n)
	}
}

// The limiter below gives more than its rate when the times that it is told go back, as
// they do when many ask at once.
func TestManyAtOnceGetNoMoreThanTheRate(t *testing.T) {
	r, put := ratesOf(t, rates(1, 1000))
	began := time.Now()
	var passed atomic.Int64
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 20_000 {
				if r.Allow(1) {
					passed.Add(1)
				}
				if i == 0 && j%1000 == 0 {
					put(rates(1, 1000, 2, 1+j)) // a new config now and then
				}
			}
		})
	}
	all.Wait()
	if most := burstMin + int64(1000*time.Since(began).Seconds()) + 1; passed.Load() > most {
		t.Errorf("%d pass, of at most %d", passed.Load(), most)
	}
}

// Two configs race: whoever comes late with the older one doesn't put it in force again.
func TestAnOlderConfigIsNotTakenUpAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		older, newer := mustDecode(t, rates(1, 100)), mustDecode(t, rates(1, 100, 2, 100))
		late := false
		r := NewRates(func() *Snapshot {
			if late { // Allow asked a while ago
				late = false
				return older
			}
			return newer
		})
		allowed(r, 2, burstMin)
		late = true
		if r.Allow(2) {
			t.Error("a merchant of the newer config has a burst again")
		}
		if r.force.Load().config != newer || late {
			t.Error("the older config is in force again")
		}
	})
}

func TestARefusalOfAMerchantAllocatesNothing(t *testing.T) {
	r, _ := ratesOf(t, rates(1, 1))
	allowed(r, 1, burstMin)
	if n := testing.AllocsPerRun(100, func() { r.Allow(1) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkRates(b *testing.B) {
	for _, merchants := range []int{1, MerchantsMax} {
		b.Run(fmt.Sprint(merchants), func(b *testing.B) {
			pairs := make([]int, 0, 2*merchants)
			for i := range merchants {
				pairs = append(pairs, i+1, RateMax)
			}
			s := mustDecode(b, rates(pairs...))
			r := NewRates(func() *Snapshot { return s })
			r.Allow(1)
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					r.Allow(1)
				}
			})
		})
	}
}
