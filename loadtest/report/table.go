package report

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A table is shown in the terminal, as markdown and in the page. Its first column is
// words, the others are figures.
type table struct {
	Title string
	Head  []string
	Rows  [][]cell
}

type cell struct {
	Text string
	Bad  bool
}

// none stands where nothing was measured.
const none = "–"

// tables returns what the set comes to: speeds, and CPU where it was measured.
func (s Set) tables() []table {
	rows := s.Compare()
	speed := table{Title: s.Name, Head: []string{"target", "runs", "answers/s"}}
	cpu := table{Title: "CPU for each answer of success, µs", Head: []string{"target"}}
	names := map[string]float64{}
	others := false // the answers that were not of success are worth a column
	for _, row := range rows {
		others = others || row.Other.Max > 0
		for program := range row.CPUMicros {
			names[program] = 0
		}
	}
	all := programs([]Run{{CPUSec: names}})
	cpu.Head = append(cpu.Head, all...)
	if others {
		speed.Head = append(speed.Head, "other answers %")
	}
	for _, b := range s.Baselines {
		speed.Head = append(speed.Head, "× "+b)
		cpu.Head = append(cpu.Head, "× "+b)
	}
	speed.Head = append(speed.Head, "p50 ms", "p99 ms", "p99.9 ms", "max ms")
	for _, row := range rows {
		runs := cell{Text: fmt.Sprint(row.Runs)}
		if row.Invalid > 0 {
			runs = cell{fmt.Sprintf("%s, %d INVALID", runs.Text, row.Invalid), true}
		}
		if row.Failed > 0 {
			runs = cell{fmt.Sprintf("%s, %d FAILED", runs.Text, row.Failed), true}
		}
		of := []cell{{Text: row.Target}, runs, {Text: row.PerSecond.String()}}
		if others {
			of = append(of, cell{Text: row.Other.String()})
		}
		ofCPU := []cell{{Text: row.Target}}
		for _, program := range all {
			ofCPU = append(ofCPU, cell{Text: row.CPUMicros[program].String()})
		}
		for _, b := range s.Baselines {
			of = append(of, cell{Text: ratio(row, b, row.Ratio)})
			ofCPU = append(ofCPU, cell{Text: ratio(row, b, row.CPURatio)})
		}
		for _, q := range []float64{row.LatencyMs.P50, row.LatencyMs.P99, row.LatencyMs.P999, row.LatencyMs.Max} {
			text := none
			if row.PerSecond.N > 0 && row.LatencyMs != (Quantiles{}) {
				text = figure(q)
			}
			of = append(of, cell{Text: text})
		}
		speed.Rows, cpu.Rows = append(speed.Rows, of), append(cpu.Rows, ofCPU)
	}
	if len(all) == 0 {
		return []table{speed}
	}
	return []table{speed, cpu}
}

func ratio(row Row, baseline string, of map[string]Spread) string {
	if row.Target == baseline && row.PerSecond.N > 0 {
		return "1"
	}
	return of[baseline].String()
}

// String writes the median, and in brackets the least and the greatest.
func (s Spread) String() string {
	switch s.N {
	case 0:
		return none
	case 1:
		return figure(s.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", figure(s.Median), figure(s.Min), figure(s.Max))
}

// markdown writes the table so that people can read it unrendered, too.
func (t table) markdown(w io.Writer) {
	lines := make([][]string, 0, len(t.Rows)+1)
	lines = append(lines, slices.Clone(t.Head))
	for _, row := range t.Rows {
		line := make([]string, len(row))
		for i, c := range row {
			line[i] = c.Text
		}
		lines = append(lines, line)
	}
	width := make([]int, len(t.Head))
	for _, line := range lines {
		for i, text := range line {
			line[i] = inMarkdown(text)
			width[i] = max(width[i], utf8.RuneCountInString(line[i]), 3)
		}
	}
	for n, line := range lines {
		for i, text := range line {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(text))
			if i > 0 {
				text, pad = pad+text, ""
			}
			fmt.Fprintf(w, "| %s%s ", text, pad)
		}
		fmt.Fprintln(w, "|")
		if n > 0 {
			continue
		}
		for i, k := range width {
			rule := strings.Repeat("-", k+1)
			if i == 0 {
				fmt.Fprintf(w, "|%s-", rule)
			} else {
				fmt.Fprintf(w, "|%s:", rule)
			}
		}
		fmt.Fprintln(w, "|")
	}
}

// inMarkdown returns text as markdown that shows it.
func inMarkdown(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`, "`", "\\`").Replace(line(text))
}

// line returns text on one line, without what would move a terminal's cursor.
func line(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// Markdown writes the document as it is kept among results: verdict, what was compared,
// and how to make it again. Lone runs are a line each.
func (d Document) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s, %s\n\n", inMarkdown(d.Title), d.Started.UTC().Format("2006-01-02"))
	v := d.verdict()
	fmt.Fprintf(&b, "%s\n", bold(v.Bad, v.Text))
	for _, r := range d.all() {
		for _, s := range r.Verdict() {
			if s.Bad {
				fmt.Fprintf(&b, "\n- %s: **%s**", inMarkdown(r.heading()), inMarkdown(s.Text))
			}
		}
	}
	if v.Bad {
		fmt.Fprintln(&b)
	}
	if len(d.Findings) > 0 {
		fmt.Fprintln(&b)
		for _, f := range d.Findings {
			fmt.Fprintf(&b, "- %s\n", bold(f.Bad, inMarkdown(f.Text)))
		}
	}
	for _, s := range d.Sets {
		tables := s.tables()
		fmt.Fprintf(&b, "\n## %s\n", inMarkdown(s.Name))
		for i, t := range tables {
			if i > 0 {
				fmt.Fprintf(&b, "\n%s:\n", t.Title)
			}
			fmt.Fprintln(&b)
			t.markdown(&b)
		}
	}
	if len(d.Runs) > 0 {
		fmt.Fprint(&b, "\n## Runs\n\n")
		table{Head: []string{"run", "answers/s", "p50 ms", "p99 ms", "p99.9 ms", "max ms", "verdict"}, Rows: lone(d.Runs)}.markdown(&b)
	}
	if len(d.Sets) > 0 {
		fmt.Fprint(&b, "\nMedians, with the least and the greatest in brackets. A ratio is taken within a round, in which\nall targets ran one after the other, and then the median of the rounds.\n")
	}
	fmt.Fprintf(&b, "\n- machine: %s\n- versions: %s\n- command: `%s`\n", inMarkdown(d.Machine), inMarkdown(strings.Join(d.Versions, ", ")), line(d.Command))
	_, err := io.WriteString(w, b.String())
	return err
}

func lone(runs []Run) (rows [][]cell) {
	for _, r := range runs {
		verdict := "valid"
		switch {
		case !r.Valid():
			verdict = "INVALID"
		case r.Fails():
			verdict = "CHECK FAILED"
		case r.Check == nil:
			verdict = "valid, not checked"
		}
		q := r.LatencyMs
		rows = append(rows, []cell{{Text: r.heading()}, {Text: figure(r.PerSecond)}, {Text: figure(q.P50)}, {Text: figure(q.P99)},
			{Text: figure(q.P999)}, {Text: figure(q.Max)}, {verdict, r.Fails()}})
	}
	return rows
}

func bold(yes bool, text string) string {
	if yes {
		return "**" + text + "**"
	}
	return text
}

// heading says which run it is.
func (r Run) heading() string {
	parts := []string{r.Scenario, r.Target, r.Generator, strconv.FormatFloat(math.Round(r.DurationSec*10)/10, 'f', -1, 64) + " s"}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}

// facts are the figures of a run, by name.
func (r Run) facts() (facts [][2]string) {
	add := func(name, text string) { facts = append(facts, [2]string{name, text}) }
	add("answers of success", figure(r.PerSecond)+"/s")
	add("answers", counts(r.ByAnswer))
	for _, answer := range []string{NotAnOrder, NoAnswer, NotConnected, Timeout} {
		if some := r.Failures.of(answer); len(some) > 0 {
			add(answer, some.String())
		}
	}
	if r.LatencyMs != (Quantiles{}) {
		add("latency, ms", r.LatencyMs.String())
	}
	if r.Loop == Open {
		add("generator late, ms", r.LagMs.String())
	}
	requests := "sent " + count(r.Sent)
	if r.Loop == Open {
		requests = fmt.Sprintf("due %s, %s, dropped %s", count(r.Offered), requests, count(r.Dropped))
	}
	if r.PerRequest > 1 {
		requests += fmt.Sprintf(", of %d orders at most, each of which is an answer", r.PerRequest)
	}
	if r.Cut > 0 {
		requests += fmt.Sprintf(", cut off at the end %s", count(r.Cut))
	}
	if r.UnsettledBefore > 0 {
		requests += fmt.Sprintf(", without an outcome while warming up %s", count(r.UnsettledBefore))
	}
	add("requests", requests)
	var cpu []string
	for _, program := range programs([]Run{r}) {
		each := perAnswer(r, r.CPUSec[program])
		if !known(each) {
			continue
		}
		cpu = append(cpu, program+" "+figure(each))
	}
	if len(cpu) > 0 {
		add("CPU, µs per answer of success", strings.Join(cpu, ", "))
	}
	return facts
}

// String writes all of them, by name.
func (q Quantiles) String() string {
	return fmt.Sprintf("p50 %s, p90 %s, p99 %s, p99.9 %s, max %s", figure(q.P50), figure(q.P90), figure(q.P99), figure(q.P999), figure(q.Max))
}

func counts(byAnswer map[string]int64) string {
	var out []string
	for _, answer := range slices.Sorted(maps.Keys(byAnswer)) {
		out = append(out, answer+": "+count(byAnswer[answer]))
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}

// Text writes the document for a terminal: of the sets what they come to and what is
// wrong with a run, and the runs that stand alone.
func (d Document) Text(w io.Writer) error {
	var b strings.Builder
	for _, s := range d.Sets {
		for _, round := range s.Rounds {
			for _, r := range round {
				if r.Fails() {
					r.text(&b)
					fmt.Fprintln(&b)
				}
			}
		}
	}
	for _, r := range d.Runs {
		r.text(&b)
		fmt.Fprintln(&b)
	}
	for _, s := range d.Sets {
		for _, t := range s.tables() {
			fmt.Fprintf(&b, "%s\n\n", line(t.Title))
			t.markdown(&b)
			fmt.Fprintln(&b)
		}
	}
	for _, f := range d.Findings {
		fmt.Fprintln(&b, line(f.Text))
	}
	fmt.Fprintln(&b, d.verdict().Text)
	_, err := io.WriteString(w, b.String())
	return err
}

// text writes the run for a terminal: first whether to believe it.
func (r Run) text(b *strings.Builder) {
	fmt.Fprintf(b, "%s\n", line(r.heading()))
	for _, s := range r.Verdict() {
		fmt.Fprintf(b, "  %s\n", line(s.Text))
	}
	for _, f := range r.facts() {
		fmt.Fprintf(b, "  %-30s %s\n", f[0], line(f[1]))
	}
}
