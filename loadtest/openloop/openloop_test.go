package openloop

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/loadtest/report"
	"github.com/octopay/octopay/loadtest/traffic"
	"github.com/octopay/octopay/loadtest/traffic/traffictest"
)

// What the generator says it did is what the target saw, and each answer is counted
// under its name, in total and in its second.
func TestFiguresAreWhatHappened(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := traffictest.New(t, func(c traffictest.Call) {
		switch c.N % 10 {
		case 1:
			c.Refuse(503, "overloaded")
		case 2:
			c.Say(502, "")
		case 3:
			<-release // time-out
		case 4:
			c.Break()
		case 5:
			c.Say(http.StatusFound, "")
		default:
			c.Serve()
		}
	})
	defer close(release)
	var shown []report.Second
	p := traffictest.Plan(t, traffic.Config{Seed: 5})
	const timeout = 4 * time.Second
	run, acks, err := Run(t.Context(), p, Config{
		URL: s.URL + "/", Key: "k", Pace: Constant(100), Duration: 2500 * time.Millisecond, Timeout: timeout,
		Second: func(s report.Second) { shown = append(shown, s) },
	})
	if err != nil {
		t.Fatal(err)
	}
	saw := s.Saw()
	total := len(saw)
	if run.Offered != 250 || run.Sent+run.Dropped != 250 || run.Sent != int64(total) {
		t.Errorf("offered %d, sent %d, dropped %d; the target saw %d", run.Offered, run.Sent, run.Dropped, total)
	}
	slices.Sort(saw)
	for n := range uint64(total) {
		if _, sent := slices.BinarySearch(saw, p.Order(n).OutTradeNo); !sent {
			t.Errorf("create %d was not sent", n)
		}
	}
	if want := s.Acks(); !slices.Equal(traffictest.Sorted(acks), want) || len(acks) == 0 {
		t.Errorf("%d orders were made, %d acknowledged", len(want), len(acks))
	}
	// Each tenth request had its answer, in whatever order they arrived.
	want := s.Answers()
	want[report.Timeout], want[report.NoAnswer] = int64((total+6)/10), int64((total+5)/10)
	if !maps.Equal(run.ByAnswer, want) {
		t.Errorf("the answers were %v, it says %v", want, run.ByAnswer)
	}
	if got := run.ByAnswer["201"]; run.Succeeded() != got || run.PerSecond != float64(got)/2.5 {
		t.Errorf("%d answers 201, %d successes, %.1f/s", got, run.Succeeded(), run.PerSecond)
	}
	ms := float64(timeout.Milliseconds())
	if run.LatencyMs.Max < ms || run.LatencyMs.P50 > run.LatencyMs.P90 || run.LatencyMs.P999 > run.LatencyMs.Max {
		t.Errorf("latencies %+v", run.LatencyMs)
	}
	if run.CPUSec["generator"] <= 0 {
		t.Errorf("CPU %v", run.CPUSec)
	}
	sum := map[string]int64{}
	var offered, sent int64
	for i, second := range run.Seconds {
		offered += second.Offered
		sent += second.Sent
		for answer, n := range second.ByAnswer {
			sum[answer] += n
		}
		if second.At != i || second.LatencyMs == nil || second.LatencyMs.Max < 0.99*ms {
			t.Errorf("second %d: %+v", i, second)
		}
	}
	if !maps.Equal(sum, run.ByAnswer) || offered != run.Offered || sent != run.Sent || len(run.Seconds) != 3 || run.Seconds[2].Offered != 50 {
		t.Errorf("the seconds have %v, %d due, %d sent; the run %v, %d, %d", sum, offered, sent, run.ByAnswer, run.Offered, run.Sent)
	}
	for i, second := range shown {
		if second.At != i || second.Offered != run.Seconds[i].Offered || second.Sent > second.Offered {
			t.Errorf("progress %d: %+v", i, second)
		}
	}
	if len(shown) != 3 || run.Scenario != "create" || run.Seed != 5 || run.Loop != report.Open || run.Generator != "open loop, constant 100/s" {
		t.Errorf("%d times progress; %+v", len(shown), run)
	}
}

// Fault 33. A generator that can't send in time says that its figures mean nothing,
// and why, with the figures. Its only worker waits for its first answer as long as the
// run lasts; so one more is sent, far too late.
func TestFault33AThrottledGeneratorIsInvalid(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := traffictest.New(t, func(c traffictest.Call) {
		if c.N == 0 {
			<-release
		}
		c.Say(http.StatusCreated, "")
	})
	defer close(release)
	var shown []report.Second
	run, acks, err := Run(t.Context(), traffictest.Plan(t, traffic.Config{}), Config{
		URL: s.URL, Pace: Constant(100), Duration: 2 * time.Second, WorkersMax: 1, Timeout: 3 * time.Second,
		Second: func(s report.Second) { shown = append(shown, s) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if saw := len(s.Saw()); saw != 2 || run.Sent != 2 || run.Dropped != 198 || len(acks) > 0 {
		t.Errorf("sent %d, dropped %d of 200; the target saw %d; acknowledged: %v", run.Sent, run.Dropped, saw, acks)
	}
	why := strings.Join(run.Invalid, "\n")
	for _, want := range []string{
		"sent 2 of 200 requests", fmt.Sprintf("its lag is %.1f ms", run.LagMs.P99), "no request succeeded", "not what was asked for",
	} {
		if !strings.Contains(why, want) {
			t.Errorf("%q is not among the reasons:\n%s", want, why)
		}
	}
	if run.LagMs.P99 < 1000 || run.LatencyMs.P99 < run.LagMs.P99 {
		t.Errorf("it was behind by %+v, with latencies %+v", run.LagMs, run.LatencyMs)
	}
	// What was due and what was sent differ, in each second by its name.
	for at, sent := range []int64{2, 0} {
		if s := run.Seconds[at]; s.Offered != 100 || s.Sent != sent {
			t.Errorf("second %d: %d due, %d sent, want 100 and %d", at, s.Offered, s.Sent, sent)
		}
		if s := shown[at]; s.Offered != 100 || s.Sent > 2 {
			t.Errorf("shown of second %d: %d due, %d sent", at, s.Offered, s.Sent)
		}
	}
}

func TestTheRulesOfAValidRun(t *testing.T) {
	valid := report.Run{
		Offered: 1000, Sent: 990, ByAnswer: map[string]int64{"201": 1, report.NoAnswer: 989},
		LatencyMs: report.Quantiles{P99: 600}, LagMs: report.Quantiles{P99: 60},
	}
	for want, change := range map[string]func(*report.Run){
		"": func(*report.Run) {},
		"sent 989 of 1000 requests, 98.9 %; it must send 99 %":       func(r *report.Run) { r.Sent = 989 },
		"lag is 61.0 ms, with 600.0 ms of latency it may be 60.0 ms": func(r *report.Run) { r.LagMs.P99 = 61 },
		"lag is 101.0 ms, with 9000.0 ms of latency it may be 100.0": func(r *report.Run) { r.LagMs.P99, r.LatencyMs.P99 = 101, 9000 },
		"lag is 10.1 ms, with 20.0 ms of latency it may be 10.0 ms":  func(r *report.Run) { r.LagMs.P99, r.LatencyMs.P99 = 10.1, 20 },
		"no request succeeded; the answers were error: 489, t":       func(r *report.Run) { r.ByAnswer = map[string]int64{report.NoAnswer: 489, report.Timeout: 501} },
		"nothing was sent": func(r *report.Run) { r.Offered, r.Sent = 0, 0 },
	} {
		r := valid
		change(&r)
		if got := strings.Join(invalid(r), "; "); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A run that is ended early has what was measured until then, and not a second more; and
// it says so.
func TestARunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for _, pace := range []Pace{Constant(100), Constant(100).Poisson(1), Constant(0.001)} {
		ctx, stop := context.WithCancel(t.Context())
		last := map[bool]int{true: 0, false: 20}[pace.String() == "constant 0.001/s"] // whose next is due a long time later
		s := traffictest.New(t, func(c traffictest.Call) {
			c.Serve()
			if c.N == last {
				stop()
			}
		})
		shown := 0
		run, acks, err := Run(ctx, traffictest.Plan(t, traffic.Config{}), Config{
			URL: s.URL, Pace: pace, Duration: time.Hour, Second: func(report.Second) { shown++ },
		})
		stop()
		if err != nil {
			t.Fatal(err)
		}
		if saw := len(s.Saw()); len(acks) != saw || run.Sent != int64(saw) || run.ByAnswer["201"] != run.Sent || saw <= last {
			t.Errorf("%s: %d acks, sent %d, the target saw %d", pace, len(acks), run.Sent, saw)
		}
		if run.DurationSec <= 0 || run.DurationSec > 600 || run.Offered < run.Sent || run.Dropped != run.Offered-run.Sent {
			t.Errorf("%s: %.3f s, %d due, %d sent, %d dropped", pace, run.DurationSec, run.Offered, run.Sent, run.Dropped)
		}
		seconds := int(math.Ceil(run.DurationSec))
		var offered, sent int64
		for _, s := range run.Seconds {
			offered, sent = offered+s.Offered, sent+s.Sent
		}
		if len(run.Seconds) != seconds || shown != seconds || offered != run.Offered || sent != run.Sent {
			t.Errorf("%s: %d seconds, %d shown, in %.3f s; %d were due in them, %d sent, of %d and %d",
				pace, len(run.Seconds), shown, run.DurationSec, offered, sent, run.Offered, run.Sent)
		}
		if len(run.Invalid) == 0 || run.Invalid[0] != report.EndedEarly(run.DurationSec, 3600) || !strings.Contains(run.Invalid[0], "of 3600 s") {
			t.Errorf("%s: it says %q", pace, run.Invalid)
		}
	}
}

// Nothing is sent, and that is said, when it was over before it began.
func TestARunOfNoTimeIsInvalid(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	s := traffictest.New(t, traffictest.Call.Serve)
	run, acks, err := Run(ctx, traffictest.Plan(t, traffic.Config{}), Config{URL: s.URL, Pace: Constant(100), Duration: time.Minute})
	why := strings.Join(run.Invalid, "; ")
	if err != nil || len(acks)+len(s.Saw()) > 0 || run.Sent != 0 || run.PerSecond != 0 || !strings.Contains(why, "early") || !strings.Contains(why, "nothing was sent") {
		t.Errorf("%v; %+v", err, run)
	}
}

// The context may end while the last answers are waited for: then all was sent in time.
func TestARunIsWholeWhenAllWasSent(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	s := traffictest.New(t, func(c traffictest.Call) {
		if c.N == 99 {
			stop()
		}
		c.Serve()
	})
	run, acks, err := Run(ctx, traffictest.Plan(t, traffic.Config{}), Config{URL: s.URL, Pace: Constant(1000), Duration: 100 * time.Millisecond})
	if err != nil || run.Offered != 100 || run.DurationSec != 0.1 || strings.Contains(strings.Join(run.Invalid, "\n"), "early") {
		t.Errorf("%v; %+v, %d acknowledged", err, run, len(acks))
	}
}

// A service that makes up codes doesn't make up figures without end.
func TestAnswersAreBounded(t *testing.T) {
	s := traffictest.New(t, func(c traffictest.Call) {
		if c.N%10 == 0 {
			c.Refuse(500, strings.Repeat("x", 65))
			return
		}
		c.Refuse(500, fmt.Sprint("code", c.N))
	})
	run, _, err := Run(t.Context(), traffictest.Plan(t, traffic.Config{}), Config{URL: s.URL, Pace: Constant(200), Duration: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	tenth := (run.Sent + 9) / 10
	if len(run.ByAnswer) > report.AnswersMax+1 || run.ByAnswer["500"] != tenth || run.ByAnswer[report.OtherAnswer] < run.Sent-tenth-report.AnswersMax {
		t.Errorf("%d answers: %v", len(run.ByAnswer), run.ByAnswer)
	}
}

// An answer that isn't the order that was asked for acknowledges nothing, whatever its
// status; it has a name of its own.
func TestWhatIsNoOrderIsAFailure(t *testing.T) {
	t.Parallel()
	mix := traffic.Config{
		Mix:   []traffic.Share{{Kind: traffic.Create, Weight: 3}, {Kind: traffic.Repeat, Weight: 2}, {Kind: traffic.Get, Weight: 1}},
		Known: []traffic.Known{{ID: "15770253150322220879872", UID: 9527, BID: 1001, OutTradeNo: "20261130-000017"}},
	}
	page := func(c traffictest.Call) { c.Say(http.StatusOK, "<html>welcome</html>") }
	for name, wrong := range map[string]func(traffictest.Call){
		"no JSON of an order":      page,
		"neither 201 nor a replay": func(c traffictest.Call) { c.Say(202, traffictest.Order(idgen.Make(c.UID, 5), c.UID, c.OutTradeNo)) },
		"no order id": func(c traffictest.Call) {
			c.Say(201, `{"order_id":"`+strings.Repeat("1", 32)+`","out_trade_no":"`+c.OutTradeNo+`"}`)
		},
		"the order id isn't of this buyer's table": func(c traffictest.Call) {
			c.Say(201, traffictest.Order(idgen.Make(c.UID+1, 5), c.UID, c.OutTradeNo))
		},
		"the out_trade_no of another create": func(c traffictest.Call) {
			c.Say(201, traffictest.Order(idgen.Make(c.UID, 5), c.UID, "r1-123456"))
		},
		"not the order that the same create was answered with before": nil,
		"a read without an order or a list":                           nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			answered := map[string]bool{}
			s := traffictest.New(t, func(c traffictest.Call) {
				mu.Lock()
				again := answered[c.OutTradeNo]
				answered[c.OutTradeNo] = true
				mu.Unlock()
				switch {
				case c.R.Method == http.MethodGet:
					if name == "a read without an order or a list" {
						page(c)
						return
					}
				case wrong != nil && c.N%3 == 0:
					wrong(c)
					return
				case strings.HasPrefix(name, "not the order") && again:
					c.W.Header().Set("Idempotent-Replayed", "true")
					c.Say(200, traffictest.Order(idgen.Make(c.UID, 1<<40+int64(c.N)), c.UID, c.OutTradeNo))
					return
				}
				c.Serve()
			})
			run, acks, err := Run(t.Context(), traffictest.Plan(t, mix), Config{URL: s.URL, Pace: Constant(100), Duration: 2 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			// A repeat may overtake its create, whose answer is then the one that differs.
			bad := run.ByAnswer[report.NotAnOrder]
			if bad == 0 || len(run.Failures) != 1 || run.Failures[0].Answer != report.NotAnOrder || run.Failures[0].Kind != name || run.Failures[0].Count != bad {
				t.Errorf("%v, %+v", run.ByAnswer, run.Failures)
			}
			if why := strings.Join(run.Invalid, "\n"); !strings.Contains(why, name) {
				t.Errorf("it is invalid because\n%s", why)
			}
			var all, inSeconds int64
			for _, n := range run.ByAnswer {
				all += n
			}
			for _, s := range run.Seconds {
				inSeconds += s.ByAnswer[report.NotAnOrder]
			}
			if all != run.Sent || inSeconds != bad {
				t.Errorf("%d answers to %d requests; %d were no order, in their seconds %d", all, run.Sent, bad, inSeconds)
			}
			// Only what is an order of the target's is acknowledged.
			if got, served := traffictest.Sorted(acks), s.Acks(); strings.HasPrefix(name, "not the order") {
				for _, a := range got {
					if i := slices.IndexFunc(got, func(b traffic.Ack) bool { return a.OutTradeNo == b.OutTradeNo && a.ID != b.ID }); i >= 0 {
						t.Errorf("%s is acknowledged as %s and as %s", a.OutTradeNo, a.ID, got[i].ID)
					}
				}
			} else if !slices.Equal(got, served) || len(got) == 0 {
				t.Errorf("%d were served, %d acknowledged", len(served), len(got))
			}
		})
	}
}

// A service that isn't one: the same answer to everything.
func TestARunWithoutASuccessIsInvalid(t *testing.T) {
	t.Parallel()
	for want, answer := range map[string]func(traffictest.Call){
		"404":                 func(c traffictest.Call) { c.Say(404, "404 page not found") },
		"302":                 func(c traffictest.Call) { c.W.Header().Set("Location", "/login"); c.Say(302, "") },
		"401 unauthenticated": func(c traffictest.Call) { c.Refuse(401, "unauthenticated") },
		report.NotAnOrder:     func(c traffictest.Call) { c.Say(200, "<html>") },
		report.NoAnswer:       traffictest.Call.Break,
	} {
		s := traffictest.New(t, answer)
		run, acks, err := Run(t.Context(), traffictest.Plan(t, traffic.Config{}), Config{URL: s.URL, Pace: Constant(50), Duration: 200 * time.Millisecond})
		why := strings.Join(run.Invalid, "\n")
		if err != nil || len(acks) > 0 || !strings.Contains(why, fmt.Sprintf("no request succeeded; the answers were %s: %d", want, run.Sent)) {
			t.Errorf("%s: %v; it says %q", want, err, why)
		}
	}
}

// Each failure without a status says which it was, and only those that were sent can have
// written something.
func TestAnErrorSaysWhichItWas(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(nil)
	gone.Close()
	broken := traffictest.New(t, traffictest.Call.Break)
	nonsense := listen(t, func(c net.Conn) {
		if _, err := c.Read(make([]byte, 4096)); err == nil {
			_, _ = c.Write([]byte("HELLO\r\n\r\n"))
		}
	})
	half := listen(t, func(c net.Conn) {
		if _, err := c.Read(make([]byte, 4096)); err == nil {
			_, _ = c.Write([]byte("HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n{"))
		}
	})
	for name, c := range map[string]struct {
		url, answer, kind string
		unsettled         bool
	}{
		"refused":  {gone.URL, report.NotConnected, "connection refused", false},
		"broken":   {broken.URL, report.NoAnswer, "EOF", true},
		"no HTTP":  {nonsense, report.NoAnswer, "malformed HTTP", true},
		"half one": {half, report.NoAnswer, "unexpected EOF", true},
	} {
		run, _, err := Run(t.Context(), traffictest.Plan(t, traffic.Config{}), Config{URL: c.url, Pace: Constant(50), Duration: 200 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if run.ByAnswer[c.answer] != run.Sent || len(run.ByAnswer) != 1 {
			t.Errorf("%s: %v", name, run.ByAnswer)
		}
		if len(run.Failures) != 1 || run.Failures[0].Answer != c.answer || !strings.Contains(run.Failures[0].Kind, c.kind) ||
			run.Failures[0].Count != run.Sent || !strings.Contains(run.Failures[0].First, c.kind) {
			t.Errorf("%s: %+v", name, run.Failures)
		}
		if got := run.Unsettled() > 0; got != c.unsettled {
			t.Errorf("%s: %d are unsettled", name, run.Unsettled())
		}
	}
}

// listen serves connections until the test ends, each once, and returns a URL.
func listen(t *testing.T, serve func(net.Conn)) (url string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				serve(c)
				_ = c.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	return "http://" + l.Addr().String()
}

func TestWhatIsWrongWithAConfigIsNamed(t *testing.T) {
	for want, c := range map[string]Config{
		"must be like": {URL: "127.0.0.1", Pace: Constant(1), Duration: 1},
		"below 0":      {URL: "http://a", Pace: Constant(1), Duration: 1, WorkersMax: -1},
		"no pace":      {URL: "http://a", Duration: 1},
		"parse":        {URL: "http://a b", Pace: Constant(1), Duration: 1},
	} {
		if _, _, err := Run(t.Context(), traffictest.Plan(t, traffic.Config{}), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}

// A batch is one request with one latency, and as many answers as it has orders.
func TestABatchIsCountedByItsOrders(t *testing.T) {
	t.Parallel()
	s := traffictest.New(t, func(c traffictest.Call) {
		switch {
		case c.N == 1:
			c.Refuse(503, "overloaded") // all of it
		case c.N == 2:
			c.Break()
		case c.N == 3:
			c.Results(c.Result(0, c.Batch[0])) // of how many?
		case c.N%4 == 0:
			var results []string
			for i, one := range c.Batch {
				if i == 7 {
					results = append(results, c.Refusal(504, "outcome_unknown"))
					continue
				}
				results = append(results, c.Result(i, one))
			}
			c.Results(results...)
		default:
			c.Serve()
		}
	})
	p := traffictest.Plan(t, traffic.Config{Seed: 5, Mix: []traffic.Share{{Kind: traffic.Batch, Weight: 1}}, BatchSize: 20})
	run, acks, err := Run(t.Context(), p, Config{URL: s.URL, Pace: Constant(40), Duration: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	want := s.Answers()
	want["201"]-- // that of the third is none
	want[report.NoAnswer], want[report.NotAnOrder] = 1, 1
	sent := int64(len(s.Saw()))
	if !maps.Equal(run.ByAnswer, want) || run.Sent != sent || run.PerRequest != 20 || run.Succeeded() != int64(len(acks)) || run.PerSecond != float64(len(acks)) {
		t.Errorf("of %d requests the answers were %v, it says %v; %d were acknowledged, %.1f/s", sent, want, run.ByAnswer, len(acks), run.PerSecond)
	}
	if n := int64(len(acks)); n < 17*(sent-3) || n+want["item 504 outcome_unknown"] != 20*(sent-3) {
		t.Errorf("%d orders of %d requests were acknowledged", n, sent)
	}
	// The second was refused; one had no answer, and of one nobody knows what is stored.
	if got, want := run.Unsettled(), 20+20+want["item 504 outcome_unknown"]; got != want {
		t.Errorf("%d orders are unsettled, want %d", got, want)
	}
	sum := map[string]int64{}
	for _, second := range run.Seconds {
		for answer, n := range second.ByAnswer {
			sum[answer] += n
		}
	}
	if !maps.Equal(sum, run.ByAnswer) || run.Scenario != "batch" {
		t.Errorf("the seconds have %v, the run %v", sum, run.ByAnswer)
	}
}
