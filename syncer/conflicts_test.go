package syncer_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/lease"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/syncer"
	"github.com/octopay/octopay/syncer/conflict"
	"github.com/octopay/octopay/syncer/mirror"
	"github.com/octopay/octopay/syncer/stream"
	"github.com/prometheus/client_golang/prometheus"
)

// conflicts returns the ids of the orders of each conflict.
func conflicts(t *testing.T, table conflict.Lister) (out [][]int64, until schema.Millis) {
	t.Helper()
	var page conflict.Page
	err := patient(func() (err error) {
		page, err = table.List(context.Background(), conflict.Query{Before: 1<<63 - 1, Limit: 100})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range page.Conflicts {
		var ids []int64
		for _, o := range c.Orders {
			ids = append(ids, o.ID)
		}
		out = append(out, ids)
	}
	return out, page.CompleteUntil
}

// A lane has taken its stamp and not yet committed; others commit what was stamped later, and
// the mirror has it. The scan stands still before the stamp, and finds the conflict when
// the lane commits at last.
func TestAConflictThatWasInFlightIsFound(t *testing.T) {
	t.Parallel()
	r := newRig(t, localstack.Test(t, append(slices.Clone(all), localstack.Meta)...))
	r.seed()
	service := r.service(stream.Config{})
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(service)
	r.run(service)
	table := conflict.NewSQL(r.c)
	const bid = 1001
	numbered := func(uid int64) schema.Order {
		o := newOrder(uid, bid)
		o.OutTradeNo = "N"
		return o
	}
	first := r.put(numbered(9527))[0]
	eventually.True(t, "it was scanned", func() bool { _, until := conflicts(t, table); return until > first.UpdatedAt })

	w := r.writer(r.c.Map().Locate(9538).Database)
	defer w.close()
	second := numbered(9538)
	second.UpdatedAt = max(w.begin(), second.CreatedAt())
	w.create(second)
	later := r.put(newOrder(9549, bid))[0]
	if later.UpdatedAt < second.UpdatedAt {
		t.Fatalf("what came later is stamped %d, what is in flight %d", later.UpdatedAt, second.UpdatedAt)
	}
	eventually.True(t, "what came later is in the mirror", func() bool {
		list, _ := r.list(bid)
		return slices.ContainsFunc(list, func(o schema.Order) bool { return o.ID == later.ID })
	})
	database := r.c.Map().Locate(bid).Database
	for range 3 { // besides the service's own
		scan := conflict.Scan{Database: database, News: r.mirror, Table: table}
		if err := scan.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if reach, err := table.Reach(t.Context(), database); err != nil || reach.Until() > second.UpdatedAt {
		t.Fatalf("scanned until %d, %d is in flight, %v", reach.Until(), second.UpdatedAt, err)
	}
	if found, _ := conflicts(t, table); found != nil {
		t.Fatalf("found %v while it is in flight", found)
	}
	w.commit()
	eventually.True(t, "the conflict is found", func() bool { found, _ := conflicts(t, table); return len(found) == 1 })
	want := []int64{first.ID, second.ID}
	slices.Sort(want)
	if found, _ := conflicts(t, table); !slices.Equal(found[0], want) {
		t.Errorf("found %v, want %v", found, want)
	}
	eventually.True(t, "it is counted once", func() bool { return metric(t, reg, "octopay_conflicts_found_total")["out_trade_no"] == 1 })
	if n := metric(t, reg, "octopay_conflicts_found_total")["channel_trade_no"]; n != 0 {
		t.Errorf("%v payments are on two orders", n)
	}
	_, until := conflicts(t, table)
	place := r.c.Map().Databases("bid")[database-1].Schema
	// A reach is saved before it is told.
	eventually.True(t, "it is told how far it was scanned", func() bool {
		return metric(t, reg, "octopay_conflict_scan_until_seconds")[place]*1000 >= float64(until)-1
	})
}

// A seen is a Follower that says which databases were asked for.
type seen struct {
	mirror.Follower
	mu    sync.Mutex
	times map[int]int
}

func (s *seen) News(ctx context.Context, n int, reach mirror.Reach, most int) (mirror.News, error) {
	s.mu.Lock()
	s.times[n]++
	s.mu.Unlock()
	return s.Follower.News(ctx, n, reach, most)
}

func (s *seen) databases() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.times)
}

// Of two processes one scans a database. When it ends the other goes on where it was: no
// conflict is lost, and none is found again.
func TestOneProcessScansADatabase(t *testing.T) {
	t.Parallel()
	r := newRig(t, localstack.Test(t, localstack.NATS))
	parts, store, memory := r.inMemory()
	leases := lease.NewMemory(nil)
	table := conflict.NewMemory(parts.Map.Size())
	parts.Conflicts = table
	process := func(holder string) (s *syncer.Service, scans *seen, stop func(), found func() float64) {
		scans = &seen{Follower: memory, times: map[int]int{}}
		p := parts
		p.News, p.Leaser = scans, lease.NewKeeper(leases, holder, lease.Config{Log: r.log})
		s = r.of(p)
		reg := prometheus.NewPedanticRegistry()
		reg.MustRegister(s)
		return s, scans, r.run(s), func() float64 { return metric(t, reg, "octopay_conflicts_found_total")["out_trade_no"] }
	}
	share := func(number string, bid int64, uids ...int64) {
		for _, uid := range uids {
			o := newOrder(uid, bid)
			o.OutTradeNo = number
			store.put(o)
		}
	}
	_, one, stop, foundByOne := process("one")
	eventually.True(t, "one scans all databases", func() bool { return one.databases() == parts.Map.Size() })
	share("N", 1001, 1, 2)
	eventually.True(t, "one finds a conflict", func() bool { return foundByOne() == 1 })
	service, two, _, foundByTwo := process("two")
	eventually.True(t, "two waits for all its scans", func() bool {
		n := 0
		for _, d := range parts.Map.Databases("bid") {
			if service.States()["conflicts/"+d.Schema] == "waiting for its lease" {
				n++
			}
		}
		return n == parts.Map.Size() || two.databases() > 0
	})
	if n := two.databases(); n > 0 {
		t.Fatalf("two scans %d databases that one scans", n)
	}
	stop()
	share("N", 1001, 3)
	share("M", 1011, 4, 5)
	eventually.True(t, "two goes on", func() bool { found, _ := conflicts(t, table); return len(found) == 2 && len(found[1]) == 3 })
	eventually.True(t, "two has counted", func() bool { return foundByTwo() >= 1 })
	if one, two := foundByOne(), foundByTwo(); one != 1 || two != 1 {
		t.Errorf("one found %v conflicts, and two %v", one, two)
	}
}
