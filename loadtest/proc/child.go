package proc

import (
	"os/exec"
	"runtime"
	"syscall"
)

// A Child is a process that was started by Start.
type Child struct {
	done chan struct{}
	err  error
}

// Start starts cmd as a process that doesn't outlive this one, where the system can do
// that, and in a process group of its own: Ctrl-C reaches this process alone, which then
// ends its children in order. It changes cmd.SysProcAttr.
func Start(cmd *exec.Cmd) (*Child, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	c := &Child{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The child dies with the thread that started it: so that thread must be there
		// until the child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			c.err = cmd.Wait()
			close(c.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// Done is closed when the process has ended and was waited for.
func (c *Child) Done() <-chan struct{} { return c.done }

// Err returns what exec.Cmd.Wait said of the process's end, when that has come.
func (c *Child) Err() error { return c.err }
