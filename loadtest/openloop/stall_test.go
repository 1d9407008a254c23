package openloop

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/octopay/octopay/loadtest/report"
	"github.com/octopay/octopay/loadtest/traffic"
)

// build builds the service and returns its program.
func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "quickstart")
	if out, err := exec.Command("go", "build", "-o", binary, "../../services/quickstart").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return binary
}

// start starts the service in a process of its own, which ends with the test, and
// returns its URL.
func start(t *testing.T, binary string) (process *os.Process, url string) {
	t.Helper()
	cmd := exec.Command(binary, "-addr", "127.0.0.1:0", "-ops-addr", "127.0.0.1:0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if url, ok := strings.CutPrefix(lines.Text(), "octopay ready "); ok {
			go func() { _, _ = io.Copy(io.Discard, stdout) }()
			return cmd.Process, url
		}
	}
	t.Fatal("quickstart ended before it was ready")
	return nil, ""
}

// stopped reports whether the kernel has stopped a process.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(state, "T")
}

// Fault 33. The load tool hid a stall of two seconds: it sent nothing while the
// service stood still, and so measured a few slow requests where every buyer of two
// seconds had waited. Here the requests that were due meanwhile count from when they
// were due, also when the generator has far too few workers to send them.
func TestFault33AStallOfTwoSecondsShows(t *testing.T) {
	binary := build(t)
	for _, c := range []struct {
		name    string
		workers int
		plan    string
	}{
		{"with workers enough", 0, "enough"},
		{"with four workers", 4, "four"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			process, url := start(t, binary)
			plan, err := traffic.New(traffic.Config{Run: c.plan})
			if err != nil {
				t.Fatal(err)
			}
			stood := false
			var began time.Time
			var stall time.Duration
			over := make(chan struct{})
			run, acks, err := Run(t.Context(), plan, Config{
				URL: url, Pace: Constant(200), Duration: 6 * time.Second, WorkersMax: c.workers,
				Second: func(s report.Second) {
					if s.At != 0 { // a second is over
						return
					}
					if err := process.Signal(syscall.SIGSTOP); err != nil {
						t.Error(err)
					}
					began = time.Now()
					time.AfterFunc(2*time.Second, func() {
						defer close(over)
						stood = stopped(t, process.Pid)
						stall = time.Since(began)
						if err := process.Signal(syscall.SIGCONT); err != nil {
							t.Error(err)
						}
					})
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			<-over
			if !stood {
				t.Fatalf("it did not stand still for %s", stall)
			}
			t.Logf("%s: latency %+v, lag %+v, %v, invalid: %q", c.name, run.LatencyMs, run.LagMs, run.ByAnswer, run.Invalid)
			// A third of the requests were due while it stood, so the slowest hundredth
			// waited for nearly all of it.
			ms := float64(stall.Milliseconds())
			if run.LatencyMs.P99 < 0.9*ms || run.LatencyMs.Max < 0.95*ms {
				t.Errorf("a stall of %s shows as %+v", stall, run.LatencyMs)
			}
			if run.LatencyMs.P90 < 0.5*ms {
				t.Errorf("of the requests that were due in a stall of %s a tenth waited %.0f ms", stall, run.LatencyMs.P90)
			}
			// So does each second in which requests were due that waited for half of it.
			begin, shows := began.Sub(run.Started).Seconds(), 0
			for i, second := range run.Seconds {
				from := max(float64(i), begin)
				if from > float64(i)+0.9 || begin+stall.Seconds()-from < stall.Seconds()/2 {
					continue
				}
				shows++
				if q := second.LatencyMs; q == nil || q.P99 < 0.4*ms {
					t.Errorf("second %d, in which it stood still, shows %+v", i, q)
				}
			}
			if shows == 0 {
				t.Errorf("it stood still from %.1f s on: the test shows nothing", begin)
			}
			if int64(len(acks)) != run.ByAnswer["201"] || run.Sent+run.Dropped != 1200 {
				t.Errorf("%d acknowledged, %v, %d sent, %d dropped", len(acks), run.ByAnswer, run.Sent, run.Dropped)
			}
			if c.workers == 0 {
				return
			}
			// Only four requests were under way when it stood still. Without the rule
			// nobody would see the others wait: that the generator was late must be said.
			if run.LagMs.P99 < 0.8*ms || !strings.Contains(strings.Join(run.Invalid, "\n"), "was late") {
				t.Errorf("four workers were late by %+v, and that is said as %q", run.LagMs, run.Invalid)
			}
		})
	}
}
