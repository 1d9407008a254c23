package payconfig

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/faultproxy"
	"github.com/octopay/octopay/internal/localstack"
)

// A bench is a meta database, and an operator who changes its rows by hand.
type bench struct {
	*Store
	stack *localstack.Stack
}

func newBench(t *testing.T) *bench {
	t.Helper()
	stack := localstack.Test(t, localstack.Meta)
	return &bench{Store: NewStore(stack.Cluster(t).Meta()), stack: stack}
}

// exec runs a statement about the table, whose name takes the place of %s.
func (b *bench) exec(t *testing.T, statement string, args ...any) {
	t.Helper()
	if _, err := b.stack.Admin(t, b.stack.Map.Meta().Server.Name).ExecContext(t.Context(), fmt.Sprintf(statement, b.table), args...); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) count(t *testing.T) (n int) {
	t.Helper()
	if err := b.stack.Admin(t, b.stack.Map.Meta().Server.Name).QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+b.table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// via returns the store as it is reached through a proxy.
func (b *bench) via(t *testing.T) (*Store, *faultproxy.Proxy) {
	t.Helper()
	server := b.stack.Map.Meta().Server
	proxy := faultproxy.New(t, server.Address)
	return NewStore(b.stack.Via(t, server.Name, proxy.Addr()).Cluster(t).Meta()), proxy
}

// rated is a config of one merchant with this rate.
func rated(t testing.TB, rate int) *Snapshot {
	return mustDecode(t, config("merchants", "["+merchant("rate", strconv.Itoa(rate))+"]"))
}

func mustSet(t *testing.T, s *Store, expected int64, c *Snapshot) Stored {
	t.Helper()
	stored, err := s.Set(t.Context(), expected, c, "ops")
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

func TestEveryVersionIsKept(t *testing.T) {
	b := newBench(t)
	if none, err := b.Newest(t.Context()); err != nil || !same(none.Snapshot, Default()) || none.By != "" || !none.At.IsZero() {
		t.Fatalf("before there is one: %+v, %v", none, err)
	}
	for v := int64(1); v <= 3; v++ {
		c := rated(t, int(v)).at(77) // its own version doesn't matter
		set, err := b.Set(t.Context(), v-1, c, "Jürgen")
		if err != nil || !same(set.Snapshot, c.at(v)) || set.By != "Jürgen" || time.Since(set.At).Abs() > time.Minute {
			t.Fatalf("version %d: %+v, %v", v, set, err)
		}
		newest, err := b.Newest(t.Context())
		if err != nil || !same(newest.Snapshot, set.Snapshot) || newest.By != set.By || !newest.At.Equal(set.At) {
			t.Fatalf("version %d is read as %+v, %v", v, newest, err)
		}
	}
	for v := int64(1); v <= 3; v++ {
		if kept, err := b.Version(t.Context(), v); err != nil || !same(kept.Snapshot, rated(t, int(v)).at(v)) {
			t.Errorf("version %d: %+v, %v", v, kept, err)
		}
	}
	for _, v := range []int64{-1, 0, 4} {
		if _, err := b.Version(t.Context(), v); !errors.Is(err, ErrNoVersion) {
			t.Errorf("version %d: %v", v, err)
		}
	}
}

func TestOnlyWhoKnowsTheNewestSets(t *testing.T) {
	b := newBench(t)
	first := mustSet(t, b.Store, 0, rated(t, 1))
	mustSet(t, b.Store, 1, rated(t, 2))
	for _, expected := range []int64{-1, 0, 1, 3, 1 << 60} {
		if _, err := b.Set(t.Context(), expected, rated(t, 9), "ops"); !errors.Is(err, ErrVersionConflict) {
			t.Errorf("on version %d: %v", expected, err)
		}
	}
	if _, err := b.Set(t.Context(), 1, rated(t, 2), "another"); !errors.Is(err, ErrVersionConflict) {
		t.Errorf("what another has set: %v", err)
	}
	// Whoever repeats what he did gets what he got, also when there is a newer one.
	if again, err := b.Set(t.Context(), 0, rated(t, 1), "ops"); err != nil || !same(again.Snapshot, first.Snapshot) || !again.At.Equal(first.At) {
		t.Errorf("again: %+v, %v", again, err)
	}
	for _, by := range []string{"", strings.Repeat("a", ByMax+1), "a\nb"} {
		var invalid *InvalidError
		if _, err := b.Set(t.Context(), 2, rated(t, 3), by); !errors.As(err, &invalid) || invalid.Faults[0].Path != "by" {
			t.Errorf("by %q: %v", by, err)
		}
	}
	if n := b.count(t); n != 2 {
		t.Errorf("%d versions", n)
	}
}

// Of 20 who set on the same version at once, each in a process of his own, one wins, again
// and again, and what is stored is his.
func TestOneOfManyWins(t *testing.T) {
	const setters, versions = 20, 8
	b := newBench(t)
	for v := int64(1); v <= versions; v++ {
		var errs [setters]error
		var wg sync.WaitGroup
		begin := make(chan struct{})
		for i := range errs {
			c, store := rated(t, i+1), NewStore(b.meta)
			wg.Go(func() {
				<-begin
				_, errs[i] = store.Set(t.Context(), v-1, c, "ops")
			})
		}
		close(begin)
		wg.Wait()
		winner := 0
		for i, err := range errs {
			switch {
			case err == nil && winner == 0:
				winner = i + 1
			case err == nil:
				t.Errorf("version %d was set by %d and by %d", v, winner, i+1)
			case !errors.Is(err, ErrVersionConflict):
				t.Errorf("version %d: %v", v, err)
			}
		}
		newest, err := b.Newest(t.Context())
		if err != nil || winner == 0 || !same(newest.Snapshot, rated(t, winner).at(v)) {
			t.Fatalf("version %d was set by %d; stored is %+v, %v", v, winner, newest, err)
		}
	}
	if n := b.count(t); n != versions {
		t.Errorf("%d versions", n)
	}
}

// Fault 35. What is stored is not believed: it must be the text of its hash, and valid.
func TestWhatIsDamagedIsNotRead(t *testing.T) {
	b := newBench(t)
	good := rated(t, 1)
	for _, tc := range []struct {
		name, change string
		args         []any
	}{
		{"no text", "text = ''", nil},
		{"half a text", "text = LEFT(text, 50)", nil},
		{"another text", "text = REPLACE(text, '\"rate\":1', '\"rate\":2')", nil},
		{"another hash", "hash = REPEAT('0', 64)", nil},
		{"no hash", "hash = ''", nil},
		{"a text with a field that isn't known", "text = REPLACE(text, '\"rate\"', '\"speed\"')", nil},
		{"a text that isn't canonical, with its hash", "text = CONCAT(text, ' '), hash = SHA2(text, 256)", nil},
		{"a text that isn't valid, with its hash", "text = REPLACE(text, 'CNY', 'XXX'), hash = SHA2(text, 256)", nil},
		{"a text that says its version", "text = REPLACE(text, '{\"unknown', '{\"version\":1,\"unknown'), hash = SHA2(text, 256)", nil},
		{"version 0", "version = 0", nil},
		{"a negative version", "version = -1", nil},
	} {
		b.exec(t, "DELETE FROM %s")
		b.exec(t, "INSERT INTO %s VALUES (1, ?, ?, 'ops', UTC_TIMESTAMP(3))", good.Hash(), good.Text())
		if _, err := b.Newest(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.exec(t, "UPDATE %s SET "+tc.change)
		var damaged *DamagedError
		if got, err := b.Newest(t.Context()); !errors.As(err, &damaged) || errors.Is(err, cluster.ErrUnavailable) {
			t.Errorf("%s: %+v, %v", tc.name, got, err)
		}
	}
}

// A Set whose answer is lost, wherever it is cut, ends as one that wasn't, and happened
// once.
func TestASetThatIsCutIsSettled(t *testing.T) {
	b := newBench(t)
	store, proxy := b.via(t)
	expected := int64(0)
	for _, point := range []faultproxy.Point{faultproxy.BeforePacket, faultproxy.InPacket, faultproxy.BeforeReply, faultproxy.InReply, faultproxy.AfterReply} {
		proxy.Arm(point, faultproxy.Query("INSERT INTO "+store.table))
		stored, err := store.Set(t.Context(), expected, rated(t, int(point)+1), "ops")
		if err != nil || stored.Version() != expected+1 {
			t.Errorf("cut %s: %v", point, err)
		}
		if proxy.Fired(point) != 1 {
			t.Errorf("%s nothing was cut", point)
		}
		expected++
	}
	if n := b.count(t); n != int(expected) {
		t.Errorf("%d versions", n)
	}

	// Cut every time, it is unknown; the same again settles it.
	for range setTries {
		proxy.Arm(faultproxy.AfterReply, faultproxy.Query("INSERT INTO "+store.table))
	}
	if _, err := store.Set(t.Context(), expected, rated(t, 99), "ops"); !errors.Is(err, ErrUnknown) || proxy.Fired(faultproxy.AfterReply) != 1+setTries {
		t.Errorf("cut %d times: %v", proxy.Fired(faultproxy.AfterReply), err)
	}
	mustSet(t, store, expected, rated(t, 99))
	if n := b.count(t); n != int(expected)+1 {
		t.Errorf("%d versions", n)
	}
}

func TestAStoreThatIsAwayIsUnavailable(t *testing.T) {
	b := newBench(t)
	store, proxy := b.via(t)
	proxy.Refuse(true)
	_, newest := store.Newest(t.Context())
	_, set := store.Set(t.Context(), 0, rated(t, 1), "ops")
	_, watch := Follow(t.Context(), store, quiet)
	for what, err := range map[string]error{"Newest": newest, "Set": set, "Follow": watch} {
		if !errors.Is(err, cluster.ErrUnavailable) || errors.Is(err, ErrUnknown) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// Before octopay migrate has made the table.
	b.exec(t, "DROP TABLE %s")
	_, newest = b.Newest(t.Context())
	_, set = b.Set(t.Context(), 0, rated(t, 1), "ops")
	for what, err := range map[string]error{"Newest": newest, "Set": set} {
		if !errors.Is(err, cluster.ErrUnavailable) {
			t.Errorf("%s without the table: %v", what, err)
		}
	}
}

// Sets of one process come one after the other, and one that waits ends with its caller.
func TestASetWaitsForItsTurn(t *testing.T) {
	b := newBench(t)
	b.turn <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Set(ctx, 0, rated(t, 1), "ops"); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnknown) {
		t.Errorf("behind another: %v", err)
	}
	<-b.turn
	mustSet(t, b.Store, 0, rated(t, 1))
}

// A text as long as there may be one passes, whatever must be escaped in it.
func TestTheLargestConfigIsStored(t *testing.T) {
	b := newBench(t)
	all := make([]string, MerchantsMax)
	for i := range all {
		all[i] = merchant("bid", strconv.Itoa(i+1), "name", strconv.Quote(strings.Repeat(`\"`, nameMax/2)), "notify_url", `"https://shop.example/`+strings.Repeat("'", 340)+`"`)
	}
	c := mustDecode(t, config("merchants", "["+strings.Join(all, ",")+"]"))
	if len(c.Text()) < TextMax*8/10 {
		t.Fatalf("only %d bytes", len(c.Text()))
	}
	set := mustSet(t, b.Store, 0, c)
	if got, err := b.Newest(t.Context()); err != nil || !same(got.Snapshot, set.Snapshot) {
		t.Error(err)
	}
}
