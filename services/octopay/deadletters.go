package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/command"
	"github.com/octopay/octopay/services/internal/boot"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/apply"
)

type mirrorCmd struct {
	DeadLetters deadLettersCmd `cmd:"" name:"dead-letters" help:"What could not be applied to the mirror. While a letter is open, its database's marks stand still."`
}

type deadLettersCmd struct {
	List  listLetters  `cmd:"" name:"list" help:"List the open ones, the oldest first."`
	Retry retryLetters `cmd:"" name:"retry" help:"Apply them as if they came now: after a new program, or a mended database."`
	Drop  dropLetters  `cmd:"" name:"drop" help:"Give them up. What is in them is then missing in the mirror until it is repaired."`
}

// lettersMax is how many letters of one database a command looks at: their payloads are
// held in memory.
const lettersMax = 1000

// A target is a merchant database and its open letters.
type target struct {
	*apply.SQL
	letters []apply.Letter
}

// openTargets reads the open letters of every database of the mirror, or of one. A
// database that is away is an error, beside which the others are there.
func openTargets(ctx context.Context, s boot.Shared, only int) (targets []target, m *shardmap.Map, done func() error, err error) {
	c, err := inForce(ctx, s)
	if err != nil {
		return nil, nil, nil, err
	}
	m = c.Map()
	if only != 0 && (only < 1 || only > m.Size()) {
		return nil, nil, nil, errors.Join(command.Usage("there is no database %d; they are 1 to %d", only, m.Size()), c.Close())
	}
	var errs []error
	for n := 1; n <= m.Size(); n++ {
		if only != 0 && n != only {
			continue
		}
		t := target{SQL: apply.NewSQL(c.Database(shardmap.BID, n), m.Epoch())}
		if t.letters, err = t.Letters(ctx, lettersMax); err != nil {
			errs = append(errs, err)
			continue
		}
		targets = append(targets, t)
	}
	return targets, m, c.Close, errors.Join(errs...)
}

// inForce opens the databases of the map in force: the file's where there is none yet. It
// puts none in force.
func inForce(ctx context.Context, s boot.Shared) (*cluster.Cluster, error) {
	file, err := mapFile(s)
	if err != nil {
		return nil, err
	}
	config, err := access(s)
	if err != nil {
		return nil, err
	}
	c := cluster.Open(file, config)
	m, err := cluster.MapInForce(ctx, c, file)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if m == nil || m.Hash() == file.Hash() {
		return c, nil
	}
	return cluster.Open(m, config), c.Close()
}

// nameOf is how an operator calls a letter.
func nameOf(database int, l apply.Letter) string {
	return fmt.Sprintf("%d:%d:%d", database, l.Seq, l.Item)
}

type listLetters struct {
	Database int `name:"database" placeholder:"N" help:"Only of this database of the bid cluster."`
	Limit    int `name:"limit" default:"100" help:"Show at most so many."`
}

// Validate implements kong's: what it returns is an error of the command line.
func (c listLetters) Validate() error {
	if c.Limit < 1 {
		return errors.New("--limit must be at least 1")
	}
	return nil
}

// Run lists open letters.
func (c listLetters) Run(ctx context.Context, s boot.Shared, to console) error {
	targets, _, done, err := openTargets(ctx, s, c.Database)
	if done == nil {
		return err
	}
	defer func() { _ = done() }()
	table := tabwriter.NewWriter(to.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "LETTER\tFOUND\tSUBJECT\tBYTES\tSTREAM\tREASON")
	open, shown, more := 0, 0, ""
	for _, t := range targets {
		open += len(t.letters)
		if len(t.letters) == lettersMax {
			more = " or more"
		}
		for _, l := range t.letters {
			if shown == c.Limit {
				break
			}
			shown++
			fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\n", nameOf(t.Place().Number, l), l.FoundAt.Time().Format(timeLayout), l.Subject, len(l.Payload), l.Incarnation, l.Reason)
		}
	}
	switch {
	case open > 0:
		if err := table.Flush(); err != nil {
			return err
		}
		fmt.Fprintf(to.out, "\nOpen: %d%s. Shown: %d.\n", open, more, shown)
	case err == nil:
		fmt.Fprintln(to.out, "No dead letter is open.")
	}
	return err
}

// A choice names letters.
type choice struct {
	Letters     []string `arg:"" optional:"" name:"letter" help:"DATABASE:SEQUENCE:ITEM, as list shows it."`
	All         bool     `name:"all" help:"All that are open."`
	Incarnation string   `name:"stream" placeholder:"STREAM" help:"Of this stream, as list shows it, where two have a letter of one name."`
}

// settle does something to each chosen letter, and says what became of it.
func (c choice) settle(ctx context.Context, s boot.Shared, to console, what string, f func(target, *shardmap.Map, apply.Letter) error) error {
	if c.All == (len(c.Letters) > 0) {
		return command.Usage("name letters, or say --all")
	}
	missing := map[string]bool{}
	for _, name := range c.Letters {
		if !validName(name) {
			return command.Usage("%q is no letter: it is DATABASE:SEQUENCE:ITEM, as octopay mirror dead-letters list shows it", name)
		}
		missing[name] = true
	}
	targets, m, done, err := openTargets(ctx, s, 0)
	if done == nil {
		return err
	}
	defer func() { _ = done() }()
	// The names are made sure of before anything is done.
	count := map[string]int{}
	chosen := func(t target, l apply.Letter) bool {
		return (c.All || missing[nameOf(t.Place().Number, l)]) && (c.Incarnation == "" || c.Incarnation == l.Incarnation)
	}
	for _, t := range targets {
		for _, l := range t.letters {
			if chosen(t, l) {
				count[nameOf(t.Place().Number, l)]++
			}
		}
	}
	var unclear []error
	for _, name := range c.Letters {
		switch count[name] {
		case 0:
			unclear = append(unclear, fmt.Errorf("%s is not open, or not among the oldest %d of its database", name, lettersMax))
		case 1:
		default:
			unclear = append(unclear, fmt.Errorf("%s names letters of two streams; say which one with --stream", name))
		}
	}
	if len(unclear) > 0 {
		return errors.Join(append(unclear, err, errors.New("nothing was done"))...)
	}

	failed, settled := 0, 0
	for _, t := range targets {
		for _, l := range t.letters {
			if !chosen(t, l) {
				continue
			}
			if err := f(t, m, l); err != nil {
				failed++
				fmt.Fprintf(to.err, "octopay: %s: %v\n", nameOf(t.Place().Number, l), err)
				continue
			}
			settled++
			fmt.Fprintf(to.out, "%s is %s\n", nameOf(t.Place().Number, l), what)
		}
	}
	fmt.Fprintf(to.out, "Letters %s: %d. Still open: %d.\n", what, settled, failed)
	if failed > 0 && err == nil {
		err = errSaid
	}
	return err
}

func validName(s string) bool {
	parts := strings.Split(s, ":")
	if len(parts) != 3 {
		return false
	}
	_, err1 := strconv.ParseUint(parts[0], 10, 8)
	_, err2 := strconv.ParseUint(parts[1], 10, 64)
	_, err3 := strconv.ParseInt(parts[2], 10, 32)
	return errors.Join(err1, err2, err3) == nil
}

type retryLetters struct {
	choice `embed:""`
}

// Run retries letters.
func (c retryLetters) Run(ctx context.Context, s boot.Shared, to console) error {
	return c.settle(ctx, s, to, "retried", func(t target, m *shardmap.Map, l apply.Letter) error {
		return apply.Retry(ctx, t, m, l)
	})
}

type dropLetters struct {
	choice `embed:""`
}

// Run drops letters.
func (c dropLetters) Run(ctx context.Context, s boot.Shared, to console) error {
	return c.settle(ctx, s, to, "dropped", func(t target, _ *shardmap.Map, l apply.Letter) error {
		return apply.Drop(ctx, t, l.LetterKey)
	})
}
