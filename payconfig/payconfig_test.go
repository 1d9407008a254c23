package payconfig

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Law: a text that was made is read as what it was made of, and made again the same.
func TestWhatIsWrittenIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := snapshot().Draw(t, "config")
		for name, text := range map[string]string{"Document": string(s.Document()), "Text": s.Text()} {
			got, err := Decode([]byte(text))
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, text)
			}
			want := s
			if name == "Text" {
				want = s.at(0)
			}
			if !same(got, want) || !bytes.Equal(got.Document(), want.Document()) {
				t.Fatalf("%s: %s\nis read as\n%s", name, text, got.Document())
			}
		}
	})
}

func same(a, b *Snapshot) bool {
	return a.version == b.version && a.refuseUnknown == b.refuseUnknown && slices.Equal(a.merchants, b.merchants) && slices.Equal(a.channels, b.channels) &&
		a.text == b.text && a.hash == b.hash
}

// Law: the order of what is written and the version don't matter to the hash, and all
// else does.
func TestTheHashIsOfWhatIsSaid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := snapshot().Draw(t, "config")
		merchants, channels := s.Merchants(), s.Channels()
		other := build(s.version+1, s.refuseUnknown, rapid.Permutation(merchants).Draw(t, "merchants"), rapid.Permutation(channels).Draw(t, "channels"))
		if other.hash != s.hash || other.text != s.text {
			t.Fatalf("another order has another hash")
		}
		if d := Compare(s, other); !d.None() {
			t.Fatalf("another order is a change: %+v", d)
		}
		refuse := s.refuseUnknown
		change(t, &refuse, &merchants, &channels)
		changed := build(s.version, refuse, merchants, channels)
		if d := Compare(s, changed); changed.hash == s.hash || d.None() {
			t.Fatalf("the hash stays, changes %+v:\n%s\n%s", d, s.text, changed.text)
		}
	})
}

// change changes one thing.
func change(t *rapid.T, refuse *bool, merchants *[]Merchant, channels *[]Channel) {
	kinds := []string{"refuse", "new merchant", "new channel"}
	if len(*merchants) > 0 {
		kinds = append(kinds, "no merchant", "name", "enabled", "currencies", "rate", "timezone", "notify_url")
	}
	if len(*channels) > 0 {
		kinds = append(kinds, "no channel", "channel's name", "channel enabled")
	}
	kind := rapid.SampledFrom(kinds).Draw(t, "change")
	switch kind {
	case "refuse":
		*refuse = !*refuse
		return
	case "new merchant":
		bid := rapid.Int64Range(1, 1<<63-1).Filter(func(bid int64) bool {
			return !slices.ContainsFunc(*merchants, func(m Merchant) bool { return m.BID == bid })
		}).Draw(t, "bid")
		*merchants = append(*merchants, drawMerchant(t, bid))
		return
	case "new channel":
		*channels = append(*channels, Channel{Channel: strings.Repeat("z", 31) + fmt.Sprint(len(*channels)), Name: "new"})
		return
	case "no channel":
		*channels = (*channels)[1:]
		return
	case "channel's name":
		(*channels)[0].Name = toggled((*channels)[0].Name)
		return
	case "channel enabled":
		(*channels)[0].Enabled = !(*channels)[0].Enabled
		return
	case "no merchant":
		*merchants = (*merchants)[1:]
		return
	}
	m := &(*merchants)[rapid.IntRange(0, len(*merchants)-1).Draw(t, "of")]
	switch kind {
	case "name":
		m.Name = toggled(m.Name)
	case "enabled":
		m.Enabled = !m.Enabled
	case "currencies":
		if m.Currencies = m.Currencies.With("ISK"); len(m.Currencies.Codes()) > 5 {
			m.Currencies = set("ISK")
		}
	case "rate":
		m.Rate = (m.Rate + 1) % RateMax
	case "timezone":
		m.Timezone = zones[(slices.Index(zones, m.Timezone)+1)%len(zones)]
	case "notify_url":
		m.NotifyURL = urls[(slices.Index(urls, m.NotifyURL)+1)%len(urls)]
	}
}

func toggled(name string) string {
	if name == "A" {
		return "a"
	}
	return "A"
}

func TestWhoMayCreate(t *testing.T) {
	for _, policy := range []string{"refuse", "accept"} {
		s := mustDecode(t, config("unknown_merchants", `"`+policy+`"`, "merchants",
			"["+merchant("currencies", `["CNY","JPY"]`)+","+merchant("bid", "1002", "enabled", "false")+"]"))
		var unknown error
		if policy == "refuse" {
			unknown = ErrMerchantNotFound
		}
		for _, tc := range []struct {
			name string
			bid  int64
			code string
			want error
		}{
			{"a merchant in its currency", 1001, "CNY", nil},
			{"in its other one", 1001, "JPY", nil},
			{"in another", 1001, "USD", ErrCurrencyUnsupported},
			{"in none", 1001, "", ErrCurrencyUnsupported},
			{"a disabled one", 1002, "CNY", ErrMerchantDisabled},
			{"a disabled one in another currency", 1002, "USD", ErrMerchantDisabled},
			{"an unknown one", 1003, "USD", unknown},
			{"nobody", 0, "CNY", unknown},
		} {
			if err := s.AllowCreate(tc.bid, tc.code); !errors.Is(err, tc.want) {
				t.Errorf("%s: %s: %v, want %v", policy, tc.name, err, tc.want)
			}
		}
	}
	if err := Default().AllowCreate(1001, "CNY"); err != nil {
		t.Errorf("without a config: %v", err)
	}
}

// Money that came is money: there is no standing that refuses it, and a change of the
// config changes only the standing.
func TestHowAPaymentsChannelStands(t *testing.T) {
	s := mustDecode(t, config("channels", "["+channel()+","+channel("channel", `"alipay"`, "enabled", "false")+"]"))
	for name, want := range map[string]Standing{"wechat": Enabled, "alipay": Disabled, "paypal": Unlisted, "": Unlisted} {
		if got := s.Payment(name); got != want {
			t.Errorf("%q is %s, want %s", name, got, want)
		}
	}
	if got := fmt.Sprint(Unlisted, Disabled, Enabled); got != "unlisted disabled enabled" {
		t.Error(got)
	}
	if c, known := s.Channel("alipay"); !known || c.Name != "WeChat Pay" {
		t.Errorf("%+v, %t", c, known)
	}
}

// Whatever is done to what a snapshot returned, it stays what it is.
func TestASnapshotNeverChanges(t *testing.T) {
	s := mustDecode(t, config("version", "3"))
	text := string(s.Document())
	s.Merchants()[0].Enabled = false
	s.Channels()[0].Enabled = false
	s.Document()[20] = 'x'
	m, _ := s.Merchant(1001)
	m.Currencies = m.Currencies.With("USD")
	s.at(9).version = 11
	if got := string(s.Document()); got != text || s.AllowCreate(1001, "CNY") != nil || s.AllowCreate(1001, "USD") == nil || s.Payment("wechat") != Enabled {
		t.Errorf("%s\nwas\n%s", got, text)
	}
}

func TestEveryChangeIsNamed(t *testing.T) {
	before := mustDecode(t, config("merchants", "["+strings.Join([]string{
		merchant("bid", "1"), merchant("bid", "2"), merchant("bid", "3", "enabled", "false"), merchant("bid", "4"), merchant("bid", "5"),
	}, ",")+"]", "channels", "["+channel()+","+channel("channel", `"alipay"`)+"]"))
	now := mustDecode(t, config("unknown_merchants", `"accept"`, "merchants", "["+strings.Join([]string{
		merchant("bid", "1"), merchant("bid", "2", "enabled", "false", "rate", "5"), merchant("bid", "3"), merchant("bid", "4", "name", `"Other"`), merchant("bid", "6"),
	}, ",")+"]", "channels", "["+channel("enabled", "false")+"]"))
	d := Compare(before, now)
	bids := func(all []Merchant) (out []int64) {
		for _, m := range all {
			out = append(out, m.BID)
		}
		return out
	}
	got := fmt.Sprint(d.Unknown, bids(d.Merchants.Added), bids(d.Merchants.Removed), bids(d.Merchants.Enabled), bids(d.Merchants.Disabled), bids(d.Merchants.Changed), d.Channels)
	if want := "true [6] [5] [3] [2] [4] {[] [{alipay WeChat Pay true}] [] [{wechat WeChat Pay false}] []}"; got != want || d.None() {
		t.Errorf("%s, want %s", got, want)
	}
}

// What every create asks allocates nothing.
func TestAskingAllocatesNothing(t *testing.T) {
	s := large(t)
	var err error
	if n := testing.AllocsPerRun(100, func() {
		err = errors.Join(err, s.AllowCreate(4_711, "CNY"))
		s.Merchant(4_711)
		s.Channel("wechat")
		s.Payment("none")
	}); n != 0 || err != nil {
		t.Errorf("%v allocations, %v", n, err)
	}
}

// large is a config of as many merchants as there may be.
func large(t testing.TB) *Snapshot {
	all := make([]string, MerchantsMax)
	for i := range all {
		all[i] = merchant("bid", fmt.Sprint(i+1), "timezone", `"Asia/Shanghai"`, "notify_url", `"https://shop.example/octopay"`)
	}
	return mustDecode(t, config("merchants", "["+strings.Join(all, ",")+"]"))
}

func BenchmarkAllowCreate(b *testing.B) {
	s := large(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := s.AllowCreate(int64(i%MerchantsMax)+1, "CNY"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPayment(b *testing.B) {
	s := large(b)
	b.ReportAllocs()
	for b.Loop() {
		if s.Payment("wechat") != Enabled {
			b.Fatal("it is not enabled")
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	text := large(b).Document()
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(text); err != nil {
			b.Fatal(err)
		}
	}
}

// Law: whatever is sent, Decode ends with a config or one of its three errors; a config
// is read from its own texts as what it is; and no error repeats what was sent.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{
		config(), config("version", "7", "hash", `"`+strings.Repeat("a", 64)+`"`), string(Default().Document()), "[]", "null", "", `{"a":1,"a":2}`,
		config("merchants", "["+merchant("rate", "5", "timezone", `"Asia/Tokyo"`, "notify_url", `"https://shop.example/"`)+","+merchant()+"]"),
		config("merchants", `[{}]`, "x", `[[[[[[[[[]]]]]]]]]`), config("channels", `[{"channel":"a","name":"\ud83d\ude00","enabled":false}]`),
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		sent := bytes.Clone(text)
		s, err := Decode(text)
		if !bytes.Equal(sent, text) {
			t.Fatal("the text was changed")
		}
		if err != nil {
			var syntax *SyntaxError
			var invalid *InvalidError
			if !errors.Is(err, ErrTooLarge) && !errors.As(err, &syntax) && !errors.As(err, &invalid) {
				t.Fatalf("%T: %v", err, err)
			}
			if invalid != nil && (len(invalid.Faults) == 0 || len(invalid.Faults) > faultsMax) {
				t.Fatalf("%d faults", len(invalid.Faults))
			}
			for _, r := range err.Error() {
				if r < ' ' || r > '~' {
					t.Fatalf("%q repeats what was sent", err)
				}
			}
			return
		}
		for name, text := range map[string][]byte{"Document": s.Document(), "Text": []byte(s.Text())} {
			again, err := Decode(text)
			if err != nil {
				t.Fatalf("its %s: %v\n%s", name, err, text)
			}
			if !same(again.at(s.version), s) {
				t.Fatalf("its %s is read as\n%s\nand not\n%s", name, again.Document(), s.Document())
			}
		}
		for _, m := range s.Merchants() {
			if m.BID < 1 || m.Name == "" || len(m.Currencies.Codes()) == 0 || m.Rate < 0 || m.Rate > RateMax || m.Timezone == "" {
				t.Fatalf("%+v", m)
			}
		}
	})
}

// Before a config was read nobody can say who may, and nobody is held to a rate.
func TestBeforeAConfigIsReadNobodyGetsAnOrder(t *testing.T) {
	none := NotRead()
	if err := none.AllowCreate(1001, "CNY"); !errors.Is(err, ErrNotRead) {
		t.Errorf("a create: %v", err)
	}
	rates := NewRates(func() *Snapshot { return none })
	for range 2 * burstMin {
		if !rates.Allow(1001) {
			t.Fatal("a call was refused")
		}
	}
}
