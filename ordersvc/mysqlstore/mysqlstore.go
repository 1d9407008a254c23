// Package mysqlstore keeps orders in MariaDB: it is the truth in production.
//
// New orders of a database are written by one packet, in one round trip, over a
// connection that does nothing else:
//
//	BEGIN
//	owner    share-locks the owner row; fails when it obeys another epoch
//	@t       the time of the transaction, taken once
//	INSERT   one for each table, sorted by its unique key; an order whose key is
//	ROW_COUNT  taken changes nothing, and is missing in the count
//	COMMIT
//	SELECT @t  whoever reads it knows that COMMIT succeeded
//
// A change of orders takes two packets, over a connection of its own, so that a locked
// order doesn't hold up new ones:
//
//	BEGIN, owner
//	SELECT   … FOR UPDATE, for each table: the orders, by ascending id
//	SELECT   their journals, which nobody can write meanwhile
//	@t       after the locks: no two changes of an order share a time out of order
//	---      ordersvc.Life decides
//	UPDATE   each order that changed, if its ver is as it was
//	INSERT   the journal's new entries, for each table
//	COMMIT   and SELECT 1, as above
//
// The package decides what the packet's answer means for each order. It leaves to
// package cluster which connection may be used, to package lane what follows from a
// packet that failed, and to its caller which orders go together.
package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/dberr"
	"github.com/octopay/octopay/lane"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
)

// A Store is an ordersvc.Store over the uid databases of a cluster. It is safe for
// concurrent use; Inserts of one database run one after another.
type Store struct {
	cluster *cluster.Cluster
	creates []*writer // by database - 1
	changes []*writer // the same
	budget  lane.Budget
	turn    time.Duration // how long an Insert waits for another one of its database; see turnMax
}

// turnMax is how long an Insert waits for another one of the same database. A lane
// never makes it wait.
const turnMax = 3 * time.Second

// New returns a store over c, which stays the caller's. It connects at first use.
func New(c *cluster.Cluster) *Store {
	s := &Store{cluster: c, budget: lane.Budget{Transaction: 3 * time.Second, Settle: 3 * time.Second}, turn: turnMax}
	for _, place := range c.Map().Databases(shardmap.UID) {
		db := c.Database(shardmap.UID, place.Number)
		s.creates = append(s.creates, newWriter(db))
		s.changes = append(s.changes, newWriter(db))
	}
	return s
}

// Close gives the store's connections back when their transactions have ended. What
// comes later is answered with cluster.ErrUnavailable.
func (s *Store) Close() error {
	var errs []error
	for _, w := range slices.Concat(s.creates, s.changes) {
		errs = append(errs, w.close())
	}
	return errors.Join(errs...)
}

// Insert implements ordersvc.Store.
func (s *Store) Insert(ctx context.Context, database int, orders []schema.Order) []ordersvc.Result {
	results := make([]ordersvc.Result, len(orders))
	if len(orders) == 0 {
		return results
	}
	w := s.creates[database-1]
	if err := w.lock(s.turn); err != nil {
		for i := range results {
			results[i].Err = err
		}
		return results
	}
	defer w.unlock()

	rest := make([]int, len(orders))
	for i := range rest {
		rest[i] = i
	}
	// One round, unless a refused order had claimed a key that others have too. All
	// rounds together have the time of one.
	until := time.Now().Add(s.budget.Transaction)
	for len(rest) > 0 {
		first, followers := byKey(orders, rest)
		batch := make([]schema.Order, len(first))
		for at, i := range first {
			batch[at] = orders[i]
		}
		left := time.Until(until)
		if left <= 0 {
			// Another attempt would be cut off after it was sent: then it is better not made.
			for _, i := range rest {
				results[i].Err = unavailable(lane.ErrNotRun)
			}
			break
		}
		budget := lane.Budget{Transaction: left, Settle: s.budget.Settle}
		outcomes := lane.Commit(ctx, budget, batch, func(ctx context.Context, orders []schema.Order) (out []ordersvc.Result, err error) {
			err = w.do(ctx, func(c *sql.Conn, epoch shardmap.Epoch) error {
				out, err = insert(ctx, c, w.db.Schema(), epoch, orders)
				return err
			})
			return out, err
		})
		for at, i := range first {
			results[i] = resultOf(outcomes[at])
		}
		rest = rest[:0]
		for _, f := range followers {
			switch r := results[f.first]; {
			case r.Err == nil:
				results[f.index] = ordersvc.Result{Order: r.Order, Taken: r.Order.ID != orders[f.index].ID}
			case errors.Is(r.Err, lane.ErrUnknown), errors.Is(r.Err, cluster.ErrUnavailable):
				results[f.index] = r
			default: // refused for a reason of its own; the key is still free
				rest = append(rest, f.index)
			}
		}
	}
	return results
}

// A follower is an order with the key of one before it.
type follower struct{ index, first int }

// byKey splits the orders at these indexes into the first of each key and its
// followers, both in their order.
func byKey(orders []schema.Order, indexes []int) (first []int, followers []follower) {
	seen := make(map[ordersvc.Key]int, len(indexes))
	for _, i := range indexes {
		k := keyOf(&orders[i])
		if f, ok := seen[k]; ok {
			followers = append(followers, follower{i, f})
			continue
		}
		seen[k] = i
		first = append(first, i)
	}
	return first, followers
}

func keyOf(o *schema.Order) ordersvc.Key {
	return ordersvc.Key{UID: o.UID, BID: o.BID, OutTradeNo: o.OutTradeNo}
}

// resultOf puts an outcome into the store's words.
func resultOf(o lane.Outcome[ordersvc.Result]) ordersvc.Result {
	if o.Err != nil {
		return ordersvc.Result{Err: failure("insert", o.Err)}
	}
	return o.Result
}

// failure puts what kept an operation from being written into the store's words.
func failure(what string, err error) error {
	switch {
	case errors.Is(err, lane.ErrUnknown):
		return err
	case errors.Is(err, lane.ErrNotRun):
		return unavailable(err)
	}
	switch dberr.Of(err) {
	case dberr.Refused, dberr.Duplicate, dberr.TooBig:
		return fmt.Errorf("mysqlstore: %s: %w", what, dberr.Clean(err))
	}
	return unavailable(err)
}

func unavailable(err error) error {
	if errors.Is(err, cluster.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", cluster.ErrUnavailable, dberr.Clean(err))
}
