package localstack

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Users of the MariaDB servers; both have the stack's password.
const (
	userName  = "octopay" // what the programs need in production, and nothing more
	adminName = "admin"   // everything; for making a fault, see Stack.Admin
)

// settings are what the design asks of every MariaDB server, and what many test
// stacks on one server need: room for their tables and connections.
func settings(serverID int) []string {
	return []string{
		"--server-id=" + strconv.Itoa(serverID),
		"--gtid-domain-id=" + strconv.Itoa(serverID),
		"--log-bin=binlog",
		"--binlog-format=ROW",
		"--binlog-row-image=FULL",
		"--binlog-row-metadata=FULL",
		"--binlog-annotate-row-events=OFF",
		"--binlog-expire-logs-seconds=259200",
		"--gtid-strict-mode=ON",
		"--log-slave-updates=ON",
		"--sync-binlog=1",
		"--innodb-flush-log-at-trx-commit=1",
		"--innodb-buffer-pool-size=128M",
		"--table-definition-cache=20000",
		"--table-open-cache=20000",
		"--max-connections=2000",
		"--character-set-server=utf8mb4",
	}
}

// initSQL runs at every start, before the first connection. One statement a line. TRIGGER
// and EVENT are there to see what nobody of us makes; see schema.Unseen.
const initSQL = `SET sql_log_bin = 0;
CREATE OR REPLACE USER '%[1]s'@'%%' IDENTIFIED BY '%[3]s';
GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP, INDEX, REFERENCES, TRIGGER, EVENT ON ` + "`%%octopay\\_%%`" + `.* TO '%[1]s'@'%%';
GRANT REPLICATION SLAVE, BINLOG MONITOR, PROCESS ON *.* TO '%[1]s'@'%%';
CREATE OR REPLACE USER '%[2]s'@'%%' IDENTIFIED BY '%[3]s';
GRANT ALL PRIVILEGES ON *.* TO '%[2]s'@'%%' WITH GRANT OPTION;
`

// A mariadb is what is needed to start one server. Its directory holds data/,
// tmp/, error.log and init.sql.
type mariadb struct {
	bin      binaries
	dir      string
	address  string
	serverID int
	password string
	args     []string
	env      []string
}

func (m mariadb) server(name string) *Server {
	return &Server{
		name: name, address: m.address, logFile: filepath.Join(m.dir, "error.log"),
		command: m.command, ready: m.ready,
	}
}

// prepare makes the data directory when there is none yet, all of it or nothing, as a
// copy of a new server's: that takes a tenth of making one.
func (m mariadb) prepare() error {
	if err := os.MkdirAll(m.tmp(), 0o700); err != nil {
		return err
	}
	init := fmt.Sprintf(initSQL, userName, adminName, m.password)
	if err := os.WriteFile(filepath.Join(m.dir, "init.sql"), []byte(init), 0o600); err != nil {
		return err
	}
	data := filepath.Join(m.dir, "data")
	if _, err := os.Stat(data); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.RemoveAll(data + ".part"); err != nil {
		return err
	}
	if err := os.CopyFS(data+".part", os.DirFS(m.bin.firstData)); err != nil {
		return err
	}
	return os.Rename(data+".part", data)
}

// installData makes the data of a new server in dir, all of it or nothing.
func installData(ctx context.Context, installDB, dir string) error {
	part, tmp := dir+".part", dir+".tmp"
	if err := errors.Join(os.RemoveAll(part), os.MkdirAll(tmp, 0o700)); err != nil {
		return err
	}
	// A relative name: that script splits a longer one at its spaces. The log is small
	// because it is copied; a server gives it the right size when it starts.
	args := []string{"--no-defaults", "--datadir=./" + filepath.Base(part), "--innodb-log-file-size=4M",
		"--skip-name-resolve", "--skip-test-db", "--auth-root-authentication-method=socket"}
	if me, err := user.Current(); err == nil {
		args = append(args, "--auth-root-socket-user="+me.Username)
	}
	cmd := exec.CommandContext(ctx, installDB, append(args, asRoot()...)...)
	cmd.Dir = filepath.Dir(dir)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("localstack: %s: %w\n%s", filepath.Base(installDB), err, bytes.TrimSpace(out))
	}
	return errors.Join(os.Rename(part, dir), os.RemoveAll(tmp))
}

// tmp is a directory of the server's own: one that starts removes what looks like
// its temporary tables, also those of another server that is at work.
func (m mariadb) tmp() string { return filepath.Join(m.dir, "tmp") }

func (m mariadb) command() *exec.Cmd {
	host, port, _ := net.SplitHostPort(m.address)
	args := append([]string{
		"--no-defaults", // first, or the server refuses it
		"--datadir=" + filepath.Join(m.dir, "data"),
		"--init-file=" + filepath.Join(m.dir, "init.sql"),
		"--log-error=" + filepath.Join(m.dir, "error.log"),
		"--tmpdir=" + m.tmp(),
		"--bind-address=" + host,
		"--port=" + port,
		// Relative to the data directory: a path longer than 107 bytes can't be bound.
		"--socket=mysqld.sock",
		"--pid-file=mysqld.pid",
		"--skip-name-resolve",
	}, settings(m.serverID)...)
	args = append(args, asRoot()...)
	cmd := exec.Command(m.bin.mariadbd, append(args, m.args...)...)
	cmd.Dir = m.dir
	cmd.Env = append(os.Environ(), m.env...)
	return cmd
}

func (m mariadb) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	db := openSQL(m.address, userName, m.password)
	defer func() { _ = db.Close() }()
	// Another server that took the port in between has another id.
	var id int
	if err := db.QueryRowContext(ctx, "SELECT @@server_id").Scan(&id); err != nil {
		return err
	}
	if id != m.serverID {
		return fmt.Errorf("another server answers at %s", m.address)
	}
	return nil
}

// asRoot is the option without which mariadbd doesn't run as root.
func asRoot() []string {
	if os.Geteuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

// openSQL opens a small pool without a default database.
func openSQL(address, user, password string) *sql.DB {
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User, c.Passwd = "tcp", address, user, password
	c.ParseTime, c.InterpolateParams = true, true
	c.Timeout = 30 * time.Second
	// What a test left in a transaction keeps its tables; that is to become an error.
	c.Params = map[string]string{"lock_wait_timeout": "20"}
	c.Logger = silent{} // a server that isn't there yet is no news
	connector, err := mysql.NewConnector(c)
	if err != nil {
		panic(err) // all of it is set here
	}
	return sql.OpenDB(connector)
}

type silent struct{}

func (silent) Print(...any) {}
