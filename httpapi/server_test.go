package httpapi

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/octopay/octopay/internal/eventually"
)

func TestMain(m *testing.M) { eventually.Main(m) }

func TestAServerHasALimitForEverything(t *testing.T) {
	s := start(t).server
	if s.ReadHeaderTimeout <= 0 || s.WriteTimeout <= 10*time.Second || s.IdleTimeout <= 0 || s.MaxHeaderBytes <= uriMax || s.ReadTimeout <= 0 {
		t.Errorf("%+v", s)
	}
}

func TestHeadersThatAreTooLargeAreRefused(t *testing.T) {
	s := start(t)
	conn, in := s.raw()
	if got := s.say(conn, in, "GET", "GET /v1/users/1/orders HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer dev-app\r\nX-Padding: "+strings.Repeat("x", 64<<10)+"\r\n\r\n"); got.status != 431 {
		t.Errorf("headers of 64 KiB are answered %d", got.status)
	}
}

func TestOptionsOfTheWholeServerIsAPathThatThereIsNot(t *testing.T) {
	s := start(t)
	conn, in := s.raw()
	s.say(conn, in, "OPTIONS", "OPTIONS * HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer dev-app\r\n\r\n").is(404, "not_found")
}

func TestWhileDrainingNewRequestsAreRefusedAndThoseUnderWayFinish(t *testing.T) {
	s := start(t)
	s.orders.block, s.orders.began = make(chan struct{}), make(chan struct{}, 1)
	done := make(chan answer)
	go func() { done <- s.create(body()) }()
	<-s.orders.began

	s.api.Drain()
	got := s.create(body("out_trade_no", `"later"`)).is(503, "draining")
	if got.header.Get("Retry-After") == "" {
		t.Errorf("%v", got.header)
	}
	s.get("/v1/users/1/orders").is(503, "draining")
	s.get("/nowhere").is(404, "not_found") // that is so at every other process too

	close(s.orders.block)
	(<-done).is(201, "")
	if len(s.orders.orders) != 1 {
		t.Errorf("%d orders", len(s.orders.orders))
	}
}

func TestWhileDrainingEveryAnswerEndsItsConnection(t *testing.T) {
	s := start(t)
	conn, in := s.raw()
	if got := s.say(conn, in, "POST", post(len(body()))+body()).is(201, ""); got.header.Get("Connection") == "close" {
		t.Errorf("too early: %v", got.header)
	}
	s.api.Drain()
	if got := s.say(conn, in, "POST", post(len(body()))+body()).is(503, "draining"); got.header.Get("Connection") != "close" {
		t.Errorf("%v", got.header)
	}
	if _, err := in.ReadByte(); err != io.EOF {
		t.Errorf("the connection goes on: %v", err)
	}
}

func TestShutdownWaitsForWhatIsUnderWay(t *testing.T) {
	s := start(t)
	s.orders.block, s.orders.began = make(chan struct{}), make(chan struct{}, 1)
	conn, in := s.raw()
	if _, err := io.WriteString(conn, post(len(body()))+body()); err != nil {
		t.Fatal(err)
	}
	<-s.orders.began
	s.api.Drain()
	down := make(chan error, 1)
	go func() { down <- s.server.Shutdown(context.Background()) }()
	select {
	case err := <-down:
		t.Fatalf("it is down with a request under way: %v", err)
	default:
	}
	close(s.orders.block)
	if got := s.hear(in, "POST").is(201, ""); got.header.Get("Connection") != "close" {
		t.Errorf("%v", got.header)
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
}

// A client that hangs up while its call waits frees the call, and is nobody's failure.
func TestAClientThatLeavesEndsItsCall(t *testing.T) {
	for _, call := range []struct{ method, path, body string }{{"POST", "/v1/orders", body()}, {"GET", "/v1/users/1/orders", ""}} {
		t.Run(call.method, func(t *testing.T) {
			s := start(t)
			s.orders.block, s.orders.began = make(chan struct{}), make(chan struct{}, 1)
			ctx, leave := context.WithCancel(context.Background())
			left := make(chan error, 1)
			go func() {
				req, _ := http.NewRequestWithContext(ctx, call.method, s.url+call.path, strings.NewReader(call.body))
				if call.body != "" {
					req.Header.Set("Content-Type", "application/json")
				}
				res, err := s.client.Do(req)
				if err == nil {
					_ = res.Body.Close()
				}
				left <- err
			}()
			<-s.orders.began
			leave()
			if err := <-left; err == nil {
				t.Fatal("it was answered")
			}
			eventually.True(t, "it is logged", func() bool { return strings.Contains(s.log.String(), `"code":"client_gone"`) })
			if got := s.lines("refused"); len(got) > 0 {
				t.Errorf("it is said to be refused: %v", got)
			}
		})
	}
}

// Not because of a body that is left unread, and before the server is told to shut down.
func TestWhileDrainingAnAnswerToAGETEndsItsConnection(t *testing.T) {
	s := start(t)
	conn, in := s.raw()
	s.api.Drain()
	got := s.say(conn, in, "GET", "GET /v1/users/1/orders HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer dev-app\r\n\r\n").is(503, "draining")
	if got.header.Get("Connection") != "close" {
		t.Errorf("the answer to a GET keeps its connection: %v", got.header)
	}
}

// What a call waits for learns of its end by its context.
func TestACallEndsInItsTime(t *testing.T) {
	a := start(t, func(c *Config) { c.CallTimeout = 20 * time.Millisecond }).api
	r, _ := http.NewRequestWithContext(t.Context(), "GET", "/", nil)
	ctx, cancel := (&call{api: a, r: r, arrived: time.Now()}).context()
	defer cancel()
	if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > 20*time.Millisecond {
		t.Errorf("it ends at %v", deadline)
	}
}
