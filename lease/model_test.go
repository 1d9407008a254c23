package lease_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/lease"
	"pgregory.net/rapid"
)

// The model: a few processes, few free numbers, a table whose clock steps, lines that
// fail in every way, and processes that pause, die or restart. A script is what
// happens; it is drawn, and then played in fake time.
type step struct {
	kind    string
	process int
	by      time.Duration
	n       int
}

func (s step) String() string { return fmt.Sprintf("%s %d %s %d", s.kind, s.process, s.by, s.n) }

const processes = 3

var freeNumbers = []int{5, 6}

func scripts() *rapid.Generator[[]step] {
	between := func(min, max time.Duration) *rapid.Generator[time.Duration] {
		return rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(int64(min), int64(max)).Draw(t, "by"))
		})
	}
	kinds := map[string]*rapid.Generator[time.Duration]{
		"all mint":         between(0, 20*time.Second), // by a reading of the clock so long ago
		"all mint now":     between(0, 0),
		"time passes":      between(0, lease.Term),
		"a moment passes":  between(0, 20*time.Second),
		"clock steps":      between(-3*lease.Term, 3*lease.Term),
		"clock trembles":   between(-1500*time.Millisecond, 1500*time.Millisecond),
		"line is good":     between(0, 0),
		"line is slow":     between(0, 5*time.Second),
		"answers are slow": between(0, 5*time.Second),
		"line is dead":     between(0, 0),
		"answers are lost": between(0, 0),
		"renewals end":     between(0, 0), // its loop is gone, its generator goes on
		"restart":          between(0, 0),
		"give back":        between(0, 0),
	}
	names := []string{"all mint", "all mint now", "all mint now", "time passes", "a moment passes", "a moment passes", "clock steps",
		"clock steps", "clock trembles", "line is good", "line is good", "line is slow", "answers are slow", "line is dead", "answers are lost",
		"renewals end", "restart", "restart", "give back"}
	one := rapid.Custom(func(t *rapid.T) step {
		kind := rapid.SampledFrom(names).Draw(t, "kind")
		return step{
			kind:    kind,
			process: rapid.IntRange(0, processes-1).Draw(t, "process"),
			by:      kinds[kind].Draw(t, "by"),
			n:       rapid.SampledFrom([]int{1, 1, 3, 3, 5000}).Draw(t, "ids"),
		}
	})
	return rapid.SliceOfN(one, 30, 80)
}

// tally counts what was seen in all scripts, so that a test can tell that its faults
// happened.
type tally struct{ ids, again, lostThere, lostBack, late, refused int }

// play plays a script on tables that spoil makes of the right one, and returns what went
// wrong, "" if nothing did.
func play(t *testing.T, script []step, sum *tally, spoil func(lease.Table, *one) lease.Table) (wrong string) {
	synctest.Test(t, func(t *testing.T) {
		settle(t)
		p := &one{}
		p.step(years)
		p.table = lease.NewMemory(p.now)
		takeAllBut(t, p.table, freeNumbers)
		table := spoil(p.table, p)

		type process struct {
			line   *line
			gen    *idgen.Generator
			worker *lease.Worker
			stop   func()
		}
		start := func() *process {
			q := &process{line: &line{Table: table}, gen: new(idgen.Generator)}
			q.worker = lease.NewWorker(q.line, lease.NewHolder(), q.gen, newLogs().logger())
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() { defer close(done); _ = q.worker.Run(ctx) }()
			q.stop = func() { cancel(); <-done }
			return q
		}
		var all [processes]*process
		for i := range all {
			all[i] = start()
		}
		leave := func(q *process) {
			q.stop()
			sum.lostThere += q.line.lostThere()
			sum.lostBack += q.line.lostBack()
			sum.late += q.line.late()
		}
		defer func() {
			for _, q := range all {
				leave(q)
			}
		}()
		seen := map[int64]int{}            // which process made an id, counted over restarts
		spans := map[int]map[int64]*span{} // of each number, by token
		born := [processes]int{0, 1, 2}
		next := processes
		for _, s := range script {
			q := all[s.process]
			synctest.Wait()
			switch s.kind {
			case "all mint", "all mint now":
				for i, maker := range all {
					for range s.n {
						id, err := maker.gen.NextAt(time.Now().Add(-s.by), 9527)
						if err != nil {
							sum.refused++
							break
						}
						sum.ids++
						me, told := born[i], maker.line.last(id.Worker())
						if other, dup := seen[id.Snowflake()]; dup {
							wrong = fmt.Sprintf("at %q: %s was made by process %d and by %d", s, id, other, me)
							return
						}
						seen[id.Snowflake()] = me
						if spans[id.Worker()] == nil {
							spans[id.Worker()] = map[int64]*span{}
						}
						of := spans[id.Worker()][told.Token]
						if of == nil {
							of = &span{id.Snowflake(), id.Snowflake()}
							spans[id.Worker()][told.Token] = of
						}
						of.low, of.high = min(of.low, id.Snowflake()), max(of.high, id.Snowflake())
						if !id.Time().Before(told.Until) {
							wrong = fmt.Sprintf("at %q: an id of %s in a lease until %s", s, id.Time(), told.Until)
							return
						}
					}
				}
			case "time passes", "a moment passes":
				time.Sleep(s.by)
			case "clock steps", "clock trembles":
				p.step(s.by)
			case "line is good":
				q.line.set(0, 0, false, false)
			case "line is slow":
				q.line.set(s.by, 0, false, false)
			case "answers are slow":
				q.line.set(0, s.by, false, false)
			case "line is dead":
				q.line.set(0, 0, true, false)
			case "answers are lost":
				q.line.set(0, 0, false, true)
			case "renewals end":
				q.stop()
			case "restart":
				leave(q)
				all[s.process] = start()
				born[s.process] = next
				next++
			case "give back":
				if number, left := q.gen.Worker(); left > 0 {
					q.worker.GiveBack(number)
				}
			}
		}
		for number, of := range spans {
			for a, one := range of {
				for b, other := range of {
					if a < b && one.high >= other.low {
						wrong = fmt.Sprintf("number %d: ids of token %d are not above those of token %d", number, b, a)
						return
					}
				}
			}
			sum.again += len(of) - 1
		}
	})
	return wrong
}

// A span is from the lowest to the highest snowflake.
type span struct{ low, high int64 }

func TestNoIDRepeatsWhateverHappens(t *testing.T) {
	var sum tally
	rapid.Check(t, func(rt *rapid.T) {
		script := scripts().Draw(rt, "script")
		right := func(table lease.Table, _ *one) lease.Table { return table }
		if wrong := play(t, script, &sum, right); wrong != "" {
			rt.Fatal(wrong)
		}
	})
	if sum.ids == 0 || sum.again == 0 || sum.lostThere == 0 || sum.lostBack == 0 || sum.late == 0 || sum.refused == 0 {
		t.Errorf("something that was to happen did not: %+v", sum)
	}
	t.Logf("%+v", sum)
}

// The model must be able to fail: each table lacks one of the rules, and each script
// leads there. On the right table it leads nowhere.
func TestTheModelFindsTablesThatBreakTheRules(t *testing.T) {
	const soon = 15 * time.Second
	mint := step{kind: "all mint now", n: 3}
	for name, c := range map[string]struct {
		spoil  func(lease.Table, *one) lease.Table
		script []step
	}{
		"the end follows a clock that steps back": {
			func(table lease.Table, p *one) lease.Table { return &follows{table, p} },
			[]step{mint, {kind: "clock steps", by: -2 * lease.Term}, {kind: "a moment passes", by: soon},
				{kind: "clock steps", by: lease.Term}, {kind: "restart", process: 0}, {kind: "restart", process: 1},
				{kind: "restart", process: 2}, {kind: "a moment passes", by: soon}, mint},
		},
		"an end is told that is not stored": {
			func(table lease.Table, _ *one) lease.Table { return &generous{table} },
			[]step{{kind: "a moment passes", by: soon}, {kind: "renewals end", process: 0}, {kind: "renewals end", process: 1},
				{kind: "time passes", by: lease.Term}, {kind: "restart", process: 1}, {kind: "restart", process: 2},
				{kind: "a moment passes", by: soon}, mint, {kind: "a moment passes", by: soon}, mint},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var sum tally
			found := ""
			for range 50 { // who gets which number is chance
				right := func(table lease.Table, _ *one) lease.Table { return table }
				if wrong := play(t, c.script, &sum, right); wrong != "" {
					t.Fatalf("the right table: %s", wrong)
				}
				if found == "" {
					found = play(t, c.script, &sum, c.spoil)
				}
			}
			if found == "" {
				t.Errorf("the model finds nothing in %+v", sum)
			}
			t.Log(found)
		})
	}
}

// follows moves the end of a lease to a term from now, also back.
type follows struct {
	lease.Table
	p *one
}

func (f *follows) Renew(ctx context.Context, l lease.Lease, term time.Duration) (lease.Lease, error) {
	renewed, err := f.Table.Renew(ctx, l, term)
	if err == nil && renewed.Until.Sub(renewed.Now) > term {
		f.p.table.SetUntil(l.Name, renewed.Now.Add(term))
		renewed.Until = renewed.Now.Add(term)
	}
	return renewed, err
}

// generous tells an end that it doesn't store.
type generous struct{ lease.Table }

func (g *generous) Renew(ctx context.Context, l lease.Lease, term time.Duration) (lease.Lease, error) {
	renewed, err := g.Table.Renew(ctx, l, term)
	renewed.Until = renewed.Until.Add(term)
	return renewed, err
}
