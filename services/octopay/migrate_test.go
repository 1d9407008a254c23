package main

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/services/internal/boot"
	"github.com/octopay/octopay/shardmap"
)

// specOf is a map whose databases are all on one server.
func specOf(prefix, address string) shardmap.Spec {
	spec := shardmap.Spec{Epoch: 3, Prefix: prefix, Meta: "uid-a", Servers: []shardmap.Server{{Name: "uid-a", Address: address}}}
	for d := 1; d <= 8; d++ {
		p := shardmap.Placement{Database: d, Server: "uid-a"}
		spec.UID, spec.BID = append(spec.UID, p), append(spec.BID, p)
	}
	return spec
}

func mustMap(t *testing.T, spec shardmap.Spec) *shardmap.Map {
	t.Helper()
	m, err := shardmap.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func mapOf(t *testing.T, prefix string) *shardmap.Map {
	return mustMap(t, specOf(prefix, "127.0.0.1:3306"))
}

// A site is a server with no databases yet but the meta database, and the environment
// that an operator has.
type site struct {
	spec shardmap.Spec
	db   *sql.DB
	env  []string
}

func newSite(t *testing.T) *site {
	stack := localstack.Test(t, localstack.Meta)
	server := stack.Map.Meta().Server
	s := &site{
		spec: specOf(stack.Map.Prefix(), server.Address),
		db:   cluster.OpenServer(server, cluster.Config{User: stack.User, Password: stack.Password}),
		env:  []string{"OCTOPAY_DB_USER=" + stack.User, "OCTOPAY_DB_PASSWORD=" + stack.Password},
	}
	t.Cleanup(func() { _ = s.db.Close() })
	return s
}

// migrate runs octopay migrate with a map.
func (s *site) migrate(t *testing.T, spec shardmap.Spec) (code int, stdout, stderr string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "map.yaml")
	if err := os.WriteFile(path, mustMap(t, spec).Text(), 0o600); err != nil {
		t.Fatal(err)
	}
	return octopay(t, s.env, "migrate", "--map", path)
}

// inForce puts a map in force.
func (s *site) inForce(t *testing.T, m *shardmap.Map) {
	t.Helper()
	var shared boot.Shared
	if err := boot.Load(&shared, "", s.env); err != nil {
		t.Fatal(err)
	}
	c := cluster.Open(m, access(shared))
	_, err := cluster.ResolveMap(t.Context(), c, m)
	if err := errors.Join(err, c.Close()); err != nil {
		t.Fatal(err)
	}
}

func (s *site) text(t *testing.T, query string) string {
	t.Helper()
	var out sql.NullString
	if err := s.db.QueryRowContext(t.Context(), query).Scan(&out); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return out.String
}

func (s *site) schemas(t *testing.T) string {
	t.Helper()
	return s.text(t, fmt.Sprintf("SELECT COUNT(*) FROM information_schema.schemata WHERE LEFT(schema_name, %d) = '%s'", len(s.spec.Prefix), s.spec.Prefix))
}

// One site for all, in this order: to make seventeen databases takes seconds.
func TestMigrate(t *testing.T) {
	s := newSite(t)
	for _, step := range []struct {
		name string
		test func(*testing.T, *site)
	}{
		{"it makes every database and puts the map in force", makesEveryDatabase},
		{"a second time nothing is left to do", makesEveryDatabase},
		{"it refuses a database that is being migrated", refusesTwoAtOnce},
		{"with another map of this epoch it touches nothing", refusesAConflict},
		{"it uses the newer map of the meta database", usesTheNewerMap},
		{"it names the databases of a server that is away", namesWhatFailed},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.test(t, s) }) {
			return
		}
	}
}

func makesEveryDatabase(t *testing.T, s *site) {
	code, stdout, stderr := s.migrate(t, s.spec)
	if code != 0 || stderr != "" {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	if n := strings.Count(stdout, "is up to date\n"); n != 17 || !strings.Contains(stdout, "17 databases are up to date. The map of epoch 3 is in force") {
		t.Errorf("%d databases; the output:\n%s", n, stdout)
	}
	if got := s.schemas(t); got != "17" {
		t.Errorf("%s databases", got)
	}
	for _, c := range []string{"uid", "bid"} {
		if got := s.owner(t, c); got != c+" 8 3" {
			t.Errorf("the owner is %q", got)
		}
		s.text(t, fmt.Sprintf("SELECT COUNT(*) FROM `%soctopay_%s_08`.order_9", s.spec.Prefix, c))
	}
	hash := mustMap(t, s.spec).Hash()
	if got := s.text(t, "SELECT CONCAT_WS(' ', COUNT(*), MAX(epoch), MAX(hash)) FROM `"+s.spec.Prefix+"octopay_meta`.shard_map"); got != "1 3 "+hash {
		t.Errorf("the map in force is %q, want %s", got, hash)
	}
}

// owner reads the owner row of database 8 of a cluster.
func (s *site) owner(t *testing.T, c string) string {
	t.Helper()
	return s.text(t, fmt.Sprintf("SELECT CONCAT_WS(' ', cluster, `database`, epoch) FROM `%soctopay_%s_08`.owner", s.spec.Prefix, c))
}

// A migration holds a lock of its database; here the test holds two of them.
func refusesTwoAtOnce(t *testing.T, s *site) {
	conn, err := s.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, name := range []string{"octopay_uid_03", "octopay_bid_05"} {
		var got int
		if err := conn.QueryRowContext(t.Context(), "SELECT GET_LOCK(?, 0)", "octopay_migrate:"+s.spec.Prefix+name).Scan(&got); err != nil || got != 1 {
			t.Fatal(got, err)
		}
	}
	code, stdout, stderr := s.migrate(t, s.spec)
	if code != 1 || strings.Count(stdout, "is up to date\n") != 15 || strings.Count(stdout, "failed\n") != 2 {
		t.Errorf("exit %d:\n%s", code, stdout)
	}
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	if len(lines) != 3 || lines[0] != "octopay: 2 of 17 databases failed:" ||
		!strings.Contains(lines[1], "octopay_uid_03@uid-a: ") || !strings.Contains(lines[2], "octopay_bid_05@uid-a: ") ||
		!strings.Contains(lines[1], "another migration of this database is running; wait") {
		t.Errorf("it says:\n%s", stderr)
	}
	if _, err := conn.ExecContext(t.Context(), "DO RELEASE_ALL_LOCKS()"); err != nil {
		t.Fatal(err)
	}
}

func refusesAConflict(t *testing.T, s *site) {
	other := s.spec
	other.Servers = append(slices.Clone(other.Servers), shardmap.Server{Name: "uid-b", Address: "127.0.0.1:1"})
	code, stdout, stderr := s.migrate(t, other)
	if code != 1 || !strings.Contains(stderr, mustMap(t, s.spec).Hash()) || !strings.Contains(stderr, mustMap(t, other).Hash()) || stdout != "" {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

func usesTheNewerMap(t *testing.T, s *site) {
	newer := s.spec
	newer.Epoch = 5
	s.inForce(t, mustMap(t, newer))
	code, stdout, stderr := s.migrate(t, s.spec)
	if code != 0 || !strings.Contains(stdout, "The map file has epoch 3. The meta database has a newer map, of epoch 5") || !strings.Contains(stdout, "The map of epoch 5 is in force") {
		t.Errorf("exit %d:\n%s\n%s", code, stdout, stderr)
	}
	if got := s.owner(t, "bid"); got != "bid 8 5" {
		t.Errorf("the owner is %q", got)
	}
}

func namesWhatFailed(t *testing.T, s *site) {
	spec := s.spec
	spec.Epoch = 7
	spec.Servers = append(slices.Clone(spec.Servers), shardmap.Server{Name: "bid-a", Address: "127.0.0.1:1"}) // nobody listens there
	spec.BID = nil
	for d := 1; d <= 8; d++ {
		spec.BID = append(spec.BID, shardmap.Placement{Database: d, Server: "bid-a"})
	}
	code, stdout, stderr := s.migrate(t, spec)
	if code != 1 || strings.Count(stdout, "is up to date\n") != 9 || strings.Count(stderr, "@bid-a: ") != 8 || !strings.Contains(stderr, "8 of 17 databases failed") {
		t.Errorf("exit %d:\n%s\n%s", code, stdout, stderr)
	}
}

func TestMigrateTouchesNothingWithoutTheMetaDatabase(t *testing.T) {
	s := newSite(t)
	spec := s.spec
	spec.Servers = append(spec.Servers, shardmap.Server{Name: "meta-a", Address: "127.0.0.1:1"})
	spec.Meta = "meta-a"
	code, _, stderr := s.migrate(t, spec)
	if code != 1 || !strings.Contains(stderr, "octopay_meta@meta-a") || !strings.Contains(stderr, "no other database was touched") || s.schemas(t) != "1" {
		t.Errorf("exit %d, %s databases, %s", code, s.schemas(t), stderr)
	}
}
