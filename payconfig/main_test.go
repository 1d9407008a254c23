package payconfig

import (
	"fmt"
	"strings"
	"testing"

	"github.com/octopay/octopay/currency"
	"github.com/octopay/octopay/internal/eventually"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { eventually.Main(m) }

// merchant is a valid merchant's JSON; fields are pairs of a name and the JSON that
// takes the place of its value, or that is added; with "" it is left out.
func merchant(fields ...string) string {
	return object([]string{"bid", `"1001"`, "name", `"Shop"`, "enabled", "true", "currencies", `["CNY"]`}, fields)
}

// channel is the same of a channel.
func channel(fields ...string) string {
	return object([]string{"channel", `"wechat"`, "name", `"WeChat Pay"`, "enabled", "true"}, fields)
}

// config is a valid config's JSON, with a merchant and a channel, in the same way.
func config(fields ...string) string {
	return object([]string{"unknown_merchants", `"refuse"`, "merchants", "[" + merchant() + "]", "channels", "[" + channel() + "]"}, fields)
}

func object(all, other []string) string {
	for i := 0; i < len(other); i += 2 {
		at := -1
		for j := 0; j < len(all); j += 2 {
			if all[j] == other[i] {
				at = j
			}
		}
		if at >= 0 {
			all[at+1] = other[i+1]
		} else {
			all = append(all, other[i], other[i+1])
		}
	}
	var parts []string
	for i := 0; i < len(all); i += 2 {
		if all[i+1] != "" {
			parts = append(parts, fmt.Sprintf("%q:%s", all[i], all[i+1]))
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func mustDecode(t testing.TB, text string) *Snapshot {
	t.Helper()
	s, err := Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// text draws what people may read.
func text(most int) *rapid.Generator[string] {
	return rapid.StringOfN(rapid.Rune().Filter(func(r rune) bool { return checkName([]byte(string(r))) == fine }), 1, most, -1)
}

var (
	zones = []string{"UTC", "Asia/Shanghai", "America/Argentina/Buenos_Aires", "Etc/GMT+5"}
	urls  = []string{"", "https://shop.example/octopay", "https://shop.example:8443/a?b=%20c", "http://127.0.0.1:9/hook", "https://[2001:db8::1]/"}
	codes = []string{"CNY", "USD", "JPY", "KWD", "AED", "ZWG"}
)

func drawMerchant(t *rapid.T, bid int64) Merchant {
	m := Merchant{
		BID: bid, Name: text(nameMax).Draw(t, "name"), Enabled: rapid.Bool().Draw(t, "enabled"),
		Timezone: rapid.SampledFrom(zones).Draw(t, "zone"), NotifyURL: rapid.SampledFrom(urls).Draw(t, "url"),
		Rate: rapid.OneOf(rapid.Just(0), rapid.IntRange(1, RateMax)).Draw(t, "rate"),
	}
	for _, code := range rapid.SliceOfN(rapid.SampledFrom(codes), 1, 6).Draw(t, "currencies") {
		m.Currencies = m.Currencies.With(code)
	}
	return m
}

// snapshot draws any valid config.
func snapshot() *rapid.Generator[*Snapshot] {
	return rapid.Custom(func(t *rapid.T) *Snapshot {
		var merchants []Merchant
		for _, bid := range rapid.SliceOfNDistinct(rapid.Int64Range(1, 1<<63-1), 0, 4, rapid.ID[int64]).Draw(t, "bids") {
			merchants = append(merchants, drawMerchant(t, bid))
		}
		var channels []Channel
		for _, name := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9_]{1,32}`), 0, 3, rapid.ID[string]).Draw(t, "channels") {
			channels = append(channels, Channel{Channel: name, Name: text(nameMax).Draw(t, "name"), Enabled: rapid.Bool().Draw(t, "enabled")})
		}
		return build(rapid.Int64Range(0, versionMax).Draw(t, "version"), rapid.Bool().Draw(t, "refuse"), merchants, channels)
	})
}

func set(codes ...string) (s currency.Set) {
	for _, code := range codes {
		s = s.With(code)
	}
	return s
}
