package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/services/internal/boottest"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/apply"
)

// Readiness names each part of the mirror that stands still, and why, and ends only when
// nothing goes on.
func TestReadinessNamesWhatStandsStill(t *testing.T) {
	stack := localstack.Private(t, localstack.Options{UIDServers: 2})
	program := boottest.Start(t, run, boottest.Environ(t, stack, stack.Map))
	ops := program.Listening(t)
	boottest.Ready(t, ops)
	type state struct {
		code     int
		Status   string
		Standing []string `json:"standing_still"`
	}
	readyz := func() (s state) {
		t.Helper()
		code, body := boottest.Get(t, ops+"/readyz")
		if err := json.Unmarshal([]byte(body), &s); err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		s.code = code
		return s
	}
	// Each part by what it says.
	names := func(want map[string]string) func() bool {
		return func() bool {
			s := readyz()
			if s.code != 200 || s.Status != "ready" || len(s.Standing) != len(want) {
				return false
			}
			for _, line := range s.Standing {
				part, why, _ := strings.Cut(line, ": ")
				if w, ok := want[part]; !ok || !strings.Contains(why, w) {
					return false
				}
			}
			return true
		}
	}
	check := func(what string, want map[string]string) {
		t.Helper()
		defer func() {
			if t.Failed() {
				t.Logf("%s: %+v", what, readyz())
			}
		}()
		eventually.True(t, what, names(want))
	}
	check("all goes on", nil)
	store(t, stack, "before")
	nc, err := nats.Connect(stack.NATSURL, nats.Timeout(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	place := func(n int) string { return stack.Map.Database(shardmap.BID, n).Schema }
	exec := func(text string, args ...any) {
		t.Helper()
		if _, err := stack.Admin(t, "bid-a").Exec(text, args...); err != nil {
			t.Fatal(err)
		}
	}

	// An open dead letter in one database.
	if _, err := js.Publish(t.Context(), stack.Map.Prefix()+"mirror.row.1", []byte("\xff\xff")); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"applier/" + place(2): "dead letters that are open: 1"}
	check("a dead letter", want)
	// Too many in another.
	digits := "(SELECT 0 n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9)"
	exec(fmt.Sprintf("INSERT INTO `%s`.dead_letter (incarnation, stream_seq, item, subject, reason, payload, found_at) "+
		"SELECT 'x', 1+a.n+10*b.n+100*c.n+1000*d.n, 0, 's', 'r', 'p', UTC_TIMESTAMP(3) FROM %[2]s a, %[2]s b, %[2]s c, %[2]s d", place(3), digits))
	want["applier/"+place(3)] = apply.ErrTooManyLetters.Error()
	check("too many dead letters", want)
	// A third lacks what the stream no longer has.
	st, err := js.Stream(t.Context(), stack.Map.Prefix()+"MIRROR")
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Purge(t.Context(), jetstream.WithPurgeSequence(2)); err != nil {
		t.Fatal(err)
	}
	exec("UPDATE `" + place(6) + "`.progress SET incarnation = 'gone'")
	want["applier/"+place(6)] = "must be refilled"
	check("a database to be refilled", want)
	// A server of the truth is away.
	if err := stack.Server("uid-b").Kill(); err != nil {
		t.Fatal(err)
	}
	want["collector/uid-b"] = "binlog of uid-b"
	check("a collector without its server", want)
	if err := stack.Server("uid-b").Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	delete(want, "collector/uid-b")
	// All are mended.
	exec("UPDATE `" + place(2) + "`.dead_letter SET state = 'dropped'")
	exec("UPDATE `" + place(3) + "`.dead_letter SET state = 'dropped'")
	delete(want, "applier/"+place(2))
	delete(want, "applier/"+place(3))
	check("what is mended goes on", want)
	store(t, stack, "after")

	// The mirror's server is away: collectors go on.
	if err := stack.Server("bid-a").Kill(); err != nil {
		t.Fatal(err)
	}
	for n := range stack.Map.Size() {
		want["applier/"+place(n+1)] = "unavailable"
		want["conflicts/"+place(n+1)] = "unavailable"
	}
	check("appliers whose server is away", want)
	// Without the broker nothing goes on.
	if err := stack.Server("nats").Kill(); err != nil {
		t.Fatal(err)
	}
	parts := 2*stack.Map.Size() + 2
	eventually.True(t, "it isn't ready", func() bool {
		s := readyz()
		return s.code == 503 && s.Status == "unavailable" && len(s.Standing) == parts
	})
	for _, name := range []string{"bid-a", "nats"} {
		if err := stack.Server(name).Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	check("all but one go on", map[string]string{"applier/" + place(6): "must be refilled"})
	if err := program.Stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}
