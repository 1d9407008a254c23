// Package localstack runs the real engines on this machine: MariaDB servers for the
// two clusters, and NATS with JetStream, on free loopback ports and with all their
// data in one directory. It decides how they are started, configured, found again and
// ended; what is done with them is left to its callers.
//
// There are three ways to it:
//
//   - Test gives a test databases and streams of its own on servers that all tests
//     of a run share, in whatever process they run. Private gives it servers of its
//     own, to stop, kill or freeze.
//   - Up and Down are "make up" and "make down": servers that stay.
//   - Start is for a program that carries its servers with it.
//
// Servers are children of the process that started them, or of a supervisor, and
// none outlives it. The variables LOCALSTACK_UID_ADDR, LOCALSTACK_BID_ADDR,
// LOCALSTACK_NATS_URL, LOCALSTACK_USER and LOCALSTACK_PASSWORD together make Test use
// servers that exist; those must have the settings of the design, and the user may do
// everything on them.
package localstack

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/shardmap"
	"golang.org/x/sync/errgroup"
	"gopkg.in/yaml.v3"
)

// A Need is a part of a stack.
type Need string

// The parts. A MariaDB server is started when one of its databases is needed.
const (
	UID  Need = "uid"  // the databases of the uid cluster, migrated
	BID  Need = "bid"  // those of the bid cluster
	Meta Need = "meta" // the meta database, on the first uid server
	NATS Need = "nats" // NATS with JetStream; no streams
)

// Options says what a stack is made of. The zero value is: everything, eight
// databases in each cluster, one server for each cluster, in a temporary directory.
type Options struct {
	Dir        string   // where the data is and stays; "": a temporary one, removed by Close
	Need       []Need   // nil: everything
	UIDServers int      // uid-a, uid-b, …; 1
	BIDServers int      // bid-a, bid-b, …; 1
	Databases  int      // of each cluster; 8
	Prefix     string   // of the map
	Install    bool     // may install MariaDB with apt-get where that is possible
	Args, Env  []string // more options and variables of mariadbd

	Log func(string) // told what takes long; nil: nobody

	bare bool // no databases: each test makes its own
}

type logf func(format string, args ...any)

func (o Options) logf(format string, args ...any) {
	if o.Log != nil {
		o.Log(fmt.Sprintf(format, args...))
	}
}

func (o Options) needs(n Need) bool { return o.Need == nil || slices.Contains(o.Need, n) }

// A Stack is running engines and the databases of one map on them.
type Stack struct {
	Map            *shardmap.Map
	User, Password string // of the programs, on every MariaDB server
	NATSURL        string // "" when NATS isn't needed
	Dir            string // "" when the servers are others'

	admin   string // the user that may do everything
	servers map[string]*Server
	options Options
	held    *fileLock
	remove  bool
}

// Start starts the servers of a new stack, or those of an earlier one in o.Dir with
// their data and addresses, and makes and migrates the databases. The servers die
// with this process; Close ends them properly.
func Start(ctx context.Context, o Options) (*Stack, error) {
	bin, err := find(ctx, o)
	if err != nil {
		return nil, err
	}
	s := &Stack{User: userName, admin: adminName, servers: map[string]*Server{}, options: o, Dir: o.Dir}
	if s.Dir == "" {
		if s.Dir, err = temporaryDir("octopay-stack", "lock"); err != nil {
			return nil, err
		}
		s.remove = true
	}
	if s.Dir, err = filepath.Abs(s.Dir); err != nil {
		return nil, err
	}
	err = s.start(ctx, bin)
	if err == nil && !o.bare {
		err = s.migrate(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Stack) start(ctx context.Context, bin binaries) (err error) {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return err
	}
	if s.held, err = tryLock(filepath.Join(s.Dir, "lock"), exclusive); err != nil {
		return fmt.Errorf("localstack: %s is in use: %w", s.Dir, err)
	}
	plan, err := s.plan()
	if err != nil {
		return err
	}
	s.Password = plan.Password
	if s.Map, err = plan.mapOf(s.options); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, p := range plan.Servers {
		dir := filepath.Join(s.Dir, p.Name)
		if p.Name == "nats" {
			if s.options.needs(NATS) {
				n := natsServer{bin: bin, dir: dir, address: p.Address}
				srv := n.server()
				s.NATSURL, s.servers[p.Name] = n.url(), srv
				g.Go(func() error {
					if err := n.prepare(); err != nil {
						return fmt.Errorf("localstack: nats: %w", err)
					}
					return srv.Start(ctx)
				})
			}
			continue
		}
		m := mariadb{bin: bin, dir: dir, address: p.Address, serverID: p.ID, password: plan.Password, args: s.options.Args, env: s.options.Env}
		srv := m.server(p.Name)
		s.servers[p.Name] = srv
		if s.options.needs(Need(p.Kind)) || p.Name == "uid-a" && s.options.needs(Meta) {
			g.Go(func() error {
				if err := m.prepare(); err != nil {
					return fmt.Errorf("localstack: %s: %w", p.Name, err)
				}
				return srv.Start(ctx)
			})
		}
	}
	return g.Wait()
}

// Close ends the servers that are running, and removes the data unless Options.Dir
// keeps it.
func (s *Stack) Close() error {
	var wait sync.WaitGroup
	errs := make([]error, len(s.servers))
	for i, srv := range s.sorted() {
		end := srv.Stop
		if s.remove {
			end = srv.Kill // nothing to keep
		}
		if srv.command != nil {
			wait.Go(func() { errs[i] = end() })
		}
	}
	wait.Wait()
	if s.remove {
		errs = append(errs, os.RemoveAll(s.Dir))
	}
	if s.held != nil {
		s.held.unlock()
		s.held = nil
	}
	return errors.Join(errs...)
}

// Server returns a server by its name in the map, or "nats"; nil when there is none.
func (s *Stack) Server(name string) *Server { return s.servers[name] }

// sorted returns the servers by name.
func (s *Stack) sorted() []*Server {
	return slices.SortedFunc(maps.Values(s.servers), func(a, b *Server) int { return strings.Compare(a.name, b.name) })
}

// patience is what a test's own questions are given, where a program in production gives
// up after a second or three: how busy the machine is must not decide a test.
const patience = time.Minute

// Cluster opens the databases of the stack, for reads that wait patiently, and closes
// them at the test's end.
func (s *Stack) Cluster(t testing.TB) *cluster.Cluster {
	c := cluster.Open(s.Map, cluster.Config{
		User: s.User, Password: s.Password,
		PermitWait: patience, DialTimeout: patience, ReadTimeout: patience,
	})
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close the cluster: %v", err)
		}
	})
	return c
}

// Admin opens a pool on a server for a user who may do everything there, such as SET
// GLOBAL, and closes it at the test's end. It has no default database.
func (s *Stack) Admin(t testing.TB, server string) *sql.DB {
	t.Helper()
	srv := s.servers[server]
	if srv == nil {
		t.Fatalf("localstack: no server %q", server)
	}
	db := openSQL(srv.address, s.admin, s.Password)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Via returns the stack as it is seen through a proxy: the map, or NATSURL for "nats",
// says that the server is at address. All else is the same; the epoch too, but the
// map's hash is another.
func (s *Stack) Via(t testing.TB, server, address string) *Stack {
	t.Helper()
	via := *s
	if server == "nats" {
		via.NATSURL = "nats://" + address
		return &via
	}
	via.Map = remap(t, s.Map, func(spec *shardmap.Spec) {
		i := slices.IndexFunc(spec.Servers, func(x shardmap.Server) bool { return x.Name == server })
		if i < 0 {
			t.Fatalf("localstack: the map has no server %q", server)
		}
		spec.Servers[i].Address = address
	})
	return &via
}

// remap returns m with a change.
func remap(t testing.TB, m *shardmap.Map, change func(*shardmap.Spec)) *shardmap.Map {
	t.Helper()
	var spec shardmap.Spec
	if err := yaml.Unmarshal(m.Text(), &spec); err != nil {
		t.Fatal(err)
	}
	change(&spec)
	m, err := shardmap.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A plan is what a stack's directory keeps, so that a stack started again has the
// addresses and passwords that others know of it.
type plan struct {
	Password string          `json:"password"`
	Servers  []plannedServer `json:"servers"`
}

type plannedServer struct {
	Name    string `json:"name"`
	Kind    string `json:"kind"` // uid, bid, nats
	Address string `json:"address"`
	ID      int    `json:"id"` // server_id and GTID domain
}

// plan reads the directory's plan, or makes one.
func (s *Stack) plan() (plan, error) {
	fresh := plan{Password: rand.Text()}
	add := func(kind string, n, firstID int) {
		for i := range max(n, 1) {
			fresh.Servers = append(fresh.Servers, plannedServer{
				Name: fmt.Sprintf("%s-%c", kind, 'a'+i), Kind: kind, ID: firstID + i,
			})
		}
	}
	add("uid", s.options.UIDServers, 101)
	add("bid", s.options.BIDServers, 201)
	fresh.Servers = append(fresh.Servers, plannedServer{Name: "nats", Kind: "nats"})

	file := filepath.Join(s.Dir, "plan.json")
	text, err := os.ReadFile(file)
	if err == nil {
		var kept plan
		if err := json.Unmarshal(text, &kept); err != nil {
			return plan{}, fmt.Errorf("localstack: %s: %w", file, err)
		}
		if !slices.EqualFunc(kept.Servers, fresh.Servers, func(a, b plannedServer) bool { return a.Name == b.Name && a.ID == b.ID }) {
			return plan{}, fmt.Errorf("localstack: %s holds a stack of other servers", s.Dir)
		}
		return kept, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return plan{}, err
	}
	taken := map[int]bool{}
	for i := range fresh.Servers {
		port, err := freePort(taken)
		if err != nil {
			return plan{}, err
		}
		fresh.Servers[i].Address = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	return fresh, writeJSON(file, fresh)
}

// mapOf places the databases on the servers of their cluster in turn.
func (p plan) mapOf(o Options) (*shardmap.Map, error) {
	spec := shardmap.Spec{Epoch: 1, Prefix: o.Prefix, Meta: "uid-a"}
	place := func(kind string) (out []shardmap.Placement) {
		var names []string
		for _, s := range p.Servers {
			if s.Kind == kind {
				names = append(names, s.Name)
				spec.Servers = append(spec.Servers, shardmap.Server{Name: s.Name, Address: s.Address})
			}
		}
		n := o.Databases
		if n == 0 {
			n = 8
		}
		for d := range n {
			out = append(out, shardmap.Placement{Database: d + 1, Server: names[d%len(names)]})
		}
		return out
	}
	spec.UID, spec.BID = place("uid"), place("bid")
	return shardmap.New(spec)
}

// freePort finds a port that nobody listens on. Ports that the system gives to
// outgoing connections are not used: one of those could take the place of a server
// that is stopped for a while.
func freePort(taken map[int]bool) (int, error) {
	for range 200 {
		port := 12000 + mathrand.IntN(18000)
		if taken[port] {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		taken[port] = true
		return port, l.Close()
	}
	return 0, errors.New("localstack: no free port from 12000 to 29999")
}

// writeJSON replaces a file, all of it or nothing.
func writeJSON(file string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(file, append(text, '\n'))
}

func writeFile(file string, text []byte) error {
	part := file + ".part"
	if err := os.WriteFile(part, text, 0o600); err != nil {
		return err
	}
	return os.Rename(part, file)
}
