package e2e_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/slot"
	"golang.org/x/sync/errgroup"
)

const (
	orders      = 10_000
	buyerOrders = 7 // of one buyer, on average
	merchants   = 60
	repeatEvery = 33 // requests between two repeats of an earlier one
	clients     = 64
)

// traffic makes the requests of the main job: uniform buyers, Zipf merchants, and a
// few hundred repeats of earlier requests among them. The same seed, the same
// requests.
func traffic(seed uint64, orders int) []request {
	rng := rand.New(rand.NewPCG(seed, 0))
	zipf := rand.NewZipf(rng, 1.3, 1, merchants-1)
	uids := make([]int64, max(orders/buyerOrders, 1))
	for i := range uids {
		uids[i] = 1 + rng.Int64N(1<<62)>>rng.IntN(50) // of every length
	}
	out := make([]request, 0, orders+orders/10)
	for i := range orders {
		out = append(out, request{
			UID: fmt.Sprint(uids[rng.IntN(len(uids))]), BID: fmt.Sprint(1001 + zipf.Uint64()*7919),
			OutTradeNo: fmt.Sprintf("20261130-%06d", i), Amount: 1 + rng.Int64N(1_000_000),
			Currency: []string{"CNY", "JPY", "KWD"}[rng.IntN(3)], Subject: "Le Max 2 🐙",
			Metadata: map[string]string{"sku": fmt.Sprint(rng.IntN(100))},
		})
		if rng.IntN(repeatEvery) == 0 {
			out = append(out, out[rng.IntN(len(out))])
		}
	}
	return out
}

// An acknowledged create.
type acknowledged struct {
	request request
	raw     string // the order as answered first
	status  int
	unknown bool // the answer of an earlier attempt was lost, or said that it isn't known
	told    bool // it said so
}

func TestTenThousandOrdersAreEachFoundOnceAndEqualWhileTheMirrorIsKilled(t *testing.T) {
	stack := localstack.Test(t)
	env := environment(t, stack)
	api := []string{start(t, "orderd", env).ready(t).api, start(t, "orderd", env).ready(t).api}
	mirror := start(t, "syncerd", env)
	kills := 0
	done := drive(t, each(api...), traffic(1, orders), func(progress func(share float64)) {
		for _, share := range []float64{0.25, 0.5, 0.75} {
			progress(share)
			mirror.kill(t)
			kills++
			mirror = start(t, "syncerd", env)
		}
	})
	if kills != 3 {
		t.Fatalf("syncerd was killed %d times", kills)
	}
	verify(t, stack, api, done)
	t.Logf("%s; syncerd killed %d times; each order found by id, by buyer, by merchant, and by SQL in both clusters", done, kills)
}

// A run is what became of a list of requests.
type run struct {
	acked                                map[string]acknowledged // by order id
	requests, created, replayed, unknown int
}

func (r run) String() string {
	return fmt.Sprintf("%d requests for %d orders: %d answered 201, %d replayed, %d had an unknown outcome and were settled by repeating",
		r.requests, len(r.acked), r.created, r.replayed, r.unknown)
}

// drive sends requests by many clients, repeating each until it is settled. Meanwhile
// it calls during, whose argument waits until a share of them is under way. It checks
// that the answers agree with each other.
func drive(t *testing.T, api func() string, requests []request, during func(progress func(share float64))) run {
	t.Helper()
	var next, created, replayed, unknown atomic.Int64
	answers := make([]acknowledged, len(requests))
	var g errgroup.Group
	for range clients {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(requests) {
					return nil
				}
				a, err := settle(t, api, requests[i])
				if a.unknown > 0 {
					unknown.Add(1)
				}
				switch {
				case err != nil:
					return err
				case a.status == http.StatusCreated:
					created.Add(1)
				case a.status == http.StatusOK && a.header.Get("Idempotent-Replayed") == "true":
					replayed.Add(1)
				default:
					return fmt.Errorf("create %d: %s", i, a)
				}
				answers[i] = acknowledged{requests[i], string(a.raw), a.status, a.unknown > 0, a.told > 0}
			}
		})
	}
	during(func(share float64) {
		at := int64(share * float64(len(requests)))
		eventually.Within(t, 5*time.Minute, fmt.Sprintf("%d requests", at), func() bool { return next.Load() >= at })
	})
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}

	// Every request of one key was answered with the same order, at most one of them
	// with 201.
	acked := map[string]acknowledged{} // by order id
	keys := map[string]string{}        // idempotency key -> order id
	firsts := map[string]int{}
	for i, a := range answers {
		o := answer{raw: []byte(a.raw)}.order(t)
		key := o.UID + "/" + o.BID + "/" + o.OutTradeNo
		if id, known := keys[key]; known && id != o.OrderID {
			t.Fatalf("request %d was answered with order %s, its twin with %s", i, o.OrderID, id)
		}
		keys[key], acked[o.OrderID] = o.OrderID, a
		if a.status == http.StatusCreated {
			firsts[key]++
		}
		if r := a.request; o.UID != r.UID || o.BID != r.BID || o.OutTradeNo != r.OutTradeNo || o.Amount != r.Amount ||
			o.Currency != r.Currency || o.Subject != r.Subject || !maps.Equal(o.Metadata, r.Metadata) || o.Status != "created" || o.Version != 1 {
			t.Fatalf("request %d: sent %+v, answered %s", i, r, a.raw)
		}
	}
	for key, n := range firsts {
		if n != 1 {
			t.Fatalf("%s was created %d times", key, n)
		}
	}
	// Where an answer was lost, the 201 may have been lost with it.
	if distinct := distinct(requests); len(acked) != distinct || len(firsts)+int(unknown.Load()) < distinct {
		t.Fatalf("%d orders, %d of them answered 201, %d unknown; want %d", len(acked), len(firsts), unknown.Load(), distinct)
	}
	return run{acked, len(requests), int(created.Load()), int(replayed.Load()), int(unknown.Load())}
}

// distinct returns how many orders the requests ask for.
func distinct(requests []request) int {
	keys := map[[3]string]bool{}
	for _, r := range requests {
		keys[[3]string{r.UID, r.BID, r.OutTradeNo}] = true
	}
	return len(keys)
}

// verify finds every acknowledged order of a run, once and equal: by id, by walking
// the lists of every buyer and of every merchant, and by SQL in both clusters, where
// nothing else is.
func verify(t *testing.T, stack *localstack.Stack, api []string, done run) {
	t.Helper()
	acked := done.acked
	awaitMirror(t, api[0], acked)
	for i, found := range []map[string]string{
		byID(t, api, acked),
		byLists(t, api[len(api)-1]+"/v1/users/%s/orders", 97, acked, func(o order) string { return o.UID }),
		byLists(t, api[0]+"/v1/merchants/%s/orders", 100, acked, func(o order) string { return o.BID }),
	} {
		name := []string{"by id", "by walking the buyers' lists", "by walking the merchants' lists"}[i]
		if len(found) != len(acked) {
			t.Errorf("%s: %d orders, want %d", name, len(found), len(acked))
		}
		for id, a := range acked {
			if found[id] != a.raw {
				t.Fatalf("%s: %s is\n%s\nacknowledged\n%s", name, id, found[id], a.raw)
			}
		}
	}
	c := stack.Cluster(t)
	truth, copies := rows(t, c, shardmap.UID), rows(t, c, shardmap.BID)
	if len(truth) != len(acked) || len(copies) != len(acked) {
		t.Errorf("by SQL: %d rows in the truth, %d in the mirror, want %d in each", len(truth), len(copies), len(acked))
	}
	for id, row := range truth {
		if copies[id] != row {
			t.Errorf("the mirror has\n%+v of\n%+v", copies[id], row)
		}
		if _, ok := acked[row.OrderID().String()]; !ok {
			t.Errorf("a row that was never acknowledged: %s", row.OrderID())
		}
	}
}

// awaitMirror waits until every merchant's list says that it includes all changes of
// the acknowledged orders.
func awaitMirror(t *testing.T, api string, acked map[string]acknowledged) {
	t.Helper()
	var newest time.Time
	bids := map[string]bool{}
	for _, a := range acked {
		o := answer{raw: []byte(a.raw)}.order(t)
		bids[o.BID] = true
		if o.UpdatedAt.After(newest) {
			newest = o.UpdatedAt
		}
	}
	for bid := range bids {
		// A MariaDB that met a full disk looks again after 60 s.
		eventually.Within(t, 5*time.Minute, "the mirror is complete for merchant "+bid, func() bool {
			a := mustGet(t, api+"/v1/merchants/"+bid+"/orders?limit=1")
			until, err := time.Parse(time.RFC3339, a.header.Get("X-Mirror-Complete-Until"))
			if err != nil {
				t.Fatal(err)
			}
			return until.After(newest)
		})
	}
}

func byID(t *testing.T, api []string, acked map[string]acknowledged) map[string]string {
	t.Helper()
	found := map[string]string{}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(clients)
	n := 0
	for id := range acked {
		n++
		base := api[n%len(api)]
		g.Go(func() error {
			a, err := read(t, base+"/v1/orders/"+id)
			if err != nil {
				return err
			}
			if a.status != http.StatusOK {
				return fmt.Errorf("%s: %s", id, a)
			}
			mu.Lock()
			defer mu.Unlock()
			found[id] = string(a.raw)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	return found
}

// byLists walks the list of every key, and returns all orders; one that is in two
// lists is a fault.
func byLists(t *testing.T, target string, limit int, acked map[string]acknowledged, key func(order) string) map[string]string {
	t.Helper()
	lists := map[string]bool{}
	for _, a := range acked {
		lists[key(answer{raw: []byte(a.raw)}.order(t))] = true
	}
	found := map[string]string{}
	for k := range lists {
		for id, raw := range walk(t, fmt.Sprintf(target, k), limit) {
			if _, twice := found[id]; twice {
				t.Fatalf("%s is in two lists", id)
			}
			found[id] = raw
		}
	}
	return found
}

// rows reads every order row of a cluster by SQL, and checks that each is in the
// table of its key.
func rows(t *testing.T, c *cluster.Cluster, cl shardmap.Cluster) map[int64]schema.Order {
	t.Helper()
	all := map[int64]schema.Order{}
	eachRow(t, c, cl, "SELECT "+schema.List(schema.OrderColumns)+" FROM `%s`.order_%d", func(scan func(...any) error, at shardmap.Location) error {
		var o schema.Order
		if err := scan(o.Fields()...); err != nil {
			return err
		}
		key := o.UID
		if cl == shardmap.BID {
			key = o.BID
		}
		if c.Map().Locate(key) != at {
			t.Errorf("%s is in %+v", o.OrderID(), at)
		}
		if _, twice := all[o.ID]; twice {
			t.Errorf("%s is stored twice", o.OrderID())
		}
		all[o.ID] = o
		return nil
	})
	return all
}

// mirrored waits until the mirror has these rows and journals, and nothing else.
func mirrored(t *testing.T, c *cluster.Cluster, truth map[int64]schema.Order, journal map[int64][]schema.Entry) {
	t.Helper()
	eventually.Within(t, 2*time.Minute, "the mirror has the same rows and entries", func() bool {
		copies := rows(t, c, shardmap.BID)
		if !maps.Equal(copies, truth) {
			return false
		}
		same := entries(t, c, shardmap.BID)
		for id, want := range journal {
			if fmt.Sprint(same[id]) != fmt.Sprint(want) {
				return false
			}
		}
		return len(same) == len(journal)
	})
}

// entries reads every journal of a cluster by SQL, by order, oldest first.
func entries(t *testing.T, c *cluster.Cluster, cl shardmap.Cluster) map[int64][]schema.Entry {
	t.Helper()
	all := map[int64][]schema.Entry{}
	eachRow(t, c, cl, "SELECT "+schema.List(schema.EntryColumns)+" FROM `%s`.journal_%d ORDER BY order_id, seq", func(scan func(...any) error, _ shardmap.Location) error {
		var e schema.Entry
		err := scan(e.Fields()...)
		all[e.OrderID] = append(all[e.OrderID], e)
		return err
	})
	return all
}

// eachRow calls each with every row of a query, of a schema and a table, over all tables
// of a cluster.
func eachRow(t *testing.T, c *cluster.Cluster, cl shardmap.Cluster, query string, each func(scan func(...any) error, at shardmap.Location) error) {
	t.Helper()
	for _, place := range c.Map().Databases(cl) {
		err := c.Database(cl, place.Number).Read(t.Context(), func(ctx context.Context, conn *sql.Conn) error {
			for table := range slot.Tables {
				rs, err := conn.QueryContext(ctx, fmt.Sprintf(query, place.Schema, table))
				if err != nil {
					return err
				}
				for rs.Next() && err == nil {
					err = each(rs.Scan, shardmap.Location{Database: place.Number, Table: table})
				}
				if err := errors.Join(err, rs.Err(), rs.Close()); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Fault 4.
func TestAHundredParallelEqualCreatesOverThreeProcessesMakeOneOrder(t *testing.T) {
	stack := localstack.Test(t, localstack.UID, localstack.BID, localstack.Meta)
	env := environment(t, stack)
	var api []string
	for range 3 {
		api = append(api, start(t, "orderd", env).ready(t).api)
	}
	for round := range 5 {
		body := request{UID: "9527", BID: "1001", OutTradeNo: fmt.Sprintf("same-%d", round), Amount: 19900, Currency: "CNY", Subject: "Le Max 2"}
		answers := make([]settled, 100)
		begin := make(chan struct{})
		var unknown atomic.Int64
		var g errgroup.Group
		for i := range answers {
			g.Go(func() (err error) {
				<-begin
				answers[i], err = settle(t, each(api[i%3]), body)
				unknown.Add(int64(answers[i].unknown))
				return err
			})
		}
		close(begin)
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		// Where an answer was lost, the 201 may have been lost with it.
		statuses := map[int]int{}
		ids := map[string]bool{}
		for _, a := range answers {
			statuses[a.status]++
			ids[a.order(t).OrderID] = true
		}
		lost := unknown.Load() > 0 && statuses[http.StatusCreated] == 0
		if statuses[http.StatusCreated] != 1 && !lost || statuses[http.StatusCreated]+statuses[http.StatusOK] != 100 || len(ids) != 1 {
			t.Fatalf("statuses %v, %d orders; want one 201, 99 times 200, one order", statuses, len(ids))
		}
	}
	if n := len(rows(t, stack.Cluster(t), shardmap.UID)); n != 5 {
		t.Errorf("%d rows after 5 rounds", n)
	}
}

func TestTwoBuyersOfOneTableWithOneNumberHaveTwoOrders(t *testing.T) {
	stack := localstack.Test(t, localstack.UID, localstack.BID, localstack.Meta)
	api := start(t, "orderd", environment(t, stack)).ready(t).api
	var ids []string
	uids := []int64{9527, 9527 + 80, 9527 + 640}
	for _, uid := range uids {
		if m := stack.Map; m.Locate(uid) != m.Locate(uids[0]) {
			t.Fatalf("%d and %d have different tables", uid, uids[0])
		}
		a, err := call(t, t.Context(), http.MethodPost, api+"/v1/orders",
			request{UID: fmt.Sprint(uid), BID: "1001", OutTradeNo: "A-1", Amount: 100, Currency: "CNY", Subject: "x"})
		if err != nil || a.status != http.StatusCreated {
			t.Fatalf("%s, %v", a, err)
		}
		ids = append(ids, a.order(t).OrderID)
	}
	slices.Sort(ids)
	if len(slices.Compact(ids)) != len(uids) {
		t.Fatalf("orders %v", ids)
	}
	for _, uid := range uids {
		q := url.Values{"uid": {fmt.Sprint(uid)}, "bid": {"1001"}, "out_trade_no": {"A-1"}}
		if o := mustGet(t, api+"/v1/orders?"+q.Encode()).order(t); o.UID != fmt.Sprint(uid) {
			t.Errorf("looked up %d, found the order of %s", uid, o.UID)
		}
	}
	if a, err := call(t, t.Context(), http.MethodPost, api+"/v1/orders",
		request{UID: "9527", BID: "1001", OutTradeNo: "A-1", Amount: 101, Currency: "CNY", Subject: "x"}); err != nil || a.status != http.StatusConflict {
		t.Fatalf("another amount under a used number: %s, %v", a, err)
	} else {
		var p struct {
			Code    string `json:"code"`
			OrderID string `json:"order_id"`
		}
		if err := json.Unmarshal(a.raw, &p); err != nil || p.Code != "out_trade_no_reused" || !slices.Contains(ids, p.OrderID) {
			t.Errorf("problem %s", a)
		}
	}
}
