package report

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// A Failure is how requests failed that have no status, or one that isn't believed.
type Failure struct {
	Answer string `json:"answer"` // under which they are counted: Timeout, NoAnswer, NotConnected, NotAnOrder
	Kind   string `json:"kind"`   // such as "connection reset by peer"
	Count  int64  `json:"count"`
	First  string `json:"first,omitempty"` // what the first of them said
}

// Failures are counted by kind, of which there are failuresMax at most, and one for all
// others.
type Failures []Failure

const (
	failuresMax = 16
	kindMax     = 80  // bytes
	firstMax    = 300 // bytes
	otherKind   = "other"
)

// Add counts n failures. The text is kept of the first of its kind.
func (f *Failures) Add(answer, kind, text string, n int64) {
	kind = cut(kind, kindMax)
	find := func() *Failure {
		for i := range *f {
			if one := &(*f)[i]; one.Answer == answer && one.Kind == kind {
				return one
			}
		}
		return nil
	}
	one := find()
	if one == nil && len(*f) >= failuresMax {
		kind = otherKind
		one = find()
	}
	if one == nil {
		*f = append(*f, Failure{Answer: answer, Kind: kind, First: cut(text, firstMax)})
		one = &(*f)[len(*f)-1]
	}
	one.Count += n
}

// of returns those that are counted under an answer.
func (f Failures) of(answer string) (some Failures) {
	for _, one := range f {
		if one.Answer == answer {
			some = append(some, one)
		}
	}
	return some
}

// String says how many of each kind there are, and what the first said.
func (f Failures) String() string {
	var parts []string
	for _, one := range f {
		part := fmt.Sprintf("%s × %s", count(one.Count), one.Kind)
		if one.First != "" && one.First != one.Kind {
			part += " (the first: " + one.First + ")"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

// Doubts returns why the figures mean nothing that hold for any loop.
func (r Run) Doubts() (why []string) {
	switch {
	case r.Sent == 0:
		return []string{"nothing was sent"}
	case r.Succeeded() == 0:
		doubt := "no request succeeded"
		if len(r.ByAnswer) > 0 {
			doubt += "; the answers were " + counts(r.ByAnswer)
		}
		if len(r.Failures) > 0 {
			doubt += ": " + r.Failures.String()
		}
		why = append(why, doubt)
	}
	if n := r.ByAnswer[NotAnOrder]; n > 0 {
		doubt := fmt.Sprintf("%s answers of success were not what was asked for, so nobody knows what is stored: %s",
			count(n), r.Failures.of(NotAnOrder))
		why = append(why, doubt)
	}
	return why
}

// EndedEarly says that a run ended before its time.
func EndedEarly(after, of float64) string {
	return fmt.Sprintf("it ended early, after %.1f s of %g s", after, of)
}

// cut returns the beginning of a text, in whole characters.
func cut(text string, most int) string {
	text = strings.ToValidUTF8(text, "�")
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}
