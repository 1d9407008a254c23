package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/internal/dberr"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/slot"
)

// Order implements ordersvc.Store.
func (s *Store) Order(ctx context.Context, loc shardmap.Location, id int64) (schema.Order, error) {
	return s.one(ctx, loc, "id=?", id)
}

// Find implements ordersvc.Store.
func (s *Store) Find(ctx context.Context, loc shardmap.Location, key ordersvc.Key) (schema.Order, error) {
	return s.one(ctx, loc, "uid=? AND bid=? AND out_trade_no=?", key.UID, key.BID, key.OutTradeNo)
}

// one reads the order that a unique key names.
func (s *Store) one(ctx context.Context, loc shardmap.Location, where string, args ...any) (o schema.Order, err error) {
	found := false
	err = s.read(ctx, loc, func(ctx context.Context, c *sql.Conn, database string) error {
		return readOrders(ctx, c, "SELECT "+orderColumns+" FROM "+orderTable(database, loc.Table)+" WHERE "+where, args,
			func(row schema.Order) { o, found = row, true })
	})
	if err == nil && !found {
		err = ordersvc.ErrNotFound
	}
	return o, err
}

// Journal implements ordersvc.Store.
func (s *Store) Journal(ctx context.Context, loc shardmap.Location, id int64) (entries []schema.Entry, err error) {
	err = s.read(ctx, loc, func(ctx context.Context, c *sql.Conn, database string) error {
		query := fmt.Sprintf("SELECT %s FROM `%s`.journal_%d WHERE order_id=? ORDER BY seq", schema.List(schema.EntryColumns), database, loc.Table)
		return read(ctx, c, query, []any{id}, func(scan func(...any) error) error {
			var e schema.Entry
			err := scan(e.Fields()...)
			entries = append(entries, e)
			return err
		})
	})
	return entries, err
}

// Due implements ordersvc.Store. Each table is read by the index (status, expires_at),
// which has what is due at its beginning, however many orders there are.
func (s *Store) Due(ctx context.Context, database, most int) (due []ordersvc.Due, err error) {
	err = s.read(ctx, shardmap.Location{Database: database}, func(ctx context.Context, c *sql.Conn, schemaName string) error {
		for table := range slot.Tables {
			query := "SELECT id,uid,expires_at FROM " + orderTable(schemaName, table) +
				" FORCE INDEX (expiry) WHERE status='created' AND expires_at<=UTC_TIMESTAMP(3)-INTERVAL 30 SECOND ORDER BY expires_at LIMIT ?"
			if err := read(ctx, c, query, []any{most - len(due)}, func(scan func(...any) error) error {
				var id, uid int64
				var at schema.Millis
				err := scan(&id, &uid, &at)
				if err == nil {
					due = append(due, ordersvc.Due{ID: idgen.Make(uid, id), ExpiresAt: at.Time()})
				}
				return err
			}); err != nil || len(due) >= most {
				return err
			}
		}
		return nil
	})
	return due, err
}

// List implements ordersvc.Store.
func (s *Store) List(ctx context.Context, loc shardmap.Location, q ordersvc.Query) (page ordersvc.Page, err error) {
	err = s.read(ctx, loc, func(ctx context.Context, c *sql.Conn, database string) error {
		page, err = list(ctx, c, orderTable(database, loc.Table), q)
		return err
	})
	return page, err
}

// list reads a page. The index (uid, id) doesn't hold the status, so with that filter
// a page without matches could examine all of a buyer's rows. Its lower end is
// therefore found first, in the index alone: the first row that is one too many.
func list(ctx context.Context, c *sql.Conn, table string, q ordersvc.Query) (page ordersvc.Page, err error) {
	from := " FROM " + table + " FORCE INDEX (buyer) WHERE uid=? AND id>=? AND id<?"
	args := []any{q.UID, q.Min, q.Before}
	var filter string
	var tooMany int64 // 0: there is none
	if q.Status != 0 {
		err := c.QueryRowContext(ctx, "SELECT id"+from+" ORDER BY id DESC LIMIT 1 OFFSET ?", append(args, ordersvc.ExaminedMax)...).Scan(&tooMany)
		switch {
		case err == nil:
			args[1] = tooMany + 1
		case !errors.Is(err, sql.ErrNoRows):
			return page, err
		}
		filter = " AND status=?"
		args = append(args, q.Status)
	}
	query := "SELECT " + orderColumns + from + filter + " ORDER BY id DESC LIMIT ?"
	err = readOrders(ctx, c, query, append(args, q.Limit+1), func(o schema.Order) { page.Orders = append(page.Orders, o) })
	switch {
	case err != nil:
		return ordersvc.Page{}, err
	case len(page.Orders) > q.Limit:
		page.Orders = page.Orders[:q.Limit]
		page.Next = page.Orders[q.Limit-1].ID
	case tooMany > 0:
		page.Next = tooMany + 1
	}
	return page, nil
}

// read calls f with a connection for reading and the name of the database.
func (s *Store) read(ctx context.Context, loc shardmap.Location, f func(ctx context.Context, c *sql.Conn, database string) error) error {
	db := s.cluster.Database(shardmap.UID, loc.Database)
	return db.Read(ctx, func(ctx context.Context, c *sql.Conn) error { return f(ctx, c, db.Schema()) })
}

// readOrders calls each with every order of a query.
func readOrders(ctx context.Context, c *sql.Conn, query string, args []any, each func(schema.Order)) error {
	return read(ctx, c, query, args, func(scan func(...any) error) error {
		var o schema.Order
		err := scan(o.Fields()...)
		each(o)
		return err
	})
}

// read calls each with the scan of every row of a query.
func read(ctx context.Context, c *sql.Conn, query string, args []any, each func(scan func(...any) error) error) (err error) {
	rows, err := c.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := rows.Close(); err == nil {
			err = cerr
		}
	}()
	for rows.Next() {
		if err := each(rows.Scan); err != nil && rows.Err() == nil {
			// The server answered, but with a row that this version can't read.
			return dberr.As(dberr.Refused, err)
		}
	}
	return rows.Err()
}
