package main

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/internal/dberr"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/source"
)

const (
	// A page has so many orders, and so many times as many entries of journals, at most; one
	// order's journal may be longer. An order has at most some 17 KB, so a page is within
	// 10 MB.
	pageOrders      = 500
	entriesPerOrder = 8
)

// A page is the orders of a table from one snowflake to below another, with their
// journals, all of one moment.
type page struct {
	orders  []read[schema.Order]
	entries []read[schema.Entry]
	next    int64 // the first snowflake that isn't in it
}

// A read is a row. One that has something no program can read names the first such column.
type read[T any] struct {
	row        T
	unreadable string
}

// page reads from a table, again when its database doesn't answer. at is the table that
// was read last.
func (a *auditor) page(ctx context.Context, w *walk, from, until int64) (p page, at string, err error) {
	at = fmt.Sprintf("order_%d", w.table)
	for try := range pageTries {
		if try > 0 {
			select {
			case <-time.After(125 * time.Millisecond << try):
			case <-ctx.Done():
				return p, at, ctx.Err()
			}
		}
		err = w.db.Read(ctx, func(ctx context.Context, c *sql.Conn) error {
			// Rows and journals of one moment: an order may change at any other.
			tx, err := c.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			p, at, err = a.pageOf(ctx, tx, w, from, until)
			return err
		})
		if class := dberr.Of(err); !errors.Is(err, cluster.ErrBusy) && class != dberr.NotSent && class != dberr.Unknown {
			break
		}
	}
	return p, at, err
}

func (a *auditor) pageOf(ctx context.Context, tx *sql.Tx, w *walk, from, until int64) (p page, at string, err error) {
	at = fmt.Sprintf("order_%d", w.table)
	where, args := a.where(from, until)
	query := fmt.Sprintf("SELECT %s FROM `%s`.%s %s ORDER BY id LIMIT %d", schema.List(schema.OrderColumns), w.db.Schema(), at, where, a.size)
	if p.orders, err = rowsOf(ctx, tx, schema.OrderColumns, (*schema.Order).Fields, query, args); err != nil {
		return p, at, err
	}
	if p.next = until; len(p.orders) == a.size {
		p.next = p.orders[a.size-1].row.ID + 1
	}
	if a.between != nil {
		a.between(w)
	}
	at = fmt.Sprintf("journal_%d", w.table)
	where, args = "order_id >= ? AND order_id < ?", []any{from, p.next}
	if a.UID > 0 {
		if len(p.orders) == 0 {
			return p, at, nil
		}
		where, args = "order_id IN (?"+strings.Repeat(",?", len(p.orders)-1)+")", nil
		for _, o := range p.orders {
			args = append(args, o.row.ID)
		}
	}
	most := entriesPerOrder * a.size
	journal := fmt.Sprintf("SELECT %s FROM `%s`.%s FORCE INDEX (PRIMARY) WHERE ", schema.List(schema.EntryColumns), w.db.Schema(), at)
	entries := func(where string, args []any) ([]read[schema.Entry], error) {
		return rowsOf(ctx, tx, schema.EntryColumns, (*schema.Entry).Fields, journal+where, args)
	}
	if p.entries, err = entries(fmt.Sprintf("%s ORDER BY order_id, seq LIMIT %d", where, most), args); err != nil || len(p.entries) < most {
		return p, at, err
	}
	// The last journal may go on. The page ends before its order, unless it is the only
	// one: then it is read to its end.
	first, last := p.entries[0].row.OrderID, p.entries[most-1].row.OrderID
	if first == last {
		if p.entries, err = entries("order_id = ? ORDER BY seq", []any{last}); err != nil {
			return p, at, err
		}
		last++
	}
	p.cut(last)
	return p, at, nil
}

// cut ends the page before a snowflake.
func (p *page) cut(next int64) {
	for len(p.entries) > 0 && p.entries[len(p.entries)-1].row.OrderID >= next {
		p.entries = p.entries[:len(p.entries)-1]
	}
	for len(p.orders) > 0 && p.orders[len(p.orders)-1].row.ID >= next {
		p.orders = p.orders[:len(p.orders)-1]
	}
	p.next = min(p.next, next)
}

// where selects orders by an index.
func (a *auditor) where(from, until int64) (string, []any) {
	if a.UID > 0 {
		return "FORCE INDEX (buyer) WHERE uid = ? AND id >= ? AND id < ?", []any{a.UID, from, until}
	}
	return "FORCE INDEX (PRIMARY) WHERE id >= ? AND id < ?", []any{from, until}
}

// rowsOf reads the rows of a query.
func rowsOf[T any](ctx context.Context, tx *sql.Tx, columns []string, fields func(*T) []any, query string, args []any) (out []read[T], err error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var one read[T]
		into := fields(&one.row)
		if err := rows.Scan(into...); err != nil {
			if rows.Err() != nil {
				return nil, rows.Err()
			}
			if one.unreadable = unreadable(rows, columns, into); one.unreadable == "" {
				return nil, dberr.As(dberr.Refused, err)
			}
		}
		out = append(out, one)
	}
	return out, rows.Err()
}

// unreadable returns the first column of a row that can't be read.
func unreadable(rows *sql.Rows, columns []string, fields []any) string {
	for i := range fields {
		into := make([]any, len(fields))
		for j := range into {
			into[j] = new(any)
		}
		into[i] = fields[i]
		if rows.Scan(into...) != nil {
			return columns[i]
		}
	}
	return ""
}

// judge looks at the orders of a page. What is wrong in the truth is said. A copy may be
// on its way: such are returned, to be settled.
func (a *auditor) judge(w *walk, p page) map[int64]imprint {
	open := map[int64]imprint{}
	p.each(func(id int64, row *read[schema.Order], journal []read[schema.Entry]) {
		order, faults := a.faults(w, id, row, journal)
		switch {
		case len(faults) == 0:
		case w.db.Place().Cluster == shardmap.UID:
			a.found(w, order, faults)
		default:
			open[id] = imprintOf(row, journal)
		}
	})
	return open
}

// each calls f with every order of the page: its row, nil if there is none, and its
// journal.
func (p page) each(f func(id int64, row *read[schema.Order], journal []read[schema.Entry])) {
	orders, entries := p.orders, p.entries
	for len(orders) > 0 || len(entries) > 0 {
		id := int64(math.MaxInt64)
		if len(orders) > 0 {
			id = orders[0].row.ID
		}
		if len(entries) > 0 {
			id = min(id, entries[0].row.OrderID)
		}
		var row *read[schema.Order]
		if len(orders) > 0 && orders[0].row.ID == id {
			row, orders = &orders[0], orders[1:]
		}
		n := 0
		for n < len(entries) && entries[n].row.OrderID == id {
			n++
		}
		f(id, row, entries[:n])
		entries = entries[n:]
	}
}

// faults returns what is wrong with an order, and how the order is called.
func (a *auditor) faults(w *walk, id int64, row *read[schema.Order], journal []read[schema.Entry]) (order string, faults []tableFault) {
	orders, journals := fmt.Sprintf("order_%d", w.table), fmt.Sprintf("journal_%d", w.table)
	add := func(table string, f ordersvc.Fault) { faults = append(faults, tableFault{table, f}) }
	uid := int64(0)
	if row != nil {
		uid = row.row.UID
	} else {
		uid = journal[0].row.UID
	}
	if order = fmt.Sprintf("of id %d", id); uid > 0 && id >= 0 {
		order = idgen.Make(uid, id).String()
	}
	const what = "holds what no program can read"
	if row == nil {
		add(orders, ordersvc.Fault{Column: "id", What: fmt.Sprintf("is missing: there is no row, and a journal of %d entries", len(journal))})
		return order, faults
	}
	entries := make([]schema.Entry, len(journal))
	for i, e := range journal {
		entries[i] = e.row
		if e.unreadable != "" {
			add(journals, ordersvc.Fault{Seq: e.row.Seq, Column: e.unreadable, What: what})
		}
	}
	if row.unreadable != "" {
		add(orders, ordersvc.Fault{Column: row.unreadable, What: what})
	}
	if len(faults) > 0 {
		return order, faults
	}
	key, column := row.row.UID, "uid"
	if w.db.Place().Cluster == shardmap.BID {
		key, column = row.row.BID, "bid"
	}
	if key > 0 {
		here := shardmap.Location{Database: w.db.Place().Number, Table: w.table}
		if at := a.m.Locate(key); at != here {
			add(orders, ordersvc.Fault{Column: column, What: fmt.Sprintf("is %d, whose orders are in order_%d of database %d", key, at.Table, at.Database)})
		}
	}
	for _, f := range ordersvc.Audit(row.row, entries) {
		table := orders
		if f.Seq > 0 {
			table = journals
		}
		add(table, f)
	}
	return order, faults
}

// An imprint stands for a row and its journal.
type imprint [sha256.Size]byte

func imprintOf(row *read[schema.Order], journal []read[schema.Entry]) imprint {
	h := sha256.New()
	if row != nil {
		fmt.Fprintf(h, "%#v\n", *row)
	}
	for _, e := range journal {
		fmt.Fprintf(h, "%#v\n", e)
	}
	return imprint(h.Sum(nil))
}

const (
	// copyWithin is how long what was committed in the truth may be on its way to the
	// mirror before its copy can't be judged.
	copyWithin = 30 * time.Second
	// copyLooks is how often a copy is looked at that changes each time.
	copyLooks = 10
	// markEvery is how often the marks of a database are looked at.
	markEvery = 200 * time.Millisecond
)

// settle looks again at copies that were wrong. All that was to be seen of them had been
// committed in the truth, so when the marks have passed what was committed there by now,
// the copies have all of it: one that is as it was is wrong, and one that has changed
// meanwhile is looked at again.
func (a *auditor) settle(ctx context.Context, w *walk, open map[int64]imprint) {
	a.mu.Lock()
	a.sum.Again += int64(len(open))
	a.mu.Unlock()
	why := fmt.Sprintf("they changed each of %d times that they were looked at", copyLooks)
looks:
	for range copyLooks {
		if reason := a.arrived(ctx, w); reason != "" {
			why = reason
			break
		}
		for id, before := range open {
			p, at, err := a.page(ctx, w, id, id+1)
			if err != nil {
				why = fmt.Sprintf("%s could not be read again: %v", at, dberr.Clean(err))
				break looks
			}
			delete(open, id)
			p.each(func(id int64, row *read[schema.Order], journal []read[schema.Entry]) {
				order, faults := a.faults(w, id, row, journal)
				now := imprintOf(row, journal)
				switch {
				case len(faults) == 0:
				case now == before:
					a.found(w, order, faults)
				default:
					open[id] = now
				}
			})
			a.wait(ctx, len(p.orders)+len(p.entries))
		}
		if len(open) == 0 {
			return
		}
	}
	if ctx.Err() != nil {
		return // it is not said of an order that nobody went on looking
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.late[w.place()]
	if l == nil {
		l = &late{}
		a.late[w.place()] = l
	}
	l.orders += int64(len(open))
	l.why = why
}

// arrived waits until a database of the mirror has all that is committed in the truth by
// now. It returns why not, if that takes too long. A database that was late once isn't
// waited for again.
func (a *auditor) arrived(ctx context.Context, w *walk) (why string) {
	a.mu.Lock()
	patience := a.patience
	if a.late[w.place()] != nil {
		patience = 0
	}
	a.mu.Unlock()
	committed, err := a.committed(ctx)
	if err != nil {
		return fmt.Sprintf("how far the truth is could not be read: %v", dberr.Clean(err))
	}
	for until := time.Now().Add(patience); ; {
		if a.waits != nil {
			a.waits()
		}
		marks, err := applied(ctx, w.db)
		if err != nil {
			return fmt.Sprintf("its marks could not be read: %v", dberr.Clean(err))
		}
		behind := ""
		for server, position := range committed {
			if mark, ok := marks[server]; !ok || !mark.Covers(position) {
				behind = server
			}
		}
		if behind == "" {
			return ""
		}
		if !time.Now().Before(until) {
			return fmt.Sprintf("what server %s had committed had not arrived after %s", behind, a.patience)
		}
		select {
		case <-time.After(markEvery):
		case <-ctx.Done():
			return ctx.Err().Error()
		}
	}
}

// committed returns how far each server of the truth is.
func (a *auditor) committed(ctx context.Context) (map[string]source.Position, error) {
	at := map[string]source.Position{}
	for n := range a.m.Size() {
		db := a.c.Database(shardmap.UID, n+1)
		server := db.Place().Server.Name
		if _, known := at[server]; known {
			continue
		}
		var text string
		err := db.Read(ctx, func(ctx context.Context, c *sql.Conn) error {
			return c.QueryRowContext(ctx, "SELECT @@GLOBAL.gtid_binlog_pos").Scan(&text)
		})
		if err != nil {
			return nil, err
		}
		if at[server], err = source.ParsePosition(text); err != nil {
			return nil, err
		}
	}
	return at, nil
}

// applied returns the marks of a database of the mirror: how much of each server it has.
func applied(ctx context.Context, db *cluster.Database) (marks map[string]source.Position, err error) {
	var texts map[string]string
	err = db.Read(ctx, func(ctx context.Context, c *sql.Conn) (err error) {
		texts = map[string]string{}
		rows, err := c.QueryContext(ctx, "SELECT server, gtid FROM `"+db.Schema()+"`.mark")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		for rows.Next() {
			var server, text string
			if err := rows.Scan(&server, &text); err != nil {
				return err
			}
			texts[server] = text
		}
		return rows.Err()
	})
	if err != nil {
		return nil, err
	}
	// A text that is none is no fault of the database's answering.
	marks = map[string]source.Position{}
	for server, text := range texts {
		if marks[server], err = source.ParsePosition(text); err != nil {
			return nil, err
		}
	}
	return marks, nil
}

// estimate returns about how many orders there are to be read, as the servers guess from
// their indexes. It is of no weight: where one can't be asked its orders are missing in it.
func (a *auditor) estimate(ctx context.Context) (orders int64) {
	by := map[*cluster.Database][]*walk{}
	for _, w := range a.walks {
		by[w.db] = append(by[w.db], w)
	}
	where, args := a.where(a.from, a.until)
	for db, walks := range by {
		_ = db.Read(ctx, func(ctx context.Context, c *sql.Conn) error {
			for _, w := range walks {
				n, err := explained(ctx, c, fmt.Sprintf("SELECT id FROM `%s`.order_%d %s", db.Schema(), w.table, where), args)
				if err != nil {
					return err
				}
				orders += n
			}
			return nil
		})
	}
	return orders
}

// explained returns how many rows a server expects a query to read.
func explained(ctx context.Context, c *sql.Conn, query string, args []any) (n int64, err error) {
	rows, err := c.QueryContext(ctx, "EXPLAIN "+query, args...)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	columns, err := rows.Columns()
	if err != nil {
		return 0, err
	}
	for rows.Next() {
		into := make([]any, len(columns))
		var expected sql.NullInt64
		for i, name := range columns {
			if into[i] = new(any); name == "rows" {
				into[i] = &expected
			}
		}
		if err := rows.Scan(into...); err != nil {
			return 0, err
		}
		n += expected.Int64
	}
	return n, rows.Err()
}
