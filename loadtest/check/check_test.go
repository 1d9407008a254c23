package check_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/loadtest/check"
	"github.com/octopay/octopay/loadtest/report"
	"github.com/octopay/octopay/loadtest/traffic"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/ordersvc/mysqlstore"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A world is a run that is over: its orders in both clusters, by SQL.
type world struct {
	t      *testing.T
	c      *cluster.Cluster
	plan   *traffic.Plan
	orders []schema.Order
	acks   check.Acks
}

// newWorld stores n orders of a run, and as many of another among them.
func newWorld(t *testing.T, n int) *world {
	t.Helper()
	s := localstack.Test(t, localstack.UID, localstack.BID)
	w := &world{t: t, c: s.Cluster(t)}
	var err error
	if w.plan, err = traffic.New(traffic.Config{Run: "r1", Seed: 7, Zipf: 1}); err != nil {
		t.Fatal(err)
	}
	other, err := traffic.New(traffic.Config{Run: "r2", Seed: 8})
	if err != nil {
		t.Fatal(err)
	}
	store := mysqlstore.New(w.c)
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	id := idgen.FirstAt(time.Now().Add(-time.Minute))
	batches := map[int][]schema.Order{}
	for i := range n {
		for _, p := range []*traffic.Plan{w.plan, other} {
			id += 3 << 21
			o := p.Order(uint64(i))
			row := ordersvc.New{
				Key:    ordersvc.Key{UID: o.UID, BID: o.BID, OutTradeNo: o.OutTradeNo},
				Amount: o.Amount, Currency: o.Currency, Subject: o.Subject, Metadata: o.Metadata(),
				ExpiresIn: 30 * time.Minute, Actor: "app", RequestID: "r-1",
			}.Order(idgen.Make(o.UID, id))
			d := w.c.Map().Locate(o.UID).Database
			batches[d] = append(batches[d], row)
		}
	}
	for d, rows := range batches {
		for _, r := range store.Insert(t.Context(), d, rows) {
			if r.Err != nil || r.Taken {
				t.Fatalf("%+v", r)
			}
			w.copy(r.Order)
			if _, ours := w.plan.Number(r.Order.OutTradeNo); ours {
				w.orders = append(w.orders, r.Order)
				w.acks = append(w.acks, traffic.Ack{ID: r.Order.OrderID(), OutTradeNo: r.Order.OutTradeNo})
			}
		}
	}
	w.complete(time.Now().Add(time.Hour))
	return w
}

// database returns the database of a cluster in which an order belongs, and its table.
func (w *world) database(cl shardmap.Cluster, o schema.Order) (*cluster.Database, int) {
	key := o.UID
	if cl == shardmap.BID {
		key = o.BID
	}
	at := w.c.Map().Locate(key)
	return w.c.Database(cl, at.Database), at.Table
}

// exec runs a statement in which %s is a table, and returns how many rows it changed.
func (w *world) exec(db *cluster.Database, table int, statement string, args ...any) int64 {
	w.t.Helper()
	conn, err := db.Conn(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	r, err := conn.ExecContext(w.t.Context(), fmt.Sprintf(statement, fmt.Sprintf("`%s`.order_%d", db.Schema(), table)), args...)
	if err != nil {
		w.t.Fatalf("%s: %v", statement, err)
	}
	n, _ := r.RowsAffected()
	return n
}

const insert = "INSERT INTO %s VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"

func (w *world) copy(o schema.Order) {
	w.t.Helper()
	db, table := w.database(shardmap.BID, o)
	w.exec(db, table, insert, o.Values()...)
}

// complete sets the marks of the mirror.
func (w *world) complete(until time.Time) {
	w.t.Helper()
	for n := range w.c.Map().Size() {
		db := w.c.Database(shardmap.BID, n+1)
		conn, err := db.Conn(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		_, err = conn.ExecContext(w.t.Context(), "REPLACE INTO `"+db.Schema()+"`.mark (server, gtid, at) VALUES ('uid-a', '', ?)", schema.MillisOf(until))
		_ = conn.Close()
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// put makes the rows of an order what they were.
func (w *world) put(o schema.Order) {
	w.t.Helper()
	for _, cl := range []shardmap.Cluster{shardmap.UID, shardmap.BID} {
		for n := range w.c.Map().Size() {
			db := w.c.Database(cl, n+1)
			for table := range 10 {
				w.exec(db, table, "DELETE FROM %s WHERE id = ?", o.ID)
			}
		}
		w.insert(cl, o)
	}
}

// insert stores a row in its place of a cluster, instead of what is there.
func (w *world) insert(cl shardmap.Cluster, o schema.Order) {
	w.t.Helper()
	db, table := w.database(cl, o)
	w.exec(db, table, strings.Replace(insert, "INSERT", "REPLACE", 1), o.Values()...)
}

// With one row deleted, changed, doubled or moved, in either cluster, the check fails and
// names it; with everything back in its place it passes.
func TestOneRowThatIsNotAsItMustBeIsNamed(t *testing.T) {
	w := newWorld(t, 120)
	run := func() (string, bool, map[string]int) {
		t.Helper()
		got, err := check.Check(t.Context(), w.c, []*traffic.Plan{w.plan}, w.acks, check.Config{Mirror: true})
		if err != nil {
			t.Fatal(err)
		}
		if !got.Mirror || got.Acknowledged != len(w.acks) || got.Open != 0 {
			t.Errorf("%+v", got)
		}
		return strings.Join(got.Named, "\n"), got.Fails(), map[string]int{
			"missing": got.Missing, "doubled": got.Doubled, "wrong": got.Wrong, "unequal": got.Unequal, "not found": len(w.acks) - got.Found}
	}
	if named, fails, _ := run(); fails {
		t.Fatalf("nothing was touched, and it fails:\n%s", named)
	}
	statement := func(text string, args ...any) func(db *cluster.Database, table int, o schema.Order) int64 {
		return func(db *cluster.Database, table int, o schema.Order) int64 {
			return w.exec(db, table, text, append(args, o.ID)...)
		}
	}
	doubled := func(db *cluster.Database, table int, o schema.Order) int64 {
		return w.exec(db, (table+1)%10, insert, o.Values()...)
	}
	for i, c := range []struct {
		what   string
		change func(db *cluster.Database, table int, o schema.Order) int64
		truth  map[string]int // what it counts as in the truth …
		mirror map[string]int // … and in the mirror
	}{
		{"deleted", statement("DELETE FROM %s WHERE id = ?"), map[string]int{"missing": 1, "unequal": 1, "not found": 1}, map[string]int{"unequal": 1}},
		{"changed in its amount", statement("UPDATE %s SET amount = amount + 1 WHERE id = ?"), map[string]int{"wrong": 1, "unequal": 1}, map[string]int{"unequal": 1}},
		{"changed in a letter's case", statement("UPDATE %s SET subject = LOWER(subject) WHERE id = ?"), map[string]int{"wrong": 1, "unequal": 1}, map[string]int{"unequal": 1}},
		{"changed by a millisecond", statement("UPDATE %s SET updated_at = updated_at + INTERVAL 1000 MICROSECOND WHERE id = ?"), map[string]int{"unequal": 1}, map[string]int{"unequal": 1}},
		{"given another number", statement("UPDATE %s SET out_trade_no = ? WHERE id = ?", "r2-900"), map[string]int{"wrong": 1, "unequal": 1}, map[string]int{"unequal": 1}},
		{"doubled in the next table", doubled, map[string]int{"doubled": 1}, map[string]int{"unequal": 1}},
		{"moved to the next table", func(db *cluster.Database, table int, o schema.Order) int64 {
			return w.exec(db, table, "DELETE FROM %s WHERE id = ?", o.ID) * doubled(db, table, o)
		}, map[string]int{"wrong": 1}, map[string]int{"unequal": 1}},
		{"moved to another database", func(db *cluster.Database, table int, o schema.Order) int64 {
			place := db.Place()
			next := w.c.Database(place.Cluster, place.Number%w.c.Map().Size()+1)
			return w.exec(db, table, "DELETE FROM %s WHERE id = ?", o.ID) * w.exec(next, table, insert, o.Values()...)
		}, map[string]int{"wrong": 1}, map[string]int{"unequal": 1}},
	} {
		for cl, want := range map[shardmap.Cluster]map[string]int{shardmap.UID: c.truth, shardmap.BID: c.mirror} {
			if want == nil {
				continue
			}
			t.Run(fmt.Sprintf("%s in the %s cluster", c.what, cl), func(t *testing.T) {
				w.t = t
				o := w.orders[(i*13+5)%len(w.orders)]
				db, table := w.database(cl, o)
				if n := c.change(db, table, o); n != 1 {
					t.Fatalf("%d rows were changed", n)
				}
				named, fails, counts := run()
				if !fails || !strings.HasPrefix(named, o.OrderID().String()+" ") {
					t.Errorf("fails: %t, named\n%s", fails, named)
				}
				for kind, n := range counts {
					if n != want[kind] {
						t.Errorf("%d %s, want %d", n, kind, want[kind])
					}
				}
				t.Log(named)
				w.put(o)
			})
		}
	}
	w.t = t
	if named, fails, _ := run(); fails {
		t.Errorf("everything is back, and it fails:\n%s", named)
	}
}

// take makes the row of an order go from a cluster.
func (w *world) take(cl shardmap.Cluster, o schema.Order) {
	w.t.Helper()
	db, table := w.database(cl, o)
	if n := w.exec(db, table, "DELETE FROM %s WHERE id = ?", o.ID); n != 1 {
		w.t.Fatalf("%d rows", n)
	}
}

// One world for all of them: each leaves it as it was.
func TestWhatIsLateOrAwayOrUnnamed(t *testing.T) {
	w := newWorld(t, 20)
	for name, one := range map[string]func(*testing.T, *world){
		"a mirror that stands still":   aMirrorThatStandsStillIsToldInFigures,
		"a mirror that is away":        aMirrorThatIsAwayHidesNoTruth,
		"an order that is stored late": whatIsStoredLaterIsSeen,
		"orders that nobody named":     ordersThatNobodyNamedAreCounted,
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			for _, o := range w.orders {
				w.insert(shardmap.UID, o)
				w.insert(shardmap.BID, o)
			}
			w.complete(time.Now().Add(time.Hour))
			one(t, w)
		})
	}
}

// The truth is told first. A mirror that stands still is awaited, and when the time is over
// what it lacks is told in figures, beside those of the truth.
func aMirrorThatStandsStillIsToldInFigures(t *testing.T, w *world) {
	w.take(shardmap.UID, w.orders[0])
	w.take(shardmap.BID, w.orders[1])
	w.take(shardmap.BID, w.orders[2])
	w.complete(time.Now().Add(-time.Hour))
	var said []string
	got, err := check.Check(t.Context(), w.c, []*traffic.Plan{w.plan}, w.acks, check.Config{
		Mirror: true, Within: 300 * time.Millisecond, Say: func(text string) { said = append(said, text) },
		CaughtUp: func() { t.Error("it has caught up, it says") },
	})
	if err != nil {
		t.Fatal(err)
	}
	// The mirror has what the truth lost.
	if !got.Fails() || got.Found != 19 || got.Missing != 1 || got.Wrong+got.Doubled != 0 || got.Unequal != 3 || !got.Mirror || !strings.Contains(got.Behind, "octopay_bid_01") {
		t.Errorf("%+v", got)
	}
	if len(said) == 0 || said[0] != "the truth has 19 of 20 acknowledged orders: 1 missing, 0 doubled, 0 wrong" {
		t.Errorf("said %q", said)
	}
	// All is there, and nobody can know that: it fails.
	for _, o := range w.orders[:3] {
		w.put(o)
	}
	got, err = check.Check(t.Context(), w.c, []*traffic.Plan{w.plan}, w.acks, check.Config{Mirror: true, Within: time.Millisecond})
	if err != nil || !got.Fails() || got.Found != 20 || got.Unequal != 0 || got.Behind == "" {
		t.Errorf("%+v, %v", got, err)
	}
	// Who doesn't want to wait has the truth's figures.
	ctx, cancel := context.WithCancel(t.Context())
	got, err = check.Check(ctx, w.c, []*traffic.Plan{w.plan}, w.acks, check.Config{Mirror: true, Within: time.Hour, Say: func(string) { cancel() }})
	if !errors.Is(err, check.ErrMirror) || !errors.Is(err, context.Canceled) || got.Found != 20 || got.Mirror {
		t.Errorf("%+v, %v", got, err)
	}
	// It catches up while it is waited for, which is told before it is read.
	caught := false
	w.take(shardmap.BID, w.orders[3])
	got, err = check.Check(t.Context(), w.c, []*traffic.Plan{w.plan}, w.acks, check.Config{Mirror: true, Within: time.Minute, Say: func(string) {
		w.copy(w.orders[3])
		w.complete(time.Now().Add(time.Hour))
	}, CaughtUp: func() { caught = true }})
	if err != nil || got.Fails() || !got.Mirror || !caught {
		t.Errorf("%+v, %v", got, err)
	}
}

// A mirror that is away is an error, and the truth's figures are there.
func aMirrorThatIsAwayHidesNoTruth(t *testing.T, w *world) {
	w.take(shardmap.UID, w.orders[0])
	db := w.c.Database(shardmap.BID, 3)
	w.exec(db, 0, "RENAME TABLE %[1]s TO `"+db.Schema()+"`.gone")
	got, err := check.Check(t.Context(), w.c, []*traffic.Plan{w.plan}, w.acks, check.Config{Mirror: true})
	if !errors.Is(err, check.ErrMirror) || got.Found != 19 || got.Missing != 1 || got.Mirror {
		t.Errorf("%+v, %v", got, err)
	}
	w.exec(db, 0, "RENAME TABLE `"+db.Schema()+"`.gone TO %[1]s")
}

// An order that a request without an answer stores after the check began is seen, with
// all that is wrong with it. Without the wait it isn't.
func whatIsStoredLaterIsSeen(t *testing.T, w *world) {
	late := w.orders[19]
	w.take(shardmap.UID, late)
	w.take(shardmap.BID, late)
	acks := w.acks[:19]
	wrong := late
	wrong.Amount++
	look := func(c check.Config, then func()) (report.Check, error) {
		c.OpenMax, c.Mirror = 1, true
		c.Say = func(text string) {
			if then != nil && strings.Contains(text, "may yet write") {
				then()
			}
		}
		return check.Check(t.Context(), w.c, []*traffic.Plan{w.plan}, acks, c)
	}
	// Nobody knows whether something is under way: it waits.
	got, err := look(check.Config{Settle: time.Minute}, func() { w.put(late) })
	if err != nil || got.Fails() || got.Open != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, cl := range []shardmap.Cluster{shardmap.UID, shardmap.BID} {
		w.take(cl, late)
	}
	got, err = look(check.Config{Settle: time.Minute}, func() { w.put(wrong) })
	if err != nil || got.Wrong != 1 || !strings.Contains(strings.Join(got.Named, " "), late.OrderID().String()+" wrong") {
		t.Errorf("of a wrong one: %+v, %v", got, err)
	}
	for _, cl := range []shardmap.Cluster{shardmap.UID, shardmap.BID} {
		w.take(cl, late)
	}
	// It stores while it is asked whether it does.
	looks := 0
	got, err = look(check.Config{Settle: time.Hour, Idle: func(context.Context) bool {
		if looks++; looks == 2 {
			w.put(late)
		}
		return looks == 2
	}}, nil)
	if err != nil || got.Fails() || got.Open != 1 || looks != 2 {
		t.Errorf("%+v, %v after %d looks", got, err, looks)
	}
	for _, cl := range []shardmap.Cluster{shardmap.UID, shardmap.BID} {
		w.take(cl, late)
	}
	if got, err := look(check.Config{Settle: time.Nanosecond}, func() { w.put(late) }); err != nil || got.Open != 0 {
		t.Errorf("without the wait: %+v, %v", got, err)
	}
	// Nobody stores it: the wait ends.
	if got, err := look(check.Config{Settle: time.Second}, nil); err != nil || got.Fails() || got.Open != 0 || got.Found != 19 {
		t.Errorf("%+v, %v", got, err)
	}
}

// Of raw it is known how many it stored, and not which.
func ordersThatNobodyNamedAreCounted(t *testing.T, w *world) {
	for unnamed, want := range map[int]report.Check{
		18: {Acknowledged: 18, Found: 18, Open: 2},
		20: {Acknowledged: 20, Found: 20},
		23: {Acknowledged: 23, Found: 20, Missing: 3},
	} {
		got, err := check.Check(t.Context(), w.c, []*traffic.Plan{w.plan}, nil, check.Config{
			Unnamed: unnamed, OpenMax: math.MaxInt, Idle: func(context.Context) bool { return true },
		})
		if named := len(got.Named); err != nil || (named > 0) != (want.Missing > 0) {
			t.Errorf("%d: %+v, %v", unnamed, got, err)
		}
		got.Named = nil
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%d: %+v, want %+v", unnamed, got, want)
		}
	}
}

// A database that can't be read is named before anything begins.
func TestWhatCannotBeReadIsNamedFirst(t *testing.T) {
	s := localstack.Test(t, localstack.UID, localstack.BID)
	if err := check.Reach(t.Context(), s.Cluster(t), true); err != nil {
		t.Error(err)
	}
	for _, config := range []cluster.Config{{User: s.User, Password: s.Password + "x"}, {User: "nobody", Password: s.Password}} {
		c := cluster.Open(s.Map, config)
		if err := check.Reach(t.Context(), c, true); err == nil || !strings.Contains(err.Error(), "access denied") {
			t.Errorf("%s: %v", config.User, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// What it reads over is what the programs use: a database that is away is an error, not
// a missing order.
func TestADatabaseThatIsAwayIsNoVerdict(t *testing.T) {
	w := newWorld(t, 5)
	db := w.c.Database(shardmap.UID, 3)
	if err := db.Read(t.Context(), func(ctx context.Context, c *sql.Conn) error { return nil }); err != nil {
		t.Fatal(err)
	}
	w.exec(db, 0, "RENAME TABLE %[1]s TO `"+db.Schema()+"`.gone")
	if _, err := check.Check(t.Context(), w.c, []*traffic.Plan{w.plan}, w.acks, check.Config{}); err == nil {
		t.Error("a table is missing, and the check says something of its orders")
	} else {
		t.Log(err)
	}
}

// Of a run of which nothing was acknowledged, what is older than it is left alone: a
// service may have years of it.
func TestWithoutAnAcknowledgedOrderOnlyTheRunsTimeIsLookedAt(t *testing.T) {
	w := newWorld(t, 20) // made a minute ago
	all := func(context.Context) bool { return true }
	for since, open := range map[time.Time]int{
		{}:                               20,
		time.Now().Add(-time.Minute):     20,
		time.Now().Add(-2 * time.Second): 0,
	} {
		got, err := check.Check(t.Context(), w.c, []*traffic.Plan{w.plan}, nil, check.Config{Since: since, OpenMax: 20, Idle: all})
		if err != nil || got.Fails() || got.Open != open {
			t.Errorf("since %s: %+v, %v; want %d open", since, got, err, open)
		}
	}
}
