package lane

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/octopay/octopay/internal/dberr"
	"pgregory.net/rapid"
)

func server(number uint16) error { return &mysql.MySQLError{Number: number} }

// A step is what one attempt does.
type step struct {
	fault fault
	took  time.Duration
}

type fault int

const (
	succeeds  fault = iota
	deadlock        // rolled back, may be tried again
	readOnly        // the server was demoted
	notSent         // no connection
	refuses         // the transaction as a whole, this once
	cut             // the answer is lost, and it never ran
	committed       // the answer is lost, and it is committed
	late            // the answer is lost, and it commits when the attempt after the next begins
	hangs           // until the deadline, and commits only after everything is over
	faults
)

// A model is a store of operations by key. The first of a key wins. It fails as its
// script says, and refuses every transaction that holds a guilty operation.
type model struct {
	script []step
	broken []error

	attempts int
	kept     map[int]int // key -> operation
	pending  []pending
	unknown  map[int]bool // operations of attempts of unknown outcome
	busy     bool
}

type pending struct {
	at  int // attempt before which it commits
	ops []operation
}

type operation struct {
	id, key int
	guilty  bool
}

// apply commits ops, or none of them when one is guilty.
func (m *model) apply(ops []operation) {
	if slices.ContainsFunc(ops, func(o operation) bool { return o.guilty }) {
		return
	}
	for _, o := range ops {
		if _, taken := m.kept[o.key]; !taken {
			m.kept[o.key] = o.id
		}
	}
}

func (m *model) settle(upTo int) {
	for _, p := range m.pending {
		if p.at <= upTo {
			m.apply(p.ops)
		}
	}
	m.pending = slices.DeleteFunc(m.pending, func(p pending) bool { return p.at <= upTo })
}

const never = 1 << 30

// attempt returns for each operation the one that is kept under its key.
func (m *model) attempt(ctx context.Context, ops []operation) ([]int, error) {
	if m.busy {
		m.broken = append(m.broken, errors.New("two attempts at once"))
	}
	m.busy = true
	defer func() { m.busy = false }()

	s := m.script[m.attempts%len(m.script)]
	m.attempts++
	m.settle(m.attempts)
	lost := func(err error) ([]int, error) {
		for _, o := range ops {
			m.unknown[o.id] = true
		}
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	if s.fault == hangs || time.Until(deadline) <= s.took {
		<-ctx.Done()
		m.pending = append(m.pending, pending{never, ops})
		return lost(ctx.Err())
	}
	time.Sleep(s.took)
	switch s.fault {
	case deadlock:
		return nil, server(1213)
	case readOnly:
		return nil, server(1290)
	case notSent:
		return nil, driver.ErrBadConn
	case refuses:
		return nil, server(1114)
	case cut:
		return lost(mysql.ErrInvalidConn)
	case committed:
		m.apply(ops)
		return lost(mysql.ErrInvalidConn)
	case late:
		m.pending = append(m.pending, pending{m.attempts + 2, ops})
		return lost(server(1927))
	}
	if slices.ContainsFunc(ops, func(o operation) bool { return o.guilty }) {
		return nil, server(1406)
	}
	m.apply(ops)
	out := make([]int, len(ops))
	for i, o := range ops {
		out[i] = m.kept[o.key]
	}
	return out, nil
}

// check runs Commit over the model and returns every broken law.
func check(script []step, ops []operation) error {
	m := &model{script: script, kept: map[int]int{}, unknown: map[int]bool{}}
	law := func(ok bool, format string, args ...any) {
		if !ok {
			m.broken = append(m.broken, fmt.Errorf(format, args...))
		}
	}
	start := time.Now()
	out := Commit(background, Budget{}, ops, m.attempt)
	law(time.Since(start) <= 6*time.Second, "took %v", time.Since(start))
	law(len(out) == len(ops), "%d outcomes of %d operations", len(out), len(ops))
	m.settle(never) // what was in flight at the end commits after the answers

	kept := map[int]bool{}
	for _, id := range m.kept {
		kept[id] = true
	}
	faultless := !slices.ContainsFunc(script, func(s step) bool { return s.fault != succeeds || s.took > 0 })
	for i, o := range ops {
		r := out[i]
		law(!o.guilty || !kept[o.id], "guilty operation %d is kept", o.id)
		switch {
		case r.Err == nil:
			law(r.Result == m.kept[o.key], "operation %d was told that %d has its key, it is %d", o.id, r.Result, m.kept[o.key])
		case errors.Is(r.Err, ErrUnknown):
			law(m.unknown[o.id], "operation %d is unknown, but each of its attempts was answered", o.id)
			law(dberr.Of(r.Err) == dberr.Unknown, "the class of an unknown outcome is %v", dberr.Of(r.Err))
		default:
			law(!kept[o.id], "operation %d is kept and was told %v", o.id, r.Err)
			law(!m.unknown[o.id], "operation %d may have run and was told %v", o.id, r.Err)
		}
		if faultless {
			law(o.guilty == (r.Err != nil), "operation %d, guilty: %v: %v", o.id, o.guilty, r.Err)
		}
	}
	return errors.Join(m.broken...)
}

// Whatever fails, and whenever what was in flight commits: each operation has one
// outcome in bounded time, and it is the truth.
func TestCommitTellsTheTruth(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		script := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) step {
			return step{fault(rapid.IntRange(0, int(faults)-1).Draw(r, "fault")),
				time.Duration(rapid.IntRange(0, 1500).Draw(r, "ms")) * time.Millisecond}
		}), 1, 12).Draw(r, "script")
		if rapid.Bool().Draw(r, "faultless") {
			script = []step{{}}
		}
		n := rapid.IntRange(0, 20).Draw(r, "operations")
		ops := make([]operation, n)
		for i := range ops {
			ops[i] = operation{id: i + 1, key: rapid.IntRange(1, 30).Draw(r, "key"), guilty: rapid.IntRange(0, 5).Draw(r, "guilty") == 0}
		}
		var broken error
		synctest.Test(t, func(*testing.T) { broken = check(script, ops) })
		if broken != nil {
			r.Fatal(broken)
		}
	})
}

// want is one line of TestCommit's table: what attempts return, and the outcome.
func TestCommit(t *testing.T) {
	a, b := []string{"a"}, []string{"a", "b"}
	always := func(err error) []error { return slices.Repeat([]error{err}, 1000) }
	for _, c := range []struct {
		name     string
		ops      []string
		attempts []error // one after another, then success
		want     error   // of the first operation
		tries    int     // 0: not counted
	}{
		{"it works", b, nil, nil, 1},
		{"two deadlocks", b, []error{server(1213), server(1213)}, nil, 3},
		{"a lock wait, a changed record, a deadlock", b, []error{server(1205), server(1020), server(1213)}, nil, 4},
		{"four deadlocks", b, always(server(1213)), server(1213), 4},
		{"another epoch", b, always(server(1242)), server(1242), 1},
		{"read-only", b, always(server(1290)), server(1290), 1},
		{"no connection", b, always(driver.ErrBadConn), driver.ErrBadConn, 1},
		{"refused alone", a, always(server(1406)), server(1406), 1},
		{"refused, each half refused", b, always(server(1406)), server(1406), 3},
		{"a table is missing, the halves have theirs", b, []error{server(1146)}, nil, 3},
		{"a duplicate key", a, always(server(1062)), server(1062), 1},
		{"too big, the halves fit", b, []error{server(1153)}, nil, 3},
		{"the answer is lost", b, []error{mysql.ErrInvalidConn}, nil, 2},
		{"lost, then no connection, then read-only, then it works", b,
			[]error{mysql.ErrInvalidConn, driver.ErrBadConn, server(1290)}, nil, 4},
		{"lost, then five deadlocks", b,
			append([]error{mysql.ErrInvalidConn}, slices.Repeat([]error{server(1213)}, 5)...), nil, 7},
		{"lost, then no connection for ever", b, append([]error{mysql.ErrInvalidConn}, always(driver.ErrBadConn)...), ErrUnknown, 0},
		{"lost, then another epoch for ever", b, append([]error{mysql.ErrInvalidConn}, always(server(1242))...), ErrUnknown, 0},
		{"lost for ever", b, always(server(1317)), ErrUnknown, 0},
		{"lost, then refused alone", a, []error{mysql.ErrInvalidConn, server(1406)}, ErrUnknown, 2},
		{"lost, then refused, then the halves work", b, []error{mysql.ErrInvalidConn, server(1406)}, nil, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				out := Commit(background, Budget{}, c.ops, func(_ context.Context, ops []string) ([]string, error) {
					tries++
					if tries <= len(c.attempts) {
						return nil, c.attempts[tries-1]
					}
					return ops, nil
				})
				if !errors.Is(out[0].Err, c.want) {
					t.Errorf("got %v, want %v", out[0].Err, c.want)
				}
				if c.want == nil && out[0].Result != c.ops[0] {
					t.Errorf("result is %q", out[0].Result)
				}
				if c.tries > 0 && tries != c.tries {
					t.Errorf("%d attempts, want %d", tries, c.tries)
				}
			})
		})
	}
}

// Only the guilty one is answered with the refusal, wherever it is, and the others
// are written in the order of their arrival.
func TestHalves(t *testing.T) {
	const n = 64
	for guilty := range n {
		ops := make([]int, n)
		for i := range ops {
			ops[i] = i
		}
		var written []int
		tries := 0
		out := Commit(background, Budget{}, ops, func(_ context.Context, ops []int) ([]int, error) {
			tries++
			if slices.Contains(ops, guilty) {
				return nil, server(1406)
			}
			written = append(written, ops...)
			return ops, nil
		})
		for i, o := range out {
			if (o.Err != nil) != (i == guilty) {
				t.Fatalf("%d is guilty, %d got %v", guilty, i, o.Err)
			}
		}
		if len(written) != n-1 || !slices.IsSorted(written) {
			t.Fatalf("%d is guilty, written: %v", guilty, written)
		}
		if tries > 13 { // 1 + 2·log2(64)
			t.Fatalf("%d attempts", tries)
		}
	}
}

// When the time is up, what no attempt could write is told so, and what was in
// flight is unknown.
func TestTimeIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := Commit(background, Budget{}, []int{0, 1, 2, 3}, func(ctx context.Context, ops []int) ([]int, error) {
			switch {
			case len(ops) == 4:
				return nil, server(1406)
			case ops[0] == 0: // frozen from now on
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return ops, nil
		})
		for i, want := range []error{ErrUnknown, ErrUnknown, ErrNotRun, ErrNotRun} {
			if !errors.Is(out[i].Err, want) {
				t.Errorf("operation %d: %v, want %v", i, out[i].Err, want)
			}
		}
	})
}

// A transaction that takes all of its time is settled in the time after it.
func TestSettlingHasItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, tries := time.Now(), 0
		out := Commit(background, Budget{}, []int{7}, func(ctx context.Context, ops []int) ([]int, error) {
			tries++
			if tries == 1 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return ops, nil
		})
		if out[0].Err != nil || out[0].Result != 7 || tries != 2 {
			t.Errorf("%+v after %d attempts", out[0], tries)
		}
		if d := time.Since(start); d < 3*time.Second || d > 3*time.Second+pauseMax {
			t.Errorf("took %v", d)
		}
	})
}

// Whoever asked may leave: what was begun is ended, and told.
func TestTheEndOfTheContextInterruptsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, leave := context.WithCancel(background)
		out := Commit(ctx, Budget{}, []int{7}, func(ctx context.Context, ops []int) ([]int, error) {
			leave()
			return ops, ctx.Err()
		})
		if out[0].Err != nil || out[0].Result != 7 {
			t.Errorf("operation 7: %+v", out[0])
		}
	})
}
