package payconfig

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/octopay/octopay/currency"
)

func TestAConfigIsReadAsItIsWritten(t *testing.T) {
	s := mustDecode(t, `{"version":7,"hash":"`+strings.Repeat("0a", 32)+`","unknown_merchants":"refuse","merchants":[
		{"bid":1002,"name":"Laden","enabled":false,"currencies":["EUR"]},
		{"bid":"1001","name":"店","enabled":true,"currencies":["USD","CNY"],"rate":500,"timezone":"Asia/Shanghai","notify_url":"https://shop.example/octopay"}],
		"channels":[{"channel":"wechat","name":"WeChat Pay","enabled":true},{"channel":"alipay","name":"Alipay","enabled":false}]}`)
	wantM := []Merchant{
		{BID: 1001, Name: "店", Enabled: true, Currencies: set("CNY", "USD"), Rate: 500, Timezone: "Asia/Shanghai", NotifyURL: "https://shop.example/octopay"},
		{BID: 1002, Name: "Laden", Currencies: set("EUR"), Timezone: "UTC"},
	}
	wantC := []Channel{{"alipay", "Alipay", false}, {"wechat", "WeChat Pay", true}}
	if s.Version() != 7 || !s.RefusesUnknown() || !slices.Equal(s.Merchants(), wantM) || !slices.Equal(s.Channels(), wantC) {
		t.Errorf("version %d, %t, %v, %v", s.Version(), s.RefusesUnknown(), s.Merchants(), s.Channels())
	}
}

// The text is stored and its hash compared between processes of all versions, so neither
// may change.
func TestTheCanonicalTextIsAStoredFormat(t *testing.T) {
	s := mustDecode(t, `{"channels":[{"enabled":true,"name":"We\u0043hat \"Pay\" <é>","channel":"wechat"}],"version":7,"merchants":[
		{"bid":1002,"name":"B\\","enabled":false,"currencies":["EUR"]},
		{"bid":"1001","name":"A","enabled":true,"currencies":["USD","CNY"],"rate":500,"timezone":"Asia/Shanghai","notify_url":"https:\/\/shop.example/octopay"}],
		"unknown_merchants":"refuse"}`)
	const want = `{"unknown_merchants":"refuse","merchants":[
{"bid":"1001","name":"A","enabled":true,"currencies":["CNY","USD"],"rate":500,"timezone":"Asia/Shanghai","notify_url":"https://shop.example/octopay"},
{"bid":"1002","name":"B\\","enabled":false,"currencies":["EUR"],"timezone":"UTC"}
],"channels":[
{"channel":"wechat","name":"WeChat \"Pay\" <é>","enabled":true}
]}`
	if s.Text() != want {
		t.Error(cmp.Diff(want, s.Text()))
	}
	const hash = "598ad9d219b957f1fa90396ad5409bdf4426f8696d138cf037ed766cc0647b9d"
	if s.Hash() != hash {
		t.Errorf("hash %s, want %s", s.Hash(), hash)
	}
	if got, want := string(s.Document()), `{"version":7,"hash":"`+hash+`",`+want[1:]; got != want {
		t.Error(cmp.Diff(want, got))
	}
	if text := Default().Text(); text != `{"unknown_merchants":"accept","merchants":[],"channels":[]}` || Default().Version() != 0 {
		t.Errorf("by default: %s", text)
	}
}

func TestTextsThatCannotBeRead(t *testing.T) {
	nested := func(levels int) string { return strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels) }
	for _, tc := range []struct{ name, text, want string }{
		{"nothing", "", "byte 0: it ends too early"},
		{"white space", " \n", "it ends too early"},
		{"a byte order mark", "\ufeff" + config(), "it is not valid JSON"},
		{"null", "null", "it is not an object"},
		{"an array", "[" + config() + "]", "it is not an object"},
		{"a string", `"refuse"`, "it is not an object"},
		{"half a config", config()[:70], "byte 70: it ends too early"},
		{"a config that isn't closed", strings.TrimSuffix(config(), "}"), "it ends too early"},
		{"a comma too many", strings.TrimSuffix(config(), "}") + ",}", "it is not valid JSON"},
		{"a comment", config() + "//", "something follows"},
		{"bytes after the end", config() + "x", "something follows"},
		{"NUL after the end", config() + "\x00", "something follows"},
		{"a second config", config() + config(), "something follows"},
		{"a leading zero", config("version", "07"), "it is not valid JSON"},
		{"a bare control character", config("merchants", "["+merchant("name", "\"a\tb\"")+"]"), "it is not valid JSON"},
		{"bytes that are not UTF-8", config("merchants", "["+merchant("name", "\"\xff\"")+"]"), "it is not valid JSON"},
		{"half a surrogate pair", config("merchants", "["+merchant("name", `"\ud83d"`)+"]"), "it is not valid JSON"},
		{"a name twice", strings.TrimSuffix(config(), "}") + `,"merchants":[]}`, "payconfig: merchants is there more than once"},
		{"a name twice, once escaped", strings.TrimSuffix(config(), "}") + `,"m\u0065rchants":[]}`, "payconfig: merchants is there more than once"},
		{"a merchant's name twice", config("merchants", "["+merchant()+`,{"bid":"1","bid":"2"}]`), "payconfig: merchants[1].bid is there more than once"},
		{"a name twice in what isn't known", config("x", `{"Max Mustermann":1,"Max Mustermann":2}`), "payconfig: x is there more than once"},
		{"nine levels", config("x", nested(8)), "it is nested too deep"},
		{"millions of levels", config("x", strings.Repeat("[", 5_000_000)), "it is nested too deep"},
		{"millions of levels where a string belongs", config("merchants", "["+merchant("name", strings.Repeat("[", 5_000_000))), "it is nested too deep"},
		{"millions of levels of objects", config("x", strings.Repeat(`{"":`, 1_000_000)), "it is nested too deep"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var syntax *SyntaxError
			if _, err := Decode([]byte(tc.text)); !errors.As(err, &syntax) || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "Mustermann") {
				t.Errorf("%v, want %s", err, tc.want)
			}
		})
	}
	// What is refused for its depth alone would be only an unknown field.
	if got := faults(t, config("x", nested(7))); !slices.Equal(got, []string{"x unknown"}) {
		t.Errorf("eight levels: %v", got)
	}
}

// faults returns what is wrong with a text, each as "path rule".
func faults(t *testing.T, text string) (all []string) {
	t.Helper()
	_, err := Decode([]byte(text))
	if err == nil {
		return nil
	}
	var invalid *InvalidError
	if !errors.As(err, &invalid) || len(invalid.Faults) == 0 {
		t.Fatal(err)
	}
	for _, f := range invalid.Faults {
		if f.Text == "" || !strings.Contains(err.Error(), f.String()) {
			t.Errorf("%+v is not in %v", f, err)
		}
		all = append(all, f.Path+" "+string(f.Rule))
	}
	return all
}

func TestValuesThatAreFaulty(t *testing.T) {
	long := func(n int) string { return `"` + strings.Repeat("é", n) + `"` }
	ascii := func(n int) string { return `"` + strings.Repeat("a", n) + `"` }
	list := func(n int, one func(i int) string) string {
		all := make([]string, n)
		for i := range all {
			all[i] = one(i)
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	type table []struct{ name, field, value, fault string }

	for _, tc := range (table{
		{"an unknown field", "x", "1", "x unknown"},
		{"a wrong case", "Version", "1", "Version unknown"},
		{"a name that reads like none", "Max Mustermann", "1", " unknown"},
		{"an empty name", "", "1", " unknown"},
		{"a long name", strings.Repeat("a", 65), "1", " unknown"},

		{"no policy", "unknown_merchants", "", "unknown_merchants required"},
		{"a policy of null", "unknown_merchants", "null", "unknown_merchants wrong_type"},
		{"a policy of true", "unknown_merchants", "true", "unknown_merchants wrong_type"},
		{"another policy", "unknown_merchants", `"Refuse"`, "unknown_merchants unsupported"},
		{"an empty policy", "unknown_merchants", `""`, "unknown_merchants unsupported"},

		{"a version as text", "version", `"7"`, "version wrong_type"},
		{"a version of null", "version", `null`, "version wrong_type"},
		{"a negative version", "version", `-1`, "version out_of_range"},
		{"a version above the most", "version", `9007199254740992`, "version out_of_range"},
		{"a version above int64", "version", `18446744073709551617`, "version out_of_range"},
		{"a version with an exponent", "version", `1e2`, "version bad_format"},
		{"a version with a fraction", "version", `7.0`, "version bad_format"},
		{"a hash of null", "hash", `null`, "hash wrong_type"},
		{"a short hash", "hash", ascii(63), "hash bad_format"},
		{"a long hash", "hash", ascii(65), "hash bad_format"},
		{"a hash in capital letters", "hash", `"` + strings.Repeat("A", 64) + `"`, "hash bad_format"},
		{"a hash with a g", "hash", `"` + strings.Repeat("g", 64) + `"`, "hash bad_format"},

		{"no merchants", "merchants", "", "merchants required"},
		{"merchants of null", "merchants", "null", "merchants wrong_type"},
		{"merchants in an object", "merchants", "{}", "merchants wrong_type"},
		{"a merchant of null", "merchants", "[" + merchant() + ",null]", "merchants[1] wrong_type"},
		{"a merchant of text", "merchants", `["1001"]`, "merchants[0] wrong_type"},
		{"a merchant in an array", "merchants", `[[]]`, "merchants[0] wrong_type"},
		{"too many merchants", "merchants", list(MerchantsMax+1, func(i int) string { return merchant("bid", strconv.Itoa(i+1)) }), "merchants too_long"},
		{"two merchants of a bid", "merchants", "[" + merchant() + "," + merchant("bid", "1001") + "]", "merchants[1].bid duplicate"},

		{"no channels", "channels", "", "channels required"},
		{"channels of null", "channels", "null", "channels wrong_type"},
		{"a channel of text", "channels", `["wechat"]`, "channels[0] wrong_type"},
		{"too many channels", "channels", list(ChannelsMax+1, func(i int) string { return channel("channel", fmt.Sprintf(`"c%d"`, i)) }), "channels too_long"},
		{"two channels of a name", "channels", "[" + channel() + "," + channel() + "]", "channels[1].channel duplicate"},
	}) {
		t.Run(tc.name, func(t *testing.T) {
			if got := faults(t, config(tc.field, tc.value)); !slices.Equal(got, []string{tc.fault}) {
				t.Errorf("%q, want %s", got, tc.fault)
			}
		})
	}

	for _, tc := range (table{
		{"an unknown field", "x", "{}", ".x unknown"},
		{"a wrong case", "Rate", "1", ".Rate unknown"},
		{"a name with a point", "a.b", "1", " unknown"},

		{"no bid", "bid", "", ".bid required"},
		{"a bid of null", "bid", "null", ".bid wrong_type"},
		{"a bid of true", "bid", "true", ".bid wrong_type"},
		{"a bid in an array", "bid", "[1]", ".bid wrong_type"},
		{"a bid of 0", "bid", "0", ".bid out_of_range"},
		{"a bid of \"0\"", "bid", `"0"`, ".bid out_of_range"},
		{"a bid of -0", "bid", "-0", ".bid out_of_range"},
		{"a negative bid", "bid", `"-5"`, ".bid out_of_range"},
		{"a bid above int64", "bid", "9223372036854775808", ".bid out_of_range"},
		{"a bid of 400 digits", "bid", strings.Repeat("9", 400), ".bid out_of_range"},
		{"a bid with a fraction", "bid", "1.0", ".bid bad_format"},
		{"a bid with an exponent", "bid", "1e3", ".bid bad_format"},
		{"a bid with a leading zero", "bid", `"01"`, ".bid bad_format"},
		{"a bid with a plus", "bid", `"+1"`, ".bid bad_format"},
		{"a bid with a space", "bid", `"1 "`, ".bid bad_format"},
		{"a bid in full-width digits", "bid", `"１"`, ".bid bad_format"},
		{"an empty bid", "bid", `""`, ".bid bad_format"},
		{"a bid that is only a sign", "bid", `"-"`, ".bid bad_format"},
		{"a bid with an underscore", "bid", `"1_0"`, ".bid bad_format"},

		{"no name", "name", "", ".name required"},
		{"a name of null", "name", "null", ".name wrong_type"},
		{"an empty name", "name", `""`, ".name too_short"},
		{"a name of 129 characters", "name", long(129), ".name too_long"},
		{"a name with a line end", "name", `"a\nb"`, ".name bad_character"},
		{"a name with NUL", "name", `"\u0000"`, ".name bad_character"},
		{"a name with DEL", "name", `"\u007f"`, ".name bad_character"},
		{"a name with a C1 control", "name", `"\u0085"`, ".name bad_character"},
		{"a name with U+2028", "name", `"\u2028"`, ".name bad_character"},
		{"a name with U+202E", "name", `"\u202e"`, ".name bad_character"},
		{"a name with U+2066", "name", `"\u2066"`, ".name bad_character"},
		{"a name with U+2069", "name", `"\u2069"`, ".name bad_character"},

		{"no enabled", "enabled", "", ".enabled required"},
		{"enabled of null", "enabled", "null", ".enabled wrong_type"},
		{"enabled of 1", "enabled", "1", ".enabled wrong_type"},
		{"enabled as text", "enabled", `"true"`, ".enabled wrong_type"},

		{"no currencies", "currencies", "", ".currencies required"},
		{"currencies of null", "currencies", "null", ".currencies wrong_type"},
		{"a currency alone", "currencies", `"CNY"`, ".currencies wrong_type"},
		{"none", "currencies", "[]", ".currencies too_short"},
		{"a currency by number", "currencies", `["CNY",156]`, ".currencies[1] wrong_type"},
		{"a currency of null", "currencies", `[null]`, ".currencies[0] wrong_type"},
		{"a currency in lower case", "currencies", `["cny"]`, ".currencies[0] bad_format"},
		{"a currency of four letters", "currencies", `["CNY","CNYY"]`, ".currencies[1] bad_format"},
		{"an empty currency", "currencies", `[""]`, ".currencies[0] bad_format"},
		{"a currency that there isn't", "currencies", `["ABC"]`, ".currencies[0] unsupported"},
		{"gold", "currencies", `["XAU"]`, ".currencies[0] unsupported"},
		{"a currency twice", "currencies", `["CNY","USD","CNY"]`, ".currencies[2] duplicate"},

		{"a rate of null", "rate", "null", ".rate wrong_type"},
		{"a rate as text", "rate", `"500"`, ".rate wrong_type"},
		{"a rate of 0", "rate", "0", ".rate out_of_range"},
		{"a rate of -0", "rate", "-0", ".rate out_of_range"},
		{"a negative rate", "rate", "-1", ".rate out_of_range"},
		{"a rate above the most", "rate", "1000001", ".rate out_of_range"},
		{"a rate that wraps 64 bits", "rate", "18446744073709551617", ".rate out_of_range"},
		{"a rate with a fraction", "rate", "0.5", ".rate bad_format"},

		{"a zone of null", "timezone", "null", ".timezone wrong_type"},
		{"an empty zone", "timezone", `""`, ".timezone unsupported"},
		{"a zone that there isn't", "timezone", `"Mars/Phobos"`, ".timezone unsupported"},
		{"this machine's zone", "timezone", `"Local"`, ".timezone unsupported"},
		{"an offset", "timezone", `"+08:00"`, ".timezone unsupported"},
		{"a zone in lower case", "timezone", `"asia/shanghai"`, ".timezone unsupported"},
		{"a folder of zones", "timezone", `"Asia"`, ".timezone unsupported"},
		{"a path", "timezone", `"../zoneinfo/UTC"`, ".timezone unsupported"},
		{"a path from the root", "timezone", `"/etc/localtime"`, ".timezone unsupported"},
		{"a path in a path", "timezone", `"Asia/../UTC"`, ".timezone unsupported"},
		{"zones with leap seconds", "timezone", `"right/UTC"`, ".timezone unsupported"},
		{"a zone with NUL", "timezone", `"UTC\u0000"`, ".timezone unsupported"},
		{"a long zone", "timezone", `"A` + strings.Repeat("a", 64) + `"`, ".timezone unsupported"},

		{"a URL of null", "notify_url", "null", ".notify_url wrong_type"},
		{"an empty URL", "notify_url", `""`, ".notify_url too_short"},
		{"a long URL", "notify_url", `"https://shop.example/` + strings.Repeat("a", 512) + `"`, ".notify_url too_long"},
		{"a URL with a space", "notify_url", `"https://shop.example/a b"`, ".notify_url bad_character"},
		{"a URL with a line end", "notify_url", `"https://shop.example/\r\nHost: x"`, ".notify_url bad_character"},
		{"a URL with an umlaut", "notify_url", `"https://lädchen.example/"`, ".notify_url bad_character"},
		{"a URL in plain text", "notify_url", `"http://shop.example/"`, ".notify_url bad_format"},
		{"a URL in plain text to what begins like loopback", "notify_url", `"http://127.0.0.1.shop.example/"`, ".notify_url bad_format"},
		{"a URL of another scheme", "notify_url", `"file:///etc/passwd"`, ".notify_url bad_format"},
		{"a URL without a scheme", "notify_url", `"shop.example/octopay"`, ".notify_url bad_format"},
		{"a URL without a host", "notify_url", `"https:///octopay"`, ".notify_url bad_format"},
		{"a URL with only a port", "notify_url", `"https://:443/"`, ".notify_url bad_format"},
		{"a URL that is opaque", "notify_url", `"https:shop.example"`, ".notify_url bad_format"},
		{"a URL with a user", "notify_url", `"https://user:secret@shop.example/"`, ".notify_url bad_format"},
		{"a URL with an empty user", "notify_url", `"https://@shop.example/"`, ".notify_url bad_format"},
		{"a URL with a fragment", "notify_url", `"https://shop.example/#a"`, ".notify_url bad_format"},
		{"a URL with an empty fragment", "notify_url", `"https://shop.example/#"`, ".notify_url bad_format"},
		{"a URL with port 0", "notify_url", `"https://shop.example:0/"`, ".notify_url bad_format"},
		{"a URL with port 65536", "notify_url", `"https://shop.example:65536/"`, ".notify_url bad_format"},
		{"a URL with an empty port", "notify_url", `"https://shop.example:/"`, ".notify_url bad_format"},
		{"a URL with a wrong escape", "notify_url", `"https://shop.example/%zz"`, ".notify_url bad_format"},
	}) {
		t.Run("merchant: "+tc.name, func(t *testing.T) {
			got := faults(t, config("merchants", "["+merchant("bid", "1")+","+merchant(tc.field, tc.value)+"]"))
			if !slices.Equal(got, []string{"merchants[1]" + tc.fault}) {
				t.Errorf("%q, want %s", got, tc.fault)
			}
		})
	}

	for _, tc := range (table{
		{"an unknown field", "bid", "1", ".bid unknown"},
		{"no name of its own", "channel", "", ".channel required"},
		{"a name of its own of null", "channel", "null", ".channel wrong_type"},
		{"an empty one", "channel", `""`, ".channel too_short"},
		{"one of 33 characters", "channel", ascii(33), ".channel too_long"},
		{"one with a capital letter", "channel", `"weChat"`, ".channel bad_character"},
		{"one with a hyphen", "channel", `"we-chat"`, ".channel bad_character"},
		{"one with an umlaut", "channel", `"ä"`, ".channel bad_character"},
		{"no name", "name", "", ".name required"},
		{"a name of a number", "name", "1", ".name wrong_type"},
		{"no enabled", "enabled", "", ".enabled required"},
		{"enabled of null", "enabled", "null", ".enabled wrong_type"},
	}) {
		t.Run("channel: "+tc.name, func(t *testing.T) {
			got := faults(t, config("channels", "["+channel("channel", `"other"`)+","+channel(tc.field, tc.value)+"]"))
			if !slices.Equal(got, []string{"channels[1]" + tc.fault}) {
				t.Errorf("%q, want %s", got, tc.fault)
			}
		})
	}
}

func TestValuesAtTheEdge(t *testing.T) {
	all := `["` + strings.Join(allCodes(), `","`) + `"]`
	for _, tc := range []struct{ name, text string }{
		{"nobody", config("merchants", "[]", "channels", "[]")},
		{"version 0", config("version", "0")},
		{"the largest version", config("version", "9007199254740991")},
		{"the largest bid", config("merchants", "["+merchant("bid", `"9223372036854775807"`)+"]")},
		{"a bid with an escape", config("merchants", "["+merchant("bid", `"1\u0030"`)+"]")},
		{"a name of 128 characters of four bytes", config("merchants", "["+merchant("name", `"`+strings.Repeat("𝄞", 128)+`"`)+"]")},
		{"what surrounds the refused characters", config("merchants", "["+merchant("name", `"\u0020\u007e\u00a0\u2027\u202f\u2065\u206a"`)+"]")},
		{"every currency", config("merchants", "["+merchant("currencies", all)+"]")},
		{"the least rate", config("merchants", "["+merchant("rate", "1")+"]")},
		{"the largest rate", config("merchants", "["+merchant("rate", "1000000")+"]")},
		{"a zone of three parts", config("merchants", "["+merchant("timezone", `"America/Argentina/Buenos_Aires"`)+"]")},
		{"a zone with a sign", config("merchants", "["+merchant("timezone", `"Etc/GMT-14"`)+"]")},
		{"a URL of 512 characters", config("merchants", "["+merchant("notify_url", `"https://shop.example/`+strings.Repeat("a", 512-21)+`"`)+"]")},
		{"a URL with port 65535", config("merchants", "["+merchant("notify_url", `"https://shop.example:65535"`)+"]")},
		{"a URL in plain text to this machine", config("merchants", "["+merchant("notify_url", `"http://[::1]:8080/hook"`)+"]")},
		{"a URL in plain text to localhost", config("merchants", "["+merchant("notify_url", `"http://localhost/hook"`)+"]")},
		{"a channel of 32 characters", config("channels", "["+channel("channel", `"a_9`+strings.Repeat("z", 29)+`"`)+"]")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := Decode([]byte(tc.text)); err != nil {
				t.Error(err)
			}
		})
	}
}

func allCodes() []string {
	var all currency.Set
	for a := 'A'; a <= 'Z'; a++ {
		for b := 'A'; b <= 'Z'; b++ {
			for c := 'A'; c <= 'Z'; c++ {
				all = all.With(string([]rune{a, b, c}))
			}
		}
	}
	return all.Codes()
}

func TestAllFaultsAreToldAtOnce(t *testing.T) {
	got := faults(t, `{"unknown_merchants":"maybe","Channels":[],"merchants":[`+
		merchant("bid", "0", "currencies", `["cny","USD","USD",1]`, "rate", "-1")+`,7,`+merchant("name", "", "enabled", "null", "x", "{}")+`],"version":-1}`)
	want := []string{"unknown_merchants unsupported", "Channels unknown",
		"merchants[0].bid out_of_range", "merchants[0].currencies[0] bad_format", "merchants[0].currencies[2] duplicate", "merchants[0].currencies[3] wrong_type", "merchants[0].rate out_of_range",
		"merchants[1] wrong_type", "merchants[2].enabled wrong_type", "merchants[2].x unknown", "merchants[2].name required",
		"version out_of_range", "channels required"}
	if !slices.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
}

func TestTheFaultsAreBounded(t *testing.T) {
	text := config("merchants", "["+strings.Repeat("{},", MerchantsMax-1)+"{}]")
	_, err := Decode([]byte(text))
	var invalid *InvalidError
	if !errors.As(err, &invalid) || len(invalid.Faults) != faultsMax || invalid.More != 4*MerchantsMax-faultsMax || len(err.Error()) > 10_000 {
		t.Errorf("%d faults and %d more", len(invalid.Faults), invalid.More)
	}
}

func TestWhatIsTooLargeIsNotLookedAt(t *testing.T) {
	text := config()
	padded := text + strings.Repeat(" ", TextMax-len(text))
	if _, err := Decode([]byte(padded)); err != nil {
		t.Errorf("8 MiB: %v", err)
	}
	if _, err := Decode([]byte(padded + " ")); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a byte more: %v", err)
	}
}

// What is stored and what is answered must be readable again, so it is bounded as well.
func TestTheCanonicalTextIsBounded(t *testing.T) {
	// Every merchant gets a time zone that it didn't write.
	one := func(i, more int) string {
		return merchant("bid", strconv.Itoa(1_000_000+i), "name", `"`+strings.Repeat("𝄞", 128)+`"`,
			"notify_url", `"https://shop.example/`+strings.Repeat("a", more)+`"`)
	}
	many := func(more int) string {
		var all []string
		for i := range MerchantsMax {
			all = append(all, one(i, more))
		}
		return config("merchants", "["+strings.Join(all, ",")+"]")
	}
	large := many(225)
	if got := faults(t, large); len(large) > TextMax || !slices.Equal(got, []string{" too_long"}) {
		t.Errorf("a text of %d bytes: %q", len(large), got)
	}
	s := mustDecode(t, many(100))
	if _, err := Decode(s.Document()); err != nil {
		t.Error(err)
	}
}
