package localstack

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Up starts a stack in dir that stays when this program ends, with the data of the
// last time, and writes map.yaml, env and a master key there for the programs. What is missing is
// installed where that is possible. Of a stack that runs already, the servers that have
// ended are started again, and the others left as they are. In any case out says where
// everything is.
//
// This program must be cmd, because the supervisor is this program again.
func Up(ctx context.Context, dir string, out io.Writer) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	l, err := lockFile(ctx, filepath.Join(dir, "up.lock"), exclusive)
	if err != nil {
		return err
	}
	defer l.unlock()
	s, running, err := readState(dir)
	if err != nil {
		return err
	}
	if running {
		if s, err = startMissing(ctx, dir, s, out); err != nil {
			return err
		}
		return describe(dir, s, out)
	}
	if _, err := find(ctx, Options{Install: true, Log: func(line string) { fmt.Fprintln(out, line) }}); err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*readyWithin)
	defer cancel()
	if s, err = launch(ctx, exe, dir); err != nil {
		return err
	}
	master := filepath.Join(dir, "master.key")
	env := fmt.Sprintf("export OCTOPAY_MAP_FILE=%s\nexport OCTOPAY_DB_USER=%s\nexport OCTOPAY_DB_PASSWORD=%s\nexport OCTOPAY_NATS_URL=%s\nexport OCTOPAY_MASTER_KEY_FILE=%s\n",
		quote(filepath.Join(dir, "map.yaml")), quote(userName), quote(s.Password), quote(s.NATSURL), quote(master))
	if err := errors.Join(
		makeMaster(master),
		writeFile(filepath.Join(dir, "map.yaml"), []byte(s.Map)),
		writeFile(filepath.Join(dir, "env"), []byte(env)),
	); err != nil {
		return err
	}
	fmt.Fprintf(out, "started (supervisor: process %d)\n", s.Pid)
	return describe(dir, s, out)
}

// makeMaster makes the key that the signing secrets of this stack's data are encrypted with,
// once.
func makeMaster(file string) error {
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var key [32]byte
	_, _ = rand.Read(key[:]) // it never fails
	return writeFile(file, []byte(base64.StdEncoding.EncodeToString(key[:])+"\n"))
}

// startMissing makes a running supervisor start the servers that have ended, and
// returns its state then.
func startMissing(ctx context.Context, dir string, s state, out io.Writer) (state, error) {
	var missing []string
	for _, srv := range s.Servers {
		if !srv.alive() {
			missing = append(missing, srv.Name)
		}
	}
	if missing == nil {
		fmt.Fprintf(out, "already running, nothing changed (supervisor: process %d)\n", s.Pid)
		return s, nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(len(missing)+1)*readyWithin)
	defer cancel()
	if err := s.signal(syscall.SIGHUP); err != nil {
		return s, err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		now, running, err := readState(dir)
		switch {
		case err != nil:
			return s, err
		case !running:
			return s, fmt.Errorf("localstack: the supervisor ended%s", tail(logFile(dir)))
		case now.Asked > s.Asked && now.Fault != "":
			return s, errors.New(now.Fault)
		case now.Asked > s.Asked:
			fmt.Fprintf(out, "started again: %s (supervisor: process %d)\n", strings.Join(missing, ", "), s.Pid)
			return now, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return s, fmt.Errorf("localstack: %s: %w%s", strings.Join(missing, ", "), ctx.Err(), tail(logFile(dir)))
		}
	}
}

// Down ends the stack that Up started in dir, and nothing else: each process is
// checked to be the one that was started. The data stays, unless purge is set.
func Down(ctx context.Context, dir string, purge bool, out io.Writer) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "plan.json")); err != nil {
		fmt.Fprintf(out, "no stack in %s\n", dir)
		return nil
	}
	l, err := lockFile(ctx, filepath.Join(dir, "up.lock"), exclusive)
	if err != nil {
		return err
	}
	defer l.unlock()
	s, running, err := readState(dir)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*stopWithin)
	defer cancel()
	// The supervisor stops its servers. Where it was killed, they died with it, or are
	// ended here.
	if err := s.end(ctx, syscall.SIGTERM); err != nil {
		return err
	}
	for _, c := range s.Servers {
		if err := c.end(ctx, syscall.SIGTERM); err != nil {
			return err
		}
	}
	if err := os.Remove(stateFile(dir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if running {
		fmt.Fprintln(out, "stopped")
	} else {
		fmt.Fprintln(out, "was not running")
	}
	if purge {
		fmt.Fprintf(out, "removing %s\n", dir)
		return os.RemoveAll(dir)
	}
	fmt.Fprintf(out, "the data stays in %s\n", dir)
	return nil
}

func describe(dir string, s state, out io.Writer) error {
	var b strings.Builder
	for _, srv := range s.Servers {
		fmt.Fprintf(&b, "  %-8s %s  (process %d)\n", srv.Name, srv.Address, srv.Pid)
	}
	fmt.Fprintf(&b, "  data     %s\n  log      %s: which server ended, and when\n", dir, logFile(dir))
	env := filepath.Join(dir, "env")
	if wd, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(wd, env); err == nil && !strings.HasPrefix(rel, "..") {
			env = "./" + rel
		}
	}
	fmt.Fprintf(&b, "next, each in a terminal of its own:\n  . %[1]s && go run ./services/orderd\n  . %[1]s && go run ./services/syncerd\n", quote(env))
	_, err := io.WriteString(out, b.String())
	return err
}

// quote returns s as one word of a shell.
func quote(s string) string {
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
