package lease

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/dberr"
)

// SQL is the Table in the meta database.
type SQL struct {
	db      *cluster.Database
	permits chan struct{} // fewer than the connections that db has for writers
	taken   string        // the statements, with the schema's name
	acquire string
	renew   string
	release string
}

// setNow takes the database's time once for all statements of a packet, in ms since
// 1970. UTC_TIMESTAMP, unlike UNIX_TIMESTAMP(NOW()), knows no session time zone, whose
// clocks go back once a year.
const setNow = "SET @now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000;"

// NewSQL returns the table in a migrated meta database.
func NewSQL(meta *cluster.Database) *SQL {
	text := func(s string) string { return setNow + strings.ReplaceAll(s, "lease", "`"+meta.Schema()+"`.lease") }
	return &SQL{
		db:      meta,
		permits: make(chan struct{}, 4),
		taken:   text("SELECT @now, name FROM lease WHERE name LIKE ? AND name <> '" + workerNames + "' AND until_ms > @now UNION ALL SELECT @now, NULL"),
		// The assignments run from left to right, so until_ms, which the others
		// compare, is the last.
		//
		// Whether numbers are given out is asked in the statement that gives one.
		acquire: text("INSERT INTO lease (name, holder, token, until_ms) SELECT ?, ?, 1, @now + ? FROM DUAL" +
			" WHERE NOT ? OR EXISTS (SELECT 1 FROM lease AS numbers WHERE numbers.name = '" + workerNames + "' AND numbers.until_ms <= @now)" +
			" ON DUPLICATE KEY UPDATE" +
			" holder = IF(until_ms <= @now, VALUES(holder), holder)," +
			" token = IF(until_ms <= @now, token + 1, token)," +
			" until_ms = IF(until_ms <= @now, VALUES(until_ms), until_ms);" +
			"SELECT ROW_COUNT(), @now, COALESCE(got.holder, ''), COALESCE(got.token, 0), COALESCE(got.until_ms, 0), numbers.until_ms FROM (SELECT 1) AS one" +
			" LEFT JOIN lease AS got ON got.name = ? LEFT JOIN lease AS numbers ON numbers.name = '" + workerNames + "'"),
		renew: text("UPDATE lease SET until_ms = GREATEST(until_ms, @now + ?) WHERE name = ? AND holder = ? AND token = ?;" +
			"SELECT @now, until_ms FROM lease WHERE name = ? AND holder = ? AND token = ?"),
		release: text("UPDATE lease SET holder = '', until_ms = LEAST(until_ms, @now) WHERE name = ? AND holder = ? AND token = ?;" +
			"SELECT @now"),
	}
}

// Acquire implements Table.
func (t *SQL) Acquire(ctx context.Context, name, holder string, term time.Duration) (Lease, error) {
	l, got := Lease{Name: name, Holder: holder}, false
	number := strings.HasPrefix(name, workerNames)
	var closed error
	sent, err := t.packet(ctx, t.acquire, []any{name, holder, term.Milliseconds(), number, name}, func(rows *sql.Rows) error {
		var changed, now, until int64
		var by string
		var opens sql.NullInt64
		if err := rows.Scan(&changed, &now, &by, &l.Token, &until, &opens); err != nil {
			return err
		}
		switch {
		case number && !opens.Valid:
			closed = fmt.Errorf("%w: octopay migrate has not ended", ErrClosed)
		case number && opens.Int64 > now:
			closed = fmt.Errorf("%w: it does from %s on", ErrClosed, time.UnixMilli(opens.Int64).UTC().Format(time.DateTime))
		}
		l.Now, l.Until = time.UnixMilli(now).UTC(), time.UnixMilli(until).UTC()
		// The row may be somebody else's again, if the term ended before it was read.
		got = changed > 0 && by == holder && until == now+term.Milliseconds()
		return nil
	})
	switch {
	case err != nil:
		return Lease{}, fmt.Errorf("lease: acquire %s: %w", name, err)
	case !got && closed != nil:
		return Lease{}, closed
	case !got:
		return Lease{}, ErrTaken
	}
	l.SentAt = sent
	return l, nil
}

// Renew implements Table.
func (t *SQL) Renew(ctx context.Context, l Lease, term time.Duration) (Lease, error) {
	held := false
	args := []any{term.Milliseconds(), l.Name, l.Holder, l.Token, l.Name, l.Holder, l.Token}
	sent, err := t.packet(ctx, t.renew, args, func(rows *sql.Rows) error {
		var now, until int64
		if err := rows.Scan(&now, &until); err != nil {
			return err
		}
		held = true
		l.Now, l.Until = time.UnixMilli(now).UTC(), time.UnixMilli(until).UTC()
		return nil
	})
	switch {
	case err != nil:
		return Lease{}, fmt.Errorf("lease: renew %s: %w", l.Name, err)
	case !held:
		return Lease{}, ErrLost
	}
	l.SentAt = sent
	return l, nil
}

// Release implements Table.
func (t *SQL) Release(ctx context.Context, l Lease) error {
	_, err := t.packet(ctx, t.release, []any{l.Name, l.Holder, l.Token}, func(*sql.Rows) error { return nil })
	if err != nil {
		return fmt.Errorf("lease: release %s: %w", l.Name, err)
	}
	return nil
}

// Taken implements Table.
func (t *SQL) Taken(ctx context.Context, prefix string) (map[string]bool, time.Time, error) {
	taken, now := map[string]bool{}, time.Time{}
	_, err := t.packet(ctx, t.taken, []any{prefix + "%"}, func(rows *sql.Rows) error {
		var ms int64
		var name sql.NullString
		if err := rows.Scan(&ms, &name); err != nil {
			return err
		}
		now = time.UnixMilli(ms).UTC()
		if name.Valid {
			taken[name.String] = true
		}
		return nil
	})
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("lease: list %s: %w", prefix, err)
	}
	return taken, now, nil
}

// packet sends statements of which the last is a SELECT, in one packet, so that the
// time between the moment at which it was sent and the moment at which the database
// read its clock is one way over the network. It returns that first moment. Each
// statement is a transaction of its own: no error leaves one open.
func (t *SQL) packet(ctx context.Context, text string, args []any, scan func(*sql.Rows) error) (sent time.Time, err error) {
	defer func() { err = dberr.Clean(err) }()
	select {
	case t.permits <- struct{}{}:
		defer func() { <-t.permits }()
	case <-ctx.Done():
		return sent, ctx.Err()
	}
	conn, err := t.db.Conn(ctx)
	if err != nil {
		return sent, err
	}
	defer func() {
		if err != nil {
			cluster.Discard(conn)
			return
		}
		_ = conn.Close()
	}()
	sent = time.Now()
	rows, err := conn.QueryContext(ctx, text, args...)
	if err != nil {
		return sent, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for {
		for rows.Next() {
			if err := scan(rows); err != nil {
				return sent, err
			}
		}
		if !rows.NextResultSet() {
			return sent, rows.Err()
		}
	}
}
