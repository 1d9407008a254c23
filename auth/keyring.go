package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"sync/atomic"
	"time"
)

const (
	// KeysMax bounds the keys that live at once, and with them what a Keyring holds.
	KeysMax = 100_000

	// goodFor is how long keys are good after they were last read.
	goodFor = time.Hour

	// stillMax is how long ago a keyring asked last, whatever came of it, when it must have
	// stood still: with its whole process, for it asks every two seconds. It then knows
	// nothing of what was revoked meanwhile.
	stillMax = 10 * time.Second
)

// A Keyring holds all keys in memory. It is safe for concurrent use. The zero value knows
// none.
type Keyring struct {
	masters *Masters
	file    string // "": none
	schema  string // whose keys they are
	log     *slog.Logger
	read    func(ctx context.Context, known int64, whole bool) (reading, error) // see Store.read; nil: see Development

	snapshot     atomic.Pointer[snapshot]  // nil: none was read
	asked        atomic.Pointer[time.Time] // when the last question began that is over; nil: none is
	refused      refusals
	failures     atomic.Int64 // refreshes that failed
	saveFailures atomic.Int64 // writes of the file that failed
}

// A snapshot is all keys as they were at one moment. It never changes.
type snapshot struct {
	*list
	fixed  bool      // it is good for ever
	readAt time.Time // that moment, by the meta database's clock
	sentAt time.Time // by ours, just before it was asked
}

// A list is keys as they were read together. It never changes.
type list struct {
	keys    map[string]*entry // by id
	rows    []row             // what they were made of
	version int64
	readAt  time.Time // when all were read, by our clock; zero: they are not from the database
	left    int       // rows that are no keys for this program
	sealed  int       // keys whose signing secrets can't be read
}

// tooOld reports whether the keys are good no more at t of our clock.
func (s *snapshot) tooOld(t time.Time) bool { return !s.fixed && t.Sub(s.sentAt) >= goodFor }

// An entry is a key in a snapshot.
type entry struct {
	key   Key
	hash  [sha256.Size]byte // of its text
	until time.Time         // it is good before then, by the meta database's clock; zero: for ever
}

// now returns the meta database's time at t of our clock.
func (s *snapshot) now(t time.Time) time.Time { return s.readAt.Add(t.Sub(s.sentAt)) }

// stood reports whether the keyring stood still at t of our clock.
func (k *Keyring) stood(t time.Time) bool {
	asked := k.asked.Load()
	return asked != nil && t.Sub(*asked) >= stillMax
}

// Verify returns whose key a text is. See VerifyAt.
func (k *Keyring) Verify(text string) (Key, error) { return k.VerifyAt(time.Now(), text) }

// VerifyAt returns whose key a text is at a time: the caller's, with its monotonic
// clock. It returns ErrUnauthenticated for one that is none, and ErrUnavailable for one
// that could be, while nobody can say so: the keys are too old, or this process stood still,
// and has yet to ask what was revoked meanwhile. It asks nobody and allocates nothing. How long it takes
// says nothing about the secret.
func (k *Keyring) VerifyAt(t time.Time, text string) (Key, error) {
	id, ok := idOf(text)
	if !ok {
		k.refused[malformed].Add(1)
		return Key{}, ErrUnauthenticated
	}
	s := k.snapshot.Load()
	if s == nil || s.tooOld(t) || k.stood(t) {
		k.refused[unavailable].Add(1)
		return Key{}, ErrUnavailable
	}
	e := s.keys[id]
	if e == nil {
		k.refused[unknown].Add(1)
		return Key{}, ErrUnauthenticated
	}
	var buf [max(keyLenMax, devLenMax)]byte // a conversion would allocate
	hash := sha256.Sum256(buf[:copy(buf[:], text)])
	if subtle.ConstantTimeCompare(hash[:], e.hash[:]) != 1 {
		k.refused[wrongSecret].Add(1)
		return Key{}, ErrUnauthenticated
	}
	if !e.until.IsZero() && !s.now(t).Before(e.until) {
		k.refused[revoked].Add(1)
		return Key{}, ErrUnauthenticated
	}
	return e.key, nil
}

// A reason is why a request was refused. The list is the bound of a metric's label.
type reason int

const (
	malformed reason = iota
	unknown
	wrongSecret
	revoked
	unavailable
	signature
	skew
	reasons
)

var reasonNames = [reasons]string{"malformed", "unknown", "wrong_secret", "revoked", "unavailable", "signature", "skew"}

// refusals count what was refused, by reason.
type refusals [reasons]atomic.Int64
