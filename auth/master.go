package auth

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

const (
	masterLen     = 32 // AES-256
	masterIDLen   = 8
	signingLen    = 32 // of a secret that is made here
	sealedVersion = 1
)

// Masters are the master keys that signing secrets are encrypted with in the meta
// database: one, or two while it is being changed. The first encrypts, each decrypts. nil
// can do neither. They print as their ids.
//
// A sealed secret is
//
//	1 | id of the master key, 8 bytes | nonce, 12 | AES-256-GCM of the secret
//
// with the id of the API key as associated data, so that a secret can't be moved to
// another key. The layout is stored.
type Masters struct{ all []master }

type master struct {
	id   [masterIDLen]byte // of its hash
	aead cipher.AEAD
}

// errNoMaster reports a secret that needs a master key which isn't there.
var errNoMaster = errors.New("no master key of it is set")

// ParseMasters reads one or two master keys, each 32 bytes in base64, with white space
// between. Its errors quote nothing of them.
func ParseMasters(text string) (*Masters, error) {
	words := strings.Fields(text)
	if len(words) < 1 || len(words) > 2 {
		return nil, errors.New("there must be one master key, or two with white space between")
	}
	m := &Masters{}
	for i, word := range words {
		raw, err := base64.StdEncoding.Strict().DecodeString(word)
		if err != nil || len(raw) != masterLen {
			return nil, fmt.Errorf("master key %d of %d must be %d bytes in base64, such as openssl rand -base64 %d makes", i+1, len(words), masterLen, masterLen)
		}
		block, err := aes.NewCipher(raw)
		if err != nil {
			return nil, err
		}
		one := master{}
		if one.aead, err = cipher.NewGCM(block); err != nil {
			return nil, err
		}
		// Its hash says nothing of a key of 256 random bits.
		sum := sha256.Sum256(append([]byte("octopay master key id "), raw...))
		copy(one.id[:], sum[:])
		if i > 0 && one.id == m.all[0].id {
			return nil, errors.New("the two master keys are the same")
		}
		m.all = append(m.all, one)
	}
	return m, nil
}

// String returns the ids.
func (m *Masters) String() string {
	if m == nil {
		return "no master key"
	}
	var ids []string
	for _, one := range m.all {
		ids = append(ids, fmt.Sprintf("master key %x", one.id))
	}
	return strings.Join(ids, ", ")
}

// GoString is String.
func (m *Masters) GoString() string { return m.String() }

// seal encrypts a secret of an API key.
func (m *Masters) seal(secret []byte, keyID string) ([]byte, error) {
	if m == nil {
		return nil, errNoMaster
	}
	first := m.all[0]
	out := append([]byte{sealedVersion}, first.id[:]...)
	nonce := make([]byte, first.aead.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return first.aead.Seal(append(out, nonce...), nonce, secret, []byte(keyID)), nil
}

// open decrypts what seal made.
func (m *Masters) open(sealed []byte, keyID string) ([]byte, error) {
	if len(sealed) < 1+masterIDLen || sealed[0] != sealedVersion {
		return nil, errors.New("it is not a sealed secret")
	}
	if m == nil {
		return nil, errNoMaster
	}
	id, rest := sealed[1:1+masterIDLen], sealed[1+masterIDLen:]
	for _, one := range m.all {
		if string(one.id[:]) != string(id) {
			continue
		}
		n := one.aead.NonceSize()
		if len(rest) < n {
			return nil, errors.New("it is not a sealed secret")
		}
		secret, err := one.aead.Open(nil, rest[:n], rest[n:], []byte(keyID))
		if err != nil {
			return nil, errors.New("it is damaged, or of another key")
		}
		return secret, nil
	}
	return nil, errNoMaster
}

// fresh reports whether sealed was made by the first master key.
func (m *Masters) fresh(sealed []byte) bool {
	return m != nil && len(sealed) > masterIDLen && string(sealed[1:1+masterIDLen]) == string(m.all[0].id[:])
}

// newSecret makes a signing secret of an API key: its text, and sealed.
func (m *Masters) newSecret(keyID string) (text string, sealed []byte, err error) {
	raw := make([]byte, signingLen)
	_, _ = rand.Read(raw) // never fails
	sealed, err = m.seal(raw, keyID)
	return secretBegin + base64.StdEncoding.EncodeToString(raw), sealed, err
}
