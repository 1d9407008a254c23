package httpapi

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/octopay/octopay/httpapi/problem"
	"github.com/octopay/octopay/ordersvc"
)

// decode returns what decodeOrder makes of a body: the order, or the code and the
// faults as "field code".
func decode(body string) (n ordersvc.New, code string, faulty []string) {
	var f faults
	n, err := decodeOrder([]byte(body), &f)
	if err == nil {
		err = f.err()
	}
	var p *problem.Problem
	if errors.As(err, &p) {
		for _, e := range p.Errors {
			faulty = append(faulty, e.Field+" "+string(e.Fault))
		}
		return n, p.Code.String(), faulty
	}
	return n, "", nil
}

func TestAnOrderIsReadAsItIsWritten(t *testing.T) {
	got, code, faulty := decode(`{"uid":"9527","bid":1001,"out_trade_no":"20261130-000017","amount":19900,"currency":"CNY","subject":"Le Max 2","expires_in":60,"metadata":{"sku":"lm2-64"}}`)
	want := ordersvc.New{
		Key:    ordersvc.Key{UID: 9527, BID: 1001, OutTradeNo: "20261130-000017"},
		Amount: 19900, Currency: "CNY", Subject: "Le Max 2", Metadata: `{"sku":"lm2-64"}`, ExpiresIn: time.Minute,
	}
	if code != "" {
		t.Fatal(code, faulty)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWhatIsLeftOutHasItsDefault(t *testing.T) {
	got, code, _ := decode(body())
	if code != "" || got.Metadata != "{}" || got.ExpiresIn != 30*time.Minute {
		t.Errorf("%q %+v", code, got)
	}
}

func TestBodiesThatAreNotAcceptableJSON(t *testing.T) {
	nested := func(levels int) string { return strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels) }
	for _, tc := range []struct{ name, body string }{
		{"nothing", ""},
		{"white space", " \n\t"},
		{"a byte order mark", "\ufeff" + body()},
		{"null", "null"},
		{"an array", "[" + body() + "]"},
		{"a string", `"uid"`},
		{"a number", "1"},
		{"half an object", body()[:40]},
		{"an object that isn't closed", strings.TrimSuffix(body(), "}")},
		{"a comma too many", strings.TrimSuffix(body(), "}") + ",}"},
		{"a name without quotes", `{uid:1}`},
		{"single quotes", `{'uid':1}`},
		{"a number as a name", `{1:1}`},
		{"a comment", body() + "//"},
		{"bytes after the object", body() + "x"},
		{"a second object", body() + body()},
		{"NaN", body("amount", "NaN")},
		{"a hexadecimal number", body("amount", "0x10")},
		{"a leading zero", body("amount", "0100")},
		{"a plus sign", body("amount", "+100")},
		{"a bare control character", body("subject", "\"a\tb\"")},
		{"an unknown escape", body("subject", `"a\x41"`)},
		{"bytes that are not UTF-8", body("subject", "\"\xff\xfe\"")},
		{"an overlong encoding", body("subject", "\"\xc0\xaf\"")},
		{"a surrogate in UTF-8", body("subject", "\"\xed\xa0\x80\"")},
		{"the first half of a surrogate pair", body("subject", `"\ud83d"`)},
		{"the second half of a surrogate pair", body("subject", `"\ude00"`)},
		{"a surrogate pair in the wrong order", body("subject", `"\ude00\ud83d"`)},
		{"a duplicate name", strings.TrimSuffix(body(), "}") + `,"amount":1}`},
		{"a duplicate name, one of them escaped", strings.TrimSuffix(body(), "}") + `,"am\u006funt":1}`},
		{"a duplicate name in metadata", body("metadata", `{"a":"1","a":"1"}`)},
		{"a duplicate name in an unknown field", body("x", `{"a":1,"a":2}`)},
		{"nine levels", body("x", nested(8))},
		{"thousands of levels", body("x", strings.Repeat("[", 20000))},
		{"thousands of levels where a string belongs", body("subject", strings.Repeat("[", 20000))},
		{"thousands of levels in metadata", body("metadata", `{"a":`+strings.Repeat("[", 20000))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, code, faulty := decode(tc.body); code != "malformed_json" {
				t.Errorf("%q %v", code, faulty)
			}
		})
	}
	// What is refused for its depth alone would be only an unknown field.
	if _, code, _ := decode(body("x", nested(7))); code != "unknown_field" {
		t.Errorf("eight levels: %q", code)
	}
}

func TestADuplicateNameIsNamed(t *testing.T) {
	_, code, faulty := decode(strings.TrimSuffix(body(), "}") + `,"amount":19900}`)
	if code != "malformed_json" || !slices.Equal(faulty, []string{"amount duplicate"}) {
		t.Errorf("%q %v", code, faulty)
	}
}

func TestFieldsThatAreFaulty(t *testing.T) {
	long := func(n int) string { return `"` + strings.Repeat("é", n) + `"` }
	ascii := func(n int) string { return `"` + strings.Repeat("a", n) + `"` }
	for _, tc := range []struct{ name, field, value, fault string }{
		{"a uid that is missing", "uid", ``, "uid required"},
		{"a uid that is null", "uid", `null`, "uid wrong_type"},
		{"a uid that is true", "uid", `true`, "uid wrong_type"},
		{"a uid in an array", "uid", `[1]`, "uid wrong_type"},
		{"a uid of 0", "uid", `0`, "uid out_of_range"},
		{"a uid of \"0\"", "uid", `"0"`, "uid out_of_range"},
		{"a uid of -0", "uid", `-0`, "uid out_of_range"},
		{"a negative uid", "uid", `-5`, "uid out_of_range"},
		{"a negative uid as text", "uid", `"-5"`, "uid out_of_range"},
		{"a uid above int64", "uid", `9223372036854775808`, "uid out_of_range"},
		{"a uid above int64 as text", "uid", `"9223372036854775808"`, "uid out_of_range"},
		{"a uid above uint64", "uid", `18446744073709551617`, "uid out_of_range"},
		{"a uid of 400 digits", "uid", strings.Repeat("9", 400), "uid out_of_range"},
		{"a uid with a fraction", "uid", `1.0`, "uid bad_format"},
		{"a uid with an exponent", "uid", `1e3`, "uid bad_format"},
		{"a uid with a leading zero", "uid", `"09527"`, "uid bad_format"},
		{"a uid with a plus", "uid", `"+9527"`, "uid bad_format"},
		{"a uid with a space", "uid", `" 9527"`, "uid bad_format"},
		{"a uid with a fraction as text", "uid", `"1.0"`, "uid bad_format"},
		{"a uid with an exponent as text", "uid", `"1e3"`, "uid bad_format"},
		{"a uid in full-width digits", "uid", `"９５２７"`, "uid bad_format"},
		{"an empty uid", "uid", `""`, "uid bad_format"},
		{"a uid that is only a sign", "uid", `"-"`, "uid bad_format"},
		{"a bid of 0", "bid", `0`, "bid out_of_range"},

		{"an amount that is missing", "amount", ``, "amount required"},
		{"an amount as text", "amount", `"19900"`, "amount wrong_type"},
		{"an amount that is null", "amount", `null`, "amount wrong_type"},
		{"an amount with a fraction", "amount", `199.00`, "amount bad_format"},
		{"an amount with a zero fraction", "amount", `100.0`, "amount bad_format"},
		{"an amount with an exponent", "amount", `1e2`, "amount bad_format"},
		{"an amount with a big exponent", "amount", `1E400`, "amount bad_format"},
		{"an amount of 0", "amount", `0`, "amount out_of_range"},
		{"an amount of -0", "amount", `-0`, "amount out_of_range"},
		{"a negative amount", "amount", `-1`, "amount out_of_range"},
		{"an amount above the most", "amount", `9007199254740992`, "amount out_of_range"},
		{"an amount that wraps 64 bits", "amount", `18446744073709551617`, "amount out_of_range"},

		{"a currency in lower case", "currency", `"cny"`, "currency bad_format"},
		{"a currency of two letters", "currency", `"CN"`, "currency bad_format"},
		{"a currency of four letters", "currency", `"CNYY"`, "currency bad_format"},
		{"an empty currency", "currency", `""`, "currency bad_format"},
		{"a currency by number", "currency", `156`, "currency wrong_type"},
		{"a currency that there isn't", "currency", `"ABC"`, "currency unsupported"},
		{"no currency", "currency", `"XXX"`, "currency unsupported"},
		{"gold", "currency", `"XAU"`, "currency unsupported"},

		{"an empty subject", "subject", `""`, "subject too_short"},
		{"a subject of 257 characters", "subject", long(257), "subject too_long"},
		{"a subject with a line end", "subject", `"a\nb"`, "subject bad_character"},
		{"a subject with NUL", "subject", `"a\u0000"`, "subject bad_character"},
		{"a subject with DEL", "subject", "\"a\u007f\"", "subject bad_character"},
		{"a subject with a C1 control", "subject", "\"a\u0085\"", "subject bad_character"},
		{"a subject with a line separator", "subject", `"a\u2028"`, "subject bad_character"},
		{"a subject with a paragraph separator", "subject", `"a\u2029"`, "subject bad_character"},
		{"a subject with U+202A", "subject", `"a\u202a"`, "subject bad_character"},
		{"a subject with U+202E", "subject", "\"a\u202e\"", "subject bad_character"},
		{"a subject with U+2066", "subject", `"a\u2066"`, "subject bad_character"},
		{"a subject with U+2069", "subject", `"a\u2069"`, "subject bad_character"},
		{"a subject that is a number", "subject", `1`, "subject wrong_type"},

		{"an out_trade_no that is a number", "out_trade_no", `17`, "out_trade_no wrong_type"},
		{"an empty out_trade_no", "out_trade_no", `""`, "out_trade_no too_short"},
		{"an out_trade_no of 65 characters", "out_trade_no", ascii(65), "out_trade_no too_long"},
		{"an out_trade_no that begins with -", "out_trade_no", `"-a"`, "out_trade_no bad_format"},
		{"an out_trade_no with a space", "out_trade_no", `"a b"`, "out_trade_no bad_character"},
		{"an out_trade_no with a slash", "out_trade_no", `"a/b"`, "out_trade_no bad_character"},
		{"an out_trade_no with an umlaut", "out_trade_no", `"ä"`, "out_trade_no bad_character"},

		{"an expires_in of 59", "expires_in", `59`, "expires_in out_of_range"},
		{"an expires_in of 86401", "expires_in", `86401`, "expires_in out_of_range"},
		{"a negative expires_in", "expires_in", `-60`, "expires_in out_of_range"},
		{"an expires_in as text", "expires_in", `"60"`, "expires_in wrong_type"},
		{"an expires_in with a fraction", "expires_in", `60.5`, "expires_in bad_format"},
		{"an expires_in that is null", "expires_in", `null`, "expires_in wrong_type"},

		{"metadata that is null", "metadata", `null`, "metadata wrong_type"},
		{"metadata that is an array", "metadata", `["a"]`, "metadata wrong_type"},
		{"metadata that is a string", "metadata", `"a"`, "metadata wrong_type"},
		{"metadata with a number", "metadata", `{"a":1}`, "metadata.a wrong_type"},
		{"metadata with null", "metadata", `{"a":null}`, "metadata.a wrong_type"},
		{"metadata with an object", "metadata", `{"a":{"b":"c"}}`, "metadata.a wrong_type"},
		{"metadata with an empty name", "metadata", `{"":"x"}`, "metadata too_short"},
		{"metadata with a name of 41 characters", "metadata", `{` + ascii(41) + `:"x"}`, "metadata too_long"},
		{"metadata with a space in a name", "metadata", `{"a b":"x"}`, "metadata bad_character"},
		{"metadata with a text of 257 characters", "metadata", `{"a":` + long(257) + `}`, "metadata.a too_long"},
		{"metadata with a control character", "metadata", `{"a":"\u0007"}`, "metadata.a bad_character"},
		{"metadata with a card's number for a name", "metadata", `{"6222020012345678":1}`, "metadata wrong_type"},
		{"metadata with 17 pairs", "metadata", pairs(17), "metadata too_long"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, code, faulty := decode(body(tc.field, tc.value))
			if code != "invalid_parameter" || !slices.Equal(faulty, []string{tc.fault}) {
				t.Errorf("%q %v, want %s", code, faulty, tc.fault)
			}
		})
	}
}

func pairs(n int) string {
	var parts []string
	for i := range n {
		parts = append(parts, fmt.Sprintf(`"k%d":"v"`, i))
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func TestValuesAtTheEdge(t *testing.T) {
	for _, tc := range []struct{ name, field, value string }{
		{"the least uid", "uid", `1`},
		{"the largest uid", "uid", `9223372036854775807`},
		{"the largest uid as text", "uid", `"9223372036854775807"`},
		{"a uid written with an escape", "uid", `"9\u0035"`},
		{"the least amount", "amount", `1`},
		{"the largest amount", "amount", `9007199254740991`},
		{"an out_trade_no of one character", "out_trade_no", `"*"`},
		{"an out_trade_no of 64 of all kinds", "out_trade_no", `"A.z_0:|*-` + strings.Repeat("9", 55) + `"`},
		{"a subject of one character", "subject", `" "`},
		{"a subject of 256 characters of four bytes", "subject", `"` + strings.Repeat("𝄞", 256) + `"`},
		{"a subject with what surrounds the refused", "subject", `"\u0020\u007e\u00a0\u2027\u202f\u2065\u206a"`},
		{"the shortest expires_in", "expires_in", `60`},
		{"the longest expires_in", "expires_in", `86400`},
		{"16 pairs", "metadata", pairs(16)},
		{"an empty text in metadata", "metadata", `{"a":""}`},
		{"a name of 40 characters", "metadata", `{"` + strings.Repeat("a", 40) + `":""}`},
		{"a text of 256 characters", "metadata", `{"a":"` + strings.Repeat("é", 256) + `"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, code, faulty := decode(body(tc.field, tc.value)); code != "" {
				t.Errorf("%q %v", code, faulty)
			}
		})
	}
}

func TestAllFaultyFieldsAreToldAtOnce(t *testing.T) {
	_, code, faulty := decode(`{"uid":0,"bid":"x","amount":"1","subject":"","metadata":{"a":1,"b":"ok","c":[]},"expires_in":1,"Currency":"CNY"}`)
	want := []string{"uid out_of_range", "bid bad_format", "amount wrong_type", "subject too_short",
		"metadata.a wrong_type", "metadata.c wrong_type", "expires_in out_of_range", "Currency unknown",
		"out_trade_no required", "currency required"}
	if code != "invalid_parameter" || !slices.Equal(faulty, want) {
		t.Errorf("%q\n got %v\nwant %v", code, faulty, want)
	}
}

func TestOnlyUnknownFieldsHaveACodeOfTheirOwn(t *testing.T) {
	_, code, faulty := decode(body("Amount", "1", "note", `{"a":[{}]}`))
	if code != "unknown_field" || !slices.Equal(faulty, []string{"Amount unknown", "note unknown"}) {
		t.Errorf("%q %v", code, faulty)
	}
}

// An unknown name may be anything, a value in the wrong place among it.
func TestAnUnknownNameIsRepeatedOnlyIfItReadsLikeOne(t *testing.T) {
	for _, tc := range []struct{ name, shown string }{
		{"note", "note"},
		{"a.b-c_9", "a.b-c_9"},
		{"_", "_"},
		{strings.Repeat("a", 32), strings.Repeat("a", 32)},
		{strings.Repeat("a", 33), "body"},
		{"address123", "address123"},
		{"address1234", "body"},
		{"6222020012345678", "body"},
		{"1a", "body"},
		{"-a", "body"},
		{"", "body"},
		{"<script>", "body"},
		{"Max Mustermann", "body"},
		{"金额", "body"},
	} {
		if _, _, faulty := decode(body(tc.name, "1")); !slices.Equal(faulty, []string{tc.shown + " unknown"}) {
			t.Errorf("%q: %v", tc.name, faulty)
		}
	}
}

func TestAnAnswerListsABoundedNumberOfUnknownFieldsAndAllKnownOnes(t *testing.T) {
	var fields []string
	for i := range 5000 {
		fields = append(fields, fmt.Sprintf("x%d", i), "1")
	}
	fields = append(fields, "expires_in", "1")
	_, code, faulty := decode(body(fields...))
	if code != "invalid_parameter" || len(faulty) != unknownMax+1 || faulty[unknownMax] != "expires_in out_of_range" {
		t.Errorf("%q, %d faults", code, len(faulty))
	}
}

// The text of metadata is what is stored and compared in both clusters: equal metadata
// must have equal text.
func TestMetadataIsKeptAsCanonicalText(t *testing.T) {
	for _, tc := range []struct{ name, sent, kept string }{
		{"none", `{}`, `{}`},
		{"white space", "{ \"a\" :\n\"b\" }", `{"a":"b"}`},
		{"names in another order", `{"b":"2","a":"1","B":"3"}`, `{"B":"3","a":"1","b":"2"}`},
		{"a name that begins like another", `{"ab":"","a":"","a-":""}`, `{"a":"","a-":"","ab":""}`},
		{"escapes that aren't needed", `{"\u0061":"\u0062\/\u00e9"}`, `{"a":"b/é"}`},
		{"escapes that are needed", `{"a":"\u0022\u005c\"\\"}`, `{"a":"\"\\\"\\"}`},
		{"a surrogate pair", `{"a":"\ud83d\ude00"}`, `{"a":"😀"}`},
		{"characters that HTML escapes", `{"a":"<&>\u003c"}`, `{"a":"<&><"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n, code, faulty := decode(body("metadata", tc.sent))
			if code != "" || n.Metadata != tc.kept {
				t.Errorf("%q %v %s", code, faulty, n.Metadata)
			}
		})
	}
}

func TestADecoderKeepsNothingOfTheBodyBefore(t *testing.T) {
	sent := []byte(body("metadata", `{"a":"1"}`))
	var f faults
	n, err := decodeOrder(sent, &f)
	if err != nil {
		t.Fatal(err)
	}
	clear(sent)
	if n.Subject != "Le Max 2" || n.Metadata != `{"a":"1"}` || n.OutTradeNo != "20261130-000017" || n.Currency != "CNY" {
		t.Errorf("%+v", n)
	}
	if n, code, _ := decode(body()); code != "" || n.Metadata != "{}" {
		t.Errorf("%q %+v", code, n)
	}
}

// encodeNew writes a create whose decoding must give n again.
func encodeNew(n ordersvc.New) []byte {
	b := fmt.Appendf(nil, `{"uid":"%d","bid":%d,"amount":%d,"expires_in":%d,"metadata":%s,"out_trade_no":`,
		n.UID, n.BID, n.Amount, n.ExpiresIn/time.Second, n.Metadata)
	b = appendText(b, n.OutTradeNo)
	b = appendText(append(b, `,"currency":`...), n.Currency)
	b = appendText(append(b, `,"subject":`...), n.Subject)
	return append(b, '}')
}

// FuzzDecodeOrder: what is accepted is within the contract, encodes to an equal value,
// and stops being accepted when a name comes twice. Nothing panics.
func FuzzDecodeOrder(f *testing.F) {
	for _, seed := range []string{
		body(), body("metadata", `{"b":"\u2603","a":"\"\\"}`), body("uid", "9223372036854775807", "expires_in", "86400"),
		body("amount", "1e2"), body("subject", `"\ud83d\ude00"`), body("x", "{}"), `{"uid":"1","uid":"2"}`, "null", "[[[[", `{"a`, "\xff",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		var flaws faults
		n, err := decodeOrder(sent, &flaws)
		if err != nil || flaws.err() != nil {
			return
		}
		if n.UID < 1 || n.BID < 1 || n.Amount < 1 || n.Amount > amountMax || checkNumber(n.OutTradeNo).bad() ||
			checkCurrency([]byte(n.Currency)).bad() || checkSubject([]byte(n.Subject)).bad() ||
			n.ExpiresIn < time.Minute || n.ExpiresIn > 24*time.Hour {
			t.Fatalf("accepted %+v", n)
		}
		again, err := decodeOrder(encodeNew(n), &flaws)
		if err != nil || flaws.err() != nil || again != n {
			t.Fatalf("%+v became %+v: %v", n, again, flaws.list)
		}
		doubled := slices.Concat(sent[:slices.Index(sent, '{')+1], []byte(`"uid":1,`), sent[slices.Index(sent, '{')+1:])
		if _, err := decodeOrder(doubled, &flaws); err == nil {
			t.Fatalf("accepted a second uid: %q", doubled)
		}
	})
}

func BenchmarkDecodeOrder(b *testing.B) {
	sent := []byte(`{"uid":"9527","bid":"1001","out_trade_no":"20261130-000017","amount":19900,"currency":"CNY","subject":"Le Max 2 手机","expires_in":1800,"metadata":{"sku":"lm2-64","colour":"gold"}}`)
	b.ReportAllocs()
	b.SetBytes(int64(len(sent)))
	for b.Loop() {
		var f faults
		if _, err := decodeOrder(sent, &f); err != nil || len(f.list) > 0 {
			b.Fatal(err, f.list)
		}
	}
}
