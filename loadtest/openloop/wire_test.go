package openloop

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/octopay/octopay/httpapi"
	"github.com/octopay/octopay/loadtest/report"
	"github.com/octopay/octopay/loadtest/traffic"
	"github.com/octopay/octopay/loadtest/traffic/traffictest"
)

// A connection that net/http made and didn't need is closed by the generator, and not by
// the server, which takes it for a request that doesn't come.
func TestASpareConnectionIsClosedByTheGenerator(t *testing.T) {
	t.Parallel()
	if limit := httpapi.NewServer(nil, slog.New(slog.DiscardHandler)).ReadHeaderTimeout; limit < 2*idleMax {
		t.Errorf("the service closes a new connection after %s, the generator an unused one after %s", limit, idleMax)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	accepted := make(chan net.Conn, 2)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- c
		}
	}()

	w := newWire(Config{Timeout: time.Minute, WorkersMax: 10}, traffictest.Plan(t, traffic.Config{}))
	defer w.base.CloseIdleConnections()
	first, dialing, dial := true, make(chan struct{}), make(chan struct{})
	w.base.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if !first { // net/http makes the second connection when the first is in use
			close(dialing)
			<-dial
		}
		first = false
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	send := func() <-chan error {
		answered := make(chan error, 1)
		go func() {
			r, err := http.NewRequest(http.MethodPost, "http://"+l.Addr().String()+"/#1", bytes.NewReader([]byte("{}")))
			if err == nil {
				var answer *http.Response
				if answer, err = w.RoundTrip(r); err == nil {
					err = answer.Body.Close()
				}
			}
			answered <- err
		}()
		return answered
	}
	// serve answers the next request of a connection.
	serve := func(c net.Conn) {
		t.Helper()
		if _, err := io.ReadAtLeast(c, make([]byte, 4096), 20); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}"); err != nil {
			t.Fatal(err)
		}
	}

	one := send()
	used := <-accepted
	defer func() { _ = used.Close() }()
	two := send()
	<-dialing
	serve(used) // and is free: the second request doesn't wait for the dialling
	if err := <-one; err != nil {
		t.Fatal(err)
	}
	serve(used)
	if err := <-two; err != nil {
		t.Fatal(err)
	}
	close(dial)
	spare := <-accepted
	defer func() { _ = spare.Close() }()
	_ = spare.SetReadDeadline(time.Now().Add(30 * time.Second))
	if n, err := spare.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		t.Errorf("of the connection that wasn't used there came %d bytes, then %v", n, err)
	}
}

// Why: a server closes a connection, and before the generator sees that it sends a create
// on it. net/http doesn't send a POST again, since the server may have had it; so that
// request has no answer, and that is said.
func TestACreateOnAConnectionThatIsBeingClosedHasNoAnswer(t *testing.T) {
	t.Parallel()
	url := listen(t, func(c net.Conn) {
		if _, err := io.ReadAtLeast(c, make([]byte, 4096), 20); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}")
		}
	})
	w := newWire(Config{Timeout: time.Minute, WorkersMax: 10}, traffictest.Plan(t, traffic.Config{}))
	defer w.base.CloseIdleConnections()
	w.base.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		return &unaware{Conn: c, wrote: make(chan struct{}, 10)}, err
	}
	send := func() error {
		r, err := http.NewRequest(http.MethodPost, url+"/#7", bytes.NewReader([]byte("{}")))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := w.RoundTrip(r)
		if err != nil {
			return err
		}
		return answer.Body.Close()
	}
	if err := send(); err != nil {
		t.Fatal(err)
	}
	if err := send(); err == nil {
		t.Fatal("it was answered")
	}
	if answer, kind, text := w.why("7"); answer != report.NoAnswer || kind == "" || text == "" {
		t.Errorf("%s, %s: %s", answer, kind, text)
	}
}

// An unaware connection sees nothing of what came before something was sent.
type unaware struct {
	net.Conn
	wrote chan struct{}
}

func (u *unaware) Read(p []byte) (int, error) {
	<-u.wrote
	return u.Conn.Read(p)
}

func (u *unaware) Write(p []byte) (int, error) {
	n, err := u.Conn.Write(p)
	u.wrote <- struct{}{}
	return n, err
}
