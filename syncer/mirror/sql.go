package mirror

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/slot"
	"github.com/octopay/octopay/syncer/stream"
)

// SQL reads the mirror in the bid cluster. It is safe for concurrent use.
type SQL struct{ c *cluster.Cluster }

// NewSQL returns the mirror in c's bid databases.
func NewSQL(c *cluster.Cluster) *SQL { return &SQL{c} }

// chunk is how many rows are read at once when not every row that is read matches.
const chunk = 500

// List implements Reader.
func (s *SQL) List(ctx context.Context, q Query) (page Page, err error) {
	at := s.c.Map().Locate(q.BID)
	db := s.c.Database(shardmap.BID, at.Database)
	err = db.Read(ctx, func(ctx context.Context, c *sql.Conn) error {
		page = Page{}
		// Before the rows: what the marks promise is then in the rows.
		marks, err := s.marks(ctx, c, db)
		if err != nil {
			return err
		}
		page.CompleteUntil = completeUntil(s.c.Map(), marks)
		return list(ctx, c, fmt.Sprintf("`%s`.order_%d", db.Schema(), at.Table), q, &page)
	})
	if err != nil {
		return Page{}, clean("list", err)
	}
	return page, nil
}

// clean says at which step of ours an error came, without what a driver's text quotes.
func clean(step string, err error) error {
	return fmt.Errorf("mirror: %s: %w", step, cluster.Clean(err))
}

// Entries implements Reader.
func (s *SQL) Entries(ctx context.Context, q EntryQuery) (EntryPage, error) {
	var shelves []shelf
	if q.BID != 0 {
		at := s.c.Map().Locate(q.BID)
		shelves = []shelf{&sqlShelf{s, s.c.Database(shardmap.BID, at.Database), []int{at.Table}, "merchant_kind"}}
	} else {
		for n := range s.c.Map().Size() {
			shelves = append(shelves, &sqlShelf{s, s.c.Database(shardmap.BID, n+1), allTables, "kinds"})
		}
	}
	page, err := walk(ctx, shelves, &q)
	if err != nil {
		return EntryPage{}, clean("entries", err)
	}
	return page, nil
}

var allTables = []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}

// A sqlShelf is tables of one database, and the index that has their entries of one kind
// in the order of Position.
type sqlShelf struct {
	s      *SQL
	db     *cluster.Database
	tables []int
	index  string
}

func (f *sqlShelf) runs(q *EntryQuery) int { return len(f.tables) * len(q.Kinds) }

func (f *sqlShelf) completeUntil(ctx context.Context) (until schema.Millis, err error) {
	err = f.db.Read(ctx, func(ctx context.Context, c *sql.Conn) error {
		marks, err := f.s.marks(ctx, c, f.db)
		until = completeUntil(f.s.c.Map(), marks)
		return err
	})
	return until, err
}

// keysText returns the statement that reads positions, with its arguments. It reads the
// index alone. A condition on the pair (order_id, seq) would be none on the index; this one
// is two ranges of it.
func (f *sqlShelf) keysText(q *EntryQuery, before Position, most int) (text string, args []any) {
	var parts []string
	for _, table := range f.tables {
		for _, kind := range q.Kinds {
			where := ""
			if q.BID != 0 {
				where = "bid = ? AND "
				args = append(args, q.BID)
			}
			parts = append(parts, fmt.Sprintf("(SELECT %d, %d, order_id, seq FROM `%s`.journal_%d FORCE INDEX (%s) WHERE %skind = '%s' AND (order_id < ? OR order_id = ? AND seq < ?) ORDER BY order_id DESC, seq DESC LIMIT ?)",
				table, kind, f.db.Schema(), table, f.index, where, kind))
			args = append(args, before.Order, before.Order, before.Seq, most)
		}
	}
	return strings.Join(parts, " UNION ALL "), args
}

func (f *sqlShelf) keys(ctx context.Context, q *EntryQuery, before Position, most int) (keys []key, floor Position, err error) {
	text, args := f.keysText(q, before, most)
	type at struct {
		table int
		kind  schema.Kind
	}
	err = f.db.Read(ctx, func(ctx context.Context, c *sql.Conn) error {
		keys, floor = nil, Position{}
		rows, err := c.QueryContext(ctx, text, args...)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		read, last := map[at]int{}, map[at]Position{}
		for rows.Next() {
			var k key
			var kind int64
			if err := rows.Scan(&k.table, &kind, &k.Order, &k.Seq); err != nil {
				return err
			}
			keys = append(keys, k)
			run := at{k.table, schema.Kind(kind)}
			read[run]++
			if p, ok := last[run]; !ok || k.Compare(p) < 0 {
				last[run] = k.Position
			}
		}
		for run, n := range read {
			if n == most && last[run].Compare(floor) > 0 {
				floor = last[run]
			}
		}
		return rows.Err()
	})
	return keys, floor, err
}

// A condition is which rows of a table are read, by one index.
type condition struct {
	table int
	index string
	where strings.Builder
	args  []any
}

func (c *condition) or(where string, args ...any) {
	if c.where.Len() > 0 {
		c.where.WriteString(" OR ")
	}
	c.where.WriteString(where)
	c.args = append(c.args, args...)
}

func questions(n int) string { return "?" + strings.Repeat(",?", n-1) }

// A reading is conditions by table and index.
type reading map[string]*condition

func (r reading) of(table int, index string) *condition {
	name := fmt.Sprint(table, index)
	if r[name] == nil {
		r[name] = &condition{table: table, index: index}
	}
	return r[name]
}

// text returns the statement that reads the entries of all conditions, with its arguments.
func (r reading) text(schemaName string) (text string, args []any) {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(r)) {
		c := r[name]
		parts = append(parts, fmt.Sprintf("SELECT %s FROM `%s`.journal_%d FORCE INDEX (%s) WHERE %s",
			schema.List(schema.EntryColumns), schemaName, c.table, c.index, &c.where))
		args = append(args, c.args...)
	}
	return strings.Join(parts, " UNION ALL "), args
}

// atKeys reads what is at keys.
func atKeys(keys []key) reading {
	seqs := map[[2]int64][]any{} // by table and order
	for _, k := range keys {
		of := [2]int64{int64(k.table), k.Order}
		seqs[of] = append(seqs[of], k.Seq)
	}
	r := reading{}
	for of, s := range seqs {
		r.of(int(of[0]), "PRIMARY").or("order_id = ? AND seq IN ("+questions(len(s))+")", append([]any{of[1]}, s...)...)
	}
	return r
}

// add reads what is beside an entry of a table. Each row has a place of its own in an
// index; the primary key is the end of each.
func (r reading) add(table int, order int64, b Beside) {
	if n := len(b.Ops); n > 0 {
		args := []any{order}
		for _, op := range b.Ops {
			args = append(args, op)
		}
		r.of(table, "operation").or("order_id = ? AND op IN ("+questions(n)+")", args...)
	}
	if n := len(b.Kinds); n > 0 && b.Ref != "" {
		args := []any{b.Ref}
		for _, kind := range b.Kinds {
			args = append(args, kind.String())
		}
		r.of(table, "reference").or("ref = ? AND kind IN ("+questions(n)+") AND order_id = ?", append(args, order)...)
	}
}

func (f *sqlShelf) read(ctx context.Context, q *EntryQuery, keys []key) (out []schema.Entry, err error) {
	tables := map[int64]int{} // of orders
	for _, k := range keys {
		tables[k.Order] = k.table
	}
	err = f.db.Read(ctx, func(ctx context.Context, c *sql.Conn) error {
		out = nil
		seen := map[Position]bool{}
		read := func(r reading) error {
			if len(r) == 0 {
				return nil
			}
			text, args := r.text(f.db.Schema())
			rows, err := c.QueryContext(ctx, text, args...)
			if err != nil {
				return err
			}
			defer func() { _ = rows.Close() }()
			for rows.Next() {
				var e schema.Entry
				if err := rows.Scan(e.Fields()...); err != nil {
					return err
				}
				if p := (Position{e.OrderID, e.Seq}); !seen[p] && (q.BID == 0 || e.BID == q.BID) {
					seen[p] = true
					out = append(out, e)
				}
			}
			return rows.Err()
		}
		if err := read(atKeys(keys)); err != nil {
			return err
		}
		beside := reading{}
		for i := range out {
			beside.add(tables[out[i].OrderID], out[i].OrderID, q.beside(&out[i]))
		}
		return read(beside)
	})
	return out, err
}

func (s *SQL) marks(ctx context.Context, c *sql.Conn, db *cluster.Database) (map[string]stream.Mark, error) {
	rows, err := c.QueryContext(ctx, "SELECT server, at FROM `"+db.Schema()+"`.mark")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	marks := map[string]stream.Mark{}
	for rows.Next() {
		var m stream.Mark
		if err := rows.Scan(&m.Server, &m.At); err != nil {
			return nil, err
		}
		marks[m.Server] = m
	}
	return marks, rows.Err()
}

// list fills a page. Each filter alone has an index in which every row matches; with
// both, rows of one number are read and their status is looked at.
func list(ctx context.Context, c *sql.Conn, table string, q Query, page *Page) error {
	index, where := "merchant", "bid = ?"
	args := []any{q.BID}
	sieve := false
	switch {
	case q.OutTradeNo != "":
		index, where = "merchant_number", "bid = ? AND out_trade_no = ?"
		args = append(args, q.OutTradeNo)
		sieve = q.Status != 0
	case q.Status != 0:
		index, where = "merchant_status", "bid = ? AND status = ?"
		args = append(args, q.Status)
	}
	query := "SELECT " + schema.List(schema.OrderColumns) + " FROM " + table + " FORCE INDEX (" + index + ") WHERE " + where +
		" AND id >= ? AND id < ? ORDER BY id DESC LIMIT ?"

	before := q.Before
	for examined := 0; ; {
		// One more than is wanted, to know whether there is a next page.
		n := q.Limit + 1 - len(page.Orders)
		if sieve {
			n = min(max(n, chunk), ExaminedMax+1-examined)
		}
		read := 0
		err := each(ctx, c, query, append(args[:len(args):len(args)], q.Min, before, n), func(o schema.Order) bool {
			if len(page.Orders) == q.Limit || examined == ExaminedMax {
				page.Next = before
				return false
			}
			read++
			examined++
			before = o.ID
			if !sieve || o.Status == q.Status {
				page.Orders = append(page.Orders, o)
			}
			return true
		})
		if err != nil || page.Next != 0 || read < n {
			return err
		}
	}
}

// each calls f with each order of a query until f returns false.
func each(ctx context.Context, c *sql.Conn, query string, args []any, f func(schema.Order) bool) error {
	rows, err := c.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var o schema.Order
		if err := rows.Scan(o.Fields()...); err != nil {
			return err
		}
		if !f(o) {
			return nil
		}
	}
	return rows.Err()
}

// News implements Follower. It reads the indexes of the stamps from where reach is on, and
// for each order the one besides it that comes first in the index of its number: what a
// round costs depends on what is new, and not on what there is.
func (s *SQL) News(ctx context.Context, n int, reach Reach, most int) (news News, err error) {
	db := s.c.Database(shardmap.BID, n)
	err = db.Read(ctx, func(ctx context.Context, c *sql.Conn) error {
		news = News{Reach: reach}
		// Before the rows: what the marks promise is then in the rows.
		marks, err := s.marks(ctx, c, db)
		if err != nil {
			return err
		}
		until := completeUntil(s.c.Map(), marks)
		if err := newOrders(ctx, c, db.Schema(), until, most, &news); err != nil {
			return err
		}
		if err := newPayments(ctx, c, db.Schema(), until, most, &news); err != nil {
			return err
		}
		if !news.More {
			news.Reach.ahead(until)
		}
		return nil
	})
	if err != nil {
		return News{}, clean("news", err)
	}
	return news, nil
}

// newOrdersText is one table's part of the statement that reads new orders.
const newOrdersText = "(SELECT %[2]d, o.id, o.uid, o.bid, o.out_trade_no, o.updated_at," +
	" (SELECT x.id FROM `%[1]s`.order_%[2]d AS x FORCE INDEX (merchant_number)" +
	" WHERE x.bid = o.bid AND x.out_trade_no = o.out_trade_no AND x.id <> o.id ORDER BY x.id LIMIT 1)" +
	" FROM `%[1]s`.order_%[2]d AS o FORCE INDEX (changed)" +
	" WHERE (o.updated_at > ? OR o.updated_at = ? AND o.id > ?) AND o.updated_at < ?" +
	" ORDER BY o.updated_at, o.id LIMIT ?)"

// newEntriesText is one table's part of the statement that reads new entries.
const newEntriesText = "(SELECT %[2]d, order_id, seq, uid, bid, kind, COALESCE(ref, ''), recorded_at" +
	" FROM `%[1]s`.journal_%[2]d FORCE INDEX (recorded)" +
	" WHERE (recorded_at > ? OR recorded_at = ? AND (order_id > ? OR order_id = ? AND seq > ?)) AND recorded_at < ?" +
	" ORDER BY recorded_at, order_id, seq LIMIT ?)"

// eachTable joins what part says of each table, with its arguments.
func eachTable(part, schemaName string, args func(table int) []any) (text string, all []any) {
	var parts []string
	for table := range allTables {
		parts = append(parts, fmt.Sprintf(part, schemaName, table))
		all = append(all, args(table)...)
	}
	return strings.Join(parts, " UNION ALL "), all
}

// forward moves a place to a row, of which table so many have been read.
func (n *News) forward(place *Stamp, row Stamp, read *int, most int) {
	n.Rows++
	if *read++; *read == most {
		n.More = true
	}
	if row.Compare(*place) > 0 {
		*place = row
	}
}

func newOrdersOf(schemaName string, reach *Reach, until schema.Millis, most int) (text string, args []any) {
	return eachTable(newOrdersText, schemaName, func(table int) []any {
		p := reach.Orders[table]
		return []any{p.At.SQL(), p.At.SQL(), p.Order, until.SQL(), most}
	})
}

func newEntriesOf(schemaName string, reach *Reach, until schema.Millis, most int) (text string, args []any) {
	return eachTable(newEntriesText, schemaName, func(table int) []any {
		p := reach.Entries[table]
		return []any{p.At.SQL(), p.At.SQL(), p.Order, p.Order, p.Seq, until.SQL(), most}
	})
}

func newOrders(ctx context.Context, c *sql.Conn, schemaName string, until schema.Millis, most int, news *News) error {
	text, args := newOrdersOf(schemaName, &news.Reach, until, most)
	rows, err := c.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var read [slot.Tables]int
	others := map[int][]any{} // by table
	tables := map[int]int{}   // by place in SameNumber
	for rows.Next() {
		var table int
		var t SameNumber
		var at schema.Millis
		var other sql.NullInt64
		if err := rows.Scan(&table, &t.Order, &t.UID, &t.BID, &t.OutTradeNo, &at, &other); err != nil {
			return err
		}
		news.forward(&news.Reach.Orders[table], Stamp{At: at, Order: t.Order}, &read[table], most)
		if other.Valid {
			t.Other = other.Int64
			others[table] = append(others[table], t.Other)
			tables[len(news.SameNumber)] = table
			news.SameNumber = append(news.SameNumber, t)
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	// Whose the others are is asked for the few that there are.
	uids := map[[2]int64]int64{}
	for table, ids := range others {
		if err := uidsOf(ctx, c, fmt.Sprintf("`%s`.order_%d", schemaName, table), ids, func(id, uid int64) { uids[[2]int64{int64(table), id}] = uid }); err != nil {
			return err
		}
	}
	for i := range news.SameNumber {
		t := &news.SameNumber[i]
		t.OtherUID = uids[[2]int64{int64(tables[i]), t.Other}]
	}
	return nil
}

func uidsOf(ctx context.Context, c *sql.Conn, table string, ids []any, f func(id, uid int64)) error {
	rows, err := c.QueryContext(ctx, "SELECT id, uid FROM "+table+" WHERE id IN (?"+strings.Repeat(",?", len(ids)-1)+")", ids...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id, uid int64
		if err := rows.Scan(&id, &uid); err != nil {
			return err
		}
		f(id, uid)
	}
	return rows.Err()
}

func newPayments(ctx context.Context, c *sql.Conn, schemaName string, until schema.Millis, most int, news *News) error {
	text, args := newEntriesOf(schemaName, &news.Reach, until, most)
	rows, err := c.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var read [slot.Tables]int
	for rows.Next() {
		var table int
		var p Payment
		var kind schema.Kind
		var at schema.Millis
		if err := rows.Scan(&table, &p.Order, &p.Seq, &p.UID, &p.BID, &kind, &p.Ref, &at); err != nil {
			return err
		}
		news.forward(&news.Reach.Entries[table], Stamp{at, p.Order, p.Seq}, &read[table], most)
		if isPayment(kind) && p.Ref != "" {
			news.Payments = append(news.Payments, p)
		}
	}
	return rows.Err()
}
