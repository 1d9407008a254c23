package openloop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
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

func orderID(n int) string { return fmt.Sprintf("1577%019d", n) }

// A target answers as its test says, and counts what it saw.
type target struct {
	*httptest.Server
	mu    sync.Mutex
	saw   map[string]int // by out_trade_no
	total int
	made  []string
}

// newTarget starts a target. answer gets the number of the request, from 0, in the
// order in which they arrived.
func newTarget(t *testing.T, answer func(n int, w http.ResponseWriter, r *http.Request)) *target {
	s := &target{saw: map[string]int{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var order struct {
			OutTradeNo string `json:"out_trade_no"`
		}
		body, err := io.ReadAll(r.Body)
		if err == nil && len(body) > 0 {
			err = json.Unmarshal(body, &order)
		}
		if err != nil {
			t.Errorf("%s: %v", body, err)
		}
		s.mu.Lock()
		n := s.total
		s.total++
		s.saw[order.OutTradeNo]++
		s.mu.Unlock()
		answer(n, w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *target) create(n int, w http.ResponseWriter) {
	s.mu.Lock()
	s.made = append(s.made, orderID(n))
	s.mu.Unlock()
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"order_id":"%s","uid":"1","out_trade_no":"r1-%d"}`, orderID(n), n)
}

func problem(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"type":"urn:octopay:error:%s","title":"…","status":%d,"code":"%[1]s"}`, code, status)
}

// What the generator says it did is what the target saw, and each answer is counted
// under its name, in total and in its second.
func TestFiguresAreWhatHappened(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var s *target
	s = newTarget(t, func(n int, w http.ResponseWriter, r *http.Request) {
		switch n % 10 {
		case 1:
			problem(w, 503, "overloaded")
		case 2:
			w.WriteHeader(502)
		case 3:
			<-release // time-out
		case 4:
			panic(http.ErrAbortHandler)
		case 5:
			w.WriteHeader(http.StatusFound)
		default:
			s.create(n, w)
		}
	})
	defer close(release)
	var shown []report.Second
	p := newPlan(t, traffic.Config{Seed: 5})
	run, acks, err := Run(t.Context(), p, Config{
		URL: s.URL + "/", Key: "k", Pace: Constant(100), Duration: 2500 * time.Millisecond, Timeout: time.Second,
		Second: func(s report.Second) { shown = append(shown, s) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if run.Offered != 250 || run.Sent+run.Dropped != 250 || run.Sent != int64(s.total) {
		t.Errorf("offered %d, sent %d, dropped %d; the target saw %d", run.Offered, run.Sent, run.Dropped, s.total)
	}
	if len(s.saw) != s.total {
		t.Errorf("%d requests were of %d orders", s.total, len(s.saw))
	}
	for n := range uint64(s.total) {
		if no := p.Order(n).OutTradeNo; s.saw[no] != 1 {
			t.Errorf("%s was sent %d times", no, s.saw[no])
		}
	}
	var got []string
	for _, a := range acks {
		got = append(got, a.ID.String())
	}
	slices.Sort(got)
	slices.Sort(s.made)
	if !slices.Equal(got, s.made) || len(acks) == 0 {
		t.Errorf("%d orders were made, %d acknowledged", len(s.made), len(acks))
	}
	// Each tenth request had its answer, in whatever order they arrived.
	for n, answer := range map[int]string{1: "503 overloaded", 2: "502", 3: report.Timeout, 4: report.NoAnswer, 5: "302"} {
		want := int64((s.total + 9 - n) / 10)
		if got := run.ByAnswer[answer]; got != want {
			t.Errorf("%d answers %q, want %d", got, answer, want)
		}
	}
	if got := run.ByAnswer["201"]; got != int64(len(s.made)) || run.Succeeded() != got || run.PerSecond != float64(got)/2.5 {
		t.Errorf("%d answers 201, %d successes, %.1f/s; want %d", got, run.Succeeded(), run.PerSecond, len(s.made))
	}
	if run.LatencyMs.Max < 1000 || run.LatencyMs.P50 > run.LatencyMs.P90 || run.LatencyMs.P999 > run.LatencyMs.Max {
		t.Errorf("latencies %+v", run.LatencyMs)
	}
	if run.CPUSec["generator"] <= 0 {
		t.Errorf("CPU %v", run.CPUSec)
	}
	sum := map[string]int64{}
	var offered int64
	for i, second := range run.Seconds {
		offered += second.Offered
		for answer, n := range second.ByAnswer {
			sum[answer] += n
		}
		if second.At != i || second.LatencyMs == nil || second.LatencyMs.Max < 1000 {
			t.Errorf("second %d: %+v", i, second)
		}
	}
	if !maps.Equal(sum, run.ByAnswer) || offered != run.Offered || len(run.Seconds) != 3 || run.Seconds[2].Offered != 50 {
		t.Errorf("the seconds have %v of %d, the run %v", sum, offered, run.ByAnswer)
	}
	for i, second := range shown {
		if second.At != i || second.Offered != run.Seconds[i].Offered {
			t.Errorf("progress %d: %+v", i, second)
		}
	}
	if len(shown) != 3 || run.Scenario != "create" || run.Seed != 5 || run.Generator != "open loop, constant 100/s" {
		t.Errorf("%d times progress; %+v", len(shown), run)
	}
}

// Fault 33. A generator that can't send in time says that its figures mean nothing,
// and why, with the figures.
func TestFault33AThrottledGeneratorIsInvalid(t *testing.T) {
	t.Parallel()
	s := newTarget(t, func(n int, w http.ResponseWriter, r *http.Request) {
		time.Sleep(50 * time.Millisecond) // what a slow target does
		w.WriteHeader(http.StatusCreated)
	})
	run, _, err := Run(t.Context(), newPlan(t, traffic.Config{}), Config{
		URL: s.URL, Pace: Constant(100), Duration: 2 * time.Second, WorkersMax: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	if run.Sent != int64(s.total) || run.Sent > 45 || run.Dropped != 200-run.Sent {
		t.Errorf("sent %d, dropped %d of 200; the target saw %d", run.Sent, run.Dropped, s.total)
	}
	why := strings.Join(run.Invalid, "\n")
	for _, want := range []string{
		fmt.Sprintf("sent %d of 200 requests", run.Sent), fmt.Sprintf("its lag is %.1f ms", run.LagMs.P99), "without an order id",
	} {
		if !strings.Contains(why, want) {
			t.Errorf("%q is not among the reasons:\n%s", want, why)
		}
	}
	if run.LagMs.P99 < 1000 || run.LatencyMs.P99 < run.LagMs.P99 {
		t.Errorf("it was behind by %+v, with latencies %+v", run.LagMs, run.LatencyMs)
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
		"no request was answered":                                    func(r *report.Run) { r.ByAnswer = map[string]int64{report.NoAnswer: 489, report.Timeout: 501} },
		"nothing was offered":                                        func(r *report.Run) { r.Offered, r.Sent = 0, 0 },
	} {
		r := valid
		change(&r)
		if got := strings.Join(invalid(r), "; "); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestARunEndsWithItsContext(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var s *target
	s = newTarget(t, func(n int, w http.ResponseWriter, r *http.Request) {
		s.create(n, w)
		if n == 20 {
			stop()
		}
	})
	run, acks, err := Run(ctx, newPlan(t, traffic.Config{}), Config{URL: s.URL, Pace: Constant(100), Duration: time.Hour})
	if !errors.Is(err, context.Canceled) || len(acks) != s.total || run.Sent != int64(s.total) || len(run.Invalid) == 0 {
		t.Errorf("%v; %d acks, sent %d, the target saw %d", err, len(acks), run.Sent, s.total)
	}
}

// A service that makes up codes doesn't make up figures without end.
func TestAnswersAreBounded(t *testing.T) {
	s := newTarget(t, func(n int, w http.ResponseWriter, r *http.Request) {
		if n%10 == 0 {
			problem(w, 500, strings.Repeat("x", 65))
			return
		}
		problem(w, 500, fmt.Sprint("code", n))
	})
	run, _, err := Run(t.Context(), newPlan(t, traffic.Config{}), Config{URL: s.URL, Pace: Constant(200), Duration: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if len(run.ByAnswer) > report.AnswersMax+1 || run.ByAnswer[report.OtherAnswer] < 90 || run.ByAnswer["500"] != 20 {
		t.Errorf("%d answers: %v", len(run.ByAnswer), run.ByAnswer)
	}
}

func TestWhatIsWrongWithAConfigIsNamed(t *testing.T) {
	for want, c := range map[string]Config{
		"must be like": {URL: "127.0.0.1", Pace: Constant(1), Duration: 1},
		"below 0":      {URL: "http://a", Pace: Constant(1), Duration: 1, WorkersMax: -1},
		"no pace":      {URL: "http://a", Duration: 1},
		"parse":        {URL: "http://a b", Pace: Constant(1), Duration: 1},
	} {
		if _, _, err := Run(t.Context(), newPlan(t, traffic.Config{}), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}
