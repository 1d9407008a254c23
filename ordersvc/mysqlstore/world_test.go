package mysqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/faultproxy"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/ordersvc/storetest"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/slot"
)

var background = context.Background()

// A world is a store behind a proxy, and the same databases seen by who may do
// everything with them.
type world struct {
	*Store
	stack *localstack.Stack // without the proxy
	admin *sql.DB
	proxy *faultproxy.Proxy
}

func newWorld(t testing.TB, stack *localstack.Stack) *world {
	proxy := faultproxy.New(t, stack.Server("uid-a").Address())
	return &world{open(t, stack.Via(t, "uid-a", proxy.Addr())), stack, stack.Admin(t, "uid-a"), proxy}
}

// exec runs statements of the admin's.
func (w *world) exec(t testing.TB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := w.admin.ExecContext(background, s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// number reads one number.
func (w *world) number(t testing.TB, query string, args ...any) (n int) {
	t.Helper()
	if err := w.admin.QueryRowContext(background, query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func (w *world) schema(database int) string {
	return w.stack.Map.Database(shardmap.UID, database).Schema
}

func (w *world) table(uid int64) string {
	p := storetest.Place(uid)
	return orderTable(w.schema(p.Database), p.Table)
}

func (w *world) insert(orders ...schema.Order) []ordersvc.Result {
	return w.Insert(background, storetest.Place(orders[0].UID).Database, orders)
}

// count returns how many rows an order's key has.
func (w *world) count(t testing.TB, o schema.Order) int {
	t.Helper()
	return w.number(t, "SELECT COUNT(*) FROM "+w.table(o.UID)+" WHERE uid=? AND bid=? AND out_trade_no=?", o.UID, o.BID, o.OutTradeNo)
}

// made fails the test unless r says that o was made, and exactly that is stored.
func (w *world) made(t testing.TB, o schema.Order, r ordersvc.Result) {
	t.Helper()
	if r.Err != nil || r.Taken {
		t.Errorf("order %s was answered with %+v, want it made", o.OutTradeNo, r)
		return
	}
	o.UpdatedAt = r.Order.UpdatedAt
	got, err := w.Find(background, storetest.Place(o.UID), keyOf(&o))
	if err != nil || r.Order != o || got != o {
		t.Errorf("order %s: answered %+v, stored %+v, %v", o.OutTradeNo, r.Order, got, err)
	}
	if n := w.count(t, o); n != 1 {
		t.Errorf("order %s is stored %d times", o.OutTradeNo, n)
	}
}

func (w *world) absent(t testing.TB, o schema.Order) {
	t.Helper()
	if n := w.count(t, o); n != 0 {
		t.Errorf("order %s is stored %d times, want none", o.OutTradeNo, n)
	}
}

// session runs a statement on the connection that the store writes a database's orders
// with, and makes one if there is none.
func (w *world) session(t testing.TB, database int, statement string) {
	t.Helper()
	c := w.creates[database-1]
	err := c.lock(time.Minute)
	if err == nil {
		defer c.unlock()
		err = c.do(background, func(conn *sql.Conn, _ shardmap.Epoch) error {
			_, err := conn.ExecContext(background, statement)
			return err
		})
	}
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// connected makes a connection for a database's orders, so that a short budget is a
// transaction's alone.
func (w *world) connected(t testing.TB, database int) {
	t.Helper()
	w.session(t, database, "DO 1")
}

// waitsForLocks makes the store wait for as long as a test takes where it would give up
// after a second.
func (w *world) waitsForLocks(t testing.TB, database int) {
	t.Helper()
	w.session(t, database, "SET innodb_lock_wait_timeout = 100")
}

// orders returns n new orders of each table of a database.
func orders(database, each int, name string) (out []schema.Order) {
	for table := range slot.Tables {
		for n := range each {
			out = append(out, storetest.Order(storetest.Buyer(database, table), fmt.Sprintf("%s-%d-%d", name, table, n)))
		}
	}
	return out
}

// trap makes inserts into a table fail with an error number of the server, for orders
// with this subject.
func (w *world) trap(t testing.TB, table, subject string, number int) {
	t.Helper()
	name := strings.Replace(table, ".order_", ".trap_", 1)
	w.exec(t, fmt.Sprintf("CREATE TRIGGER %s BEFORE INSERT ON %s FOR EACH ROW IF NEW.subject = '%s' THEN SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = %d; END IF", name, table, subject, number))
	t.Cleanup(func() { w.exec(t, "DROP TRIGGER "+name) })
}

// isPacket matches what an Insert sends.
var isPacket = faultproxy.Query("COMMIT;SELECT @t")

// packets counts and keeps the packets of Inserts that reach the proxy from now on.
func (w *world) packets() *seen {
	s := &seen{}
	w.proxy.Arm(faultproxy.BeforePacket, func(packet []byte) bool {
		if isPacket(packet) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.texts = append(s.texts, string(packet[1:]))
		}
		return false
	})
	return s
}

type seen struct {
	mu    sync.Mutex
	texts []string
}

func (s *seen) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.texts)
}

// A holder is a session of another client with an open transaction.
type holder struct{ conn *sql.Conn }

func (w *world) holder(t testing.TB) holder {
	t.Helper()
	c, err := w.admin.Conn(background)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cluster.Discard(c) })
	h := holder{c}
	h.exec(t, "BEGIN")
	return h
}

func (h holder) exec(t testing.TB, statement string, args ...any) {
	t.Helper()
	if _, err := h.conn.ExecContext(background, statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// insert inserts an order with the key of another one, and returns it. From then on
// the holder has the lock of that key.
func (h holder) insert(t testing.TB, table string, of schema.Order) schema.Order {
	t.Helper()
	o := storetest.Order(of.UID, of.OutTradeNo)
	o.UpdatedAt = o.CreatedAt()
	places := "(?" + strings.Repeat(",?", len(schema.OrderColumns)-1) + ")"
	h.exec(t, "INSERT INTO "+table+" ("+orderColumns+") VALUES "+places, o.Values()...)
	return o
}

// waiting returns how many inserts into a table wait for a lock.
func (w *world) waiting(t testing.TB, table string) int {
	return w.number(t, "SELECT COUNT(*) FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND state = 'Update' AND info LIKE ?",
		"INSERT INTO "+strings.ReplaceAll(table, "_", "\\_")+"%")
}
