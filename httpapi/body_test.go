package httpapi

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/octopay/octopay/internal/eventually"
)

func TestWhichContentTypesAreJSON(t *testing.T) {
	for header, json := range map[string]bool{
		"application/json":                                 true,
		"Application/JSON":                                 true,
		"application/json;charset=utf-8":                   true,
		"application/json; charset=UTF-8":                  true,
		`application/json; charset="utf-8"`:                true,
		"application/json; version=1":                      true,
		"application/json; charset=utf-16":                 false,
		"application/json; charset=iso-8859-1":             false,
		"application/json; charset=":                       false,
		"application/json; charset=utf-8; charset=latin-1": false,
		"application/problem+json":                         false,
		"application/jsonx":                                false,
		"text/json":                                        false,
		"text/plain":                                       false,
		"application/x-www-form-urlencoded":                false,
		"multipart/form-data; boundary=x":                  false,
		"json":                                             false,
		"":                                                 false,
	} {
		if isJSON([]string{header}) != json {
			t.Errorf("%q: %t", header, !json)
		}
	}
	if isJSON(nil) || isJSON([]string{"application/json", "application/json"}) {
		t.Error("none and two are not one")
	}
}

func TestABodyOfAnotherTypeIs415(t *testing.T) {
	s := start(t)
	s.send("POST", "/v1/orders", body(), "Content-Type", "application/json; charset=utf-8").is(201, "")
	s.send("POST", "/v1/orders", body(), "Content-Type", "text/plain").is(415, "unsupported_media_type")
	req, _ := http.NewRequest("POST", s.url+"/v1/orders", strings.NewReader(body()))
	s.do(req).is(415, "unsupported_media_type")
}

// Without a body there is nothing whose type could be wrong; it isn't an order either.
func TestAnEmptyBodyIs400(t *testing.T) {
	s := start(t)
	s.send("POST", "/v1/orders", "").is(400, "malformed_json")
}

func TestAnyContentEncodingIs415(t *testing.T) {
	s := start(t)
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	if _, err := io.WriteString(w, body()); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	s.send("POST", "/v1/orders", zipped.String(), "Content-Encoding", "gzip").is(415, "unsupported_media_type")
	s.send("POST", "/v1/orders", body(), "Content-Encoding", "identity").is(415, "unsupported_media_type")
	s.send("POST", "/v1/orders", body(), "Content-Encoding", "").is(415, "unsupported_media_type")
	s.send("GET", "/v1/users/1/orders", "", "Content-Encoding", "gzip").is(415, "unsupported_media_type")
}

func TestABodyWhereNoneBelongsIs400(t *testing.T) {
	s := start(t)
	for _, path := range []string{"/v1/users/1/orders", "/v1/orders/1", "/v1/orders?uid=1&bid=1&out_trade_no=1", "/openapi.yaml"} {
		got := s.send("GET", path, "{}").is(400, "invalid_parameter")
		if f := got.faulty(); len(f) != 1 || f[0] != "body unsupported" {
			t.Errorf("%s: %q", path, f)
		}
	}
	s.send("GET", "/v1/users/1/orders", "", "Content-Length", "0").is(200, "")
}

func TestABodyMayHave64KiBAndNotOneByteMore(t *testing.T) {
	s := start(t)
	fit := func(n int) string { return body() + strings.Repeat(" ", n-len(body())) }
	s.create(fit(bodyMax)).is(201, "")
	s.create(fit(bodyMax+1)).is(413, "body_too_large")
	s.create(fit(20*bodyMax)).is(413, "body_too_large")

	chunked := func(n int) answer {
		// A reader that net/http doesn't know the length of is sent in chunks.
		req, err := http.NewRequest("POST", s.url+"/v1/orders", io.NopCloser(strings.NewReader(fit(n))))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		return s.do(req)
	}
	chunked(bodyMax).is(200, "")
	chunked(bodyMax+1).is(413, "body_too_large")
	chunked(20*bodyMax).is(413, "body_too_large")
	if s.orders.calls != 2 {
		t.Errorf("%d calls", s.orders.calls)
	}
}

func TestAURIMayHave8KiBAndNotOneByteMore(t *testing.T) {
	s := start(t)
	path := "/v1/users/1/orders?cursor="
	s.get(path+strings.Repeat("A", uriMax-len(path))).is(400, "invalid_cursor")
	s.get(path+strings.Repeat("A", uriMax-len(path)+1)).is(414, "uri_too_long")
	s.get("/nowhere?"+strings.Repeat("A", 3*uriMax)).is(414, "uri_too_long")
}

// raw opens a connection, on which a test speaks HTTP byte by byte.
func (s *service) raw() (*net.TCPConn, *bufio.Reader) {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(eventually.Patience)); err != nil {
		s.t.Fatal(err)
	}
	return conn.(*net.TCPConn), bufio.NewReader(conn)
}

// say sends text and reads the answer to it.
func (s *service) say(conn net.Conn, in *bufio.Reader, method, text string) answer {
	s.t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		s.t.Fatal(err)
	}
	return s.hear(in, method)
}

func (s *service) hear(in *bufio.Reader, method string) answer {
	s.t.Helper()
	res, err := http.ReadResponse(in, &http.Request{Method: method})
	if err != nil {
		s.t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if res.Close {
		res.Header.Set("Connection", "close")
	}
	return answer{s.t, res.StatusCode, res.Header, string(text)}
}

func post(length int, headers ...string) string {
	return fmt.Sprintf("POST /v1/orders HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer dev-app\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n",
		length, strings.Join(headers, ""))
}

func TestABodyThatComesTooSlowlyIs408(t *testing.T) {
	s := start(t, func(c *Config) { c.BodyTimeout = 50 * time.Millisecond })
	conn, in := s.raw()
	got := s.say(conn, in, "POST", post(len(body()))+body()[:20]).is(408, "request_timeout")
	if got.header.Get("Connection") != "close" {
		t.Errorf("the rest would be read as a request: %v", got.header)
	}
	if s.orders.calls > 0 {
		t.Error("something was written")
	}
}

// A deadline that went on behind the body would end the call, and then the connection.
func TestTheTimeForTheBodyIsNotTheTimeForTheCall(t *testing.T) {
	s := start(t, func(c *Config) { c.BodyTimeout = time.Hour })
	s.orders.block, s.orders.began = make(chan struct{}), make(chan struct{}, 1)
	conn, in := s.raw()
	if _, err := io.WriteString(conn, post(len(body()))+body()); err != nil {
		t.Fatal(err)
	}
	<-s.orders.began
	deadlines := s.deadlines.list()
	hour := slices.ContainsFunc(deadlines, func(d time.Time) bool { return time.Until(d) > time.Minute })
	if !hour || !deadlines[len(deadlines)-1].IsZero() {
		t.Errorf("for the body %t, for the call %v", hour, deadlines[len(deadlines)-1])
	}
	close(s.orders.block)
	s.hear(in, "POST").is(201, "")
	s.say(conn, in, "POST", post(len(body()))+body()).is(200, "") // the connection lives on
}

func TestABodyThatEndsEarlyIs400(t *testing.T) {
	s := start(t)
	conn, in := s.raw()
	if _, err := io.WriteString(conn, post(len(body()))+body()[:20]); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	s.hear(in, "POST").is(400, "malformed_json")

	conn, in = s.raw()
	chunked := "POST /v1/orders HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer dev-app\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
	s.say(conn, in, "POST", chunked).is(400, "malformed_json")
	if s.orders.calls > 0 {
		t.Error("something was written")
	}
}

func TestWhoAsksBeforeSendingABodyIsToldToGoOn(t *testing.T) {
	s := start(t)
	conn, in := s.raw()
	if got := s.say(conn, in, "POST", post(len(body()), "Expect: 100-continue\r\n")); got.status != 100 {
		t.Fatalf("%d", got.status)
	}
	s.say(conn, in, "POST", body()).is(201, "")
	// And one whose body will not be taken is told so before it sends it.
	conn, in = s.raw()
	s.say(conn, in, "POST", post(bodyMax+1, "Expect: 100-continue\r\n")).is(413, "body_too_large")
}

// A refusal doesn't wait for the rest of a body that nobody will read.
func TestARefusalDoesNotWaitForTheBody(t *testing.T) {
	s := start(t, func(c *Config) { c.BodyTimeout = time.Hour })
	for _, tc := range []struct {
		name, head string
		status     int
		code       string
	}{
		{"a path that there isn't", "POST /nowhere HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer dev-app\r\nContent-Length: 100\r\n\r\n", 404, "not_found"},
		{"a method that there isn't", "PUT /v1/orders HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer dev-app\r\nContent-Length: 100\r\n\r\n", 405, "method_not_allowed"},
		{"a type that isn't JSON", "POST /v1/orders HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer dev-app\r\nContent-Length: 100\r\n\r\n", 415, "unsupported_media_type"},
		{"a body that is too large", post(bodyMax + 1), 413, "body_too_large"},
		{"a GET with a body", "GET /v1/users/1/orders HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer dev-app\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "invalid_parameter"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			conn, in := s.raw()
			got := s.say(conn, in, "POST", tc.head+"{").is(tc.status, tc.code)
			if got.header.Get("Connection") != "close" {
				t.Errorf("the rest would be read as a request: %v", got.header)
			}
		})
	}
}
