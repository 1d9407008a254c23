package payconfig

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/octopay/octopay/currency"
)

// depthMax is how deep a text may nest.
const depthMax = 8

// A reason is why a text can't be read, where we found it and not jsontext.
type reason string

func (r reason) Error() string { return string(r) }

const (
	tooDeep   reason = "it is nested too deep"
	notObject reason = "it is not an object"
	tooLong   reason = "something follows the end of the object"
)

// Decode reads a config, in the form of Document or of Text, in any order and with any
// white space. It is strict: what is not known, is there twice, has another type, is
// null or follows the end is an error. Everything that is wrong is found at once.
//
// version and hash may be left out. A version is what Version then returns; a hash may
// be that of a text before it was edited, so it is not compared with anything.
//
// The error is ErrTooLarge, a *SyntaxError or an *InvalidError.
func Decode(text []byte) (*Snapshot, error) {
	if len(text) > TextMax {
		return nil, ErrTooLarge
	}
	d := decoder{dec: jsontext.NewDecoder(bytes.NewBuffer(text)), zones: map[string]bool{}, bids: map[int64]bool{}, channels: map[string]bool{}}
	if err := d.config(); err != nil {
		return nil, d.syntax(err)
	}
	if len(d.faults) == 0 {
		s := build(d.version, d.refuse, d.merchants, d.listed)
		if len(s.text) <= TextMax-headMax {
			return s, nil
		}
		d.fault(flawText)
	}
	return nil, &InvalidError{Faults: d.faults, More: d.more}
}

// A decoder reads one text. jsontext refuses what is not JSON, bytes that are not
// UTF-8, unpaired surrogates and duplicate names; the decoder refuses the rest. What it
// has read is valid if it has no faults.
type decoder struct {
	dec    *jsontext.Decoder
	text   []byte // scratch: an unescaped string
	path   []byte // to the value that is read
	faults []Fault
	more   int

	version   int64
	refuse    bool
	merchants []Merchant
	listed    []Channel
	zones     map[string]bool // what was found out; at most MerchantsMax
	bids      map[int64]bool
	channels  map[string]bool
}

// fault notes what is wrong with the value that is read.
func (d *decoder) fault(w flaw) {
	if len(d.faults) == faultsMax {
		d.more++
		return
	}
	d.faults = append(d.faults, Fault{Path: string(d.path), Rule: w.rule, Text: w.text})
}

// within calls f with the path to a field.
func (d *decoder) within(field string, f func() error) error {
	before := len(d.path)
	if before > 0 {
		d.path = append(d.path, '.')
	}
	d.path = append(d.path, field...)
	err := f()
	d.path = d.path[:before]
	return err
}

func (d *decoder) faultOf(field string, w flaw) {
	_ = d.within(field, func() error { d.fault(w); return nil })
}

// object reads an object whose fields have these names, the required ones first. read
// reads the value of one.
func (d *decoder) object(names []string, required int, read func(field string) error) error {
	if d.dec.PeekKind() != '{' {
		return d.other(flawNotObject)
	}
	if _, err := d.dec.ReadToken(); err != nil {
		return err
	}
	var seen [8]bool
	for d.dec.PeekKind() != '}' {
		name, err := d.string()
		if err != nil {
			return err
		}
		i := slices.Index(names, string(name))
		if i < 0 {
			if readsLikeAName(name) {
				d.faultOf(string(name), flawUnknown)
			} else {
				d.fault(flawNameless)
			}
			if err := d.skip(); err != nil {
				return err
			}
			continue
		}
		seen[i] = true
		if err := d.within(names[i], func() error { return read(names[i]) }); err != nil {
			return err
		}
	}
	if _, err := d.dec.ReadToken(); err != nil {
		return err
	}
	for i, name := range names[:required] {
		if !seen[i] {
			d.faultOf(name, flawMissing)
		}
	}
	return nil
}

// array reads an array of at most most entries, read each of them, and returns how many
// there are.
func (d *decoder) array(most int, tooMany flaw, read func() error) (n int, err error) {
	if d.dec.PeekKind() != '[' {
		return -1, d.other(flawNotArray)
	}
	if _, err := d.dec.ReadToken(); err != nil {
		return 0, err
	}
	before := len(d.path)
	for ; d.dec.PeekKind() != ']'; n++ {
		if n >= most {
			if n == most {
				d.fault(tooMany)
			}
			if err := d.skip(); err != nil {
				return n, err
			}
			continue
		}
		d.path = append(strconv.AppendInt(append(d.path, '['), int64(n), 10), ']')
		err := read()
		d.path = d.path[:before]
		if err != nil {
			return n, err
		}
	}
	_, err = d.dec.ReadToken()
	return n, err
}

func (d *decoder) config() error {
	if d.dec.PeekKind() != '{' {
		if _, err := d.dec.ReadToken(); err != nil {
			return err
		}
		return notObject
	}
	err := d.object([]string{"unknown_merchants", "merchants", "channels", "version", "hash"}, 3, func(field string) error {
		switch field {
		case "unknown_merchants":
			policy, err := d.textField(checkPolicy)
			d.refuse = policy == "refuse"
			return err
		case "merchants":
			_, err := d.array(MerchantsMax, flawMerchants, d.merchant)
			return err
		case "channels":
			_, err := d.array(ChannelsMax, flawChannels, d.channel)
			return err
		case "version":
			v, err := d.integer(0, versionMax, flawVersion)
			d.version = v
			return err
		}
		_, err := d.textField(checkHash)
		return err
	})
	if err != nil {
		return err
	}
	if _, err := d.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return tooLong
	}
	return nil
}

func (d *decoder) merchant() error {
	m := Merchant{Timezone: "UTC"}
	err := d.object([]string{"bid", "name", "enabled", "currencies", "rate", "timezone", "notify_url"}, 4, func(field string) (err error) {
		switch field {
		case "bid":
			m.BID, err = d.key()
		case "name":
			m.Name, err = d.textField(checkName)
		case "enabled":
			m.Enabled, err = d.bool()
		case "currencies":
			m.Currencies, err = d.currencies()
		case "rate":
			var rate int64
			rate, err = d.integer(1, RateMax, flawRate)
			m.Rate = int(rate)
		case "timezone":
			m.Timezone, err = d.textField(d.checkZone)
		case "notify_url":
			m.NotifyURL, err = d.textField(checkURL)
		}
		return err
	})
	d.merchants = append(d.merchants, m)
	return err
}

func (d *decoder) channel() error {
	var c Channel
	err := d.object([]string{"channel", "name", "enabled"}, 3, func(field string) (err error) {
		switch field {
		case "channel":
			c.Channel, err = d.textField(d.checkNewChannel)
		case "name":
			c.Name, err = d.textField(checkName)
		case "enabled":
			c.Enabled, err = d.bool()
		}
		return err
	})
	d.listed = append(d.listed, c)
	return err
}

func (d *decoder) currencies() (set currency.Set, err error) {
	n, err := d.array(currency.Count, flawCodes, func() error {
		code, err := d.textField(func(s []byte) flaw {
			if w := checkCurrency(s); w != fine || !set.Has(string(s)) {
				return w
			}
			return flawCodeTwice
		})
		set = set.With(code)
		return err
	})
	if n == 0 && err == nil {
		d.fault(flawNoCodes)
	}
	return set, err
}

// key reads a bid, a string or an integer, which no merchant before has.
func (d *decoder) key() (int64, error) {
	var s []byte
	var err error
	switch d.dec.PeekKind() {
	case '"':
		s, err = d.string()
	case '0':
		s, err = d.dec.ReadValue()
	default:
		return 0, d.other(flawKeyType)
	}
	if err != nil {
		return 0, err
	}
	v, w := parseKey(s)
	if w == fine && d.bids[v] {
		w = flawKeyTwice
	}
	if w != fine {
		d.fault(w)
		return 0, nil
	}
	d.bids[v] = true
	return v, nil
}

// checkNewChannel checks the name of a channel, which no entry before has.
func (d *decoder) checkNewChannel(s []byte) flaw {
	if w := checkChannel(s); w != fine {
		return w
	}
	if d.channels[string(s)] {
		return flawChannelTwice
	}
	d.channels[string(s)] = true
	return fine
}

// checkZone looks each zone up once.
func (d *decoder) checkZone(s []byte) flaw {
	name := string(s)
	is, known := d.zones[name]
	if !known {
		is = isZone(name)
		d.zones[name] = is
	}
	if !is {
		return flawZone
	}
	return fine
}

// textField reads a string that check finds fine; else it notes the fault and returns "".
func (d *decoder) textField(check func([]byte) flaw) (string, error) {
	if d.dec.PeekKind() != '"' {
		return "", d.other(flawNotString)
	}
	s, err := d.string()
	if err != nil {
		return "", err
	}
	if w := check(s); w != fine {
		d.fault(w)
		return "", nil
	}
	return string(s), nil
}

func (d *decoder) bool() (bool, error) {
	switch d.dec.PeekKind() {
	case 't', 'f':
		token, err := d.dec.ReadToken()
		return err == nil && token.Bool(), err
	}
	return false, d.other(flawNotBool)
}

// integer reads an integer literal within least … most.
func (d *decoder) integer(least, most int64, outside flaw) (int64, error) {
	if d.dec.PeekKind() != '0' {
		return 0, d.other(flawNotInt)
	}
	literal, err := d.dec.ReadValue()
	if err != nil {
		return 0, err
	}
	v, w := parseInteger(literal, least, most, outside)
	if w != fine {
		d.fault(w)
	}
	return v, nil
}

// other passes over a value of another type, and notes the fault.
func (d *decoder) other(w flaw) error {
	d.fault(w)
	return d.skip()
}

// string reads a string or a name and returns its characters, valid until the next read.
func (d *decoder) string() ([]byte, error) {
	v, err := d.dec.ReadValue()
	if err != nil {
		return nil, err
	}
	d.text, err = jsontext.AppendUnquote(d.text[:0], v)
	return d.text, err
}

// skip passes over one value, token by token so that its depth is seen.
func (d *decoder) skip() error {
	depth := d.dec.StackDepth()
	for {
		if _, err := d.dec.ReadToken(); err != nil {
			return err
		}
		switch now := d.dec.StackDepth(); {
		case now > depthMax:
			return tooDeep
		case now <= depth:
			return nil
		}
	}
}

// nameMaxShown is the longest unknown name that a path ends with.
const nameMaxShown = 64

// readsLikeAName reports whether a name may be repeated: what was put in a name's place
// by mistake doesn't come back.
func readsLikeAName(s []byte) bool {
	return len(s) > 0 && len(s) <= nameMaxShown && !bytes.ContainsFunc(s, func(r rune) bool {
		return notDigit(r) && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '_' && r != '-'
	})
}

// syntax returns the error of a text that can't be read. The library's words quote the
// text, so they aren't repeated.
func (d *decoder) syntax(err error) error {
	out := &SyntaxError{Offset: d.dec.InputOffset(), Reason: "it is not valid JSON"}
	var said *jsontext.SyntacticError
	if errors.As(err, &said) {
		out.Offset = said.ByteOffset
	}
	var ours reason
	switch {
	case errors.As(err, &ours):
		out.Reason = string(ours)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		out.Reason = "it ends too early"
	case errors.Is(err, jsontext.ErrDuplicateName):
		out.Path, out.Reason = pathOf(said.JSONPointer), "is there more than once"
	}
	return out
}

// pathOf returns a pointer as a path, as far as its names may be repeated.
func pathOf(p jsontext.Pointer) string {
	var b strings.Builder
	for token := range p.Tokens() {
		switch {
		case !readsLikeAName([]byte(token)):
			return b.String()
		case !strings.ContainsFunc(token, notDigit):
			b.WriteString("[" + token + "]")
			continue
		case b.Len() > 0:
			b.WriteByte('.')
		}
		b.WriteString(token)
	}
	return b.String()
}
