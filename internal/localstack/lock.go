package localstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

const (
	shared    = syscall.LOCK_SH
	exclusive = syscall.LOCK_EX
)

// errLocked reports that others hold a lock.
var errLocked = errors.New("locked by another process")

// A fileLock is held until unlock or the end of the process, however that ends.
// Lock files are never removed: whoever waits for one holds on to that very file.
type fileLock struct{ f *os.File }

// tryLock takes the lock of a file, or returns errLocked.
func tryLock(path string, how int) (*fileLock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) // closed in children
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err == nil {
		return &fileLock{f}, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errLocked
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}

// lockFile waits for the lock. It polls, because a waiting flock can't be given up.
func lockFile(ctx context.Context, path string, how int) (*fileLock, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		l, err := tryLock(path, how)
		if !errors.Is(err, errLocked) {
			return l, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("%s: %w, and %w", path, err, ctx.Err())
		}
	}
}

// unlock gives the lock back, also where a child that is just being made still has a
// copy of the file.
func (l *fileLock) unlock() {
	_ = syscall.Flock(int(l.f.Fd()), syscall.LOCK_UN)
	_ = l.f.Close()
}
