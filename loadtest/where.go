package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/loadtest/proc"
	"github.com/octopay/octopay/loadtest/report"
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
	name     string // as reports call it
	service  stock.Service
	ops      []string
	cluster  *cluster.Cluster // nil: nobody can look at what is stored
	mirror   bool             // and at the mirror
	pids     func() map[string][]int
	versions []string
	close    func() error
}

// start finds or starts it.
func (w where) start(ctx context.Context, c console) (*service, error) {
	if w.URL == "" {
		return w.own(ctx, c)
	}
	s := &service{
		name: "octopay", service: stock.Service{URL: strings.TrimSuffix(w.URL, "/"), Key: c.key()},
		mirror: !w.NoMirror, close: func() error { return nil },
	}
	for _, base := range w.Ops {
		s.ops = append(s.ops, strings.TrimSuffix(base, "/"))
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

// An around is what is measured of a service while it serves a run.
type around struct {
	ctx     context.Context
	s       *service
	sampler sampler

	used   map[string]time.Duration // before, and then during, by program
	faults error
}

func (s *service) around(ctx context.Context) *around {
	return &around{ctx: ctx, s: s, sampler: sampler{ops: s.ops}}
}

// cpu returns what the programs have used until now.
func (a *around) cpu() map[string]time.Duration {
	used := map[string]time.Duration{}
	if a.s.pids == nil {
		return used
	}
	for program, pids := range a.s.pids() {
		var err error
		if used[program], err = proc.CPU(pids...); err != nil {
			a.faults = errors.Join(a.faults, fmt.Errorf("CPU of %s: %w", program, err))
		}
	}
	return used
}

func (a *around) begin() {
	a.used = a.cpu()
	a.sampler.start(a.ctx)
}

func (a *around) end() {
	a.sampler.end()
	before := a.used
	a.used = a.cpu()
	for program := range a.used {
		a.used[program] -= before[program]
	}
}

// enter enters what was measured into a run.
func (a *around) enter(run *report.Run) error {
	a.sampler.enter(run.Seconds)
	cpu := map[string]float64{}
	for program, used := range a.used {
		cpu[program] = used.Seconds()
	}
	maps.Copy(cpu, run.CPUSec)
	run.CPUSec = cpu
	return a.faults
}
