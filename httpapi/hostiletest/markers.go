// Package hostiletest is what clients send that they should not, for tests of the API in
// memory and of the real programs: values that must never come to light, and amounts and
// currencies in every spelling.
//
// It decides what is sent, and what the contract says of it. Who sends it, and where it is
// looked for afterwards, is left to the tests.
package hostiletest

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/octopay/octopay/httpapi/openapitest"
)

// A Marker is a text that nobody else writes: something that a client may send by mistake
// in any place, and that must be seen nowhere.
type Marker struct{ Name, Text string }

// Markers returns twenty random ones of the forms that matter; the same for the same seed.
func Markers(seed uint64) []Marker {
	r := rand.New(rand.NewPCG(seed, 20))
	of := func(alphabet string, n int) string {
		b := make([]rune, n)
		runes := []rune(alphabet)
		for i := range b {
			b[i] = runes[r.IntN(len(runes))]
		}
		return string(b)
	}
	const (
		digits = "0123456789"
		lower  = "abcdefghijklmnopqrstuvwxyz"
		upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
		base32 = "abcdefghijklmnopqrstuvwxyz234567"
	)
	raw := make([]byte, 32)
	for i := range raw {
		raw[i] = byte(r.Uint32())
	}
	key := func(role string) string { return "opk_" + role + "_" + of(base32, 12) + "_" + of(base32, 52) }
	url64 := base64.RawURLEncoding.EncodeToString
	return []Marker{
		{"a card", Card(of(digits, 9))},
		{"a phone", "138" + of(digits, 8)},
		{"a phone with its country", "+86139" + of(digits, 8)},
		{"an app's key", key("app")},
		{"a merchant's key", key("merchant")},
		{"a channel's key", key("channel")},
		{"an operator's key", key("ops")},
		{"a signing secret", "whsec_" + base64.StdEncoding.EncodeToString(raw)},
		{"a name", "Zoë " + of(upper, 1) + of(lower, 11)},
		{"a name in Chinese", of("王李张刘陈杨赵黄周吴徐孙胡朱高林何郭马罗", 6) + of(digits, 4)},
		{"an address", of(digits, 3) + " " + of(upper, 1) + of(lower, 9) + " Street, Flat " + of(digits, 3)},
		{"an e-mail", of(lower, 10) + "@" + of(lower, 8) + ".example"},
		{"a bank account", "DE" + of(digits, 20)},
		{"an identity card", "1101" + of(digits, 13) + "X"},
		{"a token", url64(raw[:12]) + "." + url64(raw[8:30]) + "." + url64(raw[3:27])},
		{"a UUID", fmt.Sprintf("%x-%x-4%x-8%x-%x", raw[:4], raw[4:6], raw[6:8], raw[8:10], raw[10:16])},
		{"a hash", hex.EncodeToString(raw)},
		{"a password", "p&" + of(lower+digits, 9) + "'" + of(upper+digits, 6) + `"!`},
		{"a fragment of SQL", "') OR '" + of(lower, 10) + "'='" + of(lower, 6)},
		{"a fragment of HTML", "<i>" + of(lower+digits, 14) + "</i>"},
	}
}

// Card returns the number of a card, 16 digits whose sum is right, of nine digits.
func Card(nine string) string {
	number := "622588" + nine
	sum := 0
	for i := range len(number) {
		d := int(number[len(number)-1-i] - '0')
		if i%2 == 0 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return number + strconv.Itoa((10-sum%10)%10)
}

// JSON returns the marker as JSON writes it.
func (m Marker) JSON() string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range m.Text {
		switch c {
		case '"', '\\':
			b.WriteByte('\\')
		}
		b.WriteRune(c)
	}
	return b.String() + `"`
}

// partLen is how much of a marker tells it: who cuts a text before he writes it has
// written this much of it.
const partLen = 16

// A Search finds markers in texts.
type Search struct{ needles []needle }

type needle struct{ name, text string }

// NewSearch returns a search for markers: whole, their first and last part, and as JSON, a
// URL, hexadecimal or base64 write them.
func NewSearch(markers []Marker) *Search {
	s := &Search{}
	for _, m := range markers {
		quoted := strconv.Quote(m.Text)
		forms := []string{
			m.Text, strings.Trim(m.JSON(), `"`), quoted[1 : len(quoted)-1], strings.ReplaceAll(strings.ReplaceAll(quoted[1:len(quoted)-1], `\`, `\\`), `"`, `\"`),
			url.QueryEscape(m.Text), url.PathEscape(m.Text), hex.EncodeToString([]byte(m.Text)), base64.StdEncoding.EncodeToString([]byte(m.Text)),
			strings.NewReplacer("<", `\u003c`, ">", `\u003e`, "&", `\u0026`).Replace(strings.Trim(m.JSON(), `"`)),
		}
		if len(m.Text) > partLen {
			forms = append(forms, m.Text[:partLen], m.Text[len(m.Text)-partLen:])
		}
		for _, f := range forms {
			s.needles = append(s.needles, needle{m.Name, f})
		}
	}
	return s
}

// In returns the names of the markers that are in a text, and what stands around the first
// of each.
func (s *Search) In(text string) (found []string) {
	seen := map[string]bool{}
	for _, n := range s.needles {
		if i := strings.Index(text, n.text); i >= 0 && !seen[n.name] {
			seen[n.name] = true
			found = append(found, fmt.Sprintf("%s: …%s…", n.name, text[max(0, i-80):min(len(text), i+len(n.text)+20)]))
		}
	}
	return found
}

// A Request is one to send as it is.
type Request struct {
	Method, Target, Body string
	Header               http.Header
}

// headers are those that mean something to the service or to net/http, of those that a
// client may set, and one that means nothing. X-Request-Id has a rule of its own.
var headers = []string{"Authorization", "Content-Type", "Content-Encoding", "Accept", "Cookie", "User-Agent", "Referer", "Origin",
	"X-Forwarded-For", "Forwarded", "If-Match", "If-None-Match", "Idempotency-Key", "Webhook-Id", "Webhook-Timestamp", "Webhook-Signature",
	"Range", "Traceparent", "X-Unknown"}

// Requests are those of a call in which a marker stands in one place each: every field, and
// names of fields; the query; the path; headers; and bodies that are broken in every way.
// values are those of the path's parameters.
func Requests(t testing.TB, c openapitest.Call, m Marker, values map[string]string) (all []Request) {
	t.Helper()
	path := func(changed string) string {
		var pairs []string
		for name, value := range values {
			if name == changed {
				value = url.PathEscape(m.Text)
			}
			pairs = append(pairs, name, value)
		}
		return c.Target(pairs...)
	}
	right, escaped := path(""), url.QueryEscape(m.Text)
	add := func(method, target, body string, header ...string) {
		h := http.Header{}
		for i := 0; i < len(header); i += 2 {
			h[header[i]] = append(h[header[i]], header[i+1])
		}
		all = append(all, Request{method, target, body, h})
	}
	for _, body := range bodies(t, c, m) {
		add(c.Method, right, body)
	}
	for _, name := range c.Query {
		add(c.Method, right+"?"+name+"="+escaped, c.Body())
		add(c.Method, right+"?"+name+"="+escaped+"&"+name+"="+escaped, c.Body())
	}
	for _, query := range []string{escaped + "=1", escaped, "x=" + escaped, escaped + "=" + escaped, "%zz" + escaped, "limit=1;" + escaped} {
		add(c.Method, right+"?"+query, c.Body())
	}
	for _, param := range c.Params {
		add(c.Method, path(param), c.Body())
	}
	add(c.Method, right+"/"+url.PathEscape(m.Text), c.Body())
	add("BREW", right, c.Body(), "X-Unknown", m.Text)
	for _, name := range headers {
		add(c.Method, right, c.Body(), name, m.Text)
	}
	add(c.Method, right, c.Body(), "Authorization", "Bearer "+m.Text)
	add(c.Method, right, c.Body(), "Content-Type", "application/json; x="+m.Text)
	if !ReadsLikeARequestID(m) {
		add(c.Method, right, c.Body(), "X-Request-Id", m.Text)
	}
	add(c.Method, right, c.Body(), "X-Request-Id", "r", "X-Request-Id", m.Text)
	return all
}

// ReadsLikeARequestID reports whether a marker has the form of a request id: such a one is
// a request id, which the contract sends back and logs hold.
func ReadsLikeARequestID(m Marker) bool {
	const id = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
	return len(m.Text) <= 64 && strings.Trim(m.Text, id) == ""
}

// bodies returns bodies of a call with a marker in every place, and in every way of being
// wrong.
func bodies(t testing.TB, c openapitest.Call, m Marker) (all []string) {
	t.Helper()
	text := m.JSON()
	for _, field := range c.Fields {
		all = append(all, c.With(t, field.Path, text), c.With(t, field.Path, "["+text+"]"), c.With(t, field.Path, `{`+text+`:`+text+`}`),
			c.With(t, field.Path, `"`+strings.Repeat(strings.Trim(text, `"`), 20)+`"`), c.With(t, field.Path, strings.Trim(text, `"`)))
	}
	right := c.Body()
	open := strings.TrimSuffix(right, "}")
	return append(all,
		open+`,`+text+`:1}`, open+`,`+text+`:1,`+text+`:2}`, open+`,"metadata":{`+text+`:1}}`, open+`,"x":{"y":[`+text+`]}}`,
		open+`,"x":`+text, open+`,"x":`+text[:len(text)-1], right+m.Text, right+text, m.Text, text, "["+text+"]", "{"+text, "{"+text+":",
		open+",\"x\":\""+m.Text+"\xff\"}", open+",\"x\":\"\\ud83d"+m.Text+"\"}", open+`,"x":"\q`+m.Text+`"}`, open+`,"x":`+strings.Repeat("[", 20)+text,
		open+`,"x":"`+strings.Repeat("y", 64<<10)+m.Text+`"}`)
}

// Broken returns what is not HTTP, each with a marker: net/http finds the fault. key is one
// that may create orders.
func Broken(m Marker, key string) []string {
	head := "POST /v1/orders HTTP/1.1\r\nHost: localhost\r\n"
	chunked := head + "Authorization: Bearer " + key + "\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
	return []string{
		m.Text + "\r\n\r\n", "GET /" + m.Text + " HTTP/1.1\r\nHost: localhost\r\n\r\n", m.Text + " /v1/orders HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"GET /v1/orders HTTP/" + m.Text + "\r\n\r\n", "GET / HTTP/1.1\r\nHost: " + m.Text + "\r\n\r\n", head + m.Text + "\r\n\r\n",
		head + m.Text + ": 1\r\n\r\n", head + "X-A: \x01" + m.Text + "\r\n\r\n", head + "Content-Length: " + m.Text + "\r\n\r\n",
		head + "Transfer-Encoding: " + m.Text + "\r\n\r\n", head + "Expect: " + m.Text + "\r\n\r\n", head + "X-A: " + strings.Repeat(m.Text, 4000) + "\r\n\r\n",
		chunked + m.Text + "\r\n", chunked + "5\r\n" + m.Text,
	}
}

// Leaks returns the markers that an answer repeats where none may be: in what refuses a
// request, and in the refused items of a batch.
func (s *Search) Leaks(status int, header http.Header, body []byte) []string {
	if status >= http.StatusBadRequest {
		return s.In(string(body) + fmt.Sprint(header))
	}
	var batch struct {
		Results []struct{ Error json.RawMessage }
	}
	if json.Unmarshal(body, &batch) != nil {
		return nil
	}
	var found []string
	for _, r := range batch.Results {
		found = append(found, s.In(string(r.Error))...)
	}
	return found
}
