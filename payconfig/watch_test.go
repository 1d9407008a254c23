package payconfig

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/prometheus/client_golang/prometheus"
)

var quiet = slog.New(slog.DiscardHandler)

// A record keeps what was logged.
type record struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *record) count(s string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Count(r.text.String(), s)
}

func follow(t *testing.T, s *Store) (*Watch, *record) {
	t.Helper()
	var r record
	w, err := Follow(t.Context(), s, slog.New(slog.NewTextHandler(&r, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return w, &r
}

// metrics returns version, age and refused version, and the hash.
func metrics(t *testing.T, w *Watch) (version, age, refused float64, hash string) {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(w)
	families, err := r.Gather()
	if err != nil || len(families) != 3 {
		t.Fatal(families, err)
	}
	for _, f := range families {
		m := f.GetMetric()[0]
		switch f.GetName() {
		case "octopay_payconfig_version":
			version, hash = m.GetGauge().GetValue(), m.GetLabel()[0].GetValue()
		case "octopay_payconfig_age_seconds":
			age = m.GetGauge().GetValue()
		case "octopay_payconfig_refused_version":
			refused = m.GetGauge().GetValue()
		}
	}
	return version, age, refused, hash
}

// run runs w until the test's end.
func run(t *testing.T, w *Watch) {
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func version(w *Watch, v int64) func() bool {
	return func() bool { return w.Snapshot().Version() == v }
}

func TestARunningWatchFollowsTheNewest(t *testing.T) {
	b := newBench(t)
	w, _ := follow(t, b.Store)
	if !same(w.Snapshot(), Default()) {
		t.Fatalf("before there is one: %s", w.Snapshot().Document())
	}
	run(t, w)
	old := w.Snapshot()
	for v := int64(1); v <= 2; v++ {
		set := mustSet(t, b.Store, v-1, rated(t, int(v)))
		eventually.True(t, "the new version is in force", version(w, v))
		if !same(w.Snapshot(), set.Snapshot) || !same(old, Default()) {
			t.Errorf("in force is %s; who held the old one has %s", w.Snapshot().Document(), old.Document())
		}
		if version, _, refused, hash := metrics(t, w); version != float64(v) || refused != 0 || hash != set.Hash() {
			t.Errorf("metrics say %v, %v, %s", version, refused, hash)
		}
	}
}

// Fault 35. A stored config that isn't good is not in force, for who runs and for who
// starts; the last good one stays, and that is said once.
func TestTheLastGoodConfigStays(t *testing.T) {
	b := newBench(t)
	mustSet(t, b.Store, 0, rated(t, 1))
	good := mustSet(t, b.Store, 1, rated(t, 2))
	w, log := follow(t, b.Store)
	b.exec(t, "INSERT INTO %s SELECT version + 1, hash, REPLACE(text, '\"rate\":2', '\"rate\":0'), set_by, set_at FROM %[1]s WHERE version = 2")
	looks := func(w *Watch) {
		t.Helper()
		for range 3 {
			var damaged *DamagedError
			if err := w.Look(t.Context()); !errors.As(err, &damaged) || damaged.Version != 3 {
				t.Fatal(err)
			}
		}
		if version, _, refused, _ := metrics(t, w); !same(w.Snapshot(), good.Snapshot) || version != 2 || refused != 3 {
			t.Errorf("in force is %s; metrics say %v, %v", w.Snapshot().Document(), version, refused)
		}
	}
	looks(w)
	started, _ := follow(t, b.Store)
	looks(started)
	if n := log.count("level=ERROR"); n != 1 {
		t.Errorf("%d errors are logged", n)
	}

	// A newer good one ends it, and is no less in force when the damaged one is there.
	mustSet(t, b.Store, 3, rated(t, 4))
	if err := w.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if version, _, refused, _ := metrics(t, w); version != 4 || refused != 0 || log.count("is in force\" version=4") != 1 {
		t.Errorf("metrics say %v, %v", version, refused)
	}

	// The row of what is in force is damaged: it stays in this process, and another one
	// begins with the last that is good.
	b.exec(t, "UPDATE %s SET hash = REPEAT('0', 64) WHERE version = 4")
	var damaged *DamagedError
	if err := w.Look(t.Context()); !errors.As(err, &damaged) || w.Snapshot().Version() != 4 {
		t.Errorf("version %d, %v", w.Snapshot().Version(), err)
	}
	if started, _ = follow(t, b.Store); !same(started.Snapshot(), good.Snapshot) {
		t.Errorf("started with %s", started.Snapshot().Document())
	}
	// Versions that were good and are passed over: the newest of them is in force.
	mustSet(t, b.Store, 4, rated(t, 5))
	mustSet(t, b.Store, 5, rated(t, 6))
	b.exec(t, "UPDATE %s SET text = '' WHERE version = 6")
	if err := w.Look(t.Context()); !errors.As(err, &damaged) || damaged.Version != 6 || w.Snapshot().Version() != 5 {
		t.Errorf("version %d, %v", w.Snapshot().Version(), err)
	}
}

// Where nothing is good, nobody can say who may create.
func TestWithoutAnyGoodConfigNothingStarts(t *testing.T) {
	b := newBench(t)
	for v := range int64(damagedMax + 3) {
		mustSet(t, b.Store, v, rated(t, int(v)+1))
	}
	b.exec(t, "UPDATE %s SET text = 'x' WHERE version > 1")
	if w, err := Follow(t.Context(), b.Store, quiet); err == nil {
		t.Errorf("behind too many damaged ones, version %d is in force", w.Snapshot().Version())
	}
	b.exec(t, "DELETE FROM %s WHERE version BETWEEN 2 AND 10")
	if w, err := Follow(t.Context(), b.Store, quiet); err != nil || w.Snapshot().Version() != 1 {
		t.Error(err)
	}
	b.exec(t, "UPDATE %s SET text = 'x'")
	var damaged *DamagedError
	if _, err := Follow(t.Context(), b.Store, quiet); !errors.As(err, &damaged) {
		t.Errorf("%v", err)
	}
}

func TestWithoutTheMetaDatabaseTheLastConfigStays(t *testing.T) {
	b := newBench(t)
	mustSet(t, b.Store, 0, rated(t, 1))
	store, proxy := b.via(t)
	w, log := follow(t, store)
	run(t, w)
	accepted := proxy.Accepted()
	proxy.Refuse(true)
	if proxy.CutAll() == 0 {
		t.Fatal("nothing was cut")
	}
	eventually.True(t, "that it is away is logged", func() bool { return log.count("level=ERROR") > 0 })
	if err := w.Look(t.Context()); !errors.Is(err, cluster.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	_, before, _, _ := metrics(t, w)
	eventually.True(t, "its age grows", func() bool { _, age, _, _ := metrics(t, w); return age > before+1 })
	if !same(w.Snapshot(), rated(t, 1).at(1)) || w.Snapshot().AllowCreate(1001, "CNY") != nil {
		t.Errorf("in force is %s", w.Snapshot().Document())
	}
	mustSet(t, b.Store, 1, rated(t, 2))
	proxy.Refuse(false)
	eventually.True(t, "what was set meanwhile is in force", version(w, 2))
	eventually.True(t, "its age is small again", func() bool { _, age, _, _ := metrics(t, w); return age < before+1 })
	if proxy.Accepted() <= accepted {
		t.Error("nothing came through the proxy again")
	}
}

// The meta database was restored from a copy: everybody has what is stored there.
func TestWhatIsStoredIsInForceAlsoIfItIsOlder(t *testing.T) {
	b := newBench(t)
	for v := range int64(3) {
		mustSet(t, b.Store, v, rated(t, int(v)+1))
	}
	w, _ := follow(t, b.Store)
	b.exec(t, "DELETE FROM %s WHERE version > 1")
	if err := w.Look(t.Context()); err != nil || !same(w.Snapshot(), rated(t, 1).at(1)) {
		t.Errorf("%v, in force is %s", err, w.Snapshot().Document())
	}
	// Another config of the version that is in force.
	mustSet(t, b.Store, 1, rated(t, 8))
	if err := w.Look(t.Context()); err != nil || w.Snapshot().Version() != 2 {
		t.Fatal(err)
	}
	b.exec(t, "DELETE FROM %s WHERE version > 1")
	mustSet(t, b.Store, 1, rated(t, 9))
	if err := w.Look(t.Context()); err != nil || !same(w.Snapshot(), rated(t, 9).at(2)) {
		t.Errorf("%v, in force is %s", err, w.Snapshot().Document())
	}
}

// That nothing is stored where something was is nobody's decision to accept everybody.
func TestALostConfigIsNoConfigThatAccepts(t *testing.T) {
	b := newBench(t)
	mustSet(t, b.Store, 0, rated(t, 1))
	w, log := follow(t, b.Store)
	b.exec(t, "DELETE FROM %s")
	for range 3 {
		if err := w.Look(t.Context()); err == nil || w.Snapshot().Version() != 1 || !w.Snapshot().RefusesUnknown() {
			t.Errorf("%v, in force is %s", err, w.Snapshot().Document())
		}
	}
	if log.count("level=ERROR") != 1 {
		t.Error("it is not said once")
	}
}

// Many ask while it changes; nobody sees a part of one.
func TestManyReadWhileItChanges(t *testing.T) {
	b := newBench(t)
	w, _ := follow(t, b.Store)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for last := int64(0); ; {
				select {
				case <-stop:
					return
				default:
				}
				s := w.Snapshot()
				m, known := s.Merchant(1001)
				if s.Version() < last || known != (s.Version() > 0) || known && int64(m.Rate) != s.Version() {
					t.Errorf("version %d has %+v", s.Version(), m)
					return
				}
				last = s.Version()
			}
		})
	}
	for v := range int64(10) {
		mustSet(t, b.Store, v, rated(t, int(v)+1))
		if err := w.Look(t.Context()); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	wg.Wait()
}
