package rig_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/loadtest/baseline"
	"github.com/octopay/octopay/loadtest/check"
	"github.com/octopay/octopay/loadtest/report"
	"github.com/octopay/octopay/loadtest/rig"
	"github.com/octopay/octopay/loadtest/traffic"
	"go.uber.org/goleak"
)

// TestMain makes this program the one that has the command serve, and one that starts a
// rig and waits to be killed.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "serve" {
		ctx, stop := signalled()
		defer stop()
		if err := baseline.Serve(ctx, os.Args[2], os.Environ(), os.Stdin, os.Stdout, os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 3 && os.Args[1] == "rig" {
		if err := startAndWait(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(30 * time.Second)
	for !holds() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

func startRig(t *testing.T, c rig.Config) *rig.Rig {
	t.Helper()
	r, err := rig.Start(t.Context(), c, func(line string) { t.Log(line) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// send makes requests from..to of a plan, one after the other, and returns how they were
// answered.
func send(t *testing.T, key, url string, plan *traffic.Plan, from, to uint64) (acks check.Acks, run report.Run) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{}, Timeout: 15 * time.Second}
	defer client.CloseIdleConnections()
	run = report.Run{Started: time.Now(), ByAnswer: map[string]int64{}}
	for n := from; n < to; n++ {
		r := plan.Request(n)
		req, err := http.NewRequestWithContext(t.Context(), r.Method, url+r.Target, strings.NewReader(string(r.Body)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+key)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		run.ByAnswer[strconv.Itoa(resp.StatusCode)]++
		var order struct {
			OrderID    string `json:"order_id"`
			OutTradeNo string `json:"out_trade_no"`
		}
		if err := json.Unmarshal(body, &order); err != nil {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
		id, err := idgen.Parse(order.OrderID)
		if err != nil {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
		acks = append(acks, traffic.Ack{ID: id, OutTradeNo: order.OutTradeNo})
	}
	run.DurationSec = time.Since(run.Started).Seconds()
	for i := range int(run.DurationSec) + 1 {
		run.Seconds = append(run.Seconds, report.Second{At: i})
	}
	return acks, run
}

func plan(t *testing.T, run string) *traffic.Plan {
	t.Helper()
	p, err := traffic.New(traffic.Config{Run: run, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Everything that a rig runs takes orders or carries them, all of it can be measured, and
// what it stored is right.
func TestARigRunsOctopayAndWhatItIsComparedWith(t *testing.T) {
	dir := t.TempDir()
	r := startRig(t, rig.Config{Dir: dir, BufferPool: "64M", Syncerd: true, Pprof: true})
	for _, e := range r.Engines {
		if e.BufferPool != 64<<20 || e.Durable["sync_binlog"] != "1" || e.Durable["innodb_flush_log_at_trx_commit"] != "1" {
			t.Errorf("%s", e)
		}
	}
	octopay := plan(t, "octopay")
	const n = 300
	record := r.Record(rig.Octopay)
	acks, run := send(t, r.Key(), r.URL(), octopay, 0, n)
	if err := record.Fill(&run); err != nil {
		t.Fatal(err)
	}
	if run.ByAnswer["201"] != n || run.Target != rig.Octopay {
		t.Errorf("%+v", run)
	}
	for _, program := range []string{"orderd", "syncerd", rig.Truth, rig.Mirror, rig.Broker} {
		used, ok := run.CPUSec[program]
		if pids := r.Pids()[program]; !ok || len(pids) != 1 {
			t.Errorf("%s, processes %v, used %v s of CPU", program, pids, used)
		}
	}
	if run.CPUSec["orderd"] <= 0 || run.CPUSec[rig.Truth] <= 0 {
		t.Errorf("nobody worked: %v", run.CPUSec)
	}
	if s := run.Seconds[0]; s.LaneBatch == nil || *s.LaneBatch != 1 {
		t.Errorf("one order after the other went in transactions of %v", s.LaneBatch)
	}
	got, err := check.Check(t.Context(), r.Cluster(), []*traffic.Plan{octopay}, acks, check.Config{Mirror: true})
	if err != nil || got.Fails() || got.Found != n {
		t.Errorf("%+v, %v", got, err)
	}
	eventually(t, "the mirror's lag is told", func() bool {
		families, err := rig.Metrics(t.Context(), r.Ops("syncerd")[0])
		return err == nil && len(families["octopay_mirror_lag_seconds"].GetMetric()) == 8
	})

	for _, kind := range []string{baseline.Direct, baseline.Echo} {
		url, pid, stop, err := r.Baseline(t.Context(), kind)
		if err != nil {
			t.Fatal(err)
		}
		if pids := r.Pids()[kind]; len(pids) != 1 || pids[0] != pid {
			t.Errorf("%s: processes %v, want %d", kind, pids, pid)
		}
		p := plan(t, kind)
		record := r.Record(kind)
		acks, run := send(t, r.Key(), url, p, 0, n)
		if err := record.Fill(&run); err != nil {
			t.Fatal(err)
		}
		if _, has := run.CPUSec["orderd"]; has || run.ByAnswer["201"] != n {
			t.Errorf("%s: %+v", kind, run)
		}
		got, err := check.Check(t.Context(), r.Cluster(), []*traffic.Plan{p}, acks, check.Config{})
		if _, has := run.CPUSec[kind]; !has {
			t.Errorf("%s: %v", kind, run.CPUSec)
		}
		if want := map[string]int{baseline.Direct: n}[kind]; err != nil || got.Found != want || got.Missing != n-want || got.Wrong+got.Doubled > 0 {
			t.Errorf("%s: %+v, %v", kind, got, err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	}

	rawPlan := plan(t, "raw")
	rawRun, err := r.Raw(t.Context(), baseline.RawJob{Plan: rawPlan.Config, First: 5, InFlight: 64, Orders: 2000})
	if err != nil {
		t.Fatal(err)
	}
	stored := rawRun.ByAnswer["201"]
	if stored < 2000 || len(rawRun.Invalid) > 0 || rawRun.CPUSec[baseline.Raw] <= 0 || rawRun.CPUSec[rig.Truth] <= 0 {
		t.Errorf("%+v", rawRun)
	}
	// Nobody acknowledged them, and so they are open: all that it says, and what was
	// under way when it stopped counting.
	got, err = check.Check(t.Context(), r.Cluster(), []*traffic.Plan{rawPlan}, nil, check.Config{OpenMax: 1 << 30, Settle: time.Nanosecond})
	if err != nil || got.Fails() || got.Open < int(stored) {
		t.Errorf("%d were stored, %+v, %v", stored, got, err)
	}
	if err := r.StopSyncerd(); err != nil || len(r.Pids()["syncerd"]) != 0 {
		t.Errorf("syncerd: %v, %v", r.Pids()["syncerd"], err)
	}
	if _, err := os.Stat(filepath.Join(dir, "orderd.log")); err != nil {
		t.Error(err)
	}

	// At rest it is idle; when it doesn't answer nobody knows.
	eventually(t, "orderd is idle", func() bool { return r.Idle(t.Context()) })
	orderd := r.Pids()["orderd"][0]
	if err := syscall.Kill(orderd, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if r.Idle(t.Context()) {
		t.Error("a frozen orderd is idle")
	}
	if err := syscall.Kill(orderd, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if gone := r.Gone(); len(gone) > 0 {
		t.Errorf("%v are gone", gone)
	}

	// Quiet ends by itself, also where something goes on working.
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	r.Quiet(ended)
	r.Quiet(t.Context())

	// A server that isn't durable would give figures of something else.
	if err := r.Durable(t.Context()); err != nil {
		t.Error(err)
	}
	for _, c := range [][2]string{{"uid-a", "sync_binlog"}, {"bid-a", "innodb_flush_log_at_trx_commit"}} {
		if _, err := r.Stack().Admin(t, c[0]).ExecContext(t.Context(), "SET GLOBAL "+c[1]+" = 0"); err != nil {
			t.Fatal(err)
		}
		if err := r.Durable(t.Context()); err == nil || !strings.Contains(err.Error(), c[0]+" isn't durable: "+c[1]+" is 0") {
			t.Errorf("%s of %s is 0, and it says %v", c[1], c[0], err)
		}
	}
}

func startAndWait(dir string) error {
	r, err := rig.Start(context.Background(), rig.Config{Dir: dir, BufferPool: "64M"}, nil)
	if err != nil {
		return err
	}
	pids := []string{}
	for _, of := range r.Pids() {
		for _, pid := range of {
			pids = append(pids, strconv.Itoa(pid))
		}
	}
	fmt.Println(strings.Join(pids, " "))
	select {}
}

// Whoever started it may be killed: then all of it dies.
func TestNothingOutlivesWhoStartedIt(t *testing.T) {
	cmd := exec.Command(os.Args[0], "rig", t.TempDir())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("it did not start: %v, %v", err, cmd.Wait())
	}
	pids := strings.Fields(line)
	if len(pids) != 4 { // orderd, two MariaDB servers, NATS
		t.Errorf("processes %v", pids)
	}
	there := func(pid string) bool {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		return err == nil && !strings.Contains(string(stat), ") Z ")
	}
	for _, pid := range pids {
		if !there(pid) {
			t.Errorf("process %s isn't there", pid)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for _, pid := range pids {
		eventually(t, "process "+pid+" is gone", func() bool { return !there(pid) })
	}
}
