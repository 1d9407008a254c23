// Package auth knows who calls: the keys of the API, what each may do, and which payment
// results were signed by their channel.
//
//	opk_merchant_k3f7q2zt5ab6_w6n4…52 characters…x2
//	|   |        |            +- secret: 256 bits, shown once and stored nowhere
//	|   |        +-------------- id: names the key in logs and journals; no secret
//	|   +----------------------- role: app, merchant, channel, ops
//	+--------------------------- Octopay key
//
// The meta database holds the SHA-256 of each whole key. A Keyring holds all of them in
// memory and answers from there alone, so a key that nobody knows never reaches a
// database.
//
// It decides
//   - whether a key is one of ours and lives, see Keyring.Verify;
//   - for how long the keys last read are good without the meta database: an hour, over
//     a restart too;
//   - whether a signature is right, see Keyring.VerifySignature.
//
// It leaves to its callers which role may make which call, and what an error is in HTTP.
package auth

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrUnauthenticated reports a key that is none of ours, or no more. The same key will
	// be refused again: 401.
	ErrUnauthenticated = errors.New("no such key")

	// ErrUnavailable reports that nobody can say whether a key is good: the keys were never
	// read, or too long ago. It says nothing about the key, which may work later: 503, with
	// which a caller tries again, and not 401, with which it would throw its key away and
	// give a payment result up.
	ErrUnavailable = errors.New("the keys are not known now")
)

// A Role is the part that a caller plays. The zero value is none.
type Role uint8

// The roles. Their names are stored, and are a part of each key.
const (
	App      Role = iota + 1 // a trusted front end
	Merchant                 // a merchant, for its own bid
	Channel                  // a payment channel, for payment results
	Ops                      // those who run Octopay
)

var roleNames = [...]string{"", "app", "merchant", "channel", "ops"}

// String returns the name that is stored.
func (r Role) String() string {
	if int(r) < len(roleNames) {
		return roleNames[r]
	}
	return fmt.Sprintf("role(%d)", uint8(r))
}

// ParseRole returns the role of a name.
func ParseRole(name string) (Role, error) {
	for r := App; r <= Ops; r++ {
		if roleNames[r] == name {
			return r, nil
		}
	}
	return 0, errors.New("a role is app, merchant, channel or ops")
}

// A Key is who calls. It holds nothing that can be used in its place, and prints as its
// role and id.
type Key struct {
	ID      string // names it in logs and journals
	Role    Role
	BID     int64 // of a merchant's key; otherwise 0
	Refunds bool  // it may refund: a merchant's key, and an app's that was made so
	Signed  bool  // what it sends is signed, see Keyring.VerifySignature

	signing *signing // of a Signed key
}

// String returns the role and the id.
func (k Key) String() string { return k.Role.String() + " " + k.ID }

// GoString is String, so that no way to print a key shows more.
func (k Key) GoString() string { return k.String() }

const (
	keyBegin   = "opk_"
	idLen      = 12 // 60 bits of base32
	secretLen  = 52 // 256 bits of base32
	keyLenMax  = len(keyBegin) + len("merchant_") + idLen + 1 + secretLen
	devBegin   = "dev-"
	devLenMax  = 32
	lowBase32  = "abcdefghijklmnopqrstuvwxyz234567"
	schemeName = "bearer"
)

// Bearer returns the key in the value of an Authorization header; false: it holds none.
func Bearer(header string) (key string, ok bool) {
	if len(header) <= len(schemeName) || !strings.EqualFold(header[:len(schemeName)], schemeName) || header[len(schemeName)] != ' ' {
		return "", false
	}
	key = strings.TrimLeft(header[len(schemeName):], " ")
	return key, key != ""
}

// idOf returns the id in the text of a key, and false if the text is not formed as a
// key. It allocates nothing.
func idOf(text string) (id string, ok bool) {
	if strings.HasPrefix(text, devBegin) {
		return text, len(text) <= devLenMax // the whole of it: see Development
	}
	rest, ok := strings.CutPrefix(text, keyBegin)
	if !ok || len(text) > keyLenMax {
		return "", false
	}
	role, rest, ok := strings.Cut(rest, "_")
	if _, err := ParseRole(role); err != nil || !ok || len(rest) != idLen+1+secretLen || rest[idLen] != '_' {
		return "", false
	}
	if !isBase32(rest[:idLen]) || !isBase32(rest[idLen+1:]) {
		return "", false
	}
	return rest[:idLen], true
}

func isBase32(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
}

// ParseID returns the id in s, which is an id or a whole key: whoever wants to end a key
// that leaked has that at hand. Its error quotes nothing of s.
func ParseID(s string) (id string, err error) {
	if len(s) == idLen && isBase32(s) {
		return s, nil
	}
	if id, ok := idOf(s); ok && strings.HasPrefix(s, keyBegin) {
		return id, nil
	}
	return "", fmt.Errorf("an id of a key is %d characters of a-z and 2-7, as in opk_ROLE_ID_SECRET", idLen)
}
