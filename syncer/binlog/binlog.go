// Package binlog is the source over a MariaDB server: it reads the server's binary log
// like a replica does, and learns from InnoDB up to when that log is complete.
//
// It decides which rows are of interest (the order and journal tables of the map's
// uid databases on this server), what they mean, and what a server must be set to. It
// leaves to package syncer where to begin and what becomes of the rows.
//
// A row is what its event says. It is never read from its table: an event can arrive
// before its row is readable, and after it the row may have changed again. Columns
// are found by their names, which the log holds (binlog_row_metadata=FULL).
//
// The truth deletes nothing. A row deleted by hand is counted and stays in the mirror.
//
// Every Reader registers as a replica with a server_id of its own, drawn from
// 2^31 … 2^32-1; servers and real replicas must have smaller ones. Of two readers with
// one id the server cuts the older.
package binlog

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/octopay/octopay/internal/dberr"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/source"
)

// A Config says how to connect. The account needs REPLICATION SLAVE, BINLOG MONITOR
// and PROCESS, and SELECT on the owner tables.
type Config struct {
	User, Password string
	TLS            *tls.Config  // the server shows a certificate for the host of its address; nil: no TLS
	Log            *slog.Logger // told of what is ignored; nil: nobody
	// Silence is how long nothing may come from a server's log, not even the heartbeat of
	// each second, before its Reader is over; 10 s.
	Silence time.Duration
}

const (
	dialTimeout  = 2 * time.Second
	queryTimeout = 5 * time.Second
	// connections: one clock, one for all else.
	connectionsMax = 2
)

// A Source reads one server. It is safe for concurrent use.
type Source struct {
	m         *shardmap.Map
	server    shardmap.Server
	databases map[string]shardmap.Database // the uid databases there, by schema
	config    Config
	db        *sql.DB

	deletes   atomic.Uint64
	sayDelete sync.Once
}

// New returns the source of a server of the map. It connects to nothing. Close frees
// what it holds.
func New(m *shardmap.Map, server shardmap.Server, c Config) (*Source, error) {
	s := &Source{m: m, server: server, databases: map[string]shardmap.Database{}, config: c}
	if s.config.Silence <= 0 {
		s.config.Silence = silenceDefault
	}
	if s.config.Log == nil {
		s.config.Log = slog.New(slog.DiscardHandler)
	}
	for _, d := range m.Databases(shardmap.UID) {
		if d.Server.Name == server.Name {
			s.databases[d.Schema] = d
		}
	}
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr = "tcp", server.Address
	cfg.User, cfg.Passwd = c.User, c.Password
	if c.TLS != nil {
		cfg.TLS = c.TLS.Clone() // in it the driver writes the name of the server
	}
	cfg.Logger = &mysql.NopLogger{}
	cfg.Timeout, cfg.ReadTimeout, cfg.WriteTimeout = dialTimeout, queryTimeout, queryTimeout
	cfg.InterpolateParams = true
	// trx_started is in the system's time zone; everything else asks for UTC by name.
	cfg.Params = map[string]string{"time_zone": "'SYSTEM'", "idle_transaction_timeout": "2"}
	_ = cfg.Apply(mysql.Charset("utf8mb4", "")) // never fails
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("binlog of %s: %w", server.Name, err)
	}
	s.db = sql.OpenDB(connector)
	s.db.SetMaxOpenConns(connectionsMax)
	s.db.SetMaxIdleConns(connectionsMax)
	s.db.SetConnMaxLifetime(3 * time.Minute)
	return s, nil
}

// Close closes the connections.
func (s *Source) Close() error { return s.db.Close() }

// Deletes returns how many deleted rows of the truth were seen and ignored.
func (s *Source) Deletes() uint64 { return s.deletes.Load() }

// Now implements source.Source.
func (s *Source) Now(ctx context.Context) (schema.Millis, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	var now schema.Millis
	err := s.db.QueryRowContext(ctx, "SELECT UTC_TIMESTAMP(3)").Scan(&now)
	return now, s.wrap("clock", err)
}

func (s *Source) wrap(step string, err error) error {
	if err == nil {
		return nil
	}
	if dberr.Denied(err) {
		step += ": account " + s.config.User
	}
	return fmt.Errorf("binlog of %s: %s: %w", s.server.Name, step, dberr.Clean(err))
}

// Open implements source.Source.
func (s *Source) Open(ctx context.Context, after source.Position) (source.Reader, error) {
	check, cancel := context.WithTimeout(ctx, 2*queryTimeout)
	defer cancel()
	if err := s.checkSettings(check); err != nil {
		return nil, err
	}
	if err := s.checkOwners(check); err != nil {
		return nil, err
	}
	if err := s.checkPosition(check, after); err != nil {
		return nil, err
	}
	return s.open(after)
}

// checkSettings refuses a server whose log does not hold what is needed.
func (s *Source) checkSettings(ctx context.Context) error {
	var logBin int
	var format, image, metadata string
	err := s.db.QueryRowContext(ctx, "SELECT @@GLOBAL.log_bin, @@GLOBAL.binlog_format, @@GLOBAL.binlog_row_image, @@GLOBAL.binlog_row_metadata").
		Scan(&logBin, &format, &image, &metadata)
	if err != nil {
		return s.wrap("settings", err)
	}
	var wrong []string
	want := func(name, have, want string) {
		if have != want {
			wrong = append(wrong, fmt.Sprintf("%s is %s, it must be %s", name, have, want))
		}
	}
	want("log_bin", fmt.Sprint(logBin), "1")
	want("binlog_format", format, "ROW")
	want("binlog_row_image", image, "FULL")
	want("binlog_row_metadata", metadata, "FULL")
	if len(wrong) > 0 {
		return fmt.Errorf("binlog of %s: refused settings: %s", s.server.Name, strings.Join(wrong, "; "))
	}
	return nil
}

// checkOwners makes sure that this is the server that has the map's databases, under
// the map's epoch: the marks of a wrong one would promise what isn't so.
func (s *Source) checkOwners(ctx context.Context) error {
	for _, d := range s.databases {
		var cluster string
		var number int
		var epoch shardmap.Epoch
		err := s.db.QueryRowContext(ctx, "SELECT cluster, `database`, epoch FROM `"+d.Schema+"`.owner WHERE id = 1").
			Scan(&cluster, &number, &epoch)
		if err != nil {
			return s.wrap("owner row of "+d.Schema, err)
		}
		if shardmap.Cluster(cluster) != d.Cluster || number != d.Number || epoch != s.m.Epoch() {
			return fmt.Errorf("binlog of %s: the owner row of %s says database %d of %s under epoch %d, the map in use has epoch %d",
				s.server.Name, d.Schema, number, cluster, epoch, s.m.Epoch())
		}
	}
	return nil
}

// checkPosition makes sure that the server has everything behind the position, and
// the position itself.
func (s *Source) checkPosition(ctx context.Context, after source.Position) error {
	var end string
	if err := s.db.QueryRowContext(ctx, "SELECT @@GLOBAL.gtid_binlog_pos").Scan(&end); err != nil {
		return s.wrap("position", err)
	}
	newest, err := source.ParsePosition(end)
	if err != nil {
		return s.wrap("position", err)
	}
	if !newest.Covers(after) {
		return fmt.Errorf("binlog of %s: the server has only come to %s, %s was read before: it lost transactions, or it is another server",
			s.server.Name, newest, after)
	}
	oldest, err := s.oldest(ctx)
	if err != nil {
		return s.wrap("oldest position", err)
	}
	if !after.Covers(oldest) {
		return fmt.Errorf("binlog of %s: what follows %q is wanted: %w", s.server.Name, after, &source.PurgedError{Oldest: oldest})
	}
	return nil
}

// oldest returns the position at which the oldest log begins.
func (s *Source) oldest(ctx context.Context) (source.Position, error) {
	rows, err := s.db.QueryContext(ctx, "SHOW BINARY LOGS")
	if err != nil {
		return source.Position{}, err
	}
	defer func() { _ = rows.Close() }()
	var name, size string
	if !rows.Next() {
		return source.Position{}, errors.Join(rows.Err(), errors.New("there is no log"))
	}
	if err := rows.Scan(&name, &size); err != nil {
		return source.Position{}, err
	}
	if err := rows.Close(); err != nil {
		return source.Position{}, err
	}
	var text sql.NullString
	const start = 4 // behind the magic number of a log file
	if err := s.db.QueryRowContext(ctx, "SELECT BINLOG_GTID_POS(?, ?)", name, start).Scan(&text); err != nil {
		return source.Position{}, err
	}
	if !text.Valid {
		return source.Position{}, errors.New("the oldest log was purged just now")
	}
	return source.ParsePosition(text.String)
}
