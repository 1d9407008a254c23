package e2e_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/services/internal/boottest"
)

// binaries builds the production programs, once for all tests of this package, and
// returns the folder that they are in.
var binaries = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "octopay-e2e-")
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-o", dir+"/", "../../orderd", "../../syncerd", "../../octopay").CombinedOutput()
	if err != nil {
		return dir, errors.New(string(out))
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := binaries(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// environment is what a program needs to know of a stack.
func environment(t testing.TB, s *localstack.Stack) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "map.yaml")
	if err := os.WriteFile(path, s.Map.Text(), 0o600); err != nil {
		t.Fatal(err)
	}
	return append(os.Environ(),
		"OCTOPAY_MAP_FILE="+path, "OCTOPAY_DB_USER="+s.User, "OCTOPAY_DB_PASSWORD="+s.Password,
		"OCTOPAY_NATS_URL="+s.NATSURL, keyVariable+boottest.Key(t, s))
}

// keyVariable holds the key of an app, for whoever asks a program with this environment.
const keyVariable = "E2E_KEY="

// keys are these keys by the program's host.
var keys sync.Map

func keyOf(t testing.TB, host string) string {
	t.Helper()
	key, ok := keys.Load(host)
	if !ok {
		t.Errorf("nobody knows a key for %s", host)
		return ""
	}
	return key.(string)
}

// operate runs the operator's command and returns what it writes.
func operate(t *testing.T, env []string, args ...string) ([]byte, error) {
	t.Helper()
	dir, err := binaries()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "octopay"), args...)
	cmd.Env = env
	return cmd.CombinedOutput()
}

// A program is a process of ours that a test runs.
type program struct {
	name string
	cmd  *exec.Cmd
	api  string // base URL, of programs that serve one
	ops  string
	done chan struct{} // closed when the process is gone and its log is read
	err  error         // of its end

	mu  sync.Mutex
	log []string
}

// start runs a program and returns when its ops port answers. It is ended, by
// SIGTERM, with the test; its log is shown when the test failed.
func start(t testing.TB, name string, env []string) *program {
	t.Helper()
	listeners := 1
	if name == "orderd" {
		listeners = 2
	}
	return launch(t, name, env, listeners)
}

// launch is start that waits for so many listeners: one that waits for something has the
// ops port alone.
func launch(t testing.TB, name string, env []string, listeners int) *program {
	t.Helper()
	dir, err := binaries()
	if err != nil {
		t.Fatalf("build: %v", err)
	}
	args := []string{}
	p := &program{name: name, cmd: exec.Command(filepath.Join(dir, name), args...), done: make(chan struct{})}
	p.cmd.Env = append(env, "OCTOPAY_OPS_ADDR=127.0.0.1:0")
	if name == "orderd" {
		p.cmd.Env = append(p.cmd.Env, "OCTOPAY_ADDR=127.0.0.1:0")
	}
	r, w := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = w, w
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	addresses := make(chan [2]string, 2)
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var said struct{ Msg, Listener, Addr string }
			if json.Unmarshal(lines.Bytes(), &said) == nil && said.Msg == "listening" {
				addresses <- [2]string{said.Listener, said.Addr}
			}
			p.mu.Lock()
			p.log = append(p.log, lines.Text())
			p.mu.Unlock()
		}
	}()
	go func() {
		p.err = p.cmd.Wait()
		_ = w.Close()
		<-read
		close(p.done)
	}()
	t.Cleanup(func() {
		p.terminate(t)
		if t.Failed() {
			t.Logf("%s[%d] ends its log:\n%s", name, p.cmd.Process.Pid, p.tail())
		}
	})
	deadline := time.After(eventually.Patience)
	for range listeners {
		select {
		case a := <-addresses:
			if a[0] == "ops" {
				p.ops = "http://" + a[1]
			} else {
				p.api = "http://" + a[1]
				for _, pair := range env {
					if key, is := strings.CutPrefix(pair, keyVariable); is {
						keys.Store(a[1], key)
					}
				}
			}
		case <-p.done:
			t.Fatalf("%s ended at start: %v\n%s", name, p.err, p.tail())
		case <-deadline:
			t.Fatalf("%s does not listen\n%s", name, p.tail())
		}
	}
	return p
}

func (p *program) tail() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.log[max(0, len(p.log)-30):], "\n")
}

// said reports whether a line of the log holds all of these.
func (p *program) said(parts ...string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.log, func(line string) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) })
	})
}

// ready waits until the program says that it is.
func (p *program) ready(t testing.TB) *program {
	t.Helper()
	eventually.True(t, p.name+" is ready", func() bool {
		resp, err := http.Get(p.ops + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return p
}

// kill ends the process with SIGKILL and proves that this ended it.
func (p *program) kill(t testing.TB) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatalf("kill %s: %v", p.name, err)
	}
	<-p.done
	var exit *exec.ExitError
	if !errors.As(p.err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("%s was not killed: %v", p.name, p.err)
	}
}

// terminate asks the process to end and waits until it has. Ending with an error is
// a fault.
func (p *program) terminate(t testing.TB) {
	select {
	case <-p.done:
		return
	default:
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		if p.err != nil {
			t.Errorf("%s ended with %v\n%s", p.name, p.err, p.tail())
		}
	case <-time.After(eventually.Patience):
		_ = p.cmd.Process.Kill()
		<-p.done
		t.Errorf("%s did not end after SIGTERM\n%s", p.name, p.tail())
	}
}
