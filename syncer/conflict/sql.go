package conflict

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/dberr"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/slot"
	"github.com/octopay/octopay/syncer/mirror"
	"golang.org/x/sync/errgroup"
)

// SQL is the Table of an installation: conflicts are in the meta database, and in the
// mirror's databases how far each was scanned, and the references. It holds no connection
// between calls.
type SQL struct {
	c     *cluster.Cluster
	epoch shardmap.Epoch
	// One writes into a database at a time, since appliers write and leases are renewed over
	// the same few connections. The meta database's is the first.
	turns []chan struct{}
}

// NewSQL returns the table of c, whose databases are migrated, under the map that is in
// use now.
func NewSQL(c *cluster.Cluster) *SQL {
	s := &SQL{c: c, epoch: c.Map().Epoch()}
	for range 1 + c.Map().Size() {
		s.turns = append(s.turns, make(chan struct{}, 1))
	}
	return s
}

const (
	// readsAtOnce is how many databases are read at once.
	readsAtOnce = 8
	// rowsMax is how many rows one statement writes.
	rowsMax = 500
	// triesMax is how often a transaction is tried that doesn't get its locks.
	triesMax = 3
)

// clean says at which step of ours an error came, without what a driver's text quotes.
func clean(step string, err error) error {
	if err == nil {
		return nil
	}
	if !errors.Is(err, cluster.ErrBusy) && !errors.Is(err, cluster.ErrUnavailable) {
		err = dberr.Clean(err)
	}
	return fmt.Errorf("conflict: %s: %w", step, err)
}

// write calls f with a connection for writing, which it throws away after an error.
func (s *SQL) write(ctx context.Context, db *cluster.Database, f func(*sql.Conn) error) error {
	turn := s.turns[db.Place().Number]
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-turn }()
	c, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	err = f(c)
	db.Wrote(err)
	if err != nil {
		cluster.Discard(c) // whatever is open on it is rolled back with it
		return err
	}
	return c.Close()
}

// put writes rows into a database of the mirror, under its epoch.
func (s *SQL) put(ctx context.Context, db *cluster.Database, statement string, args []any) error {
	for try := 1; ; try++ {
		err := s.write(ctx, db, func(c *sql.Conn) error {
			_, err := c.ExecContext(ctx, "BEGIN;"+schema.OwnerGuard(db.Schema())+";"+statement+";COMMIT", append([]any{s.epoch}, args...)...)
			return err
		})
		// Scans of other processes write references too.
		if dberr.Of(err) != dberr.Retryable || try == triesMax {
			return err
		}
	}
}

// values returns the text of n rows of so many columns.
func values(n, columns int) string {
	row := "(?" + strings.Repeat(",?", columns-1) + ")"
	return row + strings.Repeat(","+row, n-1)
}

// The two sets of places in a Reach, by their names in the table.
const (
	ofOrders  = "order"
	ofEntries = "journal"
)

// Reach implements Table.
func (s *SQL) Reach(ctx context.Context, n int) (reach mirror.Reach, err error) {
	db := s.c.Database(shardmap.BID, n)
	err = db.Read(ctx, func(ctx context.Context, c *sql.Conn) error {
		reach = mirror.Reach{}
		rows, err := c.QueryContext(ctx, "SELECT number, what, at, order_id, seq FROM `"+db.Schema()+"`.conflict_scan")
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var number int
			var what string
			var place mirror.Stamp
			if err := rows.Scan(&number, &what, &place.At, &place.Order, &place.Seq); err != nil {
				return err
			}
			switch {
			case number < 0 || number >= slot.Tables:
			case what == ofOrders:
				reach.Orders[number] = place
			case what == ofEntries:
				reach.Entries[number] = place
			}
		}
		return rows.Err()
	})
	return reach, clean("reach", err)
}

// Save implements Table.
func (s *SQL) Save(ctx context.Context, n int, reach mirror.Reach) error {
	db := s.c.Database(shardmap.BID, n)
	var args []any
	for number := range slot.Tables {
		o, e := reach.Orders[number], reach.Entries[number]
		args = append(args, number, ofOrders, o.At.SQL(), o.Order, o.Seq, number, ofEntries, e.At.SQL(), e.Order, e.Seq)
	}
	// The assignments run from left to right; what is less than a place keeps all of it. The
	// time, which the others compare first, is the last.
	const later = "(VALUES(at), VALUES(order_id), VALUES(seq)) > (at, order_id, seq)"
	err := s.put(ctx, db, "INSERT INTO `"+db.Schema()+"`.conflict_scan (number, what, at, order_id, seq) VALUES "+values(2*slot.Tables, 5)+
		" ON DUPLICATE KEY UPDATE seq = IF("+later+", VALUES(seq), seq), order_id = IF("+later+", VALUES(order_id), order_id), at = IF("+later+", VALUES(at), at)", args)
	return clean("save", err)
}

// First implements Table. It costs one row written and one read by its primary key for
// each payment, whatever the number of databases: to look for it in the index of every
// journal would cost ten look-ups for each database there is.
func (s *SQL) First(ctx context.Context, payments []mirror.Payment) ([]mirror.Payment, error) {
	of := map[int][]mirror.Payment{} // by database; one for each reference
	asked := map[string]bool{}
	for _, p := range payments {
		if !asked[p.Ref] {
			asked[p.Ref] = true
			n := referenceDatabase(p.Ref)
			of[n] = append(of[n], p)
		}
	}
	found := make([]map[string]mirror.Payment, referenceDatabases)
	g, ctx := errgroup.WithContext(ctx)
	for n, all := range of {
		g.Go(func() (err error) {
			found[n-1], err = s.first(ctx, s.c.Database(shardmap.BID, n), all)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, clean("first", err)
	}
	out := make([]mirror.Payment, len(payments))
	for i, p := range payments {
		first, ok := found[referenceDatabase(p.Ref)-1][p.Ref]
		if !ok {
			return nil, errors.New("conflict: a reference that was written isn't there")
		}
		out[i] = first
	}
	return out, nil
}

func (s *SQL) first(ctx context.Context, db *cluster.Database, payments []mirror.Payment) (map[string]mirror.Payment, error) {
	// In one order, so that those who write at once don't wait for each other in a ring.
	slices.SortFunc(payments, func(a, b mirror.Payment) int { return cmp.Compare(a.Ref, b.Ref) })
	table := "`" + db.Schema() + "`.payment_reference"
	out := map[string]mirror.Payment{}
	for some := range slices.Chunk(payments, rowsMax) {
		var row, refs []any
		for _, p := range some {
			row = append(row, p.Ref, p.Order, p.Seq, p.UID, p.BID)
			refs = append(refs, p.Ref)
		}
		// What is committed before is read after: of two who note one reference at once, the
		// one that came second reads the other's.
		if err := s.put(ctx, db, "INSERT INTO "+table+" (ref, order_id, seq, uid, bid) VALUES "+values(len(some), 5)+" ON DUPLICATE KEY UPDATE ref = ref", row); err != nil {
			return nil, err
		}
		err := db.Read(ctx, func(ctx context.Context, c *sql.Conn) error {
			rows, err := c.QueryContext(ctx, "SELECT ref, order_id, seq, uid, bid FROM "+table+" WHERE ref IN "+values(1, len(refs)), refs...)
			if err != nil {
				return err
			}
			defer func() { _ = rows.Close() }()
			for rows.Next() {
				var p mirror.Payment
				if err := rows.Scan(&p.Ref, &p.Order, &p.Seq, &p.UID, &p.BID); err != nil {
					return err
				}
				out[p.Ref] = p
			}
			return rows.Err()
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Add implements Table. Pairs are few; each is a transaction of its own, so that nobody
// waits long for another's.
func (s *SQL) Add(ctx context.Context, pairs []Pair) (added Added, err error) {
	if len(pairs) == 0 {
		return added, nil
	}
	meta := s.c.Meta()
	err = s.write(ctx, meta, func(c *sql.Conn) error {
		for _, p := range pairs {
			if err := add(ctx, c, meta.Schema(), p, &added); err != nil {
				return err
			}
		}
		return nil
	})
	return added, clean("add", err)
}

func add(ctx context.Context, c *sql.Conn, schemaName string, p Pair, added *Added) error {
	table := func(name string) string { return "`" + schemaName + "`." + name }
	var id int64
	var count int
	err := c.QueryRowContext(ctx, "SELECT id, orders FROM "+table("conflict")+" WHERE kind = ? AND bid = ? AND number = ?", p.Kind.String(), p.BID, p.Number).Scan(&id, &count)
	isNew := errors.Is(err, sql.ErrNoRows)
	switch {
	case isNew:
		var kept int
		if err := c.QueryRowContext(ctx, "SELECT COUNT(*) FROM (SELECT 1 FROM "+table("conflict")+" WHERE kind = ? LIMIT ?) AS kept", p.Kind.String(), ConflictsMax).Scan(&kept); err != nil {
			return err
		}
		if kept >= ConflictsMax {
			added.Unlisted[p.Kind]++
			return nil
		}
	case err != nil:
		return err
	case count >= OrdersMax:
		return nil
	}
	if _, err := c.ExecContext(ctx, "BEGIN"); err != nil {
		return err
	}
	if isNew {
		// Somebody else may be the one who finds it; then it is his, and ours to add to.
		result, err := c.ExecContext(ctx, "INSERT INTO "+table("conflict")+" (kind, bid, number, orders, found_at) VALUES (?, ?, ?, 0, UTC_TIMESTAMP(3)) ON DUPLICATE KEY UPDATE id = LAST_INSERT_ID(id)", p.Kind.String(), p.BID, p.Number)
		if err != nil {
			return err
		}
		rows, err := result.RowsAffected()
		if err != nil {
			return err
		}
		if id, err = result.LastInsertId(); err != nil {
			return err
		}
		isNew = rows == 1
	}
	// Whoever adds to a conflict locks it first: so the count is right, and has a bound.
	text, args := "SELECT orders FROM "+table("conflict")+" WHERE id = ? FOR UPDATE;", []any{id}
	for _, o := range p.Orders {
		text += "INSERT INTO " + table("conflict_order") + " (conflict_id, order_id, uid, bid, seq, found_at)" +
			" SELECT ?, ?, ?, ?, ?, UTC_TIMESTAMP(3) FROM DUAL WHERE (SELECT COUNT(*) FROM " + table("conflict_order") + " AS kept WHERE kept.conflict_id = ?) < ?" +
			" ON DUPLICATE KEY UPDATE order_id = VALUES(order_id);"
		args = append(args, id, o.ID, o.UID, o.BID, o.Seq, id, OrdersMax)
	}
	text += "UPDATE " + table("conflict") + " SET orders = (SELECT COUNT(*) FROM " + table("conflict_order") + " WHERE conflict_id = ?) WHERE id = ?;COMMIT"
	if _, err := c.ExecContext(ctx, text, append(args, id, id)...); err != nil {
		return err
	}
	if isNew {
		added.New[p.Kind]++
	}
	return nil
}

// List implements Lister.
func (s *SQL) List(ctx context.Context, q Query) (Page, error) {
	// Before the rows: what was scanned is then among them.
	until, err := s.until(ctx)
	if err != nil {
		return Page{}, clean("list", err)
	}
	page := Page{CompleteUntil: until}
	meta := s.c.Meta()
	err = meta.Read(ctx, func(ctx context.Context, c *sql.Conn) error {
		page.Conflicts, page.Next = nil, 0
		index, where, args := "PRIMARY", "id < ?", []any{q.Before}
		if q.Kind != 0 {
			index, where, args = "kinds", "kind = ? AND id < ?", []any{q.Kind.String(), q.Before}
		}
		rows, err := c.QueryContext(ctx, "SELECT id, kind, bid, number, found_at FROM `"+meta.Schema()+"`.conflict FORCE INDEX ("+index+") WHERE "+where+" ORDER BY id DESC LIMIT ?", append(args, q.Limit+1)...)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var one Conflict
			var kind string
			if err := rows.Scan(&one.ID, &kind, &one.BID, &one.Number, &one.FoundAt); err != nil {
				return err
			}
			if one.Kind, err = ParseKind(kind); err != nil {
				return err
			}
			page.Conflicts = append(page.Conflicts, one)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return err
		}
		if len(page.Conflicts) > q.Limit {
			page.Conflicts = page.Conflicts[:q.Limit]
			page.Next = page.Conflicts[q.Limit-1].ID
		}
		return orders(ctx, c, meta.Schema(), page.Conflicts)
	})
	if err != nil {
		return Page{}, clean("list", err)
	}
	return page, nil
}

// orders reads the orders of conflicts.
func orders(ctx context.Context, c *sql.Conn, schemaName string, of []Conflict) error {
	if len(of) == 0 {
		return nil
	}
	places := map[int64]int{}
	for i := range of {
		places[of[i].ID] = i
	}
	var ids []any
	for id := range maps.Keys(places) {
		ids = append(ids, id)
	}
	rows, err := c.QueryContext(ctx, "SELECT conflict_id, order_id, uid, bid, seq, found_at FROM `"+schemaName+"`.conflict_order WHERE conflict_id IN "+values(1, len(ids))+" ORDER BY conflict_id, order_id", ids...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id int64
		var o Order
		if err := rows.Scan(&id, &o.ID, &o.UID, &o.BID, &o.Seq, &o.FoundAt); err != nil {
			return err
		}
		one := &of[places[id]]
		one.Orders = append(one.Orders, o)
	}
	return rows.Err()
}

// until returns the time before which all databases were scanned.
func (s *SQL) until(ctx context.Context) (schema.Millis, error) {
	untils := make([]schema.Millis, s.c.Map().Size())
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readsAtOnce)
	for i := range untils {
		g.Go(func() error {
			reach, err := s.Reach(ctx, i+1)
			untils[i] = reach.Until()
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	return slices.Min(untils), nil
}
