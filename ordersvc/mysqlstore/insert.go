package mysqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/octopay/octopay/internal/dberr"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/slot"
)

// stamp takes the transaction's time, once: functions of time differ from statement
// to statement.
const stamp = "SET @t = UTC_TIMESTAMP(3)"

var (
	// orderColumns of a SELECT or an INSERT.
	orderColumns = schema.List(schema.OrderColumns)
	// orderRow holds the values of one order; the time is the transaction's, but never
	// before the order was created. Both are texts of one layout, so the greater text
	// is the later time.
	orderRow = func() string {
		values := slices.Repeat([]string{"?"}, len(schema.OrderColumns))
		values[slices.Index(schema.OrderColumns, "updated_at")] = "GREATEST(@t,?)"
		return "(" + strings.Join(values, ",") + ")"
	}()
)

func orderTable(database string, n int) string { return fmt.Sprintf("`%s`.order_%d", database, n) }

// A part is the orders of one table in a packet, sorted by their key: two writers
// that want the same keys meet in the same order and can't deadlock.
type part struct {
	table  int
	orders []int // indexes
}

// parts groups orders by table.
func parts(orders []schema.Order) (out []part) {
	sorted := make([]int, len(orders))
	for i := range sorted {
		sorted[i] = i
	}
	slices.SortFunc(sorted, func(i, j int) int {
		a, b := &orders[i], &orders[j]
		return cmp.Or(
			cmp.Compare(slot.Table(a.UID), slot.Table(b.UID)),
			cmp.Compare(a.UID, b.UID),
			cmp.Compare(a.BID, b.BID),
			cmp.Compare(a.OutTradeNo, b.OutTradeNo),
		)
	})
	for _, i := range sorted {
		table := slot.Table(orders[i].UID)
		if len(out) == 0 || out[len(out)-1].table != table {
			out = append(out, part{table: table})
		}
		last := &out[len(out)-1]
		last.orders = append(last.orders, i)
	}
	return out
}

// insert sends orders, whose keys are different, in one packet, and finds out what
// became of each. It fulfils the contract of lane.Attempt, but leaves the connection
// as it is after an error.
func insert(ctx context.Context, c *sql.Conn, database string, epoch shardmap.Epoch, orders []schema.Order) ([]ordersvc.Result, error) {
	parts := parts(orders)
	counts, t, err := sendInsert(ctx, c, database, epoch, orders, parts)
	if err != nil {
		return nil, err
	}
	results := make([]ordersvc.Result, len(orders))
	for n, p := range parts {
		if counts[n] == len(p.orders) {
			for _, i := range p.orders {
				o := orders[i]
				o.UpdatedAt = max(t, o.CreatedAt())
				results[i].Order = o
			}
			continue
		}
		// Some were there, under their key or under their id.
		stored, err := readKeys(ctx, c, orderTable(database, p.table), orders, p.orders)
		if err != nil {
			// It is committed; to run it again is the way to learn what it did.
			return nil, dberr.As(dberr.Unknown, fmt.Errorf("read back: %w", dberr.Clean(err)))
		}
		for _, i := range p.orders {
			o, there := stored[keyOf(&orders[i])]
			if !there {
				results[i].Err = ordersvc.ErrDuplicateID
				continue
			}
			// The same id: this call made it, or an earlier attempt of this call.
			results[i] = ordersvc.Result{Order: o, Taken: o.ID != orders[i].ID}
		}
	}
	return results, nil
}

// sendInsert sends the packet and reads its whole answer: how many rows each part
// made, and the time of the transaction.
func sendInsert(ctx context.Context, c *sql.Conn, database string, epoch shardmap.Epoch, orders []schema.Order, parts []part) (counts []int, t schema.Millis, err error) {
	var text strings.Builder
	text.Grow(512 + len(orders)*(len(orderRow)+1))
	args := make([]any, 1, 1+len(orders)*len(schema.OrderColumns))
	args[0] = int64(epoch)
	text.WriteString("BEGIN;" + schema.OwnerGuard(database) + ";" + stamp + ";")
	for _, p := range parts {
		text.WriteString("INSERT INTO " + orderTable(database, p.table) + " (" + orderColumns + ") VALUES ")
		for n, i := range p.orders {
			if n > 0 {
				text.WriteByte(',')
			}
			text.WriteString(orderRow)
			o := orders[i]
			o.UpdatedAt = o.CreatedAt()
			args = append(args, o.Values()...)
		}
		text.WriteString(" ON DUPLICATE KEY UPDATE id=id;SELECT ROW_COUNT();")
	}
	text.WriteString("COMMIT;SELECT @t")

	rows, err := c.QueryContext(ctx, text.String(), args...)
	if err != nil {
		return nil, 0, err
	}
	// Close reads what is left of the answer, and an error may be the last of it.
	defer func() {
		if cerr := rows.Close(); err == nil && cerr != nil {
			err = dberr.As(dberr.Unknown, cerr)
		}
	}()
	var ours int
	if err := value(rows, &ours); err != nil {
		return nil, 0, err
	}
	counts = make([]int, len(parts))
	for n := range counts {
		if err := next(rows, &counts[n]); err != nil {
			return nil, 0, err
		}
	}
	// From here on the COMMIT may have run, whatever the server says.
	if err := next(rows, &t); err != nil {
		return nil, 0, dberr.As(dberr.Unknown, dberr.Clean(err))
	}
	return counts, t, nil
}

// next goes to the next result of a packet and reads the one value in it.
func next(rows *sql.Rows, dst any) error {
	if !rows.NextResultSet() {
		return ended(rows)
	}
	return value(rows, dst)
}

// value reads the one value of a result. The error of a later statement shows here or
// in next, never as the error of the query.
func value(rows *sql.Rows, dst any) error {
	if !rows.Next() {
		return ended(rows)
	}
	if err := rows.Scan(dst); err != nil {
		return err
	}
	if rows.Next() {
		return errors.New("two rows where one belongs")
	}
	return rows.Err()
}

func ended(rows *sql.Rows) error {
	if err := rows.Err(); err != nil {
		return err
	}
	return errors.New("the answer ended too early")
}

// readKeys reads the orders that are stored under the keys of those at indexes.
func readKeys(ctx context.Context, c *sql.Conn, table string, orders []schema.Order, indexes []int) (map[ordersvc.Key]schema.Order, error) {
	// Not "(uid,bid,out_trade_no) IN (…)": from 1,000 values on MariaDB makes that a
	// join with a temporary table, and chooses its order by its statistics.
	const one = "uid=? AND bid=? AND out_trade_no=?"
	where := strings.Join(slices.Repeat([]string{one}, len(indexes)), " OR ")
	args := make([]any, 0, 3*len(indexes))
	for _, i := range indexes {
		o := &orders[i]
		args = append(args, o.UID, o.BID, o.OutTradeNo)
	}
	stored := make(map[ordersvc.Key]schema.Order, len(indexes))
	err := readOrders(ctx, c, "SELECT "+orderColumns+" FROM "+table+" FORCE INDEX (place) WHERE "+where, args, func(o schema.Order) {
		stored[keyOf(&o)] = o
	})
	return stored, err
}
