// Command quickstart is all of Octopay in one process: the API, the mirror, and a NATS
// server inside. Orders are kept in memory, or with -engine mariadb in MariaDB
// servers that it starts.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/octopay/octopay/auth"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/services/internal/boot"
	"github.com/octopay/octopay/services/internal/front"
	"github.com/octopay/octopay/syncer/mirror"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// options are the command line.
type options struct {
	addr, opsAddr string
	engine        string // memory, mariadb
	data          string // folder that keeps the data; "" for none
	logLevel      string
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // what is wrong is said once, by whoever gets the error
	flags.StringVar(&o.addr, "addr", "127.0.0.1:8080", "`address` of the API, loopback")
	flags.StringVar(&o.opsAddr, "ops-addr", "127.0.0.1:8081", "`address` of health, readiness, metrics; loopback")
	flags.StringVar(&o.engine, "engine", "memory", "what keeps the orders: memory, or mariadb where mariadbd is on the PATH")
	flags.StringVar(&o.data, "data", "", "`folder` that keeps the data of -engine mariadb; without it they are gone at exit")
	flags.StringVar(&o.logLevel, "log-level", "warn", "debug, info (each request), warn, error")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		flags.SetOutput(stderr)
		fmt.Fprintln(stderr, "Usage of quickstart:")
		flags.PrintDefaults()
		return o, err
	} else if err != nil {
		return o, fmt.Errorf("%w; see -h", err)
	}
	var faults []error
	if flags.NArg() > 0 {
		faults = append(faults, errors.New("unexpected argument; see -h"))
	}
	if o.engine != "memory" && o.engine != "mariadb" {
		faults = append(faults, errors.New("-engine must be memory or mariadb"))
	}
	if o.data != "" && o.engine != "mariadb" {
		faults = append(faults, errors.New("-data needs -engine mariadb: the memory engine keeps nothing"))
	}
	for name, addr := range map[string]string{"-addr": o.addr, "-ops-addr": o.opsAddr} {
		if !boot.Loopback(addr) {
			faults = append(faults, fmt.Errorf("%s must be host:port of a loopback address: its keys are known to everybody", name))
		}
	}
	return o, errors.Join(faults...)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	log, err := boot.Shared{LogLevel: o.logLevel}.Logger(stderr)
	if err != nil {
		return err
	}
	// What can't work is found before servers are started.
	if err := errors.Join(free(o.addr), writable(o.data)); err != nil {
		return err
	}
	program := boot.NewProgram(log, boot.Shared{})
	ops, opsAddr, err := program.Ops(o.opsAddr)
	if err != nil {
		return fmt.Errorf("-ops-addr: %w", err)
	}
	return boot.Run(ctx, ops, boot.Part{Name: "service", Run: func(ctx context.Context) error {
		return serve(ctx, o, program, func(addr net.Addr) { greet(stdout, o, addr, opsAddr) })
	}})
}

// serve runs everything behind the ops port until ctx ends.
func serve(ctx context.Context, o options, program *boot.Program, serving func(net.Addr)) (err error) {
	dir := o.data
	if dir == "" {
		var remove func() error
		if dir, remove, err = localstack.TempDir("octopay-quickstart"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, remove()) }()
	}

	// First, since it makes sure that nobody else uses the folder.
	var e engine
	if o.engine == "mariadb" {
		e, err = startMariaDB(ctx, dir, program)
	} else {
		e, err = startMemory()
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()

	broker, err := startBroker(filepath.Join(dir, "jetstream"), program.Log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, broker.close()) }()
	if err := broker.makeStream(ctx, e.shards().Prefix()); err != nil {
		return err
	}

	copies, err := e.mirror(broker.conn, program)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, copies.Close()) }()
	program.Registry.MustRegister(copies)
	program.Ready.Waiting(theMirror)
	keys, _ := auth.Development(true) // parse lets only loopback addresses pass
	address := make(chan net.Addr, 1)
	f := front.Front{
		Shards: e.shards, Store: e.store, Mirror: e.reader, Conflicts: e.conflicts, Leases: e.leases, Keys: keys, Available: e.available,
		Ready: program.Ready, Registry: program.Registry, Log: program.Log,
		Addr: o.addr, Grace: 13 * time.Second, LocalHostsOnly: true, Serving: func(a net.Addr) { address <- a },
	}
	return boot.Run(ctx, append(e.parts,
		boot.Part{Name: "mirror", Run: copies.Run},
		boot.Part{Name: "orders", Run: f.Run},
		boot.Part{Name: "greeting", Run: func(ctx context.Context) error {
			select {
			case a := <-address:
				if err := awaitMirror(ctx, e.reader, program); err != nil {
					return err
				}
				serving(a)
				<-ctx.Done()
			case <-ctx.Done():
			}
			return nil
		}})...)
}

// free makes sure that one can listen at addr. What takes it in the next moment is
// found when the API does.
func free(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("-addr: %w", err)
	}
	return l.Close()
}

// writable makes the folder of -data if it isn't there, and makes sure that it can be
// written to.
func writable(dir string) error {
	if dir == "" {
		return nil
	}
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		var f *os.File
		if f, err = os.CreateTemp(dir, "probe-"); err == nil {
			err = errors.Join(f.Close(), os.Remove(f.Name()))
		}
	}
	if err != nil {
		return fmt.Errorf("-data must be a folder that can be written to: %w", err)
	}
	return nil
}

// theMirror is what the third curl waits for.
const theMirror = "the mirror"

// awaitMirror waits until the mirror carries what is written: it says up to when it is
// complete. What keeps it from that its parts log themselves.
func awaitMirror(ctx context.Context, reader mirror.Reader, program *boot.Program) error {
	err := boot.Until(ctx, slog.New(slog.DiscardHandler), theMirror, func(ctx context.Context) error {
		page, err := reader.List(ctx, mirror.Query{BID: 1001, Before: math.MaxInt64, Limit: 1})
		if err == nil && page.CompleteUntil == 0 {
			err = errors.New("nothing has come through it yet")
		}
		return err
	})
	if err == nil {
		program.Ready.Arrived(theMirror)
	}
	return err
}

// greet says that it serves, and what to do now.
func greet(w io.Writer, o options, addr, opsAddr net.Addr) {
	base := "http://" + addr.String()
	fmt.Fprintf(w, "octopay ready %s\n\n", base)
	for _, line := range curls(base) {
		fmt.Fprintf(w, "  %s\n\n", line)
	}
	fmt.Fprintln(w, "The third lists the merchant's orders from the mirror, which has a new one a moment later.")
	switch {
	case o.engine == "memory":
		fmt.Fprintln(w, "Orders are in memory: they are gone when this ends (Ctrl-C).")
	case o.data == "":
		fmt.Fprintln(w, "Orders are in MariaDB, in a temporary folder: they are gone when this ends (Ctrl-C). -data DIR keeps them.")
	default:
		fmt.Fprintf(w, "Orders are in MariaDB, in %s, and stay there when this ends (Ctrl-C).\n", o.data)
	}
	fmt.Fprintln(w, "Development keys, on this machine only: dev-app dev-merchant-1001 dev-channel dev-ops")
	fmt.Fprintf(w, "Health, readiness, metrics: http://%s/healthz /readyz /metrics\n", opsAddr)
}

// curls are three commands that show the main job.
func curls(base string) []string {
	const key = "-H 'Authorization: Bearer dev-app'"
	const order = `{"uid":"9527","bid":"1001","out_trade_no":"20261130-000017","amount":19900,"currency":"CNY","subject":"Le Max 2"}`
	return []string{
		"curl -s -X POST " + base + "/v1/orders " + key + " -H 'Content-Type: application/json' -d '" + order + "'",
		"curl -s '" + base + "/v1/orders?uid=9527&bid=1001&out_trade_no=20261130-000017' " + key,
		"curl -si " + base + "/v1/merchants/1001/orders " + key,
	}
}
