//go:build faults

package e2e_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/octopay/octopay/internal/localstack"
)

// These tests mount file systems, which takes root: they run with `make faults` alone.

// disk gives a server of a stack in dir a small disk of its own.
func disk(t *testing.T, dir, server string, megabytes string) string {
	t.Helper()
	path := filepath.Join(dir, server)
	must(t, os.MkdirAll(path, 0o755))
	must(t, syscall.Mount("tmpfs", path, "tmpfs", 0, "size="+megabytes+"m"))
	t.Cleanup(func() {
		if err := syscall.Unmount(path, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", path, err)
		}
	})
	return path
}

// fill leaves no room on the disk of path, and returns what gives it back.
func fill(t *testing.T, path string) (free func()) {
	t.Helper()
	junk := filepath.Join(path, "junk")
	f, err := os.Create(junk)
	must(t, err)
	defer f.Close()
	for size := 1 << 20; size >= 512; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2 // to the last byte
		} else {
			must(t, err)
		}
	}
	return func() { must(t, os.Remove(junk)) }
}

func TestFullDiskUnderNATS(t *testing.T) {
	dir := t.TempDir()
	path := disk(t, dir, "nats", "128")
	r := &rig{stack: localstack.Private(t, localstack.Options{Dir: dir})}
	r.env = environment(t, r.stack)
	for range 2 {
		r.api = append(r.api, start(t, "orderd", r.env).ready(t))
	}
	r.mirror = start(t, "syncerd", append(r.env, "OCTOPAY_STREAM_BYTES_MAX=67108864"))
	r.survive(t, func(progress func(float64)) int {
		progress(0.2)
		free := fill(t, path)
		progress(0.6)
		free()
		// JetStream stops when it meets a full disk; an operator starts it again.
		must(t, r.stack.Server("nats").Stop())
		must(t, r.stack.Server("nats").Start(t.Context()))
		return 1
	})
}

func TestFullDiskUnderMariaDB(t *testing.T) {
	for _, server := range []string{"bid-a", "uid-a"} {
		t.Run(server, func(t *testing.T) {
			dir := t.TempDir()
			path := disk(t, dir, server, "512")
			r := &rig{stack: localstack.Private(t, localstack.Options{Dir: dir})}
			r.env = environment(t, r.stack)
			for range 2 {
				r.api = append(r.api, start(t, "orderd", r.env).ready(t))
			}
			r.mirror = start(t, "syncerd", r.env)
			r.survive(t, func(progress func(float64)) int {
				progress(0.3)
				free := fill(t, path)
				_, freeze := size()
				full := time.NewTimer(freeze + rand.N(time.Second))
				<-full.C
				free()
				// InnoDB goes on when a table can't grow, and ends the server when its own
				// files can't. Whoever looks after it starts it again.
				if s := r.stack.Server(server); s.Pid() == 0 {
					t.Logf("%s ended itself", server)
					must(t, s.Start(t.Context()))
				}
				return 1
			})
		})
	}
}
