package e2e_test

import (
	"bytes"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/faultproxy"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/shardmap"
)

// through returns a rig whose programs reach some of its servers through proxies.
func through(t *testing.T, o localstack.Options, servers ...string) (*rig, map[string]*faultproxy.Proxy) {
	t.Helper()
	stack := localstack.Private(t, o)
	links := map[string]*faultproxy.Proxy{}
	seen := stack
	for _, server := range servers {
		open := faultproxy.New
		if server == "nats" {
			open = faultproxy.NewBytes
		}
		links[server] = open(t, stack.Server(server).Address())
		seen = seen.Via(t, server, links[server].Addr())
	}
	return rigOn(t, stack, environment(t, seen)), links
}

// pass waits until a time has passed.
func pass(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	<-t.C
}

// buyer returns one whose orders are on a server.
func buyer(m *shardmap.Map, server string) string {
	uid := int64(1)
	for m.Database(shardmap.UID, m.Locate(uid).Database).Server.Name != server {
		uid++
	}
	return strconv.FormatInt(uid, 10)
}

// Fault 28. The network between the programs and one of two servers of the truth is
// parted: nothing is refused, and nothing comes. The buyers of the other one notice
// nothing.
func TestALinkToTheTruthFrozen(t *testing.T) {
	r, links := through(t, localstack.Options{UIDServers: 2}, "uid-b")
	link := links["uid-b"]
	_, freeze := size()
	r.survive(t, func(progress func(float64)) int {
		progress(0.3)
		link.Freeze(true)
		frozen := time.Now()
		eventually.True(t, "somebody waits", func() bool { return link.Traffic(faultproxy.ToServer).Held > 0 })
		for _, k := range []struct {
			server string
			status int
		}{{"uid-a", http.StatusOK}, {"uid-b", http.StatusServiceUnavailable}} {
			target := r.api[0].api + "/v1/users/" + buyer(r.stack.Map, k.server) + "/orders"
			ask := func() (answer, error) { return call(t, t.Context(), http.MethodGet, target, nil) }
			if k.status == http.StatusOK { // again while it is too busy: the link is frozen all the while
				ask = func() (answer, error) { return read(t, target) }
			}
			if a, err := ask(); err != nil || a.status != k.status {
				t.Errorf("a buyer of %s: %v, %v; want %d", k.server, a, err, k.status)
			}
		}
		pass(freeze - time.Since(frozen))
		link.Freeze(false)
		return link.Frozen()
	})
}

// The links to NATS and to the mirror are slow and narrow, and the one to NATS is parted
// at last. Orders don't wait for them.
func TestLinksBehindTheTruthDelayedThrottledAndFrozen(t *testing.T) {
	r, links := through(t, localstack.Options{}, "nats", "bid-a")
	broker, mirror := links["nats"], links["bid-a"]
	both := []faultproxy.Way{faultproxy.ToServer, faultproxy.ToClient}
	met := func(what string, link *faultproxy.Proxy, count func(faultproxy.Traffic) int) {
		t.Helper()
		for _, way := range both {
			eventually.True(t, what, func() bool { return count(link.Traffic(way)) > 0 })
		}
	}
	_, freeze := size()
	r.mirrors(t, time.Now())
	r.survive(t, func(progress func(float64)) int {
		progress(0.1)
		broker.Delay(40 * time.Millisecond)
		mirror.Throttle(32 << 10)
		met("NATS is late", broker, func(n faultproxy.Traffic) int { return n.Delayed })
		met("the link to the mirror is full", mirror, func(n faultproxy.Traffic) int { return n.Slowed })
		progress(0.4)
		broker.Delay(0)
		broker.Throttle(16 << 10)
		mirror.Throttle(0)
		met("the link to NATS is full", broker, func(n faultproxy.Traffic) int { return n.Slowed })
		progress(0.6)
		broker.Throttle(0)
		broker.Freeze(true)
		frozen := time.Now()
		eventually.True(t, "somebody waits for NATS", func() bool { return broker.Traffic(faultproxy.ToServer).Held > 0 })
		pass(freeze - time.Since(frozen))
		broker.Freeze(false)
		return 3 + broker.Frozen()
	})
	t.Logf("to NATS %+v, from it %+v", broker.Traffic(faultproxy.ToServer), broker.Traffic(faultproxy.ToClient))
	t.Logf("to the mirror %+v, from it %+v", mirror.Traffic(faultproxy.ToServer), mirror.Traffic(faultproxy.ToClient))
}

// One packet in twenty loses its connection, before it is sent, within it, or around its
// answer: of orderd's to the truth, of the appliers' to the mirror, and of everything
// that is published or asked for in NATS.
func TestConnectionsCutAtRandom(t *testing.T) {
	r, links := through(t, localstack.Options{}, "uid-a", "bid-a", "nats")
	commit := faultproxy.Query("COMMIT")
	published := func(packet []byte) bool {
		return bytes.Contains(packet, []byte("mirror.")) || bytes.Contains(packet, []byte("MSG.NEXT"))
	}
	cuts := func(name string) (n int) {
		for p := faultproxy.BeforePacket; p <= faultproxy.AfterReply; p++ {
			n += links[name].Fired(p)
		}
		return n
	}
	r.mirrors(t, time.Now())
	r.survive(t, func(progress func(float64)) (all int) {
		over := make(chan struct{})
		var armers sync.WaitGroup
		defer armers.Wait()
		stop := sync.OnceFunc(func() { close(over) })
		defer stop()
		for name, link := range links {
			match, last := commit, faultproxy.AfterReply
			if name == "nats" {
				match, last = published, faultproxy.InReply
			}
			armers.Go(func() {
				for {
					point := rand.N(last + 1)
					f := link.Arm(point, func(packet []byte) bool { return match(packet) && rand.N(20) == 0 })
					select {
					case <-f.Done():
					case <-over:
						return
					}
				}
			})
		}
		progress(1)
		for name, least := range map[string]int{"uid-a": 1, "bid-a": 5, "nats": 5} {
			// Marks go on when the orders are at their end.
			eventually.True(t, "the link to "+name+" is cut", func() bool { return cuts(name) >= least })
		}
		stop()
		armers.Wait()
		for name := range links {
			t.Logf("the link to %s was cut %d times", name, cuts(name))
			all += cuts(name)
		}
		return all
	})
}
