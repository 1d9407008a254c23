package mysqlstore

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/faultproxy"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/lane"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/ordersvc/storetest"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
)

// What the lane says, in the words of the store. No text quotes the server's.
func TestResultOf(t *testing.T) {
	server := func(n uint16) error { return &mysql.MySQLError{Number: n, Message: "secret"} }
	for _, c := range []struct {
		name  string
		err   error
		want  error
		fault bool // neither unknown nor unavailable
	}{
		{"stored", nil, nil, false},
		{"unknown", lane.ErrUnknown, ordersvc.ErrUnknown, false},
		{"no time left", lane.ErrNotRun, cluster.ErrUnavailable, false},
		{"not sent", driver.ErrBadConn, cluster.ErrUnavailable, false},
		{"no lock", server(1205), cluster.ErrUnavailable, false},
		{"another epoch", server(1242), cluster.ErrUnavailable, false},
		{"read-only", server(1290), cluster.ErrUnavailable, false},
		{"no such table", server(1146), cluster.ErrUnavailable, false},
		{"refused", server(1406), nil, true},
		{"duplicate", server(1062), nil, true},
		{"too big", server(1153), nil, true},
	} {
		r := resultOf(lane.Outcome[ordersvc.Result]{Err: c.err})
		unknown, away := errors.Is(r.Err, ordersvc.ErrUnknown), errors.Is(r.Err, cluster.ErrUnavailable)
		ok := errors.Is(r.Err, c.want) && (!unknown || !away)
		if c.fault {
			ok = r.Err != nil && !unknown && !away
		}
		if !ok {
			t.Errorf("%s: %v", c.name, r.Err)
		}
		if r.Err != nil && strings.Contains(r.Err.Error(), "secret") {
			t.Errorf("%s: the text holds the server's: %v", c.name, r.Err)
		}
	}
}

func TestErrors(t *testing.T) {
	stack := localstack.Test(t, localstack.UID)
	for _, c := range []struct {
		name string
		test func(*testing.T, *world)
	}{
		{"the journal comes back", journal},
		{"a read that is cut off", cutRead},
		{"a row that cannot be read", unreadable},
		{"an answer of another form", strangeAnswer},
		{"an insert that has to wait for another one", turns},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, newWorld(t, stack)) })
	}
}

func journal(t *testing.T, w *world) {
	o := storetest.Order(storetest.Buyer(1, 4), "journal")
	w.made(t, o, w.insert(o)[0])
	want := []schema.Entry{
		{OrderID: o.ID, Seq: 2, UID: o.UID, BID: o.BID, Op: "pay:wechat:42", Kind: schema.KindPaid, Amount: o.Amount, Currency: "CNY",
			From: schema.Created, To: schema.Paid, Ref: "wechat:42", Actor: "channel", KeyID: "k1", RequestID: "r1", RecordedAt: o.CreatedAt() + 7},
		{OrderID: o.ID, Seq: 3, UID: o.UID, BID: o.BID, Op: "refund:7", Kind: schema.KindRefunded, Amount: 5, Currency: "CNY",
			From: schema.Paid, To: schema.PartiallyRefunded, Reason: "八爪鱼 🐙", Actor: "merchant", RequestID: "r2", RecordedAt: o.CreatedAt() + 9},
	}
	table := strings.Replace(w.table(o.UID), "order_", "journal_", 1)
	places := "(?" + strings.Repeat(",?", len(schema.EntryColumns)-1) + ")"
	for _, i := range []int{1, 0} {
		if _, err := w.admin.Exec("INSERT INTO "+table+" ("+schema.List(schema.EntryColumns)+") VALUES "+places, want[i].Values()...); err != nil {
			t.Fatal(err)
		}
	}
	got, err := w.Journal(background, storetest.Place(o.UID), o.ID)
	if err != nil || len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

func cutRead(t *testing.T, w *world) {
	o := storetest.Order(storetest.Buyer(1, 5), "cut-read")
	w.made(t, o, w.insert(o)[0])
	cut := w.proxy.Arm(faultproxy.BeforeReply, faultproxy.Query("WHERE id="))
	if _, err := w.Order(background, storetest.Place(o.UID), o.ID); !errors.Is(err, cluster.ErrUnavailable) {
		t.Errorf("got %v, want unavailable", err)
	}
	<-cut.Done()
	if got, err := w.Order(background, storetest.Place(o.UID), o.ID); err != nil || got.ID != o.ID {
		t.Errorf("afterwards: %+v, %v", got, err)
	}
	// The filter's first step, and the page.
	for _, part := range []string{"OFFSET", "AND status="} {
		cut := w.proxy.Arm(faultproxy.BeforeReply, faultproxy.Query(part))
		q := ordersvc.Query{UID: o.UID, Before: 1<<63 - 1, Limit: 1, Status: schema.Created}
		if page, err := w.List(background, storetest.Place(o.UID), q); !errors.Is(err, cluster.ErrUnavailable) || len(page.Orders) != 0 {
			t.Errorf("%s: got %+v, %v, want unavailable", part, page, err)
		}
		<-cut.Done()
	}
}

// A value that this version doesn't know is a fault, not an absent database.
func unreadable(t *testing.T, w *world) {
	o := storetest.Order(storetest.Buyer(1, 6), "unreadable")
	w.made(t, o, w.insert(o)[0])
	table := w.table(o.UID)
	w.exec(t, "ALTER TABLE "+table+" MODIFY status ENUM('created','paid','partially_refunded','refunded','closed','novel') CHARACTER SET ascii COLLATE ascii_bin NOT NULL")
	if _, err := w.admin.Exec("UPDATE "+table+" SET status = 'novel' WHERE id = ?", o.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Order(background, storetest.Place(o.UID), o.ID); err == nil || errors.Is(err, cluster.ErrUnavailable) || errors.Is(err, ordersvc.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

func turns(t *testing.T, w *world) {
	c := w.creates[0]
	if err := c.lock(time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := c.lock(time.Millisecond); !errors.Is(err, cluster.ErrUnavailable) {
		t.Errorf("a second holder: %v", err)
	}
	closed := make(chan error)
	go func() { closed <- w.Close() }()
	select {
	case <-closed:
		t.Fatal("closed during a transaction")
	case <-time.After(10 * time.Millisecond):
	}
	c.unlock()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	o := storetest.Order(storetest.Buyer(1, 7), "closed")
	if r := w.insert(o)[0]; !errors.Is(r.Err, cluster.ErrUnavailable) {
		t.Errorf("a closed store: %+v", r)
	}
	w.absent(t, o)
}

// A packet whose answer has another form than ours is not taken for an answer.
func strangeAnswer(t *testing.T, w *world) {
	c, err := w.cluster.Database(shardmap.UID, 1).Conn(background)
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Discard(c)
	for name, query := range map[string]string{
		"no row":   "SELECT 1 FROM DUAL WHERE 1 = 0",
		"two rows": "SELECT 1 UNION SELECT 2",
		"no set":   "SELECT 1",
		"a text":   "SELECT 'x'",
	} {
		rows, err := c.QueryContext(background, query)
		if err != nil {
			t.Fatal(err)
		}
		var n int
		err = value(rows, &n)
		if err == nil {
			err = next(rows, &n)
		}
		if err == nil || errors.Is(err, sql.ErrNoRows) {
			t.Errorf("%s: %v", name, err)
		}
		_ = rows.Close()
	}
}
