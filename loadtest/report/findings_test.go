package report_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/octopay/octopay/loadtest/report"
)

// What a document found beside its figures is wherever the document is.
func TestFindingsAreSaidEverywhere(t *testing.T) {
	d := document()
	d.Findings = []report.Sentence{{Text: "goroutines: steady & < 5 %"}, {Bad: true, Text: "RSS of orderd: rises"}}
	for name, write := range map[string]func(io.Writer) error{"markdown": d.Markdown, "text": d.Text, "page": d.HTML} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"goroutines: steady", "RSS of orderd: rises"} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s doesn't say %q", name, want)
			}
		}
		if name == "page" && strings.Contains(b.String(), "& <") {
			t.Error("the page isn't escaped")
		}
		if name == "markdown" && !strings.Contains(b.String(), "- **RSS of orderd: rises**") {
			t.Error("markdown says what is bad as it says the rest")
		}
	}
	var b bytes.Buffer
	if err := d.JSON(&b); err != nil {
		t.Fatal(err)
	}
	back, err := report.Read(&b)
	if err != nil || len(back.Findings) != 2 || back.Findings[1] != d.Findings[1] {
		t.Errorf("%+v, %v", back.Findings, err)
	}
}

// Valid isn't checked: it says of how many runs somebody looked at what they stored.
func TestHowManyWereCheckedIsSaid(t *testing.T) {
	run := report.Run{Offered: 1, Sent: 1, ByAnswer: map[string]int64{"201": 1}}
	checked := run
	checked.Check = &report.Check{Acknowledged: 1, Found: 1}
	var b bytes.Buffer
	if err := (report.Document{Runs: []report.Run{run, checked, run}}).Text(&b); err != nil {
		t.Fatal(err)
	}
	if want := "All 3 runs are valid; what 1 of them stored was checked."; !strings.Contains(b.String(), want) {
		t.Errorf("it doesn't say %q:\n%s", want, &b)
	}
}
