// Command orderd serves orders over HTTP. Any number of them may run; each takes a
// worker number of its own from the meta database.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/lease"
	"github.com/octopay/octopay/ordersvc/mysqlstore"
	"github.com/octopay/octopay/payconfig"
	"github.com/octopay/octopay/services/internal/boot"
	"github.com/octopay/octopay/services/internal/front"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/conflict"
	"github.com/octopay/octopay/syncer/mirror"
)

// A config is the settings of orderd.
type config struct {
	boot.Shared `yaml:",inline"`
	boot.Edge   `yaml:",inline"`
	OpsAddr     string        `yaml:"ops_addr" help:"where health, readiness and metrics are, host:port of this machine alone"`
	ReadPermits int           `yaml:"read_permits" help:"reads of one database at once"`
	AtOnce      int           `yaml:"transactions_at_once" help:"transactions in flight on one server, from this process"`
	KeysFile    string        `yaml:"keys_file" help:"keeps the hashes of the API keys over a restart, for this process alone; empty: nothing does, and one that starts without the meta database has none"`
	Grace       time.Duration `yaml:"shutdown_wait" help:"time for requests under way at the end"`
}

// Check implements boot.Settings.
func (c config) Check() error {
	return errors.Join(
		c.Shared.Check(),
		c.Edge.Check(),
		boot.LoopbackOnly(map[string]string{"ops_addr": c.OpsAddr}),
		boot.Between("read_permits", c.ReadPermits, 1, 1000),
		boot.Between("transactions_at_once", c.AtOnce, 1, 64),
		boot.Between("shutdown_wait", c.Grace, 0, time.Hour),
	)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Environ(), os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "orderd:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args, environ []string, stderr io.Writer) error {
	c := config{Edge: boot.Edge{Addr: "127.0.0.1:8080"}, OpsAddr: "127.0.0.1:8081", ReadPermits: 8, AtOnce: 2, Grace: 13 * time.Second}
	program, err := boot.Start("orderd", &c, &c.Shared, args, environ, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	certificate, err := c.Certificate(program.Log)
	if err != nil {
		return err
	}
	ops, _, err := program.Ops(c.OpsAddr)
	if err != nil {
		return err
	}
	return boot.Run(ctx, ops, boot.Part{Name: "orders", Run: func(ctx context.Context) error {
		databases, err := program.Cluster(ctx, cluster.Config{ReadPermits: c.ReadPermits}, true)
		if err != nil {
			return err
		}
		keys, following, err := program.Keys(databases, c.KeysFile)
		if err != nil {
			return errors.Join(err, databases.Close())
		}
		config, watching := program.PaymentConfig(databases)
		store := mysqlstore.New(databases)
		f := front.Front{
			Shards: databases.Map, Store: store, Mirror: mirror.NewSQL(databases), Conflicts: conflict.NewSQL(databases), Keys: keys,
			Leases:     lease.NewSQL(databases.Meta()),
			Policy:     func(bid int64, currency string) error { return config().AllowCreate(bid, currency) },
			WithinRate: payconfig.NewRates(config).Allow,
			Available:  func(n int) error { return databases.Database(shardmap.UID, n).Writable() },
			Ready:      program.Ready, Registry: program.Registry, Log: program.Log,
			Certificate: certificate, TrustedProxies: c.TrustedProxies,
			Addr: c.Addr, Grace: c.Grace, AtOnce: c.AtOnce,
		}
		err = boot.Run(ctx, program.Handles(databases), following, watching, boot.Part{Name: "front", Run: f.Run})
		return errors.Join(err, store.Close(), databases.Close())
	}})
}
