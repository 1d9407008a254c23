package httpapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/schema"
	"github.com/prometheus/client_golang/prometheus"
)

// rstDelay is how long net/http waits at most before it closes a connection on which
// something is still coming.
const rstDelay = 500 * time.Millisecond

// pipes is a listener of connections in memory, whose time can be fake.
type pipes struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// dial opens a connection to whoever accepts.
func (p *pipes) dial() (net.Conn, *bufio.Reader) {
	client, server := net.Pipe()
	p.conns <- server
	return client, bufio.NewReader(client)
}

// inFakeTime runs f with a server of h, in a bubble of fake time.
func inFakeTime(t *testing.T, f func(t *testing.T, s *service, p *pipes)) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{t: t, orders: &fakeOrders{journal: map[int64][]schema.Entry{}}, log: &syncBuffer{}, registry: prometheus.NewRegistry()}
		log := slog.New(slog.NewJSONHandler(s.log, nil))
		api, err := New(Config{Orders: s.orders, Mirror: fakeMirror{s.orders}, Conflicts: s.conflicts, Keys: devKeys(), Registry: s.registry, Logger: log, LocalHostsOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		p := newPipes()
		s.api, s.server = api, NewServer(api, log)
		served := make(chan error)
		go func() { served <- s.server.Serve(p) }()
		f(t, s, p)
		_ = s.server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// An announcement is a request whose body is announced and never comes.
type announcement struct {
	method, head string
	awaited      bool // a create that could be right: its body is waited for
}

// announcements are requests of every kind that announce a body.
func announcements() (all []announcement) {
	paths := []string{"/nope", "/", "/v1/orders/", "/v1/users/../orders", "/v1/orders?x=" + strings.Repeat("A", uriMax),
		"/v1/orders", "/v1/orders/1", "/v1/users/1/orders", "/v1/merchants/1/orders", "/openapi.yaml"}
	bodies := []string{"Content-Length: 100\r\n", "Content-Length: 65536\r\n", "Content-Length: 65537\r\n", "Content-Length: 100000\r\n",
		"Content-Length: 1000000\r\n", "Content-Length: 9223372036854775807\r\n", "Transfer-Encoding: chunked\r\n",
		"Content-Length: 100\r\nExpect: 100-continue\r\n", "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n"}
	headers := []string{"Host: localhost\r\nAuthorization: Bearer dev-app\r\n", "Host: evil.example\r\n", "Host: localhost\r\nAuthorization: Bearer dev-app\r\nContent-Type: application/json\r\n",
		"Host: localhost\r\nAuthorization: Bearer dev-app\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n"}
	for _, path := range paths {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "BREW"} {
			for _, announced := range bodies {
				for i, h := range headers {
					fits := !strings.Contains(announced, "65537") && !strings.Contains(announced, "00000") && !strings.Contains(announced, "922")
					all = append(all, announcement{method, method + " " + path + " HTTP/1.1\r\n" + h + announced + "\r\n",
						method == "POST" && path == "/v1/orders" && i == 2 && fits})
				}
			}
		}
	}
	return all
}

// heard reads the answer, and passes over 100.
func heard(t *testing.T, in *bufio.Reader, method string) *http.Response {
	t.Helper()
	for {
		res, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != 100 {
			return res
		}
	}
}

// Connections were held for as long as the client liked by a body that was announced,
// refused, and never sent.
func TestAnAnnouncedBodyThatNeverComesHoldsNoConnection(t *testing.T) {
	for _, draining := range []bool{false, true} {
		inFakeTime(t, func(t *testing.T, s *service, p *pipes) {
			if draining {
				s.api.Drain()
			}
			early, awaited := 0, 0
			var all sync.WaitGroup
			for _, a := range announcements() {
				conn, in := p.dial()
				began := time.Now()
				if a.awaited && !draining {
					awaited++
				} else {
					early++
				}
				all.Go(func() {
					if _, err := io.WriteString(conn, a.head); err != nil {
						t.Errorf("%.200s: %v", a.head, err)
						return
					}
					res := heard(t, in, a.method)
					most := lingerTime + rstDelay
					if a.awaited && !draining {
						most += s.api.config.BodyTimeout
					} else if took := time.Since(began); took > 0 {
						t.Errorf("%.200s: answered after %s", a.head, took)
					}
					if res.StatusCode < 400 || !res.Close {
						t.Errorf("%.200s: %d, closing: %t", a.head, res.StatusCode, res.Close)
					}
					if _, err := in.ReadByte(); err != io.EOF {
						t.Errorf("%.200s: %v", a.head, err)
					}
					if took := time.Since(began); took > most {
						t.Errorf("%.200s: held for %s", a.head, took)
					}
				})
			}
			all.Wait()
			if early < 1000 || !draining && awaited != 5 {
				t.Errorf("%d early, %d awaited", early, awaited)
			}
		})
	}
}

// What net/http refuses by itself it would wait for just as long.
func TestWhatTheServerRefusesByItselfHoldsNoConnection(t *testing.T) {
	inFakeTime(t, func(t *testing.T, s *service, p *pipes) {
		for _, announced := range []string{"Content-Length: 100\r\n", "Transfer-Encoding: chunked\r\n", "Content-Length: 1000000\r\n"} {
			conn, in := p.dial()
			began := time.Now()
			if _, err := io.WriteString(conn, "POST /v1/orders HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer dev-app\r\nExpect: 200-maybe\r\n"+announced+"\r\n"); err != nil {
				t.Fatal(err)
			}
			if res := heard(t, in, "POST"); res.StatusCode != 417 || !res.Close {
				t.Errorf("%d %v", res.StatusCode, res.Header)
			}
			if _, err := in.ReadByte(); err != io.EOF {
				t.Error(err)
			}
			if took := time.Since(began); took > s.server.ReadTimeout {
				t.Errorf("held for %s", took)
			}
		}
	})
}

// A byte now and then doesn't prolong it.
func TestATrickleDoesNotHoldARefusedConnection(t *testing.T) {
	inFakeTime(t, func(t *testing.T, s *service, p *pipes) {
		conn, in := p.dial()
		began := time.Now()
		if _, err := io.WriteString(conn, "POST /nope HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer dev-app\r\nContent-Length: 100000\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if res := heard(t, in, "POST"); res.StatusCode != 404 {
			t.Error(res.StatusCode)
		}
		for sent := 0; ; sent++ {
			if _, err := conn.Write([]byte{'x'}); err != nil {
				if took := time.Since(began); took > lingerTime+rstDelay || sent < 90 {
					t.Errorf("closed after %s and %d bytes", took, sent)
				}
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// Three such connections made an ending process miss its time.
func TestAShutdownDoesNotWaitForBodiesThatNeverCome(t *testing.T) {
	inFakeTime(t, func(t *testing.T, s *service, p *pipes) {
		open := 0
		for _, a := range announcements() {
			if a.awaited {
				continue
			}
			conn, in := p.dial()
			if _, err := io.WriteString(conn, a.head); err != nil {
				t.Fatal(err)
			}
			heard(t, in, a.method)
			open++
		}
		s.api.Drain()
		limit, cancel := context.WithTimeout(t.Context(), lingerTime+2*rstDelay)
		defer cancel()
		if err := s.server.Shutdown(limit); err != nil || open < 1000 {
			t.Errorf("%d open: %v", open, err)
		}
	})
}

// Nor for clients that ask on and on, and receive nothing.
func TestAClientThatReceivesNothingHoldsNoConnectionAndNoShutdown(t *testing.T) {
	for _, ask := range []string{
		"GET /openapi.yaml HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer dev-app\r\n\r\n",
		"HEAD /nope HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer dev-app\r\n\r\n",
		"POST /nope HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer dev-app\r\nContent-Length: 100\r\n\r\n",
		post(len(body())) + body(),
	} {
		inFakeTime(t, func(t *testing.T, s *service, p *pipes) {
			const many = 10
			var asking sync.WaitGroup
			for range many {
				conn, _ := p.dial() // it takes no byte that isn't read
				began := time.Now()
				asking.Go(func() {
					for {
						if _, err := io.WriteString(conn, ask); err != nil {
							break
						}
					}
					if took := time.Since(began); took > sendTime+lingerTime {
						t.Errorf("held for %s", took)
					}
				})
			}
			synctest.Wait()
			s.api.Drain()
			limit, cancel := context.WithTimeout(t.Context(), sendTime+lingerTime)
			defer cancel()
			if err := s.server.Shutdown(limit); err != nil {
				t.Error(err)
			}
			asking.Wait()
		})
	}
}

// The ops listener is told to end within a second.
func TestTheOpsListenerIsNotHeldByBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		ops := NewOps(OpsConfig{Gatherer: prometheus.NewRegistry(), Ready: func(context.Context) []string { return nil }})
		server := NewServer(ops, slog.New(slog.DiscardHandler))
		served := make(chan error)
		go func() { served <- server.Serve(p) }()
		for _, path := range []string{"/healthz", "/readyz", "/metrics", "/nope"} {
			for _, method := range []string{"GET", "POST", "BREW"} {
				for _, announced := range []string{"Content-Length: 100", "Content-Length: 100000", "Transfer-Encoding: chunked"} {
					conn, in := p.dial()
					head := method + " " + path + " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer dev-app\r\n" + announced + "\r\n\r\n"
					if _, err := io.WriteString(conn, head); err != nil {
						t.Fatal(err)
					}
					if res := heard(t, in, method); res.StatusCode != 400 || !res.Close {
						t.Errorf("%q: %d, closing: %t", head, res.StatusCode, res.Close)
					}
				}
			}
		}
		limit, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := server.Shutdown(limit); err != nil {
			t.Error(err)
		}
		<-served
	})
}

// The deadline of a body is not that of what comes later on its connection.
func TestAKeptConnectionInheritsNoDeadline(t *testing.T) {
	inFakeTime(t, func(t *testing.T, s *service, p *pipes) {
		conn, in := p.dial()
		say := func(text string) *http.Response {
			t.Helper()
			if _, err := io.WriteString(conn, text); err != nil {
				t.Fatal(err)
			}
			return heard(t, in, text[:strings.IndexByte(text, ' ')])
		}
		good, bad := body(), body("amount", "0")
		chunked := "POST /v1/orders HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer dev-app\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" +
			fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(good), good)
		for i, step := range []struct {
			text   string
			status int
		}{
			{post(len(good)) + good, 201},
			{post(len(good)) + good, 200},
			{post(len(bad)) + bad, 400},
			{"GET /v1/users/1/orders HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer dev-app\r\n\r\n", 200},
			{"POST /nope HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer dev-app\r\n\r\n", 404},
			{"POST /nope HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer dev-app\r\nContent-Length: 0\r\n\r\n", 404},
			{chunked, 200},
			{"GET /nope HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer dev-app\r\n\r\n", 404},
			{post(len(good), "Expect: 100-continue\r\n") + good, 200},
			{post(len(good)) + good, 200},
		} {
			if res := say(step.text); res.StatusCode != step.status || res.Close {
				t.Fatalf("step %d: %d, closing: %t", i, res.StatusCode, res.Close)
			}
			time.Sleep(30 * time.Second) // longer than any time for a body, shorter than idleness may last
		}
		// Nor is it that of the call.
		s.orders.block, s.orders.began = make(chan struct{}), make(chan struct{}, 1)
		go func() {
			<-s.orders.began
			time.Sleep(9 * time.Second)
			close(s.orders.block)
		}()
		if res := say(post(len(good)) + good); res.StatusCode != 200 || res.Close {
			t.Errorf("%d, closing: %t", res.StatusCode, res.Close)
		}
	})
}

// Every answer comes within ten seconds: of a call whose body came slowly, too.
func TestTheTimeOfTheBodyIsPartOfTheTimeOfTheCall(t *testing.T) {
	inFakeTime(t, func(t *testing.T, s *service, p *pipes) {
		s.orders.block, s.orders.began = make(chan struct{}), make(chan struct{}, 1)
		conn, in := p.dial()
		start := time.Now()
		write := func(text string) {
			if _, err := io.WriteString(conn, text); err != nil {
				t.Error(err)
			}
		}
		go func() {
			write(post(len(body())))
			time.Sleep(2900 * time.Millisecond)
			write(body())
		}()
		if res := heard(t, in, "POST"); res.StatusCode != 504 {
			t.Errorf("answered %d", res.StatusCode)
		}
		if took := time.Since(start); len(s.orders.began) != 1 || took > 10*time.Second {
			t.Errorf("after %s; %d calls began", took, len(s.orders.began))
		}
	})
}

// Many clients send all that they have before they read. They never saw why their body
// wasn't taken: the connection was closed while they were sending.
func TestWhoSendsABodyThatIsTooLargeBeforeReadingSeesTheAnswer(t *testing.T) {
	const size = 20 << 20
	chunk := []byte(strings.Repeat("x", 1<<20))
	for _, tc := range []struct {
		name, head string
		status     int
		code       string
	}{
		{"too large", post(size), 413, "body_too_large"},
		{"a path that there isn't", "POST /nope HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer dev-app\r\nContent-Length: 20971520\r\n\r\n", 404, "not_found"},
		{"another type", "POST /v1/orders HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer dev-app\r\nContent-Type: text/csv\r\nContent-Length: 20971520\r\n\r\n", 415, "unsupported_media_type"},
		{"too large, in chunks", "POST /v1/orders HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer dev-app\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n", 413, "body_too_large"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := start(t)
			s.api.lingerTime = time.Minute // the machine may be busy
			conn, in := s.raw()
			write := func(b []byte) {
				t.Helper()
				if _, err := conn.Write(b); err != nil {
					t.Fatal(err)
				}
			}
			inChunks := strings.Contains(tc.head, "chunked")
			write([]byte(tc.head))
			for range size / len(chunk) {
				if inChunks {
					write(fmt.Appendf(nil, "%x\r\n%s\r\n", len(chunk), chunk))
				} else {
					write(chunk)
				}
			}
			if inChunks {
				write([]byte("0\r\n\r\n"))
			}
			if got := s.hear(in, "POST").is(tc.status, tc.code); got.header.Get("Connection") != "close" {
				t.Errorf("%v", got.header)
			}
			if _, err := in.ReadByte(); err != io.EOF {
				t.Error(err)
			}
		})
	}
}

// But nobody makes us take any amount.
func TestTheRestOfARefusedBodyIsNotTakenWithoutEnd(t *testing.T) {
	chunk := []byte(strings.Repeat("x", 1<<20))
	chunked := fmt.Appendf(nil, "%x\r\n%s\r\n", len(chunk), chunk)
	for _, tc := range []struct {
		name, head string
		piece      []byte
		most       int // bytes that are taken, without those that wait in the sockets
	}{
		{"announced", post(lingerMax + 1), chunk, 0},
		{"in chunks", "POST /nope HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer dev-app\r\nTransfer-Encoding: chunked\r\n\r\n", chunked, lingerMax + 256<<10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const sockets = 16 << 20
			s := start(t)
			s.api.lingerTime = time.Minute
			conn, _ := s.raw()
			if _, err := io.WriteString(conn, tc.head); err != nil {
				t.Fatal(err)
			}
			for sent := 0; ; sent += len(tc.piece) {
				if _, err := conn.Write(tc.piece); err != nil {
					if errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("it holds the connection after %d bytes", sent)
					}
					return
				}
				if sent > tc.most+sockets {
					t.Fatalf("%d bytes were taken", sent)
				}
			}
		})
	}
}

// The same as in fake time, over sockets.
func TestConnectionsWithBodiesThatNeverComeAreClosedAndShutDown(t *testing.T) {
	s := start(t)
	s.api.lingerTime = 50 * time.Millisecond
	var all []*bufio.Reader
	for range 50 {
		for _, head := range []string{
			"POST /nope HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer dev-app\r\nContent-Length: 100\r\n\r\n",
			"POST /v1/orders HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer dev-app\r\nContent-Length: 100\r\n\r\n",
			"GET /v1/users/1/orders HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer dev-app\r\nTransfer-Encoding: chunked\r\n\r\n",
			post(100000),
		} {
			conn, in := s.raw()
			if got := s.say(conn, in, "POST", head); got.status < 400 {
				t.Errorf("%d", got.status)
			}
			all = append(all, in)
		}
	}
	s.api.Drain()
	limit, cancel := context.WithTimeout(t.Context(), eventually.Patience)
	defer cancel()
	if err := s.server.Shutdown(limit); err != nil {
		t.Error(err)
	}
	for _, in := range all {
		if _, err := in.ReadByte(); err != io.EOF {
			t.Error(err)
		}
	}
}
