package localstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// A state is what a supervisor says about itself and its servers, in state.json. It
// is written when everything answers.
type state struct {
	child
	Password string       `json:"password"`
	NATSURL  string       `json:"nats_url"`
	Map      string       `json:"map"` // canonical text
	Servers  []stateChild `json:"servers"`
}

// A child is a process and what tells it from later ones with its number.
type child struct {
	Pid      int    `json:"pid"`
	Identity string `json:"identity"`
}

type stateChild struct {
	child
	Name    string `json:"name"`
	Address string `json:"address"`
}

func (c child) alive() bool { return c.Identity != "" && identity(c.Pid) == c.Identity }

// end sends sig to the very process and waits until it is gone.
func (c child) end(ctx context.Context, sig syscall.Signal) error {
	p, err := os.FindProcess(c.Pid) // holds on to that process
	if err != nil || !c.alive() {
		return nil
	}
	if err := p.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("localstack: signal process %d: %w", c.Pid, err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for c.alive() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("localstack: process %d does not end: %w", c.Pid, ctx.Err())
		}
	}
	return nil
}

func stateFile(dir string) string { return filepath.Join(dir, "state.json") }

// readState returns the state of a directory's supervisor. running is false when
// there is none; what a crashed one left is returned all the same.
func readState(dir string) (s state, running bool, err error) {
	text, err := os.ReadFile(stateFile(dir))
	if errors.Is(err, os.ErrNotExist) {
		return state{}, false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return state{}, false, fmt.Errorf("localstack: %s: %w", stateFile(dir), err)
	}
	return s, s.alive(), nil
}

// launch starts exe as a supervisor of its own session and returns its state when
// everything answers. It leaves no goroutine behind.
func launch(ctx context.Context, exe, dir string, args ...string) (state, error) {
	if err := os.Remove(stateFile(dir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return state{}, err
	}
	log, err := os.Create(filepath.Join(dir, "supervisor.log"))
	if err != nil {
		return state{}, err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(exe, append([]string{"supervise", "-data", dir}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return state{}, err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		switch s, running, err := readState(dir); {
		case err != nil:
			return state{}, err
		case running && s.Pid == cmd.Process.Pid:
			return s, cmd.Process.Release()
		}
		if identity(cmd.Process.Pid) == "" {
			return state{}, fmt.Errorf("localstack: the supervisor ended: %w%s", cmd.Wait(), tail(log.Name()))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			_ = cmd.Process.Kill() // its servers die with it
			return state{}, errors.Join(fmt.Errorf("localstack: the servers do not answer: %w%s", ctx.Err(), tail(log.Name())), cmd.Wait())
		}
	}
}

// Supervise runs the stack of dir until ctx ends, or one of its servers does. It is
// the whole of a supervisor's life; cmd calls it.
func Supervise(ctx context.Context, dir string) error {
	s, err := Start(ctx, Options{Dir: dir})
	if err != nil {
		return err
	}
	if err := s.publish(dir); err != nil {
		return errors.Join(err, s.Close())
	}
	var failed error
	select {
	case <-ctx.Done():
	case failed = <-s.anyEnds():
	}
	return errors.Join(failed, s.Close(), os.Remove(stateFile(dir)))
}

// SuperviseTests runs servers without databases for the tests of a run, see Test,
// until nobody has used them for the grace, ctx ends, or one of the servers does. Then
// it removes their data.
func SuperviseTests(ctx context.Context, dir string, grace time.Duration) error {
	data, err := os.MkdirTemp(dir, "run-")
	if err != nil {
		return err
	}
	s, err := Start(ctx, Options{Dir: data, bare: true})
	if err != nil {
		return errors.Join(err, os.RemoveAll(data))
	}
	s.remove = true
	if err := s.publish(dir); err != nil {
		return errors.Join(err, s.Close())
	}
	tick := time.NewTicker(min(grace/4, 500*time.Millisecond))
	defer tick.Stop()
	ends := s.anyEnds()
	used := time.Now()
	for {
		select {
		case <-ctx.Done():
			return errors.Join(s.Close(), os.Remove(stateFile(dir)))
		case err := <-ends:
			return errors.Join(err, s.Close(), os.Remove(stateFile(dir)))
		case <-tick.C:
		}
		// New users come only under the gate. While it is held here and nobody has the
		// use lock, nobody has the servers and nobody can get them.
		gate, err := tryLock(gateFile(dir), exclusive)
		if err != nil {
			used = time.Now() // somebody is at the gate
			continue
		}
		use, err := tryLock(useFile(dir), exclusive)
		switch {
		case err != nil:
			used = time.Now()
		case time.Since(used) >= grace:
			err := errors.Join(os.Remove(stateFile(dir)), s.Close())
			use.unlock()
			gate.unlock()
			return err
		default:
			use.unlock()
		}
		gate.unlock()
	}
}

// publish writes the state.
func (s *Stack) publish(dir string) error {
	me := os.Getpid()
	st := state{
		child:    child{Pid: me, Identity: identity(me)},
		Password: s.Password, NATSURL: s.NATSURL, Map: string(s.Map.Text()),
	}
	for _, srv := range s.sorted() {
		pid := srv.Pid()
		st.Servers = append(st.Servers, stateChild{child{Pid: pid, Identity: identity(pid)}, srv.name, srv.address})
	}
	return writeJSON(stateFile(dir), st)
}

// anyEnds returns a channel that gets an error when one of the servers ends.
func (s *Stack) anyEnds() <-chan error {
	ends := make(chan error, len(s.servers))
	for _, srv := range s.servers {
		if p := srv.running(); p != nil {
			go func() {
				<-p.done
				ends <- fmt.Errorf("localstack: %s ended by itself: %w%s", srv.name, p.err, tail(srv.logFile))
			}()
		}
	}
	return ends
}
