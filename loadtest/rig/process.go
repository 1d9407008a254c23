package rig

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/octopay/octopay/loadtest/proc"
)

// A process is a program of ours that was started here.
type process struct {
	program string
	cmd     *exec.Cmd
	logFile string
	logFrom int64             // where its own lines begin
	addrs   map[string]string // by listener
	child   *proc.Child
}

// run starts a program, which appends what it writes to logFile. Nothing of ours is
// between: what the program costs to log is its own.
func run(program, file string, args, environ []string, logFile string) (*process, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	from, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(file, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = environ, log, log
	p := &process{program: program, cmd: cmd, logFile: logFile, logFrom: from, addrs: map[string]string{}}
	return p, p.start()
}

// start starts the command. Ctrl-C reaches us alone, who end it in order.
func (p *process) start() (err error) {
	if p.child, err = proc.Start(p.cmd); err != nil {
		return fmt.Errorf("rig: start %s: %w", p.program, err)
	}
	return nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) url(listener string) string { return "http://" + p.addrs[listener] }

// await waits until the program has logged that it listens at each of the listeners, and
// says on its ops port, if it has one, that it is ready.
func (p *process) await(ctx context.Context, listeners []string) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if p.listens(listeners) && p.ready(ctx) {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.child.Done():
			return fmt.Errorf("rig: %s ended at its start: %w%s", p.program, errors.Join(p.child.Err()), p.tail())
		case <-ctx.Done():
			return fmt.Errorf("rig: %s isn't ready: %w%s", p.program, ctx.Err(), p.tail())
		}
	}
}

// listens reads the log for the addresses of the listeners.
func (p *process) listens(listeners []string) bool {
	if len(p.addrs) == len(listeners) {
		return true
	}
	f, err := os.Open(p.logFile)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(p.logFrom, io.SeekStart); err != nil {
		return false
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var said struct{ Msg, Listener, Addr string }
		if json.Unmarshal(lines.Bytes(), &said) == nil && said.Msg == "listening" {
			p.addrs[said.Listener] = said.Addr
		}
	}
	for _, l := range listeners {
		if p.addrs[l] == "" {
			return false
		}
	}
	return true
}

func (p *process) ready(ctx context.Context) bool {
	if p.addrs["ops"] == "" {
		return true
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url("ops")+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode == http.StatusOK
}

// client asks ops ports.
var client = &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// endWithin is how long a program may take to end: its time for requests under way, and
// some more.
const endWithin = 30 * time.Second

// end ends the process: by SIGTERM, and by SIGKILL when that isn't enough, which is an
// error. So is an end with another status than 0.
func (p *process) end() error {
	select {
	case <-p.child.Done():
		return fmt.Errorf("rig: %s had ended by itself: %w%s", p.program, errors.Join(p.child.Err()), p.tail())
	default:
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Process.Signal(syscall.SIGCONT) // a frozen one sees no SIGTERM
	limit := time.NewTimer(endWithin)
	defer limit.Stop()
	select {
	case <-p.child.Done():
		if p.child.Err() != nil {
			return fmt.Errorf("rig: %s ended with: %w%s", p.program, p.child.Err(), p.tail())
		}
		return nil
	case <-limit.C:
		_ = p.cmd.Process.Kill()
		<-p.child.Done()
		return fmt.Errorf("rig: %s did not end within %s and was killed%s", p.program, endWithin, p.tail())
	}
}

// tail returns the end of the process's log that isn't of requests, for an error's text.
func (p *process) tail() string {
	const most = 64 << 10
	f, err := os.Open(p.logFile)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	if end, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(p.logFrom, end-most), io.SeekStart)
	}
	text, _ := io.ReadAll(io.LimitReader(f, most))
	var lines []string
	for line := range bytes.Lines(text) {
		if !bytes.Contains(line, []byte(`"msg":"request"`)) {
			lines = append(lines, string(line))
		}
	}
	if len(lines) == 0 {
		return ""
	}
	return "\n--- the end of " + p.logFile + "\n" + strings.TrimSpace(strings.Join(lines[max(0, len(lines)-20):], ""))
}
