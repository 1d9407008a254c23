package auth

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// aMaster is the text of a master key.
func aMaster(b byte) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32)) }

func masters(t interface{ Fatal(...any) }, keys ...byte) *Masters {
	var texts []string
	for _, b := range keys {
		texts = append(texts, aMaster(b))
	}
	m, err := ParseMasters(strings.Join(texts, "\n") + "\n")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A secret is opened for its key, by whoever has the master key that sealed it.
func TestASecretIsOpenedByItsMasterKeyAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := rapid.ByteRange(1, 4)
		sealer, opener := []byte{draw.Draw(t, "seals")}, []byte{draw.Draw(t, "opens")}
		if second := draw.Draw(t, "opens too"); second != opener[0] {
			opener = append(opener, second)
		}
		if second := draw.Draw(t, "could seal"); second != sealer[0] {
			sealer = append(sealer, second)
		}
		secret := rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(t, "secret")
		id, other := rapid.StringMatching("[a-z2-7]{12}").Draw(t, "id"), rapid.StringMatching("[a-z2-7]{12}").Draw(t, "other")
		m := masters(t, opener...)
		sealed, err := masters(t, sealer...).seal(secret, id)
		if err != nil {
			t.Fatal(err)
		}
		got, err := m.open(sealed, id)
		if has := bytes.Contains(opener, sealer[:1]); has != (err == nil) || has && !bytes.Equal(got, secret) || !has && !errors.Is(err, errNoMaster) {
			t.Fatalf("sealed by %v, opened by %v: %v", sealer, opener, err)
		}
		if m.fresh(sealed) != (opener[0] == sealer[0]) {
			t.Fatalf("sealed by %v, the first is %d: fresh %v", sealer, opener[0], m.fresh(sealed))
		}
		if _, err := m.open(sealed, other); err == nil && other != id {
			t.Fatal("it is opened for another key")
		}
		sealed[rapid.IntRange(0, len(sealed)-1).Draw(t, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if _, err := m.open(sealed, id); err == nil {
			t.Fatal("it is opened though it is damaged")
		}
		if _, err := m.open(sealed[:rapid.IntRange(0, len(sealed)-1).Draw(t, "cut to")], id); err == nil {
			t.Fatal("a part of it is opened")
		}
	})
}

func TestSealingTheSameSecretTwiceShowsNothing(t *testing.T) {
	m := masters(t, 1)
	a, err1 := m.seal([]byte("secret"), "k")
	b, err2 := m.seal([]byte("secret"), "k")
	if errors.Join(err1, err2) != nil || bytes.Equal(a, b) || bytes.Contains(a, []byte("secret")) {
		t.Errorf("%x %x", a, b)
	}
}

func TestMasterKeysThatMakeNoSense(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"none":             {"", "one master key, or two"},
		"spaces":           {" \n\t", "one master key, or two"},
		"three":            {strings.Join([]string{aMaster(1), aMaster(2), aMaster(3)}, " "), "one master key, or two"},
		"short":            {base64.StdEncoding.EncodeToString(make([]byte, 31)), "master key 1 of 1 must be 32 bytes in base64"},
		"long":             {base64.StdEncoding.EncodeToString(make([]byte, 33)), "master key 1 of 1 must be 32 bytes in base64"},
		"no base64":        {aMaster(1) + " s3cret!", "master key 2 of 2 must be 32 bytes"},
		"without padding":  {strings.TrimRight(aMaster(1), "="), "must be 32 bytes"},
		"the same twice":   {aMaster(1) + " " + aMaster(1), "are the same"},
		"bits that aren't": {strings.Repeat("A", 42) + "B=", "must be 32 bytes"},
	} {
		m, err := ParseMasters(c.text)
		if m != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v", name, m, err)
		}
		for word := range strings.FieldsSeq(c.text) {
			if strings.Contains(err.Error(), word) {
				t.Errorf("%s: the error quotes the key: %v", name, err)
			}
		}
	}
}

func TestMasterKeysPrintAsTheirIDs(t *testing.T) {
	m := masters(t, 1, 2)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(verb, m); strings.Count(got, "master key ") != 2 || strings.Contains(got, aMaster(1)) || len(got) > 70 {
			t.Errorf("%s: %s", verb, got)
		}
	}
	if got := fmt.Sprint((*Masters)(nil)); got != "no master key" {
		t.Error(got)
	}
}

func TestWithoutAMasterKeyNothingIsSealedOrOpened(t *testing.T) {
	sealed, err := masters(t, 1).seal([]byte("s"), "k")
	if err != nil {
		t.Fatal(err)
	}
	var none *Masters
	if _, err := none.open(sealed, "k"); !errors.Is(err, errNoMaster) {
		t.Error(err)
	}
	if _, err := none.seal(nil, "k"); !errors.Is(err, errNoMaster) {
		t.Error(err)
	}
	if none.fresh(sealed) {
		t.Error("fresh")
	}
}
