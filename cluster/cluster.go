// Package cluster opens the databases of a shard map and hands out their
// connections. No other package knows an address or a password.
//
// It decides which connection may be used: one whose database says, in its owner
// row, that it is the database of the map, under the map's epoch. It bounds how many
// reads of a database run at once, so that nobody ever waits inside database/sql,
// whose wait has no bound. It leaves to its callers what they say over a
// connection.
//
// No connection has a default database: a statement that doesn't name its schema
// fails.
package cluster

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/octopay/octopay/internal/dberr"
	"github.com/octopay/octopay/shardmap"
)

var (
	// ErrUnavailable reports a database that cannot be used now: away, read-only, or
	// not the database, or not of the epoch, that the map says. It is wrapped
	// together with the cause.
	ErrUnavailable = errors.New("database unavailable")
	// ErrBusy reports a database whose reads are all taken. Nothing was asked of it.
	ErrBusy = errors.New("database busy")
)

// A Config says how to connect. Zero values are the defaults.
type Config struct {
	User, Password string
	ReadPermits    int           // reads of one database at once; 8
	PermitWait     time.Duration // how long a read waits for a permit; 100 ms
	DialTimeout    time.Duration // 2 s
	ReadTimeout    time.Duration // deadline of one Read; 3 s
}

func (c Config) withDefaults() Config {
	set := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	if c.ReadPermits <= 0 {
		c.ReadPermits = 8
	}
	set(&c.PermitWait, 100*time.Millisecond)
	set(&c.DialTimeout, 2*time.Second)
	set(&c.ReadTimeout, 3*time.Second)
	return c
}

// writersMax bounds the dedicated connections of one database: a lane has one for
// each of its two queues, an applier one, and each may be replacing one.
const writersMax = 8

// A Cluster holds a handle for every database of a map. It is safe for concurrent
// use.
type Cluster struct {
	m    *shardmap.Map
	uid  []*Database
	bid  []*Database
	meta *Database
}

// Open makes the handles of m's databases. It connects to none of them: that
// happens at first use, so a database that is away doesn't keep the others from
// serving.
func Open(m *shardmap.Map, c Config) *Cluster {
	c = c.withDefaults()
	open := func(places []shardmap.Database) (out []*Database) {
		for _, p := range places {
			out = append(out, openDatabase(p, m.Epoch(), c))
		}
		return out
	}
	return &Cluster{
		m:    m,
		uid:  open(m.Databases(shardmap.UID)),
		bid:  open(m.Databases(shardmap.BID)),
		meta: openDatabase(m.Meta(), m.Epoch(), c),
	}
}

// Map returns the map that the handles follow.
func (c *Cluster) Map() *shardmap.Map { return c.m }

// Database returns database n, 1 … Map().Size(), of a cluster.
func (c *Cluster) Database(cl shardmap.Cluster, n int) *Database {
	if cl == shardmap.UID {
		return c.uid[n-1]
	}
	return c.bid[n-1]
}

// Meta returns the meta database. It has no owner row.
func (c *Cluster) Meta() *Database { return c.meta }

// All returns every handle: the uid databases, the bid databases, the meta database.
func (c *Cluster) All() []*Database {
	return append(append(append([]*Database(nil), c.uid...), c.bid...), c.meta)
}

// Close closes all handles. Connections in use are closed when they are given back.
func (c *Cluster) Close() error {
	var errs []error
	for _, d := range c.All() {
		errs = append(errs, d.readers.Close(), d.writers.Close())
	}
	return errors.Join(errs...)
}

// A Database is the handle of one database. It is safe for concurrent use.
type Database struct {
	place   shardmap.Database
	config  Config
	permits chan struct{}
	readers *sql.DB
	writers *sql.DB
}

func openDatabase(place shardmap.Database, epoch shardmap.Epoch, c Config) *Database {
	d := &Database{place: place, config: c, permits: make(chan struct{}, c.ReadPermits)}
	d.readers = openPool(place, epoch, c, false, c.ReadPermits+1)
	d.writers = openPool(place, epoch, c, true, writersMax)
	return d
}

// Place returns which database this is.
func (d *Database) Place() shardmap.Database { return d.place }

// Schema returns the name that qualifies every table.
func (d *Database) Schema() string { return d.place.Schema }

// Read calls f with a connection for reading, under a permit and a deadline of its
// own: the end of ctx stops the wait for a permit, not a statement, since a
// cancelled statement costs a connection. Without a permit it returns ErrBusy. An
// error of f that means the database is away is wrapped in ErrUnavailable. f returns
// errors of the database alone; sql.ErrNoRows is passed on.
func (d *Database) Read(ctx context.Context, f func(ctx context.Context, c *sql.Conn) error) error {
	select {
	case d.permits <- struct{}{}:
	default:
		wait := time.NewTimer(d.config.PermitWait)
		defer wait.Stop()
		select {
		case d.permits <- struct{}{}:
		case <-wait.C:
			return fmt.Errorf("%w: %s", ErrBusy, d.place.Schema)
		case <-ctx.Done():
			return fmt.Errorf("%w: %s: %w", ErrBusy, d.place.Schema, ctx.Err())
		}
	}
	defer func() { <-d.permits }()

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.config.ReadTimeout)
	defer cancel()
	c, err := d.readers.Conn(ctx)
	if err != nil {
		return d.unavailable(err)
	}
	defer c.Close()
	err = f(ctx, c)
	if errors.Is(err, sql.ErrNoRows) {
		return err
	}
	switch dberr.Of(err) {
	case dberr.NotSent, dberr.Unknown, dberr.ReadOnly, dberr.Stale:
		return d.unavailable(err)
	}
	return dberr.Clean(err)
}

// Conn returns a dedicated connection for a writer, which may send many statements
// in one packet. The caller closes it, or discards it (see Discard) when it is not
// sure that no transaction is open on it. Every error is wrapped in ErrUnavailable.
func (d *Database) Conn(ctx context.Context) (*sql.Conn, error) {
	c, err := d.writers.Conn(ctx)
	if err != nil {
		return nil, d.unavailable(err)
	}
	return c, nil
}

// Check reports whether the database can be used now, by asking it.
func (d *Database) Check(ctx context.Context) error {
	return d.Read(ctx, func(ctx context.Context, c *sql.Conn) error { return c.PingContext(ctx) })
}

func (d *Database) unavailable(err error) error {
	if errors.Is(err, ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, d.place, dberr.Clean(err))
}

// Discard closes the connection itself instead of giving it back to its pool, and
// with it rolls back what is open on it.
func Discard(c *sql.Conn) {
	_ = c.Raw(func(any) error { return driver.ErrBadConn })
	_ = c.Close()
}

func openPool(place shardmap.Database, epoch shardmap.Epoch, c Config, multi bool, size int) *sql.DB {
	cfg := c.session(place.Server)
	// Callers set deadlines; these catch what has none.
	cfg.ReadTimeout, cfg.WriteTimeout = 10*time.Second, 10*time.Second
	cfg.MultiStatements = multi
	db := sql.OpenDB(&connector{cfg: cfg, place: place, epoch: epoch})
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	db.SetConnMaxLifetime(3*time.Minute + rand.N(time.Minute))
	return db
}

// OpenServer returns a pool on a server itself, for whoever makes its databases (see
// schema.Migrate): nothing asks which database this is, and a statement may take as
// long as its context lets it. The caller closes it.
func OpenServer(server shardmap.Server, c Config) *sql.DB {
	return sql.OpenDB(&connector{cfg: c.withDefaults().session(server)})
}

// session returns the settings of every connection.
func (c Config) session(server shardmap.Server) *mysql.Config {
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr = "tcp", server.Address
	cfg.User, cfg.Passwd = c.User, c.Password
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

// A connector makes connections that have proven to reach the right database.
type connector struct {
	cfg   *mysql.Config
	place shardmap.Database
	epoch shardmap.Epoch
}

func (n *connector) Driver() driver.Driver { return mysql.MySQLDriver{} }

func (n *connector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := mysql.NewConnector(n.cfg)
	if err != nil {
		return nil, err
	}
	conn, err := inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if n.place.Cluster != "" {
		if err := n.checkOwner(ctx, conn); err != nil {
			_ = conn.Close()
			return nil, err
		}
	}
	return conn, nil
}

// checkOwner reads the owner row: a connection to a database of another number,
// cluster or epoch must never carry a statement.
func (n *connector) checkOwner(ctx context.Context, conn driver.Conn) (err error) {
	rows, err := conn.(driver.QueryerContext).QueryContext(ctx,
		"SELECT cluster, `database`, epoch FROM `"+n.place.Schema+"`.owner WHERE id = 1", nil)
	if err != nil {
		return fmt.Errorf("owner row: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	row := make([]driver.Value, 3)
	if err := rows.Next(row); err != nil {
		return errors.New("there is no owner row")
	}
	cluster, _ := row[0].([]byte)
	number, _ := row[1].(int64)
	epoch, _ := row[2].(int64)
	if shardmap.Cluster(cluster) != n.place.Cluster || int(number) != n.place.Number {
		return fmt.Errorf("the owner row says database %d of cluster %s, the map says %d of %s", number, cluster, n.place.Number, n.place.Cluster)
	}
	if shardmap.Epoch(epoch) != n.epoch {
		return fmt.Errorf("the owner row says epoch %d, the map in use has %d", epoch, n.epoch)
	}
	return nil
}
