package e2e_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"compress/zlib"
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
	drip := func(begin string, every time.Duration) func(context.Context, net.Conn) error {
		return func(ctx context.Context, c net.Conn) error {
			if _, err := io.WriteString(c, begin); err != nil {
				return err
			}
			tick := time.NewTicker(every)
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
	var deflated bytes.Buffer
	d := zlib.NewWriter(&deflated)
	if _, err := d.Write(bytes.Repeat([]byte("["), 30<<20)); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	batch := strings.Replace(head, "/v1/orders", "/v1/orders/batch", 1)
	return []attack{
		{"five million brackets", "413", post(strings.Repeat("[", 5_000_000))},
		{"as many brackets as a body may have", "400", post(strings.Repeat("[", 64<<10))},
		{"as many names as a body may have", "400", post(strings.Repeat(`{"a":`, 13_000))},
		{"a gzip bomb", "415", post(bomb.String(), "Content-Encoding: gzip\r\n")},
		{"a deflate bomb", "415", post(deflated.String(), "Content-Encoding: deflate\r\n")},
		{"compression named twice", "415", post(bomb.String(), "Content-Encoding: identity\r\n", "Content-Encoding: gzip\r\n")},
		{"as many brackets as a batch may have", "", say(batch + "Content-Length: " + strconv.Itoa(4<<20) + "\r\n\r\n" + strings.Repeat("[", 4<<20))},
		{"as many orders as a batch may hold bytes of", "", say(batch + "Content-Length: 4194000\r\n\r\n{\"orders\":[" + strings.Repeat("{},", 1397995) + "{}]}")},
		{"a body whose length is a lie", "", say(head + "Content-Length: 60000\r\n\r\n{}")},
		{"a body in chunks of a byte", "", say(head + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1\r\n[\r\n", 70_000))},
		{"headers of 2 MiB", "431", say("GET /v1/orders HTTP/1.1\r\nHost: localhost\r\nX-A: " + strings.Repeat("a", 2<<20) + "\r\n\r\n")},
		{"a body that is sent slowly", "408", drip(head+"Content-Length: 60000\r\n\r\n{", 200*time.Millisecond)},
		{"a body of a byte a second", "408", drip(head+"Content-Length: 60000\r\n\r\n{", time.Second)},
		{"headers that are sent slowly", "", drip("GET /v1/orders HTTP/1.1\r\nHost: localhost\r\nX-A: ", 200*time.Millisecond)},
		{"headers of a byte a second", "", drip("GET /v1/orders HTTP/1.1\r\nHost: localhost\r\nX-A: ", time.Second)},
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
// ninety connections while orders are made: none of those fails, a refusal for want of room
// is repeated as the contract says, and memory stays small.
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
		made, err := settle(t, func() string { return api.api }, request{
			UID: fmt.Sprint(1 + n), BID: "1001", OutTradeNo: fmt.Sprint("N-", n), Amount: 1, Currency: "CNY", Subject: "x"})
		if err != nil || made.status != http.StatusCreated {
			t.Fatalf("order %d: %s, %v", n, made, err)
		}
		if a, err := read(t, api.api+made.header.Get("Location")); err != nil || a.status != http.StatusOK {
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

// How much memory batches may take, in bytes of the process. Bodies of batches are read and
// decoded within 64 MiB (httpapi's batchBytes): sixteen of 4 MiB at once, each in one buffer
// of its size. What is made of a batch of 500 faulty orders, and its answer, are some 6 MiB.
// The garbage collector lets the heap grow to twice what lives: 2 * (64 + 16 * 6) = 320 MiB.
// 200 connections have a few KiB each, and the program at rest some 40 MiB.
const batchMemoryMax = 400 << 20

// Two hundred connections send batches of 4 MiB at once, while orders are made and read. The
// process refuses what it has no room for, and its memory is bounded. None of the orders
// fails: a refusal for want of room is repeated, and ends well.
func TestTwoHundredBatchesAtOnceAreBounded(t *testing.T) {
	const connections, rounds = 200, 2
	orderd := start(t, "orderd", environment(t, localstack.Test(t, localstack.UID, localstack.BID, localstack.Meta))).ready(t)
	address := strings.TrimPrefix(orderd.api, "http://")
	// Faulty in every field that an answer can list, and so long that 500 are 4 MiB.
	item := `{"uid":0,"subject":"` + strings.Repeat("x", 7600) + `"`
	for n := range 40 {
		item += fmt.Sprintf(`,"unknown_name_%d":1`, n)
	}
	body := `{"orders":[` + strings.TrimSuffix(strings.Repeat(item+"},", (4<<20-100)/(len(item)+2)), ",") + `]}`
	if len(body) > 4<<20 || len(body) < 4<<20-20_000 {
		t.Fatalf("a batch of %d bytes", len(body))
	}
	text := "POST /v1/orders/batch HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nAuthorization: Bearer " +
		keyOf(t, address) + "\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body

	var taken, refused, cut atomic.Int64
	begin := make(chan struct{})
	var hostile sync.WaitGroup
	for range connections {
		hostile.Go(func() {
			<-begin
			for range rounds {
				conn, err := net.Dial("tcp", address)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.WriteString(conn, text) // it may hang up meanwhile
				answer, _ := io.ReadAll(conn)
				_ = conn.Close()
				switch {
				case bytes.HasPrefix(answer, []byte("HTTP/1.1 200")):
					taken.Add(1)
				case bytes.HasPrefix(answer, []byte("HTTP/1.1 503")), bytes.HasPrefix(answer, []byte("HTTP/1.1 408")):
					refused.Add(1)
				case len(answer) == 0: // a reset took it
					cut.Add(1)
				default:
					t.Errorf("a batch was answered %.200s", answer)
				}
			}
		})
	}
	over := make(chan struct{})
	go func() {
		hostile.Wait()
		close(over)
	}()
	close(begin)
	var slowest time.Duration
	heap, n, again := 0.0, 0, 0
	for under := true; under || n < 20; n++ {
		began := time.Now()
		made, err := settle(t, func() string { return orderd.api }, request{
			UID: fmt.Sprint(1 + n), BID: "1001", OutTradeNo: fmt.Sprint("N-", n), Amount: 1, Currency: "CNY", Subject: "x"})
		if err != nil || made.status != http.StatusCreated && made.unknown == 0 {
			t.Fatalf("order %d: %s, %v", n, made, err)
		}
		again += made.unknown
		if a, err := read(t, orderd.api+"/v1/orders/"+made.order(t).OrderID); err != nil || a.status != http.StatusOK {
			t.Fatalf("order %d can't be read: %s, %v", n, a, err)
		}
		slowest = max(slowest, time.Since(began))
		heap = max(heap, metric(t, orderd, "go_memstats_heap_inuse_bytes"))
		select {
		case <-over:
			under = false
		default:
		}
	}
	peak := peakMemory(t, orderd.cmd.Process.Pid)
	t.Logf("%d batches were taken, %d refused, %d cut off; %d orders made and read meanwhile, the slowest in %s, %d outcomes settled by repeating; %d MiB of heap seen, %d MiB at most",
		taken.Load(), refused.Load(), cut.Load(), n, slowest.Round(time.Millisecond), again, int(heap)>>20, peak>>20)
	if taken.Load() == 0 || refused.Load() == 0 {
		t.Error("no batch was taken, or none was too much")
	}
	if peak > batchMemoryMax {
		t.Errorf("orderd took %d MiB, more than %d", peak>>20, batchMemoryMax>>20)
	}
	if heap == 0 {
		t.Error("the heap was not seen")
	}
}

// metric returns the value of a metric without labels.
func metric(t *testing.T, p *program, name string) float64 {
	t.Helper()
	resp, err := http.Get(p.ops + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
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
