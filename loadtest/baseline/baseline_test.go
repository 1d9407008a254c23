package baseline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
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
	"github.com/octopay/octopay/syncer/mirror"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rising makes ids that rise.
type rising struct{ last atomic.Int64 }

func newRising() *rising {
	r := &rising{}
	r.last.Store(idgen.FirstAt(time.Now().Add(-time.Minute)))
	return r
}

func (r *rising) Next(uid int64) (idgen.ID, error) { return idgen.Make(uid, r.last.Add(1)), nil }

// none makes no ids.
type none struct{}

var errNone = errors.New("there is no number")

func (none) Next(int64) (idgen.ID, error) { return idgen.ID{}, errNone }

func newOrder(number string) ordersvc.New {
	return ordersvc.New{
		Key: ordersvc.Key{UID: 9527, BID: 1001, OutTradeNo: number}, Amount: 19900, Currency: "CNY",
		Subject: "Le Max 2 🐙", Metadata: `{"sku":"x"}`, ExpiresIn: 30 * time.Minute, Actor: "app", RequestID: "r-1",
	}
}

func openDirect(t *testing.T, s *localstack.Stack, m *shardmap.Map, ids idSource) *direct {
	t.Helper()
	// One connection: what one request leaves on it, the next one finds.
	d, err := newDirect(m, cluster.Config{User: s.User, Password: s.Password}, 1, ids)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// Direct stores the row that the lanes store, and reads it back as Octopay does.
func TestDirectStoresTheRowsThatTheLanesStore(t *testing.T) {
	s := localstack.Test(t, localstack.UID)
	c := s.Cluster(t)
	d := openDirect(t, s, s.Map, newRising())
	made, err := d.Create(t.Context(), newOrder("A-1"))
	if err != nil || made.Replayed {
		t.Fatal(made, err)
	}
	store := mysqlstore.New(c)
	defer func() { _ = store.Close() }()
	at := s.Map.Locate(9527)
	stored, err := store.Order(t.Context(), at, made.Order.ID)
	if err != nil || stored != made.Order {
		t.Errorf("stored is %+v, %v; answered was %+v", stored, err, made.Order)
	}
	// The same order by a lane, but for its id, number and times.
	n := newOrder("A-2")
	lanes := store.Insert(t.Context(), at.Database, []schema.Order{n.Order(idgen.Make(9527, made.Order.ID+1000))})[0]
	like := lanes.Order
	like.ID, like.OutTradeNo, like.UpdatedAt, like.ExpiresAt = stored.ID, stored.OutTradeNo, stored.UpdatedAt, stored.ExpiresAt
	if lanes.Err != nil || like != stored {
		t.Errorf("a lane stores %+v, %v", lanes.Order, lanes.Err)
	}
	for name, read := range map[string]func() (schema.Order, error){
		"by id":  func() (schema.Order, error) { return d.Get(t.Context(), made.Order.OrderID()) },
		"by key": func() (schema.Order, error) { return d.Find(t.Context(), n.Key) },
	} {
		want := map[string]schema.Order{"by id": stored, "by key": lanes.Order}[name]
		if got, err := read(); err != nil || got != want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for _, q := range []ordersvc.Query{
		{UID: 9527, Before: math.MaxInt64, Limit: 1}, {UID: 9527, Before: math.MaxInt64, Limit: 20},
		{UID: 9527, Before: lanes.Order.ID, Limit: 20}, {UID: 9527, Before: math.MaxInt64, Limit: 20, Status: schema.Paid},
	} {
		want, err := store.List(t.Context(), at, q)
		if err != nil {
			t.Fatal(err)
		}
		got, err := d.List(t.Context(), q)
		if err != nil || len(got.Orders) != len(want.Orders) || got.Next != want.Next {
			t.Fatalf("%+v: %+v, %v; a store lists %+v", q, got, err, want)
		}
		for i := range want.Orders {
			if got.Orders[i] != want.Orders[i] {
				t.Errorf("%+v: order %d is %+v, want %+v", q, i, got.Orders[i], want.Orders[i])
			}
		}
	}
	if _, err := d.Get(t.Context(), idgen.Make(9527+640*3+80, made.Order.ID)); !errors.Is(err, ordersvc.ErrNotFound) {
		t.Errorf("an id whose parts disagree: %v", err)
	}
	if _, err := d.Find(t.Context(), newOrder("A-3").Key); !errors.Is(err, ordersvc.ErrNotFound) {
		t.Errorf("a number that nobody used: %v", err)
	}
}

// A number that is taken is a replay or refused, and leaves no transaction open on the
// connection, which the next request's BEGIN would commit.
func TestDirectRepeatsAndRefusesAsOctopayDoes(t *testing.T) {
	s := localstack.Test(t, localstack.UID)
	d := openDirect(t, s, s.Map, newRising())
	first, err := d.Create(t.Context(), newOrder("A-1"))
	if err != nil {
		t.Fatal(err)
	}
	db, _, _ := d.place(shardmap.UID, s.Map.Locate(9527))
	closed := func(after string) {
		t.Helper()
		var open int
		if err := db.QueryRowContext(t.Context(), "SELECT @@in_transaction").Scan(&open); err != nil || open != 0 {
			t.Errorf("after %s a transaction is open: %d, %v", after, open, err)
		}
	}
	closed("a create")
	again, err := d.Create(t.Context(), newOrder("A-1"))
	if err != nil || !again.Replayed || again.Order != first.Order {
		t.Errorf("%+v, %v", again, err)
	}
	closed("a repeat")
	other := newOrder("A-1")
	other.Amount++
	var reused *ordersvc.ReusedError
	if _, err := d.Create(t.Context(), other); !errors.As(err, &reused) || reused.OrderID != first.Order.OrderID() {
		t.Errorf("another amount: %v", err)
	}
	closed("a refusal")
	if _, err := d.Create(t.Context(), newOrder("A-2")); err != nil {
		t.Error(err)
	}
}

func TestDirectObeysTheEpoch(t *testing.T) {
	s := localstack.Test(t, localstack.UID)
	spec := shardmap.Spec{Epoch: s.Map.Epoch() + 1, Prefix: s.Map.Prefix(), Meta: s.Map.Meta().Server.Name, Servers: []shardmap.Server{}}
	seen := map[string]bool{}
	for _, cl := range []shardmap.Cluster{shardmap.UID, shardmap.BID} {
		for _, db := range s.Map.Databases(cl) {
			if !seen[db.Server.Name] {
				seen[db.Server.Name] = true
				spec.Servers = append(spec.Servers, db.Server)
			}
			p := shardmap.Placement{Database: db.Number, Server: db.Server.Name}
			if cl == shardmap.UID {
				spec.UID = append(spec.UID, p)
			} else {
				spec.BID = append(spec.BID, p)
			}
		}
	}
	newer, err := shardmap.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	d := openDirect(t, s, newer, newRising())
	if _, err := d.Create(t.Context(), newOrder("A-1")); err == nil {
		t.Error("a create under an epoch that the database doesn't have succeeded")
	}
	if _, err := d.Find(t.Context(), newOrder("A-1").Key); !errors.Is(err, ordersvc.ErrNotFound) {
		t.Errorf("it is stored: %v", err)
	}
}

// Lists by merchant are the mirror's rows.
func TestDirectListsMerchants(t *testing.T) {
	s := localstack.Test(t, localstack.BID)
	c := s.Cluster(t)
	d := openDirect(t, s, s.Map, none{})
	ids := newRising()
	at := s.Map.Locate(1001)
	db := c.Database(shardmap.BID, at.Database)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for i := range 5 {
		n := newOrder("A-" + string(rune('0'+i)))
		id, _ := ids.Next(n.UID)
		o := n.Order(id)
		o.UpdatedAt = o.CreatedAt()
		_, _, table := d.place(shardmap.BID, at)
		if _, err := conn.ExecContext(t.Context(), "INSERT INTO "+table+" ("+columns+") VALUES ("+strings.Repeat("?,", 21)+"?)", o.Values()...); err != nil {
			t.Fatal(err)
		}
	}
	for _, q := range []mirror.Query{
		{BID: 1001, Before: math.MaxInt64, Limit: 3}, {BID: 1001, Before: math.MaxInt64, Limit: 100},
		{BID: 1001, Before: math.MaxInt64, Limit: 100, OutTradeNo: "A-2"}, {BID: 1001, Before: math.MaxInt64, Limit: 100, Status: schema.Closed},
	} {
		want, err := mirror.NewSQL(c).List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		got, err := d.mirror().List(t.Context(), q)
		if err != nil || len(got.Orders) != len(want.Orders) || got.Next != want.Next {
			t.Errorf("%+v: %+v, %v; the mirror lists %+v", q, got, err, want)
		}
	}
	if _, err := d.Create(t.Context(), newOrder("B")); !errors.Is(err, errNone) {
		t.Errorf("without ids: %v", err)
	}
}

func TestEchoAnswersWhatItWasSent(t *testing.T) {
	n := newOrder("A-1")
	made, err := echo{ids: newRising()}.Create(t.Context(), n)
	if err != nil || made.Replayed {
		t.Fatal(err)
	}
	want := n.Order(made.Order.OrderID())
	want.UpdatedAt = want.CreatedAt()
	if made.Order != want {
		t.Errorf("%+v, want %+v", made.Order, want)
	}
	if _, err := (echo{ids: none{}}).Create(t.Context(), n); !errors.Is(err, errNone) {
		t.Errorf("without ids: %v", err)
	}
	if _, err := (echo{}).Get(t.Context(), idgen.ID{}); !errors.Is(err, ordersvc.ErrNotFound) {
		t.Errorf("it has an order: %v", err)
	}
}

// Raw stores the plan's orders, each once, as they would have been sent, and counts what
// it stored while it measured.
func TestRawStoresThePlansOrders(t *testing.T) {
	s := localstack.Test(t, localstack.UID)
	c := s.Cluster(t)
	job := RawJob{Plan: traffic.Config{Run: "raw", Seed: 3}, First: 7, InFlight: 130, Warmup: 100 * time.Millisecond, Duration: 500 * time.Millisecond}
	run, err := doRaw(t.Context(), c, newRising(), job)
	if err != nil {
		t.Fatal(err)
	}
	n := run.ByAnswer["201"]
	if n < 1 || n%16 != 0 || run.Sent != n || len(run.Invalid) > 0 || run.LatencyMs != (report.Quantiles{}) || run.DurationSec < 0.5 ||
		math.Abs(run.PerSecond-float64(n)/run.DurationSec) > 1e-6 || !strings.Contains(run.Generator, "128 orders in flight, 16 in a transaction, 2 transactions at once; p50 ") {
		t.Errorf("%+v", run)
	}
	plan, err := traffic.New(job.Plan)
	if err != nil {
		t.Fatal(err)
	}
	got, err := check.Check(t.Context(), c, []*traffic.Plan{plan}, nil, check.Config{OpenMax: math.MaxInt, Settle: time.Nanosecond})
	if err != nil || got.Fails() || got.Open < int(n) || got.Open%16 != 0 {
		t.Errorf("%d were measured, stored are %+v, %v", n, got, err)
	}
	// The same numbers again are there already, and no measure of anything.
	if _, err := doRaw(t.Context(), c, newRising(), job); err == nil || !strings.Contains(err.Error(), "there before") {
		t.Errorf("error %v", err)
	}
}

func TestJobsThatMakeNoSenseAreRefused(t *testing.T) {
	m, err := shardmap.New(shardmap.OneServer(shardmap.Server{Name: "a", Address: "127.0.0.1:1"}, 8))
	if err != nil {
		t.Fatal(err)
	}
	c := cluster.Open(m, cluster.Config{})
	defer func() { _ = c.Close() }()
	good := RawJob{Plan: traffic.Config{Run: "raw"}, InFlight: 8, Orders: 1}
	for want, change := range map[string]func(*RawJob){
		"at least one":       func(j *RawJob) { j.AtOnce = -1 },
		"less than one":      func(j *RawJob) { j.InFlight = 7 },
		"how long or":        func(j *RawJob) { j.Duration = time.Second },
		"either how long":    func(j *RawJob) { j.Orders = 0 },
		"creates alone":      func(j *RawJob) { j.Plan.Mix = []traffic.Share{{Kind: traffic.Repeat, Weight: 1}} },
		"a run's name":       func(j *RawJob) { j.Plan.Run = "" },
		"there is no number": func(*RawJob) {},
	} {
		job := good
		change(&job)
		if _, err := doRaw(t.Context(), c, none{}, job); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", job, err, want)
		}
	}
}

// The process: it takes what it needs from the environment, and a worker number.
func TestServeIsTheWholeProcess(t *testing.T) {
	s := localstack.Test(t, localstack.UID, localstack.Meta)
	file := filepath.Join(t.TempDir(), "map.yaml")
	if err := os.WriteFile(file, s.Map.Text(), 0o600); err != nil {
		t.Fatal(err)
	}
	environ := []string{"OCTOPAY_MAP_FILE=" + file, "OCTOPAY_DB_USER=" + s.User, "OCTOPAY_DB_PASSWORD=" + s.Password}
	job, err := json.Marshal(RawJob{Plan: traffic.Config{Run: "raw"}, InFlight: 8, Orders: 100})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Serve(t.Context(), Raw, environ, bytes.NewReader(job), &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	var run report.Run
	if err := json.Unmarshal(out.Bytes(), &run); err != nil || run.ByAnswer["201"] < 100 {
		t.Errorf("%+v, %v", run, err)
	}
	for want, c := range map[string]struct {
		kind    string
		environ []string
		stdin   string
	}{
		"there is no \"x\"": {"x", environ, ""},
		"MAP_FILE":          {Direct, nil, ""},
		VariablePool:        {Direct, append(environ, VariablePool+"=0"), ""},
		"the job":           {Raw, environ, "{"},
	} {
		err := Serve(t.Context(), c.kind, c.environ, strings.NewReader(c.stdin), io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", c.kind, err, want)
		}
	}
	// It ends when it is told to, with nothing to wait for.
	ctx, stop := context.WithCancel(t.Context())
	said, log := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := Serve(ctx, Echo, environ, nil, io.Discard, log)
		_ = log.Close()
		ended <- err
	}()
	line := make([]byte, 1<<10)
	for {
		n, err := said.Read(line)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(line[:n], []byte(`"listening"`)) {
			break
		}
	}
	go func() { _, _ = io.Copy(io.Discard, said) }()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
