package e2e_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/octopay/octopay/internal/certtest"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/services/internal/boottest"
	"github.com/octopay/octopay/shardmap"
)

// accounts are the statements of docs/operating.md that make the accounts, by the name of
// the account and in their order.
func accounts(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	of := map[string][]string{}
	name := regexp.MustCompile(`'(octopay_[a-z]+)'@'%'`)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "CREATE USER ") && !strings.HasPrefix(line, "GRANT ") {
			continue
		}
		account := name.FindStringSubmatch(line)
		if account == nil || !strings.HasSuffix(line, ";") {
			t.Fatalf("docs/operating.md: what account is that of: %s", line)
		}
		of[account[1]] = append(of[account[1]], line)
	}
	return of
}

// Every program has an account of its own with the rights that docs/operating.md gives it,
// and no others. All connections are in TLS: those to MariaDB and NATS that aren't are
// refused. The main job works, and no log holds a secret.
func TestTheMainJobWithTheLeastRightsAndInTLS(t *testing.T) {
	ca := certtest.New(t)
	_, cert, key := ca.Issue(time.Now().Add(time.Hour), "127.0.0.1")
	stack := localstack.Private(t, localstack.Options{
		Need: []localstack.Need{localstack.UID, localstack.BID, localstack.Meta},
		Args: []string{"--ssl-ca=" + ca.File, "--ssl-cert=" + cert, "--ssl-key=" + key},
	})
	admins := map[string]*sql.DB{"uid-a": stack.Admin(t, "uid-a"), "bid-a": stack.Admin(t, "bid-a")}
	onAll := func(statement string) {
		t.Helper()
		for name, db := range admins {
			if _, err := db.Exec(statement); err != nil {
				t.Fatalf("%s: %s: %v", name, statement, err)
			}
		}
	}
	// The databases are made anew, by the operator's account.
	for name, db := range admins {
		var schemas []string
		rows, err := db.Query("SELECT schema_name FROM information_schema.schemata WHERE schema_name LIKE 'octopay\\_%'")
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var s string
			if err := rows.Scan(&s); err != nil {
				t.Fatal(err)
			}
			schemas = append(schemas, s)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil || len(schemas) < 8 {
			t.Fatalf("%s: %v, %v", name, schemas, err)
		}
		for _, s := range schemas {
			if _, err := db.Exec("DROP DATABASE `" + s + "`"); err != nil {
				t.Fatal(err)
			}
		}
	}
	onAll("SET GLOBAL require_secure_transport = ON")
	plain, err := mysql.NewConnector(func() *mysql.Config {
		c := mysql.NewConfig()
		c.Net, c.Addr, c.User, c.Passwd, c.Logger = "tcp", stack.Server("uid-a").Address(), stack.User, stack.Password, &mysql.NopLogger{}
		return c
	}())
	if err != nil {
		t.Fatal(err)
	}
	if conn, err := plain.Connect(t.Context()); err == nil {
		_ = conn.Close()
		t.Fatal("the server takes connections without TLS")
	} else {
		t.Logf("without TLS: %v", err)
	}
	secrets := map[string]string{"nats": rand.Text()}
	broker := boottest.StartBroker(t, func(o *server.Options) {
		boottest.InTLS(t, cert, key)(o)
		o.Username, o.Password = "octopay", secrets["nats"]
	})

	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	mapFile := put("map.yaml", string(stack.Map.Text()))
	all := accounts(t)
	env := map[string][]string{}
	for _, name := range []string{"octopay_operator", "octopay_orderd", "octopay_syncerd"} {
		secrets[name] = rand.Text()
		if len(all[name]) < 3 {
			t.Fatalf("docs/operating.md has for %s %q", name, all[name])
		}
		env[name] = append(os.Environ(), "OCTOPAY_MAP_FILE="+mapFile, "OCTOPAY_DB_USER="+name,
			"OCTOPAY_DB_PASSWORD_FILE="+put(name, secrets[name]+"\n"), "OCTOPAY_DB_CA_FILE="+ca.File,
			"OCTOPAY_NATS_URL="+broker.URL, "OCTOPAY_NATS_USER=octopay", "OCTOPAY_NATS_PASSWORD="+secrets["nats"], "OCTOPAY_NATS_CA_FILE="+ca.File, "OCTOPAY_MASTER_KEY="+masterKey)
	}
	grant := func(name string) {
		t.Helper()
		for _, statement := range all[name] {
			for server, db := range admins {
				// The meta database is on one server.
				if strings.Contains(statement, "octopay_meta`.") && server != stack.Map.Meta().Server.Name {
					continue
				}
				if _, err := db.Exec(strings.ReplaceAll(statement, "'…'", "'"+secrets[name]+"'")); err != nil {
					t.Fatalf("%s: %s: %v", server, statement, err)
				}
			}
		}
	}
	var said strings.Builder // by the operator's command
	octopay := func(args ...string) string {
		t.Helper()
		bin, err := binaries()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(filepath.Join(bin, "octopay"), args...)
		cmd.Env = env["octopay_operator"]
		out, err := cmd.CombinedOutput()
		said.Write(out)
		if err != nil {
			t.Fatalf("octopay %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	grant("octopay_operator")
	octopay("migrate")
	grant("octopay_orderd")
	grant("octopay_syncerd")
	made := octopay("keys", "create", "--role", "app", "--refunds")
	appKey := regexp.MustCompile(`opk_app_\w+`).FindString(made)
	if appKey == "" {
		t.Fatalf("no key in %s", made)
	}
	octopay("config", "set", put("config.json", `{"unknown_merchants":"accept","merchants":[],"channels":[]}`), "--if-version", "0")

	orderd := start(t, "orderd", append(env["octopay_orderd"], keyVariable+appKey)).ready(t)
	syncerd := start(t, "syncerd", env["octopay_syncerd"]).ready(t)
	done := drive(t, each(orderd.api), traffic(11, 1000), func(func(float64)) {})
	awaitMirror(t, orderd.api, done.acked)
	closeOne(t, orderd, done)
	octopay("check")
	octopay("tail", "--from-start", "--end")
	octopay("mirror", "dead-letters", "list")
	octopay("keys", "list")
	octopay("config", "get")

	// The test itself looks by SQL, without TLS.
	onAll("SET GLOBAL require_secure_transport = OFF")
	verify(t, stack, []string{orderd.api}, done)
	t.Logf("%s, with the least rights and in TLS", done)
	who := newCast(t, stack)
	shared := shareBoth(t, who, orderd.api)
	awaitConflicts(t, who, orderd.api, shared)
	octopay("check", "orders", "--mirror")
	// What an operator deletes, or a copy that is restored doesn't have, is found again from
	// where the scans are set back to.
	syncerd.terminate(t)
	forgetBoth(t, stack, ca, secrets["octopay_operator"])
	if a := who.must(t, 200, "GET", orderd.api, "/v1/admin/conflicts", ""); strings.Contains(string(a.raw), "conflict_id") {
		t.Errorf("after all were deleted: %s", a)
	}
	again := start(t, "syncerd", env["octopay_syncerd"]).ready(t)
	awaitConflicts(t, who, orderd.api, shared)

	orderd.terminate(t)
	again.terminate(t)
	for of, secret := range secrets {
		for where, text := range map[string]string{"orderd's log": strings.Join(orderd.log, "\n"), "syncerd's log": strings.Join(append(syncerd.log, again.log...), "\n"), "octopay's output": said.String()} {
			if strings.Contains(text, secret) {
				t.Errorf("%s holds the password of %s", where, of)
			}
		}
	}
	if strings.Contains(strings.Join(orderd.log, "\n"), appKey) {
		t.Error("orderd's log holds the key")
	}
}

// shareBoth gives one number to orders of two buyers, and one payment to both. It returns
// their ids.
func shareBoth(t *testing.T, who *cast, api string) (ids []string) {
	t.Helper()
	eventually.True(t, "the program knows the new keys", func() bool {
		for _, target := range []string{"/v1/admin/conflicts", "/v1/users/9527/orders?limit=1"} {
			if a, err := who.send(t, "GET", api, target, "", nil); err != nil || a.status != 200 {
				return false
			}
		}
		return true
	})
	for _, uid := range []string{"9527", "9538"} {
		body := fmt.Sprintf(`{"uid":%q,"bid":"1001","out_trade_no":"shared","amount":1,"currency":"CNY","subject":"Le Max 2"}`, uid)
		id := who.must(t, 201, "POST", api, "/v1/orders", body).order(t).OrderID
		who.must(t, 200, "POST", api, "/v1/orders/"+id+"/pay", payment("shared", 1, "CNY"))
		ids = append(ids, id)
	}
	return ids
}

// awaitConflicts waits until orders are listed as a conflict of each kind.
func awaitConflicts(t *testing.T, who *cast, api string, ids []string) {
	t.Helper()
	for _, kind := range []string{"out_trade_no", "channel_trade_no"} {
		eventually.True(t, "orders with one "+kind+" are listed", func() bool {
			listed := string(who.must(t, 200, "GET", api, "/v1/admin/conflicts?kind="+kind, "").raw)
			return !slices.ContainsFunc(ids, func(id string) bool { return !strings.Contains(listed, id) })
		})
	}
}

// documented returns the SQL of docs/operating.md that begins so: one statement, or one of
// several in a line.
func documented(t *testing.T, begins string) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, begins) && strings.HasSuffix(line, ";") {
			return line
		}
	}
	t.Fatalf("docs/operating.md has no %s …;", begins)
	return ""
}

// forgetBoth deletes the conflicts there are, and lets all databases be scanned again from an
// hour ago, as docs/operating.md says, over the operator's account.
func forgetBoth(t *testing.T, stack *localstack.Stack, ca *certtest.Authority, password string) {
	t.Helper()
	pem, err := os.ReadFile(ca.File)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	do := func(server, text string) {
		t.Helper()
		connector, err := mysql.NewConnector(func() *mysql.Config {
			c := mysql.NewConfig()
			c.Net, c.Addr, c.User, c.Passwd = "tcp", stack.Server(server).Address(), "octopay_operator", password
			c.TLS, c.MultiStatements = &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}, true
			return c
		}())
		if err != nil {
			t.Fatal(err)
		}
		db := sql.OpenDB(connector)
		defer func() { _ = db.Close() }()
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	meta := stack.Map.Meta()
	settled := documented(t, "BEGIN; DELETE FROM octopay_meta.conflict ")
	settled = strings.ReplaceAll(settled, "(17, 18)", "(SELECT id FROM (SELECT id FROM octopay_meta.conflict) AS every_one UNION SELECT conflict_id FROM (SELECT conflict_id FROM octopay_meta.conflict_order) AS every_order)")
	do(meta.Server.Name, settled)
	back := documented(t, "UPDATE octopay_bid_01.conflict_scan ")
	since := time.Now().Add(-time.Hour).UTC().Format(time.DateTime)
	for _, d := range stack.Map.Databases(shardmap.BID) {
		do(d.Server.Name, strings.ReplaceAll(strings.ReplaceAll(back, "octopay_bid_01", d.Schema), "2026-12-01 03:00:00", since))
	}
}

// closeOne closes an order: a change takes other rights than a create.
func closeOne(t *testing.T, orderd *program, done run) {
	t.Helper()
	for id, a := range done.acked {
		got, err := call(t, context.Background(), "POST", orderd.api+"/v1/orders/"+id+"/close", nil)
		if err != nil || got.status != 200 {
			t.Fatalf("close: %v, %v", got, err)
		}
		a.raw = string(got.raw)
		done.acked[id] = a
		return
	}
}
