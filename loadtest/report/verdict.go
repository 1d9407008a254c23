package report

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/octopay/octopay/loadtest/traffic"
)

// A Sentence is one thing that a run's judgement says, in plain words.
type Sentence struct {
	Bad     bool   `json:"bad,omitempty"`     // the run is invalid, or its check failed
	Unknown bool   `json:"unknown,omitempty"` // nobody looked
	Text    string `json:"text"`
}

// Succeeded returns how many answers were of success.
func (r Run) Succeeded() int64 { return succeeded(r.ByAnswer) }

// PerRequest is what Run.PerRequest is of a plan.
func PerRequest(p *traffic.Plan) int {
	if n := p.PerRequest(); n > 1 {
		return n
	}
	return 0
}

// Unsettled returns of how many orders nobody learned whether they were written: their
// requests have no answer, or one that doesn't say that nothing was written. So many may be
// stored that were never acknowledged.
func (r Run) Unsettled() int64 {
	each := int64(max(1, r.PerRequest))
	n := r.Cut*each + r.UnsettledBefore
	for answer, count := range r.ByAnswer {
		// An order of a batch has an answer of its own.
		item, isItem := strings.CutPrefix(answer, traffic.ItemAnswer)
		if answer = item; !isItem {
			count *= each
		}
		// A 503 wrote nothing, and neither did what was never sent. What else has no
		// status may hide anything.
		if answer == NotConnected || strings.HasPrefix(answer, "2") || strings.HasPrefix(answer, "4") || strings.HasPrefix(answer, "503") {
			continue
		}
		n += count
	}
	return n
}

// Valid reports whether the run's figures mean anything.
func (r Run) Valid() bool { return len(r.Invalid) == 0 }

// Fails reports whether the run is invalid or its check failed.
func (r Run) Fails() bool { return !r.Valid() || r.Check != nil && r.Check.Fails() }

// Verdict says in plain words whether the figures of a run mean anything, and whether
// every order that was acknowledged is there. It is read before any figure.
func (r Run) Verdict() []Sentence {
	return []Sentence{r.validity(), r.checked()}
}

func (r Run) validity() Sentence {
	if !r.Valid() {
		return Sentence{Bad: true, Text: "INVALID: the figures of this run mean nothing. " + capital(strings.Join(r.Invalid, "; ")) + "."}
	}
	if r.Loop != Open {
		return Sentence{Text: fmt.Sprintf("Valid: %s requests were sent, the next when one before was answered.", count(r.Sent))}
	}
	return Sentence{Text: fmt.Sprintf("Valid: %s of %s requests that were due were sent, 99 %% of them at most %s ms late.",
		count(r.Sent), count(r.Offered), figure(r.LagMs.P99))}
}

func (r Run) checked() Sentence {
	c := r.Check
	if c == nil {
		return Sentence{Unknown: true, Text: "Not checked: nobody compared what is stored with what was acknowledged."}
	}
	mirror := "; the mirror was not looked at"
	if c.Mirror {
		mirror = ", and the mirror has the same"
	}
	open := ""
	if c.Open > 0 {
		open = fmt.Sprintf(" %s more are stored whose answer never arrived, which is allowed.", count(c.Open))
	}
	if !c.Fails() {
		if c.Acknowledged == 0 {
			return Sentence{Text: "Checked: no order was acknowledged, and none is wrong" + mirror + "." + open}
		}
		return Sentence{Text: fmt.Sprintf("Checked: each of the %s acknowledged orders is stored once, as it was sent%s.%s", count(c.Acknowledged), mirror, open)}
	}
	var wrong []string
	for _, w := range []struct {
		n    int
		what string
	}{{c.Missing, "missing"}, {c.Doubled, "doubled"}, {c.Wrong, "wrong"}, {c.Unequal, "unequal in the mirror"}} {
		if w.n > 0 {
			wrong = append(wrong, count(w.n)+" "+w.what)
		}
	}
	if c.Behind != "" {
		wrong = append(wrong, c.Behind)
	}
	text := fmt.Sprintf("THE CHECK FAILED: %s. %s orders were acknowledged, %s of them found.", strings.Join(wrong, ", "), count(c.Acknowledged), count(c.Found))
	if len(c.Named) > 0 {
		text += " " + strings.Join(c.Named, ", ") + "."
	}
	return Sentence{Bad: true, Text: text + open}
}

func succeeded(byAnswer map[string]int64) (n int64) {
	for answer, k := range byAnswer {
		if answer != "" && answer[0] == '2' {
			n += k
		}
	}
	return n
}

// count writes a number with a comma between thousands.
func count[N int | int64](n N) string {
	digits := strconv.FormatInt(int64(n), 10)
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// figure writes a measured number with three digits that mean something, and whole
// numbers above that whole.
func figure(x float64) string {
	switch a := max(x, -x); {
	case a == 0:
		return "0"
	case !(a < 1e15): // also infinite, and not a number
		return strconv.FormatFloat(x, 'g', 3, 64)
	case a >= 99.95:
		return count(int64(x + 0.5))
	case a >= 9.995:
		return strconv.FormatFloat(x, 'f', 1, 64)
	case a >= 0.001:
		return strconv.FormatFloat(x, 'f', 2, 64)
	}
	return strconv.FormatFloat(x, 'g', 2, 64)
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
