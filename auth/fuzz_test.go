package auth

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzBearer: the key in a header is what stands behind the scheme and spaces.
func FuzzBearer(f *testing.F) {
	for _, s := range []string{"", "Bearer", "Bearer ", "Bearer a", "bearer  a b", "BEARER a", "Basic a", "Bearera", "Bearer\ta", " Bearer a", "Bearer \x00", "ｂearer a"} {
		f.Add(s)
	}
	form := regexp.MustCompile(`(?s)^[Bb][Ee][Aa][Rr][Ee][Rr] +([^ ].*)$`)
	f.Fuzz(func(t *testing.T, header string) {
		key, ok := Bearer(header)
		parts := form.FindStringSubmatch(header)
		if ok != (parts != nil) || ok && key != parts[1] {
			t.Fatalf("%q: %q, %t", header, key, ok)
		}
		if again, ok2 := Bearer("Bearer " + key); ok && (again != key || !ok2) {
			t.Fatalf("%q written again is %q", key, again)
		}
	})
}

// FuzzParseID: an id is read from an id or a whole key, and an error repeats nothing.
func FuzzParseID(f *testing.F) {
	_, texts := Development(false)
	for _, s := range append(texts, "", "dev-app", "aaaaaaaaaaaa", "opk_app_aaaaaaaaaaaa_", "opk__aaaaaaaaaaaa_"+strings.Repeat("a", secretLen), strings.Repeat("_", 79)) {
		f.Add(s)
	}
	form := regexp.MustCompile(`^([a-z2-7]{12})$|^opk_(?:app|merchant|channel|ops)_([a-z2-7]{12})_[a-z2-7]{52}$`)
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseID(s)
		parts := form.FindStringSubmatch(s)
		if (err == nil) != (parts != nil) || err == nil && id != parts[1]+parts[2] {
			t.Fatalf("%q: %q, %v", s, id, err)
		}
		if err == nil {
			if again, err := ParseID(id); err != nil || again != id {
				t.Fatalf("%q: %q, %v", id, again, err)
			}
		} else if _, other := ParseID(""); id != "" || err.Error() != other.Error() {
			t.Fatalf("%q: the error is one of its own: %v", s, err)
		}
	})
}

// FuzzParseRole: a role is read from its own name.
func FuzzParseRole(f *testing.F) {
	for _, s := range []string{"", "app", "merchant", "channel", "ops", "App", "role(7)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRole(s)
		known := slices.Contains([]string{"app", "merchant", "channel", "ops"}, s)
		if known != (err == nil) || known && r.String() != s || !known && r != 0 {
			t.Fatalf("%q: %v, %v", s, r, err)
		}
	})
}

// FuzzParseMasters: master keys that are read can seal a secret and open it; an error
// repeats nothing of what could be one.
func FuzzParseMasters(f *testing.F) {
	for _, s := range []string{"", aMaster(1), aMaster(1) + "\n" + aMaster(2) + "\n", aMaster(1) + " " + aMaster(1), aMaster(1)[1:], strings.TrimRight(aMaster(1), "="), "a b c", "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ParseMasters(text)
		if err != nil {
			for word := range strings.FieldsSeq(text) {
				if len(word) > 8 && strings.Contains(err.Error(), word) {
					t.Fatalf("%v repeats %q", err, word)
				}
			}
			return
		}
		if n := len(strings.Fields(text)); len(m.all) != n || n > 2 {
			t.Fatalf("%d keys of %q", len(m.all), text)
		}
		secret, sealed, err := m.newSecret("aaaaaaaaaaaa")
		if err != nil {
			t.Fatal(err)
		}
		raw, err := m.open(sealed, "aaaaaaaaaaaa")
		if err != nil || !bytes.Equal(raw, rawSecret(t, secret)) {
			t.Fatalf("%x, %v of %s", raw, err, secret)
		}
		if again, err := ParseMasters(strings.Join(strings.Fields(text), " ")); err != nil || again.String() != m.String() {
			t.Fatalf("%v, %v; it was %v", again, err, m)
		}
	})
}

// FuzzKeysFile: a file of keys that is read is written as the same keys; whatever is
// changed in one is found.
func FuzzKeysFile(f *testing.F) {
	text, err := file{Schema: "octopay_meta", ReadAt: 1, Keys: []row{{ID: "aaaaaaaaaaaa", Role: "app", Hash: bytes.Repeat([]byte{7}, 32)}}}.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text[headLen:], false)
	f.Add(text, true)
	for _, s := range []string{"", "null", "{}", `{"keys":[]}`, `{"keys":null}`, `{"keys":[{"id":1}]}`, `{"schema":"a"}{}`, "[", `{"read_at_ms":1e3}`, `{"keys":[{},{}]}`} {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, text []byte, whole bool) {
		if !whole {
			text = append(head(text), text...)
		}
		got, err := decode(text)
		if err != nil {
			if len(got.Keys) > 0 || got.Schema != "" || !strings.HasPrefix(err.Error(), "it") {
				t.Fatalf("%+v, %v", got, err)
			}
			return
		}
		again, err := got.encode()
		if err != nil {
			t.Fatal(err)
		}
		same, err := decode(again)
		if err != nil || !cmp.Equal(same, got) {
			t.Fatalf("%+v became %+v, %v", got, same, err)
		}
		spoilt := bytes.Clone(text)
		spoilt[len(text)/2] ^= 1
		if _, err := decode(spoilt); err == nil {
			t.Fatal("a bit turned over isn't found")
		}
	})
}
