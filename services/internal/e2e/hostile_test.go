package e2e_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
)

// An attack is what a client does on one connection to harm the service, and how it is
// answered.
type attack struct {
	name string
	want string // the status in the answer; "" for an answer or none
	do   func(ctx context.Context, conn net.Conn) error
}

// attacks are by clients that have a key; without one they are refused before.
func attacks(t *testing.T, key string) []attack {
	t.Helper()
	head := "POST /v1/orders HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nAuthorization: Bearer " + key + "\r\n"
	say := func(text string) func(context.Context, net.Conn) error {
		return func(_ context.Context, c net.Conn) error {
			_, err := io.WriteString(c, text)
			return err
		}
	}
	post := func(body string, headers ...string) func(context.Context, net.Conn) error {
		return say(head + strings.Join(headers, "") + "Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
	}
	// drip sends a beginning, and then a byte now and then.
	drip := func(begin string) func(context.Context, net.Conn) error {
		return func(ctx context.Context, c net.Conn) error {
			if _, err := io.WriteString(c, begin); err != nil {
				return err
			}
			tick := time.NewTicker(200 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
				case <-ctx.Done():
					return nil
				}
				if _, err := io.WriteString(c, "x"); err != nil {
					return err
				}
			}
		}
	}
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	if _, err := z.Write(bytes.Repeat([]byte("["), 30<<20)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return []attack{
		{"five million brackets", "413", post(strings.Repeat("[", 5_000_000))},
		{"as many brackets as a body may have", "400", post(strings.Repeat("[", 64<<10))},
		{"as many names as a body may have", "400", post(strings.Repeat(`{"a":`, 13_000))},
		{"a gzip bomb", "415", post(bomb.String(), "Content-Encoding: gzip\r\n")},
		{"headers of 2 MiB", "431", say("GET /v1/orders HTTP/1.1\r\nHost: localhost\r\nX-A: " + strings.Repeat("a", 2<<20) + "\r\n\r\n")},
		{"a body that is sent slowly", "408", drip(head + "Content-Length: 60000\r\n\r\n{")},
		{"headers that are sent slowly", "", drip("GET /v1/orders HTTP/1.1\r\nHost: localhost\r\nX-A: ")},
		{"questions whose answers nobody reads", "200", func(ctx context.Context, c net.Conn) error {
			for ctx.Err() == nil {
				if _, err := io.WriteString(c, "GET /openapi.yaml HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
					return err
				}
			}
			return nil
		}},
	}
}

// run attacks until ctx ends, and counts how often it came to its end: its answer, or the
// connection closed by the service.
func (a attack) run(ctx context.Context, t *testing.T, address string, count *atomic.Int64) {
	pause := time.NewTicker(50 * time.Millisecond) // it is not meant to take the processor
	defer pause.Stop()
	for ; ; count.Add(1) {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Errorf("%s: %v", a.name, err)
			return
		}
		over := context.AfterFunc(ctx, func() { _ = conn.Close() })
		// The answer may come, and the service hang up, while it is sending.
		_ = a.do(ctx, conn)
		answer, _ := io.ReadAll(io.LimitReader(conn, 1<<10))
		stopped := !over()
		_ = conn.Close()
		if stopped {
			return
		}
		// A reset may take the answer with it.
		if len(answer) > 0 && a.want != "" && !bytes.HasPrefix(answer, []byte("HTTP/1.1 "+a.want)) {
			t.Errorf("%s was answered: %s", a.name, answer)
			return
		}
	}
}

// Fault 32: deep nesting, gzip bombs, slow senders took the process. Here they come by
// fifty connections while orders are made: none of those fails or is refused, and
// memory stays small.
func TestFault32HostileClientsHarmNobody(t *testing.T) {
	const connections = 6 // of each attack
	api := start(t, "orderd", environment(t, localstack.Test(t, localstack.UID, localstack.BID, localstack.Meta))).ready(t)
	address := strings.TrimPrefix(api.api, "http://")
	ctx, stop := context.WithCancel(t.Context())
	kinds := attacks(t, keyOf(t, address))
	counts := make([]atomic.Int64, len(kinds))
	var hostile sync.WaitGroup
	for i, a := range kinds {
		for range connections {
			hostile.Go(func() { a.run(ctx, t, address, &counts[i]) })
		}
	}
	// Who never reads is let go by the time for sending.
	ended := func() bool {
		for i, a := range kinds {
			if counts[i].Load() == 0 && a.want != "200" {
				return false
			}
		}
		return true
	}
	began := time.Now()
	for n := 0; n < 100 || !ended() && time.Since(began) < eventually.Patience; n++ {
		a, err := call(t, t.Context(), http.MethodPost, api.api+"/v1/orders", request{
			UID: fmt.Sprint(1 + n), BID: "1001", OutTradeNo: fmt.Sprint("N-", n), Amount: 1, Currency: "CNY", Subject: "x"})
		if err != nil || a.status != http.StatusCreated {
			t.Fatalf("order %d: %s, %v", n, a, err)
		}
		if a, err = call(t, t.Context(), http.MethodGet, api.api+a.header.Get("Location"), nil); err != nil || a.status != http.StatusOK {
			t.Fatalf("order %d can't be read: %s, %v", n, a, err)
		}
	}
	stop()
	hostile.Wait()
	for i, a := range kinds {
		t.Logf("%s: %d times", a.name, counts[i].Load())
		if counts[i].Load() == 0 && a.want != "200" {
			t.Errorf("%s: it never came to its end", a.name)
		}
	}
	if peak := peakMemory(t, api.cmd.Process.Pid); peak > 256<<20 {
		t.Errorf("orderd took %d MiB", peak>>20)
	} else {
		t.Logf("orderd took %d MiB at most", peak>>20)
	}
}

// peakMemory returns the most memory that a process had, in bytes.
func peakMemory(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var kib int
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
