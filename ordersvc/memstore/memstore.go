// Package memstore keeps orders in memory. It is the data of the quickstart: it
// obeys the whole contract of ordersvc.Store, and is gone when the process ends.
//
// It decides like the databases do: a number that is taken stays taken, one table's
// snowflakes are unique, and values that a column could not hold are refused. It
// leaves to its user what becomes of committed orders (see Config.OnCommit).
//
// An order takes about 1 KiB with short texts, so the default maximum of a million
// orders about 1 GiB.
package memstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/slot"
)

// A Config says how a Store behaves. Zero values are the defaults.
type Config struct {
	// OrdersMax is how many orders are kept, 1,000,000. Beyond it a new order is
	// answered with cluster.ErrUnavailable; what is there stays usable.
	OrdersMax int
	// OnCommit is called with every order that was stored, in the order of the
	// commits, by which stamp never falls, before Insert returns. It runs under the
	// store's lock: it must be quick and must not call the store.
	OnCommit func(stamp schema.Millis, orders []schema.Order)
	// Room is asked, under the store's lock, before a new order is stored: an error
	// refuses it, and is answered with cluster.ErrUnavailable. What is there stays
	// usable. nil: there is always room below OrdersMax.
	Room func() error
	// Clock is the store's clock; time.Now.
	Clock func() time.Time
}

// A Store is an ordersvc.Store in memory. It is safe for concurrent use.
type Store struct {
	config Config

	mu     sync.RWMutex
	stamp  schema.Millis // the newest time given out; never falls
	count  int
	tables map[shardmap.Location]*table
}

// A table is one table of orders: its keys, and its buyers' orders by ascending id.
type table struct {
	ids    map[int64]*schema.Order
	keys   map[ordersvc.Key]*schema.Order
	buyers map[int64][]*schema.Order
}

// New returns an empty Store.
func New(c Config) *Store {
	if c.OrdersMax <= 0 {
		c.OrdersMax = 1_000_000
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	return &Store{config: c, tables: map[shardmap.Location]*table{}}
}

// Now returns the store's time. Every order stamped earlier has been given to
// OnCommit, and none will be stamped earlier.
func (s *Store) Now() schema.Millis {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now()
}

// now reads the clock under the lock; a clock that steps back stands still here.
func (s *Store) now() schema.Millis {
	s.stamp = max(s.stamp, schema.MillisOf(s.config.Clock()))
	return s.stamp
}

// Insert implements ordersvc.Store.
func (s *Store) Insert(_ context.Context, database int, orders []schema.Order) []ordersvc.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	stamp := s.now()
	results := make([]ordersvc.Result, len(orders))
	var created []schema.Order
	for i, o := range orders {
		o.UpdatedAt = max(stamp, o.CreatedAt())
		r, isNew := s.insert(database, o)
		results[i] = r
		if isNew {
			created = append(created, o)
		}
	}
	if len(created) > 0 && s.config.OnCommit != nil {
		s.config.OnCommit(stamp, created)
	}
	return results
}

func (s *Store) insert(database int, o schema.Order) (r ordersvc.Result, isNew bool) {
	if err := refusal(&o); err != nil {
		return ordersvc.Result{Err: err}, false
	}
	t := s.table(shardmap.Location{Database: database, Table: slot.Table(o.UID)})
	key := ordersvc.Key{UID: o.UID, BID: o.BID, OutTradeNo: o.OutTradeNo}
	if there := t.keys[key]; there != nil {
		// The same id: this very order, inserted by an earlier call.
		return ordersvc.Result{Order: *there, Taken: there.ID != o.ID}, false
	}
	if t.ids[o.ID] != nil {
		return ordersvc.Result{Err: ordersvc.ErrDuplicateID}, false
	}
	if s.count >= s.config.OrdersMax {
		return ordersvc.Result{Err: fmt.Errorf("%w: the memory store is full with %d orders", cluster.ErrUnavailable, s.count)}, false
	}
	if s.config.Room != nil {
		if err := s.config.Room(); err != nil {
			return ordersvc.Result{Err: fmt.Errorf("%w: %w", cluster.ErrUnavailable, err)}, false
		}
	}
	s.count++
	t.ids[o.ID], t.keys[key] = &o, &o
	// Nearly always at the end: ids come about in the order of time.
	i, _ := position(t.buyers[o.UID], o.ID)
	t.buyers[o.UID] = slices.Insert(t.buyers[o.UID], i, &o)
	return ordersvc.Result{Order: o}, true
}

func (s *Store) table(loc shardmap.Location) *table {
	t := s.tables[loc]
	if t == nil {
		t = &table{map[int64]*schema.Order{}, map[ordersvc.Key]*schema.Order{}, map[int64][]*schema.Order{}}
		s.tables[loc] = t
	}
	return t
}

// Order implements ordersvc.Store.
func (s *Store) Order(_ context.Context, loc shardmap.Location, id int64) (schema.Order, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.tables[loc]; t != nil && t.ids[id] != nil {
		return *t.ids[id], nil
	}
	return schema.Order{}, ordersvc.ErrNotFound
}

// Find implements ordersvc.Store.
func (s *Store) Find(_ context.Context, loc shardmap.Location, key ordersvc.Key) (schema.Order, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.tables[loc]; t != nil && t.keys[key] != nil {
		return *t.keys[key], nil
	}
	return schema.Order{}, ordersvc.ErrNotFound
}

// Journal implements ordersvc.Store. A creation writes no entry, and the store
// knows no other operation.
func (s *Store) Journal(context.Context, shardmap.Location, int64) ([]schema.Entry, error) {
	return nil, nil
}

// List implements ordersvc.Store.
func (s *Store) List(_ context.Context, loc shardmap.Location, q ordersvc.Query) (ordersvc.Page, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var page ordersvc.Page
	t := s.tables[loc]
	if t == nil {
		return page, nil
	}
	all := t.buyers[q.UID]
	i, _ := position(all, q.Before)
	for examined := 0; i > 0 && all[i-1].ID >= q.Min; examined++ {
		o := all[i-1]
		match := q.Status == 0 || o.Status == q.Status
		if examined == ordersvc.ExaminedMax || match && len(page.Orders) == q.Limit {
			page.Next = o.ID + 1
			break
		}
		if match {
			page.Orders = append(page.Orders, *o)
		}
		i--
	}
	return page, nil
}

// position returns where id is, or belongs, in orders by ascending id.
func position(orders []*schema.Order, id int64) (int, bool) {
	return slices.BinarySearchFunc(orders, id, func(o *schema.Order, id int64) int {
		switch {
		case o.ID < id:
			return -1
		case o.ID > id:
			return 1
		}
		return 0
	})
}

// refusal says why the columns of order_t could not hold o; the limits are those of
// the migrations.
func refusal(o *schema.Order) error {
	ascii := func(s string, most int) bool {
		for i := range len(s) {
			if s[i] >= utf8.RuneSelf {
				return false
			}
		}
		return len(s) <= most
	}
	for _, c := range []struct {
		column string
		fits   bool
	}{
		{"out_trade_no", ascii(o.OutTradeNo, 64)},
		{"currency", ascii(o.Currency, 3)},
		{"subject", utf8.ValidString(o.Subject) && utf8.RuneCountInString(o.Subject) <= 256},
		{"metadata", utf8.ValidString(o.Metadata) && len(o.Metadata) < 1<<16},
		{"created_by", ascii(o.CreatedBy, 16)},
		{"request_id", ascii(o.RequestID, 64)},
	} {
		if !c.fits {
			return errors.New("memstore: the value does not fit into column " + c.column)
		}
	}
	return nil
}
