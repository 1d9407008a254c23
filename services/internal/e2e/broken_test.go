package e2e_test

import (
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/shardmap"
)

// A damage is what becomes of the directory of NATS while it is stopped.
type damage struct {
	name   string
	kill   bool // it was killed, and not asked to stop
	short  bool // part of the short set
	holes  bool // where the mirror was behind, messages that it lacks are missing between others
	refill bool // where the mirror was behind, the stream begins too late for it
	do     func(t *testing.T, dir string)
}

var damages = []damage{
	{name: "removed wholly", do: func(t *testing.T, dir string) { must(t, os.RemoveAll(filepath.Join(dir, "data"))) }},
	{name: "random bytes in the oldest block", short: true, holes: true, do: func(t *testing.T, dir string) { scribble(t, blocks(t, dir)[0]) }},
	{name: "random bytes in the oldest block, after a kill", kill: true, holes: true, do: func(t *testing.T, dir string) { scribble(t, blocks(t, dir)[0]) }},
	{name: "the oldest block truncated", holes: true, do: func(t *testing.T, dir string) { halve(t, blocks(t, dir)[0]) }},
	{name: "the newest block truncated", do: func(t *testing.T, dir string) { halve(t, newest(t, dir)) }},
	{name: "the newest block truncated, after a kill", kill: true, do: func(t *testing.T, dir string) { halve(t, newest(t, dir)) }},
	{name: "the newest block lost", do: func(t *testing.T, dir string) { must(t, os.Remove(newest(t, dir))) }},
	{name: "the newest block lost, after a kill", kill: true, do: func(t *testing.T, dir string) { must(t, os.Remove(newest(t, dir))) }},
	{name: "the oldest block lost", refill: true, do: func(t *testing.T, dir string) { must(t, os.Remove(blocks(t, dir)[0])) }},
	{name: "the stream's configuration lost", do: func(t *testing.T, dir string) {
		for _, path := range files(t, dir, "meta.*") {
			must(t, os.Remove(path))
		}
	}},
	{name: "random bytes in the stream's configuration", do: func(t *testing.T, dir string) { scribble(t, files(t, dir, "meta.inf")[0]) }},
	{name: "the state lost", do: func(t *testing.T, dir string) { must(t, os.Remove(files(t, dir, "index.db")[0])) }},
	{name: "random bytes in the state", do: func(t *testing.T, dir string) { scribble(t, files(t, dir, "index.db")[0]) }},
}

// files returns the files of a directory whose names match, oldest first.
func files(t *testing.T, dir, pattern string) (found []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if ok, _ := filepath.Match(pattern, filepath.Base(path)); ok && !d.IsDir() {
			found = append(found, path)
		}
		return err
	}))
	if len(found) == 0 {
		t.Fatalf("no %s in %s", pattern, dir)
	}
	slices.SortFunc(found, func(a, b string) int { // 9.blk before 10.blk
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
	return found
}

func blocks(t *testing.T, dir string) []string { return files(t, dir, "*.blk") }

func newest(t *testing.T, dir string) string {
	all := blocks(t, dir)
	return all[len(all)-1]
}

// scribble overwrites some bytes of the second half of a file.
func scribble(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	for range 8 {
		at := len(text)/2 + rand.N(len(text)/3)
		for i := at; i < min(at+64, len(text)); i++ {
			text[i] ^= byte(1 + rand.N(255))
		}
	}
	must(t, os.WriteFile(path, text, 0o600))
}

func halve(t *testing.T, path string) {
	t.Helper()
	i, err := os.Stat(path)
	must(t, err)
	must(t, os.Truncate(path, i.Size()/2))
}

// Fault 20. NATS comes back with a directory that somebody or something has damaged,
// while the mirror is even with it, and while it is behind. Either everything becomes
// equal again, or the program says which databases must be refilled.
func TestNATSWithABrokenDirectory(t *testing.T) {
	for _, d := range damages {
		for _, behind := range []bool{true, false} {
			if !*long && (!d.short || !behind) {
				continue
			}
			name := d.name
			if behind {
				name += ", the mirror behind"
			}
			t.Run(name, func(t *testing.T) { d.happen(t, behind) })
		}
	}
}

func (d damage) happen(t *testing.T, behind bool) {
	r := newRig(t)
	r.mirrors(t, time.Now())
	nats, mirror := r.stack.Server("nats"), r.stack.Server("bid-a")
	dir := filepath.Join(r.stack.Dir, "nats")
	requests := traffic(rand.Uint64(), 800)
	for i := range requests {
		// So large that they fill two of JetStream's blocks.
		requests[i].Metadata = map[string]string{}
		for k := range 16 {
			requests[i].Metadata["k"+strconv.Itoa(k)] = strings.Repeat("🐙", 256)
		}
	}
	done := drive(t, each(r.urls()...), requests, func(progress func(float64)) {
		progress(0.1)
		if behind {
			must(t, mirror.Kill())
		}
		progress(0.95)
		if d.kill {
			must(t, nats.Kill())
		} else {
			must(t, nats.Stop())
		}
		d.do(t, dir)
		must(t, nats.Start(t.Context()))
		if behind {
			must(t, mirror.Start(t.Context()))
		}
	})
	if behind && d.refill {
		for _, place := range r.stack.Map.Databases(shardmap.BID) {
			eventually.True(t, place.Schema+" must be refilled", func() bool {
				return r.mirror.said("applier/"+place.Schema, "must be refilled")
			})
		}
		return
	}
	verify(t, r.stack, r.urls(), done)
	if behind && d.holes && !r.mirror.said("NATS lost messages") {
		t.Error("nobody noticed what was missing")
	}
	t.Log(done)
}
