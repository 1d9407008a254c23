package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/octopay/octopay/cluster"
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

	Databases  int    `default:"8" placeholder:"N" help:"How many databases each cluster of the own stack has: 8, 16, 32 or 64."`
	BufferPool string `default:"1G" placeholder:"SIZE" help:"Buffer pool of each of its MariaDB servers."`
}

func (w where) check() error {
	switch u, err := url.Parse(w.URL); {
	case w.URL == "" && (w.Map != "" || w.DBUser != "" || len(w.Ops) > 0):
		return usage("--map, --db-user and --ops-url belong to --url")
	case w.URL == "":
		return nil
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return usage("--url must be like http://127.0.0.1:8080")
	case (w.Map == "") != (w.DBUser == ""):
		return usage("--map and --db-user belong together")
	}
	return nil
}

// A service is what is measured.
type service struct {
	service  stock.Service
	cluster  *cluster.Cluster   // nil: nobody can look at what is stored
	mirror   bool               // and at the mirror
	record   func() *rig.Record // begins a record of a run
	versions []string
	close    func() error
}

// start finds or starts it.
func (w where) start(ctx context.Context, c console) (*service, error) {
	if w.URL == "" {
		return w.own(ctx, c)
	}
	ops := make([]string, len(w.Ops))
	for i, base := range w.Ops {
		ops[i] = strings.TrimSuffix(base, "/")
	}
	s := &service{
		service: stock.Service{URL: strings.TrimSuffix(w.URL, "/"), Key: c.key()}, mirror: !w.NoMirror,
		record: func() *rig.Record { return rig.Watch(rig.Octopay, ops) }, close: func() error { return nil },
	}
	if w.Map == "" {
		c.say("without --map nobody can check what is stored")
		return s, nil
	}
	text, err := os.ReadFile(w.Map)
	if err != nil {
		return nil, err
	}
	m, err := shardmap.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.Map, err)
	}
	s.cluster = cluster.Open(m, cluster.Config{User: w.DBUser, Password: c.variable("OCTOPAY_DB_PASSWORD")})
	s.close = s.cluster.Close
	return s, nil
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
		service: stock.Service{URL: r.URL()}, cluster: r.Cluster(), mirror: !w.NoMirror,
		record: func() *rig.Record { return r.Record(rig.Octopay) }, close: r.Close,
	}
	for _, e := range r.Engines {
		s.versions = append(s.versions, e.String())
	}
	return s, nil
}
