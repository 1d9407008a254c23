// Package boottest runs a program's run function in a test, and waits for what it
// logs.
package boottest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/octopay/octopay/auth"
	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/shardmap"
)

// A Running is a program that a test has started.
type Running struct {
	log   *logbook
	stop  context.CancelFunc
	ended chan error
}

// Start runs a program until the test ends.
func Start(t testing.TB, run func(ctx context.Context, args, environ []string, stderr io.Writer) error, environ []string) *Running {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r := &Running{log: &logbook{lines: make(chan map[string]any, 1000)}, stop: stop, ended: make(chan error, 1)}
	go func() {
		r.ended <- run(ctx, nil, environ, r.log)
		close(r.ended)
	}()
	t.Cleanup(func() { _ = r.Stop() })
	return r
}

// Stop ends the program and returns what it returned.
func (r *Running) Stop() error {
	r.stop()
	return <-r.ended
}

// Log returns what it has logged.
func (r *Running) Log() string { return r.log.String() }

// Await returns the next line that it logs with this msg.
func (r *Running) Await(t testing.TB, msg string) map[string]any {
	t.Helper()
	limit := time.After(eventually.Patience)
	for {
		select {
		case m := <-r.log.lines:
			if m["msg"] == msg {
				return m
			}
		case err := <-r.ended:
			t.Fatalf("it ended with %v before it said %q:\n%s", err, msg, r.log)
		case <-limit:
			t.Fatalf("no line %q in\n%s", msg, r.log)
		}
	}
}

// Listening returns the base URL of the next listener that it logs.
func (r *Running) Listening(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("http://%s", r.Await(t, "listening")["addr"])
}

// Ready waits until the program whose ops port is at base says that it is ready.
func Ready(t testing.TB, base string) {
	t.Helper()
	eventually.Nil(t, "it is ready", func() error {
		if status, body := Get(t, base+"/readyz"); status != http.StatusOK {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
}

// Environ returns settings that lead a program to a stack under a map.
func Environ(t testing.TB, s *localstack.Stack, m *shardmap.Map) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "map.yaml")
	if err := os.WriteFile(path, m.Text(), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{
		"OCTOPAY_MAP_FILE=" + path, "OCTOPAY_DB_USER=" + s.User, "OCTOPAY_DB_PASSWORD=" + s.Password,
		"OCTOPAY_NATS_URL=" + s.NATSURL, "OCTOPAY_OPS_ADDR=127.0.0.1:0",
	}
}

// Key makes a key of an app that may refund, and returns it.
func Key(t testing.TB, stack *localstack.Stack) string {
	t.Helper()
	c := cluster.Open(stack.Map, cluster.Config{User: stack.User, Password: stack.Password})
	made, err := auth.NewStore(c.Meta(), nil).Create(t.Context(), auth.Spec{Role: auth.App, Refunds: true}, "test")
	if err = errors.Join(err, c.Close()); err != nil {
		t.Fatal(err)
	}
	return made.Text
}

// Get returns the status and the body of what is at target; key, if there is one, is
// that of the API.
func Get(t testing.TB, target string, key ...string) (int, string) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: eventually.Patience}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range key {
		req.Header.Set("Authorization", "Bearer "+k)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// A logbook keeps a log and passes its lines on.
type logbook struct {
	mu    sync.Mutex
	text  bytes.Buffer
	lines chan map[string]any
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	for _, line := range bytes.Split(bytes.TrimSpace(p), []byte("\n")) {
		var m map[string]any
		if json.Unmarshal(line, &m) == nil {
			select {
			case l.lines <- m:
			default: // nobody waits for so many
			}
		}
	}
	return len(p), nil
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
