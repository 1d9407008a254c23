package closedloop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/octopay/octopay/loadtest/report"
	"github.com/octopay/octopay/loadtest/traffic"
)

func newPlan(t *testing.T, c traffic.Config) *traffic.Plan {
	t.Helper()
	c.Run = "r1"
	p, err := traffic.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A target answers as a service does, and counts what it saw.
type target struct {
	*httptest.Server
	mu      sync.Mutex
	saw     []string         // out_trade_no of writes, the path of reads
	answers map[string]int64 // without those that the connection broke for
	ids     []string         // that were answered to writes
	made    map[string]string
}

// newTarget starts a target. answer gets the number of the request, from 0, in the
// order in which they arrived.
func newTarget(t *testing.T, answer func(s *target, n int, w http.ResponseWriter, r *http.Request, no string)) *target {
	s := &target{answers: map[string]int64{}, made: map[string]string{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var order struct {
			OutTradeNo string `json:"out_trade_no"`
		}
		body, err := io.ReadAll(r.Body)
		what := r.URL.String()
		if err == nil && r.Method == "POST" {
			err = json.Unmarshal(body, &order)
			what = order.OutTradeNo
		}
		if err != nil || (r.Method == "POST") != (r.Header.Get("Content-Type") == "application/json") {
			t.Errorf("%s %s: %s, %v", r.Method, r.URL, body, err)
		}
		s.mu.Lock()
		n := len(s.saw)
		s.saw = append(s.saw, what)
		s.mu.Unlock()
		answer(s, n, w, r, order.OutTradeNo)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *target) says(w http.ResponseWriter, status int, answer, body string) {
	s.mu.Lock()
	s.answers[answer]++
	s.mu.Unlock()
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

// serve creates an order, or shows the one that there is, or answers a read.
func (s *target) serve(n int, w http.ResponseWriter, r *http.Request, no string) {
	if r.Method == "GET" {
		s.says(w, 200, "200", `{"order_id":"15770253150322220879872","uid":"9527"}`)
		return
	}
	s.mu.Lock()
	id, ok := s.made[no]
	if !ok {
		id = fmt.Sprintf("1577%019d", n)
		s.made[no] = id
	}
	s.ids = append(s.ids, id)
	s.mu.Unlock()
	if ok {
		w.Header().Set("Idempotent-Replayed", "true")
		s.says(w, 200, "200", `{"order_id":"`+id+`","uid":"1","out_trade_no":"`+no+`"}`)
		return
	}
	s.says(w, 201, "201", `{"order_id":"`+id+`","uid":"1","out_trade_no":"`+no+`"}`)
}

func idsOf(acks []traffic.Ack) (ids []string) {
	for _, a := range acks {
		ids = append(ids, a.ID.String())
	}
	slices.Sort(ids)
	return ids
}

// mixed is what the tests send.
var mixed = traffic.Config{
	Seed: 4, Mix: []traffic.Share{{Kind: traffic.Create, Weight: 3}, {Kind: traffic.Repeat, Weight: 1}, {Kind: traffic.Get, Weight: 1}},
	Known: []traffic.Known{{ID: "15770253150322220879872", UID: 1, BID: 1, OutTradeNo: "x"}},
}

// What wrk says it did is what the target saw, exactly, and the ids written down are
// the ids that were answered. For that the target holds back all answers from some
// request on: at the end each connection has one request under way.
func TestCountsAreWhatTheTargetSaw(t *testing.T) {
	const answered, connections, threads = 3000, 6, 3
	release := make(chan struct{})
	s := newTarget(t, func(s *target, n int, w http.ResponseWriter, r *http.Request, no string) {
		switch {
		case n >= answered:
			<-release
		case n%50 == 1:
			s.says(w, 503, "503 overloaded", `{"type":"urn:octopay:error:overloaded","code":"overloaded"}`)
		case n%50 == 2:
			s.says(w, 502, "502", "")
		case n%50 == 3:
			panic(http.ErrAbortHandler)
		default:
			s.serve(n, w, r, no)
		}
	})
	wrk, err := find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	base, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	var shown []report.Second
	plan := newPlan(t, mixed)
	c := Config{
		URL: s.URL, Connections: connections, Threads: threads, Duration: 2 * time.Second,
		Second: func(s report.Second) { shown = append(shown, s) },
	}
	w := wrkRun{binary: wrk, dir: t.TempDir(), config: c, duration: c.Duration}
	if err := write(w.dir, plan, 7, 10_000, threads, header(base, "dev-app")); err != nil {
		t.Fatal(err)
	}
	o, err := w.run(t.Context())
	close(release)
	if err != nil {
		t.Fatal(err)
	}
	s.Close() // waits for what it has under way

	if len(s.saw) != answered+connections {
		t.Fatalf("the target saw %d requests, want %d: the machine is too slow for this test", len(s.saw), answered+connections)
	}
	run := o.report(plan, c)
	want := maps.Clone(s.answers)
	want[report.NoAnswer] = answered / 50
	if !maps.Equal(run.ByAnswer, want) || run.Sent != int64(len(s.saw)) || run.Offered != run.Sent || run.Dropped != 0 {
		t.Errorf("wrk sent %d and was answered %v; the target saw %d and answered %v", run.Sent, run.ByAnswer, len(s.saw), want)
	}
	slices.Sort(s.ids)
	if !slices.Equal(idsOf(o.acks), s.ids) {
		t.Errorf("%d ids were written down, %d answered", len(o.acks), len(s.ids))
	}
	sum := map[string]int64{}
	for _, second := range run.Seconds {
		for answer, n := range second.ByAnswer {
			sum[answer] += n
		}
	}
	if !maps.Equal(sum, s.answers) || len(run.Seconds) != 2 {
		t.Errorf("the seconds have %v, the target %v", sum, s.answers)
	}
	if !slices.EqualFunc(shown, run.Seconds, func(a, b report.Second) bool { return a.At == b.At && maps.Equal(a.ByAnswer, b.ByAnswer) }) {
		t.Errorf("progress %+v\nseries %+v", shown, run.Seconds)
	}
	if run.Scenario != "create=3,repeat=1,get=1" || run.Generator != "closed loop, wrk, 6 connections" || run.Seed != 4 ||
		run.CPUSec["generator"] <= 0 || run.DurationSec < 2 || run.PerSecond != float64(s.answers["201"]+s.answers["200"])/run.DurationSec ||
		run.Cut != connections || run.LatencyMs.P50 <= 0 || run.LatencyMs.P99 > run.LatencyMs.Max || len(run.Invalid) > 0 {
		t.Errorf("%+v", run)
	}
}

// A create that is answered without an id is missed, however many repeats have one.
func TestWritesWithoutAnIDAreSaid(t *testing.T) {
	t.Parallel()
	s := newTarget(t, func(s *target, n int, w http.ResponseWriter, r *http.Request, no string) {
		if n%100 == 7 {
			s.says(w, 201, "201", `{}`)
			return
		}
		s.serve(n, w, r, no)
	})
	run, _, err := Run(t.Context(), newPlan(t, mixed), 0, Config{URL: s.URL, Connections: 2, Warmup: time.Second, Duration: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if why := strings.Join(run.Invalid, "\n"); !strings.Contains(why, "without an order id") {
		t.Errorf("%v; %q", run.ByAnswer, why)
	}
}

// The figures are of the run without the warm-up; what the warm-up wrote is
// acknowledged too, and no request is of both.
func TestTheWarmUpIsAcknowledgedAndNotMeasured(t *testing.T) {
	t.Parallel()
	s := newTarget(t, func(s *target, n int, w http.ResponseWriter, r *http.Request, no string) { s.serve(n, w, r, no) })
	plan := newPlan(t, traffic.Config{})
	const connections = 4
	before := []int{}
	run, acks, err := Run(t.Context(), plan, 100, Config{
		URL: s.URL + "/", Connections: connections, Warmup: time.Second, Duration: time.Second,
		Begin: func() { s.mu.Lock(); before = append(before, len(s.saw)); s.mu.Unlock() },
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	var warm, measured int64
	highest, seen := map[uint64]uint64{}, map[uint64]uint64{} // by phase and thread
	for _, no := range s.saw {
		n, ok := plan.Number(no)
		if !ok || n < 100 {
			t.Fatalf("%s is %d, %t", no, n, ok)
		}
		file := n % 2
		if n -= 100; n < warmupRate {
			warm++
		} else {
			n -= warmupRate
			file += 2
			measured++
		}
		highest[file] = max(highest[file], n/2)
		seen[file]++
	}
	// Each thread sends the requests of its file from the first on, without a gap; what
	// was on its way at the end the target may not have seen.
	for file, n := range seen {
		if gap := highest[file] + 1 - n; gap > connections/2 {
			t.Errorf("of the first %d requests of file %d the target saw %d", highest[file]+1, file, n)
		}
	}
	if len(s.made) != len(s.saw) {
		t.Errorf("%d orders in %d requests", len(s.made), len(s.saw))
	}
	if len(before) != 1 || before[0] == 0 || before[0] > int(warm) {
		t.Errorf("told of the beginning after %d requests, of %d of the warm-up", before, warm)
	}
	if warm == 0 || measured == 0 || run.Sent < measured || run.Sent > measured+connections || run.ByAnswer["201"] < run.Sent-connections {
		t.Errorf("the target saw %d of the warm-up and %d of the run; %d were sent, %v", warm, measured, run.Sent, run.ByAnswer)
	}
	// Cut off at the end of either: at most one for each connection.
	if run.Cut > 2*connections {
		t.Errorf("%d were cut off", run.Cut)
	}
	slices.Sort(s.ids)
	if lost := len(s.ids) - len(acks); lost < 0 || lost > 2*connections || !subset(idsOf(acks), s.ids) {
		t.Errorf("%d ids were answered, %d written down", len(s.ids), len(acks))
	}
}

// subset reports whether all of a, which is sorted as b is, are in b.
func subset(a, b []string) bool {
	for _, x := range b {
		if len(a) > 0 && a[0] == x {
			a = a[1:]
		}
	}
	return len(a) == 0
}

// Fault 33. When the requests that were prepared run out, the generator was the
// bottleneck: the run ends, nothing is sent twice, and it says that it is invalid.
func TestFault33RequestsThatRunOutMakeARunInvalid(t *testing.T) {
	t.Parallel()
	var plan *traffic.Plan
	s := newTarget(t, func(s *target, n int, w http.ResponseWriter, r *http.Request, no string) {
		if n, _ := plan.Number(no); n < warmupRate {
			time.Sleep(20 * time.Millisecond) // what a cold service does
		}
		s.serve(n, w, r, no)
	})
	plan = newPlan(t, traffic.Config{})
	began := time.Now()
	run, _, err := Run(t.Context(), plan, 0, Config{URL: s.URL, Connections: 2, Warmup: time.Second, Duration: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if took := time.Since(began); took > 40*time.Second {
		t.Errorf("it went on for %s", took)
	}
	if why := strings.Join(run.Invalid, "\n"); !strings.Contains(why, "ran out") || !strings.Contains(why, "in the 1s of warming up") {
		t.Errorf("it says %q", why)
	}
	if len(s.made) != len(s.saw) {
		t.Errorf("%d orders in %d requests", len(s.made), len(s.saw))
	}
}

func TestARunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	s := newTarget(t, func(s *target, n int, w http.ResponseWriter, r *http.Request, no string) { s.serve(n, w, r, no) })
	run, acks, err := Run(ctx, newPlan(t, traffic.Config{}), 0, Config{
		URL: s.URL, Connections: 2, Warmup: time.Second, Duration: 20 * time.Second, Second: func(report.Second) { stop() },
	})
	if !errors.Is(err, context.Canceled) || run.ByAnswer["201"] == 0 || int64(len(acks)) < run.ByAnswer["201"] || run.DurationSec > 15 {
		t.Errorf("%v; %+v, %d acknowledged", err, run, len(acks))
	}
}

func TestAServiceThatIsNotThereIsAnError(t *testing.T) {
	s := httptest.NewServer(nil)
	s.Close()
	_, _, err := Run(t.Context(), newPlan(t, traffic.Config{}), 0, Config{URL: s.URL, Warmup: time.Second, Duration: time.Second})
	if err == nil || !strings.Contains(err.Error(), "unable to connect") {
		t.Errorf("%v", err)
	}
}

func TestWithoutWrkTheErrorSaysWhatToRun(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := find(t.Context()); err == nil || !strings.Contains(err.Error(), "sudo apt-get update && sudo apt-get install -y --no-install-recommends wrk") {
		t.Errorf("%v", err)
	}
}

func TestWhatMakesFiguresMeaninglessIsSaid(t *testing.T) {
	for want, o := range map[string]outcome{
		"no request was answered":           {Sent: 1},
		"3 answers took longer than 15s":    {Answered: 9, Late: 3},
		"2 writes were answered with succe": {Answered: 9, IDs: 9, Unreadable: 2, ByAnswer: map[string]int64{"201": 9}},
	} {
		o.DurationUS = 1e6
		if got := strings.Join(o.report(newPlan(t, traffic.Config{}), Config{}).Invalid, "; "); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestWhatNobodyLearnedTheOutcomeOfIsCounted(t *testing.T) {
	for broken := range int64(4) { // of the three without an answer
		o := outcome{Sent: 20, Answered: 17, DurationUS: 1e6, Read: broken, ByAnswer: map[string]int64{
			"201": 5, "503 overloaded": 4, "504 outcome_unknown": 3, "500": 2, "409 out_trade_no_reused": 2, "other": 1,
		}}
		run := o.report(newPlan(t, traffic.Config{}), Config{Connections: 64})
		if n := run.Unsettled(); n != 3+3+2+1 || run.Cut != 3-broken {
			t.Errorf("%d broke: %d, %d of them cut", broken, n, run.Cut)
		}
	}
}

func TestWhatIsWrongWithAConfigIsNamed(t *testing.T) {
	for want, c := range map[string]Config{
		"must be like":  {URL: "localhost", Duration: time.Second},
		"like http://1": {URL: "https://a", Duration: time.Second},
		"share the con": {URL: "http://a", Connections: 3, Threads: 2, Duration: time.Second},
		"measure, and":  {URL: "http://a", Duration: 1500 * time.Millisecond},
		"warm up, must": {URL: "http://a", Warmup: time.Millisecond, Duration: time.Second},
		"key is one":    {URL: "http://a", Duration: time.Second, Key: "a\r\nb"},
	} {
		if _, err := c.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}
