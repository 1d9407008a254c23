package localstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/octopay/octopay/internal/eventually"
)

func (u *sharer) leave() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.use.unlock()
	u.use = nil
}

// answers says whether all servers of a state do.
func answers(s state) error {
	for _, srv := range s.Servers {
		if srv.Name == "nats" {
			continue
		}
		db := openSQL(srv.Address, userName, s.Password)
		_, err := db.Exec("DO 1")
		_ = db.Close()
		if err != nil {
			return err
		}
	}
	return natsServer{address: strings.TrimPrefix(s.NATSURL, "nats://")}.ready(context.Background())
}

func join(t *testing.T, u *sharer, dir string) state {
	t.Helper()
	if err := u.join(t.Context(), dir, func(line string) { t.Log(line) }); err != nil {
		t.Fatal(err)
	}
	if err := answers(u.state); err != nil {
		t.Fatal(err)
	}
	return u.state
}

func left(t *testing.T, s state) (names []string) {
	t.Helper()
	for _, c := range s.Servers {
		if c.alive() {
			names = append(names, c.Name)
		}
	}
	return names
}

func data(t *testing.T, dir string) []string {
	t.Helper()
	runs, err := filepath.Glob(filepath.Join(dir, "run-*"))
	if err != nil {
		t.Fatal(err)
	}
	return runs
}

func TestSharedServersLiveAsLongAsTheirUsers(t *testing.T) {
	const grace = 200 * time.Millisecond
	dir := t.TempDir()
	a, b, c := &sharer{grace: grace}, &sharer{grace: grace}, &sharer{grace: grace}

	first := join(t, a, dir)
	if second := join(t, b, dir); second.Pid != first.Pid {
		t.Fatalf("two supervisors: %d and %d", first.Pid, second.Pid)
	}
	a.leave()
	for until := time.Now().Add(5 * grace); time.Now().Before(until); {
		if err := answers(first); err != nil {
			t.Fatalf("ended under its second user: %v", err)
		}
	}
	b.leave()
	eventually.True(t, "the supervisor ends after its last user", func() bool { return !first.alive() })
	if s := left(t, first); s != nil {
		t.Errorf("servers outlive it: %v", s)
	}
	if runs := data(t, dir); runs != nil {
		t.Errorf("data is left: %v", runs)
	}
	if _, err := os.Stat(stateFile(dir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a state is left: %v", err)
	}

	again := join(t, c, dir)
	if again.Pid == first.Pid {
		t.Error("the same supervisor again")
	}
	c.leave()
	eventually.True(t, "the second one ends too", func() bool { return !again.alive() })
}

func TestACrashedRunIsReplaced(t *testing.T) {
	const grace = 200 * time.Millisecond
	dir := t.TempDir()
	a, b := &sharer{grace: grace}, &sharer{grace: grace}
	crashed := join(t, a, dir)
	if err := crashed.end(t.Context(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "linux" {
		eventually.True(t, "the servers die with their supervisor", func() bool { return left(t, crashed) == nil })
	}
	old := data(t, dir)
	fresh := join(t, b, dir)
	if fresh.Pid == crashed.Pid || len(old) != 1 || slices.Contains(data(t, dir), old[0]) {
		t.Errorf("supervisor %d after %d; data %v, then %v", fresh.Pid, crashed.Pid, old, data(t, dir))
	}
	a.leave()
	b.leave()
	eventually.True(t, "it ends", func() bool { return !fresh.alive() })
}

// A server that a test broke is not for the next test, and the log says what happened,
// also after a new supervisor has begun.
func TestABrokenSharedServerEndsAllAndIsSaid(t *testing.T) {
	const grace = 200 * time.Millisecond
	dir := t.TempDir()
	a, b := &sharer{grace: grace}, &sharer{grace: grace}
	broken := join(t, a, dir)
	var killed stateChild
	for _, c := range broken.Servers {
		if c.Name == "bid-a" {
			killed = c
		}
	}
	if err := killed.signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "all end", func() bool { return !broken.alive() && left(t, broken) == nil })
	fresh := join(t, b, dir)
	text, err := os.ReadFile(logFile(dir))
	want := fmt.Sprintf("bid-a (process %d) ended by itself: signal: killed; all end now", killed.Pid)
	if err != nil || !strings.Contains(string(text), want) {
		t.Errorf("the log lacks %q (%v):\n%s", want, err, text)
	}
	a.leave()
	b.leave()
	eventually.True(t, "it ends", func() bool { return !fresh.alive() })
}

func TestTheLogOfSupervisorsIsBounded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	for _, c := range []struct{ has, want int }{{0, 1}, {logBytesMax, logBytesMax + 1}, {logBytesMax + 1, 1}} {
		if err := os.WriteFile(file, make([]byte, c.has), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := openLog(file)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteString("x")
		if info, e := os.Stat(file); errors.Join(err, e, f.Close()) != nil || int(info.Size()) != c.want {
			t.Errorf("of %d bytes: %d, want %d (%v, %v)", c.has, info.Size(), c.want, err, e)
		}
	}
}

// A number in a stale state may belong to anybody by now.
func TestAStaleStateHarmsNobody(t *testing.T) {
	bystander := exec.Command("sleep", "600")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bystander.Process.Kill(); _ = bystander.Wait() })
	pid := bystander.Process.Pid
	was := child{Pid: pid, Identity: "an earlier boot:1"}
	stale := state{child: was, Servers: []stateChild{{child: was, Name: "uid-a"}}}
	if now := (child{Pid: pid, Identity: identity(pid)}); !now.alive() || was.alive() {
		t.Fatalf("alive: %v, and of another identity: %v", now.alive(), was.alive())
	}

	const grace = 100 * time.Millisecond
	dir := t.TempDir()
	if err := writeJSON(stateFile(dir), stale); err != nil {
		t.Fatal(err)
	}
	u := &sharer{grace: grace}
	s := join(t, u, dir)
	u.leave()
	eventually.True(t, "it ends", func() bool { return !s.alive() })

	kept := t.TempDir()
	if err := errors.Join(writeJSON(stateFile(kept), stale), writeJSON(filepath.Join(kept, "plan.json"), plan{})); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := Down(t.Context(), kept, false, &out); err != nil || !strings.Contains(out.String(), "was not running") {
		t.Errorf("down: %v\n%s", err, &out)
	}
	if identity(pid) == "" {
		t.Error("it was killed")
	}
}

// Users come before, while and after a supervisor ends: whoever has joined has servers
// that answer until it leaves.
func TestNobodyJoinsWhatEnds(t *testing.T) {
	const grace = time.Millisecond
	dir := t.TempDir()
	supervisors := map[int]state{}
	pauses := []time.Duration{0, 2 * grace, 10 * grace, 100 * grace}
	for i, limit := 0, time.Now().Add(2*time.Minute); i < len(pauses) || len(supervisors) < 2 && time.Now().Before(limit); i++ {
		users := []*sharer{{grace: grace}, {grace: grace}}
		var wait sync.WaitGroup
		for _, u := range users {
			wait.Go(func() {
				if err := u.join(t.Context(), dir, func(string) {}); err != nil {
					t.Error(err)
				} else if err := answers(u.state); err != nil {
					t.Errorf("joined what ends: %v", err)
				}
			})
		}
		wait.Wait()
		if t.Failed() {
			return
		}
		for _, u := range users {
			supervisors[u.state.Pid] = u.state
			u.leave()
		}
		<-time.After(pauses[i%len(pauses)]) // to meet another moment of the end
	}
	for _, s := range supervisors {
		eventually.True(t, "each ends", func() bool { return !s.alive() && left(t, s) == nil })
	}
	if len(supervisors) < 2 {
		t.Errorf("%d supervisors: none ended between two users", len(supervisors))
	}
}

func TestWhatIsMissingIsInstalledOrNamed(t *testing.T) {
	bin := t.TempDir()
	calls := filepath.Join(bin, "calls")
	script := "#!/bin/sh\necho \"$DEBIAN_FRONTEND $*\" >> " + calls + "\n"
	if err := os.WriteFile(filepath.Join(bin, "apt-get"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("TMPDIR", t.TempDir())
	installed := func(name string) string {
		if text, _ := os.ReadFile(calls); strings.Contains(string(text), "install") {
			return "/found/" + name
		}
		return ""
	}
	ignore := func(string, ...any) {}

	_, _, err := findMariaDB(t.Context(), installed, false, ignore)
	if !errors.Is(err, errNoMariaDB) {
		t.Fatalf("without leave to install: %v", err)
	}
	for _, part := range []string{"apt-get install -y --no-install-recommends mariadb-server-core mariadb-client-core", envUID, envBID, envNATS, envUser, envPassword} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error doesn't name %s", part)
		}
	}
	_, debian := os.Stat("/etc/debian_version")
	server, _, err := findMariaDB(t.Context(), installed, true, ignore)
	if os.Geteuid() != 0 || debian != nil {
		if !errors.Is(err, errNoMariaDB) {
			t.Fatalf("where it can't be installed: %v", err)
		}
		return
	}
	text, _ := os.ReadFile(calls)
	want := "noninteractive -q -o DPkg::Lock::Timeout=300 update\nnoninteractive -q -o DPkg::Lock::Timeout=300 install -y --no-install-recommends mariadb-server-core mariadb-client-core\n"
	if err != nil || server != "/found/mariadbd" || string(text) != want {
		t.Errorf("%v; found %s after\n%s", err, server, text)
	}
}

func TestLocks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	a, err := tryLock(file, shared)
	if err != nil {
		t.Fatal(err)
	}
	b, err := tryLock(file, shared)
	if err != nil {
		t.Fatal("two users:", err)
	}
	if _, err := tryLock(file, exclusive); !errors.Is(err, errLocked) {
		t.Fatalf("exclusive beside two users: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lockFile(ctx, file, exclusive); !errors.Is(err, context.Canceled) {
		t.Fatalf("waits beyond its context: %v", err)
	}
	got := make(chan error)
	go func() {
		l, err := lockFile(t.Context(), file, exclusive)
		if err == nil {
			l.unlock()
		}
		got <- err
	}()
	a.unlock()
	b.unlock()
	if err := <-got; err != nil {
		t.Error(err)
	}
}
