package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/octopay/octopay/auth"
	"github.com/octopay/octopay/httpapi/openapitest"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/syncer/conflict"
	"github.com/octopay/octopay/syncer/mirror"
	"github.com/prometheus/client_golang/prometheus"
)

// base is the time of the first order of a fake.
var base = time.Date(2026, 11, 30, 16, 0, 0, 0, time.UTC)

// fakeOrders keeps orders in memory, one ms after the other. It is also their mirror.
type fakeOrders struct {
	mu      sync.Mutex
	orders  []schema.Order // oldest first
	journal map[int64][]schema.Entry
	until   schema.Millis
	page    int // most orders in a page, 0: the query's limit

	// err is what every method fails with, panics what it throws.
	err    error
	panics any
	// block makes every method wait for its ctx, or for a value.
	block chan struct{}
	began chan struct{} // gets one value when a blocked method begins
	calls int
	query mirror.Query // the last list of orders

	entries mirror.EntryQuery // the last list of entries
}

func (f *fakeOrders) enter(ctx context.Context) error {
	f.mu.Lock()
	f.calls++
	err, panics := f.err, f.panics
	f.mu.Unlock()
	if f.block != nil {
		f.began <- struct{}{}
		select {
		case <-f.block:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if panics != nil {
		panic(panics)
	}
	return err
}

func (f *fakeOrders) Create(ctx context.Context, n ordersvc.New) (ordersvc.Created, error) {
	if err := f.enter(ctx); err != nil {
		return ordersvc.Created{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range f.orders {
		if (ordersvc.Key{UID: o.UID, BID: o.BID, OutTradeNo: o.OutTradeNo}) != n.Key {
			continue
		}
		if o.Amount != n.Amount || o.Currency != n.Currency || o.Subject != n.Subject {
			return ordersvc.Created{}, &ordersvc.ReusedError{OrderID: o.OrderID(), Status: o.Status}
		}
		return ordersvc.Created{Order: o, Replayed: true}, nil
	}
	at := base.Add(time.Duration(len(f.orders)) * time.Millisecond)
	o := schema.Order{
		ID: idgen.FirstAt(at) + 7, UID: n.UID, BID: n.BID, OutTradeNo: n.OutTradeNo, Amount: n.Amount,
		Currency: n.Currency, Subject: n.Subject, Metadata: n.Metadata, Status: schema.Created, Ver: 1,
		CreatedBy: n.Actor, RequestID: n.RequestID, UpdatedAt: schema.MillisOf(at) + 2,
		ExpiresAt: schema.MillisOf(at.Add(n.ExpiresIn)),
	}
	f.orders = append(f.orders, o)
	return ordersvc.Created{Order: o}, nil
}

func (f *fakeOrders) Get(ctx context.Context, id idgen.ID) (schema.Order, error) {
	return f.find(ctx, func(o schema.Order) bool { return o.OrderID() == id })
}

func (f *fakeOrders) Find(ctx context.Context, k ordersvc.Key) (schema.Order, error) {
	return f.find(ctx, func(o schema.Order) bool { return ordersvc.Key{UID: o.UID, BID: o.BID, OutTradeNo: o.OutTradeNo} == k })
}

func (f *fakeOrders) find(ctx context.Context, is func(schema.Order) bool) (schema.Order, error) {
	if err := f.enter(ctx); err != nil {
		return schema.Order{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := slices.IndexFunc(f.orders, is); i >= 0 {
		return f.orders[i], nil
	}
	return schema.Order{}, ordersvc.ErrNotFound
}

func (f *fakeOrders) CreateAll(ctx context.Context, all []ordersvc.New) []ordersvc.Outcome {
	out := make([]ordersvc.Outcome, len(all))
	for i, n := range all {
		out[i].Created, out[i].Err = f.Create(ctx, n)
	}
	return out
}

func (f *fakeOrders) Change(ctx context.Context, c ordersvc.Change) (ordersvc.Changed, error) {
	o, err := f.Get(ctx, c.Order)
	if err != nil {
		return ordersvc.Changed{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	l := ordersvc.Life{Order: o, Journal: f.journal[o.ID]}
	r := l.Apply(&c, schema.MillisOf(base.Add(time.Hour)))
	f.orders[slices.IndexFunc(f.orders, func(o schema.Order) bool { return o.OrderID() == c.Order })] = l.Order
	if f.journal == nil {
		f.journal = map[int64][]schema.Entry{}
	}
	f.journal[o.ID] = l.Journal
	return r, r.Err
}

func (f *fakeOrders) Life(ctx context.Context, id idgen.ID) (ordersvc.Life, error) {
	o, err := f.Get(ctx, id)
	return ordersvc.Life{Order: o, Journal: f.journal[o.ID]}, err
}

func (f *fakeOrders) Journal(ctx context.Context, o schema.Order) ([]schema.Entry, error) {
	if err := f.enter(ctx); err != nil {
		return nil, err
	}
	return f.journal[o.ID], nil
}

func (f *fakeOrders) List(ctx context.Context, q ordersvc.Query) (ordersvc.Page, error) {
	orders, next, err := f.list(ctx, mirror.Query{Status: q.Status, Min: q.Min, Before: q.Before, Limit: q.Limit},
		func(o schema.Order) bool { return o.UID == q.UID })
	return ordersvc.Page{Orders: orders, Next: next}, err
}

// list returns a page of the orders that match q, but for its owner.
func (f *fakeOrders) list(ctx context.Context, q mirror.Query, owned func(schema.Order) bool) ([]schema.Order, int64, error) {
	if err := f.enter(ctx); err != nil {
		return nil, 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.query = q
	if f.page > 0 {
		q.Limit = min(q.Limit, f.page)
	}
	var orders []schema.Order
	for _, o := range slices.Backward(f.orders) {
		if !owned(o) || o.ID < q.Min || o.ID >= q.Before ||
			q.Status != 0 && q.Status != o.Status || q.OutTradeNo != "" && q.OutTradeNo != o.OutTradeNo {
			continue
		}
		if len(orders) == q.Limit {
			return orders, orders[len(orders)-1].ID, nil
		}
		orders = append(orders, o)
	}
	return orders, 0, nil
}

// fakeMirror is a fakeOrders as a mirror.Reader.
type fakeMirror struct{ *fakeOrders }

func (f fakeMirror) List(ctx context.Context, q mirror.Query) (mirror.Page, error) {
	orders, next, err := f.list(ctx, q, func(o schema.Order) bool { return o.BID == q.BID })
	return mirror.Page{Orders: orders, Next: next, CompleteUntil: f.until}, err
}

// Entries returns a page of the entries that match q.
func (f fakeMirror) Entries(ctx context.Context, q mirror.EntryQuery) (mirror.EntryPage, error) {
	if err := f.enter(ctx); err != nil {
		return mirror.EntryPage{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.entries = q
	if f.page > 0 {
		q.Limit = min(q.Limit, f.page)
	}
	page := mirror.EntryPage{CompleteUntil: f.until}
	for _, o := range slices.Backward(f.orders) {
		journal := f.journal[o.ID]
		for _, e := range slices.Backward(journal) {
			at := mirror.Position{Order: e.OrderID, Seq: e.Seq}
			if q.BID != 0 && q.BID != e.BID || at.Compare(q.Before) >= 0 || !slices.Contains(q.Kinds, e.Kind) {
				continue
			}
			around := q.Around(&e, journal)
			if q.Match != nil && !q.Match(&e, around) {
				continue
			}
			if n := len(page.Found); n == q.Limit {
				last := page.Found[n-1].Entry
				page.Next = mirror.Position{Order: last.OrderID, Seq: last.Seq}
				return page, nil
			}
			page.Found = append(page.Found, mirror.Found{Entry: e, Journal: around})
		}
	}
	return page, nil
}

// devKeys are the development keys.
func devKeys() *auth.Keyring {
	k, _ := auth.Development(true)
	return k
}

// A service is a running API over fakes, and a client whose every request and answer is
// held to the contract.
type service struct {
	t         *testing.T
	api       *API
	orders    *fakeOrders
	conflicts *conflict.Memory
	url       string
	client    *http.Client
	server    *http.Server
	log       *syncBuffer
	registry  *prometheus.Registry
	// deadlines are those that the connections were given for reading.
	deadlines *deadlines
}

// start runs an API until the test ends; change may change its Config.
func start(t *testing.T, change ...func(*Config)) *service {
	t.Helper()
	s := &service{t: t, orders: &fakeOrders{journal: map[int64][]schema.Entry{}}, conflicts: conflict.NewMemory(8), log: &syncBuffer{}, registry: prometheus.NewRegistry(), deadlines: &deadlines{}}
	config := Config{
		Orders: s.orders, Mirror: fakeMirror{s.orders}, Conflicts: s.conflicts, Registry: s.registry, Keys: devKeys(),
		Logger: slog.New(slog.NewJSONHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range change {
		f(&config)
	}
	api, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	s.api = api
	server := httptest.NewUnstartedServer(nil)
	server.Config = NewServer(api, config.Logger)
	server.Listener = &listener{server.Listener, s.deadlines}
	server.Start()
	s.server = server.Config
	t.Cleanup(server.Close)
	s.url = server.URL
	s.client = &http.Client{
		Transport:     keyed{openapitest.Transport(t, server.Client().Transport)},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return s
}

// An answer is a response that was read.
type answer struct {
	t      *testing.T
	status int
	header http.Header
	body   string
}

// send sends a request; headers are pairs.
func (s *service) send(method, path, body string, headers ...string) answer {
	s.t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, s.url+path, r)
	if err != nil {
		s.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return s.do(req)
}

// keyed sends requests with the key of a role that may, unless they have one.
type keyed struct{ http.RoundTripper }

func (k keyed) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Header["Authorization"] == nil {
		key := "dev-app"
		switch p := req.URL.Path; {
		case strings.HasSuffix(p, "/pay"), strings.HasSuffix(p, "/result"):
			key = "dev-channel"
		case strings.HasSuffix(p, "/void"), strings.HasPrefix(p, "/v1/admin/"):
			key = "dev-ops"
		}
		req = req.Clone(req.Context())
		req.Header.Set("Authorization", "Bearer "+key)
	}
	return k.RoundTripper.RoundTrip(req)
}

func (s *service) do(req *http.Request) answer {
	s.t.Helper()
	res, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer{s.t, res.StatusCode, res.Header, string(body)}
}

func (s *service) get(path string, headers ...string) answer {
	s.t.Helper()
	return s.send(http.MethodGet, path, "", headers...)
}

func (s *service) create(body string) answer {
	s.t.Helper()
	return s.send(http.MethodPost, "/v1/orders", body)
}

// object reads the body as a JSON object.
func (a answer) object() map[string]any {
	a.t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		a.t.Fatalf("%d %q: %v", a.status, a.body, err)
	}
	return v
}

// is fails unless the answer has this status and, from 400 on, this code.
func (a answer) is(status int, code string) answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("status %d, want %d %s: %s", a.status, status, code, a.body)
	}
	if code != "" && a.object()["code"] != code {
		a.t.Fatalf("want code %s: %s", code, a.body)
	}
	return a
}

// faulty returns the faults of the fields, as "field code", in the answer's order.
func (a answer) faulty() (out []string) {
	a.t.Helper()
	list, _ := a.object()["errors"].([]any)
	for _, e := range list {
		e := e.(map[string]any)
		out = append(out, e["field"].(string)+" "+e["code"].(string))
	}
	return out
}

// body is a create that is right, with fields set to raw JSON or, by "", left out.
func body(fields ...string) string {
	values := map[string]string{
		"uid": `"9527"`, "bid": `"1001"`, "out_trade_no": `"20261130-000017"`,
		"amount": `19900`, "currency": `"CNY"`, "subject": `"Le Max 2"`,
	}
	order := []string{"uid", "bid", "out_trade_no", "amount", "currency", "subject"}
	for i := 0; i < len(fields); i += 2 {
		if _, known := values[fields[i]]; !known {
			order = append(order, fields[i])
		}
		values[fields[i]] = fields[i+1]
	}
	var parts []string
	for _, name := range order {
		if values[name] != "" {
			parts = append(parts, `"`+name+`":`+values[name])
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// syncBuffer is a bytes.Buffer for several goroutines.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// deadlines notes the read deadlines of connections.
type deadlines struct {
	mu  sync.Mutex
	all []time.Time
}

func (d *deadlines) list() []time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.all)
}

type listener struct {
	net.Listener
	deadlines *deadlines
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{c.(*net.TCPConn), l.deadlines}, nil
}

type conn struct {
	*net.TCPConn
	deadlines *deadlines
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.deadlines.mu.Lock()
	c.deadlines.all = append(c.deadlines.all, t)
	c.deadlines.mu.Unlock()
	return c.TCPConn.SetReadDeadline(t)
}
