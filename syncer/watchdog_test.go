package syncer_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/faultproxy"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/binlog"
	"github.com/octopay/octopay/syncer/stream"
	"github.com/prometheus/client_golang/prometheus"
)

// Fault 21: a stuck consumer was noticed days later. Behind an applier's back its consumer
// is paused on the server, which goes on sending signs of life, or deleted: it is noticed
// soon and counted, it heals by itself, and the lag doesn't read 0 meanwhile.
func TestFault21AConsumerThatStandsStillIsNoticed(t *testing.T) {
	t.Parallel()
	r := newRig(t, localstack.Test(t, all...))
	r.seed()
	service := r.service(stream.Config{})
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(service)
	r.run(service)
	js, err := jetstream.New(r.nc, jetstream.WithDefaultTimeout(eventually.Patience))
	if err != nil {
		t.Fatal(err)
	}
	place := r.c.Map().Database(shardmap.BID, 1)
	part := "applier/" + place.Schema
	r.put(newOrder(9527, 1))
	r.equal()
	// spoil does something to the consumer of the first database.
	spoil := func(f func(st jetstream.Stream, name string) error) {
		t.Helper()
		st, err := js.Stream(t.Context(), r.stream().Name())
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		list := st.ListConsumers(t.Context())
		for i := range list.Info() {
			if slices.Contains(i.Config.FilterSubjects, r.stack.Map.Prefix()+"mirror.row.0") {
				n++
				if err := f(st, i.Name); err != nil {
					t.Fatal(err)
				}
			}
		}
		if list.Err() != nil || n == 0 {
			t.Fatalf("%d consumers, %v: the test shows nothing", n, list.Err())
		}
	}
	lag := func() (v float64, ok bool, err error) {
		lags, err := gathered(reg, "octopay_mirror_lag_seconds")
		v, ok = lags[place.Schema+" uid-a"]
		return v, ok, err
	}
	stalls := func() float64 { t.Helper(); return metric(t, reg, "octopay_mirror_stalls_total")[part] }
	highest := 0.0
	sample := func() error {
		v, ok, err := lag()
		if err != nil || !ok {
			return err
		}
		highest = max(highest, v)
		if v < 0.9 {
			return fmt.Errorf("the lag reads %f s", v)
		}
		return nil
	}
	heals := func(t *testing.T, o schema.Order, stop func()) {
		t.Helper()
		begin := time.Now()
		eventually.True(t, "it heals by itself", func() bool { _, until := r.list(1); return until > o.UpdatedAt })
		stop()
		t.Logf("healed after %s, the lag was up to %.1f s", time.Since(begin).Round(100*time.Millisecond), highest)
		if list, _ := r.list(1); len(list) == 0 || list[0] != o {
			t.Errorf("the order isn't in the list: %v", list)
		}
	}
	// The server's clock is read every few seconds, and marks can come after the order.
	eventually.True(t, "the lag is known", func() bool { _, ok, err := lag(); return ok && err == nil })
	t.Run("paused", func(t *testing.T) {
		highest = 0
		stop := until(t, sample)
		spoil(func(st jetstream.Stream, name string) error {
			p, err := st.PauseConsumer(t.Context(), name, time.Now().Add(time.Hour))
			if err == nil && !p.Paused {
				err = errors.New("it isn't paused")
			}
			return err
		})
		o := r.put(newOrder(9527, 1))
		eventually.True(t, "it is counted", func() bool { return stalls() > 0 })
		heals(t, o[0], stop)
		if highest < 3 {
			t.Errorf("the lag was never above %f s: nothing stood still", highest)
		}
		// On a machine that is very busy it can happen by itself as well.
		eventually.True(t, "it was said as often as it was counted", func() bool {
			said := 0
			for line := range strings.Lines(r.lines.String()) {
				if strings.Contains(line, "nothing comes though the stream has more") && strings.Contains(line, "part="+part) {
					said++
				}
			}
			return said > 0 && float64(said) == stalls()
		})
	})
	t.Run("deleted", func(t *testing.T) {
		highest = 0
		stop := until(t, sample)
		spoil(func(st jetstream.Stream, name string) error { return st.DeleteConsumer(t.Context(), name) })
		heals(t, r.put(newOrder(9527, 1))[0], stop)
	})
}

// The link of a collector's log freezes: its connection stays and says nothing more, while
// the server writes on. That is noticed in bounded time and counted, and nothing is
// promised meanwhile.
func TestFault21AFrozenLogIsNoticed(t *testing.T) {
	t.Parallel()
	r := newRig(t, localstack.Test(t, all...))
	r.seed()
	link := faultproxy.New(t, r.stack.Server("uid-a").Address())
	// Of the collector's connections that which reads the log says so when it registers.
	log := link.Group(func(packet []byte) bool { return bytes.Contains(packet, []byte("octopay-syncer")) })
	parts := r.parts(stream.Config{})
	m := r.stack.Via(t, "uid-a", link.Addr()).Map
	src, err := binlog.New(m, m.Servers(shardmap.UID)[0], binlog.Config{
		User: r.stack.User, Password: r.stack.Password, Log: r.log, Silence: 3 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = src.Close() })
	parts.Sources["uid-a"] = src
	service := r.of(parts)
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(service)
	r.run(service)
	r.put(newOrder(9527, 1))
	r.equal()

	eventually.True(t, "the connection of the log is frozen, and no other", func() bool {
		n := log.Freeze(true)
		if n != 1 {
			log.Freeze(false)
		}
		return n == 1
	})
	begin := time.Now()
	o := r.put(newOrder(9527, 1))
	stalls := func() float64 {
		t.Helper()
		return metric(t, reg, "octopay_mirror_stalls_total")["collector/uid-a"]
	}
	eventually.True(t, "it is counted", func() bool {
		if _, until := r.list(1); until > o[0].UpdatedAt && stalls() == 0 {
			t.Fatalf("complete until %d, but nothing of %d was read", until, o[0].UpdatedAt)
		}
		return stalls() > 0
	})
	t.Logf("noticed after %s", time.Since(begin).Round(100*time.Millisecond))
	eventually.True(t, "it heals by itself", func() bool { _, until := r.list(1); return until > o[0].UpdatedAt })
	r.equal()
	if !r.lines.has("not even a heartbeat") {
		t.Error("it wasn't said")
	}
	if log.Held() == 0 {
		t.Error("nothing was held: the test shows nothing")
	}
}
