package localstack

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/octopay/octopay/shardmap"
)

// Variables that name servers which exist; then Test starts none. They don't begin
// with OCTOPAY_, because programs refuse variables of that name that they don't know.
const (
	envUID      = "LOCALSTACK_UID_ADDR" // host:port of the MariaDB server of the uid cluster
	envBID      = "LOCALSTACK_BID_ADDR" // of the bid cluster
	envNATS     = "LOCALSTACK_NATS_URL"
	envUser     = "LOCALSTACK_USER" // may do everything on both servers
	envPassword = "LOCALSTACK_PASSWORD"
)

const (
	// startWithin bounds the wait for the shared servers, installing and building
	// included.
	startWithin = 8 * time.Minute
	// grace is how long the shared servers outlive their last user: longer than the
	// gap between two test binaries of one run.
	grace = 30 * time.Second
	// databasesWithin bounds making or dropping the databases of one test.
	databasesWithin = 5 * time.Minute
)

// Test returns databases and a stream prefix of t's own on servers that all tests of
// the run share: those of the parts that are needed, by default everything. They are
// dropped at t's end. The first user starts the servers, and they end when the last
// one has been gone for half a minute.
//
// A test that cannot have them fails.
func Test(t testing.TB, need ...Need) *Stack {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	s, err := fromEnv()
	if err == nil && s == nil {
		s, err = thisProcess.stack(ctx, func(line string) { t.Log(line) })
	}
	if err != nil {
		t.Fatal(err)
	}
	s.options = Options{Need: need}
	s.Map = remap(t, s.Map, func(spec *shardmap.Spec) { spec.Prefix = "t" + strings.ToLower(rand.Text()[:12]) + "_" })
	ctx, cancel = context.WithTimeout(context.Background(), databasesWithin)
	defer cancel()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), databasesWithin)
		defer cancel()
		if err := s.drop(ctx); err != nil {
			t.Errorf("localstack: drop the databases of this test: %v", err)
		}
	})
	if err := s.migrate(ctx); err != nil {
		t.Fatal(err)
	}
	return s
}

// Private returns servers of t's own, which t may stop, kill and freeze. They and
// their data are gone after t, unless o.Dir keeps the data.
func Private(t testing.TB, o Options) *Stack {
	t.Helper()
	o.Install = true
	if o.Log == nil {
		o.Log = func(line string) { t.Log(line) }
	}
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	s, err := Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("localstack: close: %v", err)
		}
	})
	return s
}

// fromEnv returns the stack that the variables name, nil when they name none.
func fromEnv() (*Stack, error) {
	var missing []string
	values := map[string]string{}
	for _, name := range []string{envUID, envBID, envNATS, envUser, envPassword} {
		if v, ok := os.LookupEnv(name); ok {
			values[name] = v
		} else {
			missing = append(missing, name)
		}
	}
	if len(values) == 0 {
		return nil, nil
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("localstack: some of its variables are set, but not %s", strings.Join(missing, ", "))
	}
	m, err := plan{Servers: []plannedServer{
		{Name: "uid-a", Kind: "uid", Address: values[envUID]},
		{Name: "bid-a", Kind: "bid", Address: values[envBID]},
	}}.mapOf(Options{})
	if err != nil {
		return nil, err
	}
	return attach(m, values[envUser], values[envUser], values[envPassword], values[envNATS]), nil
}

// attach makes a stack of servers that others run.
func attach(m *shardmap.Map, user, admin, password, natsURL string) *Stack {
	s := &Stack{Map: m, User: user, admin: admin, Password: password, NATSURL: natsURL, servers: map[string]*Server{}}
	for _, c := range []shardmap.Cluster{shardmap.UID, shardmap.BID} {
		for _, srv := range m.Servers(c) {
			s.servers[srv.Name] = &Server{name: srv.Name, address: srv.Address}
		}
	}
	s.servers["nats"] = &Server{name: "nats", address: strings.TrimPrefix(natsURL, "nats://")}
	return s
}

// A sharer is one user of the shared servers.
type sharer struct {
	grace time.Duration

	mu    sync.Mutex
	use   *fileLock // held until the end of the process
	state state
}

// thisProcess never leaves: its lock says that this process, until its end, uses the
// servers.
var thisProcess = sharer{grace: grace}

func gateFile(dir string) string { return filepath.Join(dir, "gate.lock") }
func useFile(dir string) string  { return filepath.Join(dir, "use.lock") }

func (u *sharer) stack(ctx context.Context, log func(string)) (*Stack, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.use == nil || !u.state.alive() {
		dir, err := sharedDir()
		if err != nil {
			return nil, err
		}
		if err := u.join(ctx, dir, log); err != nil {
			return nil, err
		}
	}
	m, err := shardmap.Parse([]byte(u.state.Map))
	if err != nil {
		return nil, err
	}
	return attach(m, userName, adminName, u.state.Password, u.state.NATSURL), nil
}

// join takes the use lock and starts the servers when there are none. Both happen
// under the gate, where a supervisor can't be about to end.
func (u *sharer) join(ctx context.Context, dir string, log func(string)) error {
	gate, err := lockFile(ctx, gateFile(dir), exclusive)
	if err != nil {
		return err
	}
	defer gate.unlock()
	if u.use == nil {
		if u.use, err = tryLock(useFile(dir), shared); err != nil {
			return err
		}
	}
	s, running, err := readState(dir)
	if err != nil {
		return err
	}
	if !running {
		if err := sweep(ctx, dir, s); err != nil {
			return err
		}
		if s, err = startShared(ctx, dir, u.grace, log); err != nil {
			return err
		}
	}
	u.state = s
	return nil
}

// sweep removes what a run that crashed left.
func sweep(ctx context.Context, dir string, s state) error {
	for _, c := range s.Servers { // they died with their supervisor, where the system does that
		if err := c.end(ctx, syscall.SIGKILL); err != nil {
			return err
		}
	}
	old, err := filepath.Glob(filepath.Join(dir, "run-*"))
	for _, d := range old {
		err = errors.Join(err, os.RemoveAll(d))
	}
	return err
}

// startShared builds and launches a supervisor.
func startShared(ctx context.Context, dir string, grace time.Duration, log func(string)) (state, error) {
	// Found and built here, where the user sees what takes long.
	if _, err := find(ctx, Options{Install: true, Log: log}); err != nil {
		return state{}, err
	}
	root, err := moduleRoot()
	if err != nil {
		return state{}, err
	}
	exe := filepath.Join(dir, "supervisor")
	if err := goBuild(ctx, root, exe, "./internal/localstack/cmd"); err != nil {
		return state{}, err
	}
	return launch(ctx, exe, dir, "-tests", grace.String())
}

// sharedDir returns the directory of the shared servers: one for each user, checkout,
// and version of how the servers are configured.
func sharedDir() (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(fmt.Sprint(root, settings(0), initSQL, natsConf)))
	return privateTempDir(fmt.Sprintf("octopay-test-%d-%x", os.Geteuid(), sum[:6]))
}
