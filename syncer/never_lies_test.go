package syncer_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/apply"
	"github.com/octopay/octopay/syncer/mirror"
	"github.com/octopay/octopay/syncer/mirrorpb"
	"github.com/octopay/octopay/syncer/source"
	"github.com/octopay/octopay/syncer/stream"
)

var (
	seed   = flag.Uint64("seed", 0, "of the faults of TestCompleteUntilNeverLies; 0: another each time")
	rounds = flag.Int("rounds", 12, "of TestCompleteUntilNeverLies, each with a fault; the first 8 are of all kinds")
)

// A witness knows what was committed, and what was promised.
type witness struct {
	r      *rig
	random func(n int) int

	mu       sync.Mutex
	orders   map[int64]schema.Order    // as they were acknowledged last
	entries  map[[2]int64]schema.Entry // acknowledged
	promised map[int]schema.Millis     // the highest seen, by database
	lies     []string                  // promises that were not kept
	checked  int                       // orders that a promise covered
	held     map[string]int            // commits behind whose stamp a promise would have gone, by what held them
	refused  map[int64]bool            // bids whose database refuses dear orders
	bounds   int64                     // how many bounds there were
	count    map[string]int            // faults
}

func newWitness(r *rig, source *rand.Rand) *witness {
	var mu sync.Mutex
	return &witness{
		r: r, random: func(n int) int { mu.Lock(); defer mu.Unlock(); return source.IntN(n) },
		orders: map[int64]schema.Order{}, entries: map[[2]int64]schema.Entry{}, promised: map[int]schema.Millis{},
		held: map[string]int{}, refused: map[int64]bool{}, count: map[string]int{},
	}
}

// bid returns the merchant of these tests in a database.
func bid(database int) int64 { return int64(10*(database-1) + 1) }

// promise reads what a database promises now.
func (w *witness) promise(database int) schema.Millis {
	p, err := w.r.mirror.List(context.Background(), mirror.Query{BID: bid(database), Before: 1<<63 - 1, Limit: 1})
	if err != nil { // a machine that is very busy; then nothing more is promised
		w.r.t.Log(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.promised[database] = max(w.promised[database], p.CompleteUntil)
	return w.promised[database]
}

func (w *witness) lie(format string, args ...any) {
	w.lies = append(w.lies, fmt.Sprintf(format, args...))
}

// check reads the whole mirror: every change that was stamped before what was promised
// before the reading is in it, also one that was committed since.
func (w *witness) check() error {
	until := map[int]schema.Millis{}
	for n := range w.r.c.Map().Size() {
		until[n+1] = w.promise(n + 1)
	}
	copies, err := w.r.read(shardmap.BID)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, o := range w.orders {
		d := w.r.c.Map().Locate(o.BID).Database
		if o.UpdatedAt >= until[d] {
			continue
		}
		w.checked++
		if got, ok := copies.orders[id]; !ok || got.Ver < o.Ver {
			w.lie("database %d is complete until %d, order %d of %d with ver %d has ver %d there", d, until[d], id, o.UpdatedAt, o.Ver, got.Ver)
		}
	}
	for key, e := range w.entries {
		d := w.r.c.Map().Locate(e.BID).Database
		if _, ok := copies.entries[key]; !ok && e.RecordedAt < until[d] {
			w.lie("database %d is complete until %d, entry %v of %d is missing", d, until[d], key, e.RecordedAt)
		}
	}
	return nil
}

// A txn is an open transaction on a connection of an operator, which no timeout ends.
type txn struct {
	*writer
	w      *witness
	server string
	at     schema.Millis
	orders []schema.Order
}

// connect returns nil when the test has failed.
func (w *witness) connect(server string) *txn {
	w.r.t.Helper()
	conn, err := w.r.stack.Admin(w.r.t, server).Conn(context.Background())
	if err != nil {
		w.r.t.Error(err)
		return nil
	}
	return &txn{writer: &writer{t: w.r.t, conn: conn, m: w.r.c.Map()}, w: w, server: server}
}

// begin opens a transaction in some database of the server, as a lane does.
func (x *txn) begin() {
	var here []int
	for _, d := range x.m.Databases(shardmap.UID) {
		if d.Server.Name == x.server {
			here = append(here, d.Number)
		}
	}
	x.db = x.w.r.c.Database(shardmap.UID, here[x.w.random(len(here))])
	for _, text := range []string{"BEGIN", "SELECT epoch FROM `" + x.db.Schema() + "`.owner WHERE id = 1 LOCK IN SHARE MODE", "SET @t = UTC_TIMESTAMP(3)"} {
		x.exec(text)
	}
	if err := x.conn.QueryRowContext(context.Background(), "SELECT @t").Scan(&x.at); err != nil {
		x.t.Error(err)
	}
	x.orders = nil
}

func (x *txn) create(amount int64, bid int64) schema.Order {
	o := newOrder(int64(10*(x.db.Place().Number-1)+x.w.random(10)+80), bid)
	if o.UpdatedAt = max(x.at, o.CreatedAt()); amount > 0 {
		o.Amount = amount
	}
	x.writer.create(o)
	x.orders = append(x.orders, o)
	return o
}

// commit commits, and tells the witness. A promise that passed its stamp before was a lie.
func (x *txn) commit(how string) {
	var before []schema.Millis
	if how != "" {
		for _, o := range x.orders {
			before = append(before, x.w.promise(x.m.Locate(o.BID).Database))
		}
	}
	x.exec("COMMIT")
	var now schema.Millis
	if err := x.conn.QueryRowContext(context.Background(), "SELECT UTC_TIMESTAMP(3)").Scan(&now); err != nil {
		x.t.Error(err)
	}
	x.w.mu.Lock()
	defer x.w.mu.Unlock()
	for i, o := range x.orders {
		x.w.orders[o.ID] = o
		if o.Ver > 1 {
			x.w.entries[[2]int64{o.ID, o.Ver}] = schema.Entry{BID: o.BID, RecordedAt: o.UpdatedAt}
		}
		if before != nil && before[i] > o.UpdatedAt {
			x.w.lie("complete until %d was promised before an order of %d was committed (%s)", before[i], o.UpdatedAt, how)
		}
	}
	if how != "" && now-1000 > x.at { // marks lie back by a second
		x.w.held[how]++
	}
}

func (x *txn) close() { _ = x.conn.Close() }

// lane writes to a server until the load is stopped.
func (w *witness) lane(l *load, server string) {
	x := w.connect(server)
	if x == nil {
		return
	}
	defer x.close()
	byDatabase := map[int][]schema.Order{}
	pace := time.NewTicker(loadPause)
	defer pace.Stop()
	for l.next() && !w.r.t.Failed() {
		<-pace.C
		x.begin()
		n := x.db.Place().Number
		if old := byDatabase[n]; len(old) > 0 && w.random(2) == 0 {
			i := w.random(len(old))
			old[i] = x.change(old[i], x.at)
			x.orders = append(x.orders, old[i])
		} else {
			byDatabase[n] = append(old, x.create(0, bid(1+w.random(w.r.c.Map().Size()))))
		}
		x.commit("")
	}
}

// hold leaves a transaction open for d between its stamp and its commit.
func (w *witness) hold(server string, d time.Duration) {
	x := w.connect(server)
	if x == nil {
		return
	}
	defer x.close()
	x.begin()
	x.create(0, bid(1+w.random(w.r.c.Map().Size())))
	open := time.NewTimer(d)
	defer open.Stop()
	<-open.C
	x.commit("held open")
}

// freeze stops a server of the truth for d, in which a transaction of it is between its
// stamp and its commit. The COMMIT is sent while it is frozen, so that it meets whatever
// the collector asks then.
func (w *witness) freeze(server string, d time.Duration) {
	s := w.r.stack.Server(server)
	x := w.connect(server)
	defer x.close()
	x.begin()
	x.create(0, bid(1+w.random(w.r.c.Map().Size())))
	w.pause(s, d, func() { x.commit("frozen") })
}

// pause freezes a server for d, and runs during side by side.
func (w *witness) pause(s *localstack.Server, d time.Duration, during func()) {
	t := w.r.t
	if err := s.Pause(); err != nil {
		t.Error(err)
	}
	eventually.True(t, "the process is stopped", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.Pid()))
		_, state, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " ")
		return err == nil && strings.HasPrefix(state, "T")
	})
	var g sync.WaitGroup
	g.Go(during)
	over := time.NewTimer(d)
	defer over.Stop()
	<-over.C
	if err := s.Continue(); err != nil {
		t.Error(err)
	}
	g.Wait()
}

// open waits until f, called once, has made a database have one more open dead letter
// than before.
func (w *witness) open(t apply.Target, f func()) {
	letters := func() (n int, err error) {
		s, err := t.State(context.Background())
		return s.Letters, err
	}
	var before int
	eventually.True(w.r.t, "the dead letters are counted", func() (ok bool) {
		var err error
		before, err = letters()
		return err == nil
	})
	f()
	eventually.True(w.r.t, "there is a dead letter more", func() bool {
		n, err := letters()
		return err == nil && n > before
	})
}

const junk = "\xff\xfe"

// poison publishes what is no row.
func (w *witness) poison(js jetstream.JetStream, database int) {
	eventually.True(w.r.t, "poison is published", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := js.Publish(ctx, fmt.Sprintf("%smirror.row.%d", w.r.stack.Map.Prefix(), mirrorpb.Group(bid(database))), []byte(junk))
		return err == nil
	})
}

// dearest is what no other order costs.
const dearest = 5_000_000

// refuse lets the table of a database's merchant refuse dear orders, and makes one. Each
// bound is above what is in the table since an earlier one was lifted.
func (w *witness) refuse(server string, database int) {
	d := w.r.c.Map().Database(shardmap.BID, database)
	if !w.refused[bid(database)] {
		w.bounds++
		w.alter(d, fmt.Sprintf("ADD CONSTRAINT narrow CHECK (amount < %d)", dearest+w.bounds))
		w.refused[bid(database)] = true
	}
	x := w.connect(server)
	defer x.close()
	x.begin()
	x.create(dearest+w.bounds, bid(database))
	x.commit("")
}

func (w *witness) alter(d shardmap.Database, what string) {
	table := fmt.Sprintf("`%s`.order_%d", d.Schema, w.r.c.Map().Locate(bid(d.Number)).Table)
	if _, err := w.r.stack.Admin(w.r.t, d.Server.Name).Exec("ALTER TABLE " + table + " " + what); err != nil {
		w.r.t.Error(err)
	}
}

// settle mends the tables, tries every open dead letter again, and drops what holds no
// row.
func (w *witness) settle(targets []apply.Target) {
	for at := range w.refused {
		w.alter(w.r.c.Map().Database(shardmap.BID, w.r.c.Map().Locate(at).Database), "DROP CONSTRAINT narrow")
		delete(w.refused, at)
	}
	for _, t := range targets {
		letters, err := t.Letters(context.Background(), 100)
		if err != nil {
			w.r.t.Log(err)
		}
		for _, l := range letters {
			what := "retried"
			if string(l.Payload) == junk {
				what = "dropped"
				err = apply.Drop(context.Background(), t, l.LetterKey)
			} else {
				err = apply.Retry(context.Background(), t, w.r.c.Map(), l)
			}
			if err != nil { // it may be over at the next try, of which the end makes many
				w.r.t.Logf("a dead letter isn't %s: %v", what, err)
				continue
			}
			w.count["letters "+what]++
		}
	}
}

// X-Mirror-Complete-Until never lies: whatever is held between its stamp and its commit,
// by a connection or by a server that freezes, whatever can't be applied, and whoever is
// killed meanwhile. A failure says its seed.
func TestCompleteUntilNeverLies(t *testing.T) {
	t.Parallel()
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-seed %d -rounds %d", s, *rounds)
	r := newRig(t, localstack.Private(t, localstack.Options{Need: all, UIDServers: 2}))
	w := newWitness(r, rand.New(rand.NewPCG(s, 0)))
	parts := r.parts(stream.Config{})
	js, err := jetstream.New(r.nc, jetstream.WithDefaultTimeout(eventually.Patience))
	if err != nil {
		t.Fatal(err)
	}
	servers := []string{"uid-a", "uid-b"}
	stop := r.run(r.of(parts))
	l := &load{}
	l.more.L = &l.mu
	for _, server := range servers {
		l.wg.Go(func() { w.lane(l, server) })
	}
	t.Cleanup(func() { l.stop(true) })
	checks := until(t, w.check)
	// At first all is promised that was done.
	l.wait(20)
	now := schema.MillisOf(time.Now())
	eventually.True(t, "promises begin", func() bool { return w.promise(1) > now })

	ms := func(least, most int) time.Duration {
		return time.Duration(least+w.random(most-least)) * time.Millisecond
	}
	nats := r.stack.Server("nats")
	kinds := []struct {
		name string
		f    func()
	}{
		{"uid-a frozen", func() { w.freeze("uid-a", ms(1200, 2800)) }},
		{"uid-b frozen", func() { w.freeze("uid-b", ms(1200, 2800)) }},
		{"poison", func() {
			n := 1 + w.random(8)
			w.open(parts.Targets[n-1], func() { w.poison(js, n) })
		}},
		{"refused", func() {
			n := 1 + w.random(8)
			w.open(parts.Targets[n-1], func() { w.refuse(servers[w.random(2)], n) })
		}},
		{"syncer restarted", func() {
			stop()
			l.wait(w.random(20))
			stop = r.run(r.of(parts))
		}},
		{"NATS killed", func() {
			if err := nats.Kill(); err != nil {
				t.Error(err)
			}
			l.wait(w.random(20))
			if err := nats.Start(context.Background()); err != nil {
				t.Error(err)
			}
		}},
		{"NATS frozen", func() { w.pause(nats, ms(500, 1500), func() {}) }},
		{"settled", func() { w.settle(parts.Targets) }},
	}
	deck := rand.New(rand.NewPCG(s, 1)).Perm(len(kinds))
	var holds sync.WaitGroup
	hold := make(chan struct{}, 2)
	for round := 0; round < *rounds && !t.Failed(); round++ {
		select {
		case hold <- struct{}{}:
			server, d := servers[w.random(2)], ms(1500, 3500)
			holds.Go(func() { w.hold(server, d); <-hold })
		default:
		}
		kind := kinds[w.random(len(kinds))]
		if round < len(kinds) {
			kind = kinds[deck[round]]
		}
		w.count[kind.name]++
		kind.f()
		l.wait(10 + w.random(40))
	}
	holds.Wait()
	l.stop(true)
	// In the end everything is settled, promised, and there.
	newest := schema.MillisOf(time.Now())
	for n := range r.c.Map().Size() {
		eventually.True(t, fmt.Sprintf("database %d is complete", n+1), func() bool {
			w.settle(parts.Targets)
			return w.promise(n+1) > newest
		})
	}
	checks()
	if err := w.check(); err != nil {
		t.Fatal(err)
	}
	r.equal()
	for _, lie := range w.lies[:min(len(w.lies), 10)] {
		t.Error(lie)
	}
	t.Logf("%d orders; %d times an order was covered by a promise; %v; commits held while a promise would have passed them: %v; %d lies",
		len(w.orders), w.checked, w.count, w.held, len(w.lies))
	for _, k := range kinds {
		if w.count[k.name] == 0 && *rounds >= len(kinds) {
			t.Errorf("%s: never happened", k.name)
		}
	}
	if w.checked == 0 || w.held["held open"] == 0 || w.held["frozen"] == 0 || w.count["letters dropped"] == 0 || w.count["letters retried"] == 0 {
		t.Error("something of this didn't happen: the test shows less than it says")
	}
}

// The twin without the guard: a clock that looks at no open transaction promises what the
// witness finds to be a lie.
func TestAClockThatLooksAtNoTransactionLies(t *testing.T) {
	t.Parallel()
	r := newRig(t, localstack.Test(t, all...))
	r.seed()
	parts := r.parts(stream.Config{})
	parts.Sources["uid-a"] = &hasty{parts.Sources["uid-a"]}
	r.run(r.of(parts))
	w := newWitness(r, rand.New(rand.NewPCG(1, 1)))
	// Longer and longer: marks of a busy machine come late.
	open := 2500 * time.Millisecond
	eventually.True(t, "a lie is found", func() bool {
		w.hold("uid-a", open)
		open += open / 2
		return len(w.lies) > 0
	})
	if w.held["held open"] == 0 {
		t.Errorf("%v: nothing was held", w.held)
	}
}

type hasty struct{ source.Source }

func (h *hasty) Clock(ctx context.Context) (source.Clock, error) {
	c, err := h.Source.Clock(ctx)
	return hastyClock{c}, err
}

type hastyClock struct{ source.Clock }

func (c hastyClock) Stamp(ctx context.Context) (source.Stamp, error) {
	s, err := c.Clock.Stamp(ctx)
	s.At = s.Now - 1000
	return s, err
}
