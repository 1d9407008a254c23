package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/octopay/octopay/loadtest/baseline"
	"github.com/octopay/octopay/loadtest/report"
	"github.com/octopay/octopay/loadtest/rig"
)

// bigCmd measures what stored rows and the number of databases cost.
type bigCmd struct {
	campaign `embed:""`

	Most        time.Duration `default:"60m" help:"How long all of it may take; then it ends with what it has."`
	Rows        []int         `default:"100000,3000000" help:"Stored before it is measured, each on a stack of its own."`
	Connections []int         `default:"64,512" help:"Of the closed loops on those."`
	Databases   []int         `default:"8,64" help:"Of each cluster, each on a stack of its own."`
	Waiting     int           `default:"64" placeholder:"N" help:"Orders that wait in each database of those."`
	BufferPool  string        `default:"4G" help:"Of each MariaDB server."`
}

// Run does it.
func (c bigCmd) Run(ctx context.Context, out console) error {
	for _, n := range c.Databases {
		if err := isSize("databases", n); err != nil {
			return err
		}
	}
	if err := first(
		eachOf("rows", c.Rows, 1, 100_000_000), eachOf("connections", c.Connections, 1, connectionsMax),
		eachOf("databases", c.Databases, 1, slices.Max(sizes)), eachOf("waiting", []int{c.Waiting}, 1, connectionsMax/slices.Max(sizes)),
		isMemory("buffer-pool", c.BufferPool),
	); err != nil {
		return err
	}
	return c.conduct(ctx, out, "load-big", "What stored rows and the number of databases cost", c.Most, func(ctx context.Context, d *report.Document) error {
		if err := c.byRows(ctx, out, d); err != nil {
			return err
		}
		return c.byDatabases(ctx, out, d)
	})
}

// A stack is one of several that are measured in turn.
type stack struct {
	name string
	rig  *rig.Rig
}

// stacks starts a stack for each of some numbers, which all run when f is called, and
// ends them after it.
func stacks(ctx context.Context, out console, d *report.Document, numbers []int, unit string, config func(n int) rig.Config, f func(all []stack) error) (err error) {
	var all []stack
	defer func() {
		for _, s := range all {
			err = ended(err, s.rig.Close())
		}
	}()
	for _, n := range numbers {
		name := fmt.Sprintf("%d %s", n, unit)
		out.say("starting the stack of %s", name)
		r, err := rig.Start(ctx, config(n), nil)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, stack{name, r})
		enter(d, r)
	}
	return f(all)
}

// byRows fills a stack for each number of rows, and lets them run in turn.
func (c bigCmd) byRows(ctx context.Context, out console, d *report.Document) error {
	config := func(int) rig.Config { return rig.Config{BufferPool: c.BufferPool} }
	return stacks(ctx, out, d, c.Rows, "rows", config, func(all []stack) error {
		for i, s := range all {
			if err := c.fill(ctx, out, s, c.Rows[i]); err != nil {
				return err
			}
		}
		for _, connections := range c.Connections {
			var contenders []contender
			for _, s := range all {
				contenders = append(contenders, contender{s.name, func(ctx context.Context) (report.Run, error) {
					return c.creates(ctx, s.rig, rig.Octopay, s.rig.URL(), connections, false)
				}})
			}
			name := fmt.Sprintf("create, %d connections, by rows that were stored before", connections)
			if err := c.rounds(ctx, out, d, name, []string{all[0].name}, contenders...); err != nil {
				return err
			}
		}
		return nil
	})
}

// fillBatch is how many orders of each database fill sends at once.
const fillBatch = 512

func (c bigCmd) fill(ctx context.Context, out console, s stack, rows int) error {
	plan, err := c.newPlan(nil)
	if err != nil {
		return err
	}
	run, err := s.rig.Raw(ctx, baseline.RawJob{Plan: plan.Config, InFlight: fillBatch * s.rig.Cluster().Map().Size(), Orders: rows})
	if err != nil {
		return err
	}
	out.tell(fmt.Sprintf("filled with %d rows in %.0f s", run.Succeeded(), run.DurationSec), run)
	return nil
}

// byDatabases lets stacks of more and fewer databases run in turn, with as many orders
// waiting in each database.
func (c bigCmd) byDatabases(ctx context.Context, out console, d *report.Document) error {
	config := func(n int) rig.Config { return rig.Config{Databases: n, BufferPool: c.BufferPool} }
	// Thousands of connections take a second or two to be opened.
	m := c.campaign
	m.Warmup, m.Duration = 2*m.Warmup, 2*m.Duration
	return stacks(ctx, out, d, c.Databases, "databases", config, func(all []stack) error {
		for _, kind := range []string{rig.Octopay, baseline.Raw} {
			var contenders []contender
			for i, s := range all {
				waiting := c.Waiting * c.Databases[i]
				contenders = append(contenders, contender{s.name, func(ctx context.Context) (report.Run, error) {
					if kind == baseline.Raw {
						return m.raw(ctx, s.rig, waiting, 0)
					}
					return m.creates(ctx, s.rig, rig.Octopay, s.rig.URL(), waiting, false)
				}})
			}
			name := fmt.Sprintf("create, %s, %d orders waiting in each database", kind, c.Waiting)
			if err := m.rounds(ctx, out, d, name, []string{all[0].name}, contenders...); err != nil {
				return err
			}
		}
		return nil
	})
}
