// Package httpapi is the service as HTTP: which calls there are, how a request is
// read, checked and answered, and the limits that keep one client from harming the
// others.
//
// It decides everything that can be decided from a request alone. It leaves what a
// create or a change means to Orders, what is stored to the stores, which error has which answer
// to package problem, and listening, TLS and signals to the programs.
//
// A request passes, in this order: host 421, URI 414, path 404, method 405, key 401,
// draining 503, role 403, headers, query and body 400, 408, 413, 415, another merchant's
// bid 403, the merchant's rate 429, and then the call itself. The body is read whole before anything waits, since net/http notices a hang-up
// only after that. Who may make which call is in routes.
package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/syncer/conflict"
	"github.com/octopay/octopay/syncer/mirror"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
)

// Orders is the order service; ordersvc.Service is one.
//
// The caller gives only valid values. A method returns soon after ctx has ended: a
// write whose outcome isn't learned by then with ordersvc.ErrUnknown, a read with any
// error that wraps the context's. Errors that package problem doesn't know are
// answered 500 and logged.
type Orders interface {
	Create(ctx context.Context, n ordersvc.New) (ordersvc.Created, error)
	CreateAll(ctx context.Context, all []ordersvc.New) []ordersvc.Outcome
	Change(ctx context.Context, c ordersvc.Change) (ordersvc.Changed, error)
	Life(ctx context.Context, id idgen.ID) (ordersvc.Life, error)
	Get(ctx context.Context, id idgen.ID) (schema.Order, error)
	Journal(ctx context.Context, o schema.Order) ([]schema.Entry, error)
	Find(ctx context.Context, k ordersvc.Key) (schema.Order, error)
	List(ctx context.Context, q ordersvc.Query) (ordersvc.Page, error)
}

// A Config is what an API is made of. Orders, Mirror, Conflicts and Keys are required; the
// zero value of all else is the default.
type Config struct {
	Orders    Orders
	Mirror    mirror.Reader
	Conflicts conflict.Lister
	Keys      Keys
	Registry  prometheus.Registerer // of the metrics; none are registered without
	Logger    *slog.Logger          // slog.Default
	// WithinRate counts a call of a merchant, and reports whether the merchant's rate
	// allows it; nil: no merchant has one.
	WithinRate func(bid int64) bool
	// TrustedProxies are the networks of proxies whose word on who the client is counts.
	TrustedProxies []netip.Prefix
	// LocalHostsOnly refuses requests to any Host but this machine's loopback names
	// (421), so that no page of another site can reach a service without keys.
	LocalHostsOnly bool
	BodyTimeout    time.Duration // for a body to arrive; 3 s
	CallTimeout    time.Duration // from the headers to the answer, the body's time included; 9.5 s
}

// An API answers requests. It is safe for concurrent use.
type API struct {
	config     Config
	log        *slog.Logger
	paths      *chi.Mux // finds patterns only; routes does the rest
	routes     map[string]*route
	nowhere    *route // of paths that there are not
	metrics    *metrics
	refusals   refusals
	lingerTime time.Duration
	draining   atomic.Bool
	batches    *semaphore.Weighted // bytes of bodies
}

// New makes an API.
func New(c Config) (*API, error) {
	if c.Orders == nil || c.Mirror == nil || c.Conflicts == nil || c.Keys == nil {
		return nil, errors.New("httpapi: Orders, Mirror, Conflicts and Keys are required")
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.BodyTimeout <= 0 {
		c.BodyTimeout = 3 * time.Second
	}
	if c.CallTimeout <= 0 {
		c.CallTimeout = 9500 * time.Millisecond
	}
	a := &API{
		config: c, log: c.Logger, paths: chi.NewMux(), routes: map[string]*route{}, metrics: newMetrics(),
		refusals: refusals{log: c.Logger}, lingerTime: lingerTime,
		batches: semaphore.NewWeighted(batchBytes),
	}
	if c.Registry != nil {
		if err := c.Registry.Register(a.metrics); err != nil {
			return nil, err
		}
	}
	a.nowhere = &route{pattern: unmatched}
	for _, r := range routes() {
		a.routes[r.pattern] = r
		a.paths.Get(r.pattern, http.NotFound) // never called: chi only matches
	}
	return a, nil
}

// Drain answers every new request 503 from now on, and closes each connection after
// its answer. Requests that are under way finish.
func (a *API) Drain() { a.draining.Store(true) }

// Draining reports whether Drain was called.
func (a *API) Draining() bool { return a.draining.Load() }
