package httpapi

import (
	"bytes"
	"math"
	"slices"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/octopay/octopay/currency"
	"github.com/octopay/octopay/httpapi/problem"
	"github.com/octopay/octopay/schema"
)

// The ranges of the contract.
const (
	amountMax       = 1<<53 - 1 // the largest integer that JavaScript keeps
	subjectMax      = 256       // code points
	reasonMax       = 256       // the same
	channelMax      = 32        // characters
	batchOrdersMax  = 500
	numberMax       = 64  // characters of a number given by others
	metadataMax     = 16  // pairs
	metadataNameMax = 40  // characters
	metadataTextMax = 256 // code points
	expiresInMin    = 60  // seconds
	expiresInMax    = 86400
	expiresInElse   = 1800
	limitMax        = 100
	limitElse       = 20
)

// A flaw is what is wrong with a value; the zero value is nothing. Its text is
// constant: a value is never repeated.
type flaw struct {
	fault problem.Fault
	text  string
}

var fine flaw

func (f flaw) bad() bool { return f != fine }

var (
	flawMissing   = flaw{problem.Required, "is required"}
	flawUnknown   = flaw{problem.Unknown, "is not known here; names are case-sensitive"}
	flawRepeated  = flaw{problem.Duplicate, "is there more than once"}
	flawEmpty     = flaw{problem.TooShort, "is empty"}
	flawNotString = flaw{problem.WrongType, "must be a string"}
	flawNotInt    = flaw{problem.WrongType, "must be a JSON integer, not a string"}
	flawNotObject = flaw{problem.WrongType, "must be an object of strings"}

	flawKeyType  = flaw{problem.WrongType, "must be a decimal string or an integer"}
	flawKeyForm  = flaw{problem.BadFormat, "must be decimal digits without sign, leading zero, fraction or exponent"}
	flawKeyRange = flaw{problem.OutOfRange, "must be 1 to 9223372036854775807"}

	flawIntForm     = flaw{problem.BadFormat, "must be an integer literal without fraction or exponent"}
	flawAmountRange = flaw{problem.OutOfRange, "must be 1 to 9007199254740991, in minor units"}
	flawExpiryRange = flaw{problem.OutOfRange, "must be 60 to 86400 seconds"}

	flawNumberLong  = flaw{problem.TooLong, "must have at most 64 characters"}
	flawNumberChar  = flaw{problem.BadCharacter, "may hold only 0-9 A-Z a-z _ . : | * -"}
	flawNumberStart = flaw{problem.BadFormat, "must not begin with -"}

	flawCurrencyForm = flaw{problem.BadFormat, "must be three capital letters"}
	flawCurrency     = flaw{problem.Unsupported, "is not an active ISO 4217 currency"}

	flawTextChar = flaw{problem.BadCharacter, "must not hold control, line separator or bidirectional control characters"}
	flawSubject  = flaw{problem.TooLong, "must have at most 256 characters"}

	flawReason      = flaw{problem.TooLong, "must have at most 256 characters"}
	flawCloseReason = flaw{problem.Unsupported, "must be merchant or buyer"}
	flawResult      = flaw{problem.Unsupported, "must be succeeded or failed"}
	flawOtherRefund = flaw{problem.Unsupported, "must be the refund of the path"}
	flawChannelChar = flaw{problem.BadCharacter, "may hold only 0-9 a-z _"}
	flawChannelLong = flaw{problem.TooLong, "must have at most 32 characters"}
	flawDots        = flaw{problem.BadFormat, "must not be . or .., which no path can hold"}
	flawBodyTime    = flaw{problem.BadFormat, "must be an RFC 3339 time with an offset"}
	flawTimeRange   = flaw{problem.OutOfRange, "must be in the years 1970 to 9999"}
	flawNotOrders   = flaw{problem.WrongType, "must be an array of orders"}
	flawNotOrder    = flaw{problem.WrongType, "must be an object"}
	flawNoOrders    = flaw{problem.TooShort, "is empty"}
	flawOrders      = flaw{problem.TooLong, "must have at most 500 orders"}

	flawPairs    = flaw{problem.TooLong, "must have at most 16 pairs"}
	flawName     = flaw{problem.BadCharacter, "has a name with characters other than A-Z a-z 0-9 _ . -"}
	flawNameLong = flaw{problem.TooLong, "has a name of more than 40 characters"}
	flawNameNone = flaw{problem.TooShort, "has an empty name"}
	flawPairText = flaw{problem.TooLong, "must have at most 256 characters"}

	flawStatus   = flaw{problem.Unsupported, "must be created, paid, partially_refunded, refunded or closed"}
	flawState    = flaw{problem.Unsupported, "must be open, refunded or voided"}
	flawRefund   = flaw{problem.Unsupported, "must be accepted, succeeded or failed"}
	flawConflict = flaw{problem.Unsupported, "must be out_trade_no or channel_trade_no"}
	flawInclude  = flaw{problem.Unsupported, "can only be journal"}
	flawTime     = flaw{problem.BadFormat, "must be an RFC 3339 time with an offset; in a URL + is written %2B"}
	flawLimit    = flaw{problem.BadFormat, "must be decimal digits without sign or leading zero"}
	flawLimits   = flaw{problem.OutOfRange, "must be 1 to 100"}
	flawEscape   = flaw{problem.BadFormat, "is not escaped as a URL requires"}
	flawNoBody   = flaw{problem.Unsupported, "this call takes no body"}
)

// parseKey reads a uid or a bid, written in the one canonical way: two spellings of
// one key would be two keys to whoever compares texts.
func parseKey[T ~string | ~[]byte](s T) (int64, flaw) {
	if len(s) == 0 {
		return 0, flawKeyForm
	}
	digits := s
	if s[0] == '-' {
		digits = s[1:]
	}
	if len(digits) == 0 || (digits[0] == '0' && len(digits) > 1) {
		return 0, flawKeyForm
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return 0, flawKeyForm
		}
	}
	v, ok := parseDigits(digits, math.MaxInt64)
	if len(digits) != len(s) || !ok || v == 0 {
		return 0, flawKeyRange
	}
	return v, fine
}

// parseInteger reads a JSON number that must be written as an integer within
// least … most.
func parseInteger(literal []byte, least, most int64, outside flaw) (int64, flaw) {
	if bytes.ContainsAny(literal, ".eE") {
		return 0, flawIntForm
	}
	v, ok := parseDigits(literal, most)
	if !ok || v < least {
		return 0, outside
	}
	return v, fine
}

// parseDigits reads digits; it is false for others, and above most.
func parseDigits[T ~string | ~[]byte](s T, most int64) (v int64, ok bool) {
	for i := range len(s) {
		d := int64(s[i]) - '0'
		if d < 0 || d > 9 || v > (most-d)/10 {
			return 0, false
		}
		v = v*10 + d
	}
	return v, len(s) > 0
}

// checkNumber checks a number given by others, such as out_trade_no.
func checkNumber[T ~string | ~[]byte](s T) flaw {
	switch {
	case len(s) == 0:
		return flawEmpty
	case s[0] == '-':
		return flawNumberStart
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c >= '0' && c <= '9', c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z':
		case c == '_', c == '.', c == ':', c == '|', c == '*', c == '-':
		default:
			return flawNumberChar
		}
	}
	if len(s) > numberMax {
		return flawNumberLong
	}
	return fine
}

// checkRefundNumber checks an out_refund_no, which must fit into a path.
func checkRefundNumber(s []byte) flaw {
	if w := checkNumber(s); w.bad() {
		return w
	}
	if string(s) == "." || string(s) == ".." {
		return flawDots
	}
	return fine
}

func checkChannel(s []byte) flaw {
	if len(s) == 0 {
		return flawEmpty
	}
	for _, c := range s {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && c != '_' {
			return flawChannelChar
		}
	}
	if len(s) > channelMax {
		return flawChannelLong
	}
	return fine
}

func checkReason(s []byte) flaw {
	if len(s) == 0 {
		return flawEmpty
	}
	return checkText(s, reasonMax, flawReason)
}

func checkCurrency(s []byte) flaw {
	if len(s) != 3 || slices.ContainsFunc(s, func(c byte) bool { return c < 'A' || c > 'Z' }) {
		return flawCurrencyForm
	}
	if !currency.Active(s) {
		return flawCurrency
	}
	return fine
}

// checkText checks valid UTF-8 for at most most code points and the refused
// characters: those that a reader doesn't see, or that turn around what it sees.
func checkText(s []byte, most int, long flaw) flaw {
	n := 0
	for i := 0; i < len(s); n++ {
		c := s[i]
		if c < utf8.RuneSelf {
			if c < 0x20 || c == 0x7f {
				return flawTextChar
			}
			i++
			continue
		}
		r, size := utf8.DecodeRune(s[i:])
		// U+2028, U+2029 and U+202A … U+202E follow each other.
		if unicode.IsControl(r) || (r >= 0x2028 && r <= 0x202E) || (r >= 0x2066 && r <= 0x2069) {
			return flawTextChar
		}
		i += size
	}
	if n > most {
		return long
	}
	return fine
}

// checkMetadataName checks a name of metadata.
func checkMetadataName(s []byte) flaw {
	if len(s) == 0 {
		return flawNameNone
	}
	for _, c := range s {
		switch {
		case c >= '0' && c <= '9', c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c == '_', c == '.', c == '-':
		default:
			return flawName
		}
	}
	if len(s) > metadataNameMax {
		return flawNameLong
	}
	return fine
}

func parseStatus(s string) (schema.Status, flaw) {
	status, err := schema.ParseStatus(s)
	if err != nil || s == "" {
		return 0, flawStatus
	}
	return status, fine
}

func parseLimit(s string) (int, flaw) {
	if s[0] == '0' && len(s) > 1 {
		return 0, flawLimit
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, flawLimit
		}
	}
	v, ok := parseDigits(s, limitMax)
	if !ok || v < 1 {
		return 0, flawLimits
	}
	return int(v), fine
}

// parseBound reads a time that bounds created_at, which has whole ms: the first ms
// that isn't before it. "From it on" and "before it" then mean the same for created_at
// as they do for the time itself.
func parseBound(s string) (time.Time, flaw) {
	if !isRFC3339(s) {
		return time.Time{}, flawTime
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, flawTime
	}
	if cut := t.Truncate(time.Millisecond); cut.Before(t) {
		t = cut.Add(time.Millisecond)
	}
	return t, fine
}

// isRFC3339 reports whether s has the form of an RFC 3339 time, with at most ns.
// Package time is laxer: it takes one digit for an hour, a comma for the point, an
// offset of 24:60, and drops what is finer than ns.
func isRFC3339(s string) bool {
	const form, offset = "0000-00-00T00:00:00", "+00:00"
	if len(s) <= len(form) || !hasForm(s[:len(form)], form) {
		return false
	}
	s = s[len(form):]
	if s[0] == '.' {
		digits := 0
		for s = s[1:]; digits < len(s) && s[digits] >= '0' && s[digits] <= '9'; digits++ {
		}
		if digits < 1 || digits > 9 {
			return false
		}
		s = s[digits:]
	}
	if s == "Z" {
		return true
	}
	return len(s) == len(offset) && (s[0] == '+' || s[0] == '-') && hasForm(s[1:], offset[1:]) && s[1:3] <= "23" && s[4:] <= "59"
}

// hasForm reports whether s, which is as long as form, has digits where form has a 0
// and the same characters elsewhere.
func hasForm(s, form string) bool {
	for i := range len(form) {
		if digit := s[i] >= '0' && s[i] <= '9'; form[i] == '0' && !digit || form[i] != '0' && s[i] != form[i] {
			return false
		}
	}
	return true
}
