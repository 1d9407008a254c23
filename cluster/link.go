package cluster

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/octopay/octopay/internal/dberr"
	"github.com/octopay/octopay/shardmap"
	"github.com/sony/gobreaker/v2"
)

// writersMax bounds the dedicated connections of one database: a lane has one for
// each of its two queues, an applier one, and each may be replacing one.
const writersMax = 8

const (
	// proofMax is how old the owner row's word may be under a read: older than the time
	// between two probes, so that no read asks itself while Run runs.
	proofMax = 1500 * time.Millisecond
	// failuresMax is after how many failures in a row a database is left alone.
	failuresMax = 3
	// answersPause is how long nobody asks a database that was silent. Then one may
	// try; while Run runs, that is its probe.
	answersPause = 100 * time.Millisecond
	// writesPause is how long nobody writes to a database whose writes got no answer, or
	// that it takes none, such as with a full disk.
	// What then tells is the next write: no probe writes.
	writesPause = time.Second
)

// A link is how a database is reached under one map, and what is known of it there. A
// newer map replaces it as a whole.
type link struct {
	place    shardmap.Database
	epoch    shardmap.Epoch
	question string

	readers, writers *sql.DB
	answers          *breaker // of anything that is asked
	writes           *breaker // of what is written
	word             atomic.Pointer[word]
}

// A word is what a database said about itself.
type word struct {
	at       time.Time // just before it was asked
	epoch    shardmap.Epoch
	readOnly bool
	err      error // it is not the database of our map, or not under its epoch
}

func newLink(place shardmap.Database, epoch shardmap.Epoch, c Config) *link {
	l := &link{place: place, epoch: epoch, question: "SELECT '', 0, 0, @@GLOBAL.read_only"}
	if place.Cluster != "" {
		l.question = "SELECT cluster, `database`, epoch, @@GLOBAL.read_only FROM `" + place.Schema + "`.owner WHERE id = 1"
	}
	l.answers = newBreaker(answersPause, silent)
	l.writes = newBreaker(writesPause, func(err error) bool {
		return silent(err) || dberr.Of(err) == dberr.ReadOnly
	})
	l.readers = l.pool(c, false, c.ReadPermits+1) // the probe's
	l.writers = l.pool(c, true, writersMax)
	return l
}

func (l *link) pool(c Config, writes bool, size int) *sql.DB {
	cfg := c.Session(l.place.Server)
	// Callers set deadlines; these catch what has none.
	cfg.ReadTimeout, cfg.WriteTimeout = 10*time.Second, 10*time.Second
	cfg.MultiStatements = writes
	db := sql.OpenDB(&connector{cfg: cfg, link: l, writes: writes})
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	db.SetConnMaxLifetime(3*time.Minute + rand.N(time.Minute))
	return db
}

func (l *link) close() error { return errors.Join(l.readers.Close(), l.writers.Close()) }

// A breaker opens after some failures in a row.
type breaker = gobreaker.CircuitBreaker[struct{}]

func newBreaker(pause time.Duration, fails func(error) bool) *breaker {
	return gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Timeout:      pause,
		ReadyToTrip:  func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= failuresMax },
		IsSuccessful: func(err error) bool { return !fails(err) },
		// They say nothing about the database.
		IsExcluded: func(err error) bool { return errors.Is(err, ErrBusy) || errors.Is(err, context.Canceled) },
	})
}

// guard calls f unless b is open, and counts what it returns. Without the call it
// returns errSilent.
func guard(b *breaker, f func() error) error {
	_, err := b.Execute(func() (struct{}, error) { return struct{}{}, f() })
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		return errSilent
	}
	return err
}

// report counts what has happened already.
func report(b *breaker, err error) { _ = guard(b, func() error { return err }) }

// silent reports whether err means that the database didn't answer. That it refused a
// statement, or had no row, is an answer.
func silent(err error) bool {
	if errors.Is(err, sql.ErrNoRows) {
		return false
	}
	switch dberr.Of(err) {
	case dberr.NotSent, dberr.Unknown:
		return true
	}
	return false
}

// prove makes sure, over c, that the database is the one of the map under its epoch,
// unless it has said so itself not long ago.
func (l *link) prove(ctx context.Context, c *sql.Conn) error {
	if l.place.Cluster == "" {
		return nil
	}
	if w := l.word.Load(); w != nil && w.err == nil && time.Since(w.at) < proofMax {
		return nil
	}
	return l.askOver(ctx, c)
}

func (l *link) askOver(ctx context.Context, c *sql.Conn) error {
	return c.Raw(func(conn any) error {
		_, err := l.ask(ctx, conn.(driver.QueryerContext))
		return err
	})
}

// ask asks the database what it is, and keeps its word. The error is that of the word,
// or there was no answer.
func (l *link) ask(ctx context.Context, c driver.QueryerContext) (*word, error) {
	w := &word{at: time.Now()}
	if err := l.read(ctx, c, w); err != nil {
		if silent(err) {
			return nil, fmt.Errorf("owner row: %w", err)
		}
		w.err = dberr.Clean(fmt.Errorf("owner row: %w", err)) // such as: there is no such table
	}
	l.word.Store(w)
	return w, w.err
}

func (l *link) read(ctx context.Context, c driver.QueryerContext, w *word) (err error) {
	rows, err := c.QueryContext(ctx, l.question, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	row := make([]driver.Value, 4)
	if err := rows.Next(row); errors.Is(err, io.EOF) {
		return dberr.As(dberr.Stale, errors.New("there is none"))
	} else if err != nil {
		return err
	}
	cluster, _ := row[0].([]byte)
	number, _ := row[1].(int64)
	epoch, _ := row[2].(int64)
	readOnly, _ := row[3].(int64)
	w.epoch, w.readOnly = shardmap.Epoch(epoch), readOnly != 0
	switch {
	case l.place.Cluster == "":
	case shardmap.Cluster(cluster) != l.place.Cluster, int(number) != l.place.Number:
		return dberr.As(dberr.Stale, fmt.Errorf("it says database %d of cluster %s, the map says %d of %s", number, cluster, l.place.Number, l.place.Cluster))
	case w.epoch != l.epoch:
		return dberr.As(dberr.Stale, fmt.Errorf("it says epoch %d, the map in use has %d", epoch, l.epoch))
	}
	return nil
}

// A connector makes connections that have proven to reach the right database.
type connector struct {
	cfg    *mysql.Config
	link   *link // nil: any database
	writes bool
}

func (n *connector) Driver() driver.Driver { return mysql.MySQLDriver{} }

func (n *connector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := mysql.NewConnector(n.cfg)
	if err != nil {
		return nil, err
	}
	conn, err := inner.Connect(ctx)
	if err != nil || n.link == nil {
		return conn, err
	}
	w, err := n.link.ask(ctx, conn.(driver.QueryerContext))
	if err == nil && n.writes && w.readOnly {
		err = errReadOnly
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// Session returns the settings of every connection to a server: those of the driver, and
// those of the session. They are the caller's to add to; it is for a pool that neither a
// Cluster nor OpenServer makes.
func (c Config) Session(server shardmap.Server) *mysql.Config {
	c = c.withDefaults()
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr = "tcp", server.Address
	cfg.User, cfg.Passwd = c.User, c.Password
	if c.TLS != nil {
		cfg.TLS = c.TLS.Clone() // in it the driver writes the name of the server
	}
	cfg.Logger = &mysql.NopLogger{} // its texts quote the server's
	cfg.Timeout = c.DialTimeout
	cfg.ParseTime, cfg.Loc = true, time.UTC
	cfg.InterpolateParams = true
	cfg.Params = map[string]string{
		"tx_isolation":             "'READ-COMMITTED'",
		"innodb_lock_wait_timeout": "1",
		"lock_wait_timeout":        "2",
		// Frees locks when a process freezes between two packets of a transaction.
		"idle_transaction_timeout": "2",
		"time_zone":                "'+00:00'",
		"sql_mode":                 "'STRICT_ALL_TABLES'",
	}
	_ = cfg.Apply(mysql.Charset("utf8mb4", "utf8mb4_bin")) // never fails
	return cfg
}

// OpenServer returns a pool on a server itself, for whoever makes its databases (see
// schema.Migrate): nothing asks which database this is, and a statement may take as
// long as its context lets it. The caller closes it.
func OpenServer(server shardmap.Server, c Config) *sql.DB {
	return sql.OpenDB(&connector{cfg: c.Session(server)})
}

// Discard closes the connection itself instead of giving it back to its pool, and
// with it rolls back what is open on it.
func Discard(c *sql.Conn) {
	_ = c.Raw(func(any) error { return driver.ErrBadConn })
	_ = c.Close()
}
