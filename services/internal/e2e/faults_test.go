package e2e_test

import (
	"flag"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
)

// long makes the fault runs as long as they should be before a release; without it
// they show that each fault is survived at all.
var long = flag.Bool("long", false, "10,000 orders in each fault run, freezes of 15 s")

// size returns the orders of a fault run, and how long a freeze lasts.
func size() (int, time.Duration) {
	if *long {
		return 10_000, 15 * time.Second
	}
	return 1_500, 4 * time.Second
}

// A rig is a stack of its own, with the programs on it.
type rig struct {
	stack  *localstack.Stack
	env    []string
	api    []*program
	mirror *program
}

func newRig(t *testing.T) *rig {
	t.Helper()
	stack := localstack.Private(t, localstack.Options{})
	return rigOn(t, stack, environment(t, stack))
}

// rigOn starts the programs of a rig on a stack that they know by env.
func rigOn(t *testing.T, stack *localstack.Stack, env []string) *rig {
	t.Helper()
	r := &rig{stack: stack, env: env}
	for range 2 {
		r.api = append(r.api, start(t, "orderd", r.env).ready(t))
	}
	r.mirror = start(t, "syncerd", r.env)
	return r
}

func (r *rig) urls() []string { return []string{r.api[0].api, r.api[1].api} }

// mirrors waits until every database of the mirror includes all that was stamped before
// a time.
func (r *rig) mirrors(t *testing.T, before time.Time) {
	t.Helper()
	for bid := range r.stack.Map.Size() {
		eventually.True(t, "the mirror is complete", func() bool {
			a := mustGet(t, r.api[0].api+"/v1/merchants/"+strconv.Itoa(1+10*bid)+"/orders?limit=1")
			until, err := time.Parse(time.RFC3339, a.header.Get("X-Mirror-Complete-Until"))
			must(t, err)
			return until.After(before)
		})
	}
}

// survive drives orders through the rig while faults happen, and finds each of them
// afterwards. The faults say how many they were.
func (r *rig) survive(t *testing.T, faults func(progress func(float64)) int) {
	t.Helper()
	n, _ := size()
	happened := 0
	done := drive(t, each(r.urls()...), traffic(rand.Uint64(), n), func(progress func(float64)) { happened = faults(progress) })
	if happened == 0 {
		t.Fatal("no fault happened")
	}
	verify(t, r.stack, r.urls(), done)
	t.Logf("%s; %d faults; 0 missing, 0 doubled, 0 unequal", done, happened)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// shares are n points in the middle of a run.
func shares(n int) (out []float64) {
	for i := range n {
		out = append(out, 0.1+0.8*float64(i)/float64(n))
	}
	return out
}

func TestSyncerdKilled(t *testing.T) {
	r := newRig(t)
	r.survive(t, func(progress func(float64)) (kills int) {
		for _, at := range shares(10) {
			progress(at)
			r.mirror.kill(t)
			kills++
			r.mirror = start(t, "syncerd", r.env)
		}
		return kills
	})
}

func TestServersKilledAndRestarted(t *testing.T) {
	r := newRig(t)
	r.survive(t, func(progress func(float64)) (kills int) {
		for i, at := range shares(3) {
			progress(at)
			s := r.stack.Server([]string{"uid-a", "bid-a", "nats"}[i])
			pid := s.Pid()
			must(t, s.Kill())
			if syscall.Kill(pid, 0) == nil {
				t.Fatalf("%s lives on", s.Name())
			}
			kills++
			must(t, s.Start(t.Context()))
		}
		return kills
	})
}

// Fault 20: JetStream lost what it had acknowledged.
// NATS comes back with an older copy of its directory: it has lost what it
// acknowledged, and gives the lost sequences to other messages.
func TestNATSRestoredFromAnOlderCopy(t *testing.T) {
	r := newRig(t)
	r.survive(t, func(progress func(float64)) int {
		nats := r.stack.Server("nats")
		dir := filepath.Join(r.stack.Dir, "nats")
		older := filepath.Join(t.TempDir(), "older")
		progress(0.3)
		must(t, nats.Stop())
		must(t, os.CopyFS(older, os.DirFS(dir)))
		must(t, nats.Start(t.Context()))
		progress(0.7)
		must(t, nats.Kill())
		must(t, os.RemoveAll(dir))
		must(t, os.CopyFS(dir, os.DirFS(older)))
		must(t, nats.Start(t.Context()))
		return 1
	})
}

func TestEachPartFrozen(t *testing.T) {
	r := newRig(t)
	_, freeze := size()
	r.survive(t, func(progress func(float64)) (freezes int) {
		frozen := func(pid int) {
			must(t, syscall.Kill(pid, syscall.SIGSTOP))
			eventually.True(t, "the process is stopped", func() bool { return stopped(t, pid) })
			thaw := time.NewTimer(freeze)
			defer thaw.Stop()
			<-thaw.C
			must(t, syscall.Kill(pid, syscall.SIGCONT))
			freezes++
		}
		for i, at := range shares(5) {
			progress(at)
			frozen([]func() int{
				func() int { return r.api[1].cmd.Process.Pid },
				func() int { return r.mirror.cmd.Process.Pid },
				r.stack.Server("nats").Pid,
				r.stack.Server("bid-a").Pid,
				r.stack.Server("uid-a").Pid,
			}[i]())
		}
		return freezes
	})
}

// Of two syncerd one is frozen for longer than its leases: the other takes over, and
// the first does no harm when it comes back and still believes that it holds them.
func TestAFrozenSyncerdIsReplaced(t *testing.T) {
	r := newRig(t)
	second := start(t, "syncerd", r.env)
	r.survive(t, func(progress func(float64)) int {
		progress(0.3)
		pid := r.mirror.cmd.Process.Pid
		must(t, syscall.Kill(pid, syscall.SIGSTOP))
		eventually.True(t, "the process is stopped", func() bool { return stopped(t, pid) })
		frozen := time.Now()
		// Every database of the mirror goes on, though the one that held it stands still.
		r.mirrors(t, frozen)
		if !stopped(t, pid) {
			t.Fatal("the first syncerd was not frozen all the time")
		}
		took := time.Since(frozen)
		t.Logf("all databases were taken over %s after the freeze", took.Round(100*time.Millisecond))
		if *long && took > 5*time.Second {
			t.Error("that is more than five seconds")
		}
		must(t, syscall.Kill(pid, syscall.SIGCONT))
		return 1
	})
	second.terminate(t)
}

// stopped reports whether a process is in state T.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	must(t, err)
	// The name before it, in brackets, may hold anything.
	_, state, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')'):]), " ")
	return strings.HasPrefix(state, "T")
}

// Fault 31: requests were lost in shutdown.
// Every orderd is replaced by a new one, again and again, as an upgrade does. Whoever is
// not answered wasn't served: nothing is done for a request whose connection is closed.
func TestRollingRestarts(t *testing.T) {
	restarts := 10
	if *long {
		restarts = 100
	}
	stack := localstack.Test(t)
	env := environment(t, stack)
	mirror := start(t, "syncerd", env)
	var mu sync.Mutex
	serving := []*program{start(t, "orderd", env).ready(t), start(t, "orderd", env).ready(t)}
	turn := 0
	api := func() string {
		mu.Lock()
		defer mu.Unlock()
		turn++
		return serving[turn%len(serving)].api
	}
	n := 150 * restarts
	requests := traffic(rand.Uint64(), n)
	slices.SortFunc(requests, func(a, b request) int { return strings.Compare(a.OutTradeNo, b.OutTradeNo) })
	requests = slices.CompactFunc(requests, func(a, b request) bool { return a.OutTradeNo == b.OutTradeNo })
	ended := 0
	done := drive(t, api, requests, func(progress func(float64)) {
		for i, at := range shares(restarts) {
			progress(at)
			next := start(t, "orderd", env).ready(t)
			mu.Lock()
			last := serving[i%len(serving)]
			serving[i%len(serving)] = next
			mu.Unlock()
			last.terminate(t)
			ended++
		}
	})
	if ended != restarts {
		t.Fatalf("%d of %d restarts", ended, restarts)
	}
	for id, a := range done.acked {
		if a.status == http.StatusOK && !a.told {
			t.Errorf("%s was made by a request that wasn't answered", id)
		}
	}
	verify(t, stack, []string{serving[0].api, serving[1].api}, done)
	mirror.terminate(t)
	t.Logf("%s; %d restarts; 0 missing, 0 doubled", done, ended)
}

// The processes that write are killed at random moments.
func TestKillPoints(t *testing.T) {
	kills := 15
	if *long {
		kills = 1000
	}
	r := newRig(t)
	var mu sync.Mutex
	turn := 0
	api := func() string {
		mu.Lock()
		defer mu.Unlock()
		turn++
		return r.api[turn%len(r.api)].api
	}
	orderds, servers := 0, 0
	done := drive(t, api, traffic(rand.Uint64(), 40*kills), func(progress func(float64)) {
		for i, at := range shares(kills) {
			progress(at)
			moment := time.NewTimer(rand.N(50 * time.Millisecond))
			<-moment.C
			if i%5 == 4 {
				s := r.stack.Server("uid-a")
				must(t, s.Kill())
				must(t, s.Start(t.Context()))
				servers++
				continue
			}
			n := i % len(r.api)
			r.api[n].kill(t)
			next := start(t, "orderd", r.env).ready(t)
			mu.Lock()
			r.api[n] = next
			mu.Unlock()
			orderds++
		}
	})
	if orderds+servers != kills || servers == 0 {
		t.Fatalf("%d kills of orderd, %d of MariaDB; want %d", orderds, servers, kills)
	}
	verify(t, r.stack, r.urls(), done)
	t.Logf("%s; orderd killed %d times, MariaDB %d times; 0 lost, 0 doubled", done, orderds, servers)
}
