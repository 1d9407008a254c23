package apply

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/dberr"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/faultproxy"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/source"
	"github.com/octopay/octopay/syncer/stream"
)

func newSQL(t *testing.T, s *localstack.Stack, database int) *SQL {
	t.Helper()
	target := NewSQL(s.Cluster(t).Database(shardmap.BID, database), s.Map.Epoch())
	t.Cleanup(func() { _ = target.Close() })
	return target
}

func order(id, bid int64) Order {
	o := schema.Order{
		ID: id, UID: 9527, BID: bid, OutTradeNo: fmt.Sprint("n", id), Amount: 1, Currency: "CNY", Subject: "s", Metadata: "{}",
		Status: schema.Created, Ver: 1, CreatedBy: "app", RequestID: "r", ExpiresAt: 1000, UpdatedAt: 1000,
	}
	return Order{o, Origin{Seq: uint64(id), Item: 0, Subject: "mirror.row.0", Payload: []byte("wire")}}
}

func entry(id, seq, bid int64) Entry {
	e := schema.Entry{
		OrderID: id, Seq: seq, UID: 9527, BID: bid, Op: fmt.Sprint("o", seq), Kind: schema.KindPaid, From: schema.Created, To: schema.Paid,
		Actor: "channel", RequestID: "r", RecordedAt: 1000,
	}
	return Entry{e, Origin{Seq: uint64(id), Item: 1, Subject: "mirror.row.0", Payload: []byte("wire")}}
}

func change(from uint64, orders ...Order) *Change {
	c := &Change{From: Progress{"MIRROR@1", from, int64(from)}, To: Progress{"MIRROR@1", from + 1, int64(from) + 1}, Orders: orders,
		Marks: []stream.Mark{{Server: "uid-a", Position: source.Position{}.With(source.GTID{Domain: 1, Server: 1, Seq: from + 1}), At: schema.Millis(from + 1)}}}
	if from == 0 {
		c.From = Progress{}
	}
	return c
}

func count(t *testing.T, db *cluster.Database, table string) (n int) {
	t.Helper()
	err := db.Read(t.Context(), func(ctx context.Context, c *sql.Conn) error {
		return c.QueryRowContext(ctx, "SELECT COUNT(*) FROM `"+db.Schema()+"`."+table).Scan(&n)
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A row that the database refuses for what is in it is set aside alone.
func TestARowThatTheDatabaseRefusesIsADeadLetter(t *testing.T) {
	target := newSQL(t, localstack.Test(t, localstack.BID), 1)
	long := strings.Repeat("x", 65)
	bad := map[string]func(*schema.Order){
		"a number that is too long": func(o *schema.Order) { o.OutTradeNo = long },
		"a number in Chinese":       func(o *schema.Order) { o.OutTradeNo = "\u4e2d" },
		"no time":                   func(o *schema.Order) { o.ExpiresAt = 0 },
		"no status":                 func(o *schema.Order) { o.Status = 0 },
	}
	c := change(0, order(1, 1), order(2, 2))
	id := int64(10)
	for _, spoil := range bad {
		o := order(id, 1+id%3)
		spoil(&o.Order)
		c.Orders = append(c.Orders, o)
		id++
	}
	spoilt := entry(1, 3, 1)
	spoilt.Reason = strings.Repeat("x", 257)
	c.Orders = append(c.Orders, order(30, 1))
	c.Entries = []Entry{entry(1, 2, 1), spoilt, entry(2, 2, 2)}
	letters, err := target.Apply(t.Context(), c)
	if err != nil || letters != len(bad)+1 {
		t.Fatalf("%d dead letters, want %d, %v", letters, len(bad)+1, err)
	}
	if n := count(t, target.db, "order_1") + count(t, target.db, "order_2"); n != 3 {
		t.Errorf("%d orders, want the 3 good ones", n)
	}
	if n := count(t, target.db, "journal_1") + count(t, target.db, "journal_2"); n != 2 {
		t.Errorf("%d entries, want the 2 good ones", n)
	}
	open, err := target.Letters(t.Context(), 100)
	if err != nil || len(open) != letters {
		t.Fatalf("%d dead letters are open, %v", len(open), err)
	}
	for _, l := range open {
		if string(l.Payload) != "wire" || !strings.Contains(l.Reason, "refuses") || strings.Contains(l.Reason, "xxx") {
			t.Errorf("a dead letter is %+v", l)
		}
	}
	s, err := target.State(t.Context())
	if err != nil || s.Progress != c.To || len(s.Marks) != 0 {
		t.Errorf("the state is %+v, %v", s, err)
	}
}

// A fault of the whole database sets nothing aside.
func TestAFaultOfTheDatabaseIsNoDeadLetter(t *testing.T) {
	stack := localstack.Test(t, localstack.BID)
	target := newSQL(t, stack, 1)
	admin := stack.Admin(t, "bid-a")
	rename := func(from, to string) {
		if _, err := admin.Exec(fmt.Sprintf("RENAME TABLE `%[1]s`.%[2]s TO `%[1]s`.%[3]s", target.db.Schema(), from, to)); err != nil {
			t.Fatal(err)
		}
	}
	rename("order_1", "away")
	c := change(0, order(1, 1), order(2, 2))
	var said *mysql.MySQLError
	if _, err := target.Apply(t.Context(), c); !errors.As(err, &said) || said.Number != 1146 {
		t.Fatalf("without a table: %v", err)
	}
	rename("away", "order_1")
	if n, err := target.Apply(t.Context(), c); err != nil || n != 0 {
		t.Fatalf("with it again: %d dead letters, %v", n, err)
	}
}

// Whoever froze between two packets holds the progress no longer than its server's
// idle_transaction_timeout; the transaction is made again.
func TestALockIsWaitedFor(t *testing.T) {
	stack := localstack.Test(t, localstack.BID)
	target := newSQL(t, stack, 1)
	frozen, err := stack.Cluster(t).Database(shardmap.BID, 1).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Discard(frozen)
	begin := time.Now()
	if _, err := frozen.ExecContext(t.Context(), "BEGIN; SELECT * FROM `"+target.db.Schema()+"`.progress FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	if _, err := target.Apply(t.Context(), change(0, order(1, 1))); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took < time.Second {
		t.Errorf("the lock was not in the way: %s", took)
	}
}

// A map of another epoch writes nothing.
func TestAnotherEpochAppliesNothing(t *testing.T) {
	stack := localstack.Test(t, localstack.BID)
	target := newSQL(t, stack, 1)
	if _, err := target.Apply(t.Context(), change(0, order(1, 1))); err != nil {
		t.Fatal(err)
	}
	if _, err := stack.Admin(t, "bid-a").Exec("UPDATE `" + target.db.Schema() + "`.owner SET epoch = 2"); err != nil {
		t.Fatal(err)
	}
	// The connection was checked before; the transaction is checked again.
	if _, err := target.Apply(t.Context(), change(1, order(2, 1))); dberr.Of(err) != dberr.Stale {
		t.Errorf("after the epoch rose: %v", err)
	}
	if n := count(t, stack.Cluster(t).Database(shardmap.BID, 2), "order_1"); n != 0 {
		t.Errorf("%d orders elsewhere", n)
	}
	var n int
	if err := stack.Admin(t, "bid-a").QueryRow("SELECT COUNT(*) FROM `" + target.db.Schema() + "`.order_1").Scan(&n); err != nil || n != 1 {
		t.Errorf("%d orders, want 1, %v", n, err)
	}
}

// Settling a dead letter writes rows as well: the connection is good, but the epoch in
// the transaction is another.
func TestAnotherEpochSettlesNothing(t *testing.T) {
	stack := localstack.Test(t, localstack.BID)
	target := newSQL(t, stack, 1)
	c := change(0)
	c.Letters = []Letter{letter("MIRROR@1", Origin{Seq: 1, Payload: []byte("wire")}, "a reason")}
	if _, err := target.Apply(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	stale := NewSQL(target.db, stack.Map.Epoch()+1)
	if err := stale.Settle(t.Context(), c.Letters[0].LetterKey, LetterRetried, []Order{order(1, 1)}, nil); dberr.Of(err) != dberr.Stale {
		t.Errorf("settled under another epoch: %v", err)
	}
	if n := count(t, target.db, "order_1"); n != 0 {
		t.Errorf("%d orders", n)
	}
	if err := target.Settle(t.Context(), c.Letters[0].LetterKey, LetterRetried, []Order{order(1, 1)}, nil); err != nil {
		t.Errorf("settled under its epoch: %v", err)
	}
}

// The connection is cut before, in, and after each packet of a transaction: the
// database then says whether it happened, and going on from there loses and doubles
// nothing.
func TestACutConnectionIsSettledByTheProgress(t *testing.T) {
	stack := localstack.Test(t, localstack.BID)
	proxy := faultproxy.New(t, stack.Server("bid-a").Address())
	target := newSQL(t, stack.Via(t, "bid-a", proxy.Addr()), 1)
	direct := newSQL(t, stack, 1)
	if _, err := target.Apply(t.Context(), change(0, order(1, 1))); err != nil {
		t.Fatal(err)
	}
	seq := uint64(1)
	applied, notApplied := 0, 0
	for _, packet := range []string{"FOR UPDATE", "COMMIT"} {
		for _, point := range []faultproxy.Point{faultproxy.BeforePacket, faultproxy.InPacket, faultproxy.BeforeReply, faultproxy.InReply, faultproxy.AfterReply} {
			t.Run(fmt.Sprintf("%s %s", packet, point), func(t *testing.T) {
				fault := proxy.Arm(point, faultproxy.Query(packet))
				c := change(seq, order(int64(seq+1), 1))
				_, err := target.Apply(t.Context(), c)
				if dberr.Of(err) != dberr.Unknown {
					t.Fatalf("the cut transaction: %v", err)
				}
				<-fault.Done()
				// As an applier does: from what the database says, until it holds.
				for {
					s, err := direct.State(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if s.Progress == c.To {
						applied++
						break
					}
					if s.Progress != c.From {
						t.Fatalf("the progress is %+v", s.Progress)
					}
					_, err = target.Apply(t.Context(), c)
					if err == nil {
						notApplied++
						break
					}
					if !errors.Is(err, ErrMoved) {
						t.Fatal(err)
					}
				}
				seq++
				if n := count(t, direct.db, "order_1"); n != int(seq) {
					t.Errorf("%d orders, want %d", n, seq)
				}
			})
		}
	}
	if applied == 0 || notApplied == 0 {
		t.Errorf("%d of the cut transactions had happened, %d had not: the test shows nothing", applied, notApplied)
	}
}

// Writes that the server doesn't take, or doesn't answer, are known to the handle after a
// few: then it refuses at once, and says why, until the server takes them again.
func TestAServerThatTakesNoWritesIsNoticed(t *testing.T) {
	stack := localstack.Private(t, localstack.Options{Need: []localstack.Need{localstack.BID}})
	proxy := faultproxy.New(t, stack.Server("bid-a").Address())
	admin := stack.Admin(t, "bid-a")
	demote := func(on string) {
		t.Helper()
		if _, err := admin.Exec("SET GLOBAL read_only = " + on); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		begin, each, end func()
		class            dberr.Class
	}{
		"it was demoted": {func() { demote("ON") }, func() {}, func() { demote("OFF") }, dberr.ReadOnly},
		"it breaks off":  {func() {}, func() { proxy.Arm(faultproxy.BeforeReply, faultproxy.Query("FOR UPDATE")) }, func() {}, dberr.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			databases := stack.Via(t, "bid-a", proxy.Addr()).Cluster(t)
			watched, stop := context.WithCancel(t.Context())
			var g sync.WaitGroup
			g.Go(func() { _ = databases.Run(watched, slog.New(slog.DiscardHandler)) })
			defer func() { stop(); g.Wait() }()
			target := NewSQL(databases.Database(shardmap.BID, 1), stack.Map.Epoch())
			defer func() { _ = target.Close() }()
			s, err := target.State(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			next := func() *Change {
				c := change(s.Progress.Seq, order(int64(s.Progress.Seq+1), 1))
				c.From = s.Progress
				return c
			}
			if _, err := target.Apply(t.Context(), next()); err != nil {
				t.Fatal(err)
			}
			if s, err = target.State(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.begin()
			refused := 0
			for known := false; !known; {
				// The handle knows it for a second, and then one may try: that one is refused
				// as the others were, and says nothing.
				began := time.Now()
				for target.db.Writable() == nil {
					began = time.Now()
					c.each()
					if _, err := target.Apply(t.Context(), next()); dberr.Of(err) != c.class {
						t.Fatalf("a write that isn't taken: %v", err)
					}
					if refused++; refused > 1000 {
						t.Fatal("the handle doesn't learn it")
					}
				}
				c.each()
				_, err := target.Apply(t.Context(), next())
				known = errors.Is(err, cluster.ErrUnavailable)
				if !known && time.Since(began) < time.Second {
					t.Fatalf("what the handle knows: %v", err)
				}
			}
			if _, err := target.State(t.Context()); err != nil {
				t.Errorf("reads: %v", err)
			}
			c.end()
			eventually.Nil(t, "the server takes writes again", func() error {
				_, err := target.Apply(t.Context(), next())
				return err
			})
			t.Logf("%d writes were tried", refused)
		})
	}
}
