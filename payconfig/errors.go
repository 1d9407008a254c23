package payconfig

import (
	"errors"
	"fmt"
	"strings"
)

// ErrTooLarge reports a text of more than TextMax bytes. It was not looked at.
var ErrTooLarge = errors.New("payconfig: the text is larger than 8 MiB")

// A SyntaxError is a text that can't be read at all: no JSON object, bytes after it, a
// name that is there twice, nesting too deep. It quotes nothing of the text.
type SyntaxError struct {
	Offset int64  // bytes before the place
	Path   string // of a name that is there twice, as in a Fault; else ""
	Reason string
}

func (e *SyntaxError) Error() string {
	if e.Path != "" {
		return fmt.Sprintf("payconfig: %s %s", e.Path, e.Reason)
	}
	return fmt.Sprintf("payconfig: byte %d: %s", e.Offset, e.Reason)
}

// An InvalidError is a text that can be read and is no valid config. It has at least
// one fault.
type InvalidError struct {
	Faults []Fault // the first faultsMax, in the order of the text
	More   int     // that were found and aren't listed
}

// faultsMax bounds the faults that are listed.
const faultsMax = 100

func (e *InvalidError) Error() string {
	faults := make([]string, 0, len(e.Faults)+1)
	for _, f := range e.Faults {
		faults = append(faults, f.String())
	}
	if e.More > 0 {
		faults = append(faults, fmt.Sprintf("and %d more", e.More))
	}
	return "payconfig: the config is not valid: " + strings.Join(faults, "; ")
}

// A Fault is a rule that a value breaks.
type Fault struct {
	// Path leads to the value, such as merchants[3].currencies[0]; "" is the whole
	// config. It is made of names that we know and of numbers, from 0 on, and ends with
	// an unknown field's name only where that reads like one.
	Path string
	Rule Rule
	// Text says what must be, in constant words: a value is never repeated.
	Text string
}

func (f Fault) String() string {
	if f.Path == "" {
		return "it " + f.Text
	}
	return f.Path + " " + f.Text
}

// A Rule is a kind of fault, in the words of the HTTP contract.
type Rule string

// The rules.
const (
	Required     Rule = "required"
	Unknown      Rule = "unknown"
	Duplicate    Rule = "duplicate"
	WrongType    Rule = "wrong_type"
	OutOfRange   Rule = "out_of_range"
	TooShort     Rule = "too_short"
	TooLong      Rule = "too_long"
	BadFormat    Rule = "bad_format"
	BadCharacter Rule = "bad_character"
	Unsupported  Rule = "unsupported"
)
