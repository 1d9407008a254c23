package auth

import (
	"crypto/sha256"
	"fmt"
	"time"
)

// A row is a key as it is stored, in the meta database and in the snapshot file. Times are
// ms since 1970, 0 is none. Its names in JSON are stored.
type row struct {
	ID          string `json:"id"`
	Role        string `json:"role"`
	BID         int64  `json:"bid,omitempty"`
	Refunds     bool   `json:"refunds,omitempty"`
	Hash        []byte `json:"hash"`
	Secret      []byte `json:"secret,omitempty"`        // sealed
	Before      []byte `json:"secret_before,omitempty"` // sealed
	BeforeUntil int64  `json:"secret_before_until_ms,omitempty"`
	RevokedAt   int64  `json:"revoked_at_ms,omitempty"`
}

// entry returns what a keyring knows of a row; the error says why it is no key for this
// program. It must not be one then: nobody knows what it may do.
func (r *row) entry(m *Masters) (*entry, error) {
	role, err := ParseRole(r.Role)
	switch {
	case err != nil:
		return nil, err
	case len(r.ID) != idLen || !isBase32(r.ID):
		return nil, fmt.Errorf("an id is %d characters of a-z and 2-7", idLen)
	case len(r.Hash) != sha256.Size:
		return nil, fmt.Errorf("a hash has %d bytes", sha256.Size)
	case (r.BID > 0) != (role == Merchant):
		return nil, fmt.Errorf("a merchant's key has a bid, and no other")
	case r.Refunds && role != App:
		return nil, fmt.Errorf("only an app's key is made to refund")
	case r.Secret != nil && role != Channel, r.Secret == nil && r.Before != nil:
		return nil, fmt.Errorf("only a channel's key signs")
	}
	e := &entry{
		key:  Key{ID: r.ID, Role: role, BID: r.BID, Refunds: r.Refunds || role == Merchant, Signed: r.Secret != nil},
		hash: [sha256.Size]byte(r.Hash),
	}
	if r.RevokedAt != 0 {
		e.until = time.UnixMilli(r.RevokedAt)
	}
	if e.key.Signed {
		e.key.signing = r.signing(m)
	}
	return e, nil
}

// signing decrypts the secrets. A key whose secrets can't be read stays one that signs:
// its requests are refused as long as that is so.
func (r *row) signing(m *Masters) *signing {
	s := &signing{}
	for _, sealed := range [][]byte{r.Secret, r.Before} {
		if sealed == nil {
			continue
		}
		secret, err := m.open(sealed, r.ID)
		if err != nil {
			return &signing{err: err}
		}
		s.secrets = append(s.secrets, secret)
	}
	if r.BeforeUntil != 0 {
		s.before = time.UnixMilli(r.BeforeUntil)
	}
	return s
}
