package mysqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/dberr"
	"github.com/octopay/octopay/shardmap"
)

// A writer owns the one connection over which one kind of operation of one database
// is written. Whoever holds the turn uses it.
type writer struct {
	db   *cluster.Database
	turn chan struct{} // has room for the one holder

	// Used by the holder of the turn.
	conn   *sql.Conn      // nil: there is none now
	epoch  shardmap.Epoch // of the map when conn was made
	closed bool
}

func newWriter(db *cluster.Database) *writer {
	return &writer{db: db, turn: make(chan struct{}, 1)}
}

// lock waits at most so long for the turn.
func (w *writer) lock(most time.Duration) error {
	wait := time.NewTimer(most)
	defer wait.Stop()
	select {
	case w.turn <- struct{}{}:
	case <-wait.C:
		return unavailable(errors.New("other transactions of this database took too long"))
	}
	if w.closed {
		w.unlock()
		return unavailable(errors.New("the store is closed"))
	}
	return nil
}

func (w *writer) unlock() { <-w.turn }

func (w *writer) close() (err error) {
	w.turn <- struct{}{} // its holder's time is bounded
	defer w.unlock()
	w.closed = true
	if w.conn != nil {
		err = w.conn.Close()
		w.conn = nil
	}
	return err
}

// do calls f with the connection, a new one when there is none or the map has changed,
// and with the epoch that the database must obey. It sees to it that after an error no
// transaction is open on what is kept: MariaDB leaves the transaction of a failed packet
// open, and the next BEGIN would commit its half.
func (w *writer) do(ctx context.Context, f func(*sql.Conn, shardmap.Epoch) error) error {
	if w.conn != nil && (w.epoch != w.db.Epoch() || !alive(ctx, w.conn)) {
		w.discard()
	}
	if w.conn == nil {
		// Asked before: an epoch that is higher than its connection's could let a write
		// through to a server that has the database no more.
		w.epoch = w.db.Epoch()
		c, err := w.db.Conn(ctx)
		if err != nil {
			// Whatever it was, it was not our packet.
			return dberr.As(dberr.NotSent, err)
		}
		w.conn = c
	}
	err := f(w.conn, w.epoch)
	w.db.Wrote(err)
	if err != nil {
		w.mend(ctx, err)
	}
	return err
}

// alive asks the socket, not the server, whether the other end has closed a
// connection meanwhile. The pool does that for its connections, but this one never
// goes back there; and a packet sent to a server that went away would be of unknown
// outcome instead of not sent.
func alive(ctx context.Context, c *sql.Conn) bool {
	return c.Raw(func(dc any) error {
		if r, ok := dc.(driver.SessionResetter); ok {
			return r.ResetSession(ctx)
		}
		return nil
	}) == nil
}

func (w *writer) discard() {
	cluster.Discard(w.conn)
	w.conn = nil
}

// mend keeps the connection only if the server answered, took no offence at us as a
// whole, and confirms the rollback. When something is missing it doesn't: a new
// connection tells at once whether the whole database is gone.
func (w *writer) mend(ctx context.Context, err error) {
	switch dberr.Of(err) {
	case dberr.Refused, dberr.Duplicate, dberr.Retryable:
		if rollback(ctx, w.conn) == nil {
			return
		}
	}
	w.discard()
}

// rollbackMax is how long a rollback may take. Beyond it the connection is closed,
// which rolls back as well, though nobody knows when.
const rollbackMax = time.Second

func rollback(ctx context.Context, c *sql.Conn) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackMax)
	defer cancel()
	_, err := c.ExecContext(ctx, "ROLLBACK")
	return err
}
