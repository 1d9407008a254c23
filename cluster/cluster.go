// Package cluster opens the databases of a shard map, hands out their connections, and
// replaces both while the process runs. Among the packages that write and read orders
// it alone knows an address or a password; what reads a server's log instead of its
// tables (syncer/binlog) has a connection of its own.
//
// It decides
//   - which connection may be used: one whose database says, in its owner row, that it
//     is the database of the map, under the map's epoch;
//   - which map that is: of those in the meta database the one of the highest epoch,
//     from the moment on at which Run sees it;
//   - which database is asked at all: one that doesn't answer is left alone, so that
//     its callers learn so at once, and those of other databases learn nothing of it;
//   - how many reads of a database run at once, so that nobody ever waits inside
//     database/sql, whose wait has no bound.
//
// It leaves to its callers what they say over a connection, and to the guard of every
// write's own transaction that the epoch is still the same when it is written.
//
// No connection has a default database: a statement that doesn't name its schema
// fails.
package cluster

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

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
	TLS            *tls.Config   // each server shows a certificate for the host of its address; nil: no TLS
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

// A Cluster holds a handle for every database of a map. The handles stay the same when
// a newer map takes over. It is safe for concurrent use.
type Cluster struct {
	config  Config
	uid     []*Database
	bid     []*Database
	meta    *Database
	watched atomic.Bool   // Run is running
	unread  atomic.Bool   // the map in force, when Run looked for it last
	ask     chan struct{} // for the map, without waiting for the next look

	mu    sync.Mutex // of the change to another map
	force atomic.Pointer[force]
}

// A force is a map for as long as it is the one in use.
type force struct {
	m    *shardmap.Map
	over chan struct{} // closed when another one is
}

// Open makes the handles of m's databases. It connects to none of them: that happens at
// first use, so a database that is away doesn't keep the others from serving. They
// follow newer maps, and notice by themselves when a database is back, while Run runs.
func Open(m *shardmap.Map, c Config) *Cluster {
	c = c.withDefaults()
	out := &Cluster{config: c, ask: make(chan struct{}, 1)}
	open := func(places ...shardmap.Database) (all []*Database) {
		for _, p := range places {
			d := &Database{config: c, permits: make(chan struct{}, c.ReadPermits), watched: &out.watched}
			d.link.Store(newLink(p, m.Epoch(), c))
			all = append(all, d)
		}
		return all
	}
	out.uid = open(m.Databases(shardmap.UID)...)
	out.bid = open(m.Databases(shardmap.BID)...)
	out.meta = open(m.Meta())[0]
	out.force.Store(&force{m, make(chan struct{})})
	return out
}

// Map returns the map that the handles follow. A newer one may take over at any time,
// so whoever needs two answers that agree asks one Map for both.
func (c *Cluster) Map() *shardmap.Map { return c.force.Load().m }

// Config returns how c connects, for who needs a connection of its own to a server.
func (c *Cluster) Config() Config { return c.config }

// Changed returns a channel that is closed when Map returns another map than m.
func (c *Cluster) Changed(m *shardmap.Map) <-chan struct{} {
	f := c.force.Load()
	if f.m != m {
		over := make(chan struct{})
		close(over)
		return over
	}
	return f.over
}

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
// Run has returned before.
func (c *Cluster) Close() error {
	var errs []error
	for _, d := range c.All() {
		errs = append(errs, d.link.Load().close())
	}
	return errors.Join(errs...)
}

// A Health says which databases don't serve, as far as is known without asking them.
type Health struct {
	Unavailable []shardmap.Database // are neither read nor written
	ReadOnly    []shardmap.Database // are read, and not written
	Serving     bool                // some uid database is read
}

// Health returns the health of all databases. Only while Run runs it is kept up to date.
func (c *Cluster) Health() (h Health) {
	for _, d := range c.All() {
		place := d.Place()
		switch {
		// The meta database's probe reads no table of it; the look for the map does.
		case d.Readable() != nil, d == c.meta && c.unread.Load():
			h.Unavailable = append(h.Unavailable, place)
			continue
		case d.Writable() != nil:
			h.ReadOnly = append(h.ReadOnly, place)
		}
		h.Serving = h.Serving || place.Cluster == shardmap.UID
	}
	return h
}

// follow makes m, which is newer, the map in use. Every database gets new connections,
// since an open one has proven itself under the old epoch only; what is under way on
// the old ones ends there.
func (c *Cluster) follow(m *shardmap.Map, log *slog.Logger) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.force.Load()
	if m.Size() != f.m.Size() || m.Prefix() != f.m.Prefix() {
		return fmt.Errorf("the map of epoch %d has %d databases and prefix %q, the one in use, of epoch %d, has %d and %q: that can't change while this process runs",
			m.Epoch(), m.Size(), m.Prefix(), f.m.Epoch(), f.m.Size(), f.m.Prefix())
	}
	places := append(append(m.Databases(shardmap.UID), m.Databases(shardmap.BID)...), m.Meta())
	var old []*link
	for i, d := range c.All() {
		old = append(old, d.link.Swap(newLink(places[i], m.Epoch(), c.config)))
	}
	c.force.Store(&force{m, make(chan struct{})})
	close(f.over)
	log.Info("shard map", "epoch", m.Epoch(), "hash", m.Hash(), "databases", m.Size(), "epoch_before", f.m.Epoch())
	var errs []error
	for _, l := range old {
		errs = append(errs, l.close())
	}
	if err := errors.Join(errs...); err != nil {
		log.Warn("close the connections of the map before", "error", err)
	}
	return nil
}
