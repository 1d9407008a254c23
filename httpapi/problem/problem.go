package problem

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/octopay/octopay/idgen"
)

// ContentType is the media type of Append's text.
const ContentType = "application/problem+json"

// typePrefix makes a code a URI.
const typePrefix = "urn:octopay:error:"

// A Problem is an error with an answer. Handlers return it; it holds no value that a
// client sent, except names of fields that FieldName let pass.
type Problem struct {
	Code   Code
	Errors []FieldError // of 400
	// OrderID is the order that has the out_trade_no, of OutTradeNoReused.
	OrderID idgen.ID
	// Current is the state, of that order, of the one in the path, or of its unapplied
	// payment, that keeps the call from being done; "" where it isn't that.
	Current string
	// Recorded says that the money of a payment that could not be applied is recorded.
	Recorded bool
	Shed     Shed  // of Overloaded
	Cause    error // for the log; never sent
}

// A FieldError is one faulty field of a request. Message is a constant text.
type FieldError struct {
	Field   string
	Fault   Fault
	Message string
}

func (p *Problem) Error() string { return p.Code.String() }

// Unwrap returns the cause.
func (p *Problem) Unwrap() error { return p.Cause }

// refusals are the ready bodies of 429 and 503: the cheaper a refusal, the more good
// work goes on beside it. So they carry no request id.
var refusals = func() (all [Codes][]byte) {
	for c := Code(1); c < Codes; c++ {
		if s := c.Status(); s == 429 || s == 503 {
			all[c] = (&Problem{Code: c}).append(nil, "")
		}
	}
	return all
}()

// Append appends the body that answers p to the request with this id.
func (p *Problem) Append(dst []byte, requestID string) []byte {
	if ready := refusals[p.Code]; ready != nil {
		return append(dst, ready...)
	}
	return p.append(dst, requestID)
}

func (p *Problem) append(dst []byte, requestID string) []byte {
	row := &table[p.Code]
	dst = append(dst, `{"type":"`+typePrefix...)
	dst = append(dst, row.name...)
	dst = append(dst, `","title":`...)
	dst = quote(dst, row.title)
	dst = append(dst, `,"status":`...)
	dst = strconv.AppendInt(dst, int64(row.status), 10)
	dst = append(dst, `,"code":"`...)
	dst = append(dst, row.name...)
	dst = append(dst, `","detail":`...)
	dst = quote(dst, row.detail)
	if requestID != "" {
		dst = append(dst, `,"request_id":`...)
		dst = quote(dst, requestID)
	}
	dst = append(dst, `,"retryable":`...)
	dst = strconv.AppendBool(dst, p.Code.Retryable())
	if p.Code == OutTradeNoReused {
		dst = append(dst, `,"order_id":"`...)
		dst = append(p.OrderID.AppendTo(dst), '"')
	}
	if p.Current != "" {
		dst = quote(append(dst, `,"current_status":`...), p.Current)
	}
	if p.Recorded {
		dst = append(dst, `,"recorded":true`...)
	}
	if len(p.Errors) > 0 {
		dst = append(dst, `,"errors":[`...)
		for i, e := range p.Errors {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, `{"field":`...)
			dst = quote(dst, e.Field)
			dst = append(dst, `,"code":"`...)
			dst = append(dst, e.Fault...)
			dst = append(dst, `","message":`...)
			dst = quote(dst, e.Message)
			dst = append(dst, '}')
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

// quote cannot fail: all texts are constants or restricted to ASCII.
func quote(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s)
	return dst
}

// What reads like a name: the longest names of the contract have half as many characters,
// and no digits.
const (
	fieldNameMax   = 32
	fieldDigitsMax = 3
)

// FieldName returns how to name a field that a client named: by name when it reads
// like one, a letter or _ and up to 31 of [A-Za-z0-9_.-] with at most three digits among
// them, else by where it stands, for an answer repeats no other text of a client. So
// clients learn of their typing errors, and what was put in a name's place by mistake, a
// card's number or holder, a key, a script, doesn't come back.
func FieldName(name, where string) string {
	if len(name) == 0 || len(name) > fieldNameMax {
		return where
	}
	digits := 0
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '_':
		case i > 0 && (c == '.' || c == '-'):
		case i > 0 && c >= '0' && c <= '9' && digits < fieldDigitsMax:
			digits++
		default:
			return where
		}
	}
	return name
}
