// Command octopay is the operator's command: it explains ids and places, makes, migrates
// and checks the databases, and looks after the mirror.
//
// Settings are flags and OCTOPAY_ variables; a flag wins. The password is a variable
// only, so that no list of processes shows it. It exits with 0, with 1 when what was
// asked for failed or what was asked about is wrong, and with 2 when it was called
// wrongly.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/services/internal/boot"
	"github.com/octopay/octopay/shardmap"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// cli is the command line.
type cli struct {
	Map    string `name:"map" placeholder:"FILE" help:"The shard map (OCTOPAY_MAP_FILE)."`
	DBUser string `name:"db-user" placeholder:"NAME" help:"User on the database servers (OCTOPAY_DB_USER); its password is OCTOPAY_DB_PASSWORD."`

	ID      idCmd      `cmd:"" name:"id" help:"Explain an order id, or what is wrong with it."`
	Route   routeCmd   `cmd:"" name:"route" help:"Say where the rows of a buyer, or of a merchant, are."`
	Migrate migrateCmd `cmd:"" name:"migrate" help:"Make the databases of the map, bring them up to date, and put the map in force."`
	Check   checkCmd   `cmd:"" name:"check" help:"Say what differs between the servers and what is to be: schemas, settings, clocks, the map. Exits with 1 if anything does."`
	Tail    tailCmd    `cmd:"" name:"tail" help:"Show the mirror's stream, row by row, as it comes."`
	Mirror  mirrorCmd  `cmd:"" name:"mirror" help:"Look after the mirror."`
}

// A console is where a command writes. What it says of its progress goes to stderr if a
// person watches.
type console struct {
	out, err io.Writer
	now      time.Time
}

// errSaid fails a command that has said why.
var errSaid = errors.New("")

func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	var c cli
	type leave int
	parser, err := kong.New(&c,
		kong.Name("octopay"),
		kong.Description("The operator's command of Octopay."),
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { panic(leave(code)) }), // after --help
	)
	if err != nil {
		panic(err) // the tags of cli are wrong
	}
	parse := func() (k *kong.Context, code int, err error) {
		defer func() {
			switch r := recover().(type) {
			case nil:
			case leave:
				code = int(r)
			default:
				panic(r)
			}
		}()
		k, err = parser.Parse(args)
		return k, 0, err
	}
	command, code, err := parse()
	if err != nil {
		fmt.Fprintf(stderr, "octopay: %v; see octopay --help\n", err)
		return 2
	}
	if command == nil {
		return code
	}

	var shared boot.Shared
	if err := boot.Load(&shared, "", environ); err != nil {
		fmt.Fprintln(stderr, "octopay:", err)
		return 2
	}
	if c.Map != "" {
		shared.MapFile = c.Map
	}
	if c.DBUser != "" {
		shared.DBUser = c.DBUser
	}
	command.BindTo(ctx, (*context.Context)(nil))
	err = command.Run(shared, console{out: stdout, err: stderr, now: time.Now()})
	if err != nil && !errors.Is(err, errSaid) {
		fmt.Fprintln(stderr, "octopay:", err)
	}
	if err != nil {
		return 1
	}
	return 0
}

// optionalMap reads the map file; nil without one.
func optionalMap(s boot.Shared) (*shardmap.Map, error) {
	if s.MapFile == "" {
		return nil, nil
	}
	return s.Map()
}

// access is how to connect.
func access(s boot.Shared) cluster.Config {
	return cluster.Config{User: s.DBUser, Password: s.DBPassword}
}
