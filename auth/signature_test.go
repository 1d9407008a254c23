package auth

import (
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const (
	aBody   = `{"channel":"wechat","channel_trade_no":"4200001","amount":19900,"currency":"CNY","subject":"é"}`
	anID    = "msg_2Lml4n"
	aTime   = "1764510000"
	anOrder = "15770253150322220879872"
)

var quiet = slog.New(slog.DiscardHandler)

var signedAt = time.Unix(1764510000, 0)

// signer returns a key that signs with secrets, of which the second ends an hour after
// signedAt.
func signer(secrets ...[]byte) Key {
	return Key{ID: "k", Role: Channel, Signed: true, signing: &signing{secrets: secrets, before: signedAt.Add(time.Hour)}}
}

func counting(n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(i)
	}
	return out
}

// What another program computes for these values (Python's hmac, and openssl dgst
// -sha256 -mac HMAC) is what is right here.
func TestSignaturesAreThoseOfOtherPrograms(t *testing.T) {
	var k Keyring
	for _, c := range []struct {
		secret []byte
		want   string
	}{
		{counting(32), "IirEoaaRvDyhI8GyKYE/QmferZPwIyWna9ysIhwsXUs="},
		{[]byte(strings.Repeat("\xff", 24)), "rKcbUtNeTAhIKaBwtAmFTEV1yQhvbSKgdJvxg9xe0rk="},
	} {
		if err := k.VerifySignature(signer(c.secret), Signature{anID, aTime, "v1," + c.want}, anOrder, []byte(aBody), signedAt); err != nil {
			t.Errorf("%s: %v", c.want, err)
		}
	}
}

func TestWhatIsNotSignedSoIsRefused(t *testing.T) {
	const good = "v1,IirEoaaRvDyhI8GyKYE/QmferZPwIyWna9ysIhwsXUs="
	key := signer(counting(32))
	for name, c := range map[string]struct {
		h     Signature
		order string
		body  string
		late  time.Duration
		want  error
	}{
		"as it is":               {h: Signature{anID, aTime, good}},
		"300 s late":             {h: Signature{anID, aTime, good}, late: 300 * time.Second},
		"300 s early":            {h: Signature{anID, aTime, good}, late: -300 * time.Second},
		"later":                  {h: Signature{anID, aTime, good}, late: 300*time.Second + 1, want: ErrSkew},
		"earlier":                {h: Signature{anID, aTime, good}, late: -300*time.Second - 1, want: ErrSkew},
		"among others":           {h: Signature{anID, aTime, "v2,x v1,AAAA " + good + " v1a,y"}},
		"one of too many":        {h: Signature{anID, aTime, strings.Repeat("v1,x ", 8) + good}, want: ErrSignature},
		"for another order":      {h: Signature{anID, aTime, good}, order: "15770253150322220879873", want: ErrSignature},
		"of another body":        {h: Signature{anID, aTime, good}, body: aBody + " ", want: ErrSignature},
		"of another message":     {h: Signature{"msg_2Lml4o", aTime, good}, want: ErrSignature},
		"of another time":        {h: Signature{anID, "1764510001", good}, want: ErrSignature},
		"without the id":         {h: Signature{"", aTime, good}, want: ErrSignature},
		"without the time":       {h: Signature{anID, "", good}, want: ErrSignature},
		"without a signature":    {h: Signature{anID, aTime, ""}, want: ErrSignature},
		"an id with a dot":       {h: Signature{"a.b", aTime, good}, want: ErrSignature},
		"an id with a space":     {h: Signature{"a b", aTime, good}, want: ErrSignature},
		"an id that is long":     {h: Signature{strings.Repeat("i", 257), aTime, good}, want: ErrSignature},
		"a time with a sign":     {h: Signature{anID, "+" + aTime, good}, want: ErrSignature},
		"a time with a fraction": {h: Signature{anID, aTime + ".0", good}, want: ErrSignature},
		"a time that is long":    {h: Signature{anID, "0000000" + aTime, good}, want: ErrSignature},
		"a time of long ago":     {h: Signature{anID, "0", good}, want: ErrSkew},
		"a time far ahead":       {h: Signature{anID, "999999999999", good}, want: ErrSkew},
		"of another version":     {h: Signature{anID, aTime, "v2" + good[2:]}, want: ErrSignature},
		"without a version":      {h: Signature{anID, aTime, good[3:]}, want: ErrSignature},
		"with commas between":    {h: Signature{anID, aTime, "v1,AAAA," + good}, want: ErrSignature},
		"without its padding":    {h: Signature{anID, aTime, good[:len(good)-1]}, want: ErrSignature},
		"written in another way": {h: Signature{anID, aTime, good[:len(good)-2] + "t="}, want: ErrSignature}, // the same 32 bytes
	} {
		order, body := anOrder, aBody
		if c.order != "" {
			order = c.order
		}
		if c.body != "" {
			body = c.body
		}
		var k Keyring
		if err := k.VerifySignature(key, c.h, order, []byte(body), signedAt.Add(c.late)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if s, o := k.refused[signature].Load(), k.refused[skew].Load(); s+o != 0 != (c.want != nil) || o != 0 != errors.Is(c.want, ErrSkew) {
			t.Errorf("%s: counted %d and %d", name, s, o)
		}
	}
}

func TestTwoSecretsSignWhileTheyAreChanged(t *testing.T) {
	var k Keyring
	after, before := counting(32), counting(24)
	key := signer(after, before)
	header := func(secret []byte, at time.Time) Signature {
		ts := fmt.Sprint(at.Unix())
		return Signature{anID, ts, "v1," + string(sign(secret, anID, ts, anOrder, []byte(aBody)))}
	}
	for _, c := range []struct {
		secret []byte
		at     time.Time
		want   error
	}{
		{after, signedAt, nil}, {before, signedAt, nil}, {counting(31), signedAt, ErrSignature},
		{before, signedAt.Add(time.Hour - time.Second), nil}, {before, signedAt.Add(time.Hour), ErrSignature}, {after, signedAt.Add(time.Hour), nil},
	} {
		if err := k.VerifySignature(key, header(c.secret, c.at), anOrder, []byte(aBody), c.at); !errors.Is(err, c.want) {
			t.Errorf("%d bytes at %s: %v, want %v", len(c.secret), c.at, err, c.want)
		}
	}
}

// A key that signs is never taken for one that doesn't, though nobody can read its
// secrets.
func TestSecretsThatCannotBeReadRefuse(t *testing.T) {
	for _, s := range []*signing{nil, {err: errors.New("of another master key")}} {
		var k Keyring
		key := Key{ID: "k", Role: Channel, Signed: true, signing: s}
		if err := k.VerifySignature(key, Signature{}, anOrder, nil, signedAt); !errors.Is(err, ErrUnavailable) || k.refused[unavailable].Load() != 1 {
			t.Errorf("%v: %v", s, err)
		}
	}
	if err := new(Keyring).VerifySignature(Key{ID: "k", Role: Channel}, Signature{}, anOrder, nil, signedAt); err != nil {
		t.Errorf("a key that doesn't sign: %v", err)
	}
}

// What one signs is right, and with any byte changed it isn't.
func TestASignatureIsOfEveryByte(t *testing.T) {
	var k Keyring
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.SliceOfN(rapid.Byte(), 1, 64).Draw(t, "secret")
		id := rapid.StringMatching(`[!-\-/-~]{1,256}`).Draw(t, "id")
		order := rapid.StringMatching(`1[0-9]{22}`).Draw(t, "order")
		body := rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		key := signer(secret)
		mac := sign(secret, id, aTime, order, body)
		if err := k.VerifySignature(key, Signature{id, aTime, "v1," + string(mac)}, order, body, signedAt); err != nil {
			t.Fatal(err)
		}
		raw, err := base64.StdEncoding.DecodeString(string(mac))
		if err != nil || len(raw) != 32 {
			t.Fatal(len(raw), err)
		}
		flip := func(b []byte) []byte {
			out := []byte(string(b))
			out[rapid.IntRange(0, len(out)-1).Draw(t, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
			return out
		}
		h, o, b := Signature{id, aTime, "v1," + string(mac)}, order, body
		switch rapid.IntRange(0, 3).Draw(t, "what") {
		case 0:
			h.ID = string(flip([]byte(h.ID)))
		case 1:
			o = string(flip([]byte(o)))
		case 2:
			b = flip(append([]byte("x"), b...))
		case 3:
			h.Signature = "v1," + base64.StdEncoding.EncodeToString(flip(raw))
		}
		if err := k.VerifySignature(key, h, o, b, signedAt); !errors.Is(err, ErrSignature) {
			t.Fatal(err)
		}
	})
}

func FuzzVerifySignature(f *testing.F) {
	const good = "v1,IirEoaaRvDyhI8GyKYE/QmferZPwIyWna9ysIhwsXUs="
	f.Add(anID, aTime, good, []byte(aBody))
	f.Add("", "", "", []byte{})
	f.Add(".", "-1", "v1, v1,, "+good, []byte(aBody))
	f.Add(anID, "99999999999999999999", strings.Repeat(good+" ", 9), []byte(aBody))
	key := signer(counting(32), counting(24))
	f.Fuzz(func(t *testing.T, id, timestamp, header string, body []byte) {
		var k Keyring
		err := k.VerifySignature(key, Signature{id, timestamp, header}, anOrder, body, signedAt)
		switch {
		case err == nil:
			one := "v1," + string(sign(counting(32), id, timestamp, anOrder, body))
			two := "v1," + string(sign(counting(24), id, timestamp, anOrder, body))
			if !strings.Contains(header, one) && !strings.Contains(header, two) {
				t.Errorf("%q %q %q of %q is taken for signed", id, timestamp, header, body)
			}
		case !errors.Is(err, ErrSignature) && !errors.Is(err, ErrSkew):
			t.Errorf("%v", err)
		}
	})
}

// mustSecret returns the bytes of a signing secret's text.
func mustSecret(t *testing.T, text string) []byte {
	t.Helper()
	return rawSecret(t, text)
}

func rawSecret(t interface{ Fatalf(string, ...any) }, text string) []byte {
	encoded, ok := strings.CutPrefix(text, "whsec_")
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || !ok || len(raw) != signingLen {
		t.Fatalf("a secret of %d bytes, %v", len(raw), err)
	}
	return raw
}
