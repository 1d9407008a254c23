package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/octopay/octopay/internal/command"
	"github.com/octopay/octopay/loadtest/report"
	"github.com/octopay/octopay/loadtest/traffic/traffictest"
	"github.com/octopay/octopay/shardmap"
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
	if err != nil || len(d.Runs) > 0 && len(d.Runs[0].Seconds) > 1 && !bytes.Contains(page, []byte("<svg")) {
		t.Errorf("the page has no plot: %v", err)
	}
	return d
}

// Both loops measure a service that runs, reads find the orders that were made for
// them, and the figures are in the terminal, in JSON and in a page.
func TestRunsAreReported(t *testing.T) {
	url, ops := measured(t)
	for name, args := range map[string][]string{
		"open loop":   {"run", "--rate", "50", "--pace", "poisson", "--seed", "9", "--scenario", "create=2,batch=1,repeat=1,get=1,look-up=1,list-by-uid=1,list-by-bid=1", "--batch-size", "3"},
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
		if want := map[bool]int{true: command.OK, false: exitInvalid}[r.Valid()]; code != want {
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
		// On a machine that stood still while it warmed up the requests may run out.
		whole := r.DurationSec >= 2
		if !whole && r.Valid() {
			t.Errorf("%s: valid after %g s", name, r.DurationSec)
		}
		if !strings.Contains(stdout, "Not checked") || !strings.Contains(stdout, "answers of success") || whole && !strings.Contains(stderr, "1 s ") {
			t.Errorf("%s: it says\n%s\n%s", name, stdout, stderr)
		}
		lag := false
		for _, s := range r.Seconds {
			lag = lag || s.MirrorLagSec != nil
		}
		if whole && !lag {
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
	code, stdout, stderr := do(t, "--duration", "1s", "--warmup", "1s", "--rate", "50", "--scenario", "create=3,batch=1,repeat=1,get=1", "--batch-size", "20",
		"--known", "50", "--buffer-pool", "128M", "--out", dir)
	if code != command.OK && code != exitInvalid { // the machine may be too busy for the generator
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
	if !strings.Contains(strings.Join(d.Versions, "\n"), "sync_binlog=1") || !slices.ContainsFunc(r.Seconds, func(s report.Second) bool { return s.LaneBatch != nil }) {
		t.Errorf("%q, %+v", d.Versions, r.Seconds)
	}
	left, err := os.ReadDir(temp)
	if err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}

// What was under way when the warm-up ended may be stored, and nobody knows: it is told to
// the checker, of a batch each order.
func TestWhatTheWarmUpLeftOpenIsCounted(t *testing.T) {
	const connections, size = 4, 5
	s := traffictest.New(t, func(c traffictest.Call) {
		if c.N < 20 {
			c.Serve()
			return
		}
		<-c.R.Context().Done()
	})
	dir := t.TempDir()
	code, stdout, stderr := do(t, "--url", s.URL, "--closed", fmt.Sprint(connections), "--duration", "1s", "--warmup", "1s", "--scenario", "batch", "--batch-size", fmt.Sprint(size), "--out", dir)
	r := document(t, dir).Runs[0]
	if code != exitInvalid || r.Cut != connections || r.UnsettledBefore != connections*size || r.Unsettled() != 2*connections*size || r.PerRequest != size {
		t.Errorf("exit code %d; cut off %d, before that %d, in all %d\n%s%s", code, r.Cut, r.UnsettledBefore, r.Unsettled(), stdout, stderr)
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

// Every flag that is wrong, or would be ignored, is named with its rule before anything is
// started.
func TestACommandThatIsWrongIsNotRun(t *testing.T) {
	noMap := filepath.Join(t.TempDir(), "map.yaml")
	if err := os.WriteFile(noMap, []byte("epoch: what\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	url, _ := measured(t)
	for args, want := range map[string]string{
		"--nosuch":                            "unknown flag --nosuch",
		"--closed 4 --rate 5":                 "--closed and --rate exclude each other",
		"--closed 0":                          "--closed must be from 1",
		"--closed=-1":                         "--closed must be from 1",
		"--rate 0":                            "--rate must be above 0",
		"--rate=-1":                           "--rate must be above 0",
		"--rate NaN":                          "--rate must be above 0",
		"--rate 1e9":                          "1000000 at most",
		"--pace slow":                         "must be one of",
		"--pace ramp":                         "--pace belongs to --rate",
		"--pace constant":                     "--pace belongs to --rate",
		"--pace step --closed 8":              "--pace belongs to --rate",
		"--workers 5":                         "--workers belongs to --rate",
		"--timeout 5s --closed 8":             "--timeout belongs to --rate",
		"--from 5":                            "--from belongs to --rate",
		"--steps 5":                           "--steps belongs to --rate",
		"--rate 5 --from 2":                   "--from belongs to --pace ramp",
		"--rate 5 --pace poisson --from 2":    "--from belongs to --pace ramp",
		"--rate 5 --pace ramp --steps 2":      "--steps belongs to --pace step",
		"--rate 5 --pace ramp --from 6":       "--from must be above 0, and --rate at most",
		"--rate 5 --pace ramp --from 0":       "--from must be above 0",
		"--rate 5 --pace step --steps 1":      "2 to 1000 steps",
		"--rate 5 --workers 0":                "--workers must be from 1",
		"--rate 5 --timeout 0s":               "--timeout must be",
		"--duration 1ms":                      "--duration must",
		"--duration 0s":                       "--duration must",
		"--duration 1500ms":                   "--duration of the closed loop must be whole seconds",
		"--warmup 0s":                         "--warmup of the closed loop must be whole seconds",
		"--rate 5 --warmup=-1s":               "--warmup must be from 0s to 1h",
		"--scenario pay":                      "kind of request",
		"--scenario create=0":                 "weight",
		"--scenario create=1,create=2":        "--scenario has create twice",
		"--batch-size 5":                      "--batch-size belongs to a scenario with batches",
		"--scenario batch --batch-size 501":   "--batch-size must be from 1 to 500",
		"--known 5":                           "--known belongs to a scenario that reads",
		"--scenario get --known 0":            "--known must be from 1",
		"--hot-buyer 2":                       "--hot-buyer is a share",
		"--hot-buyer NaN":                     "--hot-buyer is a share",
		"--zipf=-1":                           "--zipf must be from 0 to 10",
		"--buyers 0":                          "--buyers must be 1 at least",
		"--merchants 0":                       "--merchants must be from 1 to 100000",
		"--merchants 100001":                  "--merchants must be from 1 to 100000",
		"--databases 7":                       "--databases must be 8, 16, 32 or 64",
		"--databases 0":                       "--databases must be 8, 16, 32 or 64",
		"--buffer-pool much":                  "--buffer-pool must be like 512M",
		"--buffer-pool 0":                     "--buffer-pool must be like 512M",
		"--map x --db-user y":                 "--map belongs to --url",
		"--ops-url http://a":                  "--ops-url belongs to --url",
		"--mirror-within 0s":                  "--mirror-within must be",
		"--no-mirror --mirror-within 5s":      "--mirror-within belongs to a check of the mirror",
		"--url 127.0.0.1":                     "--url must be like",
		"--url=":                              "--url must be like",
		"--url http://a/v1":                   "--url must be like",
		"--url http://a --ops-url a:1":        "--ops-url must be like",
		"--url https://a":                     "--url of the closed loop must begin with http:",
		"--url http://a --databases 8":        "--databases belongs to a stack of its own",
		"--url http://a --buffer-pool 1G":     "--buffer-pool belongs to a stack of its own",
		"--url http://a --map x":              "--map and --db-user belong together",
		"--url http://a --db-user x":          "--map and --db-user belong together",
		"--url http://a --no-mirror":          "--no-mirror belongs to a check",
		"--url http://a --mirror-within 5s":   "--mirror-within belongs to a check",
		"--url " + url + " --db-user a --map": "", // below
		"targets -n 0":                        "-n must be",
		"targets --name A":                    "name has",
		"targets --name=":                     "name has",
		"targets --url a":                     "--url must be like",
		"targets --hot-buyer 2":               "--hot-buyer is a share",
		"targets --known 5":                   "--known belongs to a scenario that reads",
		"page x.html":                         "must end with .json",
	} {
		if want == "" {
			args, want = args+" "+noMap, "--map: "+noMap
		}
		code, stdout, stderr := do(t, strings.Fields(args)...)
		if code != command.Wrong || !strings.Contains(stderr, want) || stdout != "" {
			t.Errorf("%s: exit code %d, want %d and %q\n%s%s", args, code, command.Wrong, want, stdout, stderr)
		}
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"--url", url}, []string{"LOADTEST_KEY=a\nb"}, &out, &errs); code != command.Wrong || !strings.Contains(errs.String(), "one line") {
		t.Errorf("a key of two lines: exit code %d\n%s", code, &errs)
	}
}

func TestTheHelpShowsWhatCanBeSent(t *testing.T) {
	code, stdout, stderr := do(t, "--help")
	for _, want := range []string{"create, batch, repeat, get, look-up, list-by-uid, list-by-bid", "create=3,get=5", "poisson", "run --help", "targets", "LOADTEST_KEY", "with 3 when a run is invalid"} {
		if !strings.Contains(strings.Join(strings.Fields(stdout), " "), want) {
			t.Errorf("the help doesn't say %q", want)
		}
	}
	if code != command.OK || stderr != "" {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if code, stdout, _ := do(t, "run", "--help"); code != command.OK || !strings.Contains(stdout, "--hot-buyer") {
		t.Errorf("exit code %d\n%s", code, stdout)
	}
}

// Whichever loop and scenario, a service that isn't there ends it at once, and says so in
// the same words; so do ops ports that are none, and databases that can't be read.
func TestWhatIsNotThereEndsItAtOnce(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	metrics := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "go_goroutines 1\n") }))
	defer metrics.Close()
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer refuses.Close()
	url, _ := measured(t)
	m, err := shardmap.New(shardmap.OneServer(shardmap.Server{Name: "uid-a", Address: strings.TrimPrefix(gone.URL, "http://")}, 8))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "map.yaml")
	if err := os.WriteFile(file, m.Text(), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"--url " + gone.URL:                                         "nobody answers at " + gone.URL,
		"--url " + gone.URL + " --rate 10":                          "nobody answers at " + gone.URL,
		"--url " + gone.URL + " --scenario get":                     "nobody answers at " + gone.URL,
		"--url " + gone.URL + " --rate 10 --scenario list-by-bid":   "nobody answers at " + gone.URL,
		"targets --scenario get --url " + gone.URL:                  "nobody answers at " + gone.URL,
		"--url " + other.URL:                                        "is not Octopay",
		"--url " + other.URL + " --rate 10":                         "is not Octopay",
		"--url " + refuses.URL:                                      "refuses the key",
		"--url " + url + " --ops-url " + gone.URL:                   "--ops-url " + gone.URL,
		"--url " + url + " --ops-url " + other.URL:                  "--ops-url " + other.URL,
		"--url " + url + " --ops-url " + metrics.URL:                "none of Octopay",
		"--url " + url + " --db-user nobody --map " + file:          "octopay_uid_",
		"--url " + url + " --db-user nobody --rate 5 --map " + file: "octopay_uid_",
	} {
		began := time.Now()
		code, stdout, stderr := do(t, strings.Fields(args)...)
		if code != command.Failed || !strings.Contains(stderr, want) || stdout != "" || strings.Contains(stderr, "warming up") {
			t.Errorf("%s: exit code %d, want %q\n%s%s", args, code, want, stdout, stderr)
		}
		if took := time.Since(began); took > 30*time.Second { // reads waited for a minute
			t.Errorf("%s: it took %s", args, took)
		}
	}
}

// A page that is made again is the one that was.
func TestThePageIsMadeOfWhatIsKept(t *testing.T) {
	out, _ := quiet()
	m := short3(t)
	err := m.conduct(t.Context(), out, "load", "A test", time.Hour, func(ctx context.Context, d *report.Document) error {
		var ran []string
		return m.rounds(ctx, out, d, "some set", []string{"a"}, contend(&ran, "a", "b")...)
	})
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(m.Out, "*.html"))
	if len(files) != 1 {
		t.Fatalf("%v", files)
	}
	was, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := do(t, "page", strings.TrimSuffix(files[0], ".html")+".json")
	if is, err := os.ReadFile(files[0]); code != command.OK || err != nil || !bytes.Equal(was, is) {
		t.Errorf("exit code %d, %v, the same: %t\n%s", code, err, bytes.Equal(was, is), stderr)
	}
	if code, _, stderr := do(t, "page", filepath.Join(m.Out, "none.json")); code != command.Failed {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	// Those of the repository can be made.
	kept, _ := filepath.Glob("results/*.json")
	if len(kept) == 0 {
		t.Error("there are no results")
	}
	for _, file := range kept {
		d, err := readDocument(file)
		if err != nil || d.HTML(io.Discard) != nil {
			t.Errorf("%s: %v", file, err)
		}
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
		{"the mirror is behind", report.Run{Check: &report.Check{Behind: "x"}}, nil, []error{errCheck}},
		{"its stack ended badly", report.Run{}, ended(nil, io.EOF), []error{io.EOF}},
		{"invalid, and its stack ended badly", report.Run{Invalid: []string{"late"}}, ended(nil, io.EOF), []error{errInvalid, io.EOF}},
		{"invalid, and the stacks ended badly", report.Run{Invalid: []string{"late"}}, ended(ended(nil, io.EOF), io.EOF), []error{errInvalid, io.EOF}},
		{"invalid, it grows, and its stack ended badly", report.Run{Invalid: []string{"late"}}, ended(errFound, io.EOF), []error{errFound, io.EOF}},
		{"missing, and its stack ended badly", report.Run{Check: &report.Check{Missing: 1}}, ended(nil, io.EOF), []error{errCheck, io.EOF}},
	} {
		for _, d := range []report.Document{{Runs: []report.Run{{}, c.run}}, {Sets: []report.Set{{Rounds: [][]report.Run{{c.run}}}}}} {
			err := verdict(d, c.other)
			if (err == nil) != (c.want == nil) {
				t.Errorf("%s: %v", c.name, err)
			}
			for _, is := range []error{errCheck, errInvalid, errFound, io.EOF} {
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
	if code != command.OK {
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

// A watcher is where a command writes, which calls then once, when it says what.
type watcher struct {
	what string
	then func()

	mu   sync.Mutex
	said bytes.Buffer
	once sync.Once
}

func (w *watcher) Write(p []byte) (int, error) {
	w.mu.Lock()
	n, err := w.said.Write(p)
	seen := strings.Contains(w.said.String(), w.what)
	w.mu.Unlock()
	if seen {
		w.once.Do(w.then)
	}
	return n, err
}

func (w *watcher) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.said.String()
}

// below returns the processes whose program is in a folder, by their name.
func below(t *testing.T, dir string) map[string]int {
	t.Helper()
	found := map[string]int{}
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range all {
		text, _ := os.ReadFile(file)
		program, _, _ := strings.Cut(string(text), "\x00")
		if strings.HasPrefix(program, dir) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
				found[filepath.Base(program)] = pid
			}
		}
	}
	return found
}

// A program of ours that dies while it is measured makes the run invalid, wherever that
// is read, and is named.
func TestAProgramThatDiesMakesTheRunInvalidEverywhere(t *testing.T) {
	for _, program := range []string{"orderd", "syncerd"} {
		t.Run(program, func(t *testing.T) {
			temp, dir := t.TempDir(), t.TempDir()
			t.Setenv("TMPDIR", temp)
			var out bytes.Buffer
			errs := &watcher{what: "    1 s ", then: func() {
				if pid := below(t, temp)[program]; pid == 0 || syscall.Kill(pid, syscall.SIGKILL) != nil {
					t.Errorf("%s isn't there: process %d", program, pid)
				}
			}}
			code := run(t.Context(), []string{"--rate", "20", "--duration", "3s", "--warmup", "1s", "--timeout", "2s", "--buffer-pool", "128M", "--mirror-within", "2s", "--out", dir}, nil, &out, errs)
			// Without syncerd the mirror lacks what was stored, which is worse.
			if want := map[string]int{"orderd": exitInvalid, "syncerd": command.Failed}[program]; code != want {
				t.Errorf("exit code %d, want %d", code, want)
			}
			want := program + " ended while it was measured"
			page, err := os.ReadFile(filepath.Join(dir, "run.html"))
			if err != nil || !bytes.Contains(page, []byte(want)) && !bytes.Contains(page, []byte(strings.ToUpper(want[:1])+want[1:])) {
				t.Errorf("the page doesn't say it: %v", err)
			}
			r := document(t, dir).Runs[0]
			if _, has := r.CPUSec[program]; !slices.Contains(r.Invalid, want) || has {
				t.Errorf("invalid: %q, CPU of %v", r.Invalid, r.CPUSec)
			}
			if r.Check == nil || r.Check.Missing+r.Check.Wrong+r.Check.Doubled > 0 || r.Check.Found == 0 {
				t.Errorf("checked: %+v", r.Check)
			}
			if !strings.Contains(out.String(), "INVALID") || !strings.Contains(strings.ToLower(out.String()), want) || !strings.Contains(errs.String(), program+" had ended by itself") {
				t.Errorf("it says\n%s\n%s", &out, errs)
			}
			if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
				t.Errorf("it left %v, %v", left, err)
			}
		})
	}
}

// A terminal that is closed ends it as Ctrl-C does: nothing stays. Under nohup it goes on.
func TestSIGHUPEndsItInOrder(t *testing.T) {
	temp := t.TempDir()
	program := filepath.Join(t.TempDir(), "loadtest")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(program, "--rate", "20", "--duration", "1m", "--warmup", "1s", "--buffer-pool", "128M")
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	errs := &watcher{what: "    1 s ", then: func() {
		if len(below(t, temp)) < 2 {
			t.Errorf("it runs %v", below(t, temp))
		}
		_ = cmd.Process.Signal(syscall.SIGHUP)
	}}
	cmd.Stdout, cmd.Stderr = io.Discard, errs
	// What a test ignores, its children would.
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGHUP)
	defer signal.Stop(heard)
	err := cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != exitInvalid { // it ended early
		t.Errorf("exit code %d, %v\n%s", code, err, errs)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
	if still := below(t, temp); len(still) > 0 {
		t.Errorf("it left the processes %v", still)
	}
}

// Whoever started it with nohup gets what nohup promises.
func TestNohupIsObeyed(t *testing.T) {
	has := func() bool { return slices.Contains(signals(), os.Signal(syscall.SIGHUP)) }
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGHUP) // nobody knows how the test was started
	defer signal.Stop(heard)
	if !has() {
		t.Error("SIGHUP doesn't end it")
	}
	signal.Ignore(syscall.SIGHUP)
	if has() {
		t.Error("under nohup SIGHUP ends it")
	}
}
