package stream

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/octopay/octopay/internal/localstack"
)

func TestInspectSaysWhatAStreamIs(t *testing.T) {
	stack := localstack.Test(t, localstack.NATS)
	s := open(t, stack, Config{MaxBytes: 1 << 20})
	if _, err := s.Inspect(t.Context(), nil); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("no stream: %v", err)
	}
	made := ensure(t, s)
	a, b := writer(t, s, "uid-a"), writer(t, s, "uid-b")
	mark(t, a, 7, 1000)
	mark(t, a, 8, 2000)
	mark(t, b, 9, 3000)
	// One that was meant for another incarnation promises nothing, nor one that can't be read.
	other := writer(t, s, "uid-c")
	other.incarnation = "another"
	mark(t, other, 1, 1000)
	if _, err := s.js.Publish(t.Context(), s.markSubject("uid-d"), []byte("\xff\xff")); err != nil {
		t.Fatal(err)
	}

	// Whoever looks needs not know how large the stream may be.
	looker, err := New(connect(t, stack.NATSURL), stack.Map.Prefix(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	servers := []string{"uid-a", "uid-b", "uid-c", "uid-d", "uid-e"}
	state, err := looker.Inspect(t.Context(), servers)
	if err != nil || state.Incarnation != made.Incarnation || state.First != 1 || state.Last != 5 || state.Bytes == 0 || state.MaxBytes != 1<<20 || len(state.Wrong) > 0 {
		t.Errorf("%+v, %v", state, err)
	}
	if len(state.Marks) != 2 || state.Marks["uid-a"].At != 2000 || state.Marks["uid-a"].Position.String() != position(8).String() || state.Marks["uid-b"].At != 3000 {
		t.Errorf("marks: %+v", state.Marks)
	}

	config := func(change func(*jetstream.StreamConfig)) {
		t.Helper()
		st, err := s.js.Stream(t.Context(), s.Name())
		if err != nil {
			t.Fatal(err)
		}
		c := st.CachedInfo().Config
		change(&c)
		if _, err := s.js.UpdateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	for want, change := range map[string]func(*jetstream.StreamConfig){
		"discard is DiscardOld instead of DiscardNew": func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld },
		"max_age is 1h0m0s instead of 0s":             func(c *jetstream.StreamConfig) { c.MaxAge = 3600e9 },
		"max_msgs is 500 instead of -1":               func(c *jetstream.StreamConfig) { c.MaxMsgs = 500 },
		"max_bytes is not set":                        func(c *jetstream.StreamConfig) { c.MaxBytes = -1 },
		"max_msg_size is 1000, below":                 func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1000 },
		"subjects is [":                               func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, s.prefix+"other") },
	} {
		config(change)
		state, err := looker.Inspect(t.Context(), servers)
		if err != nil || len(state.Wrong) != 1 || !strings.HasPrefix(state.Wrong[0], want) {
			t.Errorf("%q, %v; want %q", state.Wrong, err, want)
		}
		config(func(c *jetstream.StreamConfig) { *c = s.wanted() })
	}
}
