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
	api := start(t, "orderd", collecting(environment(t, localstack.Test(t, localstack.UID, localstack.BID, localstack.Meta)))).ready(t)
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
	goal := 0.0
	for n := 0; n < 100 || !ended() && time.Since(began) < eventually.Patience; n++ {
		made, err := settle(t, func() string { return api.api }, request{
			UID: fmt.Sprint(1 + n), BID: "1001", OutTradeNo: fmt.Sprint("N-", n), Amount: 1, Currency: "CNY", Subject: "x"})
		if err != nil || made.status != http.StatusCreated {
			t.Fatalf("order %d: %s, %v", n, made, err)
		}
		if a, err := read(t, api.api+made.header.Get("Location")); err != nil || a.status != http.StatusOK {
			t.Fatalf("order %d can't be read: %s, %v", n, a, err)
		}
		goal = max(goal, metric(t, api, heapGoal))
	}
	stop()
	hostile.Wait()
	for i, a := range kinds {
		t.Logf("%s: %d times", a.name, counts[i].Load())
		if counts[i].Load() == 0 && a.want != "200" {
			t.Errorf("%s: it never came to its end", a.name)
		}
	}
	// Twelve of the attacks are batches, of 4 MiB each, and some 6 of what is made of them.
	t.Logf("the heap's goal was %d MiB at most, and orderd took %d", int(goal)>>20, peakMemory(t, api.cmd.Process.Pid)>>20)
	if most := 2 * (12*(4+6) + restMax); goal > float64(most<<20) {
		t.Errorf("the heap's goal was %d MiB, more than %d", int(goal)>>20, most)
	}
}

// heapGoal is up to what size the garbage collector lets the heap grow, in bytes: twice
// what lived when it last came to its end. So it tells what lived, which has a bound, and
// not when the collector ran, as what the process took does.
const heapGoal = "go_memstats_next_gc_bytes"

// collecting returns env with the collector as heapGoal says, whatever this process has.
func collecting(env []string) []string { return append(env, "GOGC=100", "GOMEMLIMIT=off") }

// restMax is what lives beside batches, in MiB: the program at rest, some KiB of each
// connection, and what is allocated while the collector runs, which counts as living.
const restMax = 40

// batchMemoryMax bounds the heap's goal under batches, in MiB. Bodies of batches are read
// and decoded within 64 MiB (httpapi's batchBytes): sixteen of 4 MiB at once, each in one
// buffer of its size. What is made of a batch of 500 faulty orders, and its answer, are
// some 6 MiB. Without that bound the bodies alone would be 800.
const batchMemoryMax = 2 * (64 + 16*6 + restMax)

// Two hundred connections send batches of 4 MiB at once, while orders are made and read. The
// process refuses what it has no room for, and its memory is bounded. None of the orders
// fails: a refusal for want of room is repeated, and ends well.
func TestTwoHundredBatchesAtOnceAreBounded(t *testing.T) {
	const connections, rounds = 200, 2
	orderd := start(t, "orderd", collecting(environment(t, localstack.Test(t, localstack.UID, localstack.BID, localstack.Meta)))).ready(t)
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
	goal, n, again := 0.0, 0, 0
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
		goal = max(goal, metric(t, orderd, heapGoal))
		select {
		case <-over:
			under = false
		default:
		}
	}
	// A reset may take every refusal's answer with it, so orderd says whether there were any.
	shed := metric(t, orderd, `octopay_http_requests_total{code="overloaded",method="POST",route="/v1/orders/batch",status="503"}`)
	t.Logf("%d batches were taken, %.0f shed; of those not taken %d were answered, %d cut off; %d orders made and read meanwhile, the slowest in %s, %d outcomes settled by repeating; the heap's goal was %d MiB at most, and orderd took %d",
		taken.Load(), shed, refused.Load(), cut.Load(), n, slowest.Round(time.Millisecond), again, int(goal)>>20, peakMemory(t, orderd.cmd.Process.Pid)>>20)
	if taken.Load() == 0 || shed == 0 {
		t.Error("no batch was taken, or none was too much")
	}
	if goal == 0 || goal > batchMemoryMax<<20 {
		t.Errorf("the heap's goal was %d MiB, want at most %d", int(goal)>>20, batchMemoryMax)
	}
}

// metric returns the value of a metric: its name, and its labels as they are written.
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
