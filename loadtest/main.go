// Command loadtest measures Octopay, and says when what it measured means nothing. After
// each run it reads what is stored, and compares it with what was acknowledged.
//
// It exits with 0, with 1 when the check failed, something grows, or nothing could be
// measured, with 2 when the run is invalid, and with 3 when it was called wrongly.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// cli is the command line.
type cli struct {
	Run     runCmd     `cmd:"" name:"run" default:"withargs" help:"Measure one scenario, check what is stored, and report. The default."`
	Compare compareCmd `cmd:"" help:"Octopay beside its baselines, on a stack of its own; what make load does."`
	Big     bigCmd     `cmd:"" help:"What stored rows and the number of databases cost; what make load-big does."`
	Soak    soakCmd    `cmd:"" help:"What grows under a constant load; what make soak does."`
	Profile profileCmd `cmd:"" help:"Profiles of orderd and syncerd under load; what make profile does."`
	Serve   serveCmd   `cmd:"" hidden:"" help:"A baseline."`
	Targets targetsCmd `cmd:"" name:"targets" help:"Write requests as vegeta reads them: | vegeta attack -format=json …"`
}

// The codes that it exits with.
const (
	exitOK = iota
	exitFailed
	exitInvalid
	exitUsage
)

var (
	// errInvalid ends a command whose figures mean nothing; it has said why.
	errInvalid = errors.New("the figures mean nothing")
	// errCheck ends a command whose check found something; it has said what.
	errCheck = errors.New("the check failed")
	// errUsage ends a command that was called wrongly.
	errUsage = errors.New("")
)

func usage(format string, args ...any) error {
	return fmt.Errorf("%w"+format, append([]any{errUsage}, args...)...)
}

// A console is where a command writes: what it found to out, what it does to err.
type console struct {
	out, err io.Writer
	args     []string // the command line
	environ  []string
}

// say says what is being done.
func (c console) say(format string, args ...any) { fmt.Fprintf(c.err, format+"\n", args...) }

func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	var c cli
	type leave int
	parser, err := kong.New(&c,
		kong.Name("loadtest"),
		kong.Description("Measure Octopay. The key of a service that asks for one is the variable LOADTEST_KEY; the databases' password OCTOPAY_DB_PASSWORD."),
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
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "loadtest: %v; see go run ./loadtest --help\n", err)
		return exitUsage
	case command == nil:
		return code
	}
	command.BindTo(ctx, (*context.Context)(nil))
	err = command.Run(console{out: stdout, err: stderr, args: args, environ: environ})
	if err != nil {
		fmt.Fprintln(stderr, "loadtest:", err)
	}
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errUsage):
		return exitUsage
	case errors.Is(err, errInvalid):
		return exitInvalid
	}
	return exitFailed
}
