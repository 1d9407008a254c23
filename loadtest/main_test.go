package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/octopay/octopay/loadtest/report"
	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// quickstart starts the service, once for all tests, and returns the URLs of its API
// and of its ops port. It ends with the tests.
var quickstart = sync.OnceValues(func() ([2]string, error) {
	var urls [2]string
	out, err := exec.Command("go", "build", "-o", filepath.Join(scratch, "quickstart"), "../services/quickstart").CombinedOutput()
	if err != nil {
		return urls, errors.New(string(out))
	}
	cmd := exec.Command(filepath.Join(scratch, "quickstart"), "-addr", "127.0.0.1:0", "-ops-addr", "127.0.0.1:0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return urls, err
	}
	if err := cmd.Start(); err != nil {
		return urls, err
	}
	endQuickstart = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		line := lines.Text()
		if url, ok := strings.CutPrefix(line, "octopay ready "); ok {
			urls[0] = url
		} else if rest, ok := strings.CutPrefix(line, "Health, readiness, metrics: "); ok {
			urls[1], _, _ = strings.Cut(rest, "/healthz")
			go func() { _, _ = io.Copy(io.Discard, stdout) }()
			return urls, nil
		}
	}
	return urls, errors.New("quickstart ended before it was ready")
})

var (
	scratch       string
	endQuickstart = func() {}
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "octopay-loadtest-")
	if err != nil {
		panic(err)
	}
	scratch = dir
	code := m.Run()
	endQuickstart()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func measured(t *testing.T) (url, ops string) {
	t.Helper()
	urls, err := quickstart()
	if err != nil {
		t.Fatal(err)
	}
	return urls[0], urls[1]
}

// do runs the program.
func do(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, []string{"LOADTEST_KEY=dev-app"}, &out, &errs)
	return code, out.String(), errs.String()
}

// document reads what a run put into dir.
func document(t *testing.T, dir string) report.Document {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "run.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d, err := report.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "run.html"))
	if err != nil || !bytes.Contains(page, []byte("<svg")) {
		t.Errorf("the page has no plot: %v", err)
	}
	return d
}

// Both loops measure a service that runs, reads find the orders that were made for
// them, and the figures are in the terminal, in JSON and in a page.
func TestRunsAreReported(t *testing.T) {
	url, ops := measured(t)
	for name, args := range map[string][]string{
		"open loop":   {"run", "--rate", "50", "--pace", "poisson", "--seed", "9", "--scenario", "create=2,repeat=1,get=1,look-up=1,list-by-uid=1,list-by-bid=1"},
		"closed loop": {"--closed", "4", "--warmup", "1s", "--scenario", "create=1,get=1"},
	} {
		dir := filepath.Join(t.TempDir(), "out")
		code, stdout, stderr := do(t, append(args, "--url", url, "--ops-url", ops, "--duration", "2s", "--known", "30", "--out", dir)...)
		d := document(t, dir)
		if len(d.Runs) != 1 {
			t.Fatalf("%s: %d runs\n%s%s", name, len(d.Runs), stdout, stderr)
		}
		// Whether the generator could keep up depends on what else the machine does.
		r := d.Runs[0]
		if want := map[bool]int{true: exitOK, false: exitInvalid}[r.Valid()]; code != want {
			t.Errorf("%s: exit code %d, want %d, since it says %q\n%s%s", name, code, want, r.Invalid, stdout, stderr)
		}
		if r.ByAnswer["200"] == 0 || r.ByAnswer["201"] == 0 || r.Sent-r.ByAnswer["200"]-r.ByAnswer["201"] > min(r.Cut, 4) {
			t.Errorf("%s: sent %d, answers %v", name, r.Sent, r.ByAnswer)
		}
		if r.Check != nil || r.Target != "octopay" || r.CPUSec["generator"] <= 0 || !strings.HasPrefix(r.Generator, name) {
			t.Errorf("%s: %+v", name, r)
		}
		if d.Machine == "" || len(d.Versions) < 2 || !strings.Contains(d.Command, "go run ./loadtest "+args[0]) {
			t.Errorf("%s: %+v", name, d)
		}
		if !strings.Contains(stdout, "Not checked") || !strings.Contains(stdout, "answers of success") || !strings.Contains(stderr, "1 s ") {
			t.Errorf("%s: it says\n%s\n%s", name, stdout, stderr)
		}
		lag := false
		for _, s := range r.Seconds {
			lag = lag || s.MirrorLagSec != nil
		}
		if !lag {
			t.Errorf("%s: no second has the mirror's lag: %+v", name, r.Seconds)
		}
	}
}

// Without a URL it starts all that it needs, finds in both clusters what was
// acknowledged, and leaves nothing behind.
func TestTheDefaultIsAStackOfItsOwn(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	dir := t.TempDir()
	code, stdout, stderr := do(t, "--duration", "1s", "--warmup", "1s", "--rate", "50", "--scenario", "create=3,repeat=1,get=1",
		"--known", "50", "--buffer-pool", "128M", "--out", dir)
	if code != exitOK && code != exitInvalid { // the machine may be too busy for the generator
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	d := document(t, dir)
	r := d.Runs[0]
	// The orders that were made to be read and those of the warm-up are checked too.
	if k := r.Check; k == nil || k.Fails() || !k.Mirror || k.Found != k.Acknowledged || int64(k.Found) < 50+20+r.ByAnswer["201"] {
		t.Errorf("checked: %+v, answers %v", r.Check, r.ByAnswer)
	}
	for _, program := range []string{"orderd", "syncerd", "mariadbd", "mariadbd-mirror", "generator"} {
		if r.CPUSec[program] <= 0 {
			t.Errorf("no CPU of %s: %v", program, r.CPUSec)
		}
	}
	if !strings.Contains(strings.Join(d.Versions, "\n"), "sync_binlog=1") || r.Seconds[0].LaneBatch == nil {
		t.Errorf("%q, %+v", d.Versions, r.Seconds)
	}
	left, err := os.ReadDir(temp)
	if err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}

// Fault 33. A generator that was held back ends with a code of its own.
func TestFault33AnInvalidRunHasItsExitCode(t *testing.T) {
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer slow.Close()
	code, stdout, stderr := do(t, "--url", slow.URL, "--rate", "50", "--workers", "1", "--timeout", "200ms", "--duration", "1s")
	if code != exitInvalid || !strings.Contains(stdout, "INVALID") || !strings.Contains(stdout, "it must send 99 %") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}

func TestACommandThatIsWrongIsNotRun(t *testing.T) {
	for want, args := range map[string]string{
		"exclude each other":    "--url http://a --closed 4 --rate 5",
		"kind of request":       "--url http://a --scenario pay",
		"belong to --url":       "--map x --db-user y",
		"belong together":       "--url http://a --map x",
		"--url must be like":    "--url 127.0.0.1",
		"--duration must":       "--url http://a --duration 1ms",
		"must be whole seconds": "--url http://a --duration 1500ms",
		"0s to 1h":              "--url http://a --warmup=-1s --rate 5",
		"2 to 1000 steps":       "--url http://a --rate 5 --pace step --steps 1",
		"from 0 to 1000000":     "--url http://a --rate=-1",
		"unknown flag --nosuch": "--nosuch",
		"must be one of":        "--pace slow",
		"-n must be":            "targets -n 0",
		"name has":              "targets --name A",
	} {
		code, stdout, stderr := do(t, strings.Fields(args)...)
		if code != exitUsage || !strings.Contains(stderr, want) || stdout != "" {
			t.Errorf("%s: exit code %d, want %d\n%s%s", args, code, exitUsage, stdout, stderr)
		}
	}
	if code, stdout, _ := do(t, "--help"); code != exitOK || !strings.Contains(stdout, "targets") {
		t.Errorf("--help: exit code %d\n%s", code, stdout)
	}
}

func TestAServiceThatIsNotThereFails(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	code, _, stderr := do(t, "--url", gone.URL, "--duration", "1s", "--warmup", "1s")
	if code != exitFailed || !strings.Contains(stderr, "unable to connect") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
}

func TestTheVerdictIsHowTheProgramEnds(t *testing.T) {
	for _, c := range []struct {
		name  string
		run   report.Run
		other error
		want  []error // all that it is; none else
	}{
		{"valid", report.Run{Check: &report.Check{Found: 1}}, nil, nil},
		{"not checked", report.Run{}, nil, nil},
		{"invalid", report.Run{Invalid: []string{"late"}}, nil, []error{errInvalid}},
		{"invalid, and it grows", report.Run{Invalid: []string{"late"}}, errFound, []error{errFound}},
		{"missing, and it grows", report.Run{Check: &report.Check{Missing: 1}}, errFound, []error{errFound, errCheck}},
		{"missing", report.Run{Check: &report.Check{Missing: 1}}, nil, []error{errCheck}},
		{"both", report.Run{Check: &report.Check{Doubled: 1}, Invalid: []string{"late"}}, nil, []error{errCheck}},
	} {
		for _, d := range []report.Document{{Runs: []report.Run{{}, c.run}}, {Sets: []report.Set{{Rounds: [][]report.Run{{c.run}}}}}} {
			err := verdict(d, c.other)
			if (err == nil) != (c.want == nil) {
				t.Errorf("%s: %v", c.name, err)
			}
			for _, is := range []error{errCheck, errInvalid, errFound} {
				if want := slices.Contains(c.want, is); errors.Is(err, is) != want {
					t.Errorf("%s: %v, want %v", c.name, err, c.want)
				}
			}
		}
	}
}

// What targets writes vegeta reads, and the service takes.
func TestTargetsAreVegetas(t *testing.T) {
	url, _ := measured(t)
	args := []string{"targets", "-n", "20", "--url", url + "/", "--name", "t1", "--scenario", "create=1,get=1,repeat=1", "--known", "5"}
	code, stdout, stderr := do(t, args...)
	if code != exitOK {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	next := vegeta.NewJSONTargeter(strings.NewReader(stdout), nil, nil)
	for i := range 20 {
		var target vegeta.Target
		if err := next(&target); err != nil {
			t.Fatal(err)
		}
		req, err := target.Request()
		if err != nil {
			t.Fatal(err)
		}
		if req.Header.Get("Authorization") != "Bearer dev-app" {
			t.Errorf("target %d: %v", i, req.Header)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode > 201 || !json.Valid(body) {
			t.Errorf("target %d, %s %s: %d %s", i, target.Method, target.URL, resp.StatusCode, body)
		}
	}
	var more vegeta.Target
	if err := next(&more); !errors.Is(err, vegeta.ErrNoTargets) {
		t.Errorf("there are more than 20: %v", err)
	}
	// The same name and seed make the same ones.
	if _, again, _ := do(t, args...); again != stdout {
		t.Error("the same command wrote other requests")
	}
}

func TestNamesAreNew(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		name := newName()
		if seen[name] || len(name) > 12 {
			t.Fatalf("%s", name)
		}
		seen[name] = true
	}
}
