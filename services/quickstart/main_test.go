package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/octopay/octopay/internal/eventually"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	eventually.Main(m,
		// The NATS server leaves these behind when it is shut down.
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"))
}

// A started is a quickstart that a test runs.
type started struct {
	base  string
	ops   string
	curls []string
	end   func()           // ends it; a second call does nothing
	log   *strings.Builder // read after end
}

// startIt runs the program until the test ends, and reads what it prints.
func startIt(t *testing.T, args ...string) started {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r, w := io.Pipe()
	var log strings.Builder
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, append([]string{"-addr", "127.0.0.1:0", "-ops-addr", "127.0.0.1:0"}, args...), w, &log)
		w.Close()
		ended <- err
	}()
	s := started{log: &log, end: sync.OnceFunc(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("it ended with %v\n%s", err, &log)
		}
	})}
	t.Cleanup(s.end)
	lines := bufio.NewScanner(r)
	for s.ops == "" && lines.Scan() {
		line := lines.Text()
		if base, ok := strings.CutPrefix(line, "octopay ready "); ok {
			s.base = base
		} else if curl, ok := strings.CutPrefix(line, "  "); ok {
			s.curls = append(s.curls, curl)
		} else if rest, ok := strings.CutPrefix(line, "Health, readiness, metrics: "); ok {
			s.ops, _, _ = strings.Cut(rest, "/healthz")
		}
	}
	if s.ops == "" {
		stop()
		t.Fatalf("it printed no ready line: %v\n%s", <-ended, &log)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	return s
}

// words splits a command as a shell does, which here means at blanks outside of
// single quotes.
func words(command string) (out []string) {
	var word strings.Builder
	quoted, any := false, false
	for _, c := range command {
		switch {
		case c == '\'':
			quoted, any = !quoted, true
		case c == ' ' && !quoted:
			if any {
				out = append(out, word.String())
			}
			word.Reset()
			any = false
		default:
			word.WriteRune(c)
			any = true
		}
	}
	if any {
		out = append(out, word.String())
	}
	return out
}

var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: eventually.Patience}

// curl does what the command does that curl is given.
func curl(t *testing.T, command string) (*http.Response, string) {
	t.Helper()
	method, target, body := http.MethodGet, "", ""
	header := http.Header{}
	args := words(command)
	if args[0] != "curl" {
		t.Fatalf("%q is no curl", command)
	}
	for i := 1; i < len(args); i++ {
		switch a := args[i]; {
		case a == "-s" || a == "-si":
		case a == "-X":
			i++
			method = args[i]
		case a == "-H":
			i++
			name, value, _ := strings.Cut(args[i], ": ")
			header.Add(name, value)
		case a == "-d":
			i++
			body = args[i]
		case strings.HasPrefix(a, "http://"):
			target = a
		default:
			t.Fatalf("%q in %q", a, command)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	return do(t, req)
}

func do(t *testing.T, req *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

// theThreeCurls runs the printed commands, and returns the order that they are about.
func (s started) theThreeCurls(t *testing.T) string {
	t.Helper()
	if len(s.curls) != 3 {
		t.Fatalf("%d curls are printed", len(s.curls))
	}
	for _, c := range s.curls {
		if !strings.Contains(c, "'Authorization: Bearer dev-") {
			t.Errorf("%q carries no key", c)
		}
	}
	resp, made := curl(t, s.curls[0])
	if resp.StatusCode != http.StatusCreated && resp.StatusCode != http.StatusOK {
		t.Fatalf("create: %d %s", resp.StatusCode, made)
	}
	resp, found := curl(t, s.curls[1])
	if resp.StatusCode != http.StatusOK || found != made {
		t.Errorf("found %d %s, made %s", resp.StatusCode, found, made)
	}
	order := strings.TrimSpace(made)
	limit := time.After(eventually.Patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		resp, list := curl(t, s.curls[2])
		if resp.StatusCode != http.StatusOK || resp.Header.Get("X-Mirror-Complete-Until") == "" {
			t.Fatalf("list: %d %s", resp.StatusCode, list)
		}
		if strings.Contains(list, order) {
			return order
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("the mirror's list is still %s", list)
		}
	}
}

func TestTheThreeCurlsWorkAsPrinted(t *testing.T) {
	s := startIt(t)
	// It is ready when the mirror is: the list is empty, and says up to when it is complete.
	if resp, list := curl(t, s.curls[2]); resp.StatusCode != http.StatusOK || strings.HasPrefix(resp.Header.Get("X-Mirror-Complete-Until"), "1970") {
		t.Errorf("at first the mirror is complete until %s: %d %s", resp.Header.Get("X-Mirror-Complete-Until"), resp.StatusCode, list)
	}
	s.theThreeCurls(t)
	if resp, body := curl(t, s.curls[0]); resp.StatusCode != http.StatusOK || resp.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the first curl again: %d %s", resp.StatusCode, body)
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		if resp, body := curl(t, "curl "+s.ops+path); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
	if resp, body := curl(t, "curl "+s.base+"/openapi.yaml"); resp.StatusCode != http.StatusOK || !strings.HasPrefix(body, "openapi: 3.1") {
		t.Errorf("the contract: %d", resp.StatusCode)
	}
	s.end()
	if strings.Contains(s.log.String(), "not found") {
		t.Errorf("before it is ready it warns of what it hasn't made yet:\n%s", s.log)
	}
}

// Money that is booked twice, a refund that failed, a number of two buyers: all of it is
// listed, from a mirror in memory.
func TestWhatIsOwedIsListed(t *testing.T) {
	s := startIt(t)
	call := func(method, path, key, body string, want int) map[string]any {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, s.base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if body == "" {
			req.Body = http.NoBody
		} else {
			req.Header.Set("Content-Type", "application/json")
		}
		req.Header.Set("Authorization", "Bearer "+key)
		resp, text := do(t, req)
		var v map[string]any
		if err := json.Unmarshal([]byte(text), &v); err != nil || resp.StatusCode != want {
			t.Fatalf("%s %s: %d, want %d: %s", method, path, resp.StatusCode, want, text)
		}
		return v
	}
	create := func(uid string) string {
		t.Helper()
		order := `{"uid":"` + uid + `","bid":"1001","out_trade_no":"N","amount":100,"currency":"CNY","subject":"s"}`
		return "/v1/orders/" + call("POST", "/v1/orders", "dev-app", order, 201)["order_id"].(string)
	}
	pay := func(order, number string, want int) {
		t.Helper()
		call("POST", order+"/pay", "dev-channel", `{"channel":"wechat","channel_trade_no":"`+number+`","amount":100,"currency":"CNY"}`, want)
	}
	one, two := create("1"), create("2")
	pay(one, "A", 200)
	pay(two, "B", 200)
	pay(two, "A", 409) // the other order's payment
	call("POST", one+"/refunds", "dev-app", `{"out_refund_no":"R","amount":40}`, 201)
	call("POST", one+"/refunds/R/result", "dev-channel", `{"result":"failed"}`, 200)
	for _, list := range []struct {
		path, key string
		rows      int
	}{
		{"/v1/merchants/1001/unapplied-payments?state=open", "dev-merchant-1001", 1},
		{"/v1/admin/unapplied-payments", "dev-ops", 1},
		{"/v1/admin/refunds?status=failed", "dev-ops", 1},
		{"/v1/admin/conflicts", "dev-ops", 2},
		{"/v1/admin/conflicts?kind=channel_trade_no", "dev-ops", 1},
	} {
		eventually.True(t, list.path, func() bool { return len(call("GET", list.path, list.key, "", 200)["data"].([]any)) == list.rows })
	}
}

func TestTheREADMEShowsTheCurlsThatArePrinted(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range curls("http://127.0.0.1:8080") {
		if !strings.Contains(string(text), "    "+c+"\n") {
			t.Errorf("the README lacks %s", c)
		}
	}
}

func TestAPageOfAnotherSiteCannotReachIt(t *testing.T) {
	s := startIt(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.base+"/v1/users/9527/orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "octopay.example.com"
	if resp, body := do(t, req); resp.StatusCode != http.StatusMisdirectedRequest || !strings.Contains(body, `"misdirected"`) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

func TestMariaDBKeepsTheOrdersOverARestart(t *testing.T) {
	dir := t.TempDir()
	first := startIt(t, "-engine", "mariadb", "-data", dir)
	order := first.theThreeCurls(t)
	first.end()
	second := startIt(t, "-engine", "mariadb", "-data", dir)
	if err := once(t, "-engine", "mariadb", "-data", dir); err == nil || !strings.Contains(err.Error(), "is in use") {
		t.Errorf("two with one folder: %v", err)
	}
	if again := second.theThreeCurls(t); again != order {
		t.Errorf("before the restart %s, after it %s", order, again)
	}
}

// once runs what can't be started.
func once(t *testing.T, args ...string) error {
	t.Helper()
	var out strings.Builder
	err := run(t.Context(), append([]string{"-addr", "127.0.0.1:0", "-ops-addr", "127.0.0.1:0"}, args...), &out, io.Discard)
	if out.Len() > 0 {
		t.Errorf("%v: printed %q", args, out.String())
	}
	return err
}

func TestWhatKeepsItFromStartingIsSaid(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"-addr: listen tcp " + l.Addr().String() + ": bind: address already in use":     {"-addr", l.Addr().String()},
		"-ops-addr: listen tcp " + l.Addr().String() + ": bind: address already in use": {"-ops-addr", l.Addr().String()},
		"-data must be a folder that can be written to: mkdir " + file + ": not a directory": {
			"-engine", "mariadb", "-data", file},
		"-data must be a folder that can be written to: mkdir " + file + ": ": {
			"-engine", "mariadb", "-data", filepath.Join(file, "in it")},
		"-data must be a folder that can be written to: open /proc/": {
			"-engine", "mariadb", "-data", "/proc"},
	} {
		if err := once(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want %s", args, err, want)
		}
	}
	if _, err := startBroker(file, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "JetStream") {
		t.Errorf("a broker without a folder: %v", err)
	}
}

func TestWrongOptionsAreNamed(t *testing.T) {
	for want, args := range map[string][]string{
		"-addr must be":     {"-addr", "0.0.0.0:8080"},
		"-ops-addr must be": {"-ops-addr", ":8081"},
		"-engine must be":   {"-engine", "sqlite"},
		"-data needs":       {"-data", "x"},
		"unexpected":        {"serve"},
		"log_level":         {"-log-level", "loud"},
		"-nosuch; see -h":   {"-nosuch"},
	} {
		// What is wrong main says, and nobody else.
		var out strings.Builder
		err := run(t.Context(), args, &out, &out)
		if err == nil || !strings.Contains(err.Error(), want) || out.Len() > 0 {
			t.Errorf("%v: error %v, printed %q", args, err, out.String())
		}
	}
	var help strings.Builder
	if err := run(t.Context(), []string{"-h"}, io.Discard, &help); err != nil || !strings.Contains(help.String(), "-ops-addr") {
		t.Errorf("-h: %v, %s", err, &help)
	}
}
