package boot

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/httpapi"
	"github.com/octopay/octopay/shardmap"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// A Program is what every program has: its settings, a log, metrics, and what it
// waits for.
type Program struct {
	Log      *slog.Logger
	Registry *prometheus.Registry
	Ready    *Readiness

	shared    Shared
	databases atomic.Pointer[cluster.Cluster]      // nil: not open yet
	standing  atomic.Pointer[func() httpapi.Parts] // nil: no parts are told
}

// Start reads the arguments (-config FILE) and the settings of a program into config;
// shared is the part of it that all programs have. With -h it prints to stderr what each
// setting means and its default, and returns flag.ErrHelp.
func Start(name string, config Settings, shared *Shared, args, environ []string, stderr io.Writer) (*Program, error) {
	if !listed(name, config) {
		return nil, fmt.Errorf("boot: the list of settings has others for %s than it has", name)
	}
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(stderr)
	file := flags.String("config", "", "`file` of settings, YAML")
	flags.Usage = func() {
		fmt.Fprintf(stderr, "usage: %s [-config FILE]\n\n"+
			"Each setting is a variable, or a line of the YAML file, there in lower case and\n"+
			"without %s; a variable wins. In brackets is the default.\n\n", name, Prefix)
		describe(stderr, config)
	}
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument; usage: %s [-config FILE]", name)
	}
	if err := Load(config, *file, environ); err != nil {
		return nil, err
	}
	log, err := shared.Logger(stderr)
	if err != nil {
		return nil, err
	}
	return NewProgram(log, *shared), nil
}

// NewProgram returns a program that logs to log.
func NewProgram(log *slog.Logger, shared Shared) *Program {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &Program{Log: log, Registry: r, Ready: &Readiness{}, shared: shared}
}

// Ops listens at addr and returns the part that answers there: health, readiness,
// metrics, and profiles by setting. It goes first, so that it answers as long as
// anything else runs.
func (p *Program) Ops(addr string) (Part, net.Addr, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return Part{}, nil, err
	}
	p.Log.Info("listening", "listener", "ops", "addr", l.Addr().String())
	handler := httpapi.NewOps(httpapi.OpsConfig{
		Gatherer:  p.Registry,
		Ready:     func(context.Context) []string { return p.Ready.Missing() },
		Draining:  p.Ready.Draining,
		Databases: p.health,
		Parts:     p.parts,
	})
	if p.shared.Pprof {
		handler = withProfiles(handler)
	}
	return HTTP("ops", l, httpapi.NewServer(handler, p.Log), time.Second, nil), l.Addr(), nil
}

// Cluster opens the databases of the map that is in force: that of the map file, or a
// newer one in the meta database. It waits for the meta database, since the file alone
// could be an old one. A program that can do something without the meta database is early:
// while that is away it begins with the file, once every database of the truth obeys it.
func (p *Program) Cluster(ctx context.Context, c cluster.Config, early bool) (*cluster.Cluster, error) {
	m, err := p.shared.Map()
	if err != nil {
		return nil, err
	}
	access, err := p.shared.Databases()
	if err != nil {
		return nil, err
	}
	c.User, c.Password, c.TLS = access.User, access.Password, access.TLS
	databases := cluster.Open(m, c)
	const meta = "the meta database"
	p.Ready.Waiting(meta)
	var inForce *shardmap.Map
	var conflict error
	err = Until(ctx, p.Log, meta, func(ctx context.Context) (err error) {
		inForce, err = cluster.ResolveMap(ctx, databases, m)
		if errors.Is(err, cluster.ErrMapConflict) {
			conflict, err = err, nil // waiting doesn't mend it
		}
		if early && errors.Is(err, cluster.ErrUnavailable) && cluster.Obeyed(ctx, databases) == nil {
			p.Log.Warn("it begins with the map file, which every database of the truth obeys, without the meta database", "because", err)
			inForce, err = m, nil
		}
		return err
	})
	if err = errors.Join(err, conflict); err != nil {
		return nil, errors.Join(err, databases.Close())
	}
	if inForce.Hash() != m.Hash() {
		p.Log.Info("the map file is older than the map in force", "file_epoch", m.Epoch(), "epoch", inForce.Epoch())
		if err := databases.Close(); err != nil {
			return nil, err
		}
		databases = cluster.Open(inForce, c)
	}
	p.Log.Info("shard map", "epoch", inForce.Epoch(), "hash", inForce.Hash(), "databases", inForce.Size())
	p.Registry.MustRegister(databases)
	p.databases.Store(databases)
	p.Ready.Arrived(meta)
	return databases, nil
}

// Handles is the part that looks after databases, which Cluster has opened. It goes
// before those that use them.
func (p *Program) Handles(databases *cluster.Cluster) Part {
	return Part{"databases", func(ctx context.Context) error { return databases.Run(ctx, p.Log) }}
}

// Standing sets who tells which parts of the program stand still; nil: nobody.
func (p *Program) Standing(f func() (standing []string, working bool)) {
	if f == nil {
		p.standing.Store(nil)
		return
	}
	parts := func() httpapi.Parts {
		standing, working := f()
		return httpapi.Parts{Standing: standing, Working: working}
	}
	p.standing.Store(&parts)
}

func (p *Program) parts() httpapi.Parts {
	if f := p.standing.Load(); f != nil {
		return (*f)()
	}
	return httpapi.Parts{Working: true}
}

// health says which databases don't serve.
func (p *Program) health() httpapi.Databases {
	c := p.databases.Load()
	if c == nil {
		return httpapi.Databases{Serving: true}
	}
	names := func(places []shardmap.Database) (out []string) {
		for _, place := range places {
			out = append(out, place.String())
		}
		return out
	}
	h := c.Health()
	return httpapi.Databases{Unavailable: names(h.Unavailable), ReadOnly: names(h.ReadOnly), Serving: h.Serving}
}

// LoopbackOnly checks that addresses, by the name of their setting, are reachable from
// this machine alone: what listens there asks nobody for a key.
func LoopbackOnly(addresses map[string]string) error {
	var faults []error
	for setting, addr := range addresses {
		if !Loopback(addr) {
			faults = append(faults, fmt.Errorf("config: %s must be host:port of a loopback address, such as 127.0.0.1:8080", setting))
		}
	}
	return errors.Join(faults...)
}
