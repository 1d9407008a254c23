package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer"
	"github.com/octopay/octopay/syncer/apply"
	"github.com/octopay/octopay/syncer/mirror"
	"github.com/octopay/octopay/syncer/source"
	"github.com/octopay/octopay/syncer/stream"
	"github.com/octopay/octopay/syncer/tap"
	"github.com/prometheus/client_golang/prometheus"
)

// A memoryStore commits orders and entries under one lock.
type memoryStore struct {
	mu  sync.Mutex
	tap *tap.Tap
}

func (s *memoryStore) now() schema.Millis {
	s.mu.Lock()
	defer s.mu.Unlock()
	return schema.MillisOf(time.Now())
}

func (s *memoryStore) put(o schema.Order, e ...schema.Entry) schema.Order {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.UpdatedAt = max(schema.MillisOf(time.Now()), o.CreatedAt())
	s.tap.Commit([]schema.Order{o}, e)
	return o
}

// inMemory returns what a service without any database is made of.
func (r *rig) inMemory() (syncer.Config, *memoryStore, *mirror.Memory) {
	r.t.Helper()
	m := r.stack.Map
	store := &memoryStore{}
	store.tap = tap.New(store.now)
	memory := mirror.NewMemory(m)
	st, err := stream.New(r.nc, m.Prefix(), stream.Config{})
	if err != nil {
		r.t.Fatal(err)
	}
	parts := syncer.Config{Map: m, Sources: map[string]source.Source{}, Stream: st, Log: r.log}
	for _, s := range m.Servers(shardmap.UID) {
		parts.Sources[s.Name] = store.tap
	}
	for n := range m.Size() {
		parts.Targets = append(parts.Targets, memory.Target(n+1))
	}
	return parts, store, memory
}

// Without any database: a tap, the same stream, the same appliers, a mirror in memory.
func TestInMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t, localstack.Test(t, localstack.NATS))
	parts, store, memory := r.inMemory()
	list := func(bid int64) mirror.Page {
		t.Helper()
		p, err := memory.List(t.Context(), mirror.Query{BID: bid, Before: 1<<63 - 1, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	var want []schema.Order
	for i := range 3 { // lives of the service; the store goes on
		stop := r.run(r.of(parts))
		for range 5 {
			o := store.put(newOrder(int64(100+i), 1001))
			o.Ver, o.Status = 2, schema.Paid
			o = store.put(o, schema.Entry{OrderID: o.ID, Seq: 2, UID: o.UID, BID: 1001, Kind: schema.KindPaid, From: schema.Created, To: schema.Paid, RecordedAt: 5})
			want = append([]schema.Order{o}, want...)
		}
		eventually.True(t, "the list is complete", func() bool { return list(1001).CompleteUntil > want[0].UpdatedAt })
		if diff := cmp.Diff(want, list(1001).Orders); diff != "" {
			t.Errorf("the list differs:\n%s", diff)
		}
		if e := memory.Journal(1001, want[0].ID); len(e) != 1 {
			t.Errorf("the journal is %v", e)
		}
		stop()
	}
}

func TestAServiceNeedsAllItsParts(t *testing.T) {
	r := newRig(t, localstack.Test(t, localstack.NATS))
	parts := r.parts(stream.Config{})
	for name, spoil := range map[string]func(*syncer.Config){
		"uid-a":     func(c *syncer.Config) { c.Sources = nil },
		"7 targets": func(c *syncer.Config) { c.Targets = c.Targets[1:] },
	} {
		c := parts
		spoil(&c)
		if _, err := syncer.New(c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

// metric returns the values of a metric by their labels, joined.
func metric(t *testing.T, g prometheus.Gatherer, name string) map[string]float64 {
	t.Helper()
	out, err := gathered(g, name)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// gathered is metric for another goroutine than the test's.
func gathered(g prometheus.Gatherer, name string) (map[string]float64, error) {
	families, err := g.Gather()
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			v := m.GetGauge().GetValue()
			if m.GetCounter() != nil {
				v = m.GetCounter().GetValue()
			}
			out[strings.Join(labels, " ")] = v
		}
	}
	return out, nil
}

// A stream that ends in rows of another group holds nothing back from an applier: its
// reader didn't stall.
func TestAnApplierDoesNotWaitForRowsOfOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t, localstack.Test(t, localstack.NATS))
	m, s := r.stack.Map, r.stream()
	info, err := s.Ensure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.Writer(t.Context(), "uid-a", info)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Mark(t.Context(), source.Position{}, 1000); err != nil {
		t.Fatal(err)
	}
	memory := mirror.NewMemory(m)
	mine := memory.Target(1)
	if _, err := w.Rows(t.Context(), []stream.Packed{{Group: apply.Group(mine) + 1, Rows: 1, Data: []byte("another's")}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Patience)
	defer cancel()
	applied := sync.OnceFunc(func() { time.AfterFunc(5*time.Second, cancel) }) // it looks after 3 s
	a := apply.Applier{Map: m, Stream: s, Target: mine, Applied: func(apply.Report) { applied() }}
	if err := a.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("the applier ended: %v", err)
	}
	if state, err := mine.State(t.Context()); err != nil || state.Progress.Seq != 1 {
		t.Errorf("applied %+v, %v: the test shows nothing", state, err)
	}
}

// A healthy first start has no warning: appliers that are there before a collector has made
// the stream say once that they wait for it.
func TestAFirstStartWarnsOfNothing(t *testing.T) {
	r := newRig(t, localstack.Test(t, all...))
	parts := r.parts(stream.Config{})
	late := lateCollectors{until: make(chan struct{})}
	parts.Leaser = late
	service := r.of(parts)
	r.run(service)
	eventually.True(t, "all appliers wait", func() bool {
		return strings.Count(r.lines.String(), "waiting for the stream") == parts.Map.Size()
	})
	close(late.until)
	stored := r.put(newOrder(9527, 1001))
	eventually.True(t, "the list is complete", func() bool { _, until := r.list(1001); return until > stored[0].UpdatedAt })
	eventually.True(t, "everything is running", func() bool {
		for _, state := range service.States() {
			if state != "running" {
				return false
			}
		}
		return true
	})
	for _, level := range []string{"level=WARN", "level=ERROR"} {
		if r.lines.has(level) {
			t.Errorf("a healthy start says %s", level)
		}
	}
	if n := strings.Count(r.lines.String(), "waiting for the stream"); n != parts.Map.Size() {
		t.Errorf("the wait for the stream was said %d times", n)
	}
}

// lateCollectors is a Leaser that lets the collectors wait.
type lateCollectors struct{ until chan struct{} }

func (l lateCollectors) Hold(ctx context.Context, name string, _ func(), f func(context.Context) error) error {
	if strings.HasPrefix(name, "collector/") {
		select {
		case <-l.until:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return f(ctx)
}

// The lag can't read 0 while behind: at rest it is one to two seconds, and it grows by
// itself when nothing comes any more.
func TestTheLagSaysHowFarBehindADatabaseIs(t *testing.T) {
	t.Parallel()
	r := newRig(t, localstack.Test(t, all...))
	r.seed()
	parts := r.parts(stream.Config{})
	stuck := &gate{Target: parts.Targets[0], open: opened}
	parts.Targets[0] = stuck
	service := r.of(parts)
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(service)
	r.run(service)
	first := parts.Map.Database(shardmap.BID, 1).Schema
	second := parts.Map.Database(shardmap.BID, 2).Schema
	lag := func(database string) float64 {
		t.Helper()
		v, ok := metric(t, reg, "octopay_mirror_lag_seconds")[database+" uid-a"]
		if !ok {
			return -1
		}
		return v
	}
	eventually.True(t, "both are told", func() bool { return lag(first) > 0 && lag(second) > 0 })
	eventually.True(t, "at rest it is small", func() bool { return lag(first) < 3 && lag(second) < 3 })
	if l := lag(first); l < 0.9 {
		t.Errorf("a lag of %f s is less than stamps lie back", l)
	}
	closed := make(chan struct{})
	stuck.set(closed)
	r.put(newOrder(9527, 1001))
	eventually.True(t, "the lag of the database that is stuck grows", func() bool { return lag(first) > 4 })
	eventually.True(t, "that of the other doesn't", func() bool { return lag(second) < 3 })
	close(closed)
	eventually.True(t, "it catches up", func() bool { return lag(first) < 3 })
	r.equal()

	rows := metric(t, reg, "octopay_mirror_published_rows_total")["uid-a"]
	applied := 0.0
	for _, v := range metric(t, reg, "octopay_mirror_applied_orders_total") {
		applied += v
	}
	if rows != 1 || applied != 1 {
		t.Errorf("%f rows published, %f orders applied, want 1", rows, applied)
	}
	running := metric(t, reg, "octopay_mirror_part_running")
	if want := 1 + parts.Map.Size(); len(running) != want || len(service.States()) != want {
		t.Errorf("%d parts are told, %d have a state, want %d", len(running), len(service.States()), want)
	}
	eventually.True(t, "each part runs, and is told to", func() bool {
		running := metric(t, reg, "octopay_mirror_part_running")
		for name, state := range service.States() {
			if state != "running" || running[name] != 1 {
				return false
			}
		}
		return true
	})
}

// What the server no longer has can't be collected: the collector stops, and says
// which databases lack it.
func TestAPurgedLogNamesTheDatabasesToRefill(t *testing.T) {
	t.Parallel()
	r := newRig(t, localstack.Test(t, all...))
	r.seed()
	parts := r.parts(stream.Config{})
	oldest, err := source.ParsePosition("101-101-2")
	if err != nil {
		t.Fatal(err)
	}
	parts.Sources["uid-a"] = &purged{Source: parts.Sources["uid-a"], oldest: oldest}
	// Two databases are behind what is kept, the others beyond.
	behind := []shardmap.Database{parts.Map.Database(shardmap.BID, 2), parts.Map.Database(shardmap.BID, 5)}
	for i, d := range behind {
		_, err := r.stack.Admin(t, d.Server.Name).Exec("UPDATE `"+d.Schema+"`.mark SET gtid = ?", []string{"", "101-101-1"}[i])
		if err != nil {
			t.Fatal(err)
		}
	}
	r.run(r.of(parts))
	eventually.True(t, "it is said", func() bool { return r.lines.has("must be refilled") })
	want := fmt.Sprintf("must be refilled from the truth: %s, %s\"", behind[0].Schema, behind[1].Schema)
	if !r.lines.has(want) {
		t.Errorf("the log doesn't say %s", want)
	}
	if n := strings.Count(r.lines.String(), "must be refilled"); n != 1 {
		t.Errorf("it was said %d times", n)
	}
}

type purged struct {
	source.Source
	oldest source.Position
}

func (p *purged) Open(_ context.Context, after source.Position) (source.Reader, error) {
	if after.Covers(p.oldest) {
		return nil, errors.New("asked for what is kept")
	}
	return nil, fmt.Errorf("binlog: %w", &source.PurgedError{Oldest: p.oldest})
}
