package auth

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/octopay/octopay/internal/eventually"
	"pgregory.net/rapid"
)

// A knownKey is what a key must be, by what was done to it.
type knownKey struct {
	spec    Spec
	text    string
	until   time.Time // zero: for ever
	secrets []string  // those that sign, the newest first; at most two
	before  time.Time // when the second ends
}

// Whatever is done to keys in whatever order, a keyring that reads then knows each key
// ever made as one that has the rights it was made with, until the end that it was given,
// and by the signing secrets that it has then; and what can't be done is refused.
func TestKeysAreWhatWasDoneToThem(t *testing.T) {
	d := newDesk(t, masters(t, 1))
	rapid.Check(t, func(t *rapid.T) {
		keys := map[string]*knownKey{}
		var ids []string
		made := func(m Made, spec Spec) {
			k := &knownKey{spec: spec, text: m.Text}
			if m.Secret != "" {
				k.secrets = []string{m.Secret}
			}
			keys[m.ID], ids = k, append(ids, m.ID)
		}
		overlap := rapid.SampledFrom([]time.Duration{0, time.Minute, 30 * time.Minute})
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			what := rapid.SampledFrom([]string{"create", "rotate", "rotate secret", "revoke"}).Draw(t, "what")
			if what == "create" || len(ids) == 0 {
				spec := rapid.SampledFrom([]Spec{{Role: App}, {Role: App, Refunds: true}, {Role: Merchant, BID: 7}, {Role: Channel}, {Role: Channel}, {Role: Ops}}).Draw(t, "spec")
				m, err := d.Create(t.Context(), spec, "tester")
				if err != nil {
					t.Fatal(err)
				}
				made(m, spec)
				continue
			}
			id := rapid.SampledFrom(ids).Draw(t, "key")
			k := keys[id]
			switch what {
			case "rotate":
				m, err := d.Rotate(t.Context(), id, overlap.Draw(t, "overlap"), "tester")
				if !k.until.IsZero() {
					if !errors.Is(err, ErrEnding) {
						t.Fatalf("rotated though it has an end: %v", err)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				k.until = m.Until
				made(m, k.spec)
			case "rotate secret":
				m, err := d.RotateSecret(t.Context(), id, overlap.Draw(t, "overlap"), "tester")
				switch {
				case !k.until.IsZero() && errors.Is(err, ErrEnding), k.until.IsZero() && k.secrets == nil && errors.Is(err, ErrNotSigned):
				case err != nil || !k.until.IsZero() || k.secrets == nil:
					t.Fatalf("%+v: %v", k.spec, err)
				default:
					k.secrets, k.before = []string{m.Secret, k.secrets[0]}, m.Until
				}
			case "revoke":
				if _, err := d.Revoke(t.Context(), id, "tester"); err != nil {
					t.Fatal(err)
				}
				k.until = time.Unix(0, 0) // before whatever is read after it
			}
		}
		ring := &Keyring{masters: d.masters, read: d.read, log: quiet}
		eventuallyRead(t, ring)
		s := ring.snapshot.Load()
		for _, id := range ids {
			k := keys[id]
			for _, after := range []time.Duration{0, 59 * time.Second, 29 * time.Minute, 31 * time.Minute} {
				at := s.readAt.Add(after) // by the meta database's clock
				key, err := ring.VerifyAt(s.sentAt.Add(after), k.text)
				if lives := k.until.IsZero() || at.Before(k.until); lives != (err == nil) {
					t.Fatalf("%s, which ends at %s, at %s: %v", id, k.until, at, err)
				}
				if err != nil {
					continue
				}
				if key.ID != id || key.Role != k.spec.Role || key.BID != k.spec.BID || key.Refunds != (k.spec.Refunds || k.spec.Role == Merchant) || key.Signed != (k.secrets != nil) {
					t.Fatalf("%#v of %+v", key, k.spec)
				}
				for _, other := range ids {
					for _, secret := range keys[other].secrets {
						n := slices.Index(k.secrets, secret)
						signs := n == 0 || n == 1 && at.Before(k.before)
						if key.Signed && (ring.VerifySignature(key, signedBy(t, secret, at), anOrder, nil, at) == nil) != signs {
							t.Fatalf("%s: secret %d of it signs at %s: want %v", id, n, at, signs)
						}
					}
				}
			}
		}
	})
}

// signedBy returns the headers of an empty body that a secret signed at a time.
func signedBy(t interface{ Fatalf(string, ...any) }, secret string, at time.Time) Signature {
	ts := fmt.Sprint(at.Unix())
	return Signature{anID, ts, "v1," + string(sign(rawSecret(t, secret), anID, ts, anOrder, nil))}
}

// eventuallyRead reads the keys, again if the machine stood still longer than the question
// may take.
func eventuallyRead(t *rapid.T, k *Keyring) {
	var err error
	for end := time.Now().Add(eventually.Patience); ; {
		if err = k.refresh(t.Context(), time.Now()); err == nil || time.Now().After(end) {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}
