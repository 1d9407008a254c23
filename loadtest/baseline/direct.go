package baseline

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/internal/dberr"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/mirror"
)

// A direct is an order service in which every request is a transaction or a SELECT of
// its own.
type direct struct {
	createsOnly
	shards  *shardmap.Map
	ids     idSource
	servers map[string]*sql.DB
}

func newDirect(shards *shardmap.Map, c cluster.Config, pool int, ids idSource) (*direct, error) {
	d := &direct{shards: shards, ids: ids, servers: map[string]*sql.DB{}}
	for _, cl := range []shardmap.Cluster{shardmap.UID, shardmap.BID} {
		for _, s := range shards.Servers(cl) {
			if d.servers[s.Name] != nil {
				continue
			}
			db, err := openPool(s, c, pool)
			if err != nil {
				return nil, errors.Join(err, d.close())
			}
			d.servers[s.Name] = db
		}
	}
	return d, nil
}

// openPool returns a pool of so many connections at most, which stay open, and over which a
// packet may hold many statements.
func openPool(s shardmap.Server, c cluster.Config, connections int) (*sql.DB, error) {
	session := c.Session(s)
	session.MultiStatements = true
	connector, err := mysql.NewConnector(session)
	if err != nil {
		return nil, fmt.Errorf("pool of %s: %w", s.Name, err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}

func (d *direct) close() error {
	var errs []error
	for _, db := range d.servers {
		errs = append(errs, db.Close())
	}
	return errors.Join(errs...)
}

// callMax is how long a transaction may take.
const callMax = 6 * time.Second

// DirectSettle is how long after its client left a request may yet write.
const DirectSettle = callMax + time.Second

var (
	columns = schema.List(schema.OrderColumns)
	row     = func() string {
		values := make([]string, len(schema.OrderColumns))
		for i, column := range schema.OrderColumns {
			values[i] = "?"
			if column == "updated_at" {
				values[i] = "GREATEST(@t,?)"
			}
		}
		return "(" + strings.Join(values, ",") + ")"
	}()
)

// place returns the pool of a key's server in a cluster, and the key's database and table.
func (d *direct) place(cl shardmap.Cluster, at shardmap.Location) (db *sql.DB, schema, table string) {
	place := d.shards.Database(cl, at.Database)
	return d.servers[place.Server.Name], place.Schema, fmt.Sprintf("`%s`.order_%d", place.Schema, at.Table)
}

// Create makes one transaction in one packet. A number that is taken is an error of the
// server; only then the order is read that has it.
func (d *direct) Create(ctx context.Context, n ordersvc.New) (ordersvc.Created, error) {
	id, err := d.ids.Next(n.UID)
	if err != nil {
		return ordersvc.Created{}, err
	}
	o := n.Order(id)
	db, database, table := d.place(shardmap.UID, d.shards.Locate(n.UID))
	text := "BEGIN;" + schema.OwnerGuard(database) + ";SET @t = UTC_TIMESTAMP(3);INSERT INTO " + table +
		" (" + columns + ") VALUES " + row + ";COMMIT;SELECT @t"
	stored := o
	stored.UpdatedAt = o.CreatedAt()
	args := append([]any{int64(d.shards.Epoch())}, stored.Values()...)
	conn, err := db.Conn(ctx)
	if err != nil {
		return ordersvc.Created{}, fmt.Errorf("%w: %w", cluster.ErrUnavailable, err)
	}
	// The end of ctx, a client that left, would cost a connection.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callMax)
	defer cancel()
	at, err := packet(ctx, conn, text, args)
	switch {
	case err == nil:
		o.UpdatedAt = max(at, o.CreatedAt())
		return ordersvc.Created{Order: o}, conn.Close()
	case dberr.Of(err) == dberr.Duplicate:
		// The transaction is still open.
		if _, e := conn.ExecContext(ctx, "ROLLBACK"); e != nil {
			cluster.Discard(conn)
			return ordersvc.Created{}, e
		}
		_ = conn.Close()
	default:
		cluster.Discard(conn)
		return ordersvc.Created{}, fmt.Errorf("%w: %w", ordersvc.ErrUnknown, dberr.Clean(err))
	}
	old, err := d.Find(ctx, n.Key)
	switch {
	case err != nil:
		return ordersvc.Created{}, err
	case old.Amount != n.Amount || old.Currency != n.Currency || old.Subject != n.Subject:
		return ordersvc.Created{}, &ordersvc.ReusedError{OrderID: old.OrderID(), Status: old.Status}
	}
	return ordersvc.Created{Order: old, Replayed: true}, nil
}

// packet sends the statements and reads their answers: that of the owner guard, and the
// time of the transaction, which says that it is committed.
func packet(ctx context.Context, conn *sql.Conn, text string, args []any) (at schema.Millis, err error) {
	rows, err := conn.QueryContext(ctx, text, args...)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var ours int64
	if err := value(rows, &ours); err != nil {
		return 0, err
	}
	if !rows.NextResultSet() {
		return 0, ended(rows)
	}
	err = value(rows, &at)
	return at, err
}

// value reads the one value of a result.
func value(rows *sql.Rows, dst any) error {
	if !rows.Next() {
		return ended(rows)
	}
	return rows.Scan(dst)
}

func ended(rows *sql.Rows) error {
	if err := rows.Err(); err != nil {
		return err
	}
	return errors.New("the answer ended too early")
}

// one reads the one order that a condition names.
func (d *direct) one(ctx context.Context, at shardmap.Location, where string, args ...any) (o schema.Order, err error) {
	found := false
	err = d.read(ctx, shardmap.UID, at, " WHERE "+where, args, func(row schema.Order) { o, found = row, true })
	if err == nil && !found {
		err = ordersvc.ErrNotFound
	}
	return o, err
}

func (d *direct) read(ctx context.Context, cl shardmap.Cluster, at shardmap.Location, rest string, args []any, each func(schema.Order)) (err error) {
	db, _, table := d.place(cl, at)
	rows, err := db.QueryContext(ctx, "SELECT "+columns+" FROM "+table+rest, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var o schema.Order
		if err := rows.Scan(o.Fields()...); err != nil {
			return err
		}
		each(o)
	}
	return rows.Err()
}

func (d *direct) Get(ctx context.Context, id idgen.ID) (schema.Order, error) {
	o, err := d.one(ctx, d.shards.LocateInfo(id.Info(), id.Table()), "id=?", id.Snowflake())
	if err == nil && o.OrderID() != id {
		return schema.Order{}, ordersvc.ErrNotFound
	}
	return o, err
}

// Journal returns none: nothing here changes an order.
func (d *direct) Journal(context.Context, schema.Order) ([]schema.Entry, error) { return nil, nil }

func (d *direct) Find(ctx context.Context, k ordersvc.Key) (schema.Order, error) {
	return d.one(ctx, d.shards.Locate(k.UID), "uid=? AND bid=? AND out_trade_no=?", k.UID, k.BID, k.OutTradeNo)
}

func (d *direct) List(ctx context.Context, q ordersvc.Query) (page ordersvc.Page, err error) {
	filter, args := "", []any{q.UID, q.Min, q.Before}
	if q.Status != 0 {
		filter, args = " AND status=?", append(args, q.Status)
	}
	err = d.read(ctx, shardmap.UID, d.shards.Locate(q.UID), " WHERE uid=? AND id>=? AND id<?"+filter+" ORDER BY id DESC LIMIT ?",
		append(args, q.Limit+1), func(o schema.Order) { page.Orders = append(page.Orders, o) })
	page.Orders, page.Next = cut(page.Orders, q.Limit)
	return page, err
}

// cut returns a page without the order that is one too many, and where to go on.
func cut(orders []schema.Order, limit int) (_ []schema.Order, next int64) {
	if len(orders) <= limit {
		return orders, 0
	}
	return orders[:limit], orders[limit-1].ID
}

// mirror reads lists by merchant.
func (d *direct) mirror() mirror.Reader { return merchants{d} }

type merchants struct{ d *direct }

// List reads the rows alone: up to when they are complete, it doesn't say.
func (m merchants) List(ctx context.Context, q mirror.Query) (page mirror.Page, err error) {
	filter, args := "", []any{q.BID, q.Min, q.Before}
	if q.Status != 0 {
		filter, args = " AND status=?", append(args, q.Status)
	}
	if q.OutTradeNo != "" {
		filter, args = filter+" AND out_trade_no=?", append(args, q.OutTradeNo)
	}
	err = m.d.read(ctx, shardmap.BID, m.d.shards.Locate(q.BID), " WHERE bid=? AND id>=? AND id<?"+filter+" ORDER BY id DESC LIMIT ?",
		append(args, q.Limit+1), func(o schema.Order) { page.Orders = append(page.Orders, o) })
	page.Orders, page.Next = cut(page.Orders, q.Limit)
	return page, err
}

// Entries is no part of what is compared.
func (m merchants) Entries(context.Context, mirror.EntryQuery) (mirror.EntryPage, error) {
	return mirror.EntryPage{}, errors.New("baseline: it lists orders alone")
}
