// Package storetest is the conformance suite of ordersvc.Store: what every store of
// orders must do, concurrency included.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/slot"
)

// Databases is the size of the cluster of a Store under test.
const Databases = 8

// Run tests the store that newStore returns, which is empty, has Databases
// databases, and accepts at least 50,000 orders. newStore is called once.
func Run(t *testing.T, newStore func(testing.TB) ordersvc.Store) {
	s := newStore(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, ordersvc.Store)
	}{
		{"nothing gives nothing", nothing},
		{"every column comes back as it was stored", roundTrip},
		{"updated_at is the store's time, and not below created_at", updatedAt},
		{"the same key again yields the order made first", sameKey},
		{"the same call again settles the first", sameCall},
		{"of equal keys in one call the first is stored", equalKeysInOneCall},
		{"keys that differ in case are two keys", caseSensitive},
		{"buyers of one slot share no keys", buyersOfOneSlot},
		{"merchants share no keys", merchants},
		{"a duplicate id harms nobody else", duplicateID},
		{"a refused order harms nobody else", refused},
		{"the end of the context does not interrupt an insert", contextEnds},
		{"what is not there is not found", notFound},
		{"parallel inserts of one key make one order", parallelOneKey},
		{"parallel inserts of many keys make all orders", parallelManyKeys},
		{"parallel inserts of overlapping batches make each order once", parallelOverlap},
		{"a life in full, each step said twice", wholeLife},
		{"changes of one call happen one after another", changesInOneCall},
		{"a foreign order isn't changed", foreignChange},
		{"a refused change harms nobody else", refusedChange},
		{"an order expires by the store's clock", expiry},
		{"parallel refunds never exceed what was paid", parallelRefunds},
		{"of a payment and a close at once one wins", parallelPayAndClose},
		{"of a payment and its expiry at once one wins", parallelPayAndExpiry},
		{"lists are newest first, bounded, and of one buyer", lists},
		{"a walk is complete while orders arrive", walkWhileInserting},
		{"a page examines a bounded number of rows", examined},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, s) })
	}
}

var (
	background = context.Background()
	began      = time.Now().UTC().Truncate(time.Millisecond)
	uids       atomic.Int64 // buyers given out so far, in units of all slots
	ids        atomic.Int64 // ids given out so far
)

// Buyer returns a uid that no other test has and that lives in this database and
// table.
func Buyer(database, table int) int64 {
	return uids.Add(1)*slot.Count + int64(database-1)*slot.Tables + int64(table)
}

// Order returns a new order of uid, valid in every field.
func Order(uid int64, outTradeNo string) schema.Order {
	id := idgen.FirstAt(began) + ids.Add(1)
	return schema.Order{
		ID: id, UID: uid, BID: 1001, OutTradeNo: outTradeNo, Amount: 19900, Currency: "CNY",
		Subject: "Le Max 2", Metadata: "{}", Status: schema.Created, Ver: 1,
		CreatedBy: "app", RequestID: "r-" + outTradeNo,
		ExpiresAt: schema.MillisOf(began.Add(30 * time.Minute)),
	}
}

// Place returns where the orders of uid live.
func Place(uid int64) shardmap.Location {
	return shardmap.Location{Database: slot.Of(uid).Database(Databases), Table: slot.Table(uid)}
}

func key(o schema.Order) ordersvc.Key {
	return ordersvc.Key{UID: o.UID, BID: o.BID, OutTradeNo: o.OutTradeNo}
}

// insert inserts orders of one database and fails the test unless there is one
// result for each. Any goroutine may call it.
func insert(t testing.TB, s ordersvc.Store, orders ...schema.Order) []ordersvc.Result {
	t.Helper()
	results := s.Insert(background, Place(orders[0].UID).Database, orders)
	if len(results) != len(orders) {
		t.Errorf("%d results for %d orders", len(results), len(orders))
		return make([]ordersvc.Result, len(orders))
	}
	return results
}

// created fails the test unless r says that o was stored, and the store has it.
func created(t testing.TB, s ordersvc.Store, o schema.Order, r ordersvc.Result) {
	t.Helper()
	if r.Err != nil || r.Taken {
		t.Errorf("order %s: taken: %v, error: %v; want it stored", o.OutTradeNo, r.Taken, r.Err)
		return
	}
	if r.Order.UpdatedAt < o.CreatedAt() {
		t.Errorf("order %s: updated at %v, created at %v", o.OutTradeNo, r.Order.UpdatedAt.Time(), o.CreatedAt().Time())
	}
	o.UpdatedAt = r.Order.UpdatedAt // the store's to choose
	same(t, "answer", r.Order, o)
	stored(t, s, r.Order)
}

// stored fails the test unless the store has exactly o, under its id and its key.
func stored(t testing.TB, s ordersvc.Store, o schema.Order) {
	t.Helper()
	got, err := s.Order(background, Place(o.UID), o.ID)
	if err != nil {
		t.Errorf("order %s by its id: %v", o.OutTradeNo, err)
	} else {
		same(t, "by id", got, o)
	}
	got, err = s.Find(background, Place(o.UID), key(o))
	if err != nil {
		t.Errorf("order %s by its key: %v", o.OutTradeNo, err)
	} else {
		same(t, "by key", got, o)
	}
}

// taken fails the test unless r says that first has the key.
func taken(t testing.TB, first schema.Order, r ordersvc.Result) {
	t.Helper()
	if r.Err != nil || !r.Taken {
		t.Errorf("order %s: taken: %v, error: %v; want it taken", first.OutTradeNo, r.Taken, r.Err)
		return
	}
	same(t, "answer", r.Order, first)
}

func absent(t testing.TB, s ordersvc.Store, o schema.Order) {
	t.Helper()
	if _, err := s.Find(background, Place(o.UID), key(o)); !errors.Is(err, ordersvc.ErrNotFound) {
		t.Errorf("order %s is found by its key: %v", o.OutTradeNo, err)
	}
}

func same(t testing.TB, what string, got, want schema.Order) {
	t.Helper()
	if got != want {
		t.Errorf("%s: order %s differs (-want +got):\n%s", what, want.OutTradeNo, cmp.Diff(want, got))
	}
}

func nothing(t *testing.T, s ordersvc.Store) {
	if r := s.Insert(background, 1, nil); len(r) != 0 {
		t.Errorf("%d results", len(r))
	}
}

func roundTrip(t *testing.T, s ordersvc.Store) {
	const most = 1<<63 - 1
	metadata := func() string {
		var pairs []string
		for i := range 16 {
			pairs = append(pairs, fmt.Sprintf(`"%s%02d":"%s"`, strings.Repeat("k", 38), i, strings.Repeat("🐙", 256)))
		}
		return "{" + strings.Join(pairs, ",") + "}"
	}()
	for name, change := range map[string]func(*schema.Order){
		"plain":                func(*schema.Order) {},
		"emoji":                func(o *schema.Order) { o.Subject = "八爪鱼 🐙 Ω é" },
		"the longest subject":  func(o *schema.Order) { o.Subject = strings.Repeat("🐙", 256) },
		"the longest metadata": func(o *schema.Order) { o.Metadata = metadata },
		"the largest amount":   func(o *schema.Order) { o.Amount = 9007199254740991 },
		"the smallest amount":  func(o *schema.Order) { o.Amount = 1 },
		"the largest merchant": func(o *schema.Order) { o.BID = most },
		"the largest buyer":    func(o *schema.Order) { o.UID = most },
		"the longest number":   func(o *schema.Order) { o.OutTradeNo = strings.Repeat("aZ0_.:|*", 8) },
		"the longest request":  func(o *schema.Order) { o.RequestID = strings.Repeat("r", 64) },
		"no request":           func(o *schema.Order) { o.RequestID = "" },
		"signs of SQL":         func(o *schema.Order) { o.Subject = `'; -- ? "\% /* ` + "`" + ` # \' \\ \0 \n` },
		"spaces at the end":    func(o *schema.Order) { o.Subject = "  a  " },
		"metadata with quotes": func(o *schema.Order) { o.Metadata = `{"a":"it's \"1\" \\ ?"}` },
		"by a merchant":        func(o *schema.Order) { o.CreatedBy = "merchant" },
		"a far expiry":         func(o *schema.Order) { o.ExpiresAt = schema.MillisOf(idgen.End) },
		"an expiry in odd ms":  func(o *schema.Order) { o.ExpiresAt = o.CreatedAt() + 86399*1000 + 7 },
	} {
		t.Run(name, func(t *testing.T) {
			o := Order(Buyer(3, 7), "round-trip")
			change(&o)
			created(t, s, o, insert(t, s, o)[0])
			page, err := s.List(background, Place(o.UID), ordersvc.Query{UID: o.UID, Before: most, Limit: 2})
			if err != nil || len(page.Orders) != 1 || page.Next != 0 {
				t.Fatalf("list: %d orders, next %d, %v", len(page.Orders), page.Next, err)
			}
			o.UpdatedAt = page.Orders[0].UpdatedAt
			same(t, "list", page.Orders[0], o)
		})
	}
}

func updatedAt(t *testing.T, s ordersvc.Store) {
	at := func(created time.Time) (o schema.Order) {
		o = Order(Buyer(1, 1), "at")
		o.ID = idgen.FirstAt(created) + ids.Add(1)
		return o
	}
	past, future := at(began.Add(-time.Hour)), at(began.Add(time.Hour))
	results := insert(t, s, past, future)
	created(t, s, past, results[0])
	created(t, s, future, results[1])
	now := time.Now()
	if u := results[0].Order.UpdatedAt.Time(); u.Before(began.Add(-time.Minute)) || u.After(now.Add(time.Minute)) {
		t.Errorf("an order of an hour ago was updated at %v; now it is %v", u, now)
	}
	if u := results[1].Order.UpdatedAt; u != future.CreatedAt() {
		t.Errorf("an order of the next hour was updated at %v, it was created at %v", u.Time(), future.CreatedAt().Time())
	}
}

func sameKey(t *testing.T, s ordersvc.Store) {
	first := Order(Buyer(2, 2), "same-key")
	r := insert(t, s, first)
	created(t, s, first, r[0])
	first = r[0].Order
	other := Order(first.UID, "same-key")
	other.Amount, other.Subject, other.Metadata = 1, "another", `{"a":"b"}`
	neighbour := Order(first.UID, "same-key-neighbour")
	r = insert(t, s, other, neighbour)
	taken(t, first, r[0])
	created(t, s, neighbour, r[1])
	stored(t, s, first)
	if _, err := s.Order(background, Place(other.UID), other.ID); !errors.Is(err, ordersvc.ErrNotFound) {
		t.Errorf("the id of the second: %v, want not found", err)
	}
}

func sameCall(t *testing.T, s ordersvc.Store) {
	var orders []schema.Order
	for table := range slot.Tables {
		orders = append(orders, Order(Buyer(2, table), "same-call"), Order(Buyer(2, table), "same-call"))
	}
	first := insert(t, s, orders[:12]...)
	again := insert(t, s, orders...)
	for i, o := range orders {
		created(t, s, o, again[i])
		if i < len(first) {
			same(t, "again", again[i].Order, first[i].Order)
		}
	}
}

func equalKeysInOneCall(t *testing.T, s ordersvc.Store) {
	uid := Buyer(4, 4)
	a, b, c := Order(uid, "equal"), Order(uid, "other"), Order(uid, "equal")
	c.Amount = 1
	r := insert(t, s, a, b, c, a)
	created(t, s, a, r[0])
	created(t, s, b, r[1])
	taken(t, r[0].Order, r[2])
	if r[3].Err != nil || r[3].Order != r[0].Order {
		t.Errorf("the first once more: %+v", r[3])
	}
	// The first that can be stored: a refused one takes no key.
	bad, good := Order(uid, "equal-refused"), Order(uid, "equal-refused")
	bad.Subject = strings.Repeat("x", 257)
	r = insert(t, s, bad, good)
	if r[0].Err == nil {
		t.Error("a subject of 257 characters was stored")
	}
	created(t, s, good, r[1])
}

func caseSensitive(t *testing.T, s ordersvc.Store) {
	uid := Buyer(5, 5)
	orders := []schema.Order{Order(uid, "abc"), Order(uid, "ABC"), Order(uid, "Abc")}
	for i, r := range insert(t, s, orders...) {
		created(t, s, orders[i], r)
	}
}

func buyersOfOneSlot(t *testing.T, s ordersvc.Store) {
	a := Buyer(6, 6)
	b := a + 10*Databases // equal modulo 80, another slot of the same table
	c := Buyer(6, 6)      // equal modulo 640
	for _, uid := range []int64{a, b, c} {
		o := Order(uid, "slot")
		created(t, s, o, insert(t, s, o)[0])
	}
	for _, uid := range []int64{a, b, c} {
		page, err := s.List(background, Place(uid), ordersvc.Query{UID: uid, Before: 1<<63 - 1, Limit: 10})
		if err != nil || len(page.Orders) != 1 || page.Orders[0].UID != uid {
			t.Errorf("list of %d: %+v, %v", uid, page.Orders, err)
		}
	}
}

func merchants(t *testing.T, s ordersvc.Store) {
	a := Order(Buyer(6, 7), "merchant")
	b := Order(a.UID, a.OutTradeNo)
	b.BID++
	r := insert(t, s, a, b)
	created(t, s, a, r[0])
	created(t, s, b, r[1])
}

func duplicateID(t *testing.T, s ordersvc.Store) {
	first := Order(Buyer(7, 7), "first")
	created(t, s, first, insert(t, s, first)[0])
	before, twin, after := Order(Buyer(7, 7), "before"), Order(Buyer(7, 7), "twin"), Order(Buyer(7, 7), "after")
	twin.ID = first.ID
	r := insert(t, s, before, twin, after)
	created(t, s, before, r[0])
	if !errors.Is(r[1].Err, ordersvc.ErrDuplicateID) {
		t.Errorf("got %+v, want ErrDuplicateID", r[1])
	}
	created(t, s, after, r[2])
	absent(t, s, twin)
	twin.ID = Order(twin.UID, "").ID
	created(t, s, twin, insert(t, s, twin)[0])
}

func notFound(t *testing.T, s ordersvc.Store) {
	o := Order(Buyer(8, 3), "found")
	created(t, s, o, insert(t, s, o)[0])
	is := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, ordersvc.ErrNotFound) {
			t.Errorf("%s: %v, want ErrNotFound", what, err)
		}
	}
	_, err := s.Order(background, Place(o.UID), o.ID+1<<40)
	is("another id", err)
	_, err = s.Order(background, Place(Buyer(8, 4)), o.ID)
	is("in another table", err)
	_, err = s.Order(background, Place(Buyer(7, 3)), o.ID)
	is("in another database", err)
	for what, k := range map[string]ordersvc.Key{
		"another buyer":    {UID: Buyer(8, 3), BID: o.BID, OutTradeNo: o.OutTradeNo},
		"another merchant": {UID: o.UID, BID: o.BID + 1, OutTradeNo: o.OutTradeNo},
		"another number":   {UID: o.UID, BID: o.BID, OutTradeNo: "foun"},
	} {
		_, err = s.Find(background, Place(o.UID), k)
		is(what, err)
	}
	entries, err := s.Journal(background, Place(o.UID), o.ID)
	if err != nil || len(entries) != 0 {
		t.Errorf("the journal of a new order holds %d entries, %v", len(entries), err)
	}
	page, err := s.List(background, Place(o.UID), ordersvc.Query{UID: Buyer(8, 3), Before: 1<<63 - 1, Limit: 1})
	if err != nil || len(page.Orders) != 0 || page.Next != 0 {
		t.Errorf("the list of a buyer without orders: %+v, %v", page, err)
	}
}

func contextEnds(t *testing.T, s ordersvc.Store) {
	ctx, cancel := context.WithCancel(background)
	cancel()
	o := Order(Buyer(8, 8), "context")
	r := s.Insert(ctx, 8, []schema.Order{o})
	created(t, s, o, r[0])
}

// together runs n functions at the same moment.
func together(n int, f func(i int)) {
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		all.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	all.Wait()
}
