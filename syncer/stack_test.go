package syncer_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/idgen"
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
	s, err := syncer.OnMariaDB(r.c, r.nc, syncer.MariaDBConfig{
		User: r.stack.User, Password: r.stack.Password, Stream: c, Log: r.log,
	})
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
			case <-time.After(30 * time.Second):
				r.t.Error("Run did not stop within 30 s")
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

// eventually polls until ok, and fails the test when it takes too long.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(60 * time.Second)
	for !ok() {
		if time.Now().After(end) {
			t.Fatalf("not within 60 s: %s", what)
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
	r.t.Cleanup(func() { cluster.Discard(conn) })
	return &writer{t: r.t, conn: conn, db: db, m: r.c.Map()}
}

func (w *writer) exec(text string, args ...any) {
	w.t.Helper()
	if _, err := w.conn.ExecContext(context.Background(), text, args...); err != nil {
		w.t.Fatalf("%s: %v", text, err)
	}
}

// begin opens a transaction, share-locks the owner row and takes the time.
func (w *writer) begin() schema.Millis {
	w.t.Helper()
	w.exec("BEGIN; SELECT epoch FROM `" + w.db.Schema() + "`.owner WHERE id = 1 LOCK IN SHARE MODE; SET @t = UTC_TIMESTAMP(3)")
	var at schema.Millis
	if err := w.conn.QueryRowContext(context.Background(), "SELECT @t").Scan(&at); err != nil {
		w.t.Fatal(err)
	}
	return at
}

// order writes a state of an order into the transaction.
func (w *writer) order(o schema.Order) {
	w.t.Helper()
	table := fmt.Sprintf("`%s`.order_%d", w.db.Schema(), w.m.Locate(o.UID).Table)
	w.exec("REPLACE INTO "+table+" ("+schema.List(schema.OrderColumns)+") VALUES (?"+strings.Repeat(",?", len(schema.OrderColumns)-1)+")", o.Values()...)
}

func (w *writer) entry(e schema.Entry) {
	w.t.Helper()
	table := fmt.Sprintf("`%s`.journal_%d", w.db.Schema(), w.m.Locate(e.UID).Table)
	w.exec("INSERT INTO "+table+" ("+schema.List(schema.EntryColumns)+") VALUES (?"+strings.Repeat(",?", len(schema.EntryColumns)-1)+")", e.Values()...)
}

func (w *writer) commit() {
	w.t.Helper()
	w.exec("COMMIT")
}

// put writes orders of one database in one transaction and returns them as stored.
func (r *rig) put(orders ...schema.Order) []schema.Order {
	r.t.Helper()
	w := r.writer(r.c.Map().Locate(orders[0].UID).Database)
	at := w.begin()
	for i := range orders {
		orders[i].UpdatedAt = max(at, orders[i].CreatedAt())
		w.order(orders[i])
	}
	w.commit()
	_ = w.conn.Close()
	return orders
}

// list returns all orders of a merchant in the mirror.
func (r *rig) list(bid int64) (orders []schema.Order, until schema.Millis) {
	r.t.Helper()
	q := mirror.Query{BID: bid, Before: 1<<63 - 1, Limit: 100}
	for {
		p, err := r.mirror.List(context.Background(), q)
		if err != nil {
			r.t.Fatal(err)
		}
		if until == 0 {
			until = p.CompleteUntil
		}
		orders = append(orders, p.Orders...)
		if p.Next == 0 {
			return orders, until
		}
		q.Before = p.Next
	}
}
