package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"time"
)

var (
	// ErrSignature reports that a payment result was not signed by the key's secret, for
	// this order: 401 signature_invalid.
	ErrSignature = errors.New("the signature is not right")

	// ErrSkew reports a signature of another time, or by a clock that is wrong: 401
	// timestamp_skew.
	ErrSkew = errors.New("the signature's time is too far from ours")
)

const (
	skewMax       = 300 * time.Second
	webhookIDMax  = 256
	signaturesMax = 8 // in one header
	secretBegin   = "whsec_"
)

// A Signature is the values of the headers webhook-id, webhook-timestamp and
// webhook-signature.
type Signature struct{ ID, Timestamp, Signature string }

// signing is what a key's signatures are made with.
type signing struct {
	secrets [][]byte  // one, or two while they are being changed
	before  time.Time // when the second ends
	err     error     // they can't be read
}

// VerifySignature makes sure that what a key sent is signed (Standard Webhooks, with the
// order in what is signed):
//
//	v1,base64(HMAC-SHA256(secret, <webhook-id>.<webhook-timestamp>.<order id>.<body>))
//
// orderID is the order of the path as the client wrote it, body the bytes as they came,
// now the time of our wall clock. Several signatures may stand with spaces between; one of
// the key's secrets must have made one of them. It returns ErrSignature, ErrSkew, or
// ErrUnavailable when the key's secrets can't be read. A key that isn't Signed needs no
// signature, and VerifySignature looks at none.
func (k *Keyring) VerifySignature(key Key, h Signature, orderID string, body []byte, now time.Time) error {
	if !key.Signed {
		return nil
	}
	err := key.signing.verify(h, orderID, body, now)
	switch {
	case errors.Is(err, ErrSkew):
		k.refused[skew].Add(1)
	case errors.Is(err, ErrSignature):
		k.refused[signature].Add(1)
	case err != nil:
		k.refused[unavailable].Add(1)
	}
	return err
}

func (s *signing) verify(h Signature, orderID string, body []byte, now time.Time) error {
	if s == nil || s.err != nil {
		return ErrUnavailable
	}
	// Without a dot in the id there is one way to read what was signed.
	at, ok := seconds(h.Timestamp)
	if !ok || !validWebhookID(h.ID) {
		return ErrSignature
	}
	if d := now.Sub(at); d > skewMax || d < -skewMax {
		return ErrSkew
	}
	if strings.Count(h.Signature, " ") >= signaturesMax {
		return ErrSignature
	}
	right := 0
	for i, secret := range s.secrets {
		if i > 0 && !now.Before(s.before) {
			break
		}
		want := sign(secret, h.ID, h.Timestamp, orderID, body)
		for one := range strings.SplitSeq(h.Signature, " ") {
			// Of other versions there may be some as well.
			if got, ok := strings.CutPrefix(one, "v1,"); ok && len(got) == len(want) {
				right |= subtle.ConstantTimeCompare([]byte(got), want)
			}
		}
	}
	if right != 1 {
		return ErrSignature
	}
	return nil
}

// sign returns the base64 of a signature.
func sign(secret []byte, id, timestamp, orderID string, body []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	for _, part := range []string{id, timestamp, orderID} {
		mac.Write([]byte(part))
		mac.Write([]byte{'.'})
	}
	mac.Write(body)
	return base64.StdEncoding.AppendEncode(nil, mac.Sum(nil))
}

// seconds reads a time in seconds since 1970, of digits alone.
func seconds(s string) (time.Time, bool) {
	if len(s) == 0 || len(s) > 12 {
		return time.Time{}, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return time.Time{}, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return time.Unix(n, 0), err == nil
}

// validWebhookID reports whether s is 1 to 256 visible characters of ASCII, without a dot.
func validWebhookID(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' || s[i] == '.' {
			return false
		}
	}
	return s != "" && len(s) <= webhookIDMax
}
