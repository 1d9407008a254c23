package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/faultproxy"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/lease"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"gopkg.in/yaml.v3"
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

// A site is two servers without databases, and an operator. The mirror's server is
// reached through a proxy, which can fail.
type site struct {
	spec   shardmap.Spec // of the map in force
	env    []string
	access cluster.Config
	db     map[string]*sql.DB // by the server's name
	proxy  *faultproxy.Proxy
}

func newSite(t *testing.T) *site {
	stack := localstack.Test(t, localstack.Meta)
	proxy := faultproxy.New(t, stack.Server("bid-a").Address())
	s := &site{
		env:    []string{"OCTOPAY_DB_USER=" + stack.User, "OCTOPAY_DB_PASSWORD=" + stack.Password},
		access: cluster.Config{User: stack.User, Password: stack.Password},
		db:     map[string]*sql.DB{"uid-a": stack.Admin(t, "uid-a"), "bid-a": stack.Admin(t, "bid-a")},
		proxy:  proxy,
	}
	s.spec = twoServers(3, func(spec *shardmap.Spec) {
		spec.Prefix = stack.Map.Prefix()
		spec.Servers[0].Address, spec.Servers[1].Address = stack.Server("uid-a").Address(), proxy.Addr()
	})
	if _, err := s.db["uid-a"].Exec("DROP DATABASE `" + stack.Map.Meta().Schema + "`"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // the stack drops those of uid-a
		for _, name := range s.schemas(t, "bid-a") {
			s.exec(t, "bid-a", "DROP DATABASE `"+name+"`")
		}
	})
	return s
}

// with returns the map in force under another epoch, with changes.
func (s *site) with(epoch shardmap.Epoch, change ...func(*shardmap.Spec)) shardmap.Spec {
	var out shardmap.Spec
	text, err := yaml.Marshal(s.spec)
	if err == nil {
		err = yaml.Unmarshal(text, &out)
	}
	if err != nil {
		panic(err)
	}
	out.Epoch = epoch
	for _, c := range change {
		c(&out)
	}
	return out
}

// migrate runs octopay migrate with a map.
func (s *site) migrate(t *testing.T, spec shardmap.Spec, flags ...string) (code int, stdout, stderr string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "map.yaml")
	if err := os.WriteFile(path, mustMap(t, spec).Text(), 0o600); err != nil {
		t.Fatal(err)
	}
	return octopay(t, s.env, append([]string{"migrate", "--map", path}, flags...)...)
}

// works expects that a migration puts a map in force, under which every database is then
// registered and obeys it, and that stdout holds something.
func (s *site) works(t *testing.T, spec shardmap.Spec, want string, flags ...string) {
	t.Helper()
	code, stdout, stderr := s.migrate(t, spec, flags...)
	if code != 0 || stderr != "" || strings.Count(stdout, "is up to date\n") != 17 || !strings.Contains(stdout, want) {
		t.Fatalf("exit %d, without %q:\n%s%s", code, want, stdout, stderr)
	}
	s.spec = spec
	s.holds(t)
}

// holds expects that the map in force is s.spec, and that every database obeys it.
func (s *site) holds(t *testing.T) {
	t.Helper()
	m := mustMap(t, s.spec)
	meta := m.Meta()
	if got := s.text(t, meta.Server.Name, "SELECT CONCAT(epoch, ' ', hash) FROM `"+meta.Schema+"`.shard_map ORDER BY epoch DESC LIMIT 1"); got != fmt.Sprint(m.Epoch(), " ", m.Hash()) {
		t.Errorf("the map in force is %s, want epoch %d, %s", got, m.Epoch(), m.Hash())
	}
	for _, place := range clustersOf(m) {
		want := fmt.Sprintf("%s %d %d", place.Cluster, place.Number, m.Epoch())
		if got := s.owner(t, place); got != want {
			t.Errorf("%s is %q, want %q", place, got, want)
		}
	}
	register, err := schema.ReadRegister(t.Context(), s.db[meta.Server.Name], meta)
	if err != nil || !register.Complete || !register.Opened || len(register.Made) != 17 {
		t.Errorf("the register is %+v, %v", register, err)
	}
	for _, place := range append(clustersOf(m), meta) {
		if got := register.Made[schema.RefOf(place)]; got != place.Server.Name {
			t.Errorf("%s is registered on %q", place, got)
		}
	}
}

// refuses expects that a migration changes nothing, and says why.
func (s *site) refuses(t *testing.T, spec shardmap.Spec, want string, flags ...string) {
	t.Helper()
	before := s.all(t)
	code, stdout, stderr := s.migrate(t, spec, flags...)
	if code != 1 || stdout != "" || !strings.Contains(stderr, want) || !strings.Contains(stderr, "nothing was changed") {
		t.Errorf("exit %d, without %q:\n%s%s", code, want, stdout, stderr)
	}
	if after := s.all(t); after != before {
		t.Errorf("it changed something. Before:\n%s\nafter:\n%s", before, after)
	}
}

// all is everything that a migration could change: the schemas, the owner rows, the
// maps, the register, and from when on worker numbers are given out.
func (s *site) all(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	for _, server := range []string{"uid-a", "bid-a"} {
		for _, name := range s.schemas(t, server) {
			fmt.Fprintln(&out, server, name, s.text(t, server, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = '"+name+"'"))
			queries := []string{"SELECT CONCAT(cluster, `database`, ' ', epoch) FROM `" + name + "`.owner"}
			if strings.HasSuffix(name, "_meta") {
				queries = []string{
					"SELECT GROUP_CONCAT(epoch, hash) FROM `" + name + "`.shard_map",
					"SELECT GROUP_CONCAT(cluster, number, server, made_at) FROM `" + name + "`.database_made",
					"SELECT GROUP_CONCAT(name, until_ms) FROM `" + name + "`.lease",
				}
			}
			for _, q := range queries {
				fmt.Fprintln(&out, "  ", s.text(t, server, q))
			}
		}
	}
	return out.String()
}

func (s *site) exec(t *testing.T, server, query string, args ...any) {
	t.Helper()
	if _, err := s.db[server].Exec(query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// text returns the one value of a query, "" if there is none, or no such table.
func (s *site) text(t *testing.T, server, query string) string {
	t.Helper()
	var out sql.NullString
	err := s.db[server].QueryRow(query).Scan(&out)
	var missing *mysql.MySQLError
	if err != nil && !errors.Is(err, sql.ErrNoRows) && (!errors.As(err, &missing) || missing.Number != 1146) {
		t.Fatalf("%s: %v", query, err)
	}
	return out.String
}

func (s *site) schemas(t *testing.T, server string) []string {
	t.Helper()
	return strings.Fields(s.text(t, server, fmt.Sprintf("SELECT GROUP_CONCAT(schema_name ORDER BY schema_name SEPARATOR ' ') FROM information_schema.schemata WHERE LEFT(schema_name, %d) = '%soctopay'", len(s.spec.Prefix)+7, s.spec.Prefix)))
}

// owner reads the owner row of a database.
func (s *site) owner(t *testing.T, place shardmap.Database) string {
	t.Helper()
	return s.text(t, place.Server.Name, "SELECT CONCAT_WS(' ', cluster, `database`, epoch) FROM `"+place.Schema+"`.owner")
}

func (s *site) uid(t *testing.T, n int) shardmap.Database {
	return mustMap(t, s.spec).Database(shardmap.UID, n)
}

func (s *site) meta(t *testing.T) shardmap.Database { return mustMap(t, s.spec).Meta() }

// copied brings a database to another server.
func (s *site) copied(t *testing.T, place shardmap.Database, server string, tables ...string) {
	t.Helper()
	to := place
	to.Server.Name = server
	if err := schema.Migrate(t.Context(), s.db[server], to, s.spec.Epoch); err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		s.exec(t, server, "DELETE FROM `"+place.Schema+"`."+table)
		rows, err := s.db[place.Server.Name].Query("SELECT * FROM `" + place.Schema + "`." + table)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		columns, err := rows.Columns()
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			row, to := make([]any, len(columns)), make([]any, len(columns))
			for i := range row {
				to[i] = &row[i]
			}
			if err := rows.Scan(to...); err != nil {
				t.Fatal(err)
			}
			s.exec(t, server, "INSERT INTO `"+place.Schema+"`."+table+" VALUES (?"+strings.Repeat(", ?", len(columns)-1)+")", row...)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// number asks the meta database of the map in force for a worker number.
func (s *site) number(t *testing.T, name string) error {
	t.Helper()
	c := cluster.Open(mustMap(t, s.spec), s.access)
	defer c.Close()
	_, err := lease.NewSQL(c.Meta()).Acquire(t.Context(), name, "somebody", lease.Term)
	return err
}

// later makes time pass for the leases.
func (s *site) later(t *testing.T, d time.Duration) {
	t.Helper()
	s.exec(t, s.spec.Meta, "UPDATE `"+s.meta(t).Schema+"`.lease SET until_ms = until_ms - ?", d.Milliseconds())
}

// locked holds locks on a server until the returned function is called.
func (s *site) locked(t *testing.T, server string, names ...string) (unlock func()) {
	t.Helper()
	conn, err := s.db[server].Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		var got int
		if err := conn.QueryRowContext(t.Context(), "SELECT GET_LOCK(?, 0)", name).Scan(&got); err != nil || got != 1 {
			t.Fatal(got, err)
		}
	}
	return func() {
		if _, err := conn.ExecContext(context.Background(), "DO RELEASE_ALL_LOCKS()"); err != nil {
			t.Error(err)
		}
		_ = conn.Close()
	}
}
