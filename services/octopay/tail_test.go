package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/services/internal/boottest"
	"github.com/octopay/octopay/syncer/source"
	"github.com/octopay/octopay/syncer/stream"
)

// A brook is a stream with a writer of server uid-a and an operator beside it.
type brook struct {
	st  *stream.Stream
	w   *stream.Writer
	js  jetstream.JetStream
	env []string
}

func newBrook(t *testing.T, s *localstack.Stack) *brook {
	t.Helper()
	nc, err := stream.Connect(s.NATSURL, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	b := &brook{env: boottest.Environ(t, s, s.Map)}
	if b.js, err = jetstream.New(nc, jetstream.WithDefaultTimeout(eventually.Patience)); err != nil {
		t.Fatal(err)
	}
	if b.st, err = stream.New(nc, s.Map.Prefix(), stream.Config{MaxBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	return b
}

// begin makes the stream.
func (b *brook) begin(t *testing.T) {
	t.Helper()
	info, err := b.st.Ensure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if b.w, err = b.st.Writer(t.Context(), "uid-a", info); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.w.Close)
}

func (b *brook) rows(t *testing.T, batch source.Batch) {
	t.Helper()
	p := stream.NewPacker("uid-a", stream.MessageBytes)
	if err := p.Add(batch); err != nil {
		t.Fatal(err)
	}
	b.publish(t, p.Take()...)
}

func (b *brook) publish(t *testing.T, messages ...stream.Packed) {
	t.Helper()
	for _, m := range messages { // one after the other, so that the sequences are known
		if left, err := b.w.Rows(t.Context(), []stream.Packed{m}); err != nil || len(left) > 0 {
			t.Fatal(left, err)
		}
	}
}

func (b *brook) tail(t *testing.T, args ...string) (code int, lines []string, stderr string) {
	t.Helper()
	code, stdout, stderr := octopay(t, b.env, append([]string{"tail"}, args...)...)
	if stdout != "" {
		lines = strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
	}
	return code, lines, stderr
}

func TestTail(t *testing.T) {
	b := newBrook(t, localstack.Test(t, localstack.NATS))
	if code, _, stderr := b.tail(t); code != 1 || !strings.Contains(stderr, "there is no stream") {
		t.Errorf("no stream: exit %d, %s", code, stderr)
	}
	b.begin(t)
	snowflake := idgen.FirstAt(idgen.Epoch.Add(time.Minute))
	mine, other := orderOf(9527, 1001, snowflake), orderOf(42, 77, snowflake+1)
	other.Subject = "\x1b[31m"
	entry := schema.Entry{OrderID: mine.ID, Seq: 2, UID: 9527, BID: 1001, Op: "pay:wechat:4200", Kind: schema.KindPaid, Amount: 19900, Currency: "CNY",
		From: schema.Created, To: schema.Paid, Actor: "channel", RequestID: "r", RecordedAt: mine.UpdatedAt}
	b.rows(t, source.Batch{Orders: []schema.Order{mine}, Entries: []schema.Entry{entry}}) // 1
	b.rows(t, source.Batch{Orders: []schema.Order{other}})                                // 2
	if err := b.w.Mark(t.Context(), source.Position{}.With(source.GTID{Domain: 1, Server: 1, Seq: 9}), mine.UpdatedAt); err != nil {
		t.Fatal(err)
	}
	b.publish(t, stream.Packed{Group: 4, Rows: 1, Data: []byte("\xff\xff")})                                                           // 4
	b.rows(t, source.Batch{Broken: []source.Broken{{Table: "x.order_1", BID: 1001, Reason: "not UTF-8 \x1b", Text: "subject=\"s\""}}}) // 5
	b.rows(t, source.Batch{Orders: []schema.Order{mine}})                                                                              // 6

	first := "  1  order   " + mine.OrderID().String() + "  ver 1  created  19900 CNY  paid 0  refunded 0  uid 9527  bid 1001  " + mine.OutTradeNo + "  from uid-a"
	second := "  1  entry   " + mine.OrderID().String() + "  seq 2  pay:wechat:4200  created to paid  19900 CNY  uid 9527  bid 1001  channel  from uid-a"
	for _, c := range []struct {
		args string
		want []string // what the lines contain
	}{
		{"--from-start --limit 6", []string{first, second, "  2  order   " + other.OrderID().String(), "  4  undecodable", `  5  broken  x.order_1  bid 1001  from uid-a  FAULT: "not UTF-8 \x1b"`, "  6  order"}},
		{"--from-start --marks --limit 4", []string{first, second, "  2  order", "  3  mark    at 2025-01-01 00:01:00.000 UTC  position 1-1-9  from uid-a"}},
		{"--from-start --uid 42 --limit 1", []string{"  2  order   " + other.OrderID().String()}},
		{"--since 1h --bid 1001 --limit 5", []string{first, second, "  4  undecodable", "  5  broken", "  6  order"}},
		{"--from-start --end", []string{first, second, "  2  order", "  4  undecodable", "  5  broken", "  6  order"}},
		{"--from-start --end --uid 42", []string{"  2  order   ", "  4  undecodable"}},
		{"--from-start --end --bid 77", []string{"  2  order   "}},
		{"--from-start --end --bid 8", nil}, // a group of nothing but marks
		{"--from 2 --end --uid 9527", []string{"  4  undecodable", "  6  order"}},
		{"--from 5 --limit 2", []string{"  5  broken", "  6  order"}},
		{"--from 7 --end", nil},
		{"--since 1h --end --marks --order " + other.OrderID().String(), []string{"  2  order", "  3  mark", "  4  undecodable"}},
		{"--from-start --limit 4 --order " + mine.OrderID().String(), []string{first, second, "  4  undecodable", "  6  order"}},
	} {
		code, lines, stderr := b.tail(t, strings.Fields(c.args)...)
		if code != 0 || stderr != "" || len(lines) != len(c.want) {
			t.Errorf("%s: exit %d, %s\n%s", c.args, code, stderr, strings.Join(lines, "\n"))
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(lines[i], want) {
				t.Errorf("%s: line %d is %q, want %q", c.args, i, lines[i], want)
			}
		}
	}

	if code, _, stderr := b.tail(t, "--from", "8"); code != 1 || !strings.Contains(stderr, "there is no message 8 yet: the last is 6") {
		t.Errorf("from what isn't there: exit %d, %s", code, stderr)
	}

	_, lines, _ := b.tail(t, "--from-start", "--json", "--marks", "--limit", "4")
	for i, want := range []string{"order", "entry", "order", "mark"} {
		var l struct {
			Seq  int
			Kind string
			Row  map[string]any
		}
		if err := json.Unmarshal([]byte(lines[i]), &l); err != nil || l.Kind != want || l.Row == nil {
			t.Errorf("line %d: %s, %v", i, lines[i], err)
		}
		if i == 0 && (l.Seq != 1 || l.Row["amount"] != "19900" || l.Row["out_trade_no"] != mine.OutTradeNo || l.Row["order_id"] != mine.OrderID().String()) {
			t.Errorf("the order: %s", lines[i])
		}
	}
	b.leavesNothing(t)

	st, err := b.js.Stream(t.Context(), b.st.Name())
	if err == nil {
		err = st.Purge(t.Context(), jetstream.WithPurgeSequence(6))
	}
	if err != nil {
		t.Fatal(err)
	}
	if code, lines, stderr := b.tail(t, "--from", "2", "--end"); code != 0 || len(lines) != 1 || !strings.Contains(stderr, "message 2 is kept no more; beginning with the first, 6") {
		t.Errorf("from what is gone: exit %d, %s\n%q", code, stderr, lines)
	}
}

// A mark that promises nothing is shown as one: of another stream, or unreadable.
func TestTailShowsDeadMarks(t *testing.T) {
	b := newBrook(t, localstack.Test(t, localstack.NATS))
	b.begin(t)
	if err := b.w.Mark(t.Context(), source.Position{}, 1000); err != nil {
		t.Fatal(err)
	}
	st, err := b.js.Stream(t.Context(), b.st.Name())
	if err != nil {
		t.Fatal(err)
	}
	m, err := st.GetMsg(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	good := m.Data
	if err := b.js.DeleteStream(t.Context(), b.st.Name()); err != nil {
		t.Fatal(err)
	}
	b.begin(t)
	for subject, data := range map[string][]byte{m.Subject: good, m.Subject + "x": []byte("\xff")} {
		if _, err := b.js.Publish(t.Context(), subject, data); err != nil {
			t.Fatal(err)
		}
	}
	code, lines, stderr := b.tail(t, "--from-start", "--end", "--marks")
	all := strings.Join(lines, "\n")
	if code != 0 || len(lines) != 2 || !strings.Contains(all, "from uid-a  FAULT: of another incarnation of the stream") || !strings.Contains(all, "FAULT: not a mark of this subject") {
		t.Errorf("exit %d, %s\n%s", code, stderr, all)
	}
}

// leavesNothing waits until NATS keeps nothing for a reader.
func (b *brook) leavesNothing(t *testing.T) {
	t.Helper()
	st, err := b.js.Stream(t.Context(), b.st.Name())
	if err != nil {
		t.Fatal(err)
	}
	i, err := st.Info(t.Context())
	if err != nil || i.State.Consumers != 0 {
		t.Errorf("NATS keeps %d consumers, %v", i.State.Consumers, err)
	}
}

// A following is a tail that follows.
type following struct {
	lines  chan string
	stderr bytes.Buffer // read after end
	stop   context.CancelFunc
	ended  chan int
}

func (b *brook) follow(t *testing.T, args ...string) *following {
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	f := &following{lines: make(chan string, 1000), stop: stop, ended: make(chan int, 1)}
	in, out := io.Pipe()
	go func() {
		code := run(ctx, append([]string{"tail"}, args...), b.env, out, &f.stderr)
		_ = out.Close()
		f.ended <- code
	}()
	go func() {
		defer close(f.lines)
		for text := bufio.NewScanner(in); text.Scan(); {
			f.lines <- text.Text()
		}
	}()
	return f
}

// end ends it and returns its exit code and what it said on stderr.
func (f *following) end() (code int, stderr string) {
	f.stop()
	code = <-f.ended
	return code, f.stderr.String()
}

// first publishes orders, numbered from the one given, until one is shown, and returns
// that line: from when on a tail reads isn't seen from outside.
func (f *following) first(t *testing.T, b *brook, snowflake int64) string {
	t.Helper()
	for ; ; snowflake++ {
		b.rows(t, source.Batch{Orders: []schema.Order{orderOf(9527, 1001, snowflake)}})
		select {
		case line, ok := <-f.lines:
			if !ok {
				t.Fatalf("it ended: %s", &f.stderr)
			}
			return line
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// A tail without a beginning begins now, follows, and ends with its context.
func TestTailFollows(t *testing.T) {
	b := newBrook(t, localstack.Test(t, localstack.NATS))
	b.begin(t)
	old := orderOf(9527, 1001, idgen.FirstAt(idgen.Epoch.Add(time.Minute)))
	b.rows(t, source.Batch{Orders: []schema.Order{old}})
	for _, args := range [][]string{nil, {"--bid", "1001"}} {
		f := b.follow(t, args...)
		if line := f.first(t, b, old.ID+1); strings.Contains(line, old.OrderID().String()) || !strings.Contains(line, "  order   ") {
			t.Errorf("%v: the first line is %q", args, line)
		}
		if code, stderr := f.end(); code != 0 || stderr != "" {
			t.Errorf("%v: exit %d, %s", args, code, stderr)
		}
		b.leavesNothing(t)
	}
}

// NATS that was away is no end: the tail goes on where it was.
func TestTailOutlivesNATS(t *testing.T) {
	s := localstack.Private(t, localstack.Options{Need: []localstack.Need{localstack.NATS}})
	b := newBrook(t, s)
	b.begin(t)
	f := b.follow(t)
	snowflake := idgen.FirstAt(idgen.Epoch.Add(time.Minute))
	f.first(t, b, snowflake)
	pid := s.Server("nats").Pid()
	if err := s.Server("nats").Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Server("nats").Start(t.Context()); err != nil || s.Server("nats").Pid() == pid {
		t.Fatalf("NATS wasn't restarted: %v", err)
	}
	eventually.Nil(t, "NATS is back", func() error {
		info, err := b.st.Info(t.Context())
		if err == nil && info.Last > 0 {
			b.w, err = b.st.Writer(t.Context(), "uid-a", info)
		}
		return err
	})
	t.Cleanup(b.w.Close)
	later := orderOf(9527, 1001, snowflake+100_000)
	b.rows(t, source.Batch{Orders: []schema.Order{later}})
	for line := range f.lines { // until its context ends
		if strings.Contains(line, later.OrderID().String()) {
			break
		}
	}
	if code, stderr := f.end(); code != 0 || !strings.Contains(stderr, "NATS was away; going on with message ") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}
