// Package install installs the Debian packages that tests and load tests need, on machines
// on which that may be done: Debian, and this user is root. Whether it is to be done, and
// what is said where it can't be, is left to its callers.
package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// ErrCannot reports a machine on which nothing can be installed.
var ErrCannot = errors.New("install: packages are installed on Debian alone, by root")

// Packages installs packages, unless found says that what they bring is there, and fails
// when it isn't there then. Several processes may want the same at once. log is told
// before it takes long; it may be nil.
func Packages(ctx context.Context, found func() bool, log func(format string, args ...any), packages ...string) error {
	if _, err := os.Stat("/etc/debian_version"); err != nil || os.Geteuid() != 0 {
		return ErrCannot
	}
	unlock, err := lock(ctx, filepath.Join(os.TempDir(), "octopay-install.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if found() { // somebody else was faster
		return nil
	}
	if log != nil {
		log("installing %s (once)", strings.Join(packages, " and "))
	}
	for _, args := range [][]string{
		{"-q", "-o", "DPkg::Lock::Timeout=300", "update"},
		append([]string{"-q", "-o", "DPkg::Lock::Timeout=300", "install", "-y", "--no-install-recommends"}, packages...),
	} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("install: apt-get %v: %w\n%s", args, err, out)
		}
	}
	if !found() {
		return fmt.Errorf("install: %s is installed, and what it should bring is not there", strings.Join(packages, " "))
	}
	return nil
}

// lock takes the lock of a file, which stays. It polls, because a waiting flock can't be
// given up.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("install: %w", err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
		case err == nil:
			// A child that is just being made may have a copy of the file.
			return func() { _, _ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close() }, nil
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			return nil, errors.Join(fmt.Errorf("install: lock %s: %w", path, err), f.Close())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("install: %s: another process installs: %w", path, ctx.Err()), f.Close())
		}
	}
}
