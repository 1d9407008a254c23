package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/slot"
)

// A sample is the newest orders of some tables: all that these have from since on.
type sample struct {
	orders []placed
	since  int64 // a snowflake
}

// A placed is an order and whose it is.
type placed struct{ order, uid int64 }

// with joins two samples of different tables.
func (s sample) with(other sample) sample {
	return sample{append(s.orders, other.orders...), max(s.since, other.since)}
}

const (
	// newestMax is how many orders of a table are looked at.
	newestMax = 200
	// buyersLeast is how many buyers can be judged: fewer than the newest orders of one
	// table, in which all may be.
	buyersLeast = 100
	// randomBuyers are judged where there are too few real ones.
	randomBuyers = 64_000
	// unevenFrom is how many standard deviations above what chance makes is a warning.
	// Chance goes so far once in a hundred thousand times.
	unevenFrom = 8
)

// newest reads the newest orders of each table. It finds those that aren't where their
// buyer's key puts them, in the mirror their merchant's. The sample is of the truth alone.
func (r *report) newest(ctx context.Context, db *sql.DB, place shardmap.Database, m *shardmap.Map) (out sample, err error) {
	var parts []string
	for t := range slot.Tables {
		parts = append(parts, fmt.Sprintf("(SELECT %d, id, uid, %s FROM `%s`.order_%d ORDER BY id DESC LIMIT %d)", t, place.Cluster, place.Schema, t, newestMax))
	}
	rows, err := db.QueryContext(ctx, strings.Join(parts, " UNION ALL "))
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var seen, astray [slot.Tables]int
	var oldest, example [slot.Tables]int64
	for rows.Next() {
		var table int
		var key int64
		var o placed
		if err := rows.Scan(&table, &o.order, &o.uid, &key); err != nil {
			return sample{}, err
		}
		seen[table]++
		if seen[table] == 1 || o.order < oldest[table] {
			oldest[table] = o.order
		}
		if key < 1 || m.Locate(key) != (shardmap.Location{Database: place.Number, Table: table}) {
			astray[table]++
			example[table] = o.order
			continue
		}
		if place.Cluster == shardmap.UID {
			out.orders = append(out.orders, o)
		}
	}
	for t := range seen {
		if seen[t] == newestMax && place.Cluster == shardmap.UID {
			out.since = max(out.since, oldest[t]) // it may have older ones, which aren't here
		}
	}
	for t, n := range astray {
		if n > 0 {
			r.differs(place.String(), "table order_%d: %d of its newest %d orders, such as the one of id %d, belong to another table by their %s", t, n, seen[t], example[t], place.Cluster)
		}
	}
	return out, rows.Err()
}

// buyers returns those who made an order since. No table is cut short there, so one that
// has more orders counts for more.
func (s sample) buyers() (uids []int64) {
	seen := map[int64]bool{}
	for _, o := range s.orders {
		if o.order >= s.since && !seen[o.uid] {
			seen[o.uid] = true
			uids = append(uids, o.uid)
		}
	}
	return uids
}

// uidsMax is how many buyers a file may name: it is a sample.
const uidsMax = 1_000_000

// readUIDs reads a file of buyers, one uid a line. One that is there twice counts once.
func readUIDs(file string) ([]int64, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	seen := map[int64]bool{}
	var uids []int64
	in := bufio.NewScanner(f)
	for n := 1; in.Scan(); n++ {
		text := strings.TrimSpace(in.Text())
		if text == "" {
			continue
		}
		uid, err := strconv.ParseInt(text, 10, 64)
		if err != nil || uid < 1 {
			return nil, fmt.Errorf("%s: line %d is no uid: it is a number from 1 to %d", file, n, math.MaxInt64)
		}
		if seen[uid] {
			continue
		}
		if len(uids) == uidsMax {
			return nil, fmt.Errorf("%s: it has more than %d uids; a sample is enough", file, uidsMax)
		}
		seen[uid] = true
		uids = append(uids, uid)
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(uids) == 0 {
		return nil, fmt.Errorf("%s: it names no uid", file)
	}
	return uids, nil
}

// spreadOfBuyers is spread for those who made the newest orders. Where they are too few
// it shows what the arithmetic makes of random ones.
func (r *report) spreadOfBuyers(uids []int64, databases int) {
	who := "recent buyers"
	if n := len(uids); n < buyersLeast {
		r.note("Spread: there are %d recent buyers, too few to judge; random uids are.", n)
		who, uids = "random uids", make([]int64, randomBuyers)
		for i := range uids {
			uids[i] = rand.Int64N(math.MaxInt64) + 1
		}
	}
	r.spread(uids, who, databases)
}

// spread says how uids are spread over databases, tables and slots.
func (r *report) spread(uids []int64, who string, databases int) {
	line := fmt.Sprintf("Spread of %d %s:", len(uids), who)
	for _, of := range []struct {
		name  string
		first int // the number of the first
		cells int
		cell  func(slot.Slot) int
	}{
		{"database", 1, databases, func(s slot.Slot) int { return s.Database(databases) - 1 }},
		{"table", 0, slot.Tables, slot.Slot.Table},
		{"slot", 0, slot.Count, func(s slot.Slot) int { return int(s) }},
	} {
		counts := make([]int, of.cells)
		for _, uid := range uids {
			counts[of.cell(slot.Of(uid))]++
		}
		least, most := slices.Min(counts), slices.Max(counts)
		line += fmt.Sprintf(" %d to %d in a %s", least, most, of.name)
		if len(uids) < of.cells {
			line += " (too few to judge)"
		}
		line += ","
		if uneven(counts) {
			fullest := slices.Index(counts, most) + of.first
			r.warn("the uid cluster", "the %s are spread unevenly: %s %d has %d, where an even share is %d, and %d of %d have none",
				who, of.name, fullest, most, len(uids)/of.cells, empty(counts), of.cells)
		}
	}
	r.note("%s.", strings.TrimSuffix(line, ","))
}

func empty(counts []int) (n int) {
	for _, c := range counts {
		if c == 0 {
			n++
		}
	}
	return n
}

// uneven reports whether chance doesn't make such counts of even shares, by a chi-square
// test.
func uneven(counts []int) bool {
	total := 0
	for _, n := range counts {
		total += n
	}
	share := float64(total) / float64(len(counts))
	if share < 1 {
		return false
	}
	chi := 0.0
	for _, n := range counts {
		chi += (float64(n) - share) * (float64(n) - share) / share
	}
	freedom := float64(len(counts) - 1)
	return (chi-freedom)/math.Sqrt(2*freedom) > unevenFrom
}
