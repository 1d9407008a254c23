package localstack_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
)

func TestATemporaryDirectoryOfAKilledProcessIsRemovedLater(t *testing.T) {
	if os.Getenv("LEAVE_A_DIRECTORY") != "" { // the process that is killed
		dir, _, err := localstack.TempDir("octopay-probe")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "data"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(os.Getenv("LEAVE_A_DIRECTORY"), []byte(dir), 0o600); err != nil {
			t.Fatal(err)
		}
		select {}
	}

	t.Setenv("TMPDIR", t.TempDir())
	says := filepath.Join(t.TempDir(), "says")
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "LEAVE_A_DIRECTORY="+says)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	left := ""
	eventually.True(t, "the other process makes a directory", func() bool {
		text, _ := os.ReadFile(says)
		left = string(text)
		return left != ""
	})
	is := func(dir string, there bool) {
		t.Helper()
		if _, err := os.Stat(dir); (err == nil) != there || err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	old := time.Now().Add(-time.Hour)
	next := func() string {
		t.Helper()
		if err := os.Chtimes(left, old, old); err != nil {
			t.Fatal(err)
		}
		dir, release, err := localstack.TempDir("octopay-probe")
		if err != nil {
			t.Fatal(err)
		}
		is(dir, true)
		t.Cleanup(func() {
			if err := release(); err != nil {
				t.Error(err)
			}
			is(dir, false)
		})
		return dir
	}
	beside := next()
	is(left, true) // its process is there
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-ended
	next()
	is(left, false)
	is(beside, true)
}
