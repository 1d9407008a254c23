package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	probeEvery = time.Second // how often each database is asked
	probeMax   = time.Second // for its answer
	mapEvery   = 2 * time.Second
	askedAfter = 250 * time.Millisecond // databases that ask for the map together get it once
)

// Run looks after the handles until ctx ends. About once a second it asks each database
// what it is and whether it takes writes, all of them side by side; what it finds
// decides at once for everybody. It reads the map in force every two seconds, more often
// while a database obeys a newer one, and follows it.
//
// A newer map of another size or prefix is not followed, and said so. A map that
// conflicts with the one in use ends Run with ErrMapConflict.
func (c *Cluster) Run(ctx context.Context, log *slog.Logger) error {
	c.watched.Store(true)
	defer c.watched.Store(false)
	g, ctx := errgroup.WithContext(ctx)
	for _, d := range c.All() {
		g.Go(func() error {
			c.watch(ctx, d, log)
			return nil
		})
	}
	g.Go(func() error { return c.lookForMaps(ctx, log) })
	return g.Wait()
}

// watch probes a database until ctx ends, and logs when it begins or ends to serve.
func (c *Cluster) watch(ctx context.Context, d *Database, log *slog.Logger) {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	said := ""
	for {
		l := d.link.Load()
		err := l.probe(ctx)
		if ctx.Err() != nil {
			return
		}
		if w := l.word.Load(); w != nil && w.epoch > l.epoch {
			select {
			case c.ask <- struct{}{}:
			default:
			}
		}
		now := ""
		if err := d.Writable(); err != nil {
			now = err.Error()
		}
		switch now {
		case said:
		case "":
			log.Info("the database serves", "database", d.Place().String())
		default:
			log.Warn("the database does not serve all", "database", d.Place().String(), "reads", d.Readable() == nil, "because", now, "probe", c.config.probed(err))
		}
		said = now
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// probed says what came of a probe.
func (c Config) probed(err error) string {
	if err == nil {
		return "answered"
	}
	return c.named(err).Error()
}

// probe asks the database about itself, also when nobody else may.
func (l *link) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeMax)
	defer cancel()
	return guard(l.answers, func() error {
		c, err := l.readers.Conn(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		return l.askOver(ctx, c)
	})
}

// lookForMaps follows the map in force until ctx ends.
func (c *Cluster) lookForMaps(ctx context.Context, log *slog.Logger) error {
	tick := time.NewTicker(mapEvery)
	defer tick.Stop()
	said := ""
	for {
		now := ""
		m, err := storedMap(ctx, c.Meta())
		c.unread.Store(err != nil && ctx.Err() == nil)
		switch old := c.Map(); {
		case err != nil:
			// The meta database is away, and its probe says so; or its map is damaged.
			// What is in use stays in use.
			now = err.Error()
		case m == nil || m.Epoch() < old.Epoch():
		case m.Epoch() > old.Epoch():
			if err := c.follow(m, log); err != nil {
				now = err.Error()
			}
		case m.Hash() != old.Hash():
			return fmt.Errorf("%w: epoch %d has hash %s in %s, the one in use %s", ErrMapConflict, m.Epoch(), m.Hash(), c.Meta().Place(), old.Hash())
		}
		if now != "" && now != said && ctx.Err() == nil {
			log.Error("the shard map in force is not followed", "because", now)
		}
		said = now
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-c.ask:
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(askedAfter):
			}
		}
	}
}
