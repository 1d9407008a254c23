package httpapi

import (
	"net/url"
	"slices"
	"strings"
)

// A param is one query parameter.
type param struct {
	value string // "" when it wasn't sent, or is faulty already
	times int
}

// query reads the query parameters of these names, in their order. Any other name, a
// name twice and an empty value are faults. A call that takes none gives no names.
func (c *call) query(f *faults, names ...string) []param {
	params := make([]param, len(names))
	if c.r.URL.RawQuery == "" {
		return params
	}
	for pair := range strings.SplitSeq(c.r.URL.RawQuery, "&") {
		rawName, rawValue, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(rawName)
		i := slices.Index(names, name)
		if err != nil || i < 0 {
			f.unknown([]byte(name), "query")
			continue
		}
		p := &params[i]
		p.times++
		if p.times > 1 {
			if p.value = ""; p.times == 2 {
				f.add(name, flawRepeated)
			}
			continue
		}
		value, err := url.QueryUnescape(rawValue)
		switch {
		case err != nil:
			f.add(name, flawEscape)
		case value == "":
			f.add(name, flawEmpty)
		default:
			p.value = value
		}
	}
	return params
}

// readParam reads p with parse, which is called only for a value. What it finds wrong
// is added to f under the name.
func readParam[T any](f *faults, name string, p param, parse func(string) (T, flaw)) (v T) {
	if p.value == "" {
		return v
	}
	v, w := parse(p.value)
	if w.bad() {
		f.add(name, w)
	}
	return v
}

// require adds a fault for a parameter that wasn't sent.
func require(f *faults, name string, p param) {
	if p.times == 0 {
		f.add(name, flawMissing)
	}
}

// parseNumber reads a number given by others.
func parseNumber(s string) (string, flaw) { return s, checkNumber(s) }

// refuseBody adds a fault for a body where none belongs.
func (c *call) refuseBody(f *faults) {
	if c.r.ContentLength != 0 {
		f.add("body", flawNoBody)
	}
}
