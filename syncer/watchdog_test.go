package syncer_test

import (
	"bytes"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
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
	js, err := jetstream.New(r.nc)
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
	lag := func() (float64, bool) {
		t.Helper()
		v, ok := metric(t, reg, "octopay_mirror_lag_seconds")[place.Schema+" uid-a"]
		return v, ok
	}
	stalls := func() float64 { t.Helper(); return metric(t, reg, "octopay_mirror_stalls_total")[part] }
	highest := 0.0
	sample := func() {
		if v, ok := lag(); ok {
			highest = max(highest, v)
			if v < 0.9 {
				t.Errorf("the lag reads %f s", v)
			}
		}
	}
	heals := func(t *testing.T, o schema.Order, stop func()) {
		t.Helper()
		begin := time.Now()
		eventually(t, "it heals by itself", func() bool { _, until := r.list(1); return until > o.UpdatedAt })
		stop()
		t.Logf("healed after %s, the lag was up to %.1f s", time.Since(begin).Round(100*time.Millisecond), highest)
		if list, _ := r.list(1); len(list) == 0 || list[0] != o {
			t.Errorf("the order isn't in the list: %v", list)
		}
	}
	// The server's clock is read every few seconds, and marks can come after the order.
	eventually(t, "the lag is known", func() bool { _, ok := lag(); return ok })
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
		eventually(t, "it is counted", func() bool { return stalls() == 1 })
		heals(t, o[0], stop)
		if highest < 3 {
			t.Errorf("the lag was never above %f s: nothing stood still", highest)
		}
		if n := strings.Count(r.lines.String(), "nothing comes though the stream has more"); n != 1 || !r.lines.has("part="+part) {
			t.Errorf("it was said %d times", n)
		}
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
	link := newRelay(t, r.stack.Server("uid-a").Address())
	parts := r.parts(stream.Config{})
	m := r.stack.Via(t, "uid-a", link.address()).Map
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

	// Of the collector's connections that which reads the log says so when it registers.
	if n := link.freeze([]byte("octopay-syncer")); n != 1 {
		t.Fatalf("%d connections are frozen, want that of the log", n)
	}
	begin := time.Now()
	o := r.put(newOrder(9527, 1))
	stalls := func() float64 {
		t.Helper()
		return metric(t, reg, "octopay_mirror_stalls_total")["collector/uid-a"]
	}
	eventually(t, "it is counted", func() bool {
		if _, until := r.list(1); until > o[0].UpdatedAt && stalls() == 0 {
			t.Fatalf("complete until %d, but nothing of %d was read", until, o[0].UpdatedAt)
		}
		return stalls() == 1
	})
	t.Logf("noticed after %s", time.Since(begin).Round(100*time.Millisecond))
	eventually(t, "it heals by itself", func() bool { _, until := r.list(1); return until > o[0].UpdatedAt })
	r.equal()
	if !r.lines.has("not even a heartbeat") {
		t.Error("it wasn't said")
	}
	if link.swallowed() == 0 {
		t.Error("nothing was swallowed: the test shows nothing")
	}
}

// A relay passes connections on, and can freeze some of them: what their server sends is
// swallowed, and nobody hears that they are dead.
type relay struct {
	l  net.Listener
	wg sync.WaitGroup

	mu    sync.Mutex
	links []*relayed
	lost  int
}

type relayed struct {
	client, server net.Conn
	said           []byte // by the client, in the beginning
	frozen         bool
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{l: l}
	r.wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			c := &relayed{client: client, server: server}
			r.mu.Lock()
			r.links = append(r.links, c)
			r.mu.Unlock()
			pass := func(to, from net.Conn) {
				defer to.Close()
				buf := make([]byte, 32<<10)
				for {
					n, err := from.Read(buf)
					if n > 0 && !r.passes(c, to == server, buf[:n]) {
						n = 0
					}
					if n > 0 {
						if _, err := to.Write(buf[:n]); err != nil {
							return
						}
					}
					if err != nil {
						return
					}
				}
			}
			r.wg.Go(func() { pass(server, client) })
			r.wg.Go(func() { pass(client, server) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		r.mu.Lock()
		for _, c := range r.links {
			_, _ = c.client.Close(), c.server.Close()
		}
		r.mu.Unlock()
		r.wg.Wait()
	})
	return r
}

func (r *relay) address() string { return r.l.Addr().String() }

// passes notes what goes by and reports whether it may.
func (r *relay) passes(c *relayed, sent bool, data []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sent && len(c.said) < 64<<10 {
		c.said = append(c.said, data...)
	}
	if c.frozen {
		r.lost += len(data)
	}
	return !c.frozen
}

// freeze freezes those connections that are open and whose client has said so.
func (r *relay) freeze(said []byte) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.links {
		if bytes.Contains(c.said, said) {
			c.frozen = true
			n++
		}
	}
	return n
}

func (r *relay) swallowed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}
