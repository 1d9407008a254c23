package front_test

import (
	"context"
	"encoding/json"
	"fmt"
	"github.com/octopay/octopay/auth"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/lease"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/ordersvc/memstore"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/services/internal/boot"
	"github.com/octopay/octopay/services/internal/front"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/conflict"
	"github.com/octopay/octopay/syncer/mirror"
)

func TestMain(m *testing.M) { eventually.Main(m) }

// slow is a store whose transactions wait until they are let go.
type slow struct {
	*memstore.Store
	begun chan int // orders of a transaction that waits
	going chan struct{}
}

func (s *slow) Insert(ctx context.Context, database int, orders []schema.Order) []ordersvc.Result {
	s.begun <- len(orders)
	<-s.going
	return s.Store.Insert(ctx, database, orders)
}

// none is a table of leases in which everything is taken.
type none struct{ lease.Table }

func (none) Taken(context.Context, string) (map[string]bool, time.Time, error) {
	all := map[string]bool{}
	for n := range idgen.Workers {
		all[fmt.Sprint("worker/", n)] = true
	}
	return all, time.Now(), nil
}

// shards is a map of eight databases in memory.
func shards(t *testing.T) *shardmap.Map {
	t.Helper()
	m, err := shardmap.New(shardmap.OneServer(shardmap.Server{Name: "memory", Address: "memory:0"}, 8))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// start runs a front on memory until stop is called.
func start(t *testing.T, store ordersvc.Store, leases lease.Table) (base string, ready *boot.Readiness, serving <-chan net.Addr, stop func() error) {
	t.Helper()
	listening := make(addresses, 1)
	keys, _ := auth.Development(true)
	program := boot.NewProgram(slog.New(slog.NewJSONHandler(listening, nil)), boot.Shared{})
	served := make(chan net.Addr, 1)
	f := front.Front{
		Shards: func() *shardmap.Map { return shards(t) }, Store: store, Mirror: mirror.NewMemory(shards(t)), Conflicts: conflict.NewMemory(8), Leases: leases, Keys: keys,
		Ready: program.Ready, Registry: program.Registry, Log: program.Log, Addr: "127.0.0.1:0", Grace: eventually.Patience,
		Serving: func(a net.Addr) { served <- a },
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() { _ = stop() })
	return "http://" + <-listening, program.Ready, served, stop
}

// addresses are those in a log at which something listens.
type addresses chan string

func (a addresses) Write(line []byte) (int, error) {
	var said struct{ Msg, Addr string }
	if json.Unmarshal(line, &said) == nil && said.Msg == "listening" {
		a <- said.Addr
	}
	return len(line), nil
}

var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: eventually.Patience}

func create(base, number string) (int, string, error) {
	req, err := http.NewRequest(http.MethodPost, base+"/v1/orders", strings.NewReader(
		`{"uid":"9527","bid":"1001","out_trade_no":"`+number+`","amount":1,"currency":"CNY","subject":"x"}`))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer dev-app")
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// What was accepted before the end is answered, and what was answered is stored.
func TestTheEndWaitsForWhatWasAccepted(t *testing.T) {
	store := &slow{memstore.New(memstore.Config{}), make(chan int), make(chan struct{})}
	base, ready, serving, stop := start(t, store, lease.NewMemory(time.Now))
	<-serving
	type outcome struct {
		status int
		body   string
		err    error
	}
	const n = 20
	outcomes := make(chan outcome, n)
	for i := range n {
		go func() {
			status, body, err := create(base, fmt.Sprint("A-", i))
			outcomes <- outcome{status, body, err}
		}()
	}
	begun := <-store.begun // the first transaction is in flight; the others gather
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	eventually.True(t, "it is draining", ready.Draining)
	close(store.going)
	go func() {
		for range store.begun { // the transactions of those that gathered
		}
	}()
	stored, refused := 0, 0
	for range n {
		switch o := <-outcomes; {
		case o.status == http.StatusCreated:
			stored++
		case o.status == http.StatusServiceUnavailable || o.err != nil:
			refused++ // it came too late
		default:
			t.Errorf("%d %s", o.status, o.body)
		}
	}
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	close(store.begun)
	if begun == 0 || stored < begun {
		t.Errorf("%d answered 201, %d were in the transaction in flight", stored, begun)
	}
	page, err := store.List(t.Context(), shardmap.Location{Database: 1, Table: 7}, ordersvc.Query{UID: 9527, Before: 1<<63 - 1, Limit: 100})
	if err != nil || len(page.Orders) != stored {
		t.Errorf("%d orders are stored, %d were acknowledged (%v)", len(page.Orders), stored, err)
	}
	t.Logf("%d in flight at the end, %d acknowledged, %d refused", begun, stored, refused)
}

func TestWithoutAWorkerNumberAllButCreatesIsServed(t *testing.T) {
	base, ready, _, stop := start(t, memstore.New(memstore.Config{}), none{lease.NewMemory(time.Now)})
	get := func(path string) (status int) {
		req, err := http.NewRequest(http.MethodGet, base+path, nil)
		if err != nil {
			return 0
		}
		req.Header.Set("Authorization", "Bearer dev-app")
		resp, err := client.Do(req)
		if err != nil {
			return 0
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	eventually.True(t, "lists are served", func() bool { return get("/v1/users/9527/orders") == http.StatusOK })
	if status, body, err := create(base, "A-1"); status != http.StatusServiceUnavailable || !strings.Contains(body, `"shard_unavailable"`) {
		t.Errorf("create: %d %s %v", status, body, err)
	}
	if missing := ready.Missing(); len(missing) != 1 {
		t.Errorf("it waits for %v", missing)
	}
	if err := stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// A worker number that is acquired is lost for its term: a program that can't listen,
// and is started again and again, must not use them up.
func TestAPortInUseCostsNoWorkerNumber(t *testing.T) {
	base, _, serving, _ := start(t, memstore.New(memstore.Config{}), lease.NewMemory(time.Now))
	<-serving
	table := lease.NewMemory(time.Now)
	keys, _ := auth.Development(true)
	program := boot.NewProgram(slog.New(slog.DiscardHandler), boot.Shared{})
	f := front.Front{
		Shards: func() *shardmap.Map { return shards(t) }, Store: memstore.New(memstore.Config{}), Mirror: mirror.NewMemory(shards(t)), Conflicts: conflict.NewMemory(8), Leases: table, Keys: keys,
		Ready: program.Ready, Registry: program.Registry, Log: program.Log, Addr: strings.TrimPrefix(base, "http://"),
	}
	if err := f.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("error %v", err)
	}
	taken, _, err := table.Taken(t.Context(), "worker/")
	if err != nil || len(taken) != 0 {
		t.Errorf("%d numbers are taken, %v", len(taken), err)
	}
}

// Whoever balances load asks readiness, also while the listener still takes requests.
func TestReadinessSaysThatItEnds(t *testing.T) {
	_, ready, serving, stop := start(t, memstore.New(memstore.Config{}), lease.NewMemory(time.Now))
	<-serving
	if ready.Draining() {
		t.Error("it drains before its end")
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if !ready.Draining() {
		t.Error("readiness doesn't say that it ends")
	}
}
