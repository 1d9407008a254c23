package httpapi

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"github.com/octopay/octopay/internal/certtest"
	"github.com/octopay/octopay/internal/eventually"
)

// A secure is an API behind TLS, and a client that speaks HTTP/2 with it.
type secure struct {
	*service
	addr string
	tls  *tls.Config
	http *http.Client
}

func startSecure(t *testing.T, change ...func(*Config)) *secure {
	t.Helper()
	ca := certtest.New(t)
	_, cert, key := ca.Issue(time.Now().Add(time.Hour), "127.0.0.1")
	s := &secure{service: start(t, change...), tls: &tls.Config{RootCAs: ca.Pool()}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	s.server = NewServer(s.api, slog.New(slog.NewJSONHandler(s.log, nil)))
	served := make(chan error, 1)
	go func() { served <- s.server.ServeTLS(l, cert, key) }()
	transport := &http.Transport{TLSClientConfig: s.tls, ForceAttemptHTTP2: true}
	s.http = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = s.server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("it served until %v", err)
		}
	})
	return s
}

// ask sends a request over HTTP/2 and returns its answer, and whether it came over a
// connection that was there before.
func (s *secure) ask(method, path string, body io.Reader, headers ...string) (got answer, reused bool) {
	s.t.Helper()
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
	req, err := http.NewRequestWithContext(ctx, method, "https://"+s.addr+path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer dev-app")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := s.http.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if res.ProtoMajor != 2 {
		s.t.Errorf("it was answered in %s", res.Proto)
	}
	return answer{s.t, res.StatusCode, res.Header, string(text)}, reused
}

func TestACallOverHTTP2(t *testing.T) {
	s := startSecure(t)
	made, _ := s.ask("POST", "/v1/orders", strings.NewReader(body()))
	id := made.is(201, "").object()["order_id"].(string)
	if got, reused := s.ask("GET", "/v1/orders/"+id, nil); got.is(200, "").body != made.body || !reused {
		t.Errorf("reused %t: %s", reused, got.body)
	}
}

// The settings that a server begins an HTTP/2 connection with, by their numbers.
const (
	settingStreams    = 3
	settingWindow     = 4
	settingFrame      = 5
	settingHeaderList = 6
)

func TestAnHTTP2ConnectionIsBounded(t *testing.T) {
	s := startSecure(t)
	config := s.tls.Clone()
	config.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", s.addr, config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(eventually.Patience)); err != nil {
		t.Fatal(err)
	}
	// The preface, and settings that set nothing.
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
		t.Fatal(err)
	}
	const settings = 4
	head := make([]byte, 9)
	if _, err := io.ReadFull(conn, head); err != nil || head[3] != settings {
		t.Fatalf("%v, %v", err, head)
	}
	text := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
	if _, err := io.ReadFull(conn, text); err != nil {
		t.Fatal(err)
	}
	got := map[uint16]uint32{}
	for ; len(text) >= 6; text = text[6:] {
		got[binary.BigEndian.Uint16(text)] = binary.BigEndian.Uint32(text[2:])
	}
	if got[settingStreams] != streamsMax || got[settingWindow] != streamWindow || got[settingFrame] != frameMax {
		t.Errorf("%v", got)
	}
	// For HTTP/2's way to count, net/http adds what ten headers may take.
	if most := uint32(s.server.MaxHeaderBytes) + 320; got[settingHeaderList] == 0 || got[settingHeaderList] > most {
		t.Errorf("headers of %d bytes, of at most %d", got[settingHeaderList], most)
	}
}

// A request that is refused before its body was read costs its own stream, and no other
// request's connection.
func TestARefusalInHTTP2KeepsTheConnection(t *testing.T) {
	s := startSecure(t)
	s.ask("GET", "/v1/users/1/orders", nil)
	for range 3 {
		got, reused := s.ask("POST", "/v1/orders", strings.NewReader(strings.Repeat(" ", 60<<10)+body()), "Authorization", "Bearer nobody")
		if got.is(401, "unauthenticated"); !reused {
			t.Error("a refusal ended the connection")
		}
	}
	if _, reused := s.ask("GET", "/v1/users/1/orders", nil); !reused {
		t.Error("a refusal ended the connection")
	}
}

// A body that comes too slowly is given up as in HTTP/1.
func TestASlowBodyInHTTP2(t *testing.T) {
	s := startSecure(t, func(c *Config) { c.BodyTimeout = 50 * time.Millisecond })
	r, w := io.Pipe()
	defer w.Close()
	go func() { _, _ = io.WriteString(w, `{"uid":`) }()
	got, _ := s.ask("POST", "/v1/orders", r)
	got.is(408, "request_timeout")
	if got, reused := s.ask("POST", "/v1/orders", strings.NewReader(body())); got.is(201, "").status != 201 || !reused {
		t.Error("it ended the connection")
	}
}

// While a program drains, what is under way finishes, what is new is refused, and the
// connection ends when nothing is under way.
func TestDrainingInHTTP2(t *testing.T) {
	s := startSecure(t)
	s.orders.block, s.orders.began = make(chan struct{}), make(chan struct{}, 1)
	done := make(chan answer, 1)
	go func() {
		got, _ := s.ask("POST", "/v1/orders", strings.NewReader(body()))
		done <- got
	}()
	<-s.orders.began
	s.api.Drain()
	got, reused := s.ask("POST", "/v1/orders", strings.NewReader(body()))
	if got.is(503, "draining"); !reused || got.header.Get("Retry-After") == "" {
		t.Errorf("reused %t: %v", reused, got.header)
	}
	eventually.True(t, "after its answer the connection takes no new requests", func() bool {
		got, reused := s.ask("GET", "/v1/users/1/orders", nil)
		got.is(503, "draining")
		return !reused
	})
	down := make(chan error, 1)
	go func() { down <- s.server.Shutdown(context.Background()) }()
	eventually.True(t, "nobody listens any more", func() bool {
		conn, err := net.Dial("tcp", s.addr)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	select {
	case err := <-down:
		t.Fatalf("it is down with a request under way: %v", err)
	default:
	}
	close(s.orders.block)
	(<-done).is(201, "")
	if err := <-down; err != nil {
		t.Error(err)
	}
}
