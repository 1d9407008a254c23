// Package syncer keeps the mirror: it collects what the uid servers commit, publishes
// it to the stream, and applies the stream to the merchant databases.
//
//	uid server -> source -> collector -> stream -> applier -> bid database -> scan for
//	              binlog,                NATS      (one each)                 conflicts
//	              or tap
//
// It decides where a collector begins, when a mark is true, and who runs: one
// collector for each uid server, and one applier and one scan for each bid database, each
// under a lease. Two of a kind at once do no harm; the lease only saves work. A row is stored
// in the stream before its server's mark moves past it, and a database keeps its
// place in the stream in the transaction of the rows. So nothing here has a state of
// its own, and any of it may be killed at any time.
//
// It leaves to its parts: source what is read, stream how it travels, apply what
// becomes of it in a database, mirror how it is read, conflict what orders must not share.
package syncer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/apply"
	"github.com/octopay/octopay/syncer/binlog"
	"github.com/octopay/octopay/syncer/conflict"
	"github.com/octopay/octopay/syncer/mirror"
	"github.com/octopay/octopay/syncer/source"
	"github.com/octopay/octopay/syncer/stream"
	"golang.org/x/sync/errgroup"
)

// A Leaser decides who does what there should be one of. *lease.Keeper is one.
type Leaser interface {
	// Hold waits for the name, runs f while it is held, and returns f's error. The
	// context of f ends when the name is lost. While it waits it calls taken whenever it
	// hears that the name is taken, and not when it hears nothing.
	Hold(ctx context.Context, name string, taken func(), f func(ctx context.Context) error) error
}

// Alone is the Leaser of a process that is the only one.
type Alone struct{}

// Hold implements Leaser.
func (Alone) Hold(ctx context.Context, _ string, _ func(), f func(ctx context.Context) error) error {
	return f(ctx)
}

// A Config is what a Service is made of.
type Config struct {
	Map     *shardmap.Map
	Sources map[string]source.Source // of each server with uid databases, by name
	Targets []apply.Target           // of each bid database, in order
	Stream  *stream.Stream
	// News and Conflicts are what scans for conflicts read, and where they keep what they
	// find; nil: nothing is scanned.
	News      mirror.Follower
	Conflicts conflict.Table
	Leaser    Leaser       // nil: Alone
	Log       *slog.Logger // nil: slog.Default
}

// A Service runs the mirror's collectors, appliers and scans. It is a prometheus.Collector.
type Service struct {
	c       Config
	metrics *metrics
	close   []func() error

	readers    *readers
	now        func() time.Time // by which the stream's messages grow old
	purgeEvery time.Duration

	mu    sync.Mutex
	loops map[string]string  // what each is doing or waiting for, by name
	notes map[noteKey]string // why the marks of one that runs stand still, by name
}

// New returns a Service of parts.
func New(c Config) (*Service, error) {
	if c.Leaser == nil {
		c.Leaser = Alone{}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	for _, s := range c.Map.Servers(shardmap.UID) {
		if c.Sources[s.Name] == nil {
			return nil, fmt.Errorf("syncer: there is no source for server %s", s.Name)
		}
	}
	if len(c.Targets) != c.Map.Size() {
		return nil, fmt.Errorf("syncer: there are %d targets for %d databases", len(c.Targets), c.Map.Size())
	}
	m := newMetrics(c)
	return &Service{
		c: c, metrics: m, readers: newReaders(m.dropped, c.Log), now: time.Now, purgeEvery: purgeEvery,
		loops: map[string]string{}, notes: map[noteKey]string{},
	}, nil
}

// A MariaDBConfig is what a Service over MariaDB has beside its servers. Zero values are
// the defaults.
type MariaDBConfig struct {
	Stream stream.Config
	Leaser Leaser
	Log    *slog.Logger
}

// OnMariaDB returns the Service that mirrors the uid cluster of c into its bid
// cluster. Its collectors reach the servers as c does, and their account is c's; see
// binlog.Config for its rights. Close frees what it holds; c and nc stay the caller's.
func OnMariaDB(c *cluster.Cluster, nc *nats.Conn, config MariaDBConfig) (_ *Service, err error) {
	st, err := stream.New(nc, c.Map().Prefix(), config.Stream)
	if err != nil {
		return nil, err
	}
	parts := Config{
		Map: c.Map(), Sources: map[string]source.Source{}, Stream: st, Leaser: config.Leaser, Log: config.Log,
		News: mirror.NewSQL(c), Conflicts: conflict.NewSQL(c),
	}
	var closers []func() error
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll(closers))
		}
	}()
	access := c.Config()
	for _, server := range c.Map().Servers(shardmap.UID) {
		s, err := binlog.New(c.Map(), server, binlog.Config{User: access.User, Password: access.Password, TLS: access.TLS, Log: config.Log})
		if err != nil {
			return nil, err
		}
		parts.Sources[server.Name] = s
		closers = append(closers, s.Close)
	}
	for n := range c.Map().Size() {
		t := apply.NewSQL(c.Database(shardmap.BID, n+1), c.Map().Epoch())
		parts.Targets = append(parts.Targets, t)
		closers = append(closers, t.Close)
	}
	s, err := New(parts)
	if err != nil {
		return nil, err
	}
	s.close = closers
	return s, nil
}

// Close frees what OnMariaDB made. Run has returned before.
func (s *Service) Close() error { return closeAll(s.close) }

func closeAll(closers []func() error) error {
	var errs []error
	for _, f := range closers {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// Run runs all collectors, appliers and scans until ctx ends. What fails is tried again for
// ever, and said once. It returns nil when all have stopped.
func (s *Service) Run(ctx context.Context) error {
	var g errgroup.Group
	for name, src := range s.c.Sources {
		c := &collector{
			server: name, source: src, stream: s.c.Stream, targets: s.c.Targets,
			log: s.c.Log, metrics: s.metrics.collector(name), readers: s.readers, now: s.now, purgeEvery: s.purgeEvery,
			note: func(c cause, why string) { s.note("collector/"+name, c, why) },
		}
		g.Go(func() error { s.keep(ctx, "collector/"+name, c.metrics.taken, c.run); return nil })
		g.Go(func() error { s.watchClock(ctx, name, src); return nil })
	}
	for _, t := range s.c.Targets {
		schema := t.Place().Schema
		a := &apply.Applier{Map: s.c.Map, Stream: s.c.Stream, Target: t, Applied: func(r apply.Report) {
			s.metrics.applier(schema).applied(r)
			why := ""
			if r.Letters > 0 {
				why = fmt.Sprintf("dead letters that are open: %d; until they are settled its marks stand still, see octopay mirror dead-letters list", r.Letters)
			}
			s.note("applier/"+schema, deadLetters, why)
		}}
		g.Go(func() error {
			s.keep(ctx, "applier/"+schema, nil, func(ctx context.Context) error {
				defer s.metrics.applier(schema).stopped()
				return a.Run(ctx)
			})
			return nil
		})
	}
	if s.c.Conflicts != nil && s.c.News != nil {
		for _, t := range s.c.Targets {
			place := t.Place()
			m := s.metrics.scan(place.Schema)
			scan := &conflict.Scan{Database: place.Number, News: s.c.News, Table: s.c.Conflicts, Observe: m.observe}
			g.Go(func() error {
				s.keep(ctx, "conflicts/"+place.Schema, nil, func(ctx context.Context) error {
					defer m.stopped()
					return scan.Run(ctx)
				})
				return nil
			})
		}
	}
	return g.Wait()
}

const (
	pauseMin = 100 * time.Millisecond
	pauseMax = 5 * time.Second
	// A life this long was a good one: what ended it is new.
	goodLife = 10 * time.Second
	// A loop that hasn't failed for so long runs.
	runsAfter = time.Second
	// A loop that waits for its lease for so long waits for another process, or for the
	// table of leases.
	waitsFor = 2 * time.Second
)

// keep runs f under a lease again and again until ctx ends. It calls taken, unless that is
// nil, when it hears that another process has the lease.
func (s *Service) keep(ctx context.Context, name string, taken func(), f func(ctx context.Context) error) {
	pause := pauseMin
	s.say(name, waiting, nil)
	for {
		begin := time.Now()
		held := s.later(waitsFor, name, waiting)
		err := s.c.Leaser.Hold(ctx, name, taken, func(ctx context.Context) error {
			held()
			begin = time.Now()
			// After a while: one that fails at once, again and again, doesn't run.
			defer s.later(runsAfter, name, running)()
			defer s.unnote(name)
			return f(ctx)
		})
		held()
		if ctx.Err() != nil {
			s.say(name, stopped, nil)
			return
		}
		if errors.Is(err, apply.ErrStalled) || errors.Is(err, source.ErrStalled) {
			s.metrics.stalls.WithLabelValues(name).Inc()
		}
		if errors.Is(err, apply.ErrNoStream) {
			s.say(name, "waiting for the stream", nil) // as everybody does at the first start
		} else {
			s.say(name, reason(err), err)
		}
		if time.Since(begin) > goodLife {
			pause = pauseMin
		}
		if sleep(ctx, pause) != nil {
			s.say(name, stopped, nil)
			return
		}
		pause = min(2*pause, pauseMax)
	}
}

func reason(err error) string {
	switch {
	case err == nil:
		return "ended"
	case errors.Is(err, apply.ErrMoved), errors.Is(err, stream.ErrSuperseded):
		return doubled
	case errors.Is(err, context.Canceled):
		return "the lease was lost"
	}
	return err.Error()
}

// say notes what a loop does, and logs it if that is new. Numbers, such as the port of
// a connection that is refused again and again, make nothing new.
func (s *Service) say(name, what string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.loops[name]
	s.loops[name] = what
	if withoutDigits(last) == withoutDigits(what) {
		return
	}
	level := slog.LevelInfo
	if err != nil {
		level = slog.LevelWarn
	}
	s.c.Log.Log(context.Background(), level, "mirror", "part", name, "state", what)
	s.metrics.state(name, what == running)
}

func withoutDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, s)
}

// watchClock keeps a reading of a server's clock, for the lag.
func (s *Service) watchClock(ctx context.Context, server string, src source.Source) {
	for {
		before := time.Now()
		now, err := src.Now(ctx)
		if err == nil {
			s.metrics.clock(server, now, before)
		}
		if sleep(ctx, 5*time.Second) != nil {
			return
		}
	}
}
