package mysqlstore

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/ordersvc/storetest"
	"github.com/octopay/octopay/schema"
)

// A server that allows no prepared statement and lives in Shanghai, and a process
// that does so too; and what else can only be done to a server of one's own.
func TestOwnServer(t *testing.T) {
	here := time.Local
	time.Local = time.FixedZone("CST", 8*60*60)
	t.Cleanup(func() { time.Local = here })
	w := newWorld(t, localstack.Private(t, localstack.Options{
		Need: []localstack.Need{localstack.UID},
		Args: []string{"--max-prepared-stmt-count=0", "--default-time-zone=+08:00"},
		Env:  []string{"TZ=CST-8"},
	}))
	t.Run("fault 23, 24, 25: all works", func(t *testing.T) {
		var said *mysql.MySQLError
		if _, err := w.admin.Prepare("SELECT 1"); !errors.As(err, &said) || said.Number != 1461 {
			t.Fatalf("a statement could be prepared: %v", err)
		}
		storetest.Run(t, func(testing.TB) ordersvc.Store { return w })
	})
	for _, c := range []struct {
		name string
		test func(*testing.T, *world)
	}{
		{"fault 23: every time is stored in UTC", timesInUTC},
		{"statements and commits are interrupted", interrupted},
		{"the server is read-only", readOnly},
		{"the server freezes", frozen},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, w) })
	}
}

func timesInUTC(t *testing.T, w *world) {
	now := w.number(t, "SELECT TIMESTAMPDIFF(MINUTE, UTC_TIMESTAMP(), NOW())")
	system := w.number(t, "SELECT TIMESTAMPDIFF(MINUTE, UTC_TIMESTAMP(), CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', 'SYSTEM'))")
	if _, offset := time.Now().Zone(); now != 480 || system != 480 || offset != 480*60 {
		t.Fatalf("the session is %d minutes from UTC, the server %d, this process %d", now, system, offset/60)
	}
	o := storetest.Order(storetest.Buyer(1, 1), "utc")
	r := w.insert(o)[0]
	w.made(t, o, r)
	var expires, updated string
	err := w.admin.QueryRow("SELECT CAST(expires_at AS CHAR), CAST(updated_at AS CHAR) FROM "+w.table(o.UID)+" WHERE id=?", o.ID).Scan(&expires, &updated)
	if err != nil {
		t.Fatal(err)
	}
	const layout = "2006-01-02 15:04:05.000"
	if want := o.ExpiresAt.Time().Format(layout); expires != want {
		t.Errorf("expires_at is stored as %s, want %s", expires, want)
	}
	stored, err := time.ParseInLocation(layout, updated, time.UTC)
	if err != nil || schema.MillisOf(stored) != r.Order.UpdatedAt || time.Since(stored).Abs() > time.Minute {
		t.Errorf("updated_at is stored as %s (%v), answered as %v, now it is %v", updated, err, r.Order.UpdatedAt.Time(), time.Now().UTC())
	}
}

// While orders are inserted, another session interrupts a statement of each insert,
// whatever it is at, the COMMIT among them. Each insert is settled.
//
// Interrupted between two statements of a packet, MariaDB 10.11 sends nothing more,
// not even an error, and waits: only a deadline ends that.
func interrupted(t *testing.T, w *world) {
	full := w.budget
	defer func() { w.budget = full }()
	w.budget.Transaction = 300 * time.Millisecond
	packets := w.packets()
	kills, again := 0, 0
	for inserts := 1; again < 5; inserts++ {
		if inserts > 1000 {
			t.Fatalf("of %d interrupted statements %d were told so", kills, again)
		}
		all := orders(2, 1, fmt.Sprintf("interrupted-%d", inserts))
		w.connected(t, 2)
		results := make(chan []ordersvc.Result, 1)
		go func() { results <- w.insert(all...) }()
		for done := 0; done == 0 && len(results) == 0; {
			done = w.interrupt(t)
			kills += done
		}
		for i, r := range <-results {
			w.made(t, all[i], r)
		}
		again = len(packets.all()) - inserts
	}
}

// interrupt interrupts a statement of the store that runs now, if there is one, and
// returns how many.
func (w *world) interrupt(t *testing.T) int {
	var id int64
	err := w.admin.QueryRow("SELECT COALESCE(MAX(id), 0) FROM information_schema.processlist WHERE user = ? AND (info LIKE 'INSERT%' OR info LIKE 'COMMIT%' OR info = 'SELECT @t')", w.stack.User).Scan(&id)
	if err != nil {
		t.Fatal(err)
	}
	if id == 0 {
		return 0
	}
	if _, err := w.admin.Exec("KILL QUERY " + strconv.FormatInt(id, 10)); err != nil {
		return 0 // it has gone
	}
	return 1
}

func readOnly(t *testing.T, w *world) {
	w.exec(t, "SET GLOBAL read_only = ON")
	o := storetest.Order(storetest.Buyer(3, 1), "read-only")
	if r := w.insert(o)[0]; !errors.Is(r.Err, cluster.ErrUnavailable) {
		t.Errorf("got %+v, want unavailable", r)
	}
	w.exec(t, "SET GLOBAL read_only = OFF")
	w.absent(t, o)
	w.made(t, o, w.insert(o)[0])
}

// A frozen server answers nothing: the outcome is unknown when the time is up, and
// the same call settles it when the server is back.
func frozen(t *testing.T, w *world) {
	first := storetest.Order(storetest.Buyer(4, 1), "first")
	w.made(t, first, w.insert(first)[0])
	full := w.budget
	w.budget.Transaction, w.budget.Settle = 300*time.Millisecond, 300*time.Millisecond
	server := w.stack.Server("uid-a")
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	o := storetest.Order(storetest.Buyer(4, 1), "frozen")
	r := w.insert(o)[0]
	if err := server.Continue(); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(r.Err, ordersvc.ErrUnknown) {
		t.Errorf("got %+v, want unknown", r)
	}
	w.budget = full
	w.made(t, o, w.insert(o)[0])
}
