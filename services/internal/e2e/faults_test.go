package e2e_test

import (
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/octopay/octopay/internal/faultproxy"
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
	r := &rig{stack: localstack.Private(t, localstack.Options{})}
	r.env = environment(t, r.stack)
	for range 2 {
		r.api = append(r.api, start(t, "orderd", r.env).ready(t))
	}
	r.mirror = start(t, "syncerd", r.env)
	return r
}

func (r *rig) urls() []string { return []string{r.api[0].api, r.api[1].api} }

// survive drives orders through the rig while faults happen, and finds each of them
// afterwards. The faults say how many they were.
func (r *rig) survive(t *testing.T, faults func(progress func(float64)) int) {
	t.Helper()
	n, _ := size()
	happened := 0
	done := drive(t, r.urls(), traffic(rand.Uint64(), n), func(progress func(float64)) { happened = faults(progress) })
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
			eventually(t, 5*time.Second, "the process is stopped", func() bool { return stopped(t, pid) })
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

// stopped reports whether a process is in state T.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	must(t, err)
	// The name before it, in brackets, may hold anything.
	_, state, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')'):]), " ")
	return strings.HasPrefix(state, "T")
}

// One packet in twenty of orderd's to the truth loses its connection: before it is
// sent, within it, or around its answer.
func TestConnectionsCutAtRandom(t *testing.T) {
	stack := localstack.Private(t, localstack.Options{})
	proxy := faultproxy.New(t, stack.Server("uid-a").Address())
	r := &rig{stack: stack, env: environment(t, stack.Via(t, "uid-a", proxy.Addr()))}
	for range 2 {
		r.api = append(r.api, start(t, "orderd", r.env).ready(t))
	}
	r.mirror = start(t, "syncerd", r.env)
	points := []faultproxy.Point{faultproxy.BeforePacket, faultproxy.InPacket, faultproxy.BeforeReply, faultproxy.InReply, faultproxy.AfterReply}
	r.survive(t, func(progress func(float64)) (cuts int) {
		over := make(chan struct{})
		go func() { progress(1); close(over) }()
		commit := faultproxy.Query("COMMIT")
		for {
			f := proxy.Arm(points[rand.N(len(points))], func(packet []byte) bool { return commit(packet) && rand.N(20) == 0 })
			select {
			case <-f.Done():
			case <-over:
				for _, p := range points {
					cuts += proxy.Fired(p)
				}
				return cuts
			}
		}
	})
}
