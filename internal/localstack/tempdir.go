package localstack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// TempDir makes a directory among the temporary files, whose name begins with name, for
// this process alone. release removes it; where the process ends without that, the next
// TempDir of the name does. So what a killed process leaves is not there for ever.
func TempDir(name string) (dir string, release func() error, err error) {
	const lock = "held.lock"
	if dir, err = temporaryDir(name, lock); err != nil {
		return "", nil, err
	}
	held, err := tryLock(filepath.Join(dir, lock), exclusive)
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, func() error {
		defer held.unlock()
		return os.RemoveAll(dir)
	}, nil
}

// temporaryDir makes a directory, whose owner then takes the lock of that name in it,
// and removes those that nobody holds.
func temporaryDir(name, lock string) (string, error) {
	name = fmt.Sprintf("%s-%d-", name, os.Geteuid())
	old, err := filepath.Glob(filepath.Join(os.TempDir(), name+"*"))
	if err != nil {
		return "", err
	}
	for _, dir := range old {
		// A young one may not have its lock yet.
		if info, err := os.Stat(dir); err != nil || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		if l, err := tryLock(filepath.Join(dir, lock), exclusive); err == nil {
			err = os.RemoveAll(dir)
			l.unlock()
			if err != nil {
				return "", err
			}
		}
	}
	return os.MkdirTemp("", name)
}
