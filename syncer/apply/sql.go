package apply

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/dberr"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/slot"
	"github.com/octopay/octopay/syncer/source"
	"github.com/octopay/octopay/syncer/stream"
)

const (
	triesMax      = 3                // of one transaction, when a lock isn't got
	changeTimeout = 15 * time.Second // of one transaction
)

// SQL is a Target in MariaDB. It holds one connection for Apply.
type SQL struct {
	db    *cluster.Database
	epoch shardmap.Epoch

	mu   sync.Mutex
	conn *sql.Conn // nil: none, or the last one was thrown away
}

// NewSQL returns the Target that keeps the mirror in a database of the bid cluster,
// under the map's epoch. Close gives its connection back.
func NewSQL(db *cluster.Database, epoch shardmap.Epoch) *SQL { return &SQL{db: db, epoch: epoch} }

// Place implements Target.
func (t *SQL) Place() shardmap.Database { return t.db.Place() }

// Close gives the connection back.
func (t *SQL) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conn == nil {
		return nil
	}
	err := t.conn.Close()
	t.conn = nil
	return err
}

func (t *SQL) table(name string) string { return "`" + t.db.Schema() + "`." + name }

// State implements Target.
func (t *SQL) State(ctx context.Context) (State, error) {
	s := State{Marks: map[string]stream.Mark{}}
	err := t.db.Read(ctx, func(ctx context.Context, c *sql.Conn) error {
		// The marks first: a mark read together with an older progress is true, the
		// other way round says too little at worst.
		rows, err := c.QueryContext(ctx, "SELECT server, gtid, at FROM "+t.table("mark"))
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var m stream.Mark
			var gtid string
			if err := rows.Scan(&m.Server, &gtid, &m.At); err != nil {
				return err
			}
			if m.Position, err = source.ParsePosition(gtid); err != nil {
				return err
			}
			s.Marks[m.Server] = m
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return err
		}
		if err := c.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+t.table("dead_letter")+" WHERE state = 'open'").Scan(&s.Letters); err != nil {
			return err
		}
		return c.QueryRowContext(ctx, "SELECT incarnation, stream_seq, stored_at FROM "+t.table("progress")+" WHERE id = 1").
			Scan(&s.Progress.Incarnation, &s.Progress.Seq, &s.Progress.StoredAt)
	})
	if err != nil {
		return State{}, fmt.Errorf("apply: state of %s: %w", t.db.Place(), dberr.Clean(err))
	}
	return s, nil
}

// Apply implements Target.
func (t *SQL) Apply(ctx context.Context, c *Change) (letters int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), changeTimeout)
	defer cancel()
	err = again(ctx, func() (err error) {
		letters, err = t.apply(ctx, c)
		return err
	})
	if err != nil && !errors.Is(err, ErrMoved) {
		err = fmt.Errorf("apply: %s: %w", t.db.Place(), dberr.Clean(err))
	}
	return letters, err
}

// again makes several tries at a transaction that doesn't get its locks.
func again(ctx context.Context, f func() error) error {
	for try := 1; ; try++ {
		err := f()
		if dberr.Of(err) == dberr.Retryable && try < triesMax {
			select {
			case <-time.After(rand.N(20 * time.Millisecond)):
				continue
			case <-ctx.Done():
			}
		}
		return err
	}
}

// apply makes one try at the whole transaction.
func (t *SQL) apply(ctx context.Context, c *Change) (letters int, err error) {
	if t.conn != nil && t.db.Writable() != nil {
		// It is known not to answer, or to take no writes; Conn says which.
		cluster.Discard(t.conn)
		t.conn = nil
	}
	if t.conn == nil {
		if t.conn, err = t.db.Conn(ctx); err != nil {
			return 0, err
		}
	}
	defer func() {
		t.wrote(err)
		if err != nil && t.conn != nil {
			// Whatever is open on it is rolled back with it.
			cluster.Discard(t.conn)
			t.conn = nil
		}
	}()
	open, err := t.begin(ctx, c)
	if err != nil {
		return 0, err
	}
	p := t.packet(c, open)
	_, err = t.conn.ExecContext(ctx, p.text.String(), p.args...)
	if !refusesRow(err) {
		return open + len(c.Letters), err
	}
	// Some row is to blame; which one shows when each has a statement of its own. The
	// statement failed, not the transaction, but the part of the packet behind it
	// didn't run: once more from the beginning.
	if _, err := t.conn.ExecContext(ctx, "ROLLBACK"); err != nil {
		return 0, err
	}
	if open, err = t.begin(ctx, c); err != nil {
		return 0, err
	}
	sifted, err := t.sift(ctx, c)
	if err != nil {
		return 0, err
	}
	p = t.packet(sifted, open)
	_, err = t.conn.ExecContext(ctx, p.text.String(), p.args...)
	return open + len(sifted.Letters), err
}

// wrote tells the handle how a transaction went. That another applier was quicker, or
// a letter is settled already, the database has answered.
func (t *SQL) wrote(err error) {
	if errors.Is(err, ErrMoved) || errors.Is(err, ErrNoLetter) {
		err = nil
	}
	t.db.Wrote(err)
}

// begin opens the transaction, locks the progress, and returns the number of open
// dead letters.
func (t *SQL) begin(ctx context.Context, c *Change) (open int, err error) {
	rows, err := t.conn.QueryContext(ctx, "BEGIN;"+
		schema.OwnerGuard(t.db.Schema())+";"+
		"SELECT incarnation, stream_seq, stored_at FROM "+t.table("progress")+" WHERE id = 1 FOR UPDATE;"+
		"SELECT COUNT(*) FROM "+t.table("dead_letter")+" WHERE state = 'open'", t.epoch)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var one int
	var at Progress
	for i, dest := range [][]any{{&one}, {&at.Incarnation, &at.Seq, &at.StoredAt}, {&open}} {
		if i > 0 && !rows.NextResultSet() {
			return 0, errors.Join(rows.Err(), errors.New("a result is missing"))
		}
		if !rows.Next() {
			return 0, errors.Join(rows.Err(), errors.New("a row is missing"))
		}
		if err := rows.Scan(dest...); err != nil {
			return 0, err
		}
	}
	if at != c.From {
		return 0, ErrMoved
	}
	return open, nil
}

// refusesRow reports whether err is the server's word that what is in a row can't be
// stored, as opposed to a table that is missing or a disk that is full: those are
// tried again, not set aside.
func refusesRow(err error) bool {
	var said *mysql.MySQLError
	if !errors.As(err, &said) {
		return false
	}
	switch said.Number {
	case 1048, // NULL in a column that has none
		1264, // out of range
		1265, // data truncated, such as a name that the ENUM lacks
		1292, // incorrect time
		1366, // incorrect string or number
		1406, // too long
		4025: // a CHECK fails
		return true
	}
	return false
}

// sift writes each row in a statement of its own, within the transaction, and
// returns the change without rows, those refused as dead letters.
func (t *SQL) sift(ctx context.Context, c *Change) (*Change, error) {
	out := &Change{From: c.From, To: c.To, Marks: c.Marks, Letters: append([]Letter(nil), c.Letters...)}
	one := func(row *Change, o Origin, uid, bid int64, table, key string, id ...any) error {
		var p packet
		t.rows(&p, row)
		_, err := t.conn.ExecContext(ctx, p.text.String(), p.args...)
		if !refusesRow(err) {
			return err
		}
		var said *mysql.MySQLError
		_ = errors.As(err, &said) // it is one: refusesRow
		reason := fmt.Sprintf("the database refuses the row: error %d", said.Number)
		var ofUID, ofBID int64
		err = t.conn.QueryRowContext(ctx, "SELECT uid, bid FROM "+t.table(fmt.Sprintf("%s_%d", table, slot.Table(bid)))+" WHERE "+key, id...).Scan(&ofUID, &ofBID)
		switch {
		case errors.Is(err, sql.ErrNoRows):
		case err != nil:
			return err
		case ofUID != uid || ofBID != bid:
			reason = reasonTaken
		}
		out.Letters = append(out.Letters, letter(c.To.Incarnation, o, reason))
		return nil
	}
	for i := range c.Orders {
		o := &c.Orders[i]
		if err := one(&Change{Orders: c.Orders[i : i+1]}, o.Origin, o.UID, o.BID, "order", "id = ?", o.ID); err != nil {
			return nil, err
		}
	}
	for i := range c.Entries {
		e := &c.Entries[i]
		if err := one(&Change{Entries: c.Entries[i : i+1]}, e.Origin, e.UID, e.BID, "journal", "order_id = ? AND seq = ?", e.OrderID, e.Seq); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// A packet is the text of several statements and their arguments.
type packet struct {
	text strings.Builder
	args []any
}

func (p *packet) add(text string, args ...any) {
	p.text.WriteString(text)
	p.args = append(p.args, args...)
}

// insert adds one multi-row INSERT.
func (p *packet) insert(table string, columns []string, n int, values func(i int) []any, onDuplicate string) {
	p.add("INSERT INTO " + table + " (" + schema.List(columns) + ") VALUES ")
	tuple := "(" + strings.Repeat("?,", len(columns)-1) + "?)"
	for i := range n {
		if i > 0 {
			p.add(",")
		}
		p.add(tuple, values(i)...)
	}
	p.add(" ON DUPLICATE KEY UPDATE " + onDuplicate + ";")
}

// sameOrder refuses, with error 1048, a row of another order than the stored one that has
// its key: in the tables of two buyers two orders can have one id. It comes first, and
// costs nothing where no row is stored.
const sameOrder = "uid=IF(uid=VALUES(uid) AND bid=VALUES(bid),uid,NULL)"

// ifNewer replaces every column of an order if the ver that comes is higher. ver
// itself is last: the assignments are made in this order, and each sees those before.
var ifNewer = func() string {
	sets := []string{sameOrder}
	for _, column := range schema.OrderColumns {
		switch column {
		case "id", "uid", "bid", "ver":
		default:
			sets = append(sets, fmt.Sprintf("%[1]s=IF(VALUES(ver)>ver,VALUES(%[1]s),%[1]s)", column))
		}
	}
	return strings.Join(append(sets, "ver=GREATEST(VALUES(ver),ver)"), ",")
}()

// rows adds the statements for the rows of c: one for each table, sorted as c is.
func (t *SQL) rows(p *packet, c *Change) {
	var orders [slot.Tables][]*Order
	for i := range c.Orders {
		n := slot.Table(c.Orders[i].BID)
		orders[n] = append(orders[n], &c.Orders[i])
	}
	for n, rows := range orders {
		if len(rows) > 0 {
			p.insert(t.table(fmt.Sprintf("order_%d", n)), schema.OrderColumns, len(rows),
				func(i int) []any { return rows[i].Values() }, ifNewer)
		}
	}
	var entries [slot.Tables][]*Entry
	for i := range c.Entries {
		n := slot.Table(c.Entries[i].BID)
		entries[n] = append(entries[n], &c.Entries[i])
	}
	for n, rows := range entries {
		if len(rows) > 0 {
			p.insert(t.table(fmt.Sprintf("journal_%d", n)), schema.EntryColumns, len(rows),
				func(i int) []any { return rows[i].Values() }, sameOrder)
		}
	}
}

// packet is all of the transaction behind begin.
func (t *SQL) packet(c *Change, open int) *packet {
	p := &packet{}
	t.rows(p, c)
	if len(c.Letters) > 0 {
		p.insert(t.table("dead_letter"),
			[]string{"incarnation", "stream_seq", "item", "subject", "reason", "payload", "found_at"}, len(c.Letters),
			func(i int) []any {
				l := &c.Letters[i]
				return []any{l.Incarnation, l.Seq, l.Item, l.Subject, ascii(l.Reason), l.Payload, schema.MillisOf(time.Now())}
			}, "item=item")
	}
	if open+len(c.Letters) == 0 && len(c.Marks) > 0 {
		// Of a stream made anew older marks come first: what they promise was promised
		// before.
		p.insert(t.table("mark"), []string{"server", "gtid", "at"}, len(c.Marks),
			func(i int) []any {
				m := &c.Marks[i]
				return []any{m.Server, m.Position.String(), m.At.SQL()}
			}, "gtid=IF(VALUES(at)>=at,VALUES(gtid),gtid),at=GREATEST(VALUES(at),at)")
	}
	p.add("UPDATE "+t.table("progress")+" SET incarnation=?,stream_seq=?,stored_at=? WHERE id=1;COMMIT",
		c.To.Incarnation, c.To.Seq, c.To.StoredAt)
	return p
}

// ascii makes a text fit for the column.
func ascii(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

// Letters implements Target.
func (t *SQL) Letters(ctx context.Context, limit int) (letters []Letter, err error) {
	err = t.db.Read(ctx, func(ctx context.Context, c *sql.Conn) error {
		rows, err := c.QueryContext(ctx, "SELECT incarnation, stream_seq, item, subject, reason, payload, found_at FROM "+
			t.table("dead_letter")+" WHERE state = 'open' ORDER BY found_at, stream_seq, item LIMIT ?", limit)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		letters = nil
		for rows.Next() {
			var l Letter
			if err := rows.Scan(&l.Incarnation, &l.Seq, &l.Item, &l.Subject, &l.Reason, &l.Payload, &l.FoundAt); err != nil {
				return err
			}
			letters = append(letters, l)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("apply: dead letters of %s: %w", t.db.Place(), dberr.Clean(err))
	}
	return letters, nil
}

// Settle implements Target.
func (t *SQL) Settle(ctx context.Context, key LetterKey, as LetterState, orders []Order, entries []Entry) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), changeTimeout)
	defer cancel()
	err = again(ctx, func() error { return t.settle(ctx, key, as, orders, entries) })
	if err != nil && !errors.Is(err, ErrNoLetter) {
		err = fmt.Errorf("apply: settle a dead letter of %s: %w", t.db.Place(), dberr.Clean(err))
	}
	return err
}

func (t *SQL) settle(ctx context.Context, key LetterKey, as LetterState, orders []Order, entries []Entry) (err error) {
	conn, err := t.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer cluster.Discard(conn) // after COMMIT nothing is open on it; rarely used, so not worth keeping
	defer func() { t.wrote(err) }()
	var p packet
	p.add("BEGIN;"+schema.OwnerGuard(t.db.Schema())+";", t.epoch)
	// The progress is locked by whoever writes rows, so that no two do.
	p.add("SELECT id FROM " + t.table("progress") + " WHERE id = 1 FOR UPDATE;")
	t.rows(&p, &Change{Orders: orders, Entries: entries})
	if _, err := conn.ExecContext(ctx, p.text.String(), p.args...); err != nil {
		return err
	}
	r, err := conn.ExecContext(ctx, "UPDATE "+t.table("dead_letter")+
		" SET state = ?, settled_at = UTC_TIMESTAMP(3) WHERE incarnation = ? AND stream_seq = ? AND item = ? AND state = 'open'",
		string(as), key.Incarnation, key.Seq, key.Item)
	if err != nil {
		return err
	}
	if n, err := r.RowsAffected(); err != nil {
		return err
	} else if n == 0 {
		return ErrNoLetter
	}
	_, err = conn.ExecContext(ctx, "COMMIT")
	return err
}
