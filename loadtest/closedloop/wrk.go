package closedloop

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/octopay/octopay/internal/install"
	"github.com/octopay/octopay/loadtest/proc"
	"github.com/octopay/octopay/loadtest/report"
)

//go:embed reader.lua
var reader []byte

// errNoWrk tells how to get it.
var errNoWrk = errors.New("closedloop: no wrk here; install it: sudo apt-get update && sudo apt-get install -y --no-install-recommends wrk")

// find returns the path of wrk, and installs it first where that is possible.
func find(ctx context.Context) (string, error) {
	var path string
	found := func() (ok bool) {
		var err error
		path, err = exec.LookPath("wrk")
		return err == nil
	}
	if found() {
		return path, nil
	}
	if err := install.Packages(ctx, found, nil, "wrk"); err != nil {
		return "", fmt.Errorf("%w (%w)", errNoWrk, err)
	}
	return path, nil
}

// A wrkRun is one run of wrk over the requests in dir.
type wrkRun struct {
	binary, dir string
	config      Config
	duration    time.Duration
	writes      bool // there are creates among the requests
	answerMax   int  // bytes of an answer that are judged
}

// An outcome is what wrk did.
type outcome struct {
	DurationUS int64            `json:"duration_us"`
	Answered   int64            `json:"answered"`
	SentBy     []int64          `json:"sent_by"` // each thread
	Kept       int64            `json:"kept"`    // answers of success that are to be judged
	Empty      int              `json:"empty"`   // threads whose requests ran out
	ByAnswer   map[string]int64 `json:"by_answer"`
	Connect    int64            `json:"connect"` // connections that broke when they were made, read, written
	Read       int64            `json:"read"`
	Write      int64            `json:"write"`
	Late       int64            `json:"late"`
	LatencyUS  [5]float64       `json:"latency_us"`

	started  time.Time
	cpu      time.Duration
	seconds  []report.Second
	failures report.Failures
}

func (o outcome) sent() (sum int64) {
	for _, n := range o.SentBy {
		sum += n
	}
	return sum
}

// until returns the number above those of all requests that were sent, of which the first
// is first.
func (o outcome) until(first uint64) uint64 {
	until := first
	for t, n := range o.SentBy {
		if n > 0 {
			until = max(until, first+uint64(t)+uint64(n-1)*uint64(len(o.SentBy))+1)
		}
	}
	return until
}

// run runs wrk to its end, or until ctx ends or its requests have run out. An outcome of
// no time is of a wrk that was told to end before it had begun.
func (w wrkRun) run(ctx context.Context) (o outcome, err error) {
	if err := os.WriteFile(filepath.Join(w.dir, "reader.lua"), reader, 0o600); err != nil {
		return o, err
	}
	c := w.config
	cmd := exec.Command(w.binary, "-s", "reader.lua", "-c", strconv.Itoa(c.Connections), "-t", strconv.Itoa(c.Threads),
		"-d", fmt.Sprintf("%ds", w.duration/time.Second), "-T", fmt.Sprintf("%ds", late/time.Second), c.URL, "--", map[bool]string{true: "writes", false: "reads"}[w.writes], strconv.Itoa(w.answerMax))
	cmd.Dir = w.dir
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if c.Begin != nil {
		c.Begin()
	}
	o.started = time.Now()
	child, err := proc.Start(cmd)
	if err != nil {
		return o, err
	}

	series := newSeries(w.dir, c.Threads)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(w.duration + late + 10*time.Second)
	defer limit.Stop()
	var stuck error
	for running := true; running; {
		select {
		case <-child.Done():
			err, running = child.Err(), false
		case <-tick.C:
			if e := series.read(); e != nil {
				_ = cmd.Process.Kill()
				<-child.Done()
				return o, e
			}
			series.pass(series.ended(), c.Second)
			if series.empty || ctx.Err() != nil {
				// It ends as when its time is over. In its first moments it ignores
				// signals, so this is said again with the next tick.
				_ = cmd.Process.Signal(syscall.SIGINT)
			}
		case <-limit.C:
			stuck = errors.New("closedloop: wrk did not end")
			_ = cmd.Process.Kill()
		}
	}
	if err != nil && ctx.Err() != nil && stuck == nil && !w.hasResult() {
		return o, nil // wrk was told before it could hear
	}
	if err != nil || stuck != nil {
		return o, errors.Join(stuck, fmt.Errorf("closedloop: wrk: %w\n%s", err, said.Bytes()))
	}
	o.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if err := w.collect(&o); err != nil {
		return o, fmt.Errorf("%w\nwrk says:\n%s", err, said.Bytes())
	}
	if err := series.read(); err != nil {
		return o, err
	}
	// The threads end up to a tenth of a second late; a part of a second isn't shown.
	for at := range int(o.DurationUS / 1e6) {
		o.seconds = append(o.seconds, series.second(at))
	}
	series.pass(len(o.seconds), c.Second)
	return o, nil
}

func (w wrkRun) hasResult() bool {
	_, err := os.Stat(filepath.Join(w.dir, "result"))
	return err == nil
}

// collect reads what wrk's threads wrote, and makes sure that it is all there.
func (w wrkRun) collect(o *outcome) error {
	result, err := os.ReadFile(filepath.Join(w.dir, "result"))
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("closedloop: wrk ended without a result")
	} else if err != nil {
		return err
	}
	if err := json.Unmarshal(result, o); err != nil {
		return fmt.Errorf("closedloop: wrk's result: %w", err)
	}
	var counted int64
	for _, n := range o.ByAnswer {
		counted += n
	}
	if counted != o.Answered {
		return fmt.Errorf("closedloop: wrk had %d answers and counted %d", o.Answered, counted)
	}
	return nil
}
