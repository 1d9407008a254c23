package localstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	readyWithin = 3 * time.Minute // recovery after a kill included
	stopWithin  = 2 * time.Minute
)

// ErrNotOurs reports an order to a server that this process did not start: the
// servers of Test are shared by all tests of the run.
var ErrNotOurs = errors.New("localstack: this server is shared; stop or freeze one of Private")

// A Server is one engine of a Stack: a MariaDB server, or "nats". Its methods are
// safe for concurrent use; a started one keeps its address and its data.
type Server struct {
	name    string
	address string
	logFile string
	command func() *exec.Cmd            // nil: not ours
	ready   func(context.Context) error // nil when the server answers

	mu   sync.Mutex
	proc *process // nil: not running
}

// Name returns the server's name in the map, or "nats".
func (s *Server) Name() string { return s.name }

// Address returns host:port.
func (s *Server) Address() string { return s.address }

// Start starts the server and returns when it answers. The end of what the server
// logged is part of an error.
func (s *Server) Start(ctx context.Context) error {
	if s.command == nil {
		return ErrNotOurs
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alive() != nil {
		return fmt.Errorf("localstack: %s is running", s.name)
	}
	p, err := run(s.command())
	if err != nil {
		return fmt.Errorf("localstack: start %s: %w", s.name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	if err := p.await(ctx, s.ready); err != nil {
		_ = p.signal(syscall.SIGKILL)
		<-p.done
		return fmt.Errorf("localstack: %s at %s does not answer: %w%s", s.name, s.address, err, tail(s.logFile))
	}
	s.proc = p
	return nil
}

// Stop ends the server in its own orderly way and returns when it is gone.
func (s *Server) Stop() error { return s.end(syscall.SIGTERM) }

// Kill ends the server at once (SIGKILL), as a crash does, and returns when it is
// gone.
func (s *Server) Kill() error { return s.end(syscall.SIGKILL) }

// Pause freezes the server (SIGSTOP) and returns when all of it stands still: its
// connections stay open and nothing answers.
func (s *Server) Pause() error {
	if err := s.control(syscall.SIGSTOP); err != nil {
		return err
	}
	// The signal reaches one thread, which stops the others when it gets its turn.
	limit := time.Now().Add(stopWithin)
	for pid := s.Pid(); pid != 0 && !frozen(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			return fmt.Errorf("localstack: %s is not frozen after %s", s.name, stopWithin)
		}
	}
	return nil
}

// Continue ends a Pause.
func (s *Server) Continue() error { return s.control(syscall.SIGCONT) }

// Pid returns the process id, 0 when the server is not running or not ours.
func (s *Server) Pid() int {
	if p := s.running(); p != nil {
		return p.cmd.Process.Pid
	}
	return 0
}

func (s *Server) running() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.alive()
}

// alive returns the process, nil when there is none or it ended by itself. s.mu is
// held.
func (s *Server) alive() *process {
	if s.proc != nil {
		select {
		case <-s.proc.done:
			s.proc = nil
		default:
		}
	}
	return s.proc
}

func (s *Server) control(sig syscall.Signal) error {
	if s.command == nil {
		return ErrNotOurs
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.alive()
	if p == nil {
		return fmt.Errorf("localstack: %s is not running", s.name)
	}
	return p.signal(sig)
}

func (s *Server) end(sig syscall.Signal) error {
	if s.command == nil {
		return ErrNotOurs
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return nil
	}
	p := s.proc
	s.proc = nil
	// A frozen process sees no SIGTERM; waking one that isn't frozen does nothing.
	err := errors.Join(p.signal(sig), p.signal(syscall.SIGCONT))
	timer := time.NewTimer(stopWithin)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		_ = p.signal(syscall.SIGKILL)
		<-p.done
		return errors.Join(err, fmt.Errorf("localstack: %s did not stop within %s and was killed%s", s.name, stopWithin, tail(s.logFile)))
	}
}

// A process is a running child.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it is gone and collected
	err  error         // how it ended; read after done
}

// run starts cmd. The goroutine that waits for it stays on the thread that started
// it, because the child dies with that thread.
func run(cmd *exec.Cmd) (*process, error) {
	// A group of its own: Ctrl-C on a terminal goes to the parent, which decides.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	return p, <-started
}

// signal sends sig to the child; that it is gone is no error.
func (p *process) signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// await polls ready until it is nil, the child is gone, or ctx ends.
func (p *process) await(ctx context.Context, ready func(context.Context) error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("it ended: %w", errors.Join(p.err, err))
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// tail returns the end of a log file, for an error's text.
func tail(file string) string {
	const most = 4 << 10
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	if end, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, end-most), io.SeekStart)
	}
	text, _ := io.ReadAll(io.LimitReader(f, most))
	if len(text) == 0 {
		return ""
	}
	return "\n--- the end of " + file + "\n" + strings.TrimSpace(string(text))
}
