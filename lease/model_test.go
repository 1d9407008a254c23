package lease_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/lease"
	"pgregory.net/rapid"
)

// The model: a few processes, few free numbers, a table whose clock steps and that is
// lost and made anew, lines that fail in every way, and processes that pause, die or
// restart. A script is what happens; it is drawn, and then played in fake time.
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
		"table is lost":    between(0, 0), // and an empty one made in its place
		"give back":        between(0, 0),
	}
	names := []string{"all mint", "all mint now", "all mint now", "time passes", "a moment passes", "a moment passes", "clock steps",
		"clock steps", "clock trembles", "line is good", "line is good", "line is slow", "answers are slow", "line is dead", "answers are lost",
		"renewals end", "restart", "restart", "give back"}
	names = append(slices.Repeat(names, 3), "table is lost") // after which there is little to see for a while
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
type tally struct{ ids, again, lostThere, lostBack, late, refused, anew int }

// A place is where processes find the table, whichever is there now.
type place struct {
	clock    *one
	high     time.Time    // what the clock had said at most when it stepped back
	careless bool         // a table that is made anew gives out worker numbers at once
	closed   atomic.Int64 // worker numbers that were asked for in vain

	mu    sync.Mutex
	table *lease.Memory
	age   int // counts the tables that were there
}

func newPlace(t *testing.T, clock *one) *place {
	w := &place{clock: clock}
	w.table = w.made(t)
	return w
}

func (w *place) made(t *testing.T) *lease.Memory {
	table := lease.NewMemory(w.clock.now)
	takeAllBut(t, table, freeNumbers)
	return table
}

// now returns the table that is there, and how many were there before it.
func (w *place) now() (*lease.Memory, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.table, w.age
}

// step steps the clock.
func (w *place) step(d time.Duration) {
	if now := w.clock.now(); now.After(w.high) {
		w.high = now
	}
	w.clock.step(d)
}

// lose loses the table and makes another one in its place. Whoever does that sees to it
// that its clock isn't behind that of the last one.
func (w *place) lose(t *testing.T) {
	if now := w.clock.now(); now.Before(w.high) {
		w.clock.step(w.high.Sub(now))
	}
	table := w.made(t)
	if !w.careless {
		table.Close(w.clock.now().Add(lease.Term))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.table = table
	w.age++
}

func (w *place) Acquire(ctx context.Context, name, holder string, term time.Duration) (lease.Lease, error) {
	table, _ := w.now()
	l, err := table.Acquire(ctx, name, holder, term)
	if errors.Is(err, lease.ErrClosed) {
		w.closed.Add(1)
	}
	return l, err
}

func (w *place) Renew(ctx context.Context, l lease.Lease, term time.Duration) (lease.Lease, error) {
	table, _ := w.now()
	return table.Renew(ctx, l, term)
}

func (w *place) Release(ctx context.Context, l lease.Lease) error {
	table, _ := w.now()
	return table.Release(ctx, l)
}

func (w *place) Taken(ctx context.Context, prefix string) (map[string]bool, time.Time, error) {
	table, _ := w.now()
	return table.Taken(ctx, prefix)
}

// right spoils nothing.
func right(w *place) lease.Table { return w }

// play plays a script on tables that spoil makes of the right one, and returns what went
// wrong, "" if nothing did.
func play(t *testing.T, script []step, sum *tally, spoil func(*place) lease.Table) (wrong string) {
	synctest.Test(t, func(t *testing.T) {
		settle(t)
		p := &one{}
		p.step(years)
		at := newPlace(t, p)
		table := spoil(at)

		type process struct {
			line   *line
			gen    *idgen.Generator
			worker *lease.Worker
			stop   func()
		}
		start := func() *process {
			q := &process{line: &line{Table: table, age: func() int { _, age := at.now(); return age }}, gen: new(idgen.Generator)}
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
		seen := map[int64]int{}             // which process made an id, counted over restarts
		spans := map[int]map[tenure]*span{} // of each number
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
							spans[id.Worker()] = map[tenure]*span{}
						}
						under := tenure{told.age, told.Token}
						of := spans[id.Worker()][under]
						if of == nil {
							of = &span{id.Snowflake(), id.Snowflake()}
							spans[id.Worker()][under] = of
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
				at.step(s.by)
			case "table is lost":
				at.lose(t)
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
					if a.before(b) && one.high >= other.low {
						wrong = fmt.Sprintf("number %d: ids of %+v are not above those of %+v", number, b, a)
						return
					}
				}
			}
			sum.again += len(of) - 1
		}
		if _, age := at.now(); at.closed.Load() > 0 {
			sum.anew += age
		}
	})
	return wrong
}

// A tenure is one acquisition of a number.
type tenure struct {
	age   int // of the table that gave it
	token int64
}

func (a tenure) before(b tenure) bool {
	return a.age < b.age || a.age == b.age && a.token < b.token
}

// A span is from the lowest to the highest snowflake.
type span struct{ low, high int64 }

// Fault 9: two processes shared a number. Fault 10: a clock stepped across a restart.
func TestNoIDRepeatsWhateverHappens(t *testing.T) {
	var sum tally
	rapid.Check(t, func(rt *rapid.T) {
		script := scripts().Draw(rt, "script")
		if wrong := play(t, script, &sum, right); wrong != "" {
			rt.Fatal(wrong)
		}
	})
	if sum.ids == 0 || sum.again == 0 || sum.lostThere == 0 || sum.lostBack == 0 || sum.late == 0 || sum.refused == 0 || sum.anew == 0 {
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
		spoil  func(*place) lease.Table
		script []step
	}{
		"the end follows a clock that steps back": {
			func(w *place) lease.Table { return &follows{w, w} },
			[]step{mint, {kind: "clock steps", by: -2 * lease.Term}, {kind: "a moment passes", by: soon},
				{kind: "clock steps", by: lease.Term}, {kind: "restart", process: 0}, {kind: "restart", process: 1},
				{kind: "restart", process: 2}, {kind: "a moment passes", by: soon}, mint},
		},
		"an end is told that is not stored": {
			func(w *place) lease.Table { return &generous{w} },
			[]step{{kind: "a moment passes", by: soon}, {kind: "renewals end", process: 0}, {kind: "renewals end", process: 1},
				{kind: "time passes", by: lease.Term}, {kind: "restart", process: 1}, {kind: "restart", process: 2},
				{kind: "a moment passes", by: soon}, mint, {kind: "a moment passes", by: soon}, mint},
		},
		"one that is made anew gives numbers out at once": {
			func(w *place) lease.Table { w.careless = true; return w },
			[]step{mint, {kind: "line is dead", process: 0}, {kind: "line is dead", process: 1}, {kind: "table is lost"},
				{kind: "a moment passes", by: soon}, mint, {kind: "time passes", by: lease.Term}, {kind: "line is good", process: 0},
				{kind: "line is good", process: 1}, {kind: "a moment passes", by: soon}, mint},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var sum tally
			found := ""
			for range 50 { // who gets which number is chance
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
	at *place
}

func (f *follows) Renew(ctx context.Context, l lease.Lease, term time.Duration) (lease.Lease, error) {
	renewed, err := f.Table.Renew(ctx, l, term)
	if err == nil && renewed.Until.Sub(renewed.Now) > term {
		table, _ := f.at.now()
		table.SetUntil(l.Name, renewed.Now.Add(term))
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
