package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// stand puts a stand-in for apt-get before the real one, which notes how it is called and
// then runs more, and returns the file of the notes.
func stand(t *testing.T, more string) (calls string) {
	t.Helper()
	bin := t.TempDir()
	calls = filepath.Join(bin, "calls")
	script := fmt.Sprintf("#!/bin/sh\necho \"$DEBIAN_FRONTEND $*\" >> %s\n%s\n", calls, more)
	if err := os.WriteFile(filepath.Join(bin, "apt-get"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("TMPDIR", t.TempDir())
	return calls
}

func possible() bool {
	_, err := os.Stat("/etc/debian_version")
	return err == nil && os.Geteuid() == 0
}

func TestPackagesAreInstalledWhereThatCanBe(t *testing.T) {
	calls := stand(t, "")
	read := func() string {
		text, _ := os.ReadFile(calls)
		return string(text)
	}
	found := func() bool { return strings.Contains(read(), "install") }
	var said []string
	err := Packages(t.Context(), found, func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }, "a-core", "b")
	if !possible() {
		if !errors.Is(err, ErrCannot) || read() != "" {
			t.Errorf("%v after %q", err, read())
		}
		return
	}
	want := "noninteractive -q -o DPkg::Lock::Timeout=300 update\nnoninteractive -q -o DPkg::Lock::Timeout=300 install -y --no-install-recommends a-core b\n"
	if err != nil || read() != want || len(said) != 1 || said[0] != "installing a-core and b (once)" {
		t.Errorf("%v, said %q after\n%s", err, said, read())
	}
	// It is there now.
	if err := Packages(t.Context(), found, nil, "a-core"); err != nil || read() != want {
		t.Errorf("again: %v after\n%s", err, read())
	}
}

func TestWhatCannotBeInstalledIsSaid(t *testing.T) {
	if !possible() {
		t.Log("nothing can be installed here at all; the other test is of that")
		return
	}
	stand(t, "echo no such thing; exit 100")
	never := func() bool { return false }
	if err := Packages(t.Context(), never, nil, "a"); err == nil || !strings.Contains(err.Error(), "no such thing") {
		t.Errorf("%v", err)
	}
	stand(t, "")
	if err := Packages(t.Context(), never, nil, "a"); err == nil || !strings.Contains(err.Error(), "not there") {
		t.Errorf("%v", err)
	}
	// Somebody else installs, and one needn't wait.
	unlock, err := lock(t.Context(), filepath.Join(os.TempDir(), "octopay-install.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ended, end := context.WithCancel(t.Context())
	end()
	if err := Packages(ended, never, nil, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
