package httpapi

import (
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/octopay/octopay/currency"
	"github.com/octopay/octopay/httpapi/problem"
)

// This is the contract's rule of bodies written a second time, as simply as it can be: a
// tree of the JSON, a table of fields, regular expressions. Fuzz tests compare.

// A node is a value of JSON: kind is one of { [ " 0 t f n.
type node struct {
	kind  byte
	text  string // a string's characters, a number's literal
	names []string
	items []node
}

// A reading reads JSON by recursive descent.
type reading struct {
	rest string
	bad  bool
}

// readJSON returns the tree of a text that is one object, and false for any other, for a
// name that comes twice, and for more than eight levels.
func readJSON(text []byte) (node, bool) {
	if !utf8.Valid(text) {
		return node{}, false
	}
	r := &reading{rest: string(text)}
	n := r.value(0)
	r.space()
	return n, !r.bad && r.rest == "" && n.kind == '{'
}

func (r *reading) space() { r.rest = strings.TrimLeft(r.rest, " \t\r\n") }

func (r *reading) fail() node {
	r.bad, r.rest = true, ""
	return node{}
}

// take takes a byte, after white space.
func (r *reading) take(c byte) bool {
	r.space()
	if r.rest == "" || r.rest[0] != c {
		return false
	}
	r.rest = r.rest[1:]
	return true
}

var literalForm = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?`)

func (r *reading) value(depth int) node {
	r.space()
	switch {
	case r.rest == "":
		return r.fail()
	case r.rest[0] == '"':
		return node{kind: '"', text: r.text()}
	case r.take('['):
		n := node{kind: '['}
		if depth++; depth > 8 {
			return r.fail()
		}
		if r.take(']') {
			return n
		}
		for !r.bad {
			n.items = append(n.items, r.value(depth))
			if r.take(']') {
				return n
			}
			if !r.take(',') {
				return r.fail()
			}
		}
		return n
	case r.take('{'):
		n := node{kind: '{'}
		if depth++; depth > 8 {
			return r.fail()
		}
		if r.take('}') {
			return n
		}
		seen := map[string]bool{}
		for !r.bad {
			if r.space(); r.rest == "" || r.rest[0] != '"' {
				return r.fail()
			}
			name := r.text()
			if seen[name] || !r.take(':') {
				return r.fail()
			}
			seen[name] = true
			n.names = append(n.names, name)
			n.items = append(n.items, r.value(depth))
			if r.take('}') {
				return n
			}
			if !r.take(',') {
				return r.fail()
			}
		}
		return n
	}
	for _, word := range []string{"true", "false", "null"} {
		if strings.HasPrefix(r.rest, word) {
			r.rest = r.rest[len(word):]
			return node{kind: word[0]}
		}
	}
	literal := literalForm.FindString(r.rest)
	if literal == "" {
		return r.fail()
	}
	r.rest = r.rest[len(literal):]
	return node{kind: '0', text: literal}
}

// text reads a string.
func (r *reading) text() string {
	var b strings.Builder
	s := r.rest[1:]
	unit := func() (rune, bool) {
		if len(s) < 6 || s[:2] != `\u` {
			return 0, false
		}
		v, err := strconv.ParseUint(s[2:6], 16, 32)
		if err != nil {
			return 0, false
		}
		s = s[6:]
		return rune(v), true
	}
	for s != "" {
		c, size := utf8.DecodeRuneInString(s)
		switch {
		case c == '"':
			r.rest = s[1:]
			return b.String()
		case c < ' ':
			r.fail()
			return ""
		case c != '\\':
			b.WriteRune(c)
			s = s[size:]
			continue
		}
		if first, ok := unit(); ok {
			if first >= 0xd800 && first < 0xe000 {
				second, ok := unit()
				if !ok || first >= 0xdc00 || second < 0xdc00 || second >= 0xe000 {
					r.fail()
					return ""
				}
				first = 0x10000 + (first-0xd800)<<10 + second - 0xdc00
			}
			b.WriteRune(first)
			continue
		}
		i := -1
		if len(s) > 1 {
			i = strings.IndexByte(`"\/bfnrt`, s[1])
		}
		if i < 0 {
			r.fail()
			return ""
		}
		b.WriteByte("\"\\/\b\f\n\r\t"[i])
		s = s[2:]
	}
	r.fail()
	return ""
}

// A rule says whether a field's value is right.
type rule func(node) bool

// A described is the fields of an object of the contract; the required ones by their names.
type described struct {
	rules    map[string]rule
	required string
}

// A form is what a whole text looks like.
func form(text string) *regexp.Regexp { return regexp.MustCompile(`^(?:` + text + `)$`) }

var (
	integerForm  = form(`-?(0|[1-9][0-9]*)`)
	keyForm      = form(`[1-9][0-9]*`)
	numberForm   = form(`[0-9A-Za-z_.:|*][0-9A-Za-z_.:|*-]{0,63}`)
	currencyForm = form(`[A-Z]{3}`)
	pairForm     = form(`[A-Za-z0-9_.-]{1,40}`)
	timeForm     = form(`(\d{4})-(\d\d)-(\d\d)T([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)`)
)

func within(literal, least, most string) bool {
	v, ok1 := new(big.Int).SetString(literal, 10)
	low, ok2 := new(big.Int).SetString(least, 10)
	high, ok3 := new(big.Int).SetString(most, 10)
	return ok1 && ok2 && ok3 && v.Cmp(low) >= 0 && v.Cmp(high) <= 0
}

func ruleInteger(least, most string) rule {
	return func(n node) bool {
		return n.kind == '0' && integerForm.MatchString(n.text) && within(n.text, least, most)
	}
}

func ruleKey(n node) bool {
	return (n.kind == '"' || n.kind == '0') && keyForm.MatchString(n.text) && within(n.text, "1", "9223372036854775807")
}

func ruleForm(of *regexp.Regexp) rule {
	return func(n node) bool { return n.kind == '"' && of.MatchString(n.text) }
}

func ruleRefundNumber(n node) bool {
	return ruleForm(numberForm)(n) && n.text != "." && n.text != ".."
}

func ruleText(least int) rule {
	return func(n node) bool {
		if n.kind != '"' || len([]rune(n.text)) < least || len([]rune(n.text)) > 256 {
			return false
		}
		for _, c := range n.text {
			if unicode.Is(unicode.Cc, c) || strings.ContainsRune("\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069", c) {
				return false
			}
		}
		return true
	}
}

func ruleCurrency(n node) bool { return ruleForm(currencyForm)(n) && currency.Active(n.text) }

func ruleTime(n node) bool {
	parts := timeForm.FindStringSubmatch(n.text)
	if n.kind != '"' || parts == nil {
		return false
	}
	var v [3]int
	for i := range v {
		v[i], _ = strconv.Atoi(parts[i+1])
	}
	day := time.Date(v[0], time.Month(v[1]), v[2], 0, 0, 0, 0, time.UTC)
	if v[1] < 1 || v[1] > 12 || day.Day() != v[2] || day.Month() != time.Month(v[1]) {
		return false
	}
	t, err := time.Parse(time.RFC3339Nano, n.text)
	return err == nil && t.UTC().Year() >= 1970 && t.UTC().Year() <= 9999 && t.UnixMilli() != 0
}

func ruleMetadata(n node) bool {
	if n.kind != '{' || len(n.names) > 16 {
		return false
	}
	for i, name := range n.names {
		if !pairForm.MatchString(name) || !ruleText(0)(n.items[i]) {
			return false
		}
	}
	return true
}

var (
	ruleAmount     = ruleInteger("1", "9007199254740991")
	describedOrder = described{map[string]rule{
		"uid": ruleKey, "bid": ruleKey, "out_trade_no": ruleForm(numberForm), "amount": ruleAmount, "currency": ruleCurrency,
		"subject": ruleText(1), "metadata": ruleMetadata, "expires_in": ruleInteger("60", "86400"),
	}, "uid bid out_trade_no amount currency subject"}
)

// describedBodies are the bodies of the contract but for the batch, by call.
var describedBodies = map[string]described{
	"POST /v1/orders": describedOrder,
	"POST /v1/orders/{order_id}/pay": {map[string]rule{
		"channel": ruleForm(form(`[a-z0-9_]{1,32}`)), "channel_trade_no": ruleForm(numberForm), "amount": ruleAmount, "currency": ruleCurrency, "paid_at": ruleTime,
	}, "channel channel_trade_no amount currency"},
	"POST /v1/orders/{order_id}/close": {map[string]rule{"reason": ruleForm(form("merchant|buyer"))}, ""},
	"POST /v1/orders/{order_id}/refunds": {map[string]rule{
		"out_refund_no": ruleRefundNumber, "amount": ruleAmount, "reason": ruleText(1),
	}, "out_refund_no amount"},
	"POST /v1/orders/{order_id}/refunds/{out_refund_no}/result": {map[string]rule{
		"result": ruleForm(form("succeeded|failed")), "channel_refund_no": ruleForm(numberForm), "out_refund_no": ruleForm(form("r")), // see targetOf
	}, "result"},
	"POST /v1/orders/{order_id}/unapplied-payments/{seq}/refund": {map[string]rule{
		"out_refund_no": ruleRefundNumber, "reason": ruleText(1),
	}, "out_refund_no"},
	"POST /v1/orders/{order_id}/unapplied-payments/{seq}/void": {map[string]rule{"reason": ruleText(1)}, "reason"},
}

// faulty returns the names of the faulty fields of an object, and whether some are faulty
// in another way than by being unknown.
func (d described) faulty(n node) (names map[string]bool, known bool) {
	names = map[string]bool{}
	for i, name := range n.names {
		is, ok := d.rules[name]
		switch {
		case !ok:
			shown := problem.FieldName(name, "body")
			if strings.HasPrefix(shown, "metadata.") { // reads like a pair of it
				shown = "metadata"
			}
			names[shown] = true
		case !is(n.items[i]):
			names[name], known = true, true
		}
	}
	for name := range strings.FieldsSeq(d.required) {
		found := false
		for _, given := range n.names {
			found = found || given == name
		}
		if !found {
			names[name], known = true, true
		}
	}
	return names, known
}
