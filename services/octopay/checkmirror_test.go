package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/services/internal/boottest"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer"
	mirrored "github.com/octopay/octopay/syncer/mirror"
	"github.com/octopay/octopay/syncer/source"
	"github.com/octopay/octopay/syncer/stream"
)

// mirrors runs the mirror of an estate until stop is called.
func (e *estate) mirrors(t *testing.T, b *brook) (stop func()) {
	t.Helper()
	nc, err := stream.Connect(e.stack.NATSURL, "test")
	if err != nil {
		t.Fatal(err)
	}
	s, err := syncer.OnMariaDB(e.c, nc, syncer.MariaDBConfig{Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the mirror: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		nc.Close()
	}
	t.Cleanup(stop)
	return stop
}

// awaitMirror waits until the mirror has an order, and returns it.
func (e *estate) awaitMirror(t *testing.T, o schema.Order) schema.Order {
	t.Helper()
	var page mirrored.Page
	eventually.True(t, "the order is in the mirror", func() (there bool) {
		var err error
		page, err = mirrored.NewSQL(e.c).List(t.Context(), mirrored.Query{BID: o.BID, Min: o.ID, Before: o.ID + 1, Limit: 1})
		return err == nil && len(page.Orders) == 1
	})
	return page.Orders[0]
}

func TestCheckLooksAtTheMirror(t *testing.T) {
	e := newEstate(t)
	b := newBrook(t, e.stack)
	where := "stream " + b.st.Name()
	bare := strings.TrimPrefix(b.st.Name(), e.stack.Map.Prefix())
	if code, differs, _, all := e.check(t); code != 1 || !slices.Equal(differs, []string{"NATS: there is no stream " + bare + ": the first syncerd makes it"}) {
		t.Errorf("no stream: exit %d\n%s", code, all)
	}
	stop := e.mirrors(t, b)

	// Fault 27: columns of one table of one shard are in another order. It is named, and
	// what is in that table is read as what it is.
	drifted := e.c.Database(shardmap.UID, 3)
	e.exec(t, drifted, "ALTER TABLE %s.order_4 MODIFY amount BIGINT NOT NULL AFTER refunded_amount, MODIFY uid BIGINT NOT NULL AFTER bid")
	const uid = 24 // database 3, table 4
	if at := e.c.Map().Locate(uid); at != (shardmap.Location{Database: 3, Table: 4}) {
		t.Fatal(at)
	}
	o := orderOf(uid, liveBID, idgen.FirstAt(time.Now()))
	o.PaidAmount, o.RefundedAmount = 7, 5
	e.insert(t, drifted, 4, o)
	if diff := cmp.Diff(o, e.awaitMirror(t, o)); diff != "" {
		t.Errorf("fault 27: the mirror has another order:\n%s", diff)
	}
	if code, stdout, _ := octopay(t, e.env, "id", "--live", o.OrderID().String()); code != 0 || !strings.Contains(stdout, "They agree, in all 22 columns.") {
		t.Errorf("fault 27: exit %d\n%s", code, stdout)
	}
	// The first marks of all databases can take a moment longer than an order of one.
	eventually.Nil(t, "fault 27: it is named", func() error {
		code, differs, _, all := e.check(t)
		if code != 1 || len(differs) != 1 || !strings.HasPrefix(differs[0], "octopay_uid_03@uid-a: table order_4: the order of columns is id,bid,uid,") {
			return fmt.Errorf("exit %d\n%s", code, all)
		}
		return nil
	})
	e.exec(t, drifted, "ALTER TABLE %s.order_4 MODIFY amount BIGINT NOT NULL AFTER out_trade_no, MODIFY uid BIGINT NOT NULL AFTER id")

	code, differs, warnings, all := e.check(t)
	if code != 0 || len(differs)+len(warnings) > 0 {
		t.Errorf("all is well: exit %d\n%s", code, all)
	}
	for _, want := range []string{"NATS: version 2.", "Stream: " + b.st.Name() + ", messages 1 to ", " of 8589934592 bytes, 0 %; age of the newest marks: uid-a "} {
		if !strings.Contains(all, want) {
			t.Errorf("it doesn't say %q:\n%s", want, all)
		}
	}
	stop()

	// What stands still is seen after a while; here it is put there, as it is then.
	info, err := b.st.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fresh := func(age time.Duration) {
		t.Helper()
		w, err := b.st.Writer(t.Context(), "uid-a", info)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		last, _ := w.Last()
		if err := w.Mark(t.Context(), last.Position, schema.MillisOf(time.Now().Add(-age))); err != nil {
			t.Fatal(err)
		}
	}
	config := func(change func(*jetstream.StreamConfig)) {
		t.Helper()
		st, err := b.js.Stream(t.Context(), b.st.Name())
		if err != nil {
			t.Fatal(err)
		}
		c := st.CachedInfo().Config
		change(&c)
		if _, err := b.js.UpdateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	third := e.c.Database(shardmap.BID, 3)
	now := func() string { return schema.MillisOf(time.Now()).SQL() }
	for _, c := range []struct {
		name   string
		change func()
		want   []string
	}{
		{"as it was left", func() {}, nil},
		{"a database is behind", func() { e.exec(t, third, "UPDATE %s.mark SET at = at - INTERVAL 60 SECOND") },
			[]string{"octopay_bid_03@bid-a: it is "}},
		{"it has no mark", func() { e.exec(t, third, "DELETE FROM %s.mark") },
			[]string{"octopay_bid_03@bid-a: it has applied no mark of server uid-a"}},
		{"it has dead letters", func() {
			e.exec(t, third, "INSERT INTO %s.mark VALUES ('uid-a', '101-101-1', ?)", now())
			e.exec(t, third, "INSERT INTO %s.dead_letter VALUES ('s', 1, 0, 'x', 'r', '', 'open', UTC_TIMESTAMP(3), NULL), ('s', 2, 0, 'x', 'r', '', 'open', UTC_TIMESTAMP(3), NULL), ('s', 3, 0, 'x', 'r', '', 'dropped', UTC_TIMESTAMP(3), NULL)")
		}, []string{"octopay_bid_03@bid-a: dead letters that are open: 2; until they are settled its marks stand still"}},
		{"it is of another stream", func() {
			e.exec(t, third, "DELETE FROM %s.dead_letter")
			e.exec(t, third, "UPDATE %s.progress SET incarnation = 'another'")
		}, []string{"octopay_bid_03@bid-a: it has a position in stream another; the stream is " + bare + "@"}},
		{"it has applied nothing", func() { e.exec(t, third, "UPDATE %s.progress SET incarnation = '', stream_seq = 0") },
			[]string{"octopay_bid_03@bid-a: it has applied nothing of the stream yet"}},
		{"it is ahead of the stream", func() {
			e.exec(t, third, "UPDATE %s.progress SET incarnation = ?, stream_seq = 1000000000", info.Incarnation)
		},
			[]string{"octopay_bid_03@bid-a: it has applied the stream up to message 1000000000, and the last is "}},
		{"what it needs is gone", func() {
			e.exec(t, third, "UPDATE %s.progress SET stream_seq = 3")
			st, err := b.js.Stream(t.Context(), b.st.Name())
			if err != nil {
				t.Fatal(err)
			}
			if err := st.Purge(t.Context(), jetstream.WithPurgeSequence(10)); err != nil {
				t.Fatal(err)
			}
		}, []string{"octopay_bid_03@bid-a: it has applied the stream up to message 3, and the first that is kept is "}},
		{"the stream loses the oldest", func() {
			e.exec(t, third, "UPDATE %s.progress SET stream_seq = ?", info.Last)
			config(func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld })
		}, []string{where + ": discard is DiscardOld instead of DiscardNew"}},
		{"the stream is back as it should be", func() { config(func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardNew }) }, nil},
	} {
		fresh(0)
		for n := 1; n <= 8; n++ {
			e.exec(t, e.c.Database(shardmap.BID, n), "UPDATE %s.mark SET at = ?", now())
		}
		c.change()
		code, differs, warnings, all := e.check(t)
		if code != min(len(c.want), 1) || len(warnings) > 0 || !slices.EqualFunc(differs, c.want, func(is, want string) bool {
			return strings.HasPrefix(is, strings.ReplaceAll(want, e.stack.Map.Prefix(), ""))
		}) {
			t.Errorf("%s: exit %d:\n%s", c.name, code, all)
		}
	}

	fresh(time.Minute)
	if code, differs, _, all := e.check(t); code != 1 || len(differs) != 1 || !strings.HasPrefix(differs[0], "stream "+bare+": the newest mark of server uid-a is 6") {
		t.Errorf("a collector that stands still: exit %d\n%s", code, all)
	}
	config(func(c *jetstream.StreamConfig) { c.MaxBytes = int64(info.Bytes) })
	if _, _, warnings, all := e.check(t); len(warnings) != 1 || !strings.HasPrefix(warnings[0], where+": it is full to ") {
		t.Errorf("a full stream:\n%s", all)
	}
	if err := b.js.DeleteStream(t.Context(), b.st.Name()); err != nil {
		t.Fatal(err)
	}
	b.begin(t)
	if code, differs, _, all := e.check(t); code != 1 || len(differs) != 9 || differs[0] != "stream "+bare+": there is no mark of server uid-a in it: its collector has not begun" {
		t.Errorf("a stream made anew: exit %d\n%s", code, all)
	}
}

// NATS that is away, frozen, or without JetStream, is named, in bounded time.
func TestCheckSaysThatNATSIsAway(t *testing.T) {
	s := localstack.Private(t, localstack.Options{Need: []localstack.Need{localstack.UID, localstack.BID, localstack.Meta, localstack.NATS}})
	e := &estate{stack: s, c: s.Cluster(t), env: boottest.Environ(t, s, s.Map)}
	nats := s.Server("nats")
	if err := nats.Pause(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	code, differs, _, all := e.check(t)
	if code != 1 || len(differs) != 2 || !strings.HasPrefix(differs[0], "NATS: could not be checked: ") || time.Since(began) > 3*time.Minute {
		t.Errorf("frozen: exit %d after %s\n%s", code, time.Since(began), all)
	}
	if err := nats.Kill(); err != nil {
		t.Fatal(err)
	}
	if code, differs, _, all := e.check(t); code != 1 || len(differs) != 2 || !strings.HasPrefix(differs[0], "NATS: could not be checked: ") {
		t.Errorf("away: exit %d\n%s", code, all)
	}
}

func TestWhatNATSSaysOfItselfIsJudged(t *testing.T) {
	for _, c := range []struct {
		version string
		payload int64
		want    []string
	}{
		{"2.15.2", 1 << 20, nil},
		{"2.10.0", stream.MessageBytes, nil},
		{"3.0.0-beta.1", 1 << 20, nil},
		{"2.9.25", 1 << 20, []string{"DIFFERS NATS: its version is 2.9.25; should be at least 2.10"}},
		{"1.11.0", 1 << 20, []string{"DIFFERS NATS: its version is 1.11.0; should be at least 2.10"}},
		{"", 1 << 20, []string{"DIFFERS NATS: its version is ; should be at least 2.10"}},
		{"2.11.1", 65536, []string{"DIFFERS NATS: max_payload is 65536; should be at least 262144: so large are messages of rows"}},
	} {
		var r report
		r.natsServer("NATS", c.version, c.payload)
		if got := texts(&r); !slices.Equal(got, c.want) {
			t.Errorf("%s, %d: %q, want %q", c.version, c.payload, got, c.want)
		}
	}
}

// Ages are taken by the clock of the server that made the mark.
func TestAgesOfMarksAreByTheClockOfTheirServer(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	mark := func(before time.Duration) stream.Mark {
		return stream.Mark{Server: "a", Position: source.Position{}, At: schema.MillisOf(at.Add(-before))}
	}
	for _, c := range []struct {
		name  string
		marks map[string]stream.Mark
		ahead map[string]time.Duration
		want  []string
	}{
		{"fresh", map[string]stream.Mark{"a": mark(2 * time.Second)}, map[string]time.Duration{"a": 0}, nil},
		{"at the limit", map[string]stream.Mark{"a": mark(10 * time.Second)}, map[string]time.Duration{"a": 0}, nil},
		{"old", map[string]stream.Mark{"a": mark(11 * time.Second)}, map[string]time.Duration{"a": 0}, []string{"DIFFERS stream S: the newest mark of server a is 11.0 s old"}},
		{"that clock is behind", map[string]stream.Mark{"a": mark(11 * time.Second)}, map[string]time.Duration{"a": -9 * time.Second}, nil},
		{"that clock is ahead", map[string]stream.Mark{"a": mark(2 * time.Second)}, map[string]time.Duration{"a": 9 * time.Second}, []string{"DIFFERS stream S: the newest mark of server a is 11.0 s old"}},
		{"that clock was set back", map[string]stream.Mark{"a": mark(2 * time.Second)}, map[string]time.Duration{"a": -time.Minute}, []string{"DIFFERS stream S: the newest mark of server a is 58.0 s ahead of that server's clock"}},
		{"that server is away", map[string]stream.Mark{"a": mark(time.Hour)}, nil, nil},
		{"no mark", nil, map[string]time.Duration{"a": 0}, []string{"DIFFERS stream S: there is no mark of server a"}},
	} {
		var r report
		r.stream(flow{name: "S", before: stream.State{MaxBytes: 100, Marks: c.marks}, at: at, ahead: c.ahead, servers: []string{"a"}})
		if got := texts(&r); !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
