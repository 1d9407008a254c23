package report_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/octopay/octopay/loadtest/report"
)

// However many kinds there are, a few are kept, and all are counted.
func TestFailuresAreBoundedAndCounted(t *testing.T) {
	var f report.Failures
	for i := range 1000 {
		f.Add(report.NoAnswer, fmt.Sprintf("kind %d", i%100), fmt.Sprintf("text %d", i), 2)
	}
	f.Add(report.NotAnOrder, "kind 0", strings.Repeat("€", 1000), 1)
	sum := map[string]int64{}
	for _, one := range f {
		sum[one.Answer] += one.Count
		if len(one.First) > 310 || strings.ToValidUTF8(one.First, "") != one.First {
			t.Errorf("%d bytes of text: %q", len(one.First), one.First)
		}
	}
	if sum[report.NoAnswer] != 2000 || sum[report.NotAnOrder] != 1 || len(f) > 20 {
		t.Errorf("%d kinds, %v", len(f), sum)
	}
	if f[0].Kind != "kind 0" || f[0].First != "text 0" || f[0].Count != 20 {
		t.Errorf("%+v", f[0])
	}
}

func TestDoubts(t *testing.T) {
	for name, c := range map[string]struct {
		run  report.Run
		want string // "": there are none
	}{
		"one success":  {report.Run{Sent: 100, ByAnswer: map[string]int64{"200": 1, "503 overloaded": 99}}, ""},
		"all 404":      {report.Run{Sent: 300, ByAnswer: map[string]int64{"404": 300}}, "no request succeeded; the answers were 404: 300"},
		"moved":        {report.Run{Sent: 3, ByAnswer: map[string]int64{"302": 3}}, "302: 3"},
		"no key":       {report.Run{Sent: 3, ByAnswer: map[string]int64{"401 unauthenticated": 3}}, "401 unauthenticated: 3"},
		"nothing sent": {report.Run{}, "nothing was sent"},
		"all cut":      {report.Run{Sent: 3, Cut: 3}, "no request succeeded"},
		"refused": {report.Run{Sent: 2, ByAnswer: map[string]int64{report.NotConnected: 2}, Failures: report.Failures{
			{Answer: report.NotConnected, Kind: "connection refused", Count: 2, First: "dial tcp 127.0.0.1:1: connection refused"}}},
			"not connected: 2: 2 × connection refused (the first: dial tcp 127.0.0.1:1: connection refused)"},
		"a page instead of an order": {report.Run{Sent: 3, ByAnswer: map[string]int64{"201": 2, report.NotAnOrder: 1}, Failures: report.Failures{
			{Answer: report.NotAnOrder, Kind: "no JSON", Count: 1, First: "<html>"}}},
			"1 answers of success were not what was asked for, so nobody knows what is stored: 1 × no JSON (the first: <html>)"},
	} {
		got := strings.Join(c.run.Doubts(), "; ")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// What was never sent, or was refused, wrote nothing; what wasn't answered may have.
func TestWhatMayHaveWrittenIsUnsettled(t *testing.T) {
	r := report.Run{Cut: 1, UnsettledBefore: 2, ByAnswer: map[string]int64{
		"201": 100, "404": 50, "503 overloaded": 40, report.NotConnected: 30,
		report.NoAnswer: 4, report.Timeout: 8, "500 internal": 16, report.NotAnOrder: 32, report.OtherAnswer: 64, "302": 128,
	}}
	if n := r.Unsettled(); n != 1+2+4+8+16+32+64+128 {
		t.Errorf("%d", n)
	}
}

// An error says what it was, and what happened while warming up is no end of the run.
func TestFailuresAreReported(t *testing.T) {
	r := run("octopay", 100)
	r.ByAnswer[report.NoAnswer], r.UnsettledBefore = 3, 7
	r.Failures.Add(report.NoAnswer, "EOF", "Post /v1/orders: EOF", 3)
	d := report.Document{Title: "one", Runs: []report.Run{r}}
	var text bytes.Buffer
	if err := d.Text(&text); err != nil {
		t.Fatal(err)
	}
	page, _ := html(t, d)
	for _, out := range []string{text.String(), page} {
		if !strings.Contains(out, "3 × EOF (the first: Post /v1/orders: EOF)") || !strings.Contains(out, "without an outcome while warming up 7") ||
			strings.Contains(out, "cut off") {
			t.Errorf("it says\n%s", out)
		}
	}
}

// Which loop it was is said by who ran it, not by how its figures look.
func TestTheLoopIsWhatTheRunSays(t *testing.T) {
	r := run("octopay", 100)
	r.Loop, r.Offered = report.Open, r.Sent // and a lag of nothing
	if text := r.Verdict()[0].Text; !strings.Contains(text, "that were due were sent") {
		t.Errorf("an open loop that was never late: %s", text)
	}
	r.Loop, r.LagMs = report.Closed, report.Quantiles{P99: 1}
	if text := r.Verdict()[0].Text; !strings.Contains(text, "the next when one before was answered") {
		t.Errorf("a closed loop: %s", text)
	}
}
