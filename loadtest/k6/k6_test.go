// Package k6 holds the scripts for k6, and tests of their logic: under Node, where a
// small stand-in for k6's modules runs them against a quickstart. k6 itself isn't
// needed for that; what it does with rates and virtual users is left to it.
package k6

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	debian "github.com/octopay/octopay/internal/install"
)

// errNoNode tells how to get what is missing.
var errNoNode = errors.New("k6: no node here; install it: sudo apt-get update && sudo apt-get install -y --no-install-recommends nodejs")

// node finds Node, and installs it first where that is possible.
var node = sync.OnceValues(func() (string, error) {
	return findNode(exec.LookPath, func(found func() bool) error { return debian.Packages(context.Background(), found, nil, "nodejs") })
})

func findNode(look func(string) (string, error), get func(found func() bool) error) (path string, err error) {
	found := func() bool {
		path, err = look("node")
		return err == nil
	}
	if found() {
		return path, nil
	}
	if err := get(found); err != nil {
		return "", fmt.Errorf("%w (%w)", errNoNode, err)
	}
	return path, nil
}

func TestWithoutNodeItSaysWhatToRun(t *testing.T) {
	nowhere := func(string) (string, error) { return "", exec.ErrNotFound }
	if _, err := findNode(nowhere, func(func() bool) error { return debian.ErrCannot }); !errors.Is(err, errNoNode) || !errors.Is(err, debian.ErrCannot) {
		t.Errorf("%v", err)
	}
}

// A quickstart is a process of ours.
type quickstart struct{ base string }

// start runs a quickstart until the test ends.
func start(t *testing.T) quickstart {
	t.Helper()
	// go test keeps a result until something changes that the test looked at.
	if err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && len(name) > 2 && strings.HasPrefix(name, "."):
			return filepath.SkipDir
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
			_, err = os.Stat(path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "quickstart")
	if out, err := exec.Command("go", "build", "-o", program, "../../services/quickstart").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	cmd := exec.Command(program, "-addr", "127.0.0.1:0", "-ops-addr", "127.0.0.1:0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// It ends by itself when it doesn't get ready, and then so does its output.
	late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	var q quickstart
	lines := bufio.NewScanner(out)
	for q.base == "" && lines.Scan() {
		if base, ok := strings.CutPrefix(lines.Text(), "octopay ready "); ok {
			q.base = base
		}
	}
	late.Stop()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for lines.Scan() { // what it says is not needed, but must be read
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-drained
		if err := cmd.Wait(); err != nil {
			t.Errorf("quickstart: %v\n%s", err, &stderr)
		}
	})
	if q.base == "" {
		t.Fatalf("quickstart did not get ready\n%s", &stderr)
	}
	return q
}

// A summary is what the stand-in for k6 says.
type summary struct {
	Scenarios  map[string]struct{ Executor string }
	Thresholds []struct {
		Of, Text        string
		Measured, Holds bool
	}
	Checks           map[string]struct{ Passes, Fails int }
	Counts           map[string]int
	Requests, Failed int
	Posts            []struct {
		Sent, Body string
		Status     int
	}
}

// run runs a script as k6 does, in vus virtual users.
func run(t *testing.T, script string, vus, iterations int, environ ...string) (summary, error) {
	t.Helper()
	path, err := node()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	install(t, "testdata/shim", filepath.Join(dir, "node_modules/k6"))
	install(t, filepath.Dir(script), dir)
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type":"module"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, filepath.Join(dir, "node_modules/k6/run.js"), filepath.Join(dir, filepath.Base(script)), fmt.Sprint(vus), fmt.Sprint(iterations))
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, environ...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return summary{}, fmt.Errorf("%w: %s", err, &stderr)
	}
	var s summary
	if err := json.Unmarshal(out, &s); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return s, nil
}

// install copies the files of a folder, without those below it.
func install(t *testing.T, from, to string) {
	t.Helper()
	if err := os.MkdirAll(to, 0o700); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.IsDir() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(from, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, entry.Name()), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// An order, as it is sent and answered.
type order struct {
	OrderID    string `json:"order_id"`
	UID        string `json:"uid"`
	BID        string `json:"bid"`
	OutTradeNo string `json:"out_trade_no"`
	Amount     int64  `json:"amount"`
	Currency   string `json:"currency"`
	Subject    string `json:"subject"`
}

func decode(t *testing.T, text string) (o order) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return o
}

// found asks for an order by what its maker knows of it.
func found(t *testing.T, q quickstart, o order) order {
	t.Helper()
	query := url.Values{"uid": {o.UID}, "bid": {o.BID}, "out_trade_no": {o.OutTradeNo}}
	req, err := http.NewRequest(http.MethodGet, q.base+"/v1/orders?"+query.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer dev-app")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", o.OutTradeNo, resp.Status)
	}
	var stored order
	if err := json.NewDecoder(resp.Body).Decode(&stored); err != nil {
		t.Fatal(err)
	}
	return stored
}

func TestScripts(t *testing.T) {
	const vus, iterations = 3, 20
	q := start(t)
	for _, c := range []struct {
		script   string
		environ  []string
		executor string
		creates  int      // 0: some
		repeats  bool     // each create is repeated
		checks   []string // their first words
	}{
		{"create.js", []string{"REPEATS=1", "RUN=fixed"}, "constant-arrival-rate", vus * iterations, true, []string{"create", "repeat"}},
		{"create.js", []string{"REPEATS=0", "RATE=900"}, "constant-arrival-rate", vus * iterations, false, []string{"create"}},
		{"ramp.js", []string{"REPEATS=1"}, "ramping-arrival-rate", vus * iterations, true, []string{"create", "repeat"}},
		// Ten buyers, so that their lists are long.
		{"mix.js", []string{"BUYERS=10", "MERCHANTS=3", "MIX=create=5,repeat=1,get=1,look-up=1,list-by-uid=1,list-by-bid=3"}, "constant-arrival-rate", 0, false,
			[]string{"create", "get", "list by bid", "list by uid", "look-up", "repeat"}},
	} {
		t.Run(c.script+" "+strings.Join(c.environ, " "), func(t *testing.T) {
			// Speed is not what a test may depend on.
			s, err := run(t, c.script, vus, iterations, append(c.environ, "BASE_URL="+q.base+"/", "P99_MS=600000")...)
			if err != nil {
				t.Fatal(err)
			}
			var words []string
			for name, check := range s.Checks {
				if check.Fails > 0 {
					t.Errorf("the check %q failed %d times", name, check.Fails)
				}
				words = append(words, strings.Split(name, ":")[0])
			}
			slices.Sort(words)
			if words = slices.Compact(words); !slices.Equal(words, c.checks) {
				t.Errorf("checks of %q, want %q", words, c.checks)
			}
			for _, scenario := range s.Scenarios {
				if scenario.Executor != c.executor {
					t.Errorf("it runs by %s", scenario.Executor)
				}
			}
			var held []string
			for _, threshold := range s.Thresholds {
				if !threshold.Holds || !threshold.Measured {
					t.Errorf("%s: %+v", threshold.Of, threshold)
				}
				held = append(held, threshold.Of+" "+threshold.Text)
			}
			slices.Sort(held)
			if want := []string{"checks rate==1", "dropped_iterations count==0", "http_req_duration{call:create} p(99)<600000", "http_req_failed rate==0"}; !slices.Equal(held, want) {
				t.Errorf("thresholds %q", held)
			}

			orders, repeated := map[string]order{}, 0
			for _, post := range s.Posts {
				sent, answered := decode(t, post.Sent), decode(t, post.Body)
				before, again := orders[sent.OutTradeNo]
				if again {
					repeated++
				}
				if again != (post.Status == http.StatusOK) || again && before != answered {
					t.Errorf("%s, sent before: %v, answered %d %s", sent.OutTradeNo, again, post.Status, post.Body)
				}
				orders[sent.OutTradeNo] = answered
			}
			if c.creates > 0 && len(orders) != c.creates || len(orders) == 0 {
				t.Errorf("%d orders, want %d", len(orders), c.creates)
			}
			if c.repeats && repeated != len(orders) {
				t.Errorf("%d repeats of %d orders", repeated, len(orders))
			}
			if s.Counts["orders_created"] != len(orders) || s.Counts["orders_replayed"] != repeated {
				t.Errorf("it counted %v", s.Counts)
			}
			number := regexp.MustCompile(`^k6-[0-9A-Za-z]{1,20}-[1-3]-[0-9]+$`)
			ids := map[string]bool{}
			for name, o := range orders {
				if !number.MatchString(name) || slices.Contains(c.environ, "RUN=fixed") && !strings.HasPrefix(name, "k6-fixed-") {
					t.Errorf("an order is named %s", name)
				}
				if stored := found(t, q, o); stored != o {
					t.Errorf("stored is %+v, answered was %+v", stored, o)
				}
				ids[o.OrderID] = true
			}
			if len(ids) != len(orders) {
				t.Errorf("%d ids of %d orders", len(ids), len(orders))
			}
		})
	}
}

// Scripts whose checks can't fail would pass everything.
func TestChecksFail(t *testing.T) {
	const good = `{"order_id":"15770253150322220879872","uid":%q,"bid":%q,"out_trade_no":%q,"amount":%d,"currency":%q,"subject":%q}`
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter, o order, again bool)
		fails  []string
	}{
		"an id that is a number": {func(w http.ResponseWriter, o order, _ bool) {
			w.Header().Set("Location", "/v1/orders/15770253150322220879872")
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, strings.Replace(good, `"15770253150322220879872"`, "15770253150322220879872", 1), o.UID, o.BID, o.OutTradeNo, o.Amount, o.Currency, o.Subject)
		}, []string{"create: Location names the order", "create: order_id is a string of 23 digits"}},
		"another amount": {func(w http.ResponseWriter, o order, _ bool) {
			w.Header().Set("Location", "/v1/orders/15770253150322220879872")
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, good, o.UID, o.BID, o.OutTradeNo, o.Amount+1, o.Currency, o.Subject)
		}, []string{"create: the order is as it was sent"}},
		"a repeat that makes another order": {func(w http.ResponseWriter, o order, again bool) {
			id := "15770253150322220879872"
			if again {
				id = "15770253150322220879873"
			}
			w.Header().Set("Location", "/v1/orders/"+id)
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, strings.Replace(good, "15770253150322220879872", id, 1), o.UID, o.BID, o.OutTradeNo, o.Amount, o.Currency, o.Subject)
		}, []string{"repeat: 200", "repeat: Idempotent-Replayed", "repeat: the same order"}},
		"no answer": {func(http.ResponseWriter, order, bool) { panic(http.ErrAbortHandler) },
			[]string{"create: 201", "create: Location names the order", "create: order_id is a string of 23 digits", "create: the order is as it was sent"}},
		"refused": {func(w http.ResponseWriter, _ order, _ bool) {
			http.Error(w, `{"code":"overloaded"}`, http.StatusServiceUnavailable)
		}, []string{"create: 201", "create: Location names the order", "create: order_id is a string of 23 digits", "create: the order is as it was sent"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen sync.Map
			var posts atomic.Int64
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					return // is anybody there?
				}
				posts.Add(1)
				var o order
				if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
					t.Error(err)
				}
				_, again := seen.LoadOrStore(o.OutTradeNo, true)
				c.answer(w, o, again)
			}))
			defer s.Close()
			got, err := run(t, "create.js", 1, 2, "REPEATS=1", "BASE_URL="+s.URL)
			if err != nil {
				t.Fatal(err)
			}
			var fails []string
			for check, n := range got.Checks {
				if n.Fails > 0 {
					fails = append(fails, check)
				}
			}
			slices.Sort(fails)
			if !slices.Equal(fails, c.fails) || posts.Load() == 0 {
				t.Errorf("%d requests; these checks failed: %q", posts.Load(), fails)
			}
			for _, threshold := range got.Thresholds {
				if threshold.Of == "checks" && threshold.Holds {
					t.Error("the threshold on checks holds")
				}
			}
		})
	}
}

// What k6 refuses, the stand-in refuses too: else a slip in a script would be found by
// its first user.
func TestRefuses(t *testing.T) {
	for script, said := range map[string]string{
		"testdata/wrong/executor.js":  `there is no executor "constant-arrival"`,
		"testdata/wrong/field.js":     "has no field stages",
		"testdata/wrong/duration.js":  `duration is no duration: "30"`,
		"testdata/wrong/threshold.js": `"rate=1" is no threshold`,
		"testdata/wrong/method.js":    "dropped_iterations is a counter, which has no p(99)",
		"testdata/wrong/metric.js":    "droped_iterations, which is no metric",
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			if _, err := run(t, script, 1, 1); err == nil || !strings.Contains(err.Error(), said) {
				t.Errorf("%v", err)
			}
		})
	}
	for environ, said := range map[string]string{
		"RATE=many":                    "RATE must be a number from 1",
		"RATE=1.5":                     "RATE must be a whole number",
		"REPEATS=2":                    "REPEATS must be from 0 to 1",
		"RUN=-":                        "RUN must have at most 20",
		"DURATION=30":                  "duration is no duration",
		"BASE_URL=http://127.0.0.1:1/": "no Octopay answers at http://127.0.0.1:1 ",
	} {
		t.Run(environ, func(t *testing.T) {
			t.Parallel()
			if _, err := run(t, "create.js", 1, 1, environ); err == nil || !strings.Contains(err.Error(), said) {
				t.Errorf("%v", err)
			}
		})
	}
}
