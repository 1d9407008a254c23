package auth_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/octopay/octopay/auth"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"
)

func TestDevelopmentKeysSayWhoTheyAre(t *testing.T) {
	for _, loopback := range []bool{true, false} {
		keys, texts := auth.Development(loopback)
		if len(texts) != 4 {
			t.Fatalf("%d keys", len(texts))
		}
		for i, want := range []auth.Key{
			{Role: auth.App, Refunds: true}, {Role: auth.Merchant, BID: 1001, Refunds: true}, {Role: auth.Channel}, {Role: auth.Ops},
		} {
			got, err := keys.Verify(texts[i])
			want.ID = got.ID
			if err != nil || got != want || got.ID == "" || got.Signed {
				t.Errorf("loopback %v, %s: %#v, %v", loopback, texts[i], got, err)
			}
			if later, err := keys.VerifyAt(time.Now().Add(1000*time.Hour), texts[i]); err != nil || later != got {
				t.Errorf("much later: %v, %v", later, err)
			}
		}
		if fixed := strings.Join(texts, " ") == "dev-app dev-merchant-1001 dev-channel dev-ops"; fixed != loopback {
			t.Errorf("loopback %v: %q", loopback, texts)
		}
	}
}

// The keys that everybody knows are good nowhere else, and random ones in their process
// alone.
func TestDevelopmentKeysAreGoodNowhereElse(t *testing.T) {
	here, fixed := auth.Development(true)
	there, random := auth.Development(false)
	for i := range fixed {
		if _, err := there.Verify(fixed[i]); !errors.Is(err, auth.ErrUnauthenticated) {
			t.Errorf("%s away from loopback: %v", fixed[i], err)
		}
		if _, err := here.Verify(random[i]); !errors.Is(err, auth.ErrUnauthenticated) {
			t.Errorf("a random key on loopback: %v", err)
		}
		if again, _ := auth.Development(false); again != nil {
			if _, err := again.Verify(random[i]); !errors.Is(err, auth.ErrUnauthenticated) {
				t.Errorf("a random key in another process: %v", err)
			}
		}
	}
}

// Any text that differs from a key in anything is none.
func TestNothingButTheKeyIsTheKey(t *testing.T) {
	keys, texts := auth.Development(false)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom(texts).Draw(t, "key")
		other := []byte(text)
		switch rapid.IntRange(0, 3).Draw(t, "how") {
		case 0:
			at := rapid.IntRange(0, len(other)-1).Draw(t, "at")
			other[at] = rapid.Byte().Filter(func(b byte) bool { return b != text[at] }).Draw(t, "byte")
		case 1:
			other = other[:rapid.IntRange(0, len(other)-1).Draw(t, "cut to")]
		case 2:
			other = append(other, rapid.SliceOfN(rapid.Byte(), 1, 100).Draw(t, "more")...)
		case 3: // of the right form
			parts := strings.Split(text, "_")
			role := rapid.SampledFrom([]string{"app", "merchant", "channel", "ops"}).Draw(t, "role")
			other = []byte("opk_" + role + "_" + parts[2] + "_" + rapid.StringMatching("[a-z2-7]{52}").Draw(t, "secret"))
		}
		if got, err := keys.Verify(string(other)); !errors.Is(err, auth.ErrUnauthenticated) || got != (auth.Key{}) {
			t.Fatalf("%q instead of %q: %v, %v", other, text, got, err)
		}
		if _, err := keys.Verify(text); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAKeyringThatReadNothingRefusesWhatCouldBeAKey(t *testing.T) {
	_, texts := auth.Development(false)
	var keys auth.Keyring
	for text, want := range map[string]error{
		texts[0]: auth.ErrUnavailable, "": auth.ErrUnauthenticated, "opk_app_x_y": auth.ErrUnauthenticated, "dev-app": auth.ErrUnavailable,
		"opk_root_" + strings.TrimPrefix(texts[0], "opk_app_"): auth.ErrUnauthenticated,
	} {
		if _, err := keys.Verify(text); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", text, err, want)
		}
	}
}

func TestBearer(t *testing.T) {
	for header, want := range map[string]string{
		"Bearer dev-app": "dev-app", "bearer dev-app": "dev-app", "BEARER   x": "x", "Bearer x y": "x y",
		"": "", "Bearer": "", "Bearer ": "", "Bearer\tx": "", "Basic x": "", "dev-app": "", "Bearerx y": "",
	} {
		if got, ok := auth.Bearer(header); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", header, got, ok)
		}
	}
}

func TestRolesAreReadAsTheyAreWritten(t *testing.T) {
	for _, r := range []auth.Role{auth.App, auth.Merchant, auth.Channel, auth.Ops} {
		if got, err := auth.ParseRole(r.String()); err != nil || got != r {
			t.Errorf("%s: %v, %v", r, got, err)
		}
	}
	for _, no := range []string{"", "App", "root", "app ", "role(9)"} {
		if r, err := auth.ParseRole(no); err == nil || r != 0 {
			t.Errorf("%q is %s", no, r)
		}
	}
	if s := auth.Role(9).String(); s != "role(9)" {
		t.Error(s)
	}
}

// However a key is printed, it shows its role and id.
func TestAKeyPrintsAsItsRoleAndID(t *testing.T) {
	keys, texts := auth.Development(true)
	key, err := keys.Verify(texts[1])
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(verb, key); got != "merchant dev-merchant-1001" {
			t.Errorf("%s: %s", verb, got)
		}
	}
}

func TestVerifyAllocatesNothing(t *testing.T) {
	keys, texts := auth.Development(false)
	unknown := texts[0][:8] + "22222222222" + texts[0][19:]
	for _, text := range append(texts, unknown, "nonsense", texts[0][:len(texts[0])-1]+"1", texts[1][:len(texts[1])-1]+"~") {
		if n := testing.AllocsPerRun(100, func() { _, _ = keys.Verify(text) }); n != 0 {
			t.Errorf("%q: %v allocations", text, n)
		}
	}
}

// Fault 30, of keys: whatever callers invent takes no memory, and no label of a metric.
func TestFault30InventedKeysLeaveNothingBehind(t *testing.T) {
	keys, _ := auth.Development(false)
	series := testutil.CollectAndCount(keys)
	const digits = "abcdefghijklmnopqrstuvwxyz234567"
	invented := []byte("opk_app_aaaaaaaaaaaa_" + strings.Repeat("a", 52))
	invent := func(n int) string {
		for at := 19; n > 0; at-- {
			invented[at] = digits[n%32]
			n /= 32
		}
		return string(invented)
	}
	const n = 100_000
	i := 0
	if allocs := testing.AllocsPerRun(n, func() {
		i++
		if _, err := keys.Verify(invent(i)); !errors.Is(err, auth.ErrUnauthenticated) {
			t.Fatal(err)
		}
	}); allocs > 1 { // the text of the key
		t.Errorf("%v allocations for each", allocs)
	}
	if got := testutil.CollectAndCount(keys); got != series {
		t.Errorf("%d series, before it were %d", got, series)
	}
	if err := testutil.CollectAndCompare(keys, strings.NewReader(fmt.Sprintf(`# HELP octopay_auth_refused_total Requests refused for their key or signature.
# TYPE octopay_auth_refused_total counter
octopay_auth_refused_total{reason="malformed"} 0
octopay_auth_refused_total{reason="revoked"} 0
octopay_auth_refused_total{reason="signature"} 0
octopay_auth_refused_total{reason="skew"} 0
octopay_auth_refused_total{reason="unavailable"} 0
octopay_auth_refused_total{reason="unknown"} %d
octopay_auth_refused_total{reason="wrong_secret"} 0
`, i)), "octopay_auth_refused_total"); err != nil {
		t.Error(err)
	}
}

func BenchmarkVerify(b *testing.B) {
	keys, texts := auth.Development(false)
	other, _ := auth.Development(false)
	for name, k := range map[string]*auth.Keyring{"good": keys, "unknown": other} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					_, _ = k.Verify(texts[1])
				}
			})
		})
	}
}

func FuzzVerify(f *testing.F) {
	keys, texts := auth.Development(false)
	good := map[string]bool{}
	for _, text := range texts {
		f.Add(text)
		good[text] = true
	}
	for _, edge := range []string{"", "opk_", "opk_app__", "opk_app_\x00", "dev-", "dev-app", "dev-" + strings.Repeat("x", 100), strings.Repeat("_", 200)} {
		f.Add(edge)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if key, err := keys.Verify(text); (err == nil) != good[text] || err != nil && key != (auth.Key{}) {
			t.Errorf("%q: %v, %v", text, key, err)
		}
	})
}

func TestAnIDIsReadFromAnIDOrAKey(t *testing.T) {
	_, texts := auth.Development(false)
	for _, text := range texts {
		id := strings.Split(text, "_")[2]
		for _, s := range []string{id, text} {
			if got, err := auth.ParseID(s); err != nil || got != id {
				t.Errorf("%q: %q, %v", s, got, err)
			}
		}
		for _, s := range []string{"", "dev-app", id + "a", id[1:], strings.ToUpper(id), text + "x", text[1:], "opk_" + id, " " + id} {
			if got, err := auth.ParseID(s); err == nil || got != "" || s != "" && strings.Contains(err.Error(), s) {
				t.Errorf("%q: %q, %v", s, got, err)
			}
		}
	}
}
