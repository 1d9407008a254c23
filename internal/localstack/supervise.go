package localstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// A state is what a supervisor says about itself and its servers, in state.json. It
// is written when everything answers, and again after each start of what was missing.
type state struct {
	child
	Asked    int          `json:"asked,omitempty"` // how often what was missing was started
	Fault    string       `json:"fault,omitempty"` // of the last time
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

// signal sends sig to the very process, if it is there.
func (c child) signal(sig syscall.Signal) error {
	p, err := os.FindProcess(c.Pid) // holds on to that process
	if err != nil || !c.alive() {
		return nil
	}
	if err := p.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("localstack: signal process %d: %w", c.Pid, err)
	}
	return nil
}

// end sends sig to the very process and waits until it is gone.
func (c child) end(ctx context.Context, sig syscall.Signal) error {
	if err := c.signal(sig); err != nil {
		return err
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
	log, err := openLog(logFile(dir))
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

// logBytesMax is how large the log of supervisors may be when another one begins.
const logBytesMax = 1 << 20

func logFile(dir string) string { return filepath.Join(dir, "supervisor.log") }

// openLog opens a log to write on at its end, so that it still says why the supervisor
// before ended. One that has become large begins anew.
func openLog(file string) (*os.File, error) {
	how := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if info, err := os.Stat(file); err == nil && info.Size() > logBytesMax {
		how |= os.O_TRUNC
	}
	return os.OpenFile(file, how, 0o600)
}

// A sayer writes lines with the time.
type sayer struct{ w io.Writer }

func (s sayer) say(format string, args ...any) {
	fmt.Fprintf(s.w, "%s %s\n", time.Now().UTC().Format(time.RFC3339), fmt.Sprintf(format, args...))
}

// Supervise runs the stack of dir until ctx ends. A server that ends by itself stays
// away and the others go on, because people kill servers to see what happens then; the
// log says which one, when and how. Each value from again, such as of a signal, starts
// what is missing. Supervise is the whole of a supervisor's life; cmd calls it.
func Supervise(ctx context.Context, dir string, log io.Writer, again <-chan os.Signal) error {
	to := sayer{log}
	s, err := Start(ctx, Options{Dir: dir})
	if err != nil {
		return err
	}
	if err := s.publish(dir, 0, nil); err != nil {
		return errors.Join(err, s.Close())
	}
	ends := make(chan ended)
	for _, srv := range s.sorted() {
		to.say("%s serves at %s (process %d)", srv.name, srv.address, srv.Pid())
		srv.watch(ctx, ends)
	}
	for asked := 0; ; {
		select {
		case <-ctx.Done():
			to.say("stopping all")
			return errors.Join(s.Close(), os.Remove(stateFile(dir)))
		case e := <-ends:
			to.say("%s; the others go on, and make up starts it again; it wrote %s", e, e.server.logFile)
		case <-again:
			asked++
			var faults []error
			for _, srv := range s.sorted() {
				if srv.running() != nil {
					continue
				}
				if err := srv.Start(ctx); err != nil {
					to.say("%s can't be started: %v", srv.name, err)
					faults = append(faults, err)
					continue
				}
				to.say("%s serves again at %s (process %d)", srv.name, srv.address, srv.Pid())
				srv.watch(ctx, ends)
			}
			if err := s.publish(dir, asked, errors.Join(faults...)); err != nil {
				return errors.Join(err, s.Close())
			}
		}
	}
}

// An ended is a server whose process ended by itself.
type ended struct {
	server *Server
	pid    int
	how    error
}

func (e ended) String() string {
	how := "with status 0"
	if e.how != nil {
		how = e.how.Error()
	}
	return fmt.Sprintf("%s (process %d) ended by itself: %s", e.server.name, e.pid, how)
}

// watch sends to ends when the process that runs now has ended, unless ctx has.
func (s *Server) watch(ctx context.Context, ends chan<- ended) {
	p := s.running()
	if p == nil {
		return
	}
	go func() {
		<-p.done
		select {
		case ends <- ended{s, p.cmd.Process.Pid, p.err}:
		case <-ctx.Done():
		}
	}()
}

// SuperviseTests runs servers without databases for the tests of a run, see Test,
// until nobody has used them for the grace, ctx ends, or one of the servers does: what
// a test broke is not for the next one, so then all end, and the log says why. It
// removes their data.
func SuperviseTests(ctx context.Context, dir string, log io.Writer, grace time.Duration) error {
	to := sayer{log}
	data, err := os.MkdirTemp(dir, "run-")
	if err != nil {
		return err
	}
	s, err := Start(ctx, Options{Dir: data, bare: true})
	if err != nil {
		return errors.Join(err, os.RemoveAll(data))
	}
	s.remove = true
	if err := s.publish(dir, 0, nil); err != nil {
		return errors.Join(err, s.Close())
	}
	watched, stop := context.WithCancel(ctx)
	defer stop()
	ends := make(chan ended)
	for _, srv := range s.sorted() {
		to.say("%s serves the tests at %s (process %d)", srv.name, srv.address, srv.Pid())
		srv.watch(watched, ends)
	}
	tick := time.NewTicker(min(grace/4, 500*time.Millisecond))
	defer tick.Stop()
	used := time.Now()
	for {
		select {
		case <-ctx.Done():
			to.say("told to stop all")
			return errors.Join(s.Close(), os.Remove(stateFile(dir)))
		case e := <-ends:
			to.say("%s; all end now, since no test may go on with what one has broken%s", e, tail(e.server.logFile))
			return errors.Join(s.Close(), os.Remove(stateFile(dir)))
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
			to.say("nobody has used them for %s: all end", grace)
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
func (s *Stack) publish(dir string, asked int, fault error) error {
	me := os.Getpid()
	st := state{
		child: child{Pid: me, Identity: identity(me)}, Asked: asked,
		Password: s.Password, NATSURL: s.NATSURL, Map: string(s.Map.Text()),
	}
	if fault != nil {
		st.Fault = fault.Error()
	}
	for _, srv := range s.sorted() {
		pid := srv.Pid()
		st.Servers = append(st.Servers, stateChild{child{Pid: pid, Identity: identity(pid)}, srv.name, srv.address})
	}
	return writeJSON(stateFile(dir), st)
}
