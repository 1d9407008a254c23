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
	"time"

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
	// conflictsAtOnce is how many conflicts are read, and written, at once.
	conflictsAtOnce = 50
	// triesMax is how often a transaction is tried that doesn't get its locks.
	triesMax = 3
	// writeMax is how long a transaction may take. One that takes longer is as one that isn't
	// answered.
	writeMax = 10 * time.Second
)

// clean says at which step of ours an error came, without what a driver's text quotes.
func clean(step string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("conflict: %s: %w", step, cluster.Clean(err))
}

// write calls f with a connection for writing, which it throws away after an error, again
// if it didn't get its locks. The end of ctx stops the wait for the turn; f has writeMax from
// when its turn comes, whatever others needed before.
func (s *SQL) write(ctx context.Context, db *cluster.Database, f func(ctx context.Context, c *sql.Conn) error) error {
	for try := 1; ; try++ {
		err := s.tryWrite(ctx, db, f)
		// Scans of other processes write the same rows.
		if dberr.Of(err) != dberr.Retryable || try == triesMax {
			return err
		}
	}
}

func (s *SQL) tryWrite(ctx context.Context, db *cluster.Database, f func(ctx context.Context, c *sql.Conn) error) error {
	turn := s.turns[db.Place().Number]
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-turn }()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeMax)
	defer cancel()
	c, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	err = f(ctx, c)
	db.Wrote(err)
	if err != nil {
		cluster.Discard(c) // whatever is open on it is rolled back with it
		return err
	}
	return c.Close()
}

// put writes rows into a database of the mirror, under its epoch.
func (s *SQL) put(ctx context.Context, db *cluster.Database, statement string, args []any) error {
	return s.write(ctx, db, func(ctx context.Context, c *sql.Conn) error {
		_, err := c.ExecContext(ctx, "BEGIN;"+schema.OwnerGuard(db.Schema())+";"+statement+";COMMIT", append([]any{s.epoch}, args...)...)
		return err
	})
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

// A joined is a conflict as some pairs make it.
type joined struct {
	conflictKey
	pairs  int
	orders []Order // the oldest first, each once
}

// join returns the conflicts that pairs make, in the order of their key: so those who write
// at once don't wait for each other in a ring.
func join(pairs []Pair) []joined {
	of := map[conflictKey]*joined{}
	for _, p := range pairs {
		key := conflictKey{p.Kind, p.BID, p.Number}
		j := of[key]
		if j == nil {
			j = &joined{conflictKey: key}
			of[key] = j
		}
		j.pairs++
		for _, o := range p.Orders {
			if at, is := slices.BinarySearchFunc(j.orders, o, compareOrders); !is {
				j.orders = slices.Insert(j.orders, at, o)
			}
		}
	}
	var out []joined
	for _, j := range of {
		out = append(out, *j)
	}
	slices.SortFunc(out, func(a, b joined) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.bid, b.bid), cmp.Compare(a.number, b.number))
	})
	return out
}

// compareOrders puts the older order first. Of two with one snowflake, which two buyers can
// have, that of the lower uid.
func compareOrders(a, b Order) int {
	return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.UID, b.UID))
}

// Add implements Table. What is listed, and what there is no room for, costs a read. The rest
// is written some conflicts at a time, in a turn and a transaction of their own: nobody waits
// long for another's, and what is written is not written again when the rest fails.
func (s *SQL) Add(ctx context.Context, pairs []Pair) (added Added, err error) {
	var kept [len(kindNames)]int // how many there are, of kinds that have new ones
	for i := range kept {
		kept[i] = -1
	}
	for some := range slices.Chunk(join(pairs), conflictsAtOnce) {
		if err := ctx.Err(); err != nil {
			return added, clean("add", err)
		}
		listed, err := s.listed(ctx, some)
		if err != nil {
			return added, clean("add", err)
		}
		var rest []joined
		for _, j := range some {
			l, isListed := listed[j.conflictKey]
			if !isListed {
				if kept[j.kind] < 0 {
					if kept[j.kind], err = s.kept(ctx, j.kind); err != nil {
						return added, clean("add", err)
					}
				}
				if kept[j.kind] >= ConflictsMax {
					added.Unlisted[j.kind] += j.pairs
					continue
				}
				kept[j.kind]++
			}
			j.orders = slices.DeleteFunc(j.orders, func(o Order) bool { return l.has[orderKey{o.ID, o.UID}] })
			j.orders = j.orders[:min(len(j.orders), max(0, OrdersMax-l.orders))]
			if len(j.orders) > 0 {
				rest = append(rest, j)
			}
		}
		if err := s.add(ctx, rest, &added); err != nil {
			return added, clean("add", err)
		}
	}
	return added, nil
}

// A listing is what is listed of a conflict.
type listing struct {
	orders int
	has    map[orderKey]bool // none of one that is full
}

type orderKey struct{ id, uid int64 }

// listed returns what is listed of conflicts, in one statement.
func (s *SQL) listed(ctx context.Context, some []joined) (out map[conflictKey]listing, err error) {
	meta := s.c.Meta()
	kinds := map[string]Kind{} // of those that are asked for
	args := []any{OrdersMax}
	for _, j := range some {
		kinds[j.kind.String()] = j.kind
		args = append(args, j.kind.String(), j.bid, j.number)
	}
	const one = "c.kind = ? AND c.bid = ? AND c.number = ?"
	text := "SELECT c.kind, c.bid, c.number, c.orders, o.order_id, o.uid FROM `" + meta.Schema() + "`.conflict AS c FORCE INDEX (what)" +
		" LEFT JOIN `" + meta.Schema() + "`.conflict_order AS o ON o.conflict_id = c.id AND c.orders < ?" +
		" WHERE " + one + strings.Repeat(" OR "+one, len(some)-1)
	err = meta.Read(ctx, func(ctx context.Context, c *sql.Conn) error {
		out = map[conflictKey]listing{}
		rows, err := c.QueryContext(ctx, text, args...)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var key conflictKey
			var kind string
			var orders int
			var id, uid sql.NullInt64
			if err := rows.Scan(&kind, &key.bid, &key.number, &orders, &id, &uid); err != nil {
				return err
			}
			key.kind = kinds[kind]
			if out[key].has == nil {
				out[key] = listing{orders, map[orderKey]bool{}}
			}
			if id.Valid {
				out[key].has[orderKey{id.Int64, uid.Int64}] = true
			}
		}
		return rows.Err()
	})
	return out, err
}

// kept returns how many conflicts of a kind there are, ConflictsMax at most.
func (s *SQL) kept(ctx context.Context, kind Kind) (n int, err error) {
	meta := s.c.Meta()
	err = meta.Read(ctx, func(ctx context.Context, c *sql.Conn) error {
		return c.QueryRowContext(ctx, "SELECT COUNT(*) FROM (SELECT 1 FROM `"+meta.Schema()+"`.conflict WHERE kind = ? LIMIT ?) AS kept", kind.String(), ConflictsMax).Scan(&n)
	})
	return n, err
}

// add writes conflicts in one transaction.
func (s *SQL) add(ctx context.Context, some []joined, added *Added) error {
	if len(some) == 0 {
		return nil
	}
	meta := s.c.Meta()
	var found [len(kindNames)]int
	err := s.write(ctx, meta, func(ctx context.Context, c *sql.Conn) error {
		found = [len(kindNames)]int{}
		if _, err := c.ExecContext(ctx, "BEGIN"); err != nil {
			return err
		}
		for _, j := range some {
			isNew, err := add(ctx, c, meta.Schema(), j)
			if err != nil {
				return err
			}
			if isNew {
				found[j.kind]++
			}
		}
		_, err := c.ExecContext(ctx, "COMMIT")
		return err
	})
	if err != nil {
		return err
	}
	for kind, n := range found {
		added.New[kind] += n
	}
	return nil
}

func add(ctx context.Context, c *sql.Conn, schemaName string, j joined) (isNew bool, err error) {
	table := func(name string) string { return "`" + schemaName + "`." + name }
	// Somebody else may be the one who finds it; then it is his, and ours to add to. Either
	// way its row is locked from here on: so the count is right, and has a bound.
	result, err := c.ExecContext(ctx, "INSERT INTO "+table("conflict")+" (kind, bid, number, orders, found_at) VALUES (?, ?, ?, 0, UTC_TIMESTAMP(3)) ON DUPLICATE KEY UPDATE id = LAST_INSERT_ID(id)", j.kind.String(), j.bid, j.number)
	if err != nil {
		return false, err
	}
	rows, err := result.RowsAffected()
	if err != nil {
		return false, err
	}
	id, err := result.LastInsertId()
	if err != nil {
		return false, err
	}
	var text strings.Builder
	var args []any
	for _, o := range j.orders {
		text.WriteString("INSERT INTO " + table("conflict_order") + " (conflict_id, order_id, uid, bid, seq, found_at)" +
			" SELECT ?, ?, ?, ?, ?, UTC_TIMESTAMP(3) FROM DUAL WHERE (SELECT COUNT(*) FROM " + table("conflict_order") + " AS kept WHERE kept.conflict_id = ?) < ?" +
			" ON DUPLICATE KEY UPDATE order_id = VALUES(order_id);")
		args = append(args, id, o.ID, o.UID, o.BID, o.Seq, id, OrdersMax)
	}
	text.WriteString("UPDATE " + table("conflict") + " SET orders = (SELECT COUNT(*) FROM " + table("conflict_order") + " WHERE conflict_id = ?) WHERE id = ?")
	_, err = c.ExecContext(ctx, text.String(), append(args, id, id)...)
	return rows == 1, err
}

// List implements Lister.
func (s *SQL) List(ctx context.Context, q Query) (Page, error) {
	// Before the rows: what was scanned is then among them.
	until, err := s.until(ctx)
	if err != nil {
		return Page{}, clean("list", err)
	}
	page := Page{CompleteUntil: until}
	var kinds []string
	meta := s.c.Meta()
	err = meta.Read(ctx, func(ctx context.Context, c *sql.Conn) error {
		page.Conflicts, page.Next, kinds = nil, 0, nil
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
			page.Conflicts = append(page.Conflicts, one)
			kinds = append(kinds, kind)
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
	// A kind of a newer program is no fault of the database's.
	for i := range page.Conflicts {
		if page.Conflicts[i].Kind, err = ParseKind(kinds[i]); err != nil {
			return Page{}, fmt.Errorf("conflict: list: %w", err)
		}
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
	rows, err := c.QueryContext(ctx, "SELECT conflict_id, order_id, uid, bid, seq, found_at FROM `"+schemaName+"`.conflict_order WHERE conflict_id IN "+values(1, len(ids))+" ORDER BY conflict_id, order_id, uid", ids...)
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
