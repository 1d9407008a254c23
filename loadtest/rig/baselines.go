package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/octopay/octopay/loadtest/baseline"
	"github.com/octopay/octopay/loadtest/report"
)

// Baseline starts baseline.Direct or baseline.Echo and returns where it serves when it
// does. stop ends it; so does Close. This program must have the command serve, see package
// baseline; so for Raw.
func (r *Rig) Baseline(ctx context.Context, kind string) (url string, pid int, stop func() error, err error) {
	file, err := os.Executable()
	if err != nil {
		return "", 0, nil, err
	}
	if err := r.start(ctx, kind, file, []string{"serve", kind}, "api"); err != nil {
		return "", 0, nil, err
	}
	procs := r.running(kind)
	p := procs[len(procs)-1]
	return p.url("api"), p.pid(), func() error { return r.stop(p) }, nil
}

// Raw does a job of baseline.Raw in a process of its own, and returns what it measured:
// its own CPU among it, and that of the programs that it made work.
func (r *Rig) Raw(ctx context.Context, job baseline.RawJob) (run report.Run, err error) {
	file, err := os.Executable()
	if err != nil {
		return report.Run{}, err
	}
	text, err := json.Marshal(job)
	if err != nil {
		return report.Run{}, err
	}
	log, err := os.OpenFile(filepath.Join(r.dir, baseline.Raw+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return report.Run{}, err
	}
	defer func() { _ = log.Close() }()
	from, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return report.Run{}, err
	}
	var out bytes.Buffer
	cmd := exec.Command(file, "serve", baseline.Raw)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = r.environ, bytes.NewReader(text), &out, log
	p := &process{program: baseline.Raw, cmd: cmd, logFile: log.Name(), logFrom: from}
	record := r.Record(baseline.Raw)
	defer record.Stop()
	if err := p.start(); err != nil {
		return report.Run{}, err
	}
	select {
	case <-p.child.Done():
	case <-ctx.Done():
		return report.Run{}, errors.Join(ctx.Err(), p.end())
	}
	if p.child.Err() != nil {
		return report.Run{}, fmt.Errorf("rig: raw: %w%s", p.child.Err(), p.tail())
	}
	if err := json.NewDecoder(strings.NewReader(out.String())).Decode(&run); err != nil {
		return report.Run{}, fmt.Errorf("rig: raw: %w", err)
	}
	err = record.Fill(&run)
	return run, err
}
