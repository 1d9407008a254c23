package boot_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/services/internal/boot"
	"go.uber.org/goleak"
)

// The NATS server that some tests have inside leaves these two running.
func TestMain(m *testing.M) {
	eventually.Main(m,
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"))
}

func TestPartsStopInReverseOrder(t *testing.T) {
	var mu sync.Mutex
	var stopped []string
	part := func(name string) boot.Part {
		return boot.Part{Name: name, Run: func(ctx context.Context) error {
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			stopped = append(stopped, name)
			return ctx.Err()
		}}
	}
	ctx, stop := context.WithCancel(t.Context())
	time.AfterFunc(time.Millisecond, stop)
	if err := boot.Run(ctx, part("pools"), part("lanes"), part("http")); err != nil {
		t.Fatal(err)
	}
	if want := []string{"http", "lanes", "pools"}; !slices.Equal(stopped, want) {
		t.Errorf("stopped %v, want %v", stopped, want)
	}
}

func TestTheFirstToReturnEndsAll(t *testing.T) {
	broken := errors.New("broken")
	closed := false
	err := boot.Run(t.Context(),
		boot.Part{Name: "pools", Run: func(ctx context.Context) error {
			<-ctx.Done()
			closed = true
			return errors.New("close fails too")
		}},
		boot.Part{Name: "loop", Run: func(context.Context) error { return broken }},
		boot.Part{Name: "http", Run: func(ctx context.Context) error { <-ctx.Done(); return nil }})
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "loop: broken") || !strings.Contains(err.Error(), "close fails too") {
		t.Errorf("error %v", err)
	}
	if !closed {
		t.Error("the pools are open")
	}
	if err := boot.Run(t.Context(), boot.Part{Name: "loop", Run: func(context.Context) error { return nil }}); err == nil {
		t.Error("a part that ends by itself is no error")
	}
}

func TestAStoppedServerFinishesTheRequestUnderWay(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	entered, drained := make(chan struct{}), make(chan struct{})
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-drained
		_, _ = io.WriteString(w, "answered")
	})}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- boot.Run(ctx, boot.HTTP("http", l, srv, eventually.Patience, func() { close(drained) }))
	}()
	got := make(chan string, 1)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	go func() {
		resp, err := client.Get("http://" + l.Addr().String())
		if err != nil {
			got <- err.Error()
			return
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		got <- string(b)
	}()
	<-entered
	stop()
	if s := <-got; s != "answered" {
		t.Errorf("the request under way got %q", s)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestUntilRepeatsWhatItWaitsForTwiceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		wait := func(reasons ...string) string {
			out.Reset()
			ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
			defer stop()
			tries := 0
			if err := boot.Until(ctx, log, "the meta database", func(context.Context) error {
				tries++
				return errors.New(reasons[tries%len(reasons)])
			}); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			return out.String()
		}
		for _, said := range []string{wait("refused"), wait("refused", "reset")} {
			if n := strings.Count(said, "\n"); n < 17 || n > 21 || !strings.Contains(said, "waited_ms=") {
				t.Errorf("%d lines in ten minutes:\n%s", n, said)
			}
		}
	})
}

func TestUntilSaysWhatItWaitsForOncePerReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		reasons := []string{"refused", "refused", "refused", "wrong epoch", "wrong epoch", ""}
		err := boot.Until(t.Context(), slog.New(slog.NewTextHandler(&out, nil)), "the meta database", func(context.Context) error {
			r := reasons[0]
			reasons = reasons[1:]
			if r == "" {
				return nil
			}
			return errors.New(r)
		})
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(out.String(), "\n"); n != 3 {
			t.Errorf("%d lines, want 2 reasons and the arrival:\n%s", n, out.String())
		}
		out.Reset()
		soon := 0
		if err := boot.Until(t.Context(), slog.New(slog.NewTextHandler(&out, nil)), "a moment", func(context.Context) error {
			if soon++; soon == 1 {
				return errors.New("not yet")
			}
			return nil
		}); err != nil || out.Len() > 0 {
			t.Errorf("of what was there in a moment it says %s (%v)", &out, err)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		err = boot.Until(ctx, slog.New(slog.DiscardHandler), "nothing", func(context.Context) error { return errors.New("never") })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v after the end of its context", err)
		}
	})
}

// A part can rely on those before it until it has returned.
func TestAPartOutlivesThoseThatRelyOnIt(t *testing.T) {
	lanes := make(chan context.Context, 1)
	ctx, stop := context.WithCancel(t.Context())
	err := boot.Run(ctx,
		boot.Part{Name: "lanes", Run: func(ctx context.Context) error {
			lanes <- ctx
			<-ctx.Done()
			return nil
		}},
		boot.Part{Name: "http", Run: func(ctx context.Context) error {
			below := <-lanes
			stop()
			<-ctx.Done()
			if below.Err() != nil {
				t.Error("the lanes were stopped while requests were under way")
			}
			return nil
		}})
	if err != nil {
		t.Error(err)
	}
}

// Whoever balances load has to learn from readiness, which drain ends, that no more
// requests should come, before they are refused.
func TestAProgramDrainsBeforeItsListenerCloses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	// It stops while a request is under way: then it serves for sure.
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stop() })}
	part := boot.HTTP("http", l, server, eventually.Patience, func() {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Errorf("while it drains nobody listens: %v", err)
			return
		}
		_ = conn.Close()
	})
	var asked sync.WaitGroup
	asked.Go(func() {
		r, err := http.Get("http://" + l.Addr().String())
		if err != nil {
			t.Errorf("the request under way got %v", err)
			stop()
			return
		}
		_ = r.Body.Close()
	})
	if err := part.Run(ctx); err != nil {
		t.Error(err)
	}
	asked.Wait()
	http.DefaultClient.CloseIdleConnections()
}
