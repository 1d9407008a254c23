// Package front is the part of a program that takes orders: it puts the order service
// and the mirror's lists behind the HTTP API, and brings them up and down in order.
package front

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/octopay/octopay/httpapi"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/lane"
	"github.com/octopay/octopay/lease"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/services/internal/boot"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/conflict"
	"github.com/octopay/octopay/syncer/mirror"
	"github.com/prometheus/client_golang/prometheus"
)

// A Front is what it is made of. What isn't said to be optional is required.
type Front struct {
	Shards    func() *shardmap.Map // the map in use
	Store     ordersvc.Store
	Mirror    mirror.Reader
	Conflicts conflict.Lister
	Keys      httpapi.Keys
	Leases    lease.Table
	Ready     *boot.Readiness
	Registry  *prometheus.Registry
	Log       *slog.Logger
	Addr      string        // to listen at
	Grace     time.Duration // for requests under way when it ends
	AtOnce    int           // transactions in flight on one server, see ordersvc.Config
	// Available returns why a uid database takes no writes now, see ordersvc.Config; nil:
	// they all do.
	Available func(database int) error
	// Policy returns why a merchant gets no new order, see ordersvc.Config; nil: all do.
	Policy func(bid int64, currency string) error
	// Certificate is shown to clients; nil: they are served in plain text.
	Certificate *boot.Certificate
	// TrustedProxies say who the client is, see httpapi.Config.
	TrustedProxies []netip.Prefix
	// WithinRate holds merchants to their rates, see httpapi.Config; nil: none has one.
	WithinRate func(bid int64) bool
	// LocalHostsOnly refuses requests to a Host that isn't this machine.
	LocalHostsOnly bool
	// Serving is called when all requests are served, with the address; nil: not called.
	Serving func(addr net.Addr)
}

// noNumber is what creates wait for.
const noNumber = "a worker number"

// Run takes requests until ctx ends. Then it takes no more, finishes those under way,
// and then the writes that were accepted.
func (f Front) Run(ctx context.Context) error {
	metrics := newMetrics(f.Registry)
	gen := &idgen.Generator{}
	worker := lease.NewWorker(f.Leases, lease.NewHolder(), gen, f.Log)
	f.Registry.MustRegister(worker)
	service := ordersvc.NewService(f.Shards, f.Store, worker, ordersvc.Config{
		Creates:   lane.Config{Observe: metrics.batches("creates")},
		Changes:   lane.Config{Observe: metrics.batches("changes")},
		AtOnce:    f.AtOnce,
		Available: f.Available,
		Policy:    f.Policy,
		DuplicateID: func(id idgen.ID) {
			metrics.duplicates.Inc()
			f.Log.Error("duplicate_id: two processes use one worker number", "order_id", id.String(), "worker", id.Worker())
		},
	})
	api, err := httpapi.New(httpapi.Config{
		Orders: service, Mirror: f.Mirror, Conflicts: f.Conflicts, Keys: f.Keys, Registry: f.Registry, Logger: f.Log, LocalHostsOnly: f.LocalHostsOnly,
		WithinRate: f.WithinRate, TrustedProxies: f.TrustedProxies,
	})
	if err != nil {
		return err
	}
	// First, since a worker number that is acquired for nothing is lost for its term.
	l, err := net.Listen("tcp", f.Addr)
	if err != nil {
		return err
	}
	f.Ready.Waiting(noNumber)
	server := httpapi.NewServer(api, f.Log)
	parts := []boot.Part{}
	if f.Certificate != nil {
		f.Registry.MustRegister(f.Certificate)
		server.TLSConfig = f.Certificate.Config()
		parts = append(parts, boot.Part{Name: "certificate", Run: f.Certificate.Run})
	}
	return boot.Run(ctx, append(parts,
		boot.Part{Name: "worker number", Run: worker.Run},
		boot.Part{Name: "lanes", Run: service.Run},
		boot.Part{Name: "expiry", Run: func(ctx context.Context) error {
			keeper := lease.NewKeeper(f.Leases, lease.NewHolder(), lease.Config{Log: f.Log})
			return service.Expire(ctx, keeper, ordersvc.ExpiryConfig{Log: f.Log, Observe: metrics.expired})
		}},
		boot.Part{Name: "api", Run: func(ctx context.Context) error {
			f.Log.Info("listening", "listener", "api", "addr", l.Addr().String(), "tls", f.Certificate != nil)
			var announcing sync.WaitGroup
			defer announcing.Wait()
			wait, stop := context.WithCancel(ctx)
			defer stop()
			announcing.Go(func() { f.announce(wait, gen, l.Addr()) })
			return boot.HTTP("api", l, server, f.Grace, func() {
				f.Ready.Drain()
				api.Drain()
			}).Run(ctx)
		}},
	)...)
}

// announce says that the program is ready when it can make ids. Without a number all but
// creates is served, so nothing else waits for it.
func (f Front) announce(ctx context.Context, gen *idgen.Generator, addr net.Addr) {
	err := boot.Until(ctx, f.Log, noNumber, func(context.Context) error {
		if _, left := gen.Worker(); left == 0 {
			return errors.New("none is acquired yet")
		}
		return nil
	})
	if err != nil {
		return // it ends
	}
	f.Ready.Arrived(noNumber)
	if f.Serving != nil {
		f.Serving(addr)
	}
}
