package binlog

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/faultproxy"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/source"
)

// Tests that change the server share one of their own; it runs in Asia/Shanghai.
func TestAServerOfItsOwn(t *testing.T) {
	r := private(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *rig)
	}{
		{"SettingsAreRefusedByName", settings},
		{"TheOwnerRowIsChecked", owner},
		{"AnEventCanArriveBeforeItsRowIsReadable", unreadable},
		{"StampsAreTrue", stampsAreTrue},
		{"ATransactionHeldOpenHoldsTheStamp", heldOpen},
		{"ATransactionThatBeganJustNowIsNoFault", justNow},
		{"AStampThatIsNotFreshIsNone", notFresh},
		{"AServerThatDiesIsReadOnWhenItIsBack", killed},
		{"WhatIsPurgedIsAnError", purged}, // last: it forgets
	} {
		t.Run(test.name, func(t *testing.T) {
			mine := *r
			mine.t = t
			test.run(t, &mine)
		})
	}
}

func settings(t *testing.T, r *rig) {
	good := map[string]string{"binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_metadata": "FULL"}
	t.Cleanup(func() {
		for name, value := range good {
			r.exec("SET GLOBAL " + name + " = " + value)
		}
	})
	for name, value := range map[string]string{"binlog_format": "MIXED", "binlog_row_image": "MINIMAL", "binlog_row_metadata": "NO_LOG"} {
		r.exec("SET GLOBAL " + name + " = " + value)
		_, err := r.src.Open(t.Context(), r.here())
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), value) || !strings.Contains(err.Error(), "uid-a") {
			t.Errorf("with %s = %s: %v", name, value, err)
		}
		r.exec("SET GLOBAL " + name + " = " + good[name])
		if reader, err := r.src.Open(t.Context(), r.here()); err != nil {
			t.Errorf("with %s = %s: %v", name, good[name], err)
		} else {
			_ = reader.Close()
		}
	}
	// What was written meanwhile can't be read by names.
	r.exec("SET GLOBAL binlog_row_metadata = NO_LOG")
	start := r.here()
	r.insertOrder(newOrder(1))
	r.exec("SET GLOBAL binlog_row_metadata = FULL")
	reader := r.open(start)
	if _, err := reader.Next(t.Context()); err == nil || !strings.Contains(err.Error(), "binlog_row_metadata") || !strings.Contains(err.Error(), "order_1") {
		t.Errorf("a row without names: %v", err)
	}
}

// Marks of a wrong server would promise what isn't so.
func owner(t *testing.T, r *rig) {
	db := r.stack.Map.Database(shardmap.UID, 3)
	for _, set := range []string{"epoch = epoch + 1", "cluster = 'bid'", "`database` = 4"} {
		r.exec("UPDATE `" + db.Schema + "`.owner SET " + set)
		if _, err := r.src.Open(t.Context(), r.here()); err == nil || !strings.Contains(err.Error(), db.Schema) {
			t.Errorf("open with %s: %v", set, err)
		}
		if _, err := r.src.Clock(t.Context()); err == nil || !strings.Contains(err.Error(), db.Schema) {
			t.Errorf("clock with %s: %v", set, err)
		}
		r.exec("UPDATE `"+db.Schema+"`.owner SET epoch = ?, cluster = 'uid', `database` = 3", r.stack.Map.Epoch())
	}
	reader := r.open(r.here())
	_ = reader.Close()
}

// The server sends an event when it is in the log, before InnoDB commits. So a row is
// taken from its event, and never read because an event came.
func unreadable(t *testing.T, r *rig) {
	// Semi-synchronous replication, without any semi-synchronous replica, holds a
	// commit between the two.
	r.exec("SET GLOBAL rpl_semi_sync_master_timeout = 60000")
	r.exec("SET GLOBAL rpl_semi_sync_master_enabled = ON")
	released := false
	release := func() {
		if !released {
			released = true
			r.exec("SET GLOBAL rpl_semi_sync_master_enabled = OFF")
		}
	}
	t.Cleanup(release)
	start := r.here()
	reader := r.open(start)
	o := newOrder(11)
	committed := make(chan error, 1)
	go func() {
		_, err := r.admin.ExecContext(context.Background(), insert(r.table(11, "order"), schema.OrderColumns, 1), o.Values()...)
		committed <- err
	}()
	got := r.next(reader)
	if len(got.Orders) != 1 || got.Orders[0] != o || got.End.IsZero() {
		t.Fatalf("the event says %+v", got)
	}
	readable := func() (n int) {
		if err := r.admin.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+r.table(11, "order")+" WHERE id = ?", o.ID).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if readable() != 0 {
		t.Error("the row is readable already: this server shows nothing")
	}
	select {
	case err := <-committed:
		t.Errorf("the commit wasn't held: %v", err)
	default:
	}
	// A stamp made now lies before it, as it must: its transaction is listed still.
	clock := r.clock()
	stamp := r.stamp(clock)
	if stamp.At > schema.MillisOf(time.Now()) {
		t.Errorf("the stamp is in the future: %d", stamp.At)
	}
	release()
	if err := <-committed; err != nil {
		t.Fatal(err)
	}
	if readable() != 1 {
		t.Error("the row isn't readable after its commit")
	}
}

func killed(t *testing.T, r *rig) {
	start := r.here()
	reader := r.open(start)
	first := newOrder(12)
	r.insertOrder(first)
	batches := r.until(reader, r.here())
	end := batches[len(batches)-1].End
	server := r.stack.Server("uid-a")
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Next(t.Context()); err == nil {
		t.Error("a dead server is read on")
	}
	if _, err := r.src.Open(t.Context(), end); err == nil {
		t.Error("a dead server is opened")
	}
	if _, err := r.src.Now(t.Context()); err == nil {
		t.Error("a dead server tells the time")
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually.Nil(t, "the server answers", func() error { return r.admin.PingContext(t.Context()) })
	second := newOrder(12)
	r.insertOrder(second)
	var again source.Reader
	eventually.Nil(t, "it is opened", func() (err error) { again, err = r.src.Open(t.Context(), end); return err })
	t.Cleanup(func() { _ = again.Close() })
	if diff := cmp.Diff([]schema.Order{second}, rowsOf(r.until(again, r.here())).Orders); diff != "" {
		t.Errorf("orders differ:\n%s", diff)
	}
	if now, err := r.src.Now(t.Context()); err != nil || time.Since(now.Time()).Abs() > time.Minute {
		t.Errorf("the server's time in UTC is %s, %v", now.Time(), err)
	}
}

func purged(t *testing.T, r *rig) {
	old := r.here()
	r.insertOrder(newOrder(13))
	r.exec("FLUSH BINARY LOGS")
	kept := r.here()
	want := newOrder(13)
	r.insertOrder(want)
	logs := func() (names []string) {
		rows, err := r.admin.Query("SHOW BINARY LOGS")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var name, size string
			if err := rows.Scan(&name, &size); err != nil {
				t.Fatal(err)
			}
			names = append(names, name)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		return names
	}
	all := logs()
	newest := all[len(all)-1]
	eventually.Nil(t, "the old logs are gone", func() error {
		r.exec("PURGE BINARY LOGS TO '" + newest + "'") // a log that a replica still reads stays
		if logs()[0] != newest {
			return errNotYet
		}
		return nil
	})
	for _, after := range []source.Position{old, {}} {
		_, err := r.src.Open(t.Context(), after)
		var p *source.PurgedError
		if !errors.Is(err, source.ErrPurged) || !errors.As(err, &p) || p.Oldest.String() != kept.String() || !strings.Contains(err.Error(), "uid-a") {
			t.Errorf("behind %q: %v", after, err)
		}
	}
	if got := rowsOf(r.until(r.open(kept), r.here())); len(got.Orders) != 1 || got.Orders[0] != want {
		t.Errorf("behind %s: %+v", kept, got)
	}
	// A position that the server has not come to is no purge: nothing can be refilled.
	ahead := kept.With(source.GTID{Domain: 101, Server: 101, Seq: 1 << 40})
	if _, err := r.src.Open(t.Context(), ahead); err == nil || errors.Is(err, source.ErrPurged) {
		t.Errorf("behind %s: %v", ahead, err)
	}
}

// Fault 16: an offset saved inside a transaction loses the rest of it. The connection
// is cut at every place; from the last end everything comes again, whole.
func TestFault16NothingIsSavedInsideATransaction(t *testing.T) {
	r := shared(t)
	proxy := faultproxy.New(t, r.stack.Server("uid-a").Address())
	via := newRig(t, r.stack.Via(t, "uid-a", proxy.Addr()))
	start := r.here()
	var want []schema.Order
	for range 3 { // large ones: many events, several parts
		tx, err := r.admin.Begin()
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			var args []any
			for range 300 {
				o := newOrder(14)
				want = append(want, o)
				args = append(args, o.Values()...)
			}
			if _, err := tx.Exec(insert(r.table(14, "order"), schema.OrderColumns, 300), args...); err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	end := r.here()
	cuts, inside := 0, 0
	position, got := start, map[int64]schema.Order{}
	for parts := 0; !position.Covers(end); parts++ {
		var reader source.Reader
		// Also its pool's connections were cut, which it can notice late.
		eventually.Nil(t, "it is opened", func() (err error) { reader, err = via.src.Open(t.Context(), position); return err })
		for n := 0; ; n++ {
			// Each life reads one part more than the last, then its connection is cut.
			if n == parts%7 {
				cuts += min(1, proxy.CutAll())
				_ = reader.Close()
				break
			}
			b, err := reader.Next(t.Context())
			if err != nil {
				_ = reader.Close()
				break
			}
			for _, o := range b.Orders {
				got[o.ID] = o
			}
			if b.End.IsZero() {
				inside++
			} else {
				position = b.End
			}
			if position.Covers(end) {
				_ = reader.Close()
				break
			}
		}
	}
	if cuts == 0 || inside == 0 {
		t.Errorf("%d cuts, %d parts inside a transaction: the test shows nothing", cuts, inside)
	}
	for _, o := range want {
		if got[o.ID] != o {
			t.Fatalf("order %d was lost, %d of %d are there", o.ID, len(got), len(want))
		}
	}
}

// An account that lacks a right is named, with the server and what it lacks.
func TestAnAccountThatLacksARightIsNamed(t *testing.T) {
	r := shared(t)
	account := "octopay_" + strings.ToLower(rand.Text()[:12])
	password := rand.Text()
	admin, err := r.admin.Conn(r.ctx())
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	exec := func(text string) {
		t.Helper()
		if _, err := admin.ExecContext(r.ctx(), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	exec("SET sql_log_bin = 0")
	exec("CREATE USER '" + account + "'@'%' IDENTIFIED BY '" + password + "'")
	defer exec("DROP USER '" + account + "'@'%'")
	try := func(password string) error {
		t.Helper()
		src, err := New(r.stack.Map, r.stack.Map.Servers(shardmap.UID)[0], Config{User: account, Password: password})
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close()
		reader, err := src.Open(r.ctx(), r.here())
		if err != nil {
			return err
		}
		defer reader.Close()
		return nil
	}
	for _, step := range []struct{ grant, want string }{
		{"", "access denied: the user may not do this with this table (server error 1142)"},
		{"GRANT SELECT ON `" + strings.ReplaceAll(r.stack.Map.Prefix(), "_", `\_`) + "octopay\\_uid\\_%`.*", "access denied: the user lacks a global privilege (server error 1227)"},
		{"GRANT BINLOG MONITOR ON *.*", "server error"},
		{"GRANT REPLICATION SLAVE ON *.*", ""},
	} {
		if step.grant != "" {
			exec(step.grant + " TO '" + account + "'@'%'")
		}
		err := try(password)
		if step.want == "" && err != nil || step.want != "" && (err == nil || !strings.Contains(err.Error(), "binlog of uid-a: ") || !strings.Contains(err.Error(), "account "+account) || !strings.Contains(err.Error(), step.want)) {
			t.Errorf("after %q: %v, want %q", step.grant, err, step.want)
		}
	}
	if err := try(password + "x"); err == nil || !strings.Contains(err.Error(), "account "+account) || !strings.Contains(err.Error(), "the password is wrong") || strings.Contains(err.Error(), password) {
		t.Errorf("a wrong password: %v", err)
	}
}
