package syncer_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer"
	"github.com/octopay/octopay/syncer/mirror"
	"github.com/octopay/octopay/syncer/stream"
)

// A rig is a stack, and what a test does with it.
type rig struct {
	t      *testing.T
	stack  *localstack.Stack
	c      *cluster.Cluster
	nc     *nats.Conn
	mirror *mirror.SQL
	log    *slog.Logger
	lines  *lines
}

func newRig(t *testing.T, s *localstack.Stack) *rig {
	t.Helper()
	r := &rig{t: t, stack: s, c: s.Cluster(t), lines: &lines{}}
	r.mirror = mirror.NewSQL(r.c)
	r.log = slog.New(slog.NewTextHandler(r.lines, nil))
	r.nc = r.connect()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("the log:\n" + r.lines.String())
		}
	})
	return r
}

func (r *rig) connect() *nats.Conn {
	r.t.Helper()
	nc, err := stream.Connect(r.stack.NATSURL, "test")
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(nc.Close)
	return nc
}

func (r *rig) service(c stream.Config) *syncer.Service {
	r.t.Helper()
	s, err := syncer.OnMariaDB(r.c, r.nc, syncer.MariaDBConfig{Stream: c, Log: r.log})
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// run runs a service until stop is called, at the latest at the test's end.
func (r *rig) run(s *syncer.Service) (stop func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-done:
				if err != nil {
					r.t.Errorf("Run: %v", err)
				}
			case <-time.After(eventually.Patience):
				r.t.Error("Run does not stop")
			}
			if err := s.Close(); err != nil {
				r.t.Errorf("Close: %v", err)
			}
		})
	}
	r.t.Cleanup(stop)
	return stop
}

// lines keeps a log.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lines) has(s string) bool { return strings.Contains(l.String(), s) }

// patient calls f until the database answers: on a machine that runs many servers at
// once one can be slower than the service waits for.
func patient(f func() error) (err error) {
	for end := time.Now().Add(eventually.Patience); ; {
		if err = f(); !errors.Is(err, cluster.ErrUnavailable) || time.Now().After(end) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

var ids = struct {
	mu   sync.Mutex
	next int64
}{next: idgen.FirstAt(time.Now())}

// newOrder returns an order with an id of its own.
func newOrder(uid, bid int64) schema.Order {
	ids.mu.Lock()
	ids.next++
	id := ids.next
	ids.mu.Unlock()
	return schema.Order{
		ID: id, UID: uid, BID: bid, OutTradeNo: fmt.Sprintf("n-%d", id), Amount: 1 + rand.Int64N(1e6), Currency: "CNY",
		Subject: "Le Max 2 \U0001F600", Metadata: `{"sku":"lm2-64"}`, Status: schema.Created, Ver: 1,
		CreatedBy: "app", RequestID: "r", ExpiresAt: schema.MillisOf(time.Now().Add(time.Hour)),
	}
}

// A writer writes to the truth as a lane does.
type writer struct {
	t    testing.TB
	conn *sql.Conn
	db   *cluster.Database
	m    *shardmap.Map
}

func (r *rig) writer(database int) *writer {
	r.t.Helper()
	db := r.c.Database(shardmap.UID, database)
	conn, err := db.Conn(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	w := &writer{t: r.t, conn: conn, db: db, m: r.c.Map()}
	// A test that stands still for a while isn't a lane that froze.
	w.exec("SET idle_transaction_timeout = 0")
	return w
}

func (w *writer) close() { cluster.Discard(w.conn) }

func (w *writer) exec(text string, args ...any) {
	w.t.Helper()
	if _, err := w.conn.ExecContext(context.Background(), text, args...); err != nil {
		w.t.Errorf("%s: %v", text, err)
	}
}

// begin opens a transaction, share-locks the owner row and takes the time.
func (w *writer) begin() schema.Millis {
	w.t.Helper()
	w.exec("BEGIN; SELECT epoch FROM `" + w.db.Schema() + "`.owner WHERE id = 1 LOCK IN SHARE MODE; SET @t = UTC_TIMESTAMP(3)")
	var at schema.Millis
	if err := w.conn.QueryRowContext(context.Background(), "SELECT @t").Scan(&at); err != nil {
		w.t.Error(err)
	}
	return at
}

func (w *writer) table(uid int64, name string) string {
	return fmt.Sprintf("`%s`.%s_%d", w.db.Schema(), name, w.m.Locate(uid).Table)
}

func insert(table string, columns []string) string {
	return "INSERT INTO " + table + " (" + schema.List(columns) + ") VALUES (?" + strings.Repeat(",?", len(columns)-1) + ")"
}

// create writes an order into the transaction.
func (w *writer) create(o schema.Order) {
	w.t.Helper()
	w.exec(insert(w.table(o.UID, "order"), schema.OrderColumns), o.Values()...)
}

// change writes the next state of an order, and its journal entry.
func (w *writer) change(o schema.Order, at schema.Millis) schema.Order {
	w.t.Helper()
	from := o.Status
	o.Ver++
	o.Status = schema.Status(1 + o.Ver%5)
	o.UpdatedAt = max(at, o.UpdatedAt)
	w.exec("UPDATE "+w.table(o.UID, "order")+" SET status = ?, ver = ?, updated_at = ? WHERE id = ? AND ver = ?", o.Status, o.Ver, o.UpdatedAt, o.ID, o.Ver-1)
	e := schema.Entry{
		OrderID: o.ID, Seq: o.Ver, UID: o.UID, BID: o.BID, Op: fmt.Sprint("op", o.Ver), Kind: schema.KindPaid,
		From: from, To: o.Status, Actor: "channel", RequestID: "r", RecordedAt: o.UpdatedAt,
	}
	w.exec(insert(w.table(o.UID, "journal"), schema.EntryColumns), e.Values()...)
	return o
}

func (w *writer) commit() {
	w.t.Helper()
	w.exec("COMMIT")
}

// put writes orders of one database in one transaction and returns them as stored.
func (r *rig) put(orders ...schema.Order) []schema.Order {
	r.t.Helper()
	w := r.writer(r.c.Map().Locate(orders[0].UID).Database)
	defer w.close()
	at := w.begin()
	for i := range orders {
		orders[i].UpdatedAt = max(at, orders[i].CreatedAt())
		w.create(orders[i])
	}
	w.commit()
	return orders
}

// A load writes orders and changes of them, as four lanes do.
type load struct {
	wg   sync.WaitGroup
	mu   sync.Mutex
	more sync.Cond
	n    int // transactions
	done bool
}

// loadPause is the pace of one lane: enough to be in the way of every fault, and not so
// much that comparing all rows is what a test does.
const loadPause = 15 * time.Millisecond

func (r *rig) load() *load {
	l := &load{}
	l.more.L = &l.mu
	for lane := range 4 {
		database := 1 + 2*lane
		w := r.writer(database)
		l.wg.Go(func() {
			defer w.close()
			var orders []schema.Order
			pace := time.NewTicker(loadPause)
			defer pace.Stop()
			for l.next() && !r.t.Failed() {
				<-pace.C
				at := w.begin()
				for range 1 + rand.IntN(4) {
					if i := rand.IntN(2 * (len(orders) + 1)); i < len(orders) {
						orders[i] = w.change(orders[i], at)
						continue
					}
					o := newOrder(int64((database-1)*10+rand.IntN(10)+80*rand.IntN(5))+80, 1+rand.Int64N(500))
					o.UpdatedAt = max(at, o.CreatedAt())
					w.create(o)
					if orders = append(orders, o); len(orders) > 50 {
						orders = orders[1:]
					}
				}
				w.commit()
			}
			l.stop(false)
		})
	}
	r.t.Cleanup(func() { l.stop(true) })
	return l
}

func (l *load) next() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	l.more.Broadcast()
	return !l.done
}

// wait returns when n more transactions were made.
func (l *load) wait(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for end := l.n + n; l.n < end && !l.done; {
		l.more.Wait()
	}
}

// stop ends the load.
func (l *load) stop(wait bool) {
	l.mu.Lock()
	l.done = true
	l.more.Broadcast()
	l.mu.Unlock()
	if wait {
		l.wg.Wait()
	}
}

// rows are all rows of a cluster.
type rows struct {
	orders  map[int64]schema.Order
	entries map[[2]int64]schema.Entry
}

func (r *rig) rows(cl shardmap.Cluster) rows {
	r.t.Helper()
	all, err := r.read(cl)
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

// read is rows for another goroutine than the test's.
func (r *rig) read(cl shardmap.Cluster) (rows, error) {
	all := rows{map[int64]schema.Order{}, map[[2]int64]schema.Entry{}}
	for n := range r.c.Map().Size() {
		db := r.c.Database(cl, n+1)
		err := patient(func() error {
			return db.Read(context.Background(), func(ctx context.Context, c *sql.Conn) error {
				var os, es []string
				for table := range 10 {
					os = append(os, fmt.Sprintf("SELECT %s FROM `%s`.order_%d", schema.List(schema.OrderColumns), db.Schema(), table))
					es = append(es, fmt.Sprintf("SELECT %s FROM `%s`.journal_%d", schema.List(schema.EntryColumns), db.Schema(), table))
				}
				read := func(query string, row func(*sql.Rows) error) error {
					rs, err := c.QueryContext(ctx, query)
					if err != nil {
						return err
					}
					defer rs.Close()
					for rs.Next() {
						if err := row(rs); err != nil {
							return err
						}
					}
					return rs.Err()
				}
				return errors.Join(
					read(strings.Join(os, " UNION ALL "), func(rs *sql.Rows) error {
						var o schema.Order
						err := rs.Scan(o.Fields()...)
						all.orders[o.ID] = o
						return err
					}),
					read(strings.Join(es, " UNION ALL "), func(rs *sql.Rows) error {
						var e schema.Entry
						err := rs.Scan(e.Fields()...)
						all.entries[[2]int64{e.OrderID, e.Seq}] = e
						return err
					}))
			})
		})
		if err != nil {
			return rows{}, err
		}
	}
	return all, nil
}

// equal waits until the mirror holds what the truth does, and checks that each is
// where its merchant looks for it.
func (r *rig) equal() {
	r.t.Helper()
	truth := r.rows(shardmap.UID)
	if len(truth.orders) == 0 {
		r.t.Fatal("there are no orders: the test shows nothing")
	}
	var got rows
	end := time.Now().Add(eventually.Patience)
	for {
		got = r.rows(shardmap.BID)
		if maps.Equal(truth.orders, got.orders) && maps.Equal(truth.entries, got.entries) {
			break
		}
		if time.Now().After(end) {
			for id, o := range truth.orders {
				if got.orders[id] != o {
					r.t.Errorf("order %d is %+v in the mirror, %+v in the truth", id, got.orders[id], o)
					break
				}
			}
			r.t.Fatalf("the mirror has %d orders and %d entries, the truth %d and %d",
				len(got.orders), len(got.entries), len(truth.orders), len(truth.entries))
		}
		time.Sleep(50 * time.Millisecond)
	}
	byBID := map[int64]int{}
	for _, o := range truth.orders {
		byBID[o.BID]++
	}
	for bid, want := range byBID {
		if list, _ := r.list(bid); len(list) != want {
			r.t.Errorf("merchant %d lists %d orders of %d", bid, len(list), want)
		}
	}
}

// audit checks, again and again until stop is called, the promise of complete-until:
// every change stamped earlier is in the mirror.
func (r *rig) audit() (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	checked := 0
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(250 * time.Millisecond):
			}
			until := make([]schema.Millis, r.c.Map().Size())
			var err error
			for i := range until {
				var failed error
				_, until[i], failed = r.listed(int64(1 + 10*i))
				err = errors.Join(err, failed)
			}
			mirror, failed := r.read(shardmap.BID)
			err = errors.Join(err, failed)
			truth, failed := r.read(shardmap.UID)
			if err = errors.Join(err, failed); err != nil {
				r.t.Error(err)
				return
			}
			for id, o := range truth.orders {
				if o.UpdatedAt >= until[r.c.Map().Locate(o.BID).Database-1] {
					continue
				}
				checked++
				if got, ok := mirror.orders[id]; !ok || got.Ver < o.Ver {
					r.t.Errorf("complete until %d, but order %d of %d with ver %d has ver %d in the mirror",
						until[r.c.Map().Locate(o.BID).Database-1], id, o.UpdatedAt, o.Ver, got.Ver)
				}
			}
			for key, e := range truth.entries {
				if _, ok := mirror.entries[key]; !ok && e.RecordedAt < until[r.c.Map().Locate(e.BID).Database-1] {
					r.t.Errorf("entry %v of %d is missing", key, e.RecordedAt)
				}
			}
		}
	})
	var once sync.Once
	stop = func() {
		once.Do(func() {
			close(done)
			wg.Wait()
			if checked == 0 {
				r.t.Error("nothing was complete: the audit shows nothing")
			}
		})
	}
	r.t.Cleanup(stop)
	return stop
}

// seed lets the collectors begin here, instead of at the beginning of a log that is
// full of other tests.
func (r *rig) seed() {
	r.t.Helper()
	for _, server := range r.stack.Map.Servers(shardmap.UID) {
		var at string
		if err := r.stack.Admin(r.t, server.Name).QueryRow("SELECT @@GLOBAL.gtid_binlog_pos").Scan(&at); err != nil {
			r.t.Fatal(err)
		}
		for _, d := range r.stack.Map.Databases(shardmap.BID) {
			_, err := r.stack.Admin(r.t, d.Server.Name).Exec("INSERT INTO `"+d.Schema+"`.mark (server, gtid, at) VALUES (?, ?, '1970-01-01')", server.Name, at)
			if err != nil {
				r.t.Fatal(err)
			}
		}
	}
}

// stream returns the stream, to look at and to spoil.
func (r *rig) stream() *stream.Stream {
	r.t.Helper()
	s, err := stream.New(r.nc, r.stack.Map.Prefix(), stream.Config{})
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// list returns all orders of a merchant in the mirror.
func (r *rig) list(bid int64) (orders []schema.Order, until schema.Millis) {
	r.t.Helper()
	orders, until, err := r.listed(bid)
	if err != nil {
		r.t.Fatal(err)
	}
	return orders, until
}

// listed is list for another goroutine than the test's.
func (r *rig) listed(bid int64) (orders []schema.Order, until schema.Millis, err error) {
	q := mirror.Query{BID: bid, Before: 1<<63 - 1, Limit: 100}
	for {
		var p mirror.Page
		err := patient(func() (err error) {
			p, err = r.mirror.List(context.Background(), q)
			return err
		})
		if err != nil {
			return nil, 0, err
		}
		if until == 0 {
			until = p.CompleteUntil
		}
		orders = append(orders, p.Orders...)
		if p.Next == 0 {
			return orders, until, nil
		}
		q.Before = p.Next
	}
}
