package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/internal/dberr"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/services/internal/boot"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/slot"
	mirrored "github.com/octopay/octopay/syncer/mirror"
)

// A stored is where a row of an order is, and the row, nil if it isn't there.
type stored struct {
	place shardmap.Database
	table int
	row   *schema.Order
}

// live says where an order is in both clusters, and whether they agree.
func live(ctx context.Context, s boot.Shared, to console, id idgen.ID) error {
	file, err := s.Map()
	if err != nil {
		return err
	}
	c, err := openToRead(ctx, file, access(s))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	fmt.Fprintf(to.out, "%s by %s\n\n", id, strings.TrimSuffix(describe(c.Map()), ","))

	truth, err := readTruth(ctx, c, id, false)
	if err != nil {
		return err
	}
	if truth.row != nil && !id.Of(truth.row.UID) {
		show(to, "truth", truth)
		return verdict(to, true, "The id names no order: that row is of buyer %d, whose orders have other ids.", truth.row.UID)
	}
	var copies []stored
	until := schema.Millis(0)
	if truth.row != nil {
		one, complete, err := readMirror(ctx, c, truth.row)
		if err != nil {
			return err
		}
		copies, until = append(copies, one), complete
	} else if copies, err = searchMirror(ctx, c, id); err != nil {
		return err
	}
	// A change can come between the two readings, and it can reach the mirror before it can
	// be read in the truth. A locking read waits for it.
	if slices.ContainsFunc(copies, func(one stored) bool { return one.row != nil && (truth.row == nil || one.row.Ver > truth.row.Ver) }) {
		if truth, err = readTruth(ctx, c, id, true); err != nil {
			return err
		}
	}
	show(to, "truth", truth)
	for _, one := range copies {
		show(to, "mirror", one)
	}
	if truth.row == nil {
		if len(copies) > 0 {
			return verdict(to, true, "The truth does not have it, and the mirror does.")
		}
		fmt.Fprintln(to.out, "  mirror    it is in no database of the mirror")
		return verdict(to, true, "There is no such order.")
	}
	fmt.Fprintf(to.out, "  complete  that database has every change before %s\n", shownTime(until))
	return compareCopies(to, *truth.row, copies, until)
}

// compareCopies says whether the mirror has what the truth has. What is behind is no
// difference, unless the mirror says that it is complete past the change.
func compareCopies(to console, truth schema.Order, copies []stored, until schema.Millis) error {
	var row *schema.Order
	if len(copies) > 0 {
		row = copies[0].row
	}
	promised := truth.UpdatedAt < until
	switch {
	case row == nil && !promised:
		return verdict(to, false, "The mirror does not have it yet: it is behind.")
	case row == nil:
		return verdict(to, true, "The mirror does not have it, though it says that it is complete past the order's last change.")
	case row.Ver < truth.Ver && !promised:
		return verdict(to, false, "The mirror is behind: it has version %d, and the truth version %d.", row.Ver, truth.Ver)
	}
	names := differing(truth, *row)
	if len(names) == 0 {
		return verdict(to, false, "They agree, in all %d columns.", len(schema.OrderColumns))
	}
	fmt.Fprintf(to.out, "\nThey differ in %d of %d columns:\n", len(names), len(schema.OrderColumns))
	table := tabwriter.NewWriter(to.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "  COLUMN\tTRUTH\tMIRROR\n")
	for _, name := range names {
		if slices.Contains(textColumns, name) {
			fmt.Fprintf(table, "  %s\t(text)\t(text)\n", name)
			continue
		}
		fmt.Fprintf(table, "  %s\t%v\t%v\n", name, column(truth, name), column(*row, name))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	switch {
	case row.Ver > truth.Ver:
		return verdict(to, true, "The mirror is ahead of the truth.")
	case row.Ver < truth.Ver:
		return verdict(to, true, "The mirror lacks a change, though it says that it is complete past it.")
	}
	return verdict(to, true, "One version is two things.")
}

// textColumns hold what people and other systems wrote: that they differ is said, what
// is in them isn't.
var textColumns = []string{"out_trade_no", "subject", "metadata", "channel", "channel_trade_no", "created_by", "request_id"}

// differing returns the columns in which two rows differ.
func differing(a, b schema.Order) (names []string) {
	for _, name := range schema.OrderColumns {
		if column(a, name) != column(b, name) {
			names = append(names, name)
		}
	}
	return names
}

// column returns a value as it is shown and compared.
func column(o schema.Order, name string) string {
	switch v := o.Values()[slices.Index(schema.OrderColumns, name)].(type) {
	case nil:
		return "null"
	case schema.Millis:
		if v == 0 {
			return "null"
		}
		return shownTime(v)
	case schema.CloseReason:
		if v == 0 {
			return "null"
		}
		return v.String()
	default:
		return fmt.Sprint(v)
	}
}

func shownTime(m schema.Millis) string { return m.Time().Format(timeLayout) }

func show(to console, which string, one stored) {
	fmt.Fprintf(to.out, "  %-8s  %s.order_%d on %s, %s\n", which, one.place.Schema, one.table, one.place.Server.Name, one.place.Server.Address)
	if one.row == nil {
		fmt.Fprintf(to.out, "            it is not there\n")
		return
	}
	fmt.Fprintf(to.out, "            version %d, %s, last changed at %s\n", one.row.Ver, one.row.Status, shownTime(one.row.UpdatedAt))
}

// verdict ends the answer with a sentence.
func verdict(to console, wrong bool, format string, args ...any) error {
	fmt.Fprintf(to.out, "\n"+format+"\n", args...)
	if wrong {
		return errSaid
	}
	return nil
}

// openToRead opens the databases of the map in force, or of the file where there is none.
// It puts none in force: a wrong file must not come to rule because somebody looked.
func openToRead(ctx context.Context, file *shardmap.Map, access cluster.Config) (*cluster.Cluster, error) {
	c := cluster.Open(file, access)
	m, err := cluster.MapInForce(ctx, c, file)
	if err != nil {
		return nil, errors.Join(dberr.Clean(err), c.Close())
	}
	if m == nil || m.Hash() == file.Hash() {
		return c, nil
	}
	return cluster.Open(m, access), c.Close()
}

// readTruth reads the row of an id where it leads to. A locking read sees, or waits for,
// what is committed at its moment.
func readTruth(ctx context.Context, c *cluster.Cluster, id idgen.ID, locking bool) (stored, error) {
	at := c.Map().LocateInfo(id.Info(), id.Table())
	db := c.Database(shardmap.UID, at.Database)
	one := stored{place: db.Place(), table: at.Table}
	rows, err := byKey(ctx, db, []int{at.Table}, id.Snowflake(), locking)
	if err == nil && len(rows) > 0 {
		one.row = rows[0].row
	}
	return one, err
}

// readMirror reads the copy of an order where its merchant's are, and up to when that
// database is complete, which it says before the row is read.
func readMirror(ctx context.Context, c *cluster.Cluster, truth *schema.Order) (stored, schema.Millis, error) {
	if truth.BID < 1 {
		return stored{}, 0, errors.New("the merchant's number of the row is below 1")
	}
	at := c.Map().Locate(truth.BID)
	one := stored{place: c.Database(shardmap.BID, at.Database).Place(), table: at.Table}
	page, err := mirrored.NewSQL(c).List(ctx, mirrored.Query{BID: truth.BID, Min: truth.ID, Before: truth.ID + 1, Limit: 1})
	if err == nil && len(page.Orders) > 0 {
		one.row = &page.Orders[0]
	}
	return one, page.CompleteUntil, err
}

// searchMirror looks for an order everywhere in the mirror: its merchant isn't known.
func searchMirror(ctx context.Context, c *cluster.Cluster, id idgen.ID) (found []stored, err error) {
	every := make([]int, slot.Tables)
	for t := range every {
		every[t] = t
	}
	for n := 1; n <= c.Map().Size(); n++ {
		rows, err := byKey(ctx, c.Database(shardmap.BID, n), every, id.Snowflake(), false)
		if err != nil {
			return nil, err
		}
		for _, one := range rows {
			if id.Of(one.row.UID) {
				found = append(found, one)
			}
		}
	}
	return found, nil
}

// byKey reads the rows of a primary key in some tables of a database.
func byKey(ctx context.Context, db *cluster.Database, tables []int, key int64, locking bool) (found []stored, err error) {
	err = db.Read(ctx, func(ctx context.Context, c *sql.Conn) error {
		found = nil
		for _, t := range tables {
			var o schema.Order
			query := fmt.Sprintf("SELECT %s FROM `%s`.order_%d WHERE id = ?", schema.List(schema.OrderColumns), db.Schema(), t)
			if locking {
				query += " LOCK IN SHARE MODE"
			}
			err := c.QueryRowContext(ctx, query, key).Scan(o.Fields()...)
			if errors.Is(err, sql.ErrNoRows) {
				continue
			}
			if err != nil {
				return err
			}
			found = append(found, stored{db.Place(), t, &o})
		}
		return nil
	})
	return found, err
}
