package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/loadtest/check"
	"github.com/octopay/octopay/loadtest/rig"
	"github.com/octopay/octopay/loadtest/stock"
	"github.com/octopay/octopay/shardmap"
)

// A where is the flags that say what is measured.
type where struct {
	URL      string   `name:"url" placeholder:"URL" help:"A service that runs. Without it a stack of its own is started, and ended."`
	Ops      []string `name:"ops-url" placeholder:"URL" help:"Ops ports of that service: how large its lanes' batches are, and how far behind its mirror."`
	Map      string   `name:"map" placeholder:"FILE" help:"The shard map of that service, with which what is stored is checked. OCTOPAY_DB_PASSWORD is the password."`
	DBUser   string   `name:"db-user" placeholder:"NAME" help:"User on its database servers."`
	NoMirror bool     `help:"Check the truth alone, and start no syncerd."`

	MirrorWithin time.Duration `default:"2m" help:"How long the check waits for the mirror to be complete, when it has told what the truth has."`

	Databases  int    `default:"8" placeholder:"N" help:"How many databases each cluster of the own stack has: 8, 16, 32 or 64."`
	BufferPool string `default:"1G" placeholder:"SIZE" help:"Buffer pool of each of its MariaDB servers."`
}

// check says what is wrong with the flags.
func (w where) check(c console) error {
	if w.MirrorWithin < time.Millisecond || w.MirrorWithin > 24*time.Hour {
		return usage("--mirror-within must be from 1ms to 24h")
	}
	if w.NoMirror {
		if err := c.only("belongs to a check of the mirror: there is none with --no-mirror", "mirror-within"); err != nil {
			return err
		}
	}
	if !c.given["url"] {
		return first(
			c.only("belongs to --url: of its own stack all that is known", "map", "db-user", "ops-url"),
			isSize("databases", w.Databases), isMemory("buffer-pool", w.BufferPool),
		)
	}
	if err := first(
		isURL("url", w.URL),
		c.only("belongs to a stack of its own: there is none with --url", "databases", "buffer-pool"),
	); err != nil {
		return err
	}
	for _, ops := range w.Ops {
		if err := isURL("ops-url", ops); err != nil {
			return err
		}
	}
	if (w.Map == "") != (w.DBUser == "") {
		return usage("--map and --db-user belong together")
	}
	if w.Map == "" {
		return c.only("belongs to a check, which a service with --url has with --map and --db-user alone", "no-mirror", "mirror-within")
	}
	return nil
}

// A service is what is measured.
type service struct {
	service  stock.Service
	cluster  *cluster.Cluster   // nil: nobody can look at what is stored
	mirror   bool               // and at the mirror
	record   func() *rig.Record // begins a record of a run
	rig      *rig.Rig           // of its own stack; nil: somebody else's
	versions []string
	close    func() error
}

// start finds or starts it.
func (w where) start(ctx context.Context, c console) (*service, error) {
	if w.URL == "" {
		return w.own(ctx, c)
	}
	target, err := c.service(ctx, w.URL)
	if err != nil {
		return nil, err
	}
	ops := make([]string, len(w.Ops))
	for i, base := range w.Ops {
		ops[i] = strings.TrimSuffix(base, "/")
		if err := isOps(ctx, ops[i]); err != nil {
			return nil, err
		}
	}
	s := &service{
		service: target, mirror: !w.NoMirror,
		record: func() *rig.Record { return rig.Watch(rig.Octopay, ops) }, close: func() error { return nil },
	}
	if w.Map == "" {
		c.say("without --map nobody can check what is stored")
		return s, nil
	}
	text, err := os.ReadFile(w.Map)
	if err != nil {
		return nil, usage("--map: %w", err)
	}
	m, err := shardmap.Parse(text)
	if err != nil {
		return nil, usage("--map: %s: %w", w.Map, err)
	}
	s.cluster = cluster.Open(m, cluster.Config{User: w.DBUser, Password: c.variable("OCTOPAY_DB_PASSWORD")})
	s.close = s.cluster.Close
	if err := check.Reach(ctx, s.cluster, s.mirror); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// isOps makes sure that an ops port of Octopay answers there.
func isOps(ctx context.Context, url string) error {
	m, err := rig.Metrics(ctx, url)
	if err != nil {
		return fmt.Errorf("--ops-url %s: %w", url, err)
	}
	for name := range m {
		if strings.HasPrefix(name, "octopay_") {
			return nil
		}
	}
	return fmt.Errorf("--ops-url %s: it has metrics, and none of Octopay", url)
}

// own starts a stack of its own: the engines with durable settings, orderd and syncerd.
func (w where) own(ctx context.Context, c console) (*service, error) {
	r, err := rig.Start(ctx, rig.Config{
		Databases: w.Databases, BufferPool: w.BufferPool, Syncerd: !w.NoMirror,
	}, func(line string) { c.say("%s", line) })
	if err != nil {
		return nil, err
	}
	s := &service{
		rig: r, service: stock.Service{URL: r.URL(), Key: r.Key()}, cluster: r.Cluster(), mirror: !w.NoMirror,
		record: func() *rig.Record { return r.Record(rig.Octopay) }, close: r.Close,
	}
	for _, e := range r.Engines {
		s.versions = append(s.versions, e.String())
	}
	return s, nil
}
