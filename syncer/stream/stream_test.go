package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/syncer/source"
)

func connect(t *testing.T, url string) *nats.Conn {
	t.Helper()
	nc, err := Connect(url, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// open returns the stream of a stack, not made yet.
func open(t *testing.T, s *localstack.Stack, c Config) *Stream {
	t.Helper()
	st, err := New(connect(t, s.NATSURL), s.Map.Prefix(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.js.DeleteStream(context.Background(), st.Name()) })
	return st
}

func ensure(t *testing.T, s *Stream) Info {
	t.Helper()
	// The first answer of a server that has just started can take a moment.
	var info Info
	eventually.Nil(t, "the stream is there", func() (err error) {
		info, err = s.Ensure(t.Context())
		return err
	})
	return info
}

func writer(t *testing.T, s *Stream, server string) *Writer {
	t.Helper()
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.Writer(t.Context(), server, info)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func position(n uint64) source.Position {
	return source.Position{}.With(source.GTID{Domain: 1, Server: 1, Seq: n})
}

func mark(t *testing.T, w *Writer, n uint64, at schema.Millis) {
	t.Helper()
	if err := w.Mark(t.Context(), position(n), at); err != nil {
		t.Fatal(err)
	}
}

func rows(t *testing.T, w *Writer, group int, texts ...string) {
	t.Helper()
	var messages []Packed
	for _, text := range texts {
		messages = append(messages, Packed{Group: group, Rows: 1, Data: []byte(text)})
	}
	if left, err := w.Rows(t.Context(), messages); err != nil || len(left) != 0 {
		t.Fatal(left, err)
	}
}

func TestTheStreamIsConfigured(t *testing.T) {
	s := open(t, localstack.Test(t, localstack.NATS), Config{MaxBytes: 1 << 20})
	first := ensure(t, s)
	st, err := s.js.Stream(t.Context(), s.Name())
	if err != nil {
		t.Fatal(err)
	}
	c := st.CachedInfo().Config
	if c.Retention != jetstream.LimitsPolicy || c.Discard != jetstream.DiscardNew || c.Storage != jetstream.FileStorage ||
		c.Replicas != 1 || c.MaxBytes != 1<<20 || c.MaxAge != 0 || c.MaxMsgs != -1 || !slices.Equal(c.Subjects, []string{s.prefix + "mirror.>"}) {
		t.Errorf("configured as %+v", c)
	}
	if first.First != 1 || first.Last != 0 {
		t.Errorf("a new stream has the messages %d to %d", first.First, first.Last)
	}

	s.config.MaxBytes = 2 << 20
	again := ensure(t, s)
	if again.Incarnation != first.Incarnation {
		t.Error("another configuration made another stream")
	}
	if st, err = s.js.Stream(t.Context(), s.Name()); err != nil || st.CachedInfo().Config.MaxBytes != 2<<20 {
		t.Error("the new bound isn't in force", err)
	}
}

// Whoever changed the stream so that it drops rows unread: it is set back, or refused by
// name. What else an operator wants stays.
func TestAStreamThatDropsRowsIsSetBack(t *testing.T) {
	stack := localstack.Test(t, localstack.NATS)
	for name, c := range map[string]struct {
		spoil   func(*jetstream.StreamConfig)
		refused bool
	}{
		"max_age":              {func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, false},
		"max_msgs":             {func(c *jetstream.StreamConfig) { c.MaxMsgs = 5 }, false},
		"max_msgs_per_subject": {func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 1 }, false},
		"max_bytes":            {func(c *jetstream.StreamConfig) { c.MaxBytes = 5 << 20 }, false},
		"discard":              {func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld }, false},
		"subjects":             {func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, c.Name+".more") }, false},
		"retention":            {func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy }, true},
		"storage":              {func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }, true},
		"deny_purge":           {func(c *jetstream.StreamConfig) { c.DenyPurge = true }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, stack, Config{MaxBytes: 1 << 20})
			ensure(t, s)
			config := func() jetstream.StreamConfig {
				t.Helper()
				st, err := s.js.Stream(t.Context(), s.Name())
				if err != nil {
					t.Fatal(err)
				}
				return st.CachedInfo().Config
			}
			good := config()
			if _, wrong := setBack(good, s.wanted()); len(wrong) > 0 {
				t.Errorf("a stream of ours is taken for another: %v", wrong)
			}
			bad := good
			bad.Description = "by an operator"
			c.spoil(&bad)
			if c.refused { // then it can't be changed into that either
				if err := s.js.DeleteStream(t.Context(), s.Name()); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := s.js.CreateOrUpdateStream(t.Context(), bad); err != nil {
				t.Fatal(err)
			}
			_, err := s.Ensure(t.Context())
			if c.refused {
				if err == nil || !strings.Contains(err.Error(), name+" is ") {
					t.Errorf("it isn't refused: %v", err)
				}
			} else if now := config(); err != nil || now.Description != bad.Description {
				t.Errorf("set back to %+v, %v", now, err)
			} else if now.Description = good.Description; !reflect.DeepEqual(now, good) {
				t.Errorf("set back to\n%+v, it was\n%+v", now, good)
			}
			if err := s.js.DeleteStream(t.Context(), s.Name()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestAReaderGetsItsGroupAndAllMarksInOrder(t *testing.T) {
	s := open(t, localstack.Test(t, localstack.NATS), Config{})
	info := ensure(t, s)
	a, b := writer(t, s, "uid-a"), writer(t, s, "uid-b")
	if _, ok := a.Last(); ok {
		t.Error("a new stream has a mark")
	}
	rows(t, a, 3, "one", "two")
	rows(t, b, 4, "not ours")
	mark(t, a, 7, 1000)
	rows(t, b, 3, "three")
	mark(t, b, 9, 0)

	r, err := s.Reader(t.Context(), 3, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var got []string
	for range 4 {
		m, err := r.Next(t.Context(), eventually.Patience)
		if err != nil {
			t.Fatal(err)
		}
		if m.Mark != nil {
			if m.Incarnation != info.Incarnation {
				t.Errorf("the mark is of %q", m.Incarnation)
			}
			got = append(got, fmt.Sprintf("%d mark %s %s %d", m.Seq, m.Mark.Server, m.Mark.Position, m.Mark.At))
		} else {
			got = append(got, fmt.Sprintf("%d %s", m.Seq, m.Data))
		}
		at, err := s.StoredAt(t.Context(), m.Seq)
		if err != nil || at != m.StoredAt {
			t.Errorf("message %d was stored at %d, the stream says %d, %v", m.Seq, m.StoredAt, at, err)
		}
	}
	want := []string{"2 two", "4 mark uid-a 1-1-7 1000", "5 three", "6 mark uid-b 1-1-9 0"}
	if !slices.Equal(got, want) {
		t.Errorf("read %q, want %q", got, want)
	}
	if _, err := r.Next(t.Context(), time.Millisecond); !errors.Is(err, ErrSilent) {
		t.Errorf("no more messages: %v", err)
	}
	rows(t, a, 3, "later")
	if m, err := r.Next(t.Context(), eventually.Patience); err != nil || !bytes.Equal(m.Data, []byte("later")) {
		t.Errorf("after a silence: %s, %v", m.Data, err)
	}

	last, ok := writer(t, s, "uid-a").Last()
	if !ok || last.Position.String() != "1-1-7" || last.At != 1000 {
		t.Errorf("the last mark of uid-a is %+v, %v", last, ok)
	}
	if at, err := s.StoredAt(t.Context(), 99); at != 0 || err != nil {
		t.Errorf("a message that isn't there was stored at %d, %v", at, err)
	}
}

// The newest message of a group doesn't depend on what others have behind it.
func TestNewest(t *testing.T) {
	s := open(t, localstack.Test(t, localstack.NATS), Config{})
	info := ensure(t, s)
	a, b := writer(t, s, "uid-a"), writer(t, s, "uid-b")
	want := func(group int, want uint64) {
		t.Helper()
		if seq, incarnation, err := s.Newest(t.Context(), group); seq != want || incarnation != info.Incarnation || err != nil {
			t.Errorf("the newest of group %d is %d, want %d, of %q, %v", group, seq, want, incarnation, err)
		}
	}
	want(3, 0)
	rows(t, a, 3, "one", "two")
	rows(t, a, 4, "not ours")
	want(3, 2)
	want(4, 3)
	want(5, 0)
	mark(t, a, 7, 1000)
	mark(t, b, 7, 1000)
	mark(t, a, 8, 2000)
	rows(t, a, 4, "not ours")
	want(3, 6)
	want(4, 7)
	want(5, 6)
}

// A server's first mark in a stream says where its rows begin there, and no other does.
func TestTheFirstMarkSaysWhereTheStreamBegins(t *testing.T) {
	s := open(t, localstack.Test(t, localstack.NATS), Config{})
	ensure(t, s)
	w := writer(t, s, "uid-a")
	w.Begin(position(5))
	mark(t, w, 6, 0) // the one at 5 found the stream full
	mark(t, w, 7, 0)
	next := writer(t, s, "uid-a")
	next.Begin(position(7)) // needless: it goes on
	mark(t, next, 8, 0)
	r, err := s.Reader(t.Context(), 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var got []string
	for range 3 {
		m, err := r.Next(t.Context(), eventually.Patience)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, m.Mark.Position.String()+" from "+m.Mark.From.String())
	}
	if want := []string{"1-1-6 from 1-1-5", "1-1-7 from ", "1-1-8 from "}; !slices.Equal(got, want) {
		t.Errorf("the marks are %q, want %q", got, want)
	}
}

func TestOnlyOneWriterOfAServerGoesOn(t *testing.T) {
	s := open(t, localstack.Test(t, localstack.NATS), Config{})
	ensure(t, s)
	one, two := writer(t, s, "uid-a"), writer(t, s, "uid-a")
	other := writer(t, s, "uid-b")
	mark(t, one, 1, 10)
	if err := two.Mark(t.Context(), position(1), 10); !errors.Is(err, ErrSuperseded) {
		t.Errorf("the second writer's first mark: %v", err)
	}
	three := writer(t, s, "uid-a")
	mark(t, three, 2, 20)
	if err := one.Mark(t.Context(), position(3), 30); !errors.Is(err, ErrSuperseded) {
		t.Errorf("the first writer's mark after another's: %v", err)
	}
	mark(t, three, 4, 40)
	mark(t, other, 1, 10) // has nothing to do with it
	if last, _ := writer(t, s, "uid-a").Last(); last.Position.String() != "1-1-4" {
		t.Errorf("the last mark is %v", last)
	}
}

func TestAFullStreamRefusesAndGoesOn(t *testing.T) {
	s := open(t, localstack.Test(t, localstack.NATS), Config{MaxBytes: 64 << 10, KeepFor: time.Nanosecond})
	ensure(t, s)
	w := writer(t, s, "uid-a")
	mark(t, w, 1, 10)
	message := Packed{Group: 1, Rows: 1, Data: make([]byte, 10<<10)}
	left, err := w.Rows(t.Context(), slices.Repeat([]Packed{message}, 10))
	if !errors.Is(err, ErrFull) || len(left) == 0 || len(left) == 10 {
		t.Fatalf("%d of 10 messages are left, %v", len(left), err)
	}
	for err == nil || errors.Is(err, ErrFull) { // small ones till the last gap is filled
		before := err
		if err = w.Mark(t.Context(), position(2), 20); errors.Is(before, ErrFull) && errors.Is(err, ErrFull) {
			break
		}
	}
	if !errors.Is(err, ErrFull) {
		t.Fatalf("a mark for a full stream: %v", err)
	}
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Purge(t.Context(), time.Now(), []uint64{info.Last}, 0); err != nil {
		t.Fatal(err)
	}
	if left, err = w.Rows(t.Context(), left); err != nil || len(left) != 0 {
		t.Errorf("after the purge %d are left, %v", len(left), err)
	}
	// Its last mark is purged as well, so the writer has to look anew.
	if err := w.Mark(t.Context(), position(2), 20); !errors.Is(err, ErrSuperseded) {
		t.Errorf("a mark after the last one was purged: %v", err)
	}
	mark(t, writer(t, s, "uid-a"), 2, 20)
}

// A stream of the same name is another one: what was meant for the first doesn't
// count in it.
func TestIncarnations(t *testing.T) {
	s := open(t, localstack.Test(t, localstack.NATS), Config{})
	first := ensure(t, s)
	marked, fresh := writer(t, s, "uid-a"), writer(t, s, "uid-b")
	mark(t, marked, 1, 10)
	rows(t, marked, 0, "1", "2", "3")

	if err := s.Delete(t.Context(), "another"); err != nil {
		t.Fatal(err)
	}
	if again := ensure(t, s); again.Incarnation != first.Incarnation {
		t.Fatal("a stream was deleted that isn't the one meant")
	}
	if err := s.Delete(t.Context(), first.Incarnation); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), first.Incarnation); err != nil {
		t.Errorf("deleting what is gone: %v", err)
	}
	if err := marked.Mark(t.Context(), position(2), 20); !errors.Is(err, ErrInterrupted) {
		t.Errorf("a mark for no stream: %v", err)
	}
	if _, err := fresh.Rows(t.Context(), []Packed{{Data: []byte("x")}}); !errors.Is(err, ErrInterrupted) {
		t.Errorf("rows for no stream: %v", err)
	}
	second := ensure(t, s)
	if second.Incarnation == first.Incarnation {
		t.Fatal("a stream made anew has the same name and age")
	}
	if err := marked.Mark(t.Context(), position(2), 20); !errors.Is(err, ErrSuperseded) {
		t.Errorf("a mark in another incarnation: %v", err)
	}
	if _, err := s.Writer(t.Context(), "uid-a", first); !errors.Is(err, ErrInterrupted) {
		t.Errorf("a writer for the first incarnation: %v", err)
	}
	// The first mark of a writer that had none goes through, but counts for nothing.
	mark(t, fresh, 5, 50)
	next := writer(t, s, "uid-b")
	if last, ok := next.Last(); ok {
		t.Errorf("the last mark is %+v, which was meant for the first incarnation", last)
	}
	r, err := s.Reader(t.Context(), 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if m, err := r.Next(t.Context(), eventually.Patience); err != nil || m.Mark == nil || m.Incarnation != first.Incarnation {
		t.Errorf("read %+v, %v", m, err)
	}
	mark(t, next, 6, 60)
	if m, err := r.Next(t.Context(), eventually.Patience); err != nil || m.Mark == nil || m.Incarnation != second.Incarnation {
		t.Errorf("read %+v, %v", m, err)
	}
}

func TestAMarkThatCannotBeReadPromisesNothing(t *testing.T) {
	s := open(t, localstack.Test(t, localstack.NATS), Config{})
	ensure(t, s)
	nc := s.nc
	for _, data := range []string{"\xff\xff", "", "\x0a\x05uid-b\x12\x051-1-1"} { // noise, nothing, another server's
		if err := nc.Publish(s.markSubject("uid-a"), []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	r, err := s.Reader(t.Context(), 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for range 3 {
		m, err := r.Next(t.Context(), eventually.Patience)
		if err != nil || m.Mark == nil || m.Mark.Server != "" || m.Incarnation != "" {
			t.Errorf("read %+v, %v", m, err)
		}
	}
	w := writer(t, s, "uid-a")
	if last, ok := w.Last(); ok {
		t.Errorf("the last mark is %+v", last)
	}
	mark(t, w, 1, 10)
}

func TestAConnectionThatKeepsMessagesIsRefused(t *testing.T) {
	stack := localstack.Test(t, localstack.NATS)
	nc, err := nats.Connect(stack.NATSURL, nats.Timeout(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := New(nc, stack.Map.Prefix(), Config{}); err == nil {
		t.Error("marks sent while NATS is away would arrive after its restart")
	}
}

// After a break nothing can be taken for granted: what was sent last, and that a
// sequence still means the same message.
func TestABrokenConnectionEndsWritersAndReaders(t *testing.T) {
	stack := localstack.Private(t, localstack.Options{Need: []localstack.Need{localstack.NATS}})
	s := open(t, stack, Config{AckTimeout: 10 * time.Second})
	ensure(t, s)
	w := writer(t, s, "uid-a")
	mark(t, w, 1, 10)
	r, err := s.Reader(t.Context(), 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Next(t.Context(), eventually.Patience); err != nil {
		t.Fatal(err)
	}
	server := stack.Server("nats")
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Rows(t.Context(), []Packed{{Data: []byte("x")}}); !errors.Is(err, ErrInterrupted) {
		t.Errorf("rows while NATS is away: %v", err)
	}
	if err := w.Mark(t.Context(), position(2), 20); !errors.Is(err, ErrInterrupted) {
		t.Errorf("a mark while NATS is away: %v", err)
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually.Nil(t, "the connection is back", func() error { _, err := s.Info(t.Context()); return err })
	eventually.True(t, "that of the writer is over, or would be back", func() bool { return w.nc.IsClosed() || w.nc.IsConnected() })
	if _, err := w.Rows(t.Context(), []Packed{{Data: []byte("x")}}); !errors.Is(err, ErrInterrupted) {
		t.Errorf("rows after the break: %v", err)
	}
	if err := w.Mark(t.Context(), position(2), 20); !errors.Is(err, ErrInterrupted) {
		t.Errorf("a mark after the break: %v", err)
	}
	next := writer(t, s, "uid-a")
	if last, ok := next.Last(); !ok || last.Position.String() != "1-1-1" {
		t.Errorf("the last mark is %+v, %v", last, ok)
	}
	mark(t, next, 3, 30)
	for {
		_, err := r.Next(t.Context(), eventually.Patience)
		if err == nil {
			t.Fatal("a reader from before the break goes on")
		}
		if !errors.Is(err, ErrSilent) {
			if !errors.Is(err, ErrInterrupted) {
				t.Errorf("reading after the break: %v", err)
			}
			break
		}
	}
}
