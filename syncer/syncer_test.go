package syncer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/stream"
	"github.com/prometheus/client_golang/prometheus"
)

// all is what these tests need; nothing of them is in the meta database.
var all = []localstack.Need{localstack.UID, localstack.BID, localstack.NATS}

func TestAnOrderArrivesInTheMirror(t *testing.T) {
	t.Parallel()
	r := newRig(t, localstack.Test(t, all...))
	stored := r.put(newOrder(9527, 1001)) // before there is a stream: from the log's beginning
	r.run(r.service(stream.Config{}))
	var got []schema.Order
	eventually.True(t, "the order is in the merchant's list", func() bool {
		got, _ = r.list(1001)
		return len(got) > 0
	})
	if diff := cmp.Diff(stored, got); diff != "" {
		t.Errorf("the mirror's order differs:\n%s", diff)
	}
	eventually.True(t, "the list is complete past the order's time", func() bool {
		_, until := r.list(1001)
		return until > stored[0].UpdatedAt
	})
	// Its changes and their journal follow.
	w := r.writer(r.c.Map().Locate(9527).Database)
	defer w.close()
	o := stored[0]
	for range 3 {
		at := w.begin()
		o = w.change(o, at)
		w.commit()
	}
	r.equal()
	got, _ = r.list(1001)
	if diff := cmp.Diff([]schema.Order{o}, got); diff != "" {
		t.Errorf("the mirror's order differs:\n%s", diff)
	}
}

// Whenever its parts are killed, and whichever: nothing is lost.
func TestKilledAtAnyMomentNothingIsLost(t *testing.T) {
	t.Parallel()
	r := newRig(t, localstack.Test(t, all...))
	r.seed()
	defer r.audit()()
	load := r.load()
	for range 30 {
		// A new one each time: it knows nothing of the last.
		kill := r.run(r.service(stream.Config{}))
		load.wait(rand.IntN(60))
		kill()
	}
	load.stop(true)
	r.run(r.service(stream.Config{}))
	r.equal()
}

// Two of everything at once, without leases, do no harm.
func TestTwoOfEverythingAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, localstack.Test(t, all...))
	r.seed()
	var registries [2]*prometheus.Registry
	var gates [2][]*gate
	for i := range registries {
		parts := r.parts(stream.Config{})
		for n, target := range parts.Targets {
			g := &gate{Target: target, open: opened}
			gates[i] = append(gates[i], g)
			parts.Targets[n] = g
		}
		s := r.of(parts)
		registries[i] = prometheus.NewRegistry()
		registries[i].MustRegister(s)
		r.run(s)
	}
	defer r.audit()()
	load := r.load()
	load.wait(150)
	// Of two the faster one can be the faster one for ever: so each has a turn, in which the
	// other stands still with what it was about to apply.
	database := r.c.Map().Database(shardmap.BID, 1).Schema
	for i, registry := range registries {
		over := make(chan struct{})
		for _, g := range gates[1-i] {
			g.set(over)
		}
		eventually.True(t, fmt.Sprintf("applier %d applies", i), func() bool {
			return metric(t, registry, "octopay_mirror_applied_orders_total")[database] > 0
		})
		close(over)
	}
	load.wait(150)
	// Of two collectors one refuses the other's marks, mostly that which was there first.
	for _, part := range []string{"collector/uid-a", "applier/"} {
		eventually.True(t, part+" is in its twin's way", func() bool {
			return regexp.MustCompile("part=" + part + `\S* state="another process does the same"`).MatchString(r.lines.String())
		})
	}
	load.stop(true)
	r.equal()
	now := schema.MillisOf(time.Now())
	eventually.True(t, "marks go on", func() bool { _, until := r.list(1); return until > now })
}

// Everything again, in any order, changes nothing.
func TestReplaysAreHarmless(t *testing.T) {
	t.Parallel()
	r := newRig(t, localstack.Test(t, all...))
	r.seed()
	load := r.load()
	kill := r.run(r.service(stream.Config{}))
	load.wait(200)
	load.stop(true)
	r.equal()
	kill()

	js, err := jetstream.New(r.nc, jetstream.WithDefaultTimeout(eventually.Patience))
	if err != nil {
		t.Fatal(err)
	}
	messages := r.messages(js)
	if len(messages) < 20 {
		t.Fatalf("%d messages: the test shows nothing", len(messages))
	}
	for range 2 {
		rand.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })
		kill := r.run(r.service(stream.Config{}))
		for i, m := range messages {
			if _, err := js.Publish(t.Context(), m.Subject, m.Data); err != nil {
				t.Fatal(err)
			}
			if i == len(messages)/2 { // restart in the middle
				kill()
				kill = r.run(r.service(stream.Config{}))
			}
		}
		o := r.put(newOrder(1, 1)) // behind all replays
		eventually.True(t, "the last order is there", func() bool {
			list, _ := r.list(1)
			return len(list) > 0 && list[0] == o[0]
		})
		r.equal()
		kill()
	}
}

// messages returns all messages of rows.
func (r *rig) messages(js jetstream.JetStream) (out []*jetstream.RawStreamMsg) {
	r.t.Helper()
	st, err := js.Stream(context.Background(), r.stream().Name())
	if err != nil {
		r.t.Fatal(err)
	}
	state := st.CachedInfo().State
	for seq := state.FirstSeq; seq <= state.LastSeq; seq++ {
		m, err := st.GetMsg(context.Background(), seq)
		if err != nil {
			r.t.Fatal(err)
		}
		if strings.Contains(m.Subject, ".row.") {
			out = append(out, m)
		}
	}
	return out
}

// Fault 18: as large as a row can be, and many of them in one transaction.
func TestFault18TheLargestRowsArrive(t *testing.T) {
	t.Parallel()
	r := newRig(t, localstack.Test(t, all...))
	r.seed()
	r.run(r.service(stream.Config{}))
	var orders []schema.Order
	for range 40 { // 2.5 MB for one group: many messages, and more than one transaction of the applier
		o := newOrder(9527, 1001)
		o.Metadata = `{"k":"` + strings.Repeat("x", 65_000) + `"}`
		o.Subject = strings.Repeat("\U0001F600", 256)
		orders = append(orders, o)
	}
	r.put(orders...)
	r.equal()
}
