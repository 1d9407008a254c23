package httpapi

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/octopay/octopay/httpapi/problem"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/schema"
)

// depthMax is how deep a body may nest.
const depthMax = 8

// unknownMax bounds the unknown fields in one answer. The known ones are few, so all
// of them are always in it.
const unknownMax = 32

// faults gathers what is wrong with a request, so that a client learns all of it at
// once.
type faults struct {
	at       string // before the name of every field: "orders[3]."
	list     []problem.FieldError
	unknowns int
	other    bool // there is a fault besides unknown fields of the body
}

// add notes a flaw of a field that we named.
func (f *faults) add(field string, w flaw) {
	f.other = true
	f.list = append(f.list, problem.FieldError{Field: f.at + field, Fault: w.fault, Message: w.text})
}

// unknown notes a name that we don't know, and where it stands: "body" or "query".
func (f *faults) unknown(name []byte, where string) {
	f.other = f.other || where != "body"
	if f.unknowns++; f.unknowns <= unknownMax {
		f.list = append(f.list, problem.FieldError{Field: f.at + problem.FieldName(string(name), where),
			Fault: flawUnknown.fault, Message: flawUnknown.text})
	}
}

// err returns nil, or the answer that lists the faults.
func (f *faults) err() error {
	switch {
	case len(f.list) == 0:
		return nil
	case !f.other:
		return &problem.Problem{Code: problem.UnknownField, Errors: f.list}
	}
	return &problem.Problem{Code: problem.InvalidParameter, Errors: f.list}
}

var errTooDeep = errors.New("nesting is too deep")

// A decoder reads bodies, one at a time. jsontext refuses what is not JSON, bytes that
// are not UTF-8, unpaired surrogates and duplicate names; the decoder refuses the
// rest.
type decoder struct {
	dec   jsontext.Decoder
	in    bytes.Buffer
	text  []byte                           // scratch: an unescaped string
	n     ordersvc.New                     // scratch: the order that is read
	field func(int, *faults) (flaw, error) // orderField, made once
	pairs []byte                           // scratch: entries of metadata as canonical text
	spans []span                           // where in pairs
}

var decoders = sync.Pool{New: func() any {
	d := new(decoder)
	d.field = d.orderField
	return d
}}

// The fields of an order to create, in the order of orderNames. These names are the
// contract.
const (
	fieldUID = iota
	fieldBID
	fieldOutTradeNo
	fieldAmount
	fieldCurrency
	fieldSubject
	fieldMetadata
	fieldExpiresIn
	fieldsRequired = fieldMetadata // those before it
)

var orderNames = []string{"uid", "bid", "out_trade_no", "amount", "currency", "subject", "metadata", "expires_in"}

// decodeOrder reads the body of a create. Faulty fields are added to f; the error is a
// body that can't be read at all. What it returns is valid if f has got nothing new.
// It holds no part of body.
func decodeOrder(body []byte, f *faults) (n ordersvc.New, err error) {
	d := decoders.Get().(*decoder)
	err = d.whole(body, func() error { n, err = d.order(f); return err })
	decoders.Put(d)
	return n, err
}

// decodeObject reads a body that is an object of these fields; see decoder.object.
func decodeObject(body []byte, names []string, required int, f *faults, read func(d *decoder, field int) (flaw, error)) error {
	d := decoders.Get().(*decoder)
	err := d.whole(body, func() error {
		return d.object(names, required, f, func(field int, _ *faults) (flaw, error) { return read(d, field) })
	})
	decoders.Put(d)
	return err
}

// whole reads a body that is one value.
func (d *decoder) whole(body []byte, read func() error) error {
	d.in = *bytes.NewBuffer(body)
	d.dec.Reset(&d.in)
	if d.dec.PeekKind() != '{' {
		return malformed(nil) // whatever else it is
	}
	if err := read(); err != nil {
		return malformed(err)
	}
	if _, err := d.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return malformed(err) // something follows
	}
	return nil
}

// object reads an object of fields with these names, of which the first so many are
// required, each by read. Faulty fields are added to f; the error is one of the JSON.
func (d *decoder) object(names []string, required int, f *faults, read func(field int, f *faults) (flaw, error)) error {
	if _, err := d.dec.ReadToken(); err != nil {
		return err
	}
	var seen uint // a bit for each
	for d.dec.PeekKind() != '}' {
		name, err := d.string()
		if err != nil {
			return err
		}
		field := index(names, name)
		if field < 0 {
			f.unknown(name, "body")
			if err := d.skip(); err != nil {
				return err
			}
			continue
		}
		seen |= 1 << field
		w, err := read(field, f)
		if err != nil {
			return err
		}
		if w.bad() {
			f.add(names[field], w)
		}
	}
	if _, err := d.dec.ReadToken(); err != nil {
		return err
	}
	for i, name := range names[:required] {
		if seen&(1<<i) == 0 {
			f.add(name, flawMissing)
		}
	}
	return nil
}

func index(names []string, name []byte) int {
	for i := range names {
		if names[i] == string(name) {
			return i
		}
	}
	return -1
}

// order reads one order to create.
func (d *decoder) order(f *faults) (ordersvc.New, error) {
	d.n = ordersvc.New{ExpiresIn: expiresInElse * time.Second, Metadata: "{}"}
	err := d.object(orderNames, fieldsRequired, f, d.field)
	return d.n, err
}

// orderField reads the value of a known field into d.n.
func (d *decoder) orderField(field int, f *faults) (w flaw, err error) {
	n := &d.n
	switch field {
	case fieldUID:
		n.UID, w, err = d.key()
	case fieldBID:
		n.BID, w, err = d.key()
	case fieldOutTradeNo:
		n.OutTradeNo, w, err = d.textField(checkNumber[[]byte])
	case fieldAmount:
		n.Amount, w, err = d.integer(1, amountMax, flawAmountRange)
	case fieldCurrency:
		n.Currency, w, err = d.textField(checkCurrency)
	case fieldSubject:
		n.Subject, w, err = d.textField(checkSubject)
	case fieldExpiresIn:
		var seconds int64
		seconds, w, err = d.integer(expiresInMin, expiresInMax, flawExpiryRange)
		n.ExpiresIn = time.Duration(seconds) * time.Second
	case fieldMetadata:
		n.Metadata, w, err = d.metadata(f)
	}
	return w, err
}

func checkSubject(s []byte) flaw {
	if len(s) == 0 {
		return flawEmpty
	}
	return checkText(s, subjectMax, flawSubject)
}

// textField reads a string that check finds fine.
func (d *decoder) textField(check func([]byte) flaw) (string, flaw, error) {
	if d.dec.PeekKind() != '"' {
		return "", flawNotString, d.skip()
	}
	s, err := d.string()
	if err != nil {
		return "", fine, err
	}
	if w := check(s); w.bad() {
		return "", w, nil
	}
	return string(s), fine, nil
}

// key reads a uid or bid, a string or an integer.
func (d *decoder) key() (v int64, w flaw, err error) {
	switch d.dec.PeekKind() {
	case '"':
		s, err := d.string()
		if err != nil {
			return 0, fine, err
		}
		v, w = parseKey(s)
		return v, w, nil
	case '0':
		literal, err := d.dec.ReadValue()
		if err != nil {
			return 0, fine, err
		}
		v, w = parseKey(literal)
		return v, w, nil
	}
	return 0, flawKeyType, d.skip()
}

// integer reads an integer literal within least … most.
func (d *decoder) integer(least, most int64, outside flaw) (int64, flaw, error) {
	if d.dec.PeekKind() != '0' {
		return 0, flawNotInt, d.skip()
	}
	literal, err := d.dec.ReadValue()
	if err != nil {
		return 0, fine, err
	}
	v, w := parseInteger(literal, least, most, outside)
	return v, w, nil
}

// time reads a time, cut to ms.
func (d *decoder) time() (schema.Millis, flaw, error) {
	text, w, err := d.textField(func([]byte) flaw { return fine })
	if err != nil || w.bad() {
		return 0, w, err
	}
	if !isRFC3339(text) {
		return 0, flawBodyTime, nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	switch {
	case err != nil:
		return 0, flawBodyTime, nil
	case t.UTC().Year() < 1970 || t.UTC().Year() > 9999 || schema.MillisOf(t) == 0:
		return 0, flawTimeRange, nil
	}
	return schema.MillisOf(t), fine, nil
}

// A span is one entry of metadata in decoder.pairs.
type span struct{ start, nameEnd, end int }

// metadata reads an object of strings into its canonical text: names sorted, no white
// space, only quotes and back-slashes escaped. Faults of single pairs are added to f,
// unless there are too many pairs.
func (d *decoder) metadata(f *faults) (string, flaw, error) {
	if d.dec.PeekKind() != '{' {
		return "", flawNotObject, d.skip()
	}
	if _, err := d.dec.ReadToken(); err != nil {
		return "", fine, err
	}
	d.pairs, d.spans = d.pairs[:0], d.spans[:0]
	count := 0
	for ; d.dec.PeekKind() != '}'; count++ {
		name, err := d.string()
		if err != nil {
			return "", fine, err
		}
		if count >= metadataMax {
			if err := d.skip(); err != nil {
				return "", fine, err
			}
			continue
		}
		if w := checkMetadataName(name); w.bad() {
			f.add("metadata", w)
			if err := d.skip(); err != nil {
				return "", fine, err
			}
			continue
		}
		at := span{start: len(d.pairs)}
		d.pairs = append(append(append(d.pairs, '"'), name...), '"', ':')
		at.nameEnd = at.start + 1 + len(name)
		w, err := d.pairText()
		if err != nil {
			return "", fine, err
		}
		if w.bad() {
			f.add(pairName(d.pairs[at.start+1:at.nameEnd]), w)
			continue
		}
		at.end = len(d.pairs)
		d.spans = append(d.spans, at)
	}
	if _, err := d.dec.ReadToken(); err != nil {
		return "", fine, err
	}
	if count > metadataMax {
		return "", flawPairs, nil
	}
	if len(d.spans) == 0 {
		return "{}", fine, nil
	}
	slices.SortFunc(d.spans, func(a, b span) int {
		return bytes.Compare(d.pairs[a.start+1:a.nameEnd], d.pairs[b.start+1:b.nameEnd])
	})
	d.text = append(d.text[:0], '{')
	for i, at := range d.spans {
		if i > 0 {
			d.text = append(d.text, ',')
		}
		d.text = append(d.text, d.pairs[at.start:at.end]...)
	}
	return string(append(d.text, '}')), fine, nil
}

// pairName names an entry of metadata, whose name is the client's.
func pairName(name []byte) string {
	if s := problem.FieldName(string(name), ""); s != "" {
		return "metadata." + s
	}
	return "metadata"
}

// pairText reads the text of an entry of metadata and appends it to d.pairs.
func (d *decoder) pairText() (flaw, error) {
	if d.dec.PeekKind() != '"' {
		return flawNotString, d.skip()
	}
	text, err := d.string()
	if err != nil {
		return fine, err
	}
	if w := checkText(text, metadataTextMax, flawPairText); w.bad() {
		return w, nil
	}
	d.pairs, err = jsontext.AppendQuote(d.pairs, text)
	return fine, err
}

// string reads a string or a name and returns its characters, valid until the next
// read.
func (d *decoder) string() ([]byte, error) {
	v, err := d.dec.ReadValue()
	if err != nil {
		return nil, err
	}
	if bytes.IndexByte(v, '\\') < 0 {
		return v[1 : len(v)-1], nil
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
			return errTooDeep
		case now <= depth:
			return nil
		}
	}
}

// malformed returns the answer to a body that can't be read. A duplicate name is
// named.
func malformed(err error) error {
	p := &problem.Problem{Code: problem.MalformedJSON}
	var syntax *jsontext.SyntacticError
	if errors.Is(err, jsontext.ErrDuplicateName) && errors.As(err, &syntax) {
		name := problem.FieldName(syntax.JSONPointer.LastToken(), "body")
		p.Errors = []problem.FieldError{{Field: name, Fault: flawRepeated.fault, Message: flawRepeated.text}}
	}
	return p
}
