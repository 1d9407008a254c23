// Package baseline is what Octopay is compared with, side by side in one run:
//
//	direct   the same HTTP front; each create is a transaction of its own, in one
//	         packet over a connection of a database/sql pool, and each read one SELECT
//	echo     the same HTTP front without storage: it answers the order it was sent,
//	         under an id that it made
//	raw      the lanes' statements without HTTP: for each database one transaction
//	         after the other, of a fixed number of orders
//
// All store the same rows in the same tables with the same session settings, and take
// worker numbers by lease as orderd does. They run as processes of their own, so that
// what they cost can be told from what the generator costs.
//
// Direct is what a careful service without group commit does, so that a ratio to it
// means something: the pool never closes its connections, a create is one round trip,
// and its guarantees are Octopay's as far as one transaction goes. What an unknown
// outcome was, it does not settle.
package baseline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/octopay/octopay/auth"
	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/httpapi"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/lease"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/conflict"
	"github.com/octopay/octopay/syncer/mirror"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// The kinds of baseline.
const (
	Direct = "direct"
	Echo   = "echo"
	Raw    = "raw"
)

// PoolDefault is how many connections direct has to each server.
const PoolDefault = 64

// A config is what a baseline knows of its surroundings, from the environment. The
// variables are those of the programs, so that one environment serves all.
type config struct {
	shards         *shardmap.Map
	user, password string
	addr           string
	pool           int
}

// VariablePool is the variable that sets how many connections direct has to each server.
const VariablePool = "LOADTEST_POOL"

func fromEnviron(environ []string) (c config, err error) {
	c = config{addr: "127.0.0.1:0", pool: PoolDefault}
	file := ""
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		switch name {
		case "OCTOPAY_MAP_FILE":
			file = value
		case "OCTOPAY_DB_USER":
			c.user = value
		case "OCTOPAY_DB_PASSWORD":
			c.password = value
		case "OCTOPAY_ADDR":
			c.addr = value
		case VariablePool:
			if c.pool, err = strconv.Atoi(value); err != nil || c.pool < 1 {
				return c, fmt.Errorf("baseline: %s must be a whole number from 1", VariablePool)
			}
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return c, fmt.Errorf("baseline: OCTOPAY_MAP_FILE: %w", err)
	}
	c.shards, err = shardmap.Parse(text)
	return c, err
}

// Serve runs a baseline until ctx ends; it is the whole of the process. Direct and echo
// log as orderd does, and serve when they have logged that they listen. Raw reads a
// RawJob from stdin as JSON, does it, and writes the report.Run that it was to stdout.
func Serve(ctx context.Context, kind string, environ []string, stdin io.Reader, stdout, stderr io.Writer) error {
	c, err := fromEnviron(environ)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewJSONHandler(stderr, nil))
	databases := cluster.Open(c.shards, cluster.Config{User: c.user, Password: c.password})
	err = serve(ctx, kind, c, databases, log, stdin, stdout)
	return errors.Join(err, databases.Close())
}

func serve(ctx context.Context, kind string, c config, databases *cluster.Cluster, log *slog.Logger, stdin io.Reader, stdout io.Writer) error {
	ids, stop, err := worker(ctx, databases, log)
	if err != nil {
		return err
	}
	defer stop()
	// The keys are Octopay's, and looked up as there.
	keys := auth.New(auth.Config{Store: auth.NewStore(databases.Meta(), nil), Log: log})
	following, unfollow := context.WithCancel(ctx)
	var follow sync.WaitGroup
	follow.Go(func() { _ = keys.Run(following) })
	defer follow.Wait()
	defer unfollow()
	if err := awaited(ctx, func() bool { return keys.Usable() == nil }); err != nil {
		return err
	}
	switch kind {
	case Direct:
		d, err := newDirect(c.shards, cluster.Config{User: c.user, Password: c.password}, c.pool, ids)
		if err != nil {
			return err
		}
		return errors.Join(front(ctx, c.addr, httpapi.Config{Orders: d, Mirror: d.mirror(), Keys: keys}, log), d.close())
	case Echo:
		return front(ctx, c.addr, httpapi.Config{Orders: echo{ids: ids}, Mirror: mirror.NewMemory(c.shards), Keys: keys}, log)
	case Raw:
		return serveRaw(ctx, databases, ids, stdin, stdout)
	}
	return fmt.Errorf("baseline: there is no %q; there are %s, %s and %s", kind, Direct, Echo, Raw)
}

// An idSource makes order ids.
type idSource interface {
	Next(uid int64) (idgen.ID, error)
}

// worker takes a worker number and keeps it until stop is called.
func worker(ctx context.Context, databases *cluster.Cluster, log *slog.Logger) (_ idSource, stop func(), err error) {
	gen := &idgen.Generator{}
	w := lease.NewWorker(lease.NewSQL(databases.Meta()), lease.NewHolder(), gen, log)
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() { defer close(done); _ = w.Run(run) }()
	stop = func() { cancel(); <-done }
	if err := awaited(ctx, func() bool { _, left := gen.Worker(); return left > 0 }); err != nil {
		stop()
		return nil, nil, err
	}
	return w, stop, nil
}

// awaited waits until is says so, or returns the error of ctx.
func awaited(ctx context.Context, is func() bool) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// front serves an API until ctx ends, and then finishes what is under way.
func front(ctx context.Context, addr string, c httpapi.Config, log *slog.Logger) error {
	// Metrics are kept, as orderd does, since they cost something.
	c.Registry, c.Logger = prometheus.NewRegistry(), log
	c.Conflicts = conflict.NewMemory(1) // no part of what is compared
	api, err := httpapi.New(c)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	log.Info("listening", "listener", "api", "addr", l.Addr().String())
	server := httpapi.NewServer(api, log)
	var g errgroup.Group
	served := make(chan struct{})
	g.Go(func() error {
		defer close(served)
		return server.Serve(l) // until Shutdown, or an error
	})
	select {
	case <-served:
		return g.Wait()
	case <-ctx.Done():
	}
	api.Drain()
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), 13*time.Second)
	defer cancel()
	err = server.Shutdown(limit)
	_ = g.Wait() // http.ErrServerClosed
	return err
}
