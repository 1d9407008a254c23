// Command cmd starts and stops the engines on this machine: see "make up" and "make
// down". It is also the supervisor that stays with them.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/octopay/octopay/internal/localstack"
)

const usage = `usage:
  up   [-data DIR]           start MariaDB and NATS, or what of them has ended; make and migrate the databases
  down [-data DIR] [-purge]  stop what up started; -purge removes the data too
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("which command?\n%s", usage)
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(flags.Output(), usage) }
	data := flags.String("data", ".stack", "where the data is")
	switch args[0] {
	case "up":
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return localstack.Up(ctx, *data, stdout)
	case "down":
		purge := flags.Bool("purge", false, "remove the data")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return localstack.Down(ctx, *data, *purge, stdout)
	case "supervise": // not for people: started by up, and by the first test of a run
		tests := flags.Duration("tests", 0, "serve the tests of a run, and end this long after the last")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		if *tests > 0 {
			return localstack.SuperviseTests(ctx, *data, os.Stderr, *tests)
		}
		again := make(chan os.Signal, 1) // sent by up
		signal.Notify(again, syscall.SIGHUP)
		return localstack.Supervise(ctx, *data, os.Stderr, again)
	}
	return fmt.Errorf("no command %q\n%s", args[0], usage)
}
