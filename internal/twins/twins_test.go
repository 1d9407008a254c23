package twins

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var long = flag.Bool("long", false, "run every twin, also those that need servers")

// A twin is the program without one guard, and the test that must notice it.
type twin struct {
	guard   string // what is guarded, as a sentence
	file    string // where, from the root
	with    string // the guard; once in the file
	without string // what stands there in the twin
	pkg     string // of the test, from the root
	test    string // its name, and behind slashes patterns of its parts
	says    string // a part of what it says when it fails
	fast    bool   // it takes a few seconds and no server
}

// all returns the table.
func all() []twin {
	return slices.Concat(placement, ids, lanes, leases, orders, databases, collecting, transport, applying, reading, inlet, keys, programs, configs, loads, lives, hostility, audits, edges)
}

const (
	root = "../.."
	// atOnce bounds the twins that run side by side.
	atOnce = 2
	// testMax bounds the test of one twin. One that takes longer is no proof.
	testMax = 2 * time.Minute
	// buildMax bounds what comes before it.
	buildMax = 5 * time.Minute
)

// place returns where in its file the guard of w is.
func (w twin) place(t *testing.T) (source []byte, from, to int) {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(root, w.file))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(source, []byte(w.with)); n != 1 {
		t.Fatalf("the guard is %d times in %s, and must be once: %s", n, w.file, w.with)
	}
	from = bytes.Index(source, []byte(w.with))
	return source, from, from + len(w.with)
}

// overlay writes what the go command is to compile in place of which files.
func overlay(t *testing.T, texts map[string][]byte) (path string) {
	t.Helper()
	dir := t.TempDir()
	var instead struct{ Replace map[string]string }
	instead.Replace = map[string]string{}
	for file, text := range texts {
		at, err := filepath.Abs(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		// Not a name that ends in .go, which the go command could take for a package's.
		with := filepath.Join(dir, strings.ReplaceAll(file, "/", "-")+".twin")
		if err := os.WriteFile(with, text, 0o600); err != nil {
			t.Fatal(err)
		}
		instead.Replace[at] = with
	}
	text, err := json.Marshal(instead)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// command runs the go command at the root, with an overlay, which holds for the programs that
// a test builds as well.
func command(t *testing.T, overlay string, args ...string) (out string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testMax+buildMax)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	// What a law finds isn't kept, in the tree, for the next run; nor made as small as can be.
	cmd.Env = append(os.Environ(), "RAPID_NOFAILFILE=1", "RAPID_SHRINKTIME=1s",
		"GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	cmd.WaitDelay = 10 * time.Second // a server that a test started may hold its output
	b, err := cmd.CombinedOutput()
	return string(b), err
}

// The table is true: each guard is where it says, each test exists, and without the
// guards the sources compile.
func TestTheTable(t *testing.T) {
	named := map[string]bool{}
	type edit struct {
		from, to int
		without  string
	}
	edits := map[string][]edit{}
	sources := map[string][]byte{}
	for _, w := range all() {
		if named[w.guard] || w.guard == "" || w.says == "" {
			t.Errorf("%q: each twin has a sentence of its own, and says something", w.guard)
		}
		named[w.guard] = true
		t.Run(w.guard, func(t *testing.T) {
			source, from, to := w.place(t)
			sources[w.file] = source
			edits[w.file] = append(edits[w.file], edit{from, to, w.without})
			name, _, _ := strings.Cut(w.test, "/")
			if !hasTest(t, w.pkg, name) {
				t.Errorf("package %s has no %s", w.pkg, name)
			}
		})
	}
	if t.Failed() {
		return
	}
	// All of them at once, which costs one build; those of which the texts overlap go
	// into another.
	for len(edits) > 0 {
		texts := map[string][]byte{}
		var packages []string
		for file, of := range edits {
			slices.SortFunc(of, func(a, b edit) int { return a.from - b.from })
			var text []byte
			var rest []edit
			at := 0
			for _, e := range of {
				if e.from < at {
					rest = append(rest, e)
					continue
				}
				text = append(append(text, sources[file][at:e.from]...), e.without...)
				at = e.to
			}
			texts[file] = append(text, sources[file][at:]...)
			packages = append(packages, "./"+filepath.Dir(file))
			if edits[file] = rest; len(rest) == 0 {
				delete(edits, file)
			}
		}
		slices.Sort(packages)
		args := append([]string{"build"}, slices.Compact(packages)...)
		if out, err := command(t, overlay(t, texts), args...); err != nil {
			t.Errorf("without the guards the sources don't compile: %v\n%s", err, out)
		}
	}
}

func hasTest(t *testing.T, pkg, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^func ` + name + `\((t \*testing\.T|f \*testing\.F)\)`) // a fuzz test on its seeds is one
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && declared.Match(text)
	})
}

// Without its guard a property is broken, and its test says so.
func TestTwins(t *testing.T) {
	places := make(chan struct{}, atOnce)
	for _, w := range all() {
		if !w.fast && !*long {
			continue
		}
		t.Run(w.guard, func(t *testing.T) {
			t.Parallel()
			places <- struct{}{}
			defer func() { <-places }()
			source, from, to := w.place(t)
			text := slices.Concat(source[:from], []byte(w.without), source[to:])
			name, parts, _ := strings.Cut(w.test, "/")
			pattern := "^" + name + "$"
			if parts != "" {
				pattern += "/" + parts
			}
			out, err := command(t, overlay(t, map[string][]byte{w.file: text}), "test",
				"-count", "1", "-timeout", testMax.String(), "-run", pattern, "./"+w.pkg)
			switch {
			case err == nil:
				t.Errorf("no test failed without the guard:\n%s", out)
			case strings.Contains(out, "[build failed]"), strings.Contains(out, "[setup failed]"):
				t.Errorf("the twin doesn't compile:\n%s", out)
			case strings.Contains(out, "test timed out"):
				t.Errorf("the test took too long to say anything:\n%s", tail(out))
			case !strings.Contains(out, w.says):
				t.Errorf("the test failed, but did not say %q:\n%s", w.says, tail(out))
			}
		})
	}
}

// tail returns the beginning and the end of a long output.
func tail(out string) string {
	const most = 4000
	if len(out) <= 2*most {
		return out
	}
	return out[:most] + "\n[…]\n" + out[len(out)-most:]
}
