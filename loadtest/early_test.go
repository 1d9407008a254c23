package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/octopay/octopay/internal/command"
	"github.com/octopay/octopay/loadtest/report"
	"github.com/octopay/octopay/loadtest/traffic/traffictest"
)

// Who ends a run with Ctrl-C gets a report of what was measured until then, which says so,
// and no second that never was.
func TestARunThatIsEndedIsReported(t *testing.T) {
	for loop, args := range map[string][]string{
		report.Open:   {"--rate", "50", "--warmup", "0s", "--duration", "50s"},
		report.Closed: {"--closed", "2", "--warmup", "1s", "--duration", "20s"},
	} {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var stderr endAt
		stderr.at, stderr.end = "\n    1 s ", stop // a second was shown
		s := traffictest.New(t, traffictest.Call.Serve)
		dir := t.TempDir()
		var stdout bytes.Buffer
		code := run(ctx, append(args, "--url", s.URL, "--out", dir), nil, &stdout, &stderr)
		r := document(t, dir).Runs[0]
		if code != exitInvalid || len(r.Invalid) == 0 || !strings.HasPrefix(r.Invalid[0], "it ended early, after ") || r.Loop != loop || r.ByAnswer["201"] == 0 {
			t.Errorf("%s: exit code %d; %+v", loop, code, r)
		}
		if !strings.Contains(stdout.String(), "INVALID") || !strings.Contains(stdout.String(), "It ended early, after ") {
			t.Errorf("%s: it says\n%s", loop, stdout.String())
		}
		text := stderr.String()
		if shown := strings.Count(text, " s  "); shown != len(r.Seconds) || shown > 15 {
			t.Errorf("%s: %d seconds are shown, the run has %d in %.1f s\n%s", loop, shown, len(r.Seconds), r.DurationSec, text)
		}
		// Only an open loop has requests that are due.
		if open := loop == report.Open; strings.Contains(text, "50 due") != open || strings.Contains(text, " sent ") != open {
			t.Errorf("%s: it shows\n%s", loop, text)
		}
	}
}

// An endAt is a writer that calls end when a text was written.
type endAt struct {
	bytes.Buffer
	at  string
	end func()
}

func (e *endAt) Write(p []byte) (int, error) {
	n, err := e.Buffer.Write(p)
	if strings.Contains(e.String(), e.at) {
		e.end()
	}
	return n, err
}

// What a closed loop needs is said as it is: 0s are whole seconds.
func TestTheWarmUpOfAClosedLoopIsASecondAtLeast(t *testing.T) {
	for _, args := range [][]string{{"--closed", "8", "--warmup", "0s"}, {"--closed", "8", "--warmup", "500ms"}, {"compare", "--warmup", "0s"}} {
		code, _, stderr := do(t, append(args, "--out", t.TempDir())...)
		if code != command.Wrong || !strings.Contains(stderr, "--warmup") || !strings.Contains(stderr, "one at least") {
			t.Errorf("%v: exit code %d, %s", args, code, stderr)
		}
	}
}
