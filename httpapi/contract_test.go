package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/octopay/octopay/httpapi/openapitest"
	"github.com/octopay/octopay/httpapi/problem"
	"github.com/octopay/octopay/idgen"
	"pgregory.net/rapid"
)

func TestTheContractHasExactlyTheCallsThatAreServed(t *testing.T) {
	doc := openapitest.Document(t)
	var described, served []string
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			described = append(described, method+" "+path)
		}
	}
	for _, r := range routes() {
		for _, method := range strings.Split(r.allow, ", ") {
			if method != "HEAD" { // described once, in words
				served = append(served, method+" "+r.pattern)
			}
		}
	}
	slices.Sort(described)
	slices.Sort(served)
	if !slices.Equal(described, served) {
		t.Errorf("described %v\n served %v", described, served)
	}
}

// codesIn gathers the codes that a schema allows.
func codesIn(ref *openapi3.SchemaRef, add func(string)) {
	for _, part := range ref.Value.AllOf {
		codesIn(part, add)
	}
	if code := ref.Value.Properties["code"]; code != nil {
		for _, v := range code.Value.Enum {
			add(v.(string))
		}
	}
}

func TestTheContractHasEveryCodeAtItsStatus(t *testing.T) {
	described := map[string]map[string]bool{}
	for _, item := range openapitest.Document(t).Paths.Map() {
		for _, op := range item.Operations() {
			for status, res := range op.Responses.Map() {
				if media := res.Value.Content.Get(problem.ContentType); media != nil && status >= "4" {
					codesIn(media.Schema, func(code string) {
						if described[code] == nil {
							described[code] = map[string]bool{}
						}
						described[code][status] = true
					})
				}
			}
		}
	}
	for c := problem.Code(1); c < problem.Codes; c++ {
		want := map[string]bool{itoa(c.Status()): true}
		if !maps.Equal(described[c.String()], want) {
			t.Errorf("%s: %v, want %v", c, described[c.String()], want)
		}
		delete(described, c.String())
	}
	if len(described) > 0 {
		t.Errorf("nothing answers %v", described)
	}
}

func itoa(n int) string {
	return string([]byte{'0' + byte(n/100), '0' + byte(n/10%10), '0' + byte(n%10)})
}

// Every code that can be answered is answered in some test: as `"code"` in a call of is.
func TestEveryCodeIsProducedBySomeTest(t *testing.T) {
	files := []string{"access_test.go", "body_test.go", "changes_test.go", "conflicts_test.go", "entries_test.go", "errors_test.go", "faults_test.go", "lists_test.go", "orders_test.go", "rates_test.go", "routes_test.go", "server_test.go"}
	var all strings.Builder
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
	}
	for c := problem.Code(1); c < problem.Codes; c++ {
		if !regexp.MustCompile(`\.is\(` + itoa(c.Status()) + `, "` + c.String() + `"\)`).MatchString(all.String()) {
			t.Errorf("no test has %s answered", c)
		}
	}
}

// The schemas and the decoder are two writings of one rule.
func TestTheContractAndTheDecoderAgreeOnOrders(t *testing.T) {
	schemaOf := openapitest.Document(t).Components.Schemas["NewOrder"].Value
	for _, tc := range []struct {
		name, field string
		value       any
		text        string
	}{
		{"all that is required", "subject", "x", `"x"`},
		{"an amount that is the most", "amount", float64(amountMax), "9007199254740991"},
		{"an amount above it", "amount", float64(amountMax + 1), "9007199254740992"},
		{"an amount of 0", "amount", 0.0, "0"},
		{"an amount as text", "amount", "5", `"5"`},
		{"a uid as text", "uid", "5", `"5"`},
		{"a uid as a number", "uid", 5.0, "5"},
		{"a uid of 0", "uid", 0.0, "0"},
		{"a uid with a leading zero", "uid", "05", `"05"`},
		{"a number that begins with -", "out_trade_no", "-5", `"-5"`},
		{"a number that ends with -", "out_trade_no", "5-", `"5-"`},
		{"a number of 64 characters", "out_trade_no", strings.Repeat("a", 64), `"` + strings.Repeat("a", 64) + `"`},
		{"a number of 65 characters", "out_trade_no", strings.Repeat("a", 65), `"` + strings.Repeat("a", 65) + `"`},
		{"an empty subject", "subject", "", `""`},
		{"a subject of 256 emoji", "subject", strings.Repeat("😀", 256), `"` + strings.Repeat("😀", 256) + `"`},
		{"a subject of 257 emoji", "subject", strings.Repeat("😀", 257), `"` + strings.Repeat("😀", 257) + `"`},
		{"a subject with U+2027", "subject", "\u2027", `"\u2027"`},
		{"a subject with U+2028", "subject", "\u2028", `"\u2028"`},
		{"a subject with U+202E", "subject", "\u202e", `"\u202e"`},
		{"a subject with U+202F", "subject", "\u202f", `"\u202f"`},
		{"a subject with U+2069", "subject", "\u2069", `"\u2069"`},
		{"a subject with U+0085", "subject", "\u0085", `"\u0085"`},
		{"a subject with a line end", "subject", "\n", `"\n"`},
		{"an expires_in of 60", "expires_in", 60.0, "60"},
		{"an expires_in of 59", "expires_in", 59.0, "59"},
		{"a currency in lower case", "currency", "cny", `"cny"`},
		{"metadata with a number", "metadata", map[string]any{"a": 1.0}, `{"a":1}`},
		{"metadata with a name that has a space", "metadata", map[string]any{"a b": "c"}, `{"a b":"c"}`},
		{"metadata with an empty text", "metadata", map[string]any{"a": ""}, `{"a":""}`},
		{"metadata that is null", "metadata", nil, `null`},
		{"an unknown field", "note", "x", `"x"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			value := map[string]any{"uid": "9527", "bid": "1001", "out_trade_no": "A-1", "amount": 1.0, "currency": "CNY", "subject": "s"}
			value[tc.field] = tc.value
			_, code, faulty := decode(body("out_trade_no", `"A-1"`, tc.field, tc.text))
			if err := schemaOf.VisitJSON(value, openapi3.EnableJSONSchema2020()); (err == nil) != (code == "") {
				t.Errorf("the decoder says %q %v, the contract %v", code, faulty, err)
			}
		})
	}
}

// Which times are right is said by the schema of AnyTime, but for the days of a month.
func TestTheContractAndTheParserAgreeOnTimes(t *testing.T) {
	form := openapitest.Document(t).Components.Schemas["AnyTime"].Value
	agree := func(t interface{ Errorf(string, ...any) }, text string, thereIsTheDay bool) {
		_, bad := parseBound(text)
		described := form.VisitJSON(text, openapi3.EnableJSONSchema2020()) == nil
		if want := described && thereIsTheDay; bad.bad() == want {
			t.Errorf("%q: described %t, refused %t", text, described, bad.bad())
		}
	}
	for _, text := range []string{
		"2026-11-30T00:00:00Z", "2026-11-30T23:59:59.999999999+23:59", "2026-11-30T00:00:00-00:00", "0000-01-01T00:00:00Z",
		"9999-12-31T23:59:59Z", "2024-02-29T00:00:00Z", "2016-12-31T23:59:60Z", "2026-11-30T24:00:00Z", "2026-11-30T23:60:00Z",
		"2026-11-30T00:00:00-99:99", "2026-11-30T00:00:00+24:00", "2026-11-30T00:00:00+23:60", "2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z",
		"2026-01-00T00:00:00Z", "2026-01-32T00:00:00Z", "2026-11-30T00:00:00.Z", "2026-11-30T00:00:00.0000000000Z", "2026-11-30t00:00:00Z",
		"2026-11-30T00:00:00z", "2026-11-30T00:00:00", "2026-11-30", "", "2026-11-30T00:00:00Z\n", "２026-11-30T00:00:00Z",
	} {
		agree(t, text, true)
	}
	for _, text := range []string{"2026-02-29T00:00:00Z", "2026-02-30T00:00:00Z", "2026-04-31T00:00:00Z", "1900-02-29T00:00:00Z"} {
		agree(t, text, false)
	}
	rapid.Check(t, func(t *rapid.T) {
		// Every digit may be any: months 00 to 99, days too.
		digits := func(name string, n int) string {
			return rapid.StringMatching(fmt.Sprintf("[0-9]{%d}", n)).Draw(t, name)
		}
		near := func(name string, most int) string {
			return fmt.Sprintf("%02d", rapid.IntRange(0, most+1).Draw(t, name))
		}
		year, month, day := digits("year", 4), near("month", 12), near("day", 31)
		text := year + "-" + month + "-" + day + "T" + near("hour", 23) + ":" + near("minute", 59) + ":" + near("second", 59) +
			rapid.StringMatching(`(\.[0-9]{0,10})?`).Draw(t, "fraction") +
			rapid.SampledFrom([]string{"Z", "z", "", "+", "-"}).Draw(t, "zone")
		if strings.HasSuffix(text, "+") || strings.HasSuffix(text, "-") {
			text += near("hours", 23) + ":" + near("minutes", 59)
		}
		// Package time knows the calendar: a day that there isn't moves to the next month.
		y, _ := strconv.Atoi(year)
		m, _ := strconv.Atoi(month)
		d, _ := strconv.Atoi(day)
		agree(t, text, time.Date(y, time.Month(m), d, 0, 0, 0, 0, time.UTC).Day() == d)
	})
}

// What the HTTP server refuses by itself is as the contract's first page says.
func TestWhatTheServerRefusesByItselfIsDescribed(t *testing.T) {
	s := start(t)
	words := openapitest.Document(t).Info.Description
	for head, status := range map[string]int{
		"GET /v1/users/1/orders\r\n\r\n":                                                                       400,
		"GET /v1/users/1/orders HTTP/1.1\r\n\r\n":                                                              400, // no Host
		"GET /v1/users/1/orders HTTP/1.1\r\nHost: localhost\r\nA B: c\r\n\r\n":                                 400,
		"POST /v1/orders HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n":        400,
		"POST /v1/orders HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n":                            400,
		"POST /v1/orders HTTP/1.1\r\nHost: localhost\r\nExpect: 200-maybe\r\n\r\n":                             417,
		"GET /v1/users/1/orders HTTP/1.1\r\nHost: localhost\r\nExpect: 200-maybe\r\n\r\n":                      417,
		"GET /v1/users/1/orders HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n": 431,
		"POST /v1/orders HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n":                       501,
		"POST /v1/orders HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n":              501,
		"GET /v1/users/1/orders HTTP/3.0\r\nHost: localhost\r\n\r\n":                                           505,
	} {
		conn, in := s.raw()
		got := s.say(conn, in, "GET", head)
		if got.status != status || got.header.Get("Connection") != "close" || got.header.Get("X-Request-Id") != "" {
			t.Errorf("%.80q: %d %v", head, got.status, got.header)
		}
		if kind := got.header.Get("Content-Type"); got.body != "" && !strings.HasPrefix(kind, "text/plain") {
			t.Errorf("%.80q: %s %s", head, kind, got.body)
		}
		if !strings.Contains(words, strconv.Itoa(status)) {
			t.Errorf("%d is not described", status)
		}
		if _, err := in.ReadByte(); err == nil {
			t.Errorf("%.80q: the connection goes on", head)
		}
	}
	if s.orders.calls > 0 {
		t.Error("it reached the orders")
	}
}

// An example is the first thing that is copied.
func TestExamplesAreTrue(t *testing.T) {
	doc := openapitest.Document(t)
	if err := doc.Validate(context.Background()); err != nil {
		t.Error(err)
	}
	for name, example := range doc.Components.Examples {
		o := example.Value.Value.(map[string]any)
		id, err := idgen.Parse(o["order_id"].(string))
		if err != nil || !id.Of(9527) || o["uid"] != "9527" || o["created_at"] != id.Time().Format(timeLayout) {
			t.Errorf("%s: %v, made %v", name, err, id.Time())
		}
	}
	s := start(t)
	for _, example := range doc.Paths.Value("/v1/orders").Post.RequestBody.Value.Content["application/json"].Examples {
		text, err := json.Marshal(example.Value.Value)
		if err != nil {
			t.Fatal(err)
		}
		s.create(string(text)).is(201, "")
	}
}
