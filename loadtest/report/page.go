package report

import (
	_ "embed" // the page
	"fmt"
	"html/template"
	"io"
	"strings"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// HTML writes the document as one page that needs nothing else: no network, no other
// file, no script. It says first what is to be believed.
func (d Document) HTML(w io.Writer) error {
	type run struct {
		Run
		Heading string
		Facts   [][2]string
		Charts  []chart
		Table   table
		Open    bool
	}
	type set struct {
		Name   string
		Tables []table
		Dots   []dotLine
		// DotsHeight is that of their drawing.
		DotsHeight int
	}
	view := struct {
		Document
		When    string
		Verdict Sentence
		Bad     []string // what is wrong with which run
		Sets    []set
		Shown   []run
	}{Document: d, When: d.Started.UTC().Format("2006-01-02 15:04 UTC"), Verdict: d.verdict()}
	all := d.all()
	for _, r := range all {
		// Where there are many, only those that stand alone or failed are unfolded.
		v := run{Run: r, Heading: r.heading(), Facts: r.facts(), Charts: r.charts(), Table: r.seconds(), Open: len(all) == 1 || r.Fails()}
		view.Shown = append(view.Shown, v)
		for _, s := range r.Verdict() {
			if s.Bad && len(all) > 1 {
				view.Bad = append(view.Bad, v.Heading+": "+s.Text)
			}
		}
	}
	for _, s := range d.Sets {
		dots := s.dots()
		view.Sets = append(view.Sets, set{s.Name, s.tables(), dots, len(dots) * dotsHeight})
	}
	var b strings.Builder
	if err := page.Execute(&b, view); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// seconds returns the figures behind the drawings.
func (r Run) seconds() table {
	t := table{Head: []string{"second", "due", "sent", "answered with success", "answers", "p50 ms", "p99 ms", "max ms", "orders in a transaction", "mirror lag s"}}
	optional := func(x *float64) cell {
		if x == nil {
			return cell{Text: none}
		}
		return cell{Text: figure(*x)}
	}
	for _, s := range r.Seconds {
		var p50, p99, most *float64
		if s.LatencyMs != nil {
			p50, p99, most = &s.LatencyMs.P50, &s.LatencyMs.P99, &s.LatencyMs.Max
		}
		due, sent := cell{Text: none}, cell{Text: none}
		if r.Loop == Open {
			due, sent = cell{Text: count(s.Offered)}, cell{Text: count(s.Sent)}
		}
		t.Rows = append(t.Rows, []cell{{Text: fmt.Sprint(s.At)}, due, sent, {Text: count(succeeded(s.ByAnswer))},
			{Text: counts(s.ByAnswer)}, optional(p50), optional(p99), optional(most), optional(s.LaneBatch), optional(s.MirrorLagSec)})
	}
	return t
}

// A dotLine is a target's answers per second, a dot for each valid run.
type dotLine struct {
	Target string
	Label  string   // its median
	Median string   // the place of it
	Dots   []string // places

	Y, Top, Bottom, TextY, LabelY int
}

const (
	dotsLeft, dotsRight = 8, 560 // of a drawing of 720
	dotsHeight          = 40     // of one target
)

// dots shows how far the runs of each target lie apart.
func (s Set) dots() (lines []dotLine) {
	most := 0.0
	rows := s.Compare()
	for _, row := range rows {
		most = max(most, row.PerSecond.Max)
	}
	if most <= 0 {
		return nil
	}
	at := func(x float64) string { return coordinate(dotsLeft + x/most*(dotsRight-dotsLeft)) }
	for _, row := range rows {
		if row.PerSecond.N == 0 {
			continue
		}
		y := len(lines)*dotsHeight + 28
		line := dotLine{Target: row.Target, Label: figure(row.PerSecond.Median) + "/s", Median: at(row.PerSecond.Median),
			Y: y, Top: y - 8, Bottom: y + 8, TextY: y - 12, LabelY: y + 5}
		for _, round := range s.Rounds {
			for _, r := range round {
				if r.Target == row.Target && !r.Fails() && known(r.PerSecond) {
					line.Dots = append(line.Dots, at(r.PerSecond))
				}
			}
		}
		lines = append(lines, line)
	}
	return lines
}
