package rig

import (
	"bufio"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/octopay/octopay/loadtest/proc"
	"github.com/octopay/octopay/loadtest/report"
)

// child starts a process that lives until end is called; reaped says whether somebody
// then waits for it, as one does for a process of one's own.
func child(t *testing.T) (pid int, end func(reaped bool)) {
	t.Helper()
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	return cmd.Process.Pid, func(reaped bool) {
		_ = in.Close()
		// Its end closes its output.
		_, _ = bufio.NewReader(out).ReadByte()
		if reaped {
			_ = cmd.Wait()
			return
		}
		limit := time.Now().Add(30 * time.Second)
		for {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
			if err == nil && strings.Contains(string(stat), ") Z ") {
				return
			}
			if time.Now().After(limit) {
				t.Fatalf("it doesn't end: %s, %v", stat, err)
			}
			time.Sleep(time.Millisecond) // nothing tells
		}
	}
}

// A program that ends while it is measured, or had ended before, makes the run invalid, and
// is named: its part of the CPU would be missing, and nobody would see that.
func TestAProgramThatIsGoneMakesTheRunInvalid(t *testing.T) {
	lives, _ := child(t)
	for name, c := range map[string]struct {
		before, reaped bool
		pids           func(pid int) []int
	}{
		"it ended meanwhile":           {false, true, func(pid int) []int { return []int{pid} }},
		"nobody waited for it yet":     {false, false, func(pid int) []int { return []int{pid} }},
		"it had ended before":          {true, true, func(pid int) []int { return []int{pid} }},
		"one of two":                   {false, true, func(pid int) []int { return []int{lives, pid} }},
		"an engine that had ended":     {true, true, func(int) []int { return []int{0} }},
		"one of two engines had ended": {true, true, func(int) []int { return []int{lives, 0} }},
	} {
		t.Run(name, func(t *testing.T) {
			pid, end := child(t)
			if c.before {
				end(c.reaped)
			}
			rec := record(Octopay, map[string][]int{"orderd": c.pids(pid), "syncerd": {lives}}, nil)
			if !c.before {
				end(c.reaped)
			}
			run := report.Run{Started: time.Now(), Invalid: []string{"late"}}
			if err := rec.Fill(&run); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(run.Invalid, []string{"late", "orderd ended while it was measured"}) {
				t.Errorf("invalid: %q", run.Invalid)
			}
			if programs := slices.Collect(maps.Keys(run.CPUSec)); !slices.Equal(programs, []string{"syncerd"}) {
				t.Errorf("CPU of %v", programs)
			}
		})
	}
	rec := record(Octopay, map[string][]int{"syncerd": {lives}}, nil)
	run := report.Run{Started: time.Now()}
	if err := rec.Fill(&run); err != nil || !run.Valid() {
		t.Errorf("all are there: %v, %q", err, run.Invalid)
	}
	if _, err := proc.CPU(lives); err != nil {
		t.Error(err)
	}
}

// What carries orders into the mirror is measured until they are there: the run's share.
func TestTheMirrorsProgramsAreMeasuredUntilItHasCaughtUp(t *testing.T) {
	at := func(s float64, used map[string]time.Duration) cpuSample { return cpuSample{zero.Add(sec(s)), used} }
	rec := &Record{target: Octopay, ended: func() {}, done: make(chan struct{}), cpu: []cpuSample{
		at(0, map[string]time.Duration{"orderd": sec(10), "syncerd": sec(100), Mirror: sec(200), Broker: sec(5)}),
		at(10, map[string]time.Duration{"orderd": sec(20), "syncerd": sec(101), Mirror: sec(202), Broker: sec(6)}), // the run's end
		at(20, map[string]time.Duration{"orderd": sec(90), "syncerd": sec(110), Mirror: sec(240), Broker: sec(7)}), // caught up
		at(30, map[string]time.Duration{"orderd": sec(91), "syncerd": sec(150), Mirror: sec(300), Broker: sec(9)}), // the check reads
	}}
	close(rec.done)
	rec.caughtUp, rec.share = zero.Add(sec(20)), 0.5
	run := report.Run{Started: zero.Add(sec(5)), DurationSec: 5}
	if err := rec.Fill(&run); err != nil {
		t.Fatal(err)
	}
	for program, want := range map[string]float64{"orderd": 5, "syncerd": 5, Mirror: 20, Broker: 1} {
		if got := run.CPUSec[program]; math.Abs(got-want) > 1e-9 {
			t.Errorf("%s used %v s, want %v", program, got, want)
		}
	}
}
