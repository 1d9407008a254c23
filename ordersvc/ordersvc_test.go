package ordersvc_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/ordersvc/memstore"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
)

func TestMain(m *testing.M) { eventually.Main(m) }

// shards is a map of eight databases on one server.
func shards(t testing.TB) *shardmap.Map {
	t.Helper()
	m, err := shardmap.New(shardmap.OneServer(shardmap.Server{Name: "memory", Address: "memory:0"}, 8))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// fixed is a map that never changes.
func fixed(m *shardmap.Map) func() *shardmap.Map { return func() *shardmap.Map { return m } }

// scripted makes ids from snowflakes in a given order, and records what is given back.
type scripted struct {
	mu         sync.Mutex
	snowflakes []int64
	back       []int
	waiting    int // errors that Next returns after a number was given back
}

var errNone = errors.New("none now")

func (s *scripted) Next(uid int64) (idgen.ID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.back) > 0 && s.waiting > 0 {
		s.waiting--
		return idgen.ID{}, errNone
	}
	if len(s.snowflakes) == 0 {
		return idgen.ID{}, errNone
	}
	id := idgen.Make(uid, s.snowflakes[0])
	s.snowflakes = s.snowflakes[1:]
	return id, nil
}

func (s *scripted) GiveBack(worker int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.back = append(s.back, worker)
}

// serve runs a service until the test ends.
func serve(t testing.TB, ids ordersvc.IDs, alarm func(idgen.ID)) *ordersvc.Service {
	t.Helper()
	s := ordersvc.NewService(fixed(shards(t)), memstore.New(memstore.Config{}), ids, ordersvc.Config{DuplicateID: alarm})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

// snowflake returns one of today's with this worker and sequence.
func snowflake(worker, seq int64) int64 {
	return idgen.FirstAt(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)) | worker<<idgen.SeqBits | seq
}

func newOrder(number string) ordersvc.New {
	return ordersvc.New{
		Key: ordersvc.Key{UID: 9527, BID: 1001, OutTradeNo: number}, Amount: 19900, Currency: "CNY",
		Subject: "Le Max 2", Metadata: "{}", ExpiresIn: 30 * time.Minute, Actor: "app", RequestID: "r-1",
	}
}

func TestCreateMakesTheOrderThatWasAskedFor(t *testing.T) {
	s := serve(t, &scripted{snowflakes: []int64{snowflake(3, 1)}}, nil)
	made, err := s.Create(t.Context(), newOrder("A-1"))
	if err != nil || made.Replayed {
		t.Fatal(made, err)
	}
	want := schema.Order{
		ID: snowflake(3, 1), UID: 9527, BID: 1001, OutTradeNo: "A-1", Amount: 19900, Currency: "CNY",
		Subject: "Le Max 2", Metadata: "{}", Status: schema.Created, Ver: 1, CreatedBy: "app", RequestID: "r-1",
		ExpiresAt: made.Order.CreatedAt() + schema.Millis((30 * time.Minute).Milliseconds()),
		UpdatedAt: made.Order.UpdatedAt,
	}
	if made.Order != want || made.Order.UpdatedAt < made.Order.CreatedAt() {
		t.Errorf("%+v, want %+v", made.Order, want)
	}
	got, err := s.Get(t.Context(), made.Order.OrderID())
	if err != nil || got != made.Order {
		t.Errorf("by id: %+v, %v", got, err)
	}
	if got, err = s.Find(t.Context(), newOrder("A-1").Key); err != nil || got != made.Order {
		t.Errorf("by key: %+v, %v", got, err)
	}
	page, err := s.List(t.Context(), ordersvc.Query{UID: 9527, Before: 1<<63 - 1, Limit: 10})
	if err != nil || len(page.Orders) != 1 || page.Orders[0] != made.Order || page.Next != 0 {
		t.Errorf("by list: %+v, %v", page, err)
	}
	if entries, err := s.Journal(t.Context(), got); err != nil || len(entries) != 0 {
		t.Errorf("journal: %+v, %v", entries, err)
	}
}

// Fault 1: a retry got a new identity.
func TestARepeatIsTheSameOrderWhateverMayVary(t *testing.T) {
	s := serve(t, &scripted{snowflakes: []int64{snowflake(3, 1), snowflake(3, 2)}}, nil)
	first, err := s.Create(t.Context(), newOrder("A-1"))
	if err != nil {
		t.Fatal(err)
	}
	again := newOrder("A-1")
	again.ExpiresIn, again.Metadata, again.RequestID, again.Actor = time.Minute, `{"a":"b"}`, "r-2", "merchant"
	second, err := s.Create(t.Context(), again)
	if err != nil || !second.Replayed || second.Order != first.Order {
		t.Errorf("%+v, %v; want a replay of %+v", second, err, first.Order)
	}
}

func TestANumberThatNamesAnotherOrderIsRefused(t *testing.T) {
	for name, change := range map[string]func(*ordersvc.New){
		"another amount":   func(n *ordersvc.New) { n.Amount++ },
		"another currency": func(n *ordersvc.New) { n.Currency = "JPY" },
		"another subject":  func(n *ordersvc.New) { n.Subject = "le max 2" },
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, &scripted{snowflakes: []int64{snowflake(3, 1), snowflake(3, 2)}}, nil)
			first, err := s.Create(t.Context(), newOrder("A-1"))
			if err != nil {
				t.Fatal(err)
			}
			n := newOrder("A-1")
			change(&n)
			_, err = s.Create(t.Context(), n)
			var reused *ordersvc.ReusedError
			if !errors.As(err, &reused) || reused.OrderID != first.Order.OrderID() || reused.Status != schema.Created {
				t.Errorf("error %v (%+v)", err, reused)
			}
			if got, err := s.Get(t.Context(), first.Order.OrderID()); err != nil || got != first.Order {
				t.Errorf("the first order is now %+v, %v", got, err)
			}
		})
	}
}

// Fault 9: two processes shared a worker number.
func TestADuplicateIDIsAnAlarmAndTheOrderGetsAnotherOne(t *testing.T) {
	ids := &scripted{snowflakes: []int64{snowflake(3, 1), snowflake(3, 1), snowflake(4, 0)}, waiting: 2}
	var alarms []idgen.ID
	s := serve(t, ids, func(id idgen.ID) { alarms = append(alarms, id) })
	first, err := s.Create(t.Context(), newOrder("A-1"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.Create(t.Context(), newOrder("A-2"))
	if err != nil || second.Replayed || second.Order.ID != snowflake(4, 0) {
		t.Fatalf("%+v, %v; want a new order with the next number's id", second, err)
	}
	if len(alarms) != 1 || alarms[0].Snowflake() != snowflake(3, 1) || len(ids.back) != 1 || ids.back[0] != 3 {
		t.Errorf("alarms %v, given back %v", alarms, ids.back)
	}
	if got, err := s.Get(t.Context(), first.Order.OrderID()); err != nil || got != first.Order {
		t.Errorf("the first order is now %+v, %v", got, err)
	}
}

func TestDuplicatesWithoutEndAreAFault(t *testing.T) {
	ids := &scripted{snowflakes: []int64{snowflake(3, 1), snowflake(3, 1), snowflake(3, 1), snowflake(3, 1), snowflake(3, 1)}}
	s := serve(t, ids, nil)
	if _, err := s.Create(t.Context(), newOrder("A-1")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), newOrder("A-2")); !errors.Is(err, ordersvc.ErrDuplicateID) {
		t.Errorf("error %v", err)
	}
	if len(ids.snowflakes) != 1 {
		t.Errorf("%d ids left; one create uses up three", len(ids.snowflakes))
	}
}

func TestWithoutAWorkerNumberCreatesFailAndReadsGoOn(t *testing.T) {
	ids := &scripted{snowflakes: []int64{snowflake(3, 1)}}
	s := serve(t, ids, nil)
	made, err := s.Create(t.Context(), newOrder("A-1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), newOrder("A-2")); !errors.Is(err, ordersvc.ErrNoWorker) || !errors.Is(err, errNone) {
		t.Errorf("error %v", err)
	}
	if _, err := s.Get(t.Context(), made.Order.OrderID()); err != nil {
		t.Error(err)
	}
}

func TestAnIDWhosePartsDisagreeNamesNoOrder(t *testing.T) {
	s := serve(t, &scripted{snowflakes: []int64{snowflake(3, 1)}}, nil)
	made, err := s.Create(t.Context(), newOrder("A-1"))
	if err != nil {
		t.Fatal(err)
	}
	// The same database and table, another shard info.
	for _, uid := range []int64{9527 + 80, 9527 - 80, 9527 + 560} {
		forged := idgen.Make(uid, made.Order.ID)
		if m := shards(t); m.Locate(uid) != m.Locate(9527) || forged == made.Order.OrderID() {
			t.Fatalf("%d is no forgery", uid)
		}
		if _, err := s.Get(t.Context(), forged); !errors.Is(err, ordersvc.ErrNotFound) {
			t.Errorf("%s: %v", forged, err)
		}
	}
	if _, err := s.Get(t.Context(), idgen.Make(9527, made.Order.ID+1)); !errors.Is(err, ordersvc.ErrNotFound) {
		t.Errorf("an id that nobody has: %v", err)
	}
}

func TestTheJournalEndsAtTheVersionThatWasRead(t *testing.T) {
	store := journaled{memstore.New(memstore.Config{}), []schema.Entry{{Seq: 2}, {Seq: 3}, {Seq: 4}}}
	s := ordersvc.NewService(fixed(shards(t)), store, &scripted{}, ordersvc.Config{})
	entries, err := s.Journal(t.Context(), schema.Order{UID: 1, Ver: 3})
	if err != nil || len(entries) != 2 || entries[1].Seq != 3 {
		t.Errorf("%+v, %v; want the entries up to 3", entries, err)
	}
}

// journaled is a store with a journal.
type journaled struct {
	*memstore.Store
	entries []schema.Entry
}

func (j journaled) Journal(context.Context, shardmap.Location, int64) ([]schema.Entry, error) {
	return j.entries, nil
}

// The policy stops new orders; a create that happened is answered whatever it says now.
func TestThePolicyStopsNewOrdersAlone(t *testing.T) {
	var refusal error
	ids := &scripted{snowflakes: []int64{snowflake(1, 0), snowflake(1, 1), snowflake(1, 2)}}
	s := ordersvc.NewService(fixed(shards(t)), memstore.New(memstore.Config{}), ids, ordersvc.Config{
		Policy: func(bid int64, currency string) error {
			if bid == 1001 && currency == "CNY" {
				return refusal
			}
			return nil
		},
	})
	ctx, stop := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { _ = s.Run(ctx) })
	defer run.Wait()
	defer stop()
	first, err := s.Create(t.Context(), newOrder("first"))
	if err != nil || first.Replayed {
		t.Fatal(first, err)
	}
	refusal = errors.New("disabled")
	for _, again := range []ordersvc.Outcome{one(s.Create(t.Context(), newOrder("first"))), s.CreateAll(t.Context(), []ordersvc.New{newOrder("first")})[0]} {
		if again.Err != nil || !again.Replayed || again.Order != first.Order {
			t.Errorf("the repeat: %+v", again)
		}
	}
	other := newOrder("first")
	other.Amount++
	var reused *ordersvc.ReusedError
	if _, err := s.Create(t.Context(), other); !errors.As(err, &reused) || reused.OrderID != first.Order.OrderID() {
		t.Errorf("another amount: %v", err)
	}
	if _, err := s.Create(t.Context(), newOrder("second")); !errors.Is(err, refusal) {
		t.Errorf("a new order: %v", err)
	}
	dollars := newOrder("dollars")
	dollars.Currency = "USD"
	if _, err := s.Create(t.Context(), dollars); err != nil {
		t.Errorf("what the policy allows: %v", err)
	}
	if n := len(ids.snowflakes); n != 1 {
		t.Errorf("%d ids are left", n)
	}
}

func one(c ordersvc.Created, err error) ordersvc.Outcome {
	return ordersvc.Outcome{Created: c, Err: err}
}
