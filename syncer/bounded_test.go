package syncer_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/stream"
	"github.com/prometheus/client_golang/prometheus"
)

// Fault 19: a full stream dropped acknowledged messages. Here three times what it holds
// goes through it within the time that applied messages are kept for, while one database
// stands still for a while: the collector meets the full stream and waits, the log is the
// buffer, the lag shows it, and every row arrives.
func TestFault19ThreeTimesTheStreamFlowsThrough(t *testing.T) {
	t.Parallel()
	r := newRig(t, localstack.Test(t, all...))
	r.seed()
	const maxBytes = 1 << 20
	parts := r.parts(stream.Config{MaxBytes: maxBytes})
	open := make(chan struct{})
	parts.Targets[0] = &gate{Target: parts.Targets[0], open: open}
	service := r.of(parts)
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(service)
	r.run(service)
	value := func(name, labels string) float64 {
		t.Helper()
		if v, ok := metric(t, reg, name)[labels]; ok {
			return v
		}
		return -1
	}
	first, second := parts.Map.Database(shardmap.BID, 1).Schema, parts.Map.Database(shardmap.BID, 2).Schema
	eventually.True(t, "the other databases go on", func() bool { _, until := r.list(11); return until > 0 })

	bytes, orders := 0, 0
	write := func() {
		t.Helper()
		var batch []schema.Order
		for range 8 {
			o := newOrder(9527, int64(1+10*(orders%8)))
			o.Metadata = `{"k":"` + strings.Repeat("x", 20_000) + `"}`
			bytes += len(o.Metadata)
			orders++
			batch = append(batch, o)
		}
		r.put(batch...)
	}
	for bytes < maxBytes*3/2 {
		write()
	}
	eventually.True(t, "the collector meets the full stream", func() bool { return value("octopay_mirror_stream_full", "uid-a") == 1 })
	if info, err := r.stream().Info(t.Context()); err != nil || info.Bytes > maxBytes || info.Bytes < maxBytes*3/4 || info.First != 1 {
		t.Errorf("the full stream is %+v, %v", info, err)
	}
	for bytes < 3*maxBytes { // the truth goes on meanwhile
		write()
	}
	eventually.True(t, "the lag of everybody shows it", func() bool {
		return value("octopay_mirror_lag_seconds", second+" uid-a") > 4 && value("octopay_mirror_published_lag_seconds", "uid-a") > 4
	})
	if lag := value("octopay_mirror_lag_seconds", first+" uid-a"); lag >= 0 && lag < 4 {
		t.Errorf("the lag of the database that stands still is %f s", lag)
	}
	if list, until := r.list(1); until != 0 || len(list) != 0 {
		t.Errorf("%d orders behind a closed gate, complete until %d", len(list), until)
	}
	if n := value("octopay_mirror_published_rows_total", "uid-a"); n >= float64(orders) {
		t.Fatalf("all %f rows went into a stream that is too small: the test shows nothing", n)
	}
	close(open)
	r.equal()
	eventually.True(t, "there is room again", func() bool { return value("octopay_mirror_stream_full", "uid-a") == 0 })
	now := schema.MillisOf(time.Now())
	eventually.True(t, "marks go on", func() bool { _, until := r.list(1); return until > now })
	// One life of the collector published each row; what NATS acknowledged was applied.
	applied := 0.0
	for _, n := range metric(t, reg, "octopay_mirror_applied_orders_total") {
		applied += n
	}
	if published := value("octopay_mirror_published_rows_total", "uid-a"); published != float64(orders) || applied != published {
		t.Errorf("%f rows published, %f applied, of %d", published, applied, orders)
	}
	info, err := r.stream().Info(t.Context())
	if err != nil || info.First == 1 {
		t.Errorf("the stream is %+v, %v: nothing was purged", info, err)
	}
	t.Logf("%d rows of %d bytes went through a stream of %d", orders, bytes, maxBytes)
}

// A database that applies nothing for 24 hours isn't waited for any longer: that is an
// alarm, names it, and holds up nobody else. It is one alarm, though two collect. One that is
// away for a moment is none.
func TestADatabaseThatDoesNotMoveForADayIsDropped(t *testing.T) {
	t.Parallel()
	r := newRig(t, localstack.Private(t, localstack.Options{Need: all, UIDServers: 2}))
	r.seed()
	var ahead atomic.Int64
	parts := r.parts(stream.Config{KeepFor: 2 * time.Second})
	away := &absent{Target: parts.Targets[2]}
	parts.Targets[2] = away
	asked := func() int { away.mu.Lock(); defer away.mu.Unlock(); return away.asked }
	service := r.of(parts)
	service.SetNow(func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) })
	service.SetPurgeEvery(time.Second)
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(service)
	r.run(service)
	dropped := func() map[string]float64 { t.Helper(); return metric(t, reg, "octopay_mirror_dropped") }
	const alarm = "no longer waits"
	schemaName := parts.Map.Database(shardmap.BID, 3).Schema
	const bid = 21
	r.put(newOrder(9527, bid))
	r.equal()
	begins := func() uint64 {
		t.Helper()
		info, err := r.stream().Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return info.First
	}
	eventually.True(t, "old messages are purged", func() bool { return begins() > 1 })

	away.set(true)
	// Its progress isn't known now, but it was a moment ago.
	n := asked()
	eventually.True(t, "it is asked in vain", func() bool { return asked() > n+5 })
	if r.lines.has(alarm) || dropped()[schemaName] != 0 {
		t.Error("a database that is away for a moment was dropped")
	}
	away.set(false)
	second := r.put(newOrder(9527, bid))
	eventually.True(t, "it goes on", func() bool { _, until := r.list(bid); return until > second[0].UpdatedAt })

	away.set(true)
	third := r.put(newOrder(9527, bid))
	other := r.put(newOrder(9527, bid+10))
	complete := func(bid int64, at schema.Millis) func() bool {
		return func() bool { _, until := r.list(bid); return until > at }
	}
	eventually.True(t, "the next database goes on", complete(bid+10, max(third[0].UpdatedAt, other[0].UpdatedAt)))
	// What was stored 10 s ago is a day old now: the others are never so slow.
	ahead.Store(int64(24*time.Hour - 10*time.Second))
	eventually.True(t, "it is an alarm", func() bool { return r.lines.has(alarm) && dropped()[schemaName] == 1 })
	for name, v := range dropped() {
		if name != schemaName && v != 0 {
			t.Errorf("%s was dropped", name)
		}
	}
	again := until(t, func() error {
		v, err := gathered(reg, "octopay_mirror_dropped")
		if err == nil && v[schemaName] != 1 {
			err = fmt.Errorf("the alarm went back to %f", v[schemaName])
		}
		return err
	})
	// What the collector heard last was a second old.
	eventually.True(t, "what it lacks is gone", func() bool {
		s, err := away.Target.State(t.Context())
		return err == nil && begins() > s.Progress.Seq+1
	})
	ahead.Store(0)
	away.set(false)
	eventually.True(t, "its applier says that it must be refilled", func() bool {
		return strings.Contains(service.States()["applier/"+schemaName], "must be refilled")
	})
	now := schema.MillisOf(time.Now())
	eventually.True(t, "the others go on", complete(bid+10, now))
	again()
	if n := strings.Count(r.lines.String(), alarm); n != 1 || !r.lines.has("database="+schemaName) {
		t.Errorf("it was said %d times", n)
	}
	if list, until := r.list(bid); len(list) != 2 || until > third[0].UpdatedAt {
		t.Errorf("the database that was dropped lists %d orders, complete until %d, and lacks one of %d", len(list), until, third[0].UpdatedAt)
	}
}

// until runs f again and again until stop is called, or f fails and with it the test.
// f runs in a goroutine of its own.
func until(t *testing.T, f func() error) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				if err := f(); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	var once sync.Once
	stop = func() { once.Do(func() { close(done); wg.Wait() }) }
	t.Cleanup(stop)
	return stop
}
