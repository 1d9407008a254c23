package mysqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/octopay/octopay/internal/dberr"
	"github.com/octopay/octopay/lane"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
)

// A change is an ordersvc.Change on its way, with what was sent of it so far.
type change struct {
	ordersvc.Change
	sent []schema.Entry // by attempts of unknown outcome
}

// Change implements ordersvc.Store.
func (s *Store) Change(ctx context.Context, database int, changes []ordersvc.Change) []ordersvc.Changed {
	out := make([]ordersvc.Changed, len(changes))
	if len(changes) == 0 {
		return out
	}
	w := s.changes[database-1]
	if err := w.lock(s.turn); err != nil {
		for i := range out {
			out[i].Err = err
		}
		return out
	}
	defer w.unlock()

	ops := make([]*change, len(changes))
	for i, c := range changes {
		ops[i] = &change{Change: c}
	}
	outcomes := lane.Commit(ctx, s.budget, ops, func(ctx context.Context, ops []*change) (out []ordersvc.Changed, err error) {
		err = w.do(ctx, func(c *sql.Conn, epoch shardmap.Epoch) error {
			out, err = alter(ctx, c, w.db.Schema(), epoch, ops)
			return err
		})
		return out, err
	})
	for i, o := range outcomes {
		if out[i] = o.Result; o.Err != nil {
			out[i] = ordersvc.Changed{Err: failure("change", o.Err)}
		}
	}
	return out
}

// alter does changes in one transaction: it locks the orders, decides, and writes. It
// fulfils the contract of lane.Attempt, but leaves the connection as it is after an
// error.
func alter(ctx context.Context, c *sql.Conn, database string, epoch shardmap.Epoch, ops []*change) ([]ordersvc.Changed, error) {
	tables := tablesOf(ops)
	lives, t, err := lockLives(ctx, c, database, epoch, tables)
	if err != nil {
		// Whatever became of these statements, they write nothing.
		if dberr.Of(err) == dberr.Unknown {
			err = dberr.As(dberr.Retryable, dberr.Clean(err))
		}
		return nil, err
	}
	before := make(map[int64]int64, len(lives)) // ver by id
	for id, l := range lives {
		before[id] = l.Order.Ver
	}
	results := make([]ordersvc.Changed, len(ops))
	wrote := false
	for i, op := range ops {
		life := lives[op.Order.Snowflake()]
		if life == nil {
			results[i].Err = ordersvc.ErrNotFound
			continue
		}
		r := life.Apply(&op.Change, t)
		if r.Replayed && slices.Contains(op.sent, r.Entry) {
			// It was this very call, whose answer is the order as it left it: what came
			// after it, in the same batch or from elsewhere, is not its doing.
			r.Replayed = false
			if r.Life, err = life.Until(r.Entry.Seq); err != nil {
				results[i] = ordersvc.Changed{Err: fmt.Errorf("the journal isn't that of the row: %w", err)}
				continue
			}
		}
		results[i] = r
		wrote = wrote || life.Order.Ver != before[op.Order.Snowflake()]
	}
	if !wrote {
		// Only the locks are to end. A connection that doesn't say that they have is no
		// longer used.
		if _, err := c.ExecContext(ctx, "ROLLBACK"); err != nil {
			return nil, dberr.As(dberr.Retryable, dberr.Clean(err))
		}
		return results, nil
	}
	for i, r := range results {
		if !r.Replayed && r.Entry.Seq > 0 {
			ops[i].sent = append(ops[i].sent, r.Entry)
		}
	}
	return results, writeLives(ctx, c, database, tables, lives, before)
}

// A tableIDs is the orders of one table, by ascending id: two transactions that want
// the same ones meet in the same order and can't deadlock.
type tableIDs struct {
	table int
	ids   []any // int64
}

func tablesOf(ops []*change) (out []tableIDs) {
	type place struct {
		table int
		id    int64
	}
	places := make([]place, len(ops))
	for i, op := range ops {
		places[i] = place{op.Order.Table(), op.Order.Snowflake()}
	}
	slices.SortFunc(places, func(a, b place) int {
		if a.table != b.table {
			return a.table - b.table
		}
		if a.id < b.id {
			return -1
		}
		if a.id > b.id {
			return 1
		}
		return 0
	})
	for _, p := range slices.Compact(places) {
		if len(out) == 0 || out[len(out)-1].table != p.table {
			out = append(out, tableIDs{table: p.table})
		}
		last := &out[len(out)-1]
		last.ids = append(last.ids, p.id)
	}
	return out
}

var entryColumns = schema.List(schema.EntryColumns)

func journalTable(database string, n int) string {
	return fmt.Sprintf("`%s`.journal_%d", database, n)
}

// lockLives sends the first packet of a change: it begins the transaction, locks the
// orders, and then reads their journals, which nobody else can write any more, and the
// time.
func lockLives(ctx context.Context, c *sql.Conn, database string, epoch shardmap.Epoch, tables []tableIDs) (lives map[int64]*ordersvc.Life, t schema.Millis, err error) {
	var text strings.Builder
	args := []any{int64(epoch)}
	text.WriteString("BEGIN;" + schema.OwnerGuard(database) + ";")
	for _, in := range tables {
		text.WriteString("SELECT " + orderColumns + " FROM " + orderTable(database, in.table) + " WHERE id IN (" + marks(len(in.ids)) + ") ORDER BY id FOR UPDATE;")
		args = append(args, in.ids...)
	}
	for _, in := range tables {
		text.WriteString("SELECT " + entryColumns + " FROM " + journalTable(database, in.table) + " WHERE order_id IN (" + marks(len(in.ids)) + ") ORDER BY order_id,seq;")
		args = append(args, in.ids...)
	}
	text.WriteString(stamp + ";SELECT @t")

	rows, err := c.QueryContext(ctx, text.String(), args...)
	if err != nil {
		return nil, 0, err
	}
	defer func() {
		if cerr := rows.Close(); err == nil {
			err = cerr
		}
	}()
	var ours int
	if err := value(rows, &ours); err != nil {
		return nil, 0, err
	}
	lives = map[int64]*ordersvc.Life{}
	for range tables {
		if err := nextRows(rows, func() error {
			l := &ordersvc.Life{}
			err := rows.Scan(l.Order.Fields()...)
			lives[l.Order.ID] = l
			return err
		}); err != nil {
			return nil, 0, err
		}
	}
	for range tables {
		if err := nextRows(rows, func() error {
			var e schema.Entry
			if err := rows.Scan(e.Fields()...); err != nil {
				return err
			}
			if l := lives[e.OrderID]; l != nil {
				l.Journal = append(l.Journal, e)
			}
			return nil
		}); err != nil {
			return nil, 0, err
		}
	}
	return lives, t, next(rows, &t)
}

// nextRows goes to the next result of a packet and calls each for every row of it.
func nextRows(rows *sql.Rows, each func() error) error {
	if !rows.NextResultSet() {
		return ended(rows)
	}
	for rows.Next() {
		if err := each(); err != nil && rows.Err() == nil {
			return dberr.As(dberr.Refused, err) // a row that this version can't read
		}
	}
	return rows.Err()
}

var (
	// changing are the columns of an order that can change, and where they are in a row.
	changing = []string{
		"status", "ver", "paid_amount", "refunded_amount", "channel", "channel_trade_no",
		"unapplied_payments", "close_reason", "updated_at", "paid_at", "closed_at",
	}
	changingAt = func() (at []int) {
		for _, name := range changing {
			at = append(at, slices.Index(schema.OrderColumns, name))
		}
		return at
	}()
	// setOrder writes them, if the order is as it was read.
	setOrder = " SET " + strings.Join(changing, "=?,") + "=? WHERE id=? AND ver=?;SET @n=@n+ROW_COUNT();"
)

// writeLives sends the second packet of a change: the orders and the entries that are
// new, and the COMMIT. It refuses itself if an order isn't as it was locked.
func writeLives(ctx context.Context, c *sql.Conn, database string, tables []tableIDs, lives map[int64]*ordersvc.Life, before map[int64]int64) (err error) {
	var text strings.Builder
	var args []any
	text.WriteString("SET @n=0;")
	changed := 0
	for _, in := range tables {
		inserts := 0
		var entries []any
		for _, id := range in.ids {
			l := lives[id.(int64)]
			if l == nil || l.Order.Ver == before[l.Order.ID] {
				continue
			}
			changed++
			text.WriteString("UPDATE " + orderTable(database, in.table) + setOrder)
			values := l.Order.Values()
			for _, at := range changingAt {
				args = append(args, values[at])
			}
			args = append(args, l.Order.ID, before[l.Order.ID])
			for i := range l.Journal {
				if l.Journal[i].Seq > before[l.Order.ID] {
					inserts++
					entries = append(entries, l.Journal[i].Values()...)
				}
			}
		}
		if inserts > 0 {
			row := "(" + marks(len(schema.EntryColumns)) + ")"
			text.WriteString("INSERT INTO " + journalTable(database, in.table) + " (" + entryColumns + ") VALUES " +
				strings.Join(slices.Repeat([]string{row}, inserts), ",") + ";")
			args = append(args, entries...)
		}
	}
	// One more than the greatest number is an error (1690), which stops the packet.
	text.WriteString("SELECT 18446744073709551615+(@n<>?);COMMIT;SELECT 1")
	args = append(args, changed)

	rows, err := c.QueryContext(ctx, text.String(), args...)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := rows.Close(); err == nil && cerr != nil {
			err = dberr.As(dberr.Unknown, dberr.Clean(cerr))
		}
	}()
	var all uint64
	if err := value(rows, &all); err != nil {
		return err
	}
	// From here on the COMMIT may have run, whatever the server says.
	var done int
	if err := next(rows, &done); err != nil {
		return dberr.As(dberr.Unknown, dberr.Clean(err))
	}
	return nil
}

// marks returns n question marks.
func marks(n int) string { return strings.TrimSuffix(strings.Repeat("?,", n), ",") }
