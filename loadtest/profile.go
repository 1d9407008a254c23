package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/octopay/octopay/loadtest/check"
	"github.com/octopay/octopay/loadtest/closedloop"
	"github.com/octopay/octopay/loadtest/report"
	"github.com/octopay/octopay/loadtest/rig"
	"github.com/octopay/octopay/loadtest/traffic"
	"golang.org/x/sync/errgroup"
)

// profileCmd keeps the profiles of orderd and syncerd under load.
type profileCmd struct {
	Duration    time.Duration `default:"30s" help:"How long the load lasts, and the profiles; whole seconds."`
	Connections int           `default:"64" placeholder:"N" help:"Of the closed loop of creates."`
	Top         int           `default:"40" placeholder:"N" help:"Functions in each text."`
	Out         string        `default:"loadtest/results" placeholder:"DIR" help:"Where the folder DATE-profile is put."`
}

// Run does it. All profiles are of the same time: what is sampled, and of the counters
// what they rose by.
func (p profileCmd) Run(ctx context.Context, out console) (err error) {
	if p.Duration < 2*time.Second || p.Duration%time.Second != 0 || p.Duration > time.Hour || p.Connections < 1 || p.Top < 1 {
		return usage("--duration must be whole seconds from 2s to 1h, --connections and --top above 0")
	}
	dir := filepath.Join(p.Out, time.Now().UTC().Format(time.DateOnly)+"-profile")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	r, err := rig.Start(ctx, rig.Config{Syncerd: true, Pprof: true}, func(line string) { out.say("%s", line) })
	if err != nil {
		return err
	}
	defer func() { err = ended(err, r.Close()) }()
	plan, err := traffic.New(traffic.Config{Run: newName(), Seed: 1})
	if err != nil {
		return err
	}
	const warmup = 2 * time.Second
	var profiles errgroup.Group
	fetch := func() {
		for _, program := range []string{"orderd", "syncerd"} {
			for _, kind := range profileKinds {
				file := filepath.Join(dir, program+"-"+kind.name)
				url := fmt.Sprintf("%s/debug/pprof/%s?seconds=%d", r.Ops(program)[0], kind.path, int(p.Duration/time.Second)-1)
				profiles.Go(func() error { return p.keep(ctx, url, file) })
			}
		}
	}
	record := r.Record(rig.Octopay)
	defer record.Stop()
	run, acks, err := closedloop.Run(ctx, plan, 0, closedloop.Config{
		URL: r.URL(), Key: r.Key(), Connections: p.Connections, Warmup: warmup, Duration: p.Duration, Begin: fetch,
	})
	if err = errors.Join(err, profiles.Wait(), ctx.Err()); err == nil {
		config := check.Config{Mirror: true, Within: mirrorWithin, CaughtUp: caughtUp(record, &run, acks)}
		err = checked(ctx, r.Cluster(), r, &run, []*traffic.Plan{plan}, acks, config)
	}
	if err := errors.Join(err, record.Fill(&run)); err != nil {
		return err
	}
	d := report.Document{
		Title: "Profiles under load", Started: run.Started, Machine: machine(), Versions: versions(ctx), Command: "make profile", Runs: []report.Run{run},
		Findings: []report.Sentence{{Text: "Profiling itself takes part of the CPU: its figures are for what takes how much, not for how fast it is."}},
	}
	enter(&d, r)
	out.say("written: %s", dir)
	return verdict(d, errors.Join(d.Text(out.out), put(filepath.Join(dir, "README.md"), d.Markdown)))
}

// profileKinds are the profiles, by their names in files and in the URL.
var profileKinds = []struct{ name, path string }{
	{"cpu", "profile"}, {"allocs", "allocs"}, {"block", "block"}, {"mutex", "mutex"},
}

// keep stores a profile, and the text of its top.
func (p profileCmd) keep(ctx context.Context, url, file string) error {
	ctx, cancel := context.WithTimeout(ctx, p.Duration+30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	if err := os.WriteFile(file+".pb.gz", body, 0o644); err != nil {
		return err
	}
	text, err := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", fmt.Sprintf("-nodecount=%d", p.Top), file+".pb.gz").Output()
	if err != nil {
		return fmt.Errorf("go tool pprof -top %s: %w", file, err)
	}
	return os.WriteFile(file+".txt", text, 0o644)
}
