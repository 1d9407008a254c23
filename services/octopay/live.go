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

// A stored is where a row of an order is, and the row, nil if it isn't there or the
// database could not be asked.
type stored struct {
	place shardmap.Database
	table int // -1: any
	row   *schema.Order
	err   error
}

// live says where an order is in both clusters, and whether they agree.
func live(ctx context.Context, s boot.Shared, to console, id idgen.ID) error {
	file, err := mapFile(s)
	if err != nil {
		return err
	}
	config, err := access(s)
	if err != nil {
		return err
	}
	c, err := openToRead(ctx, file, config, to)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	fmt.Fprintf(to.out, "%s by %s\n\n", id, strings.TrimSuffix(describe(c.Map()), ","))

	truth := readTruth(ctx, c, id, false)
	if truth.row != nil && !id.Of(truth.row.UID) {
		show(to, "truth", truth)
		return verdict(to, true, "The id names no order: that row is of buyer %d, whose orders have other ids.", truth.row.UID)
	}
	var copies []stored
	until := schema.Millis(0)
	if truth.row != nil {
		one, complete := readMirror(ctx, c, truth.row)
		copies, until = append(copies, one), complete
	} else {
		copies = search(ctx, c, shardmap.BID, id)
	}
	// A change can come between the two readings, and it can reach the mirror before it can
	// be read in the truth. A locking read waits for it.
	if truth.err == nil && slices.ContainsFunc(copies, func(one stored) bool { return one.row != nil && (truth.row == nil || one.row.Ver > truth.row.Ver) }) {
		truth = readTruth(ctx, c, id, true)
	}
	show(to, "truth", truth)
	var displaced []stored
	if truth.row == nil && truth.err == nil {
		displaced = search(ctx, c, shardmap.UID, id)
	}
	for _, one := range displaced {
		show(to, "truth", one)
	}
	for _, one := range copies {
		show(to, "mirror", one)
	}
	has := slices.ContainsFunc(copies, func(one stored) bool { return one.row != nil })
	away := countAway(copies)
	switch {
	case len(displaced) > countAway(displaced):
		return verdict(to, true, "The truth has it in another place than its id leads to, where no program finds it.")
	case truth.err != nil && has:
		return verdict(to, true, "The mirror has it; the truth could not be asked.")
	case truth.err != nil:
		return verdict(to, true, "The truth could not be asked, so nobody can say whether there is such an order.")
	case truth.row != nil && away > 0:
		return verdict(to, true, "The truth has it; the mirror could not be asked.")
	case truth.row != nil:
		fmt.Fprintf(to.out, "  complete  that database has every change before %s\n", shownTime(until))
		return compareCopies(to, *truth.row, copies, until)
	case has:
		return verdict(to, true, "The truth does not have it, and the mirror does.")
	case len(displaced) > 0:
		return verdict(to, true, "The truth does not have it where its id leads to, so there is no such order. Not all of the truth could be asked.")
	case away > 0:
		return verdict(to, true, "The truth does not have it, so there is no such order. Not all of the mirror could be asked.")
	}
	fmt.Fprintln(to.out, "  mirror    it is in no database of the mirror")
	return verdict(to, true, "There is no such order.")
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
	table := fmt.Sprintf(".order_%d", one.table)
	if one.table < 0 {
		table = ""
	}
	fmt.Fprintf(to.out, "  %-8s  %s%s on %s, %s\n", which, one.place.Schema, table, one.place.Server.Name, one.place.Server.Address)
	switch {
	case one.err != nil:
		fmt.Fprintf(to.out, "            it could not be asked: %v\n", one.err)
		return
	case one.row == nil:
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
// It puts none in force: a wrong file must not come to rule because somebody looked. When
// the meta database is away the file has to do: no database is read that says that it is
// another one, or of another epoch.
func openToRead(ctx context.Context, file *shardmap.Map, access cluster.Config, to console) (*cluster.Cluster, error) {
	c := cluster.Open(file, access)
	m, err := cluster.MapInForce(ctx, c, file)
	if errors.Is(err, cluster.ErrUnavailable) {
		fmt.Fprintf(to.out, "The map in force could not be read: %v. What follows is by the file.\n", dberr.Clean(err))
		return c, nil
	}
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
func readTruth(ctx context.Context, c *cluster.Cluster, id idgen.ID, locking bool) stored {
	at := c.Map().LocateInfo(id.Info(), id.Table())
	db := c.Database(shardmap.UID, at.Database)
	one := stored{place: db.Place(), table: at.Table}
	rows, err := byKey(ctx, db, []int{at.Table}, id.Snowflake(), locking)
	if one.err = err; err == nil && len(rows) > 0 {
		one.row = rows[0].row
	}
	return one
}

// readMirror reads the copy of an order where its merchant's are, and up to when that
// database is complete, which it says before the row is read.
func readMirror(ctx context.Context, c *cluster.Cluster, truth *schema.Order) (stored, schema.Millis) {
	if truth.BID < 1 {
		return stored{place: c.Database(shardmap.BID, 1).Place(), table: -1, err: errors.New("the merchant's number of the row is below 1")}, 0
	}
	at := c.Map().Locate(truth.BID)
	one := stored{place: c.Database(shardmap.BID, at.Database).Place(), table: at.Table}
	page, err := mirrored.NewSQL(c).List(ctx, mirrored.Query{BID: truth.BID, Min: truth.ID, Before: truth.ID + 1, Limit: 1})
	if one.err = err; err == nil && len(page.Orders) > 0 {
		one.row = &page.Orders[0]
	}
	return one, page.CompleteUntil
}

// countAway counts the databases that could not be asked.
func countAway(all []stored) (away int) {
	for _, one := range all {
		if one.err != nil {
			away++
		}
	}
	return away
}

// search looks for an order everywhere in a cluster: in the mirror when its merchant isn't
// known, in the truth when it isn't where it belongs. It returns where it is, and which
// databases could not be asked.
func search(ctx context.Context, c *cluster.Cluster, in shardmap.Cluster, id idgen.ID) []stored {
	every := make([]int, slot.Tables)
	for t := range every {
		every[t] = t
	}
	found := make([][]stored, c.Map().Size())
	atOnce(len(found), func(i int) {
		db := c.Database(in, i+1)
		rows, err := byKey(ctx, db, every, id.Snowflake(), false)
		if err != nil {
			found[i] = []stored{{place: db.Place(), table: -1, err: err}}
			return
		}
		found[i] = slices.DeleteFunc(rows, func(one stored) bool { return !id.Of(one.row.UID) })
	})
	return slices.Concat(found...)
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
			found = append(found, stored{place: db.Place(), table: t, row: &o})
		}
		return nil
	})
	return found, err
}
