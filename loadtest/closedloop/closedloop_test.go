package closedloop

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/loadtest/report"
	"github.com/octopay/octopay/loadtest/traffic"
	"github.com/octopay/octopay/loadtest/traffic/traffictest"
)

// TestMain makes this program also one that sends until it is killed.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "send" {
		plan, err := traffic.New(traffic.Config{Run: "r1"})
		if err == nil {
			_, _, err = Run(context.Background(), plan, 0, Config{URL: os.Args[2], Connections: 2, Warmup: 3 * time.Second, Duration: time.Minute})
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
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
	const answered, connections, threads = 1000, 6, 3
	release := make(chan struct{})
	s := traffictest.New(t, func(c traffictest.Call) {
		switch {
		case c.N >= answered:
			<-release
		case c.N%50 == 1:
			c.Refuse(503, "overloaded")
		case c.N%50 == 2:
			c.Say(502, "")
		case c.N%50 == 3:
			c.Break()
		default:
			c.Serve()
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
	plan := traffictest.Plan(t, mixed)
	c := Config{
		URL: s.URL, Connections: connections, Threads: threads, Duration: 3 * time.Second,
		Second: func(s report.Second) { shown = append(shown, s) },
	}
	w := wrkRun{binary: wrk, dir: t.TempDir(), config: c, duration: c.Duration, writes: true, answerMax: plan.AnswerMax()}
	if err := write(w.dir, plan, 7, 10_000, threads, header(base, "dev-app")); err != nil {
		t.Fatal(err)
	}
	o, err := w.run(t.Context())
	judge := judge{plan, traffic.NewLedger(plan)}
	if err == nil {
		err = judge.take(w.dir, threads, o.until(7), &o)
	}
	close(release)
	if err != nil {
		t.Fatal(err)
	}
	s.Close() // waits for what it has under way

	saw := s.Saw()
	if len(saw) != answered+connections {
		t.Fatalf("the target saw %d requests, want %d: wrk did not come to the one from which on it waits", len(saw), answered+connections)
	}
	run := o.report(plan, c)
	answers := s.Answers()
	want := maps.Clone(answers)
	want[report.NoAnswer] = answered / 50
	if !maps.Equal(run.ByAnswer, want) || run.Sent != int64(len(saw)) || run.Offered != run.Sent || run.Dropped != 0 {
		t.Errorf("wrk sent %d and was answered %v; the target saw %d and answered %v", run.Sent, run.ByAnswer, len(saw), want)
	}
	if acks, served := traffictest.Sorted(judge.ledger.Acks()), s.Acks(); !slices.Equal(acks, served) || len(acks) == 0 {
		t.Errorf("%d were acknowledged, %d served", len(acks), len(served))
	}
	sum := map[string]int64{}
	for _, second := range run.Seconds {
		for answer, n := range second.ByAnswer {
			sum[answer] += n
		}
	}
	if !maps.Equal(sum, answers) || len(run.Seconds) != 3 {
		t.Errorf("the seconds have %v, the target %v", sum, answers)
	}
	if !slices.EqualFunc(shown, run.Seconds, func(a, b report.Second) bool { return a.At == b.At && maps.Equal(a.ByAnswer, b.ByAnswer) }) {
		t.Errorf("progress %+v\nseries %+v", shown, run.Seconds)
	}
	if run.Scenario != "create=3,repeat=1,get=1" || run.Loop != report.Closed || run.Generator != "closed loop, wrk, 6 connections" || run.Seed != 4 ||
		run.CPUSec["generator"] <= 0 || run.DurationSec < 3 || run.PerSecond != float64(answers["201"]+answers["200"])/run.DurationSec ||
		run.Cut != connections || run.LatencyMs.P50 <= 0 || run.LatencyMs.P99 > run.LatencyMs.Max || len(run.Invalid) > 0 {
		t.Errorf("%+v", run)
	}
}

// An answer that isn't the order that was asked for acknowledges nothing, whatever its
// status; it has a name of its own, and isn't counted under its status.
func TestWhatIsNoOrderIsAFailure(t *testing.T) {
	t.Parallel()
	var once sync.Once
	var first traffictest.Call
	const noRead = "a read without an order or a list"
	wrong := map[int]struct {
		kind   string
		answer func(traffictest.Call)
	}{
		1: {"no JSON of an order", func(c traffictest.Call) { c.Say(201, "<html>welcome</html>") }},
		2: {"neither 201 nor a replay", func(c traffictest.Call) { c.Say(200, traffictest.Order(idgen.Make(c.UID, 5), c.UID, c.OutTradeNo)) }},
		3: {"no order id", func(c traffictest.Call) {
			c.Say(201, ` {"order_id" : "`+strings.Repeat("1", 32)+`","out_trade_no" : "`+c.OutTradeNo+`"}`)
		}},
		4: {"the order id isn't of this buyer's table", func(c traffictest.Call) {
			c.Say(201, traffictest.Order(idgen.Make(c.UID+1, 5), c.UID, c.OutTradeNo))
		}},
		5: {"the out_trade_no of no create that was sent", func(c traffictest.Call) {
			c.Say(201, traffictest.Order(idgen.Make(c.UID, 5), c.UID, "r1-900000000"))
		}},
		6: {"201, though the same create had been answered 201", func(c traffictest.Call) {
			once.Do(func() { first = c })
			c.Say(201, traffictest.Order(idgen.Make(first.UID, 5), first.UID, first.OutTradeNo))
		}},
		7: {noRead, func(c traffictest.Call) { c.Say(200, "\n<html>welcome</html>") }},
	}
	s := traffictest.New(t, func(c traffictest.Call) {
		if w := wrong[c.N%10]; w.kind == "" || (w.kind == noRead) != (c.R.Method == http.MethodGet) {
			c.Serve()
		} else {
			w.answer(c)
		}
	})
	run, acks, err := Run(t.Context(), traffictest.Plan(t, traffic.Config{
		Mix: []traffic.Share{{Kind: traffic.Create, Weight: 4}, {Kind: traffic.Get, Weight: 1}}, Known: mixed.Known,
	}), 0, Config{URL: s.URL, Connections: 2, Warmup: time.Second, Duration: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int64{}
	var sum int64
	for _, f := range run.Failures {
		kinds[f.Kind], sum = f.Count, sum+f.Count
	}
	bad := run.ByAnswer[report.NotAnOrder]
	if sum != bad || len(kinds) != len(wrong) {
		t.Errorf("%v, %+v", run.ByAnswer, run.Failures)
	}
	why := strings.Join(run.Invalid, "\n")
	for _, w := range wrong {
		if kinds[w.kind] == 0 || !strings.Contains(why, w.kind) {
			t.Errorf("%q isn't among %v and\n%s", w.kind, kinds, why)
		}
	}
	var inSeconds, all int64
	for _, s := range run.Seconds {
		inSeconds += s.ByAnswer[report.NotAnOrder]
	}
	for _, n := range run.ByAnswer {
		all += n
	}
	// A generator that stood still for the whole time has no seconds to show.
	if inSeconds > bad || inSeconds == 0 && len(run.Seconds) > 1 || all+run.Cut != run.Sent {
		t.Errorf("%d of %d in the seconds; %v and %d cut, of %d", inSeconds, bad, run.ByAnswer, run.Cut, run.Sent)
	}
	// Beside what was served, only the first of 6 is an order.
	served := s.Acks()
	others := slices.DeleteFunc(traffictest.Sorted(acks), func(a traffic.Ack) bool { return slices.Contains(served, a) })
	if len(acks) == 0 || len(others) > 1 || len(others) == 1 && others[0].OutTradeNo != first.OutTradeNo {
		t.Errorf("%d are acknowledged, and of %v nobody knows", len(acks), others)
	}
}

// Of the answers that threads wrote down, those of one second are compared with each
// other, whichever thread had them.
func TestARepeatMayBeAnothersThreads(t *testing.T) {
	plan := traffictest.Plan(t, mixed)
	o := plan.Order(0)
	record := func(second, status, replayed int, snowflake int64) string {
		body := traffictest.Order(idgen.Make(o.UID, snowflake), o.UID, o.OutTradeNo)
		return fmt.Sprintf("%d %d %d %d\n%s\n", second, status, replayed, len(body), body)
	}
	dir := t.TempDir()
	for t1, text := range map[string]string{
		"answers.1": record(1, 200, 1, 6) + record(3, 200, 1, 5),
		"answers.2": record(0, 201, 0, 5) + record(2, 200, 1, 7),
		"answers.3": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, t1), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := outcome{Kept: 4, ByAnswer: map[string]int64{"201": 1, "200": 3}}
	for at := range 3 { // the last is a part of one, which isn't shown
		out.seconds = append(out.seconds, report.Second{At: at, ByAnswer: map[string]int64{map[bool]string{true: "201", false: "200"}[at == 0]: 1}})
	}
	j := judge{plan, traffic.NewLedger(plan)}
	if err := j.take(dir, 3, 1, &out); err != nil {
		t.Fatal(err)
	}
	id := idgen.Make(o.UID, 5)
	if acks := j.ledger.Acks(); !slices.Equal(acks, []traffic.Ack{{ID: id, OutTradeNo: o.OutTradeNo}, {ID: id, OutTradeNo: o.OutTradeNo}}) {
		t.Errorf("%v", acks)
	}
	if len(out.failures) != 1 || out.failures[0].Count != 2 || !maps.Equal(out.ByAnswer, map[string]int64{"201": 1, "200": 1, report.NotAnOrder: 2}) {
		t.Errorf("%+v, %v", out.failures, out.ByAnswer)
	}
	for at, want := range []string{"201", report.NotAnOrder, report.NotAnOrder} {
		if got := out.seconds[at].ByAnswer; !maps.Equal(got, map[string]int64{want: 1}) {
			t.Errorf("second %d: %v", at, got)
		}
	}

	// What isn't whole is no answer.
	for want, text := range map[string]string{
		"0 of 4":       "",
		"no head":      "x\n",
		"that wrk wro": "0 201 0 5\n{}",
		"5000 bytes":   "0 201 0 5000\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, "answers.1"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := (judge{plan, traffic.NewLedger(plan)}).take(dir, 1, 1, &outcome{Kept: 4}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// Blanks, more members and any order of them are JSON.
func TestAnOrderMayLookOtherwise(t *testing.T) {
	t.Parallel()
	s := traffictest.New(t, func(c traffictest.Call) {
		c.Say(201, fmt.Sprintf(" {\n\t\"new\" : [{}],\n\t\"out_trade_no\" : \"%s\",\n\t\"order_id\" : \"%s\"\n}\n", c.OutTradeNo, idgen.Make(c.UID, int64(c.N))))
	})
	run, acks, err := Run(t.Context(), traffictest.Plan(t, traffic.Config{}), 0, Config{URL: s.URL, Connections: 2, Warmup: time.Second, Duration: time.Second})
	if err != nil || len(run.Failures) > 0 || run.ByAnswer["201"] == 0 || int64(len(acks)) < run.ByAnswer["201"] {
		t.Errorf("%v; %v, %+v; %d acknowledged", err, run.ByAnswer, run.Failures, len(acks))
	}
}

// What reads find is not judged further than that it is an order or a list.
func TestReadsAcknowledgeNothing(t *testing.T) {
	t.Parallel()
	s := traffictest.New(t, func(c traffictest.Call) {
		switch c.N % 3 {
		case 0:
			c.Say(200, `{"data":[],"has_more":false,"next_cursor":null}`)
		case 1:
			c.Say(200, ` { "new":1, "order_id":"15770253150322220879872"}`)
		default:
			c.Serve()
		}
	})
	run, acks, err := Run(t.Context(), traffictest.Plan(t, traffic.Config{
		Mix: []traffic.Share{{Kind: traffic.Get, Weight: 1}, {Kind: traffic.ListByUser, Weight: 1}}, Known: mixed.Known,
	}), 0, Config{URL: s.URL, Connections: 2, Warmup: time.Second, Duration: time.Second})
	if err != nil || len(acks) > 0 || len(run.Failures) > 0 || run.ByAnswer["200"] == 0 {
		t.Errorf("%v; %v, %+v; %d acknowledged", err, run.ByAnswer, run.Failures, len(acks))
	}
}

// A service that isn't one: the same answer to everything.
func TestARunWithoutASuccessIsInvalid(t *testing.T) {
	for want, answer := range map[string]func(traffictest.Call){
		"404":             func(c traffictest.Call) { c.Say(404, "404 page not found") },
		report.NotAnOrder: func(c traffictest.Call) { c.Say(200, "<html>") },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			s := traffictest.New(t, answer)
			run, acks, err := Run(t.Context(), traffictest.Plan(t, traffic.Config{}), 0, Config{URL: s.URL, Connections: 2, Warmup: time.Second, Duration: time.Second})
			why := strings.Join(run.Invalid, "\n")
			if err != nil || len(acks) > 0 || !strings.Contains(why, "no request succeeded; the answers were "+want+": ") {
				t.Errorf("%v; it says %q", err, why)
			}
		})
	}
}

// The figures are of the run without the warm-up; what the warm-up wrote is
// acknowledged too, and no request is of both.
func TestTheWarmUpIsAcknowledgedAndNotMeasured(t *testing.T) {
	t.Parallel()
	s := traffictest.New(t, traffictest.Call.Serve)
	plan := traffictest.Plan(t, traffic.Config{})
	const connections = 4
	before := []int{}
	run, acks, err := Run(t.Context(), plan, 100, Config{
		URL: s.URL + "/", Connections: connections, Warmup: time.Second, Duration: time.Second,
		Begin: func() { before = append(before, len(s.Saw())) },
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	var warm, measured int64
	highest, seen := map[uint64]uint64{}, map[uint64]uint64{} // by phase and thread
	saw := s.Saw()
	for _, no := range saw {
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
	if s.Made() != len(saw) {
		t.Errorf("%d orders in %d requests", s.Made(), len(saw))
	}
	if len(before) != 1 || before[0] == 0 || before[0] > int(warm) {
		t.Errorf("told of the beginning after %d requests, of %d of the warm-up", before, warm)
	}
	if warm == 0 || measured == 0 || run.Sent < measured || run.Sent > measured+connections || run.ByAnswer["201"] < run.Sent-connections {
		t.Errorf("the target saw %d of the warm-up and %d of the run; %d were sent, %v", warm, measured, run.Sent, run.ByAnswer)
	}
	// Cut off at the end of either: at most one for each connection.
	if run.Cut > connections || run.UnsettledBefore > connections {
		t.Errorf("%d were cut off, and %d of the warm-up", run.Cut, run.UnsettledBefore)
	}
	served := s.Acks()
	if lost := len(served) - len(acks); lost < 0 || lost > 2*connections || !subset(traffictest.Sorted(acks), served) {
		t.Errorf("%d were served, %d acknowledged", len(served), len(acks))
	}
}

// subset reports whether all of a, which is sorted as b is, are in b.
func subset(a, b []traffic.Ack) bool {
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
	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	s := traffictest.New(t, func(c traffictest.Call) {
		if n, _ := plan.Number(c.OutTradeNo); n < warmupRate {
			<-pause.C // as a cold service: so many in a second, and no more
		}
		c.Serve()
	})
	plan = traffictest.Plan(t, traffic.Config{})
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
	if s.Made() != len(s.Saw()) {
		t.Errorf("%d orders in %d requests", s.Made(), len(s.Saw()))
	}
}

// A run that is ended early has what was measured until then, and says so; also one that
// had not begun.
func TestARunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	s := traffictest.New(t, traffictest.Call.Serve)
	shown := 0
	run, acks, err := Run(ctx, traffictest.Plan(t, traffic.Config{}), 0, Config{
		URL: s.URL, Connections: 2, Warmup: time.Second, Duration: 10 * time.Second, Second: func(report.Second) { shown++; stop() },
	})
	if err != nil || run.ByAnswer["201"] == 0 || int64(len(acks)) < run.ByAnswer["201"] || run.DurationSec > 9.9 {
		t.Errorf("%v; %+v, %d acknowledged", err, run, len(acks))
	}
	if len(run.Invalid) != 1 || run.Invalid[0] != report.EndedEarly(run.DurationSec, 10) || len(run.Seconds) != int(run.DurationSec) || shown != len(run.Seconds) {
		t.Errorf("in %.3f s there are %d seconds, %d shown, and it says %q", run.DurationSec, len(run.Seconds), shown, run.Invalid)
	}

	ctx, stop = context.WithCancel(t.Context())
	defer stop()
	s = traffictest.New(t, func(c traffictest.Call) {
		c.Serve()
		if c.N == 10 {
			stop()
		}
	})
	run, acks, err = Run(ctx, traffictest.Plan(t, traffic.Config{}), 0, Config{URL: s.URL, Connections: 2, Warmup: 3 * time.Second, Duration: time.Minute})
	why := strings.Join(run.Invalid, "\n")
	if err != nil || run.Sent != 0 || run.PerSecond != 0 || len(run.Seconds) > 0 || !strings.Contains(why, report.EndedEarly(0, 60)) || !strings.Contains(why, "nothing was sent") {
		t.Errorf("%v; %+v", err, run)
	}
	// What the warm-up wrote can be looked for.
	s.Close()
	if served := s.Acks(); len(acks) == 0 || len(served)-len(acks) > int(run.UnsettledBefore) || !subset(traffictest.Sorted(acks), served) {
		t.Errorf("%d were served, %d acknowledged, %d without an outcome", len(served), len(acks), run.UnsettledBefore)
	}
}

// wrk doesn't go on when who started it is killed.
func TestWrkDiesWithItsParent(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{})
	var once sync.Once
	s := traffictest.New(t, func(c traffictest.Call) {
		once.Do(func() { close(arrived) })
		c.Serve()
	})
	parent := exec.Command(os.Args[0], "send", s.URL)
	parent.Stderr = os.Stderr
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	<-arrived
	var wrk []string
	eventually.True(t, "there is a child", func() bool {
		wrk = nil
		lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent.Process.Pid))
		for _, list := range lists {
			pids, _ := os.ReadFile(list) // of a thread that has ended there is none
			wrk = append(wrk, strings.Fields(string(pids))...)
		}
		return len(wrk) > 0
	})
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	if len(wrk) != 1 {
		t.Fatalf("its children are %v", wrk)
	}
	eventually.True(t, "wrk ends after who started it", func() bool {
		stat, err := os.ReadFile("/proc/" + wrk[0] + "/stat")
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}

func TestAServiceThatIsNotThereIsAnError(t *testing.T) {
	s := httptest.NewServer(nil)
	s.Close()
	_, _, err := Run(t.Context(), traffictest.Plan(t, traffic.Config{}), 0, Config{URL: s.URL, Warmup: time.Second, Duration: time.Second})
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
		"no request succeeded":               {SentBy: []int64{1}},
		"3 answers took longer than 15s":     {SentBy: []int64{9}, Answered: 9, Late: 3, ByAnswer: map[string]int64{"201": 9}},
		"it ended early, after 1.0 s of 2 s": {SentBy: []int64{9}, Answered: 9, ByAnswer: map[string]int64{"201": 9}},
	} {
		o.DurationUS = 1e6
		c := Config{Duration: time.Second}
		if strings.Contains(want, "early") {
			c.Duration = 2 * time.Second
		}
		if got := o.report(traffictest.Plan(t, traffic.Config{}), c).Invalid; len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Of the three without an answer some are cut off; however often wrk could not connect,
// that was no request.
func TestWhatNobodyLearnedTheOutcomeOfIsCounted(t *testing.T) {
	for broken := range int64(4) {
		for _, refused := range []int64{0, 1000} {
			o := outcome{SentBy: []int64{15, 5}, Answered: 17, DurationUS: 1e6, Read: broken, Connect: refused, ByAnswer: map[string]int64{
				"201": 5, "503 overloaded": 4, "504 outcome_unknown": 3, "500": 2, "409 out_trade_no_reused": 2, "other": 1,
			}}
			run := o.report(traffictest.Plan(t, traffic.Config{}), Config{Connections: 64})
			if n := run.Unsettled(); n != 3+3+2+1 || run.Cut != 3-broken || run.ByAnswer[report.NoAnswer] != broken {
				t.Errorf("%d broke, %d times refused: %d, %d of them cut, %v", broken, refused, n, run.Cut, run.ByAnswer)
			}
			counted := map[string]int64{}
			for _, f := range run.Failures {
				counted[f.Answer] += f.Count
			}
			if counted[report.NoAnswer] != broken || counted[report.NotConnected] != refused {
				t.Errorf("%d broke, %d times refused: %+v", broken, refused, run.Failures)
			}
		}
	}
}

// Requests go round among the threads, so the highest number that was sent follows from how
// many each has sent.
func TestTheNumbersThatWereSentAreKnown(t *testing.T) {
	for _, c := range []struct {
		by   []int64
		want uint64
	}{{nil, 10}, {[]int64{0}, 10}, {[]int64{3}, 13}, {[]int64{1, 0}, 11}, {[]int64{0, 1}, 12}, {[]int64{3, 2}, 15}, {[]int64{2, 3}, 16}, {[]int64{5, 0, 0}, 23}} {
		if got := (outcome{SentBy: c.by}).until(10); got != c.want {
			t.Errorf("%v: %d, want %d", c.by, got, c.want)
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

// A batch is one request, and as many answers as it has orders; its answer may be long.
func TestABatchIsCountedByItsOrders(t *testing.T) {
	t.Parallel()
	s := traffictest.New(t, func(c traffictest.Call) {
		switch {
		case c.Batch == nil:
			c.Serve()
		case c.N%50 == 1:
			c.Refuse(503, "overloaded") // all of it
		case c.N%50 == 2:
			c.Results(c.Refusal(503, "overloaded"), c.Refusal(409, "out_trade_no_reused"))
		case c.N%50 == 3:
			c.Results(append(make([]string, 0, 60), c.Result(0, c.Batch[0]), c.Refusal(504, "outcome_unknown"))...) // of how many?
		default:
			c.Serve()
		}
	})
	plan := traffictest.Plan(t, traffic.Config{Seed: 5, Mix: []traffic.Share{{Kind: traffic.Batch, Weight: 3}, {Kind: traffic.Create, Weight: 1}, {Kind: traffic.Get, Weight: 1}}, BatchSize: 60, Known: mixed.Known})
	run, acks, err := Run(t.Context(), plan, 0, Config{URL: s.URL, Connections: 4, Warmup: time.Second, Duration: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	served := map[traffic.Ack]bool{}
	for _, a := range s.Acks() {
		served[a] = true
	}
	for _, a := range acks {
		if !served[a] {
			t.Fatalf("%+v was acknowledged, and never served", a)
		}
	}
	if run.PerRequest != 60 || run.Succeeded() < 60 || run.Sent >= run.Succeeded() || run.ByAnswer[report.NotAnOrder] == 0 || run.ByAnswer["503 overloaded"] == 0 {
		t.Errorf("%d requests, %v", run.Sent, run.ByAnswer)
	}
	// Single creates and reads are 201 and 200, and so is each order of a batch.
	if n := int64(len(acks)); n < run.ByAnswer["201"] || n == 0 {
		t.Errorf("%d were acknowledged, %v", n, run.ByAnswer)
	}
	if run.ByAnswer["item 504 outcome_unknown"] > 0 {
		t.Errorf("an answer that has too few orders was taken: %v", run.ByAnswer)
	}
	if run.Unsettled() < 60*run.Cut {
		t.Errorf("%d orders are unsettled, of %d requests that were cut off", run.Unsettled(), run.Cut)
	}
}
