package localstack_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/shardmap"
)

func TestMain(m *testing.M) { eventually.Main(m) }

func ask[T any](t *testing.T, db *sql.DB, query string, args ...any) (out T) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query, args...).Scan(&out); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return out
}

func schemas(t *testing.T, s *localstack.Stack) (n int) {
	t.Helper()
	for _, server := range []string{"uid-a", "bid-a"} {
		n += ask[int](t, s.Admin(t, server), "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name LIKE ?",
			strings.ReplaceAll(s.Map.Prefix(), "_", `\_`)+"%")
	}
	return n
}

func stream(t *testing.T, s *localstack.Stack) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(s.NATSURL, nats.Timeout(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func TestEachTestHasItsOwnAndLeavesNothing(t *testing.T) {
	var first, second *localstack.Stack
	t.Run("a test", func(t *testing.T) {
		first, second = localstack.Test(t), localstack.Test(t)
		a, b := first.Map, second.Map
		if a.Prefix() == b.Prefix() || len(a.Prefix()) > 24 || a.Epoch() != 1 || a.Size() != 8 {
			t.Errorf("prefixes %q and %q, epoch %d, %d databases", a.Prefix(), b.Prefix(), a.Epoch(), a.Size())
		}
		if first.Server("uid-a").Address() != second.Server("uid-a").Address() {
			t.Error("two sets of servers in one run")
		}
		if n := schemas(t, first); n != 17 {
			t.Errorf("%d databases, want 8 + 8 + 1", n)
		}
		for _, d := range first.Cluster(t).All() {
			err := d.Read(t.Context(), func(ctx context.Context, c *sql.Conn) error {
				var n int
				return c.QueryRowContext(ctx, "SELECT COUNT(*) FROM `"+d.Schema()+"`.goose_db_version").Scan(&n)
			})
			if err != nil {
				t.Errorf("%s: %v", d.Place(), err)
			}
		}
		js := stream(t, first)
		for _, s := range []*localstack.Stack{first, second} {
			if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
				Name: s.Map.Prefix() + "MIRROR", Subjects: []string{s.Map.Prefix() + "mirror.>"}, MaxBytes: 1 << 40,
			}); err != nil {
				t.Error(err)
			}
			if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: s.Map.Prefix() + "config"}); err != nil {
				t.Error(err)
			}
		}
		// What a test makes beside the needed databases goes too.
		if _, err := first.Admin(t, "bid-a").Exec("CREATE DATABASE `" + first.Map.Prefix() + "octopay_bid_16`"); err != nil {
			t.Error(err)
		}
	})
	if n := schemas(t, first) + schemas(t, second); n != 0 {
		t.Errorf("%d databases are left", n)
	}
	names := stream(t, first).StreamNames(t.Context())
	for name := range names.Name() {
		if strings.Contains(name, first.Map.Prefix()) || strings.Contains(name, second.Map.Prefix()) {
			t.Errorf("stream %s is left", name)
		}
	}
}

func TestATestGetsWhatItNeeds(t *testing.T) {
	for _, c := range []struct {
		need []localstack.Need
		want int
	}{
		{[]localstack.Need{localstack.UID}, 8},
		{[]localstack.Need{localstack.BID}, 8},
		{[]localstack.Need{localstack.Meta}, 1},
		{[]localstack.Need{localstack.NATS}, 0},
		{[]localstack.Need{localstack.BID, localstack.Meta}, 9},
	} {
		if n := schemas(t, localstack.Test(t, c.need...)); n != c.want {
			t.Errorf("%v: %d databases, want %d", c.need, n, c.want)
		}
	}
}

// The list of the design, and what MariaDB answers to it.
func TestServersHaveTheSettingsOfTheDesign(t *testing.T) {
	s := localstack.Test(t, localstack.NATS)
	ids := map[string]bool{}
	for _, server := range []string{"uid-a", "bid-a"} {
		db := s.Admin(t, server)
		for name, want := range map[string]string{
			"log_bin": "1", "binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_metadata": "FULL",
			"binlog_annotate_row_events": "0", "binlog_expire_logs_seconds": "259200",
			"gtid_strict_mode": "1", "log_slave_updates": "1", "sync_binlog": "1",
			"innodb_flush_log_at_trx_commit": "1", "character_set_server": "utf8mb4",
			"bind_address": "127.0.0.1", "skip_name_resolve": "1", "read_only": "0",
		} {
			if got := ask[string](t, db, "SELECT @@GLOBAL."+name); got != want {
				t.Errorf("%s: %s = %s, want %s", server, name, got, want)
			}
		}
		for name, least := range map[string]int{
			"table_definition_cache": 5000, "table_open_cache": 5000, "max_connections": 1000,
		} {
			if got := ask[int](t, db, "SELECT @@GLOBAL."+name); got < least {
				t.Errorf("%s: %s = %d, want at least %d", server, name, got, least)
			}
		}
		id := ask[string](t, db, "SELECT CONCAT(@@server_id, '/', @@gtid_domain_id)")
		if ids[id] {
			t.Errorf("two servers with server_id/gtid_domain_id %s", id)
		}
		ids[id] = true
	}
}

// The programs' account has what the design lists, and can't write to a server that
// was made read-only.
func TestTheProgramsAccountHasNoMoreThanItNeeds(t *testing.T) {
	s := localstack.Test(t, localstack.UID)
	grants := ask[string](t, s.Admin(t, "uid-a"), "SELECT GROUP_CONCAT(privilege_type ORDER BY privilege_type) FROM information_schema.user_privileges WHERE grantee = ?", "'"+s.User+"'@'%'")
	if grants != "BINLOG MONITOR,PROCESS,REPLICATION SLAVE" {
		t.Errorf("global privileges: %s", grants)
	}
}

func TestPrivateServersCanBeStoppedKilledAndFrozen(t *testing.T) {
	s := localstack.Private(t, localstack.Options{Need: []localstack.Need{localstack.UID, localstack.NATS}})
	if s.Server("bid-a").Pid() != 0 {
		t.Error("a server runs that isn't needed")
	}
	schema := "`" + s.Map.Database(shardmap.UID, 1).Schema + "`"
	db := s.Admin(t, "uid-a")
	if _, err := db.Exec("CREATE TABLE " + schema + ".probe (id INT PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	js := stream(t, s)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "PROBE", Subjects: []string{"probe"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "probe", nil); err != nil {
		t.Fatal(err)
	}
	for i, end := range []func(*localstack.Server) error{(*localstack.Server).Stop, (*localstack.Server).Kill} {
		if _, err := db.Exec("INSERT INTO "+schema+".probe VALUES (?)", i); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"uid-a", "nats"} {
			server := s.Server(name)
			pid, address := server.Pid(), server.Address()
			if err := end(server); err != nil {
				t.Fatal(err)
			}
			if localstack.Running(pid) || server.Pid() != 0 {
				t.Errorf("%s is still there", name)
			}
			if err := server.Pause(); err == nil {
				t.Errorf("%s can be frozen though it is gone", name)
			}
			if err := server.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if server.Pid() == pid || server.Address() != address {
				t.Errorf("%s: process %d, then %d; at %s, then %s", name, pid, server.Pid(), address, server.Address())
			}
			if err := server.Start(t.Context()); err == nil {
				t.Errorf("%s started twice", name)
			}
		}
		if n := ask[int](t, db, "SELECT COUNT(*) FROM "+schema+".probe"); n != i+1 {
			t.Errorf("%d rows, want %d", n, i+1)
		}
		info, err := stream(t, s).Stream(t.Context(), "PROBE")
		if err != nil || info.CachedInfo().State.Msgs != 1 {
			t.Errorf("the stream's message is lost: %v", err)
		}
	}

	server := s.Server("uid-a")
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := db.ExecContext(ctx, "DO 1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a frozen server answers: %v", err)
	}
	if err := server.Continue(); err != nil {
		t.Fatal(err)
	}
	ask[int](t, db, "SELECT 1")
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := server.Stop(); err != nil { // a frozen one can be stopped
		t.Error(err)
	}
}

func TestMoreServersForACluster(t *testing.T) {
	s := localstack.Private(t, localstack.Options{UIDServers: 2, Need: []localstack.Need{localstack.UID}, Prefix: "two_"})
	var names []string
	for _, server := range s.Map.Servers(shardmap.UID) {
		names = append(names, server.Name)
	}
	if !slices.Equal(names, []string{"uid-a", "uid-b"}) {
		t.Fatal(names)
	}
	for _, name := range names {
		if n := ask[int](t, s.Admin(t, name), "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name LIKE 'two\\_octopay\\_uid\\_%'"); n != 4 {
			t.Errorf("%s has %d databases, want 4", name, n)
		}
	}
}

func TestASharedServerCannotBeStopped(t *testing.T) {
	s := localstack.Test(t, localstack.Meta)
	server := s.Server("uid-a")
	for name, do := range map[string]func() error{
		"Stop": server.Stop, "Kill": server.Kill, "Pause": server.Pause, "Continue": server.Continue,
		"Start": func() error { return server.Start(t.Context()) },
	} {
		if err := do(); !errors.Is(err, localstack.ErrNotOurs) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if server.Pid() != 0 {
		t.Error("it has a process")
	}
}

func TestAServerThatCannotStartSaysWhy(t *testing.T) {
	_, err := localstack.Start(t.Context(), localstack.Options{
		Need: []localstack.Need{localstack.Meta}, Install: true, Args: []string{"--no-such-option"},
	})
	if err == nil || !strings.Contains(err.Error(), "no-such-option") || !strings.Contains(err.Error(), "error.log") {
		t.Errorf("the error lacks what the server said: %v", err)
	}
}

func TestAKeptDirectoryGivesTheSameStackAgain(t *testing.T) {
	// Longer than the name of a socket may be.
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	o := localstack.Options{Dir: dir, Need: []localstack.Need{localstack.UID, localstack.Meta}, Install: true}
	a, err := localstack.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := localstack.Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("started twice in one directory: %v", err)
	}
	if _, err := a.Admin(t, "uid-a").Exec("CREATE TABLE octopay_uid_08.probe (id INT PRIMARY KEY)"); err != nil {
		t.Error(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	o.UIDServers = 2
	if b, err := localstack.Start(t.Context(), o); err == nil {
		t.Error("other servers on the data of these", b.Close())
	}
	o.UIDServers = 0
	b, err := localstack.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	if b.Map.Hash() != a.Map.Hash() || b.Password != a.Password {
		t.Error("another map or password")
	}
	if n := ask[int](t, b.Admin(t, "uid-a"), "SELECT COUNT(*) FROM octopay_uid_08.probe"); n != 0 {
		t.Error(n)
	}
}

func TestServersThatExistAreUsed(t *testing.T) {
	s := localstack.Private(t, localstack.Options{})
	admin := s.Admin(t, "uid-a")
	for name, value := range map[string]string{
		"LOCALSTACK_UID_ADDR": s.Server("uid-a").Address(), "LOCALSTACK_BID_ADDR": s.Server("bid-a").Address(),
		"LOCALSTACK_NATS_URL": s.NATSURL, "LOCALSTACK_USER": "admin", "LOCALSTACK_PASSWORD": s.Password,
	} {
		t.Setenv(name, value)
	}
	t.Run("a test", func(t *testing.T) {
		theirs := localstack.Test(t)
		if n := ask[int](t, admin, "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name LIKE ?", theirs.Map.Prefix()+"%"); n != 9 {
			t.Errorf("%d databases of the test, want 9", n)
		}
		conn, err := theirs.Cluster(t).Database(shardmap.BID, 8).Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		cluster.Discard(conn)
	})
	if n := ask[int](t, admin, "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name LIKE '%octopay%'"); n != 9 {
		t.Errorf("%d databases, want the 9 that were there before", n)
	}
}

var pids = regexp.MustCompile(`process \d+`)

// commands returns what runs cmd, and the directory of the stack that it is about.
func commands(t *testing.T) (do func(args ...string) string, dir string) {
	t.Helper()
	exe := filepath.Join(t.TempDir(), "localstack")
	if out, err := exec.Command("go", "build", "-o", exe, "./cmd").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	dir = filepath.Join(t.TempDir(), "a stack's data")
	do = func(args ...string) string {
		t.Helper()
		out, err := exec.Command(exe, append(args, "-data", dir)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	t.Cleanup(func() { do("down", "-purge") })
	return do, dir
}

// processOf finds the process of a server in what up printed.
func processOf(t *testing.T, up, server string) int {
	t.Helper()
	m := regexp.MustCompile(`(?m)^  ` + server + ` .*\(process (\d+)\)$`).FindStringSubmatch(up)
	if m == nil {
		t.Fatalf("up names no process of %s:\n%s", server, up)
	}
	pid, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// A server that is killed stays away until up is told to start it, the others go on,
// and the log says what happened.
func TestUpStartsWhatHasEnded(t *testing.T) {
	do, dir := commands(t)
	up := do("up")
	logged := func(want string) {
		t.Helper()
		eventually.Nil(t, "the log has "+want, func() error {
			text, err := os.ReadFile(filepath.Join(dir, "supervisor.log"))
			if err == nil && !regexp.MustCompile(want).Match(text) {
				err = fmt.Errorf("it is\n%s", text)
			}
			return err
		})
	}
	for _, servers := range [][]string{{"bid-a"}, {"uid-a", "nats"}} {
		killed := map[string]int{}
		for _, name := range servers {
			killed[name] = processOf(t, up, name)
			if err := syscall.Kill(killed[name], syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		for name, pid := range killed {
			logged(fmt.Sprintf(`(?m)^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ %s \(process %d\) ended by itself: signal: killed; the others go on`, name, pid))
		}
		again := do("up")
		if !strings.Contains(again, "started again: "+strings.Join(slices.Sorted(slices.Values(servers)), ", ")) {
			t.Errorf("after the end of %v up says\n%s", servers, again)
		}
		for _, name := range []string{"uid-a", "bid-a", "nats"} {
			before, now := processOf(t, up, name), processOf(t, again, name)
			if _, ended := killed[name]; ended == (before == now) || !localstack.Running(now) {
				t.Errorf("%s: process %d, then %d", name, before, now)
			}
		}
		up = again
	}
	if again := do("up"); !strings.Contains(again, "nothing changed") {
		t.Errorf("with all of them there up says\n%s", again)
	}
}

// Up and Down, as make runs them.
func TestUpAndDown(t *testing.T) {
	do, dir := commands(t)
	// The variables as a shell reads them from the file.
	env := func() map[string]string {
		t.Helper()
		cmd := exec.Command("sh", "-c", `. "$0" && env`, filepath.Join(dir, "env"))
		text, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]string{}
		for lines := bufio.NewScanner(strings.NewReader(string(text))); lines.Scan(); {
			if name, value, ok := strings.Cut(lines.Text(), "="); ok && strings.HasPrefix(name, "OCTOPAY_") {
				values[name] = value
			}
		}
		return values
	}
	open := func() (*cluster.Cluster, *shardmap.Map) {
		t.Helper()
		v := env()
		text, err := os.ReadFile(v["OCTOPAY_MAP_FILE"])
		if err != nil {
			t.Fatal(err)
		}
		m, err := shardmap.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return cluster.Open(m, cluster.Config{User: v["OCTOPAY_DB_USER"], Password: v["OCTOPAY_DB_PASSWORD"]}), m
	}
	up := do("up")
	for _, part := range []string{"uid-a", "bid-a", "nats", dir, "env' && go run ./services/orderd", "env' && go run ./services/syncerd"} {
		if !strings.Contains(up, part) {
			t.Errorf("up doesn't say %q:\n%s", part, up)
		}
	}
	again := do("up")
	if !strings.Contains(again, "already running") || !slices.Equal(pids.FindAllString(up, -1), pids.FindAllString(again, -1)) {
		t.Errorf("a second up: %s\nafter: %s", again, up)
	}
	c, before := open()
	for _, d := range c.All() {
		conn, err := d.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d.Place().Number == 5 {
			if _, err := conn.ExecContext(t.Context(), "CREATE TABLE `"+d.Schema()+"`.probe (id INT PRIMARY KEY)"); err != nil {
				t.Error(err)
			}
		}
		cluster.Discard(conn)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if nc, err := nats.Connect(env()["OCTOPAY_NATS_URL"], nats.Timeout(30*time.Second)); err != nil {
		t.Error(err)
	} else {
		nc.Close()
	}

	if out := do("down"); !strings.Contains(out, "stopped") || !strings.Contains(out, "the data stays") {
		t.Error(out)
	}
	for _, p := range pids.FindAllString(up, -1) {
		if pid, err := strconv.Atoi(strings.TrimPrefix(p, "process ")); err != nil || localstack.Running(pid) {
			t.Errorf("%s is still there", p)
		}
	}
	if out := do("down"); !strings.Contains(out, "was not running") {
		t.Error(out)
	}
	do("up")
	c, after := open()
	defer func() { _ = c.Close() }()
	if before.Hash() != after.Hash() {
		t.Error("another map after a restart")
	}
	err := c.Database(shardmap.BID, 5).Read(t.Context(), func(ctx context.Context, c *sql.Conn) error {
		_, err := c.ExecContext(ctx, "SELECT * FROM octopay_bid_05.probe")
		return err
	})
	if err != nil {
		t.Errorf("the data is gone: %v", err)
	}
	if out := do("down", "-purge"); !strings.Contains(out, "removing") {
		t.Error(out)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("purged, but %v", err)
	}
	if out := do("down"); !strings.Contains(out, "no stack") {
		t.Error(out)
	}
}
