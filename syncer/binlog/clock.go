package binlog

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/syncer/source"
)

// A clock makes stamps of a server.
//
// A transaction of a lane first locks its owner row, which puts it into innodb_trx,
// then takes its time, and leaves innodb_trx only after its COMMIT is in the binary
// log. So whatever is stamped before T is, when innodb_trx is read at T or later,
// either listed there with a start no later than its stamp, or in the log already.
// The least of T and the starts of those listed is therefore a time before which
// everything is in the log as it is read afterwards.
//
// What innodb_trx shows is a copy that InnoDB renews only if nobody has read it for
// 0.1 s. Whether the copy is new shows by its own entry for this connection: it holds
// the text of this very query, which has a number of its own.
//
// Any read-write transaction counts, whoever left it open: an operator's, or that of a
// dump with --single-transaction. Marks stand still meanwhile, and the lag shows it.
type clock struct {
	s      *Source
	conn   *sql.Conn
	n      uint64
	margin schema.Millis
}

// marginMillis is for a server's clock that is set back a little. That trx_started has
// whole seconds needs none: they are cut.
const marginMillis = 1000

// soonMillis is how much later than the statement's own time a transaction that it lists
// may have begun.
const soonMillis = 1000

// Clock implements source.Source.
func (s *Source) Clock(ctx context.Context) (source.Clock, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	if err := s.checkOwners(ctx); err != nil {
		return nil, err
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, s.wrap("clock", err)
	}
	return &clock{s: s, conn: conn, margin: marginMillis}, nil
}

// Stamp implements source.Clock.
func (c *clock) Stamp(ctx context.Context) (source.Stamp, error) {
	// Cut off, the connection would be lost; it is short.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), queryTimeout)
	defer cancel()
	stamp, err := c.stamp(ctx)
	if errors.Is(err, source.ErrNotFresh) {
		return source.Stamp{}, err
	}
	return stamp, c.s.wrap("stamp", err)
}

func (c *clock) stamp(ctx context.Context) (source.Stamp, error) {
	c.n++
	// Read-only, so that other clocks of this server don't wait for this one.
	if _, err := c.conn.ExecContext(ctx, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"); err != nil {
		return source.Stamp{}, err
	}
	tag := fmt.Sprintf("octopay stamp %d;", c.n)
	var now schema.Millis
	var oldest sql.NullFloat64
	var fresh bool
	err := c.conn.QueryRowContext(ctx, "/* "+tag+" */ SELECT UTC_TIMESTAMP(3), "+
		"UNIX_TIMESTAMP(MIN(IF(trx_mysql_thread_id <> CONNECTION_ID() AND trx_is_read_only = 0, trx_started, NULL))), "+
		"COALESCE(MAX(trx_mysql_thread_id = CONNECTION_ID() AND LOCATE('"+tag+"', trx_query) > 0), 0) "+
		"FROM information_schema.innodb_trx").Scan(&now, &oldest, &fresh)
	if err != nil {
		return source.Stamp{}, err
	}
	// The position after the time: what left innodb_trx before is in the log.
	var position string
	if err := c.conn.QueryRowContext(ctx, "SELECT @@GLOBAL.gtid_binlog_pos").Scan(&position); err != nil {
		return source.Stamp{}, err
	}
	if _, err := c.conn.ExecContext(ctx, "ROLLBACK"); err != nil {
		return source.Stamp{}, err
	}
	if !fresh {
		return source.Stamp{}, fmt.Errorf("binlog of %s: %w: somebody else reads innodb_trx all the time", c.s.server.Name, source.ErrNotFresh)
	}
	stamp := source.Stamp{At: now, Now: now}
	if oldest.Valid {
		started := schema.Millis(oldest.Float64 * 1000)
		// The statement's time is taken before InnoDB lists the transactions, so one that
		// began in between can have the next whole second: it is stamped no earlier than
		// now.
		if started > now+soonMillis {
			// The hour in which a time zone's clock is set back exists twice, and the
			// server guessed the later one.
			return source.Stamp{}, fmt.Errorf("binlog of %s: %w: a transaction began in the future; is the system's time zone not UTC?", c.s.server.Name, source.ErrNotFresh)
		}
		stamp.At = min(stamp.At, started)
	}
	stamp.At -= c.margin
	stamp.Position, err = source.ParsePosition(position)
	return stamp, err
}

// Close implements source.Clock.
func (c *clock) Close() error {
	// A transaction may be open on it.
	_ = c.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = c.conn.Close()
	return nil
}
