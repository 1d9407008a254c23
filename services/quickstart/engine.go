package main

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/lease"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/ordersvc/memstore"
	"github.com/octopay/octopay/ordersvc/mysqlstore"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/services/internal/boot"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer"
	"github.com/octopay/octopay/syncer/apply"
	"github.com/octopay/octopay/syncer/conflict"
	"github.com/octopay/octopay/syncer/mirror"
	"github.com/octopay/octopay/syncer/source"
	"github.com/octopay/octopay/syncer/stream"
	"github.com/octopay/octopay/syncer/tap"
)

// An engine is what keeps the orders and their mirror.
type engine struct {
	shards    func() *shardmap.Map
	store     ordersvc.Store
	reader    mirror.Reader
	conflicts conflict.Table
	leases    lease.Table
	// available says whether a uid database can be written; nil: always.
	available func(database int) error
	parts     []boot.Part // that look after it while it is used
	mirror    func(*nats.Conn, *boot.Program) (*syncer.Service, error)
	close     func() error
}

// streamBytes bounds the mirror's stream: this is one machine's disk.
const streamBytes = 1 << 30

// startMemory returns an engine of which nothing is left when the process ends.
func startMemory() (engine, error) {
	const server = "memory"
	shards, err := shardmap.New(shardmap.OneServer(shardmap.Server{Name: server, Address: "memory:0"}, 8))
	if err != nil {
		return engine{}, err
	}
	// The store tells the tap of its commits; the tap asks the store for the time.
	var commits *tap.Tap
	store := memstore.New(memstore.Config{
		Room:     func() error { return commits.Room() },
		OnCommit: func(_ schema.Millis, orders []schema.Order, entries []schema.Entry) { commits.Commit(orders, entries) },
	})
	commits = tap.New(store.Now)
	copies := mirror.NewMemory(shards)
	conflicts := conflict.NewMemory(shards.Size())
	return engine{
		shards: func() *shardmap.Map { return shards }, store: store, reader: copies, conflicts: conflicts, leases: lease.NewMemory(time.Now),
		mirror: func(nc *nats.Conn, p *boot.Program) (*syncer.Service, error) {
			st, err := stream.New(nc, shards.Prefix(), stream.Config{MaxBytes: streamBytes})
			if err != nil {
				return nil, err
			}
			var targets []apply.Target
			for d := 1; d <= shards.Size(); d++ {
				targets = append(targets, copies.Target(d))
			}
			return syncer.New(syncer.Config{
				Map: shards, Sources: map[string]source.Source{server: commits}, Targets: targets, Stream: st, News: copies, Conflicts: conflicts, Log: p.Log,
			})
		},
		close: func() error { return nil },
	}, nil
}

// startMariaDB starts MariaDB servers with their data in dir.
func startMariaDB(ctx context.Context, dir string, p *boot.Program) (engine, error) {
	stack, err := localstack.Start(ctx, localstack.Options{
		Dir: dir, Need: []localstack.Need{localstack.UID, localstack.BID, localstack.Meta},
		Log: func(s string) { p.Log.Info(s) },
	})
	if err != nil {
		return engine{}, err
	}
	databases := cluster.Open(stack.Map, cluster.Config{User: stack.User, Password: stack.Password})
	p.Registry.MustRegister(databases)
	store := mysqlstore.New(databases)
	return engine{
		shards: databases.Map, store: store, reader: mirror.NewSQL(databases), conflicts: conflict.NewSQL(databases), leases: lease.NewSQL(databases.Meta()),
		available: func(n int) error { return databases.Database(shardmap.UID, n).Writable() },
		parts:     []boot.Part{p.Handles(databases)},
		mirror: func(nc *nats.Conn, p *boot.Program) (*syncer.Service, error) {
			return syncer.OnMariaDB(databases, nc, syncer.MariaDBConfig{Stream: stream.Config{MaxBytes: streamBytes}, Log: p.Log})
		},
		close: func() error { return errors.Join(store.Close(), databases.Close(), stack.Close()) },
	}, nil
}
