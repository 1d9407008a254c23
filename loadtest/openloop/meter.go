package openloop

import (
	"bytes"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	vegeta "github.com/tsenart/vegeta/v12/lib"

	"github.com/octopay/octopay/loadtest/report"
	"github.com/octopay/octopay/loadtest/traffic"
)

// A meter turns results into figures. One goroutine uses it.
type meter struct {
	plan   *traffic.Plan
	ledger *traffic.Ledger
	due    *schedule
	start  time.Time
	c      Config

	latency, lag *hdrhistogram.Histogram // µs
	sent         int64
	byAnswer     map[string]int64
	failures     report.Failures

	seconds []report.Second
	open    map[int]*hdrhistogram.Histogram // latencies of the seconds that miss answers
	answers []int64                         // by second
	shown   int                             // seconds that progress has passed on
}

// What a histogram can hold; what is longer counts as this long.
const longest = int64(time.Hour / time.Microsecond)

func newMeter(plan *traffic.Plan, due *schedule, start time.Time, c Config) *meter {
	m := &meter{
		plan: plan, ledger: traffic.NewLedger(plan), due: due, start: start, c: c,
		latency: hdrhistogram.New(1, longest, 3), lag: hdrhistogram.New(1, longest, 3),
		byAnswer: map[string]int64{}, open: map[int]*hdrhistogram.Histogram{},
	}
	n := int((c.Duration + time.Second - 1) / time.Second)
	m.answers = make([]int64, n)
	before := 0
	for i := range n {
		until := due.due(time.Duration(i+1) * time.Second)
		m.seconds = append(m.seconds, report.Second{At: i, Offered: int64(until - before), ByAnswer: map[string]int64{}})
		before = until
	}
	return m
}

// add counts one result, which came over the wire.
func (m *meter) add(r *vegeta.Result, w *wire) {
	due := m.due.at(int(r.Seq))
	latency := r.End().Sub(m.start.Add(due))
	lag := r.Timestamp.Sub(m.start.Add(due))
	record(m.latency, latency)
	record(m.lag, lag)

	m.sent++
	i := min(int(due/time.Second), len(m.seconds)-1)
	s := &m.seconds[i]
	for _, answer := range m.answersOf(r, w) {
		answer = m.known(answer)
		m.byAnswer[answer]++
		s.ByAnswer[answer]++
	}
	h := m.open[i]
	if h == nil {
		h = hdrhistogram.New(1, longest, 2)
		m.open[i] = h
	}
	record(h, latency)
	if m.answers[i]++; m.answers[i] == s.Offered {
		m.close(i)
	}
}

// answersOf says how a request was answered, a batch for each of its orders, and keeps what
// acknowledges an order.
func (m *meter) answersOf(r *vegeta.Result, w *wire) []string {
	_, number, _ := strings.Cut(r.URL, "#")
	if r.Code == 0 {
		answer, kind, text := w.why(number)
		m.failures.Add(answer, kind, text, 1)
		return []string{answer}
	}
	status := strconv.Itoa(int(r.Code))
	if r.Code >= 300 {
		if code := between(r.Body, `"code":"`); traffic.IsCode(code) {
			status += " " + code
		}
		return []string{status}
	}
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		panic(err) // it is the fragment that the targeter made
	}
	var answers []string
	for _, f := range m.judge(n, traffic.Success{Status: int(r.Code), Replayed: r.Headers.Get("Idempotent-Replayed") == "true", Body: r.Body}) {
		if f.Fault != nil {
			m.failures.Add(report.NotAnOrder, f.Fault.Kind, f.Fault.Text, 1)
			f.Answer = report.NotAnOrder
		}
		answers = append(answers, f.Answer)
	}
	return answers
}

func (m *meter) judge(n uint64, s traffic.Success) []traffic.Fate {
	status := strconv.Itoa(s.Status)
	switch first, orders := m.plan.Writes(n); {
	case m.plan.Batches(n):
		return m.ledger.Batch(n, s)
	case orders > 0:
		return []traffic.Fate{{Answer: status, Fault: m.ledger.Create(first, s)}}
	}
	return []traffic.Fate{{Answer: status, Fault: traffic.Read(s)}}
}

// known returns an answer that may be counted by itself: a service that makes up codes
// must not make up figures without end.
func (m *meter) known(answer string) string {
	switch answer {
	case report.Timeout, report.NoAnswer, report.NotConnected, report.NotAnOrder:
		return answer
	}
	if _, ok := m.byAnswer[answer]; !ok && len(m.byAnswer) >= report.AnswersMax {
		return report.OtherAnswer
	}
	return answer
}

// between returns what stands from start to the next quote.
func between(b []byte, start string) string {
	_, b, _ = bytes.Cut(b, []byte(start))
	b, _, ok := bytes.Cut(b, []byte{'"'})
	if !ok {
		return ""
	}
	return string(b)
}

// close ends a second whose answers are all there, or will not come.
func (m *meter) close(i int) {
	if h := m.open[i]; h != nil {
		q := quantiles(h)
		m.seconds[i].LatencyMs = &q
		delete(m.open, i)
	}
}

// progress passes on what is known of the seconds that have ended, when so many requests
// were sent.
func (m *meter) progress(elapsed time.Duration, sent int64) {
	for ; m.shown < len(m.seconds) && time.Duration(m.shown+1)*time.Second <= elapsed; m.shown++ {
		if m.c.Second == nil {
			continue
		}
		s := m.seconds[m.shown]
		s.Sent = m.sentOf(m.shown, sent)
		s.ByAnswer = maps.Clone(s.ByAnswer)
		if h := m.open[m.shown]; h != nil {
			q := quantiles(h)
			s.LatencyMs = &q
		}
		m.c.Second(s)
	}
}

// sentOf returns how many of the requests that were due in a second are among the first
// so many, in whose order they are sent.
func (m *meter) sentOf(second int, sent int64) int64 {
	before := int64(m.due.due(time.Duration(second) * time.Second))
	return min(max(0, sent-before), m.seconds[second].Offered)
}

// run returns the figures. early is when sending ended before its time; 0: it didn't.
func (m *meter) run(early time.Duration) report.Run {
	total, offered := m.c.Duration, m.due.n
	if early > 0 {
		// There are no more seconds than have passed, and in the last of them only that
		// was due which was due until then.
		total = min(total, early)
		offered = max(m.due.due(total), int(m.sent))
		m.seconds = m.seconds[:(total+time.Second-1)/time.Second]
		last := len(m.seconds) - 1
		m.seconds[last].Offered = int64(offered - m.due.due(time.Duration(last)*time.Second))
	}
	for i := range m.seconds {
		m.close(i)
		m.seconds[i].Sent = m.sentOf(i, m.sent)
	}
	m.progress(time.Duration(len(m.seconds))*time.Second, m.sent)
	run := report.Run{
		Scenario: m.plan.Scenario(), Loop: report.Open, Generator: "open loop, " + m.c.Pace.String(), Seed: m.plan.Seed, PerRequest: report.PerRequest(m.plan),
		Started: m.start.UTC(), DurationSec: total.Seconds(),
		Offered: int64(offered), Sent: m.sent, Dropped: int64(offered) - m.sent,
		ByAnswer: m.byAnswer, Failures: m.failures,
		LatencyMs: quantiles(m.latency), LagMs: quantiles(m.lag), Seconds: m.seconds,
	}
	run.PerSecond = float64(run.Succeeded()) / run.DurationSec
	if early > 0 {
		run.Invalid = append(run.Invalid, report.EndedEarly(total.Seconds(), m.c.Duration.Seconds()))
	}
	run.Invalid = append(run.Invalid, invalid(run)...)
	return run
}

// The rules of a valid run. The latency of a request holds its lag, so a lag that is
// small beside it changes nothing; below lagAlways it is how exactly a machine can
// wait.
const (
	sentLeast = 0.99
	lagAlways = 10.0  // ms
	lagNever  = 100.0 // ms
	lagShare  = 0.1   // of the latency's 99th percentile
)

// invalid returns why the figures of a run mean nothing.
func invalid(r report.Run) (why []string) {
	if float64(r.Sent) < sentLeast*float64(r.Offered) {
		why = append(why, fmt.Sprintf("the generator sent %d of %d requests, %.1f %%; it must send 99 %%",
			r.Sent, r.Offered, 100*float64(r.Sent)/float64(r.Offered)))
	}
	if limit := max(lagAlways, min(lagNever, lagShare*r.LatencyMs.P99)); r.LagMs.P99 > limit {
		why = append(why, fmt.Sprintf("the generator was late: the 99th percentile of its lag is %.1f ms, with %.1f ms of latency it may be %.1f ms",
			r.LagMs.P99, r.LatencyMs.P99, limit))
	}
	return append(why, r.Doubts()...)
}

func record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(0, d.Microseconds()), longest)) // within its range: no error
}

func quantiles(h *hdrhistogram.Histogram) report.Quantiles {
	ms := func(us int64) float64 { return float64(us) / 1000 }
	return report.Quantiles{
		P50: ms(h.ValueAtQuantile(50)), P90: ms(h.ValueAtQuantile(90)), P99: ms(h.ValueAtQuantile(99)),
		P999: ms(h.ValueAtQuantile(99.9)), Max: ms(h.Max()),
	}
}
