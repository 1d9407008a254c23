package lane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// thrown is what a commit can panic with; each holds the row.
var thrown = map[string]func(row string){
	"a text":    func(row string) { panic(row) },
	"an error":  func(row string) { panic(fmt.Errorf("insert: %w", errors.New(row))) },
	"a struct":  func(row string) { panic(struct{ Row string }{row}) },
	"a pointer": func(row string) { panic(&struct{ Row string }{row}) },
	"the runtime's": func(row string) {
		_ = []byte(row)[len(row)]
	},
}

const rowVariable = "LANE_TEST_PANIC"

// TestCommitThatPanics is a process of its own, for the test below.
func TestCommitThatPanics(t *testing.T) {
	what, row, ok := strings.Cut(os.Getenv(rowVariable), "=")
	if !ok {
		return
	}
	l := New(Config{}, func(_ context.Context, ops []string) []string {
		thrown[what](ops[0])
		return ops
	})
	go func() { _ = l.Run(t.Context()) }()
	_, err := through(t.Context(), l, row, 1)
	t.Fatalf("it goes on: %v", err)
}

// A process whose commit panicked ends, and says where; what was thrown is said by nobody.
func TestAPanicOfACommitEndsTheProcessAndTellsNoRow(t *testing.T) {
	const row = "6222020012345678"
	for what := range thrown {
		t.Run(what, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestCommitThatPanics$")
			cmd.Env = append(os.Environ(), rowVariable+"="+what+"="+row)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 2 {
				t.Errorf("it ended with %v", err)
			}
			text := string(out)
			if !strings.Contains(text, "lane: a commit panicked: ") || !strings.Contains(text, "lane.TestCommitThatPanics") || strings.Contains(text, "it goes on") {
				t.Errorf("it doesn't say where: %s", text)
			}
			if strings.Contains(text, row) {
				t.Errorf("it tells the row: %s", text)
			}
		})
	}
}
