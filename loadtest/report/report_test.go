package report_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/octopay/octopay/loadtest/report"
)

var update = flag.Bool("update", false, "write the golden files")

func ptr(x float64) *float64 { return &x }

// run returns a run with as many answers a second, of which all is well.
func run(target string, perSecond float64) report.Run {
	n := int64(perSecond) * 30
	r := report.Run{
		Scenario: "create", Target: target, Loop: report.Closed, Generator: "closed loop, wrk, 512 connections", Seed: 7,
		Started: time.Date(2026, 11, 30, 20, 0, 0, 0, time.UTC), DurationSec: 30, Offered: n, Sent: n,
		ByAnswer: map[string]int64{"201": n}, PerSecond: perSecond,
		LatencyMs: report.Quantiles{P50: 60, P90: 80, P99: 140, P999: 210, Max: 250.4},
		CPUSec:    map[string]float64{"orderd": float64(n) * 50e-6, "mariadbd": float64(n) * 100e-6, "generator": float64(n) * 20e-6},
		Check:     &report.Check{Acknowledged: int(n), Found: int(n), Mirror: true},
	}
	for at := range 30 {
		q := report.Quantiles{P50: 60 + float64(at%3), P90: 80, P99: 140 + float64(at), P999: 210, Max: 250}
		r.Seconds = append(r.Seconds, report.Second{At: at, ByAnswer: map[string]int64{"201": n / 30},
			LatencyMs: &q, LaneBatch: ptr(41.5), MirrorLagSec: ptr(1.2)})
	}
	return r
}

// stalled returns an open-loop run in which the target stood still, with refusals.
func stalled() report.Run {
	r := run("octopay", 2000)
	r.Loop, r.Generator, r.LagMs = report.Open, "open loop, constant 2,000/s", report.Quantiles{P50: 0.05, P90: 0.1, P99: 0.42, P999: 1.5, Max: 3}
	r.LatencyMs = report.Quantiles{P50: 4, P90: 9, P99: 1900, P999: 2010, Max: 2050}
	for i := range r.Seconds {
		s := &r.Seconds[i]
		s.Offered, s.Sent = 2000, 2000
		*s.LatencyMs = report.Quantiles{P50: 4, P90: 6, P99: 9, P999: 14, Max: 20}
		switch i {
		case 12:
			*s.LatencyMs = report.Quantiles{P50: 1500, P90: 1900, P99: 1990, P999: 2010, Max: 2050}
			s.LaneBatch = nil
		case 13:
			s.LatencyMs, s.LaneBatch, s.MirrorLagSec = nil, nil, ptr(3.4)
			s.ByAnswer = map[string]int64{"503 overloaded": 1200, "error": 40}
		}
	}
	r.ByAnswer = map[string]int64{"201": 58_760, "503 overloaded": 1200, "error": 40}
	r.Check = &report.Check{Acknowledged: 58_760, Found: 58_760, Mirror: true, Open: 38}
	return r
}

func invalid(r report.Run) report.Run {
	r.Invalid = []string{"sent 92.1 % of what was due, less than 99 %", "the generator was 340 ms late at p99"}
	return r
}

func failed(r report.Run) report.Run {
	r.Check = &report.Check{Acknowledged: 3000, Found: 2999, Missing: 1, Mirror: true, Named: []string{"15770253150322220879872 is missing"}}
	return r
}

func refusing(r report.Run) report.Run {
	r.ByAnswer["503 overloaded"] = r.Sent / 4
	r.ByAnswer["201"] -= r.Sent / 4
	return r
}

func document() report.Document {
	return report.Document{
		Title: "Create, side by side", Started: time.Date(2026, 11, 30, 20, 0, 0, 0, time.UTC),
		Machine: "virtual, 2 cores", Versions: []string{"go1.26.8", "MariaDB 10.11.19"}, Command: "make load",
		Sets: []report.Set{{Name: "create, 512 connections", Baselines: []string{"direct", "raw"}, Rounds: [][]report.Run{
			{run("octopay", 8000), run("direct", 3000), run("raw", 16000)},
			{run("octopay", 6000), run("direct", 2000), invalid(run("raw", 99999))},
			{run("octopay", 10_000), refusing(run("direct", 5000)), run("raw", 12500)},
		}}},
		Runs: []report.Run{stalled()},
	}
}

func TestVerdict(t *testing.T) {
	edit := func(r report.Run, f func(*report.Run)) report.Run { f(&r); return r }
	for name, c := range map[string]struct {
		run  report.Run
		want []report.Sentence
	}{
		"all well": {run("octopay", 100), []report.Sentence{
			{Text: "Valid: 3,000 requests were sent, the next when one before was answered."},
			{Text: "Checked: each of the 3,000 acknowledged orders is stored once, as it was sent, and the mirror has the same."}}},
		"open orders and lag": {stalled(), []report.Sentence{
			{Text: "Valid: 60,000 of 60,000 requests that were due were sent, 99 % of them at most 0.42 ms late."},
			{Text: "Checked: each of the 58,760 acknowledged orders is stored once, as it was sent, and the mirror has the same. 38 more are stored whose answer never arrived, which is allowed."}}},
		"invalid": {invalid(run("octopay", 100)), []report.Sentence{
			{Bad: true, Text: "INVALID: the figures of this run mean nothing. Sent 92.1 % of what was due, less than 99 %; the generator was 340 ms late at p99."},
			{Text: "Checked: each of the 3,000 acknowledged orders is stored once, as it was sent, and the mirror has the same."}}},
		"one missing": {failed(run("octopay", 100)), []report.Sentence{
			{Text: "Valid: 3,000 requests were sent, the next when one before was answered."},
			{Bad: true, Text: "THE CHECK FAILED: 1 missing. 3,000 orders were acknowledged, 2,999 of them found. 15770253150322220879872 is missing."}}},
		"everything wrong": {edit(run("octopay", 100), func(r *report.Run) {
			r.Check = &report.Check{Acknowledged: 5, Found: 4, Missing: 1, Doubled: 2, Wrong: 3, Unequal: 1234}
		}), []report.Sentence{
			{Text: "Valid: 3,000 requests were sent, the next when one before was answered."},
			{Bad: true, Text: "THE CHECK FAILED: 1 missing, 2 doubled, 3 wrong, 1,234 unequal in the mirror. 5 orders were acknowledged, 4 of them found."}}},
		"not checked": {edit(run("echo", 100), func(r *report.Run) { r.Check = nil }), []report.Sentence{
			{Text: "Valid: 3,000 requests were sent, the next when one before was answered."},
			{Unknown: true, Text: "Not checked: nobody compared what is stored with what was acknowledged."}}},
		"nothing acknowledged, without the mirror": {edit(run("octopay", 100), func(r *report.Run) { r.Check = &report.Check{} }), []report.Sentence{
			{Text: "Valid: 3,000 requests were sent, the next when one before was answered."},
			{Text: "Checked: no order was acknowledged, and none is wrong; the mirror was not looked at."}}},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(c.want, c.run.Verdict()); d != "" {
				t.Error(d)
			}
			bad := false
			for _, s := range c.want {
				bad = bad || s.Bad
			}
			if c.run.Fails() != bad {
				t.Errorf("Fails is %v", c.run.Fails())
			}
		})
	}
}

func TestCompare(t *testing.T) {
	spread := func(median, least, most float64, n int) report.Spread {
		return report.Spread{Median: median, Min: least, Max: most, N: n}
	}
	cpuless := func(r report.Run) report.Run { r.CPUSec = nil; return r }
	silent := func(r report.Run) report.Run {
		r.PerSecond, r.ByAnswer = 0, map[string]int64{"error": 3000}
		return r
	}
	for name, c := range map[string]struct {
		rounds [][]report.Run
		target string
		want   report.Row // without latency and CPU by program
	}{
		"ratios are within rounds, not of medians": {
			[][]report.Run{{run("a", 800), run("b", 100)}, {run("a", 300), run("b", 100)}, {run("a", 1000), run("b", 500)}}, "a",
			report.Row{Target: "a", Runs: 3, PerSecond: spread(800, 300, 1000, 3), Ratio: map[string]report.Spread{"b": spread(3, 2, 8, 3)},
				CPURatio: map[string]report.Spread{"b": spread(1, 1, 1, 3)}}},
		"an even number has its middle between two": {
			[][]report.Run{{run("a", 200), run("b", 100)}, {run("a", 400), run("b", 100)}}, "a",
			report.Row{Target: "a", Runs: 2, PerSecond: spread(300, 200, 400, 2), Ratio: map[string]report.Spread{"b": spread(3, 2, 4, 2)},
				CPURatio: map[string]report.Spread{"b": spread(1, 1, 1, 2)}}},
		"an invalid run is in no figure": {
			[][]report.Run{{invalid(run("a", 9999)), run("b", 100)}, {run("a", 400), run("b", 100)}}, "a",
			report.Row{Target: "a", Runs: 2, Invalid: 1, PerSecond: spread(400, 400, 400, 1), Ratio: map[string]report.Spread{"b": spread(4, 4, 4, 1)},
				CPURatio: map[string]report.Spread{"b": spread(1, 1, 1, 1)}}},
		"a failed check is in no figure": {
			[][]report.Run{{failed(run("a", 9999)), run("b", 100)}}, "a",
			report.Row{Target: "a", Runs: 1, Failed: 1, Ratio: map[string]report.Spread{}, CPURatio: map[string]report.Spread{}}},
		"the round of an invalid baseline has no ratio": {
			[][]report.Run{{run("a", 400), invalid(run("b", 100))}, {run("a", 200), run("b", 100)}}, "a",
			report.Row{Target: "a", Runs: 2, PerSecond: spread(300, 200, 400, 2), Ratio: map[string]report.Spread{"b": spread(2, 2, 2, 1)},
				CPURatio: map[string]report.Spread{"b": spread(1, 1, 1, 1)}}},
		"a baseline that isn't there": {
			[][]report.Run{{run("a", 400)}}, "a",
			report.Row{Target: "a", Runs: 1, PerSecond: spread(400, 400, 400, 1), Ratio: map[string]report.Spread{}, CPURatio: map[string]report.Spread{}}},
		"a baseline has no ratio to itself": {
			[][]report.Run{{run("a", 400), run("b", 100)}}, "b",
			report.Row{Target: "b", Runs: 1, PerSecond: spread(100, 100, 100, 1), Ratio: map[string]report.Spread{}, CPURatio: map[string]report.Spread{}}},
		"CPU that wasn't measured": {
			[][]report.Run{{cpuless(run("a", 400)), run("b", 100)}}, "a",
			report.Row{Target: "a", Runs: 1, PerSecond: spread(400, 400, 400, 1), Ratio: map[string]report.Spread{"b": spread(4, 4, 4, 1)}, CPURatio: map[string]report.Spread{}}},
		"nothing answered": {
			[][]report.Run{{run("a", 400), silent(run("b", 100))}}, "a",
			report.Row{Target: "a", Runs: 1, PerSecond: spread(400, 400, 400, 1), Ratio: map[string]report.Spread{}, CPURatio: map[string]report.Spread{}}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, row := range (report.Set{Baselines: []string{"b"}, Rounds: c.rounds}).Compare() {
				if row.Target != c.target {
					continue
				}
				row.LatencyMs, row.CPUMicros, row.Other = report.Quantiles{}, nil, report.Spread{}
				round := cmp.Transformer("round", func(x float64) float64 { return math.Round(x*1e6) / 1e6 })
				if d := cmp.Diff(c.want, row, round); d != "" {
					t.Error(d)
				}
				return
			}
			t.Fatal("no row")
		})
	}
}

func TestCPUIsForAnAnswerOfSuccess(t *testing.T) {
	r := run("octopay", 100)
	r.ByAnswer["503 overloaded"] = 1000 // refusals share the cost
	rows := report.Set{Rounds: [][]report.Run{{r}}}.Compare()
	if got := rows[0].Other.Median; got != 25 {
		t.Errorf("%v %% of the answers were no success, want 25", got)
	}
	for program, want := range map[string]float64{"orderd": 50, "mariadbd": 100, "generator": 20} {
		if got := rows[0].CPUMicros[program].Median; math.Abs(got-want) > 1e-6 {
			t.Errorf("%s: %v µs, want %v", program, got, want)
		}
	}
}

// The middle lies between the ends, and the order of rounds doesn't matter.
func TestSpreadIsInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		speeds := rapid.SliceOfN(rapid.Float64Range(1, 1e6), 1, 20).Draw(t, "speeds")
		set := func(speeds []float64) report.Set {
			var s report.Set
			for _, v := range speeds {
				s.Rounds = append(s.Rounds, []report.Run{{Target: "a", PerSecond: v}})
			}
			return s
		}
		got := set(speeds).Compare()[0].PerSecond
		if !(got.Min <= got.Median && got.Median <= got.Max) || got.N != len(speeds) {
			t.Fatalf("%+v", got)
		}
		if other := set(rapid.Permutation(speeds).Draw(t, "in another order")).Compare()[0].PerSecond; other != got {
			t.Fatalf("%+v, in another order %+v", got, other)
		}
	})
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s (go test ./loadtest/report -update writes it):\n%s", path, d)
	}
}

func TestMarkdown(t *testing.T) {
	var b bytes.Buffer
	if err := document().Markdown(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "compared.md", b.Bytes())
}

func TestText(t *testing.T) {
	var b bytes.Buffer
	d := document()
	d.Runs = []report.Run{stalled(), failed(invalid(run("octopay", 100)))}
	if err := d.Text(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "terminal.txt", b.Bytes())
}

// Two answers never look the same in a drawing.
func TestAnswersDiffer(t *testing.T) {
	r := stalled()
	for i, code := range []string{"200", "201", "400 x", "409 y", "429 z", "500 internal", "503 a", "503 b", "504 c", "timeout", "error", "other"} {
		r.ByAnswer[code] = int64(1000 - i)
		r.Seconds[3].ByAnswer[code] = 5
	}
	_, elements := html(t, report.Document{Runs: []report.Run{r}})
	seen, drawing := map[string]bool{}, ""
	lines := 0
	for _, e := range elements {
		switch {
		case e.name == "figcaption":
			drawing = e.text
		case e.name == "path" && drawing == "Answers by code":
			if lines++; seen[e.attr["class"]] {
				t.Errorf("two answers are %s", e.attr["class"])
			}
			seen[e.attr["class"]] = true
		}
	}
	if lines != 7 {
		t.Errorf("%d lines, want six and one for all others", lines)
	}
}

func TestWordsKeepToTheirCell(t *testing.T) {
	d := document()
	d.Sets[0].Rounds[0][0].Target = "a|b\n\x1b[2Jc"
	var b bytes.Buffer
	if err := d.Markdown(&b); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), `| a\|b  [2Jc `) {
		t.Errorf("%s", &b)
	}
	b.Reset()
	if err := d.Text(&b); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsRune(b.String(), 0x1b) {
		t.Error("an escape reaches the terminal")
	}
}

func TestJSON(t *testing.T) {
	want := document()
	var b bytes.Buffer
	if err := want.JSON(&b); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), `"compared"`) {
		t.Error("what the sets come to is missing")
	}
	got, err := report.Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	bad := document()
	bad.Runs[0].PerSecond = math.NaN()
	if err := bad.JSON(io.Discard); err == nil {
		t.Error("wrote what is not a number")
	}
	if _, err := report.Read(strings.NewReader("{")); err == nil {
		t.Error("read half of a document")
	}
}

// html returns the page, and its elements in order: each with its class and the text
// directly after it. The page is also well-formed XML, so that a parser that forgives
// nothing can look at it.
func html(t *testing.T, d report.Document) (text string, elements []element) {
	t.Helper()
	var b bytes.Buffer
	if err := d.HTML(&b); err != nil {
		t.Fatal(err)
	}
	text = b.String()
	for dec := xml.NewDecoder(&b); ; {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return text, elements
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		switch token := token.(type) {
		case xml.StartElement:
			e := element{name: token.Name.Local, attr: map[string]string{}}
			for _, a := range token.Attr {
				e.attr[a.Name.Local] = a.Value
			}
			elements = append(elements, e)
		case xml.CharData:
			if n := len(elements); n > 0 {
				elements[n-1].text += strings.TrimSpace(string(token))
			}
		}
	}
}

type element struct {
	name, text string
	attr       map[string]string
}

func with(elements []element, name, class string) (out []element) {
	for _, e := range elements {
		if e.name == name && (class == "" || e.attr["class"] == class) {
			out = append(out, e)
		}
	}
	return out
}

func TestPageNeedsNothingElse(t *testing.T) {
	text, elements := html(t, document())
	for _, e := range elements {
		switch e.name {
		case "script", "link", "img", "iframe", "object", "embed", "image", "use", "base", "form", "a":
			t.Errorf("there is a %s", e.name)
		}
		for name, value := range e.attr {
			if name == "src" || name == "href" || name == "style" || strings.HasPrefix(name, "on") {
				t.Errorf("%s has %s=%q", e.name, name, value)
			}
		}
	}
	for _, outside := range []string{"http:", "https:", "url(", "@import", "ZgotmplZ"} {
		if strings.Contains(text, outside) {
			t.Errorf("it contains %q", outside)
		}
	}
}

func TestPageDraws(t *testing.T) {
	d := document()
	_, elements := html(t, report.Document{Title: "one", Runs: d.Runs})
	var titles []string
	for _, e := range with(elements, "figcaption", "") {
		titles = append(titles, e.text)
	}
	if d := cmp.Diff([]string{"Throughput", "Latency from the intended send time", "Answers by code", "Orders in a lane's transaction", "Mirror lag"}, titles); d != "" {
		t.Error(d)
	}
	for _, svg := range with(elements, "svg", "chart") {
		var w, h float64
		if _, err := fmt.Sscanf(svg.attr["viewBox"], "0 0 %g %g", &w, &h); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(with(elements, "details", "run")); n != 1 {
		t.Errorf("%d runs", n)
	}
	if rows := len(with(elements, "tr", "")); rows != 31 {
		t.Errorf("%d rows of seconds and their head", rows)
	}

	// Lines are named where there are several, and answers always.
	_, elements = html(t, report.Document{Title: "one", Runs: []report.Run{run("octopay", 100)}})
	var names []string
	for _, e := range with(elements, "line", "") {
		if strings.HasPrefix(e.attr["class"], "key") {
			names = append(names, e.text)
		}
	}
	if d := cmp.Diff([]string{"answered with success", "p50", "p90", "p99", "p99.9", "max", "201"}, names); d != "" {
		t.Error(d)
	}

	// Nothing was due in a closed loop.
	_, elements = html(t, report.Document{Title: "one", Runs: d.Runs})
	if !slices.ContainsFunc(with(elements, "line", ""), func(e element) bool { return e.text == "due" }) {
		t.Error("what was due in an open loop isn't drawn")
	}

	_, elements = html(t, d)
	if n := len(with(elements, "circle", "run")); n != 8 {
		t.Errorf("%d dots, want one for each valid run", n)
	}
}

// Every place of a drawing lies inside it, and is a number.
func TestPlacesLieInTheDrawing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := report.Run{Scenario: "create"}
		figures := rapid.OneOf(rapid.Float64Range(0, 1e9), rapid.SampledFrom([]float64{0, 1e-9, 1, math.NaN(), math.Inf(1), math.Inf(-1)}))
		n := rapid.IntRange(1, 40).Draw(rt, "seconds")
		at := rapid.IntRange(0, 3).Draw(rt, "first")
		for range n {
			s := report.Second{At: at, Offered: rapid.Int64Range(0, 1e6).Draw(rt, "offered"), ByAnswer: map[string]int64{}}
			for _, code := range rapid.SliceOfN(rapid.SampledFrom([]string{"", "200", "201", "400", "404", "409", "422", "429", "500", "503 overloaded", "503 draining", "504 outcome_unknown", "timeout", "error", "other"}), 0, 12).Draw(rt, "codes") {
				s.ByAnswer[code]++
				if r.ByAnswer == nil {
					r.ByAnswer = map[string]int64{}
				}
				r.ByAnswer[code]++
			}
			if rapid.Bool().Draw(rt, "measured") {
				f := figures.Draw(rt, "figure")
				s.LatencyMs, s.LaneBatch, s.MirrorLagSec = &report.Quantiles{P50: f, P90: f * 2, P99: f * 1000, P999: f * 1000, Max: f * 1e4}, &f, &f
			}
			r.Seconds = append(r.Seconds, s)
			at += rapid.IntRange(1, 90).Draw(rt, "until the next")
		}
		text, elements := html(t, report.Document{Runs: []report.Run{r}})
		if strings.Contains(text, "ZgotmplZ") {
			rt.Fatal("the template refused a value")
		}
		inside := func(x, y float64) {
			if !(x >= 0 && x <= 560.05 && y >= 0 && y <= 250.05) {
				rt.Fatalf("(%v, %v) is outside of the drawing", x, y)
			}
		}
		for _, e := range elements {
			if e.name != "path" {
				continue
			}
			for _, place := range strings.FieldsFunc(e.attr["d"], func(r rune) bool { return r == 'M' || r == 'L' }) {
				var x, y float64
				if _, err := fmt.Sscanf(place, "%g %g", &x, &y); err != nil {
					rt.Fatalf("%q: %v", place, err)
				}
				inside(x, y)
			}
		}
		for _, e := range with(elements, "text", "end") {
			if len(e.text) > 20 && strings.ContainsAny(e.text, "0123456789") {
				rt.Fatalf("a label is %q", e.text)
			}
		}
	})
}

func TestPageSaysFirstWhatNotToBelieve(t *testing.T) {
	for name, bad := range map[string]report.Run{"invalid": invalid(stalled()), "failed": failed(stalled())} {
		t.Run(name, func(t *testing.T) {
			for _, d := range []report.Document{{Runs: []report.Run{bad}}, {Runs: []report.Run{stalled(), bad}}, {Sets: []report.Set{{Rounds: [][]report.Run{{bad}}}}}} {
				_, elements := html(t, d)
				alert := -1
				for i, e := range elements {
					if e.attr["role"] == "alert" {
						alert = i
						break
					}
					if e.name == "table" || e.name == "dl" || e.name == "svg" {
						t.Fatalf("a %s comes before the alert", e.name)
					}
				}
				if alert < 0 || elements[alert].attr["class"] != "verdict bad" {
					t.Fatal("no alert")
				}
				said := ""
				for _, e := range elements[alert : alert+5] {
					said += e.text + "\n"
				}
				if !strings.Contains(said, bad.Verdict()[0].Text) && !strings.Contains(said, bad.Verdict()[1].Text) {
					t.Errorf("the alert says %q", said)
				}
			}
		})
	}
	_, elements := html(t, report.Document{Runs: []report.Run{stalled()}})
	for _, e := range elements {
		if e.attr["role"] == "alert" || strings.Contains(e.attr["class"], "bad") {
			t.Errorf("a good run has %+v", e)
		}
	}
	if _, elements = html(t, report.Document{}); len(with(elements, "div", "verdict bad")) == 0 {
		t.Error("nothing measured is nothing wrong")
	}
}

func TestPageEscapes(t *testing.T) {
	const nasty = `</title></svg><script>alert("1")</script>&'`
	r := stalled()
	r.Scenario, r.Target, r.Generator = nasty, nasty, nasty
	r.Invalid, r.Check.Named, r.Check.Missing = []string{nasty}, []string{nasty}, 1
	r.ByAnswer[nasty], r.Seconds[3].ByAnswer[nasty], r.CPUSec[nasty] = 1, 1, 1
	d := report.Document{Title: nasty, Machine: nasty, Command: nasty, Versions: []string{nasty}, Runs: []report.Run{r},
		Sets: []report.Set{{Name: nasty, Baselines: []string{nasty}, Rounds: [][]report.Run{{r, run(nasty, 5)}}}}}
	text, elements := html(t, d)
	if strings.Contains(text, "<script") {
		t.Error("text became an element")
	}
	if got := with(elements, "h1", "")[0].text; got != nasty {
		t.Errorf("the title is %q", got)
	}
}

func TestWhatIsUnsettledIsWhatNobodyAnswered(t *testing.T) {
	run := report.Run{Cut: 64, ByAnswer: map[string]int64{
		"201": 9, "503 overloaded": 5, "409 out_trade_no_reused": 3, "504 outcome_unknown": 2, "500": 1,
		report.NoAnswer: 3, report.Timeout: 1, report.OtherAnswer: 4,
	}}
	if n := run.Unsettled(); n != 75 {
		t.Errorf("%d", n)
	}
}
