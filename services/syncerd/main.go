// Command syncerd carries orders from the uid cluster into the bid cluster: a
// collector for each server of the truth, an applier for each database of the mirror.
// Any number of syncerd may run; each part runs in one of them at a time.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/nats-io/nats.go"
	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/lease"
	"github.com/octopay/octopay/services/internal/boot"
	"github.com/octopay/octopay/syncer"
	"github.com/octopay/octopay/syncer/stream"
)

// A config is the settings of syncerd.
type config struct {
	boot.Shared `yaml:",inline"`
	OpsAddr     string `yaml:"ops_addr" help:"where health, readiness and metrics are, host:port of this machine alone"`
	StreamBytes int64  `yaml:"stream_bytes_max" help:"size of the stream, in bytes; it should hold what comes while a database of the mirror is away"`
}

// Check implements boot.Settings.
func (c config) Check() error {
	return errors.Join(
		c.Shared.Check(),
		boot.LoopbackOnly(map[string]string{"ops_addr": c.OpsAddr}),
		// Below it the marks of ten minutes and a few large messages fill the stream.
		boot.Between("stream_bytes_max", c.StreamBytes, 64<<20, 1<<44),
	)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Environ(), os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "syncerd:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args, environ []string, stderr io.Writer) error {
	c := config{OpsAddr: "127.0.0.1:8082", StreamBytes: 8 << 30, Shared: boot.Shared{NATSURL: nats.DefaultURL}}
	program, err := boot.Start("syncerd", &c, &c.Shared, args, environ, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	ops, _, err := program.Ops(c.OpsAddr)
	if err != nil {
		return err
	}
	return boot.Run(ctx, ops, boot.Part{Name: "mirror", Run: func(ctx context.Context) error {
		return mirror(ctx, c, program)
	}})
}

func mirror(ctx context.Context, c config, program *boot.Program) (err error) {
	databases, err := program.Cluster(ctx, cluster.Config{}, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, databases.Close()) }()

	const broker = "NATS"
	program.Ready.Waiting(broker)
	nc, err := c.NATS("syncerd")
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := c.AwaitNATS(ctx, program.Log, nc); err != nil {
		return err
	}
	program.Ready.Arrived(broker)

	return boot.Run(ctx, program.Handles(databases), boot.Part{Name: "collectors and appliers", Run: func(ctx context.Context) error {
		for ctx.Err() == nil {
			if err := underOneMap(ctx, c, program, databases, nc); err != nil {
				return err
			}
		}
		return nil
	}})
}

// underOneMap mirrors until another map is in use: what is collected and applied, and
// where, is the map's word.
func underOneMap(ctx context.Context, c config, program *boot.Program, databases *cluster.Cluster, nc *nats.Conn) (err error) {
	changed := databases.Changed(databases.Map())
	ctx, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer stop()
	watch.Go(func() {
		select {
		case <-changed:
			stop()
		case <-ctx.Done():
		}
	})
	keeper := lease.NewKeeper(lease.NewSQL(databases.Meta()), lease.NewHolder(), lease.Config{Log: program.Log})
	service, err := syncer.OnMariaDB(databases, nc, syncer.MariaDBConfig{
		Leaser: keeper, Log: program.Log, Stream: stream.Config{MaxBytes: c.StreamBytes},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.Close()) }()
	program.Registry.MustRegister(service)
	defer program.Registry.Unregister(service)
	program.Standing(service.Standing)
	defer program.Standing(nil)
	return service.Run(ctx)
}
