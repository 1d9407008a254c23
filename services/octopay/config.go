package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/octopay/octopay/internal/command"
	"github.com/octopay/octopay/payconfig"
	"github.com/octopay/octopay/services/internal/boot"
)

type configCmd struct {
	Get   getConfig   `cmd:"" name:"get" help:"Write the payment config in force, as JSON with its version and hash."`
	Set   setConfig   `cmd:"" name:"set" help:"Say what a file changes, and put it in force, if nobody has set another version meanwhile."`
	Check checkConfig `cmd:"" name:"check" help:"Say whether a file is a valid payment config, and what is wrong with it. It asks no server."`
}

// readConfig reads a config's file. What is wrong with it is a call that is wrong.
func readConfig(file string) (*payconfig.Snapshot, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, command.Usage("%w", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, payconfig.TextMax+1))
	if err != nil {
		return nil, command.Usage("%w", err)
	}
	c, err := payconfig.Decode(text)
	var syntax *payconfig.SyntaxError
	var invalid *payconfig.InvalidError
	switch {
	case errors.As(err, &syntax):
		line := 1 + bytes.Count(text[:min(int(syntax.Offset), len(text))], []byte("\n"))
		what := syntax.Reason
		if syntax.Path != "" {
			what = syntax.Path + " " + what
		}
		return nil, command.Usage("%s is no payment config: line %d: %s", file, line, what)
	case errors.As(err, &invalid):
		return nil, command.Usage("%s is no valid payment config:%s", file, faultLines(invalid))
	case errors.Is(err, payconfig.ErrTooLarge):
		return nil, command.Usage("%s is no payment config: it is larger than 8 MiB", file)
	}
	return c, err
}

// faultLines has a line for each fault, with its path and its rule.
func faultLines(e *payconfig.InvalidError) string {
	var b strings.Builder
	for _, f := range e.Faults {
		fmt.Fprintf(&b, "\n  %s (%s)", f, f.Rule)
	}
	if e.More > 0 {
		fmt.Fprintf(&b, "\n  and %d more", e.More)
	}
	return b.String()
}

type checkConfig struct {
	File string `arg:"" name:"file" help:"The config."`
}

// Run checks a file.
func (c checkConfig) Run(to console) error {
	s, err := readConfig(c.File)
	if err != nil {
		return err
	}
	fmt.Fprintf(to.out, "%s is valid: %s, %s; unknown merchants: %s. Its hash is %s.\n",
		c.File, counted(len(s.Merchants()), "merchant"), counted(len(s.Channels()), "channel"), policy(s), s.Hash())
	return nil
}

type getConfig struct {
	Version *int64 `name:"version" placeholder:"N" help:"Another version than the one in force; all are kept."`
}

// Run writes the config.
func (c getConfig) Run(ctx context.Context, s boot.Shared, to console) error {
	store, done, err := configStore(ctx, s)
	if err != nil {
		return err
	}
	defer done()
	var stored payconfig.Stored
	if c.Version == nil {
		stored, err = store.Newest(ctx)
	} else if stored, err = store.Version(ctx, *c.Version); errors.Is(err, payconfig.ErrNoVersion) {
		return fmt.Errorf("there is no version %d", *c.Version)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(to.out, "%s\n", stored.Document())
	return err
}

type setConfig struct {
	File      string `arg:"" name:"file" help:"The config, in the form that get writes."`
	IfVersion *int64 `name:"if-version" placeholder:"N" help:"The version that it is to follow, 0 for the first; by default the one that the file says."`
	DryRun    bool   `name:"dry-run" help:"Only say what it would change."`
	changer   `embed:""`
}

// Run sets the config.
func (c setConfig) Run(ctx context.Context, s boot.Shared, to console) error {
	next, err := readConfig(c.File)
	if err != nil {
		return err
	}
	by, err := c.name()
	if err != nil {
		return err
	}
	expected := next.Version()
	if c.IfVersion != nil {
		expected = *c.IfVersion
	}
	store, done, err := configStore(ctx, s)
	if err != nil {
		return err
	}
	defer done()
	newest, err := store.Newest(ctx)
	var damaged *payconfig.DamagedError
	switch {
	case errors.As(err, &damaged) && damaged.Version == expected:
		fmt.Fprintf(to.out, "Version %d can't be read, so what changes isn't known: %v.\n", expected, damaged.Cause)
	case errors.As(err, &damaged):
		return fmt.Errorf("version %d is the newest, and not %d; nothing was set", damaged.Version, expected)
	case err != nil:
		return err
	case newest.Version() == expected+1 && newest.Hash() == next.Hash():
		fmt.Fprintf(to.out, "It is set already, as version %d, by %s at %s.\n", newest.Version(), newest.By, newest.At.UTC().Format(timeLayout))
		return nil
	case newest.Version() != expected:
		return newer(newest, expected)
	case newest.Version() > 0 && newest.Hash() == next.Hash():
		fmt.Fprintf(to.out, "It says what version %d says; nothing was set.\n", newest.Version())
		return nil
	default:
		sayChanges(to.out, newest.Snapshot, next)
	}
	if c.DryRun {
		fmt.Fprintln(to.out, "Nothing was set.")
		return nil
	}
	stored, err := store.Set(ctx, expected, next, by)
	switch {
	case errors.Is(err, payconfig.ErrVersionConflict):
		if newest, err := store.Newest(ctx); err == nil {
			return newer(newest, expected)
		}
		return fmt.Errorf("another version than %d is the newest; nothing was set", expected)
	case errors.Is(err, payconfig.ErrUnknown):
		return fmt.Errorf("%w; say the same again", err)
	case err != nil:
		return err
	}
	fmt.Fprintf(to.out, "Version %d is set; its hash is %s. Programs that reach the meta database follow within seconds; octopay_payconfig_version says which one each has.\n", stored.Version(), stored.Hash())
	return nil
}

// newer is the error of a set that expected another version than the newest.
func newer(newest payconfig.Stored, expected int64) error {
	if newest.Version() == 0 {
		return fmt.Errorf("there is no config yet, and it was to follow version %d; nothing was set", expected)
	}
	return fmt.Errorf("version %d is the newest, set by %s at %s, and not %d; nothing was set. See octopay config get",
		newest.Version(), newest.By, newest.At.UTC().Format(timeLayout), expected)
}

// configStore opens the meta database of the map in force.
func configStore(ctx context.Context, s boot.Shared) (store *payconfig.Store, done func(), err error) {
	c, err := inForce(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	return payconfig.NewStore(c.Meta()), func() { _ = c.Close() }, nil
}

// changesMax is how many entries of one kind are listed.
const changesMax = 20

// sayChanges says what a config changes.
func sayChanges(out io.Writer, before, now *payconfig.Snapshot) {
	d := payconfig.Compare(before, now)
	fmt.Fprintf(out, "Version %d becomes %d:\n", before.Version(), before.Version()+1)
	if d.Unknown {
		fmt.Fprintf(out, "  unknown merchants: %s, and until now %s\n", policy(now), policy(before))
	}
	if !d.Unknown && d.None() {
		fmt.Fprintln(out, "  nothing changes; it is the first that is stored")
	}
	sayListed(out, "merchant", d.Merchants, func(m payconfig.Merchant) string { return fmt.Sprintf("%d %q", m.BID, m.Name) })
	sayListed(out, "channel", d.Channels, func(c payconfig.Channel) string { return fmt.Sprintf("%s %q", c.Channel, c.Name) })
}

func sayListed[T any](out io.Writer, what string, l payconfig.Listed[T], name func(T) string) {
	for _, kind := range []struct {
		verb string
		all  []T
	}{{"added", l.Added}, {"removed", l.Removed}, {"disabled", l.Disabled}, {"enabled", l.Enabled}, {"changed otherwise", l.Changed}} {
		if len(kind.all) == 0 {
			continue
		}
		fmt.Fprintf(out, "  %s %s:\n", counted(len(kind.all), what), kind.verb)
		for i, one := range kind.all {
			if i == changesMax {
				fmt.Fprintf(out, "    and %d more\n", len(kind.all)-changesMax)
				break
			}
			fmt.Fprintf(out, "    %s\n", name(one))
		}
	}
}

func policy(s *payconfig.Snapshot) string {
	if s.RefusesUnknown() {
		return "refuse"
	}
	return "accept"
}

// counted is a number of things.
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
