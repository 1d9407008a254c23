package lease_test

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/lease"
	"github.com/prometheus/client_golang/prometheus"
)

// years brings the fake time of synctest, which begins in 2000, into the layout.
const years = 27 * 365 * 24 * time.Hour

// one is a process in fake time: a worker and its generator, on a table of which only
// the given numbers are free.
type one struct {
	table  *lease.Memory
	offset atomic.Int64 // of the table's clock, ns
	line   *line
	gen    *idgen.Generator
	worker *lease.Worker
	logs   *logs
}

func inBubble(t *testing.T, free []int, test func(t *testing.T, p *one)) {
	synctest.Test(t, func(t *testing.T) {
		settle(t)
		p := &one{gen: new(idgen.Generator), logs: newLogs()}
		p.step(years)
		p.table = lease.NewMemory(p.now)
		takeAllBut(t, p.table, free)
		p.line = &line{Table: p.table}
		p.worker = lease.NewWorker(p.line, "one", p.gen, p.logs.logger())
		test(t, p)
	})
}

func takeAllBut(t *testing.T, table lease.Table, free []int) {
	t.Helper()
	spare := map[int]bool{}
	for _, n := range free {
		spare[n] = true
	}
	for n := range idgen.Workers {
		if !spare[n] {
			if _, err := table.Acquire(t.Context(), "worker/"+strconv.Itoa(n), "others", 10*365*24*time.Hour); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// now is the table's time.
func (p *one) now() time.Time { return time.Now().Add(time.Duration(p.offset.Load())) }

// step sets the table's clock forward, or back.
func (p *one) step(d time.Duration) { p.offset.Add(int64(d)) }

func (p *one) mint(t *testing.T) idgen.ID {
	t.Helper()
	synctest.Wait()
	id, err := p.gen.Next(9527)
	if err != nil {
		t.Fatalf("%v; the log:\n%s", err, p.logs.text.String())
	}
	return id
}

func (p *one) mintNothing(t *testing.T) {
	t.Helper()
	synctest.Wait()
	if id, err := p.gen.Next(9527); !errors.Is(err, idgen.ErrLeaseEnded) {
		t.Fatalf("%s, %v; want ErrLeaseEnded", id, err)
	}
}

func TestAWorkerFeedsItsGenerator(t *testing.T) {
	inBubble(t, []int{7}, func(t *testing.T, p *one) {
		p.mintNothing(t)
		run(t, p.worker)
		for range 24 * 60 {
			if id := p.mint(t); id.Worker() != 7 || !id.Time().Equal(time.Now().Add(years)) {
				t.Fatalf("worker %d, %s", id.Worker(), id.Time())
			}
			time.Sleep(time.Minute)
		}
		if n := p.logs.count("acquired"); n != 1 {
			t.Errorf("it acquired %d numbers in a day", n)
		}
		if p.logs.count("2094-09-07") != 1 { // fault 11
			t.Error("the log doesn't say when the layout ends")
		}
	})
}

func TestCreatesOutliveTheTableForFiveMinutes(t *testing.T) {
	inBubble(t, []int{7}, func(t *testing.T, p *one) {
		run(t, p.worker)
		p.mint(t)
		time.Sleep(time.Hour + renewEvery/2)
		p.line.set(0, 0, true, false)
		away := time.Now()
		time.Sleep(lease.Term - renewEvery)
		p.mint(t)
		time.Sleep(renewEvery / 2)
		p.mintNothing(t)
		if n := p.logs.count("not renewed"); n != 1 || p.line.lostThere() < 25 {
			t.Errorf("%d times in the log, of %d requests lost in %s", n, p.line.lostThere(), time.Since(away))
		}
		p.line.set(0, 0, false, false)
		time.Sleep(renewEvery)
		if id := p.mint(t); id.Worker() != 7 { // nobody else has taken it
			t.Errorf("worker %d", id.Worker())
		}
	})
}

// renewEvery is how often a worker renews.
const renewEvery = 10 * time.Second

// The requests arrive and are carried out; only the answers are lost.
func TestRenewalsWithoutAnswersAreNone(t *testing.T) {
	inBubble(t, []int{7}, func(t *testing.T, p *one) {
		run(t, p.worker)
		p.mint(t)
		p.line.set(0, 0, false, true)
		time.Sleep(lease.Term)
		p.mintNothing(t)
		if p.line.lostBack() < 25 {
			t.Errorf("%d answers were lost", p.line.lostBack())
		}
	})
}

// Fault 9: a process whose number somebody else has can't serve.
func TestANumberThatSomebodyElseHasIsGivenUp(t *testing.T) {
	inBubble(t, []int{7, 8}, func(t *testing.T, p *one) {
		run(t, p.worker)
		first := p.mint(t).Worker()
		p.step(lease.Term) // the clock jumps, and somebody takes the number
		if _, err := p.table.Acquire(t.Context(), "worker/"+strconv.Itoa(first), "two", lease.Term); err != nil {
			t.Fatal(err)
		}
		time.Sleep(renewEvery)
		if second := p.mint(t).Worker(); second == first {
			t.Errorf("it goes on with %d", second)
		}
	})
}

func TestAClockThatSteppedBackCostsTheNumber(t *testing.T) {
	inBubble(t, []int{7, 8}, func(t *testing.T, p *one) {
		run(t, p.worker)
		first := p.mint(t)
		p.step(-time.Hour)
		time.Sleep(renewEvery)
		second := p.mint(t)
		if second.Worker() == first.Worker() {
			t.Errorf("worker %d twice", first.Worker())
		}
		if !second.Time().Equal(p.now()) {
			t.Errorf("an id of %s, when the clock says %s", second.Time(), p.now())
		}
	})
}

func TestGiveBackGetsAnotherNumberAtOnce(t *testing.T) {
	inBubble(t, []int{7, 8, 9}, func(t *testing.T, p *one) {
		run(t, p.worker)
		first := p.mint(t).Worker()
		p.worker.GiveBack(first)
		if _, err := p.gen.Next(9527); !errors.Is(err, idgen.ErrLeaseEnded) {
			t.Errorf("the number is used after the alarm: %v", err)
		}
		second := p.mint(t).Worker()
		if second == first {
			t.Errorf("it has %d again", first)
		}
		p.worker.GiveBack(first) // a late alarm about the number before
		if third := p.mint(t).Worker(); third != second {
			t.Errorf("an alarm about %d took %d away", first, second)
		}
		p.worker.GiveBack(second)
		p.mint(t)
		taken, _, err := p.table.Taken(t.Context(), "worker/")
		if err != nil || len(taken) != idgen.Workers {
			t.Errorf("%d numbers are taken, %v: one was given back before its end", len(taken), err)
		}
	})
}

// The renewal was sent before the alarm, and its answer comes after it.
func TestARenewalUnderWayDoesNotBringANumberBack(t *testing.T) {
	inBubble(t, []int{7, 8}, func(t *testing.T, p *one) {
		run(t, p.worker)
		first := p.mint(t).Worker()
		p.line.set(0, 2*time.Second, false, false)
		time.Sleep(renewEvery + time.Second)
		p.worker.GiveBack(first)
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			if id, err := p.gen.Next(9527); err == nil && id.Worker() == first {
				t.Fatal("the number is used again")
			}
		}
		p.mint(t)
	})
}

func TestAllNumbersTaken(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *one) {
		run(t, p.worker)
		time.Sleep(time.Hour)
		p.mintNothing(t)
		if n := p.logs.count("all 1,024 worker numbers are taken"); n == 0 || p.logs.count("level=WARN") != 1 {
			t.Errorf("it said so %d times:\n%s", n, p.logs.text.String())
		}
		p.step(11 * 365 * 24 * time.Hour)
		time.Sleep(5 * time.Second)
		p.mint(t)
	})
}

func TestATableThatIsAwayAtTheStart(t *testing.T) {
	inBubble(t, []int{7}, func(t *testing.T, p *one) {
		p.line.set(0, 0, true, false)
		run(t, p.worker)
		time.Sleep(time.Hour)
		p.mintNothing(t)
		if p.logs.count("level=WARN") != 1 || p.line.lostThere() < 1000 {
			t.Errorf("after %d requests:\n%s", p.line.lostThere(), p.logs.text.String())
		}
		p.line.set(0, 0, false, false)
		time.Sleep(time.Second)
		p.mint(t)
	})
}

// Fault 11: where the layout ends no number is acquired, and no id is made. Each
// acquisition would cost a number for five minutes.
func TestAClockOutsideTheLayoutAcquiresNothing(t *testing.T) {
	for name, clock := range map[string]time.Time{
		"before the epoch":            idgen.Epoch.Add(-time.Second),
		"the term ends at its end":    idgen.End.Add(-lease.Term),
		"long after the layout's end": idgen.End.Add(20 * 365 * 24 * time.Hour),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := lease.NewMemory(func() time.Time { return clock })
				gen, log := new(idgen.Generator), newLogs()
				run(t, lease.NewWorker(table, "one", gen, log.logger()))
				time.Sleep(time.Minute)
				if id, err := gen.Next(9527); !errors.Is(err, idgen.ErrLeaseEnded) {
					t.Errorf("%s, %v; want ErrLeaseEnded", id, err)
				}
				if log.count("the layout of ids has no room for this time") == 0 {
					t.Errorf("the log:\n%s", log.text.String())
				}
				if taken, _, err := table.Taken(t.Context(), "worker/"); err != nil || len(taken) > 0 {
					t.Errorf("%d numbers were acquired, %v", len(taken), err)
				}
			})
		})
	}
}

// Fault 11: when the layout ends is exported.
func TestMetrics(t *testing.T) {
	inBubble(t, []int{7}, func(t *testing.T, p *one) {
		reg := prometheus.NewPedanticRegistry()
		reg.MustRegister(p.worker)
		gauges := func() map[string]float64 {
			families, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			out := map[string]float64{}
			for _, f := range families {
				out[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
			}
			return out
		}
		before := gauges()
		if _, has := before["octopay_worker_number"]; has || before["octopay_worker_lease_seconds"] != 0 ||
			before["octopay_id_layout_end_timestamp_seconds"] != float64(idgen.End.Unix()) {
			t.Errorf("without a number: %v", before)
		}
		run(t, p.worker)
		time.Sleep(5 * time.Second)
		if with := gauges(); with["octopay_worker_number"] != 7 || with["octopay_worker_lease_seconds"] != 295 {
			t.Errorf("with a number: %v", with)
		}
	})
}

// Ids of all the time until the end of the lease may exist.
func TestAWorkerThatEndsLeavesItsNumberTaken(t *testing.T) {
	inBubble(t, []int{7}, func(t *testing.T, p *one) {
		ctx, end := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.worker.Run(ctx) }()
		p.mint(t)
		end()
		<-done
		if _, err := p.table.Acquire(t.Context(), "worker/7", "two", lease.Term); !errors.Is(err, lease.ErrTaken) {
			t.Errorf("the number is free: %v", err)
		}
		time.Sleep(lease.Term)
		if _, err := p.table.Acquire(t.Context(), "worker/7", "two", lease.Term); err != nil {
			t.Errorf("after its term: %v", err)
		}
	})
}
