package command

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
)

type walk struct {
	Far   int    `default:"3"`
	Where string `name:"where-to"`
}

func (w walk) Run(c *cli) error { c.ran = fmt.Sprint(w.Far, w.Where); return nil }

type cli struct {
	Loud bool
	Walk walk     `cmd:"" help:"Walk."`
	Rest struct{} `cmd:""`

	ran string
}

var program = Program{Name: "dog", Call: "go run ./dog", Description: "A dog."}

func TestACommandIsFoundWithItsFlags(t *testing.T) {
	var c cli
	var out, errs bytes.Buffer
	command, code := Parse(program, &c, []string{"--loud", "walk", "--where-to", "home"}, &out, &errs)
	if command == nil || code != OK || out.Len()+errs.Len() > 0 {
		t.Fatalf("%v, code %d, %s%s", command, code, &out, &errs)
	}
	if given := slices.Sorted(maps.Keys(Given(command))); !slices.Equal(given, []string{"loud", "where-to"}) {
		t.Errorf("given were %v", given)
	}
	if err := command.Run(&c); err != nil || c.ran != "3home" {
		t.Errorf("%q, %v", c.ran, err)
	}
}

func TestWithoutACommandThereIsACode(t *testing.T) {
	for _, one := range []struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		{[]string{"--help"}, OK, "A dog.", ""},
		{[]string{"walk", "--help"}, OK, "--where-to", ""},
		{nil, Wrong, "", `dog: expected one of "walk"`},
		{[]string{"fly"}, Wrong, "", "dog: unexpected argument fly; see go run ./dog --help\n"},
		{[]string{"walk", "--far", "x"}, Wrong, "", "--far"},
		{[]string{"walk", "--nosuch"}, Wrong, "", "unknown flag --nosuch"},
	} {
		var out, errs bytes.Buffer
		command, code := Parse(program, &cli{}, one.args, &out, &errs)
		if command != nil || code != one.code || !strings.Contains(out.String(), one.stdout) || !strings.Contains(errs.String(), one.stderr) {
			t.Errorf("%v: %v, code %d\n%s%s", one.args, command, code, &out, &errs)
		}
		if (one.stdout == "") != (out.Len() == 0) || (one.stderr == "") != (errs.Len() == 0) {
			t.Errorf("%v: it says\n%s---\n%s", one.args, &out, &errs)
		}
	}
}

func TestAnErrorHasItsCode(t *testing.T) {
	wrong := Usage("--far must be above 0, not %d: %w", -1, io.EOF)
	if wrong.Error() != "--far must be above 0, not -1: EOF" || !errors.Is(wrong, io.EOF) {
		t.Errorf("%v", wrong)
	}
	for code, err := range map[int]error{
		OK: nil, Failed: io.EOF, Wrong: fmt.Errorf("walk: %w", errors.Join(wrong, io.ErrNoProgress)),
	} {
		if got := Code(err); got != code {
			t.Errorf("%v: code %d, want %d", err, got, code)
		}
	}
}
