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
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/octopay/octopay/services/internal/boot"
	"github.com/octopay/octopay/services/internal/front"
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
	flags.SetOutput(stderr)
	flags.StringVar(&o.addr, "addr", "127.0.0.1:8080", "`address` of the API, loopback")
	flags.StringVar(&o.opsAddr, "ops-addr", "127.0.0.1:8081", "`address` of health, readiness, metrics; loopback")
	flags.StringVar(&o.engine, "engine", "memory", "what keeps the orders: memory, or mariadb where mariadbd is on the PATH")
	flags.StringVar(&o.data, "data", "", "`folder` that keeps the data of -engine mariadb; without it they are gone at exit")
	flags.StringVar(&o.logLevel, "log-level", "warn", "debug, info (each request), warn, error")
	if err := flags.Parse(args); err != nil {
		return o, err
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
			faults = append(faults, fmt.Errorf("%s must be host:port of a loopback address: there is no authentication yet", name))
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
	program := boot.NewProgram(log, boot.Shared{})
	ops, opsAddr, err := program.Ops(o.opsAddr)
	if err != nil {
		return err
	}
	return boot.Run(ctx, ops, boot.Part{Name: "quickstart", Run: func(ctx context.Context) error {
		return serve(ctx, o, program, func(addr net.Addr) { greet(stdout, o, addr, opsAddr) })
	}})
}

// serve runs everything behind the ops port until ctx ends.
func serve(ctx context.Context, o options, program *boot.Program, serving func(net.Addr)) (err error) {
	dir := o.data
	if dir == "" {
		if dir, err = os.MkdirTemp("", "octopay-quickstart-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	broker, err := startBroker(filepath.Join(dir, "jetstream"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, broker.close()) }()

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

	mirror, err := e.mirror(broker.conn, program)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mirror.Close()) }()
	program.Registry.MustRegister(mirror)
	f := front.Front{
		Shards: e.shards, Store: e.store, Mirror: e.reader, Leases: e.leases,
		Ready: program.Ready, Registry: program.Registry, Log: program.Log,
		Addr: o.addr, Grace: 11 * time.Second, LocalHostsOnly: true, Serving: serving,
	}
	return boot.Run(ctx, boot.Part{Name: "mirror", Run: mirror.Run}, boot.Part{Name: "orders", Run: f.Run})
}

// greet says that it serves, and what to do now.
func greet(w io.Writer, o options, addr, opsAddr net.Addr) {
	base := "http://" + addr.String()
	fmt.Fprintf(w, "octopay ready %s\n\n", base)
	for _, line := range curls(base) {
		fmt.Fprintf(w, "  %s\n\n", line)
	}
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
