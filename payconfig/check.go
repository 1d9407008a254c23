package payconfig

import (
	"bytes"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"time"
	_ "time/tzdata" // so that a zone is one on every machine, whatever is installed there
	"unicode"
	"unicode/utf8"

	"github.com/octopay/octopay/currency"
)

// Bounds of single values.
const (
	nameMax    = 128 // code points
	channelMax = 32  // characters
	zoneMax    = 64
	urlMax     = 512
	versionMax = 1<<53 - 1 // the largest integer that JavaScript keeps
	hashLen    = 64
)

// A flaw is what is wrong with a value; the zero value is nothing.
type flaw struct {
	rule Rule
	text string
}

var fine flaw

var (
	flawMissing   = flaw{Required, "is required"}
	flawUnknown   = flaw{Unknown, "is not known here; names are case-sensitive"}
	flawNameless  = flaw{Unknown, "has a field that is not known here"}
	flawNotObject = flaw{WrongType, "must be an object"}
	flawNotArray  = flaw{WrongType, "must be an array"}
	flawNotString = flaw{WrongType, "must be a string"}
	flawNotBool   = flaw{WrongType, "must be true or false"}
	flawNotInt    = flaw{WrongType, "must be a JSON integer, not a string"}
	flawEmpty     = flaw{TooShort, "is empty"}
	flawText      = flaw{TooLong, "is longer than 8 MiB in its canonical form"}

	flawVersion = flaw{OutOfRange, "must be 0 to 9007199254740991"}
	flawHash    = flaw{BadFormat, "must be 64 characters of 0-9 a-f"}
	flawPolicy  = flaw{Unsupported, "must be refuse or accept"}

	flawMerchants = flaw{TooLong, "must have at most 10000 entries"}
	flawChannels  = flaw{TooLong, "must have at most 256 entries"}
	flawCodes     = flaw{TooLong, "must have at most 155 entries"}
	flawNoCodes   = flaw{TooShort, "must have at least one entry; enabled false stops a merchant"}

	flawKeyType   = flaw{WrongType, "must be a decimal string or an integer"}
	flawKeyForm   = flaw{BadFormat, "must be decimal digits without sign, leading zero, fraction or exponent"}
	flawKeyRange  = flaw{OutOfRange, "must be 1 to 9223372036854775807"}
	flawKeyTwice  = flaw{Duplicate, "is that of another merchant too"}
	flawIntForm   = flaw{BadFormat, "must be an integer literal without fraction or exponent"}
	flawRate      = flaw{OutOfRange, "must be 1 to 1000000 calls a second; without a limit it is left out"}
	flawName      = flaw{TooLong, "must have at most 128 characters"}
	flawTextChar  = flaw{BadCharacter, "must not hold control, line separator or bidirectional control characters"}
	flawCode      = flaw{BadFormat, "must be three capital letters"}
	flawNoMoney   = flaw{Unsupported, "is not an active ISO 4217 currency"}
	flawCodeTwice = flaw{Duplicate, "is there more than once"}
	flawZone      = flaw{Unsupported, "must be the name of a time zone, such as Asia/Shanghai"}

	flawURLLong = flaw{TooLong, "must have at most 512 characters"}
	flawURLChar = flaw{BadCharacter, "must be printable ASCII, the rest escaped as a URL requires"}
	flawURL     = flaw{BadFormat, "must be https://HOST[:PORT][/PATH][?QUERY], without user and fragment; http:// only to this machine"}

	flawChannelLong  = flaw{TooLong, "must have at most 32 characters"}
	flawChannelChar  = flaw{BadCharacter, "may hold only a-z 0-9 _"}
	flawChannelTwice = flaw{Duplicate, "is that of another entry too"}
)

// parseKey reads a bid, written in the one canonical way.
func parseKey(s []byte) (int64, flaw) {
	digits := bytes.TrimPrefix(s, []byte("-"))
	if len(digits) == 0 || digits[0] == '0' && len(digits) > 1 || bytes.ContainsFunc(digits, notDigit) {
		return 0, flawKeyForm
	}
	v, err := strconv.ParseInt(string(s), 10, 64)
	if err != nil || v < 1 {
		return 0, flawKeyRange
	}
	return v, fine
}

func notDigit(r rune) bool { return r < '0' || r > '9' }

// parseInteger reads a JSON number that must be an integer within least … most.
func parseInteger(literal []byte, least, most int64, outside flaw) (int64, flaw) {
	if bytes.ContainsAny(literal, ".eE") {
		return 0, flawIntForm
	}
	v, err := strconv.ParseInt(string(literal), 10, 64)
	if err != nil || v < least || v > most {
		return 0, outside
	}
	return v, fine
}

func checkHash(s []byte) flaw {
	if len(s) != hashLen || bytes.ContainsFunc(s, func(r rune) bool { return notDigit(r) && (r < 'a' || r > 'f') }) {
		return flawHash
	}
	return fine
}

func checkPolicy(s []byte) flaw {
	if p := string(s); p != "refuse" && p != "accept" {
		return flawPolicy
	}
	return fine
}

// checkName checks what people read: valid UTF-8 without the characters that a reader
// doesn't see, or that turn around what it sees.
func checkName(s []byte) flaw {
	if len(s) == 0 {
		return flawEmpty
	}
	if bytes.ContainsFunc(s, func(r rune) bool {
		// U+2028, U+2029 and U+202A … U+202E follow each other.
		return unicode.IsControl(r) || r >= 0x2028 && r <= 0x202E || r >= 0x2066 && r <= 0x2069
	}) {
		return flawTextChar
	}
	if utf8.RuneCount(s) > nameMax {
		return flawName
	}
	return fine
}

func checkCurrency(s []byte) flaw {
	switch {
	case len(s) != 3 || bytes.ContainsFunc(s, func(r rune) bool { return r < 'A' || r > 'Z' }):
		return flawCode
	case !currency.Active(s):
		return flawNoMoney
	}
	return fine
}

func checkChannel(s []byte) flaw {
	switch {
	case len(s) == 0:
		return flawEmpty
	case bytes.ContainsFunc(s, func(r rune) bool { return notDigit(r) && (r < 'a' || r > 'z') && r != '_' }):
		return flawChannelChar
	case len(s) > channelMax:
		return flawChannelLong
	}
	return fine
}

// zoneForm keeps names from being paths. Local, which Go knows, is another zone on each
// machine.
var zoneForm = regexp.MustCompile(`^[A-Z][A-Za-z0-9_+-]*(/[A-Z][A-Za-z0-9_+-]*)*$`)

// isZone reports whether a name is that of a time zone. It may read a file.
func isZone(name string) bool {
	if len(name) > zoneMax || name == "Local" || !zoneForm.MatchString(name) {
		return false
	}
	_, err := time.LoadLocation(name)
	return err == nil
}

// checkURL checks where events are sent. They say who bought what, so plain text stays
// on this machine; where an address leads to is looked at when something is sent there.
func checkURL(s []byte) flaw {
	switch {
	case len(s) == 0:
		return flawEmpty
	case bytes.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }):
		return flawURLChar
	case len(s) > urlMax:
		return flawURLLong
	}
	u, err := url.Parse(string(s))
	if err != nil || u.Hostname() == "" || u.User != nil || bytes.ContainsRune(s, '#') || !isPort(u) {
		return flawURL
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())) {
		return flawURL
	}
	return fine
}

func isPort(u *url.URL) bool {
	if u.Port() == "" {
		return u.Host == u.Hostname() || u.Host == "["+u.Hostname()+"]" // no colon without a port
	}
	n, err := strconv.ParseUint(u.Port(), 10, 16)
	return err == nil && n > 0
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
