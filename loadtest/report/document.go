package report

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// A Document is all that one command measured.
type Document struct {
	Title    string     `json:"title"`
	Started  time.Time  `json:"started"`
	Machine  string     `json:"machine"`            // such as "virtual, AMD EPYC, 2 cores, 23 GiB, Linux 6.18"
	Versions []string   `json:"versions"`           // of the compiler, the engines, and the commit
	Command  string     `json:"command"`            // that makes it again
	Findings []Sentence `json:"findings,omitempty"` // what it comes to beside the figures of its runs
	Sets     []Set      `json:"sets,omitempty"`
	Runs     []Run      `json:"runs,omitempty"` // that stand alone
}

// Fails reports how many of its runs are invalid or failed their check, and of how many.
func (d Document) Fails() (failed, of int) {
	for _, r := range d.all() {
		of++
		if r.Fails() {
			failed++
		}
	}
	return failed, of
}

// all returns all runs: of the sets, in the order in which they ran, and the others.
func (d Document) all() (runs []Run) {
	for _, s := range d.Sets {
		for _, round := range s.Rounds {
			runs = append(runs, round...)
		}
	}
	return append(runs, d.Runs...)
}

// verdict says what is to be read before any figure.
func (d Document) verdict() Sentence {
	failed, of := d.Fails()
	switch {
	case of == 0:
		return Sentence{Bad: true, Text: "Nothing was measured."}
	case failed == 0 && of == 1:
		return Sentence{Text: "The run is valid."}
	case failed == 0:
		checked := 0
		for _, r := range d.all() {
			if r.Check != nil {
				checked++
			}
		}
		return Sentence{Text: fmt.Sprintf("All %d runs are valid; what %d of them stored was checked.", of, checked)}
	case of == 1:
		return Sentence{Bad: true, Text: "The run is invalid or its check failed: don't use its figures."}
	}
	return Sentence{Bad: true, Text: fmt.Sprintf("%d of %d runs are invalid or failed their check: they are left out of all comparisons.", failed, of)}
}

// JSON writes the document with all that it was made of, and what its sets come to.
// It fails when a figure is not a number.
func (d Document) JSON(w io.Writer) error {
	type compared struct {
		Set
		Compared []Row `json:"compared"` // made of the rounds; Read leaves it alone
	}
	out := struct {
		Document
		Sets []compared `json:"sets,omitempty"` // in place of Document's
	}{Document: d}
	for _, s := range d.Sets {
		out.Sets = append(out.Sets, compared{s, s.Compare()})
	}
	text, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

// Read reads a document that JSON wrote.
func Read(r io.Reader) (Document, error) {
	var d Document
	if err := json.NewDecoder(r).Decode(&d); err != nil {
		return Document{}, fmt.Errorf("report: %w", err)
	}
	return d, nil
}
