// Command loadtest measures Octopay, and says when what it measured means nothing. After
// each run it reads what is stored, and compares it with what was acknowledged.
//
// It exits with 0 when all is valid and checked, with 1 when the check failed, something
// grows, or something could not be done, with 2 when it was called wrongly, and with 3 when
// a run is invalid and nothing worse happened.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/octopay/octopay/internal/command"
	"github.com/octopay/octopay/loadtest/traffic"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), signals()...)
	code := run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// signals are what ends it, in order: also a terminal that is closed, unless it was
// started by nohup, which is to outlive that.
func signals() []os.Signal {
	all := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}

// cli is the command line.
type cli struct {
	Run     runCmd     `cmd:"" name:"run" default:"withargs" help:"Measure one scenario, check what is stored, and report. The default."`
	Compare compareCmd `cmd:"" help:"Octopay beside its baselines, on a stack of its own; what make load does."`
	Big     bigCmd     `cmd:"" help:"What stored rows and the number of databases cost; what make load-big does."`
	Soak    soakCmd    `cmd:"" help:"What grows under a constant load; what make soak does."`
	Profile profileCmd `cmd:"" help:"Profiles of orderd and syncerd under load; what make profile does."`
	Page    pageCmd    `cmd:"" help:"The page of results that are kept as FILE.json."`
	Serve   serveCmd   `cmd:"" hidden:"" help:"A baseline."`
	Targets targetsCmd `cmd:"" name:"targets" help:"Write requests as vegeta reads them: | vegeta attack -format=json …"`
}

// exitInvalid is the code beside those of package command.
const exitInvalid = 3

var (
	// errInvalid ends a command whose figures mean nothing; it has said why.
	errInvalid = errors.New("the figures mean nothing")
	// errCheck ends a command whose check found something; it has said what.
	errCheck = errors.New("the check failed")
)

// usage is the error of a command that was called wrongly.
func usage(format string, args ...any) error { return command.Usage(format, args...) }

// A console is where a command writes: what it found to out, what it does to err.
type console struct {
	out, err io.Writer
	args     []string        // the command line
	given    map[string]bool // its flags
	environ  []string
}

// say says what is being done.
func (c console) say(format string, args ...any) { fmt.Fprintf(c.err, format+"\n", args...) }

// line says a line.
func (c console) line(text string) { c.say("%s", text) }

// description is the beginning of the help.
func description() string {
	var kinds []string
	for _, k := range traffic.Kinds {
		kinds = append(kinds, string(k))
	}
	return `Measure Octopay, and compare what is stored with what was acknowledged.

Without a command it is "run", which has most of the flags: see "run --help". What is sent says --scenario: ` +
		strings.Join(kinds, ", ") + `, or a mix of them such as create=3,get=5; when, --closed or --rate, with --pace constant, ramp, step, spike or poisson.

The key of a service that asks for one is the variable LOADTEST_KEY; the databases' password OCTOPAY_DB_PASSWORD.

It exits with 0 when all is valid and checked, with 1 when the check failed or something could not be done, with 2 when it was called wrongly, and with 3 when a run is invalid.`
}

func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	var c cli
	call, code := command.Parse(command.Program{
		Name: "loadtest", Call: "go run ./loadtest", Description: description(),
	}, &c, args, stdout, stderr)
	if call == nil {
		return code
	}
	call.BindTo(ctx, (*context.Context)(nil))
	err := call.Run(console{out: stdout, err: stderr, args: args, given: command.Given(call), environ: environ})
	if err != nil {
		fmt.Fprintln(stderr, "loadtest:", err)
	}
	if errors.Is(err, errInvalid) {
		return exitInvalid
	}
	return command.Code(err)
}
