// Package command reads the command line of a program that has several commands, by
// kong, and decides how such a program ends: with its help, with the one line that says
// what was wrong with the call, and with which code. What the commands do is left to
// them, and so is every other line that they write.
package command

import (
	"errors"
	"fmt"
	"io"

	"github.com/alecthomas/kong"
)

// The codes that a program exits with. One may have more of its own.
const (
	OK     = 0 // it was done, and all is well
	Failed = 1 // it could not be done, or what was looked at isn't as it must be
	Wrong  = 2 // it was called wrongly, or a setting is wrong; nothing was done
)

// A Program is what its help and its errors say of it.
type Program struct {
	Name        string
	Call        string // how people call it
	Description string // paragraphs are kept
}

// ErrUsage is every error of Usage.
var ErrUsage = errors.New("called wrongly")

// Usage returns the error of a call, or of a setting, that is wrong in a way which only
// the command itself could see. It says no more than its text.
func Usage(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

type usageError struct{ error }

func (e *usageError) Unwrap() error      { return e.error }
func (*usageError) Is(target error) bool { return target == ErrUsage }

// Parse reads args into cli, a pointer to a struct with kong's tags. Without a command
// to run, after --help or after a call that is wrong, which it has said to stderr, it
// returns nil and the code to exit with.
func Parse(p Program, cli any, args []string, stdout, stderr io.Writer) (command *kong.Context, code int) {
	type leave int
	parser, err := kong.New(cli,
		kong.Name(p.Name),
		kong.Description(p.Description),
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { panic(leave(code)) }), // after --help
	)
	if err != nil {
		panic(err) // the tags of cli are wrong
	}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case leave:
			command, code = nil, int(r)
		default:
			panic(r)
		}
	}()
	command, err = parser.Parse(args)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v; see %s --help\n", p.Name, err, p.Call)
		return nil, Wrong
	}
	return command, OK
}

// Given returns the names of the flags that the command line has, whatever their values:
// one that means nothing beside the others is an error, and not ignored.
func Given(command *kong.Context) map[string]bool {
	given := map[string]bool{}
	for _, part := range command.Path {
		if part.Flag != nil {
			given[part.Flag.Name] = true
		}
	}
	return given
}

// Code returns the code to exit with after err.
func Code(err error) int {
	switch {
	case err == nil:
		return OK
	case errors.Is(err, ErrUsage):
		return Wrong
	}
	return Failed
}
