// Command octopay is the operator's command: it explains ids and places, makes, migrates
// and checks the databases, and looks after the mirror and the keys of the API.
//
// Settings are flags and OCTOPAY_ variables; a flag wins. The password is a variable
// only, so that no list of processes shows it. It exits with 0, with 1 when what was
// asked for failed or what was asked about is wrong, and with 2 when it was called
// wrongly or a setting is wrong.
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

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/command"
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
	Check   checkCmds  `cmd:"" name:"check" help:"Say what differs between the servers and what is to be, or of orders, and exit with 1 if anything does."`
	Tail    tailCmd    `cmd:"" name:"tail" help:"Show the mirror's stream, row by row, as it comes."`
	Mirror  mirrorCmd  `cmd:"" name:"mirror" help:"Look after the mirror."`
	Keys    keysCmd    `cmd:"" name:"keys" help:"Make, list, rotate and revoke the keys of the API."`
	Config  configCmd  `cmd:"" name:"config" help:"Look at the payment config, check one, and set it: merchants, their currencies, channels."`
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
	call, code := command.Parse(command.Program{
		Name: "octopay", Call: "octopay", Description: "The operator's command of Octopay.",
	}, &c, args, stdout, hiding{stderr})
	if call == nil {
		return code
	}

	var shared boot.Shared
	if err := boot.Load(&shared, "", environ); err != nil {
		fmt.Fprintln(stderr, "octopay:", err)
		return command.Wrong
	}
	if c.Map != "" {
		shared.MapFile = c.Map
	}
	if c.DBUser != "" {
		shared.DBUser = c.DBUser
	}
	call.BindTo(ctx, (*context.Context)(nil))
	err := call.Run(shared, console{out: stdout, err: stderr, now: time.Now()})
	if err != nil && !errors.Is(err, errSaid) {
		fmt.Fprintln(stderr, "octopay:", err)
	}
	return command.Code(err)
}

// mapFile reads the map file. Without one, or with one that holds no map, a setting is
// wrong.
func mapFile(s boot.Shared) (*shardmap.Map, error) {
	m, err := s.Map()
	if err != nil {
		return nil, command.Usage("%w", err)
	}
	return m, nil
}

// optionalMap reads the map file; nil without one.
func optionalMap(s boot.Shared) (*shardmap.Map, error) {
	if s.MapFile == "" {
		return nil, nil
	}
	return mapFile(s)
}

// access is how to connect. A file of it that can't be read is a wrong setting.
func access(s boot.Shared) (cluster.Config, error) {
	c, err := s.Databases()
	if err != nil {
		return c, command.Usage("%w", err)
	}
	return c, nil
}
