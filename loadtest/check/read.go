package check

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/dberr"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/slot"
	"github.com/octopay/octopay/syncer/mirror"
	"golang.org/x/sync/errgroup"
)

const (
	readersMax = 4    // databases that are read at once
	chunk      = 2000 // rows of one SELECT: a read has 3 s
	tries      = 5    // of one SELECT
)

// clusters returns the clusters that are looked at.
func clusters(mirror bool) []shardmap.Cluster {
	if mirror {
		return []shardmap.Cluster{shardmap.UID, shardmap.BID}
	}
	return []shardmap.Cluster{shardmap.UID}
}

// everywhere calls f for each database of the clusters, some at once.
func everywhere(ctx context.Context, c *cluster.Cluster, mirror bool, f func(ctx context.Context, db *cluster.Database) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readersMax)
	for _, cl := range clusters(mirror) {
		for n := range c.Map().Size() {
			db := c.Database(cl, n+1)
			g.Go(func() error {
				if err := f(ctx, db); err != nil {
					return fmt.Errorf("check: read %s: %w", db.Place(), err)
				}
				return nil
			})
		}
	}
	return g.Wait()
}

// ask calls f with a connection, again when the database was too busy: a machine that
// has just been under load may be.
func ask(ctx context.Context, db *cluster.Database, f func(ctx context.Context, conn *sql.Conn) error) (err error) {
	for try := range tries {
		err = db.Read(ctx, f)
		if class := dberr.Of(err); !errors.Is(err, cluster.ErrBusy) && class != dberr.NotSent && class != dberr.Unknown {
			return err
		}
		select {
		case <-time.After(250 * time.Millisecond << try):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

// Reach makes sure, at one try, that each database can be read: that its server answers,
// takes the user and the password, and has the database that the map says.
func Reach(ctx context.Context, c *cluster.Cluster, mirror bool) error {
	return everywhere(ctx, c, mirror, func(ctx context.Context, db *cluster.Database) error {
		return db.Read(ctx, func(context.Context, *sql.Conn) error { return nil })
	})
}

// bounds returns the least and the greatest id that are stored; without any, the least
// is the greater.
func bounds(ctx context.Context, c *cluster.Cluster, mirror bool) (first, last int64, err error) {
	var mu sync.Mutex
	first, last = math.MaxInt64, 0
	err = everywhere(ctx, c, mirror, func(ctx context.Context, db *cluster.Database) error {
		return ask(ctx, db, func(ctx context.Context, conn *sql.Conn) error {
			for table := range slot.Tables {
				var low, high sql.NullInt64
				err := conn.QueryRowContext(ctx, fmt.Sprintf("SELECT MIN(id), MAX(id) FROM `%s`.order_%d", db.Schema(), table)).Scan(&low, &high)
				if err != nil {
					return err
				}
				if low.Valid {
					mu.Lock()
					first, last = min(first, low.Int64), max(last, high.Int64)
					mu.Unlock()
				}
			}
			return nil
		})
	})
	return first, last, err
}

// read returns the rows with ids from here to below there that keep wants.
func read(ctx context.Context, c *cluster.Cluster, withMirror bool, from, until int64, keep func(schema.Order) bool) (truth, mirror []placed, err error) {
	var mu sync.Mutex
	err = everywhere(ctx, c, withMirror, func(ctx context.Context, db *cluster.Database) error {
		at := db.Place()
		for table := range slot.Tables {
			rows, err := readTable(ctx, db, shardmap.Location{Database: at.Number, Table: table}, from, until, keep)
			if err != nil {
				return err
			}
			mu.Lock()
			if at.Cluster == shardmap.UID {
				truth = append(truth, rows...)
			} else {
				mirror = append(mirror, rows...)
			}
			mu.Unlock()
		}
		return nil
	})
	return truth, mirror, err
}

func readTable(ctx context.Context, db *cluster.Database, at shardmap.Location, from, until int64, keep func(schema.Order) bool) (kept []placed, err error) {
	query := fmt.Sprintf("SELECT %s FROM `%s`.order_%d WHERE id >= ? AND id < ? ORDER BY id LIMIT %d",
		schema.List(schema.OrderColumns), db.Schema(), at.Table, chunk)
	for from < until {
		var rows []placed // of this SELECT, which may be made again
		var n int
		var last int64
		err := ask(ctx, db, func(ctx context.Context, conn *sql.Conn) error {
			rows, n = nil, 0
			rs, err := conn.QueryContext(ctx, query, from, until)
			if err != nil {
				return err
			}
			defer func() { _ = rs.Close() }()
			for rs.Next() {
				var o schema.Order
				if err := rs.Scan(o.Fields()...); err != nil {
					return err
				}
				n++
				last = o.ID
				if keep(o) {
					rows = append(rows, placed{o, at})
				}
			}
			return rs.Err()
		})
		if err != nil {
			return nil, err
		}
		kept = append(kept, rows...)
		if n < chunk {
			return kept, nil
		}
		from = last + 1
	}
	return kept, nil
}

// sayEvery is how often it is said what is waited for.
const sayEvery = 5 * time.Second

// AwaitMirror waits until every database of the mirror is complete past the newest change
// of the truth; ErrIncomplete when that takes longer than within. say is told now and then
// what it waits for; it may be nil.
func AwaitMirror(ctx context.Context, c *cluster.Cluster, within time.Duration, say func(string)) error {
	newest, err := newestChange(ctx, c)
	if err != nil || newest == 0 {
		return err
	}
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	reader := mirror.NewSQL(c)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	said := time.Now()
	for n := 1; n <= c.Map().Size(); {
		// The least key of the database.
		page, err := reader.List(ctx, mirror.Query{BID: int64(n-1)*slot.Tables + 1, Before: math.MaxInt64, Limit: 1})
		if err == nil && page.CompleteUntil > newest {
			n++
			continue
		}
		waits := func() string {
			place := c.Database(shardmap.BID, n).Place()
			if err != nil {
				return fmt.Sprintf("%s: %v", place, err)
			}
			return fmt.Sprintf("%s is complete until %s, the newest change is of %s", place, page.CompleteUntil.SQL(), newest.SQL())
		}
		if say != nil && time.Since(said) >= sayEvery {
			said = time.Now()
			say("waiting for the mirror: " + waits())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if cause := context.Cause(ctx); parent.Err() != nil || !errors.Is(cause, context.DeadlineExceeded) {
				return cause
			}
			return fmt.Errorf("%w after %s: %s", ErrIncomplete, within, waits())
		}
	}
	return nil
}

// newestChange returns the time of the newest change in the truth, 0 when it is empty.
func newestChange(ctx context.Context, c *cluster.Cluster) (newest schema.Millis, err error) {
	var mu sync.Mutex
	err = everywhere(ctx, c, false, func(ctx context.Context, db *cluster.Database) error {
		return ask(ctx, db, func(ctx context.Context, conn *sql.Conn) error {
			for table := range slot.Tables {
				var at schema.Millis
				err := conn.QueryRowContext(ctx, fmt.Sprintf("SELECT MAX(updated_at) FROM `%s`.order_%d", db.Schema(), table)).Scan(&at)
				if err != nil {
					return err
				}
				mu.Lock()
				newest = max(newest, at)
				mu.Unlock()
			}
			return nil
		})
	})
	return newest, err
}
