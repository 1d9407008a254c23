package mirror

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/dberr"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
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
	switch {
	case err == nil:
		return page, nil
	case errors.Is(err, cluster.ErrBusy), errors.Is(err, cluster.ErrUnavailable):
		return Page{}, fmt.Errorf("mirror: list: %w", err)
	}
	return Page{}, fmt.Errorf("mirror: list: %w", dberr.Clean(err))
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
