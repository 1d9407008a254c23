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
	"container/heap"
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
	// EntriesMax is how many entries the journals of all orders have, four times
	// OrdersMax. Beyond it a change is answered with cluster.ErrUnavailable.
	EntriesMax int
	// OnCommit is called with every order that was stored or changed, and the entries
	// that are new, in the order of the commits, by which stamp never falls, before
	// Insert or Change returns. It runs under the store's lock: it must be quick and must
	// not call the store.
	OnCommit func(stamp schema.Millis, orders []schema.Order, entries []schema.Entry)
	// Room is asked, under the store's lock, before a new order or a change is stored:
	// an error refuses it, and is answered with cluster.ErrUnavailable. What is there
	// stays usable. nil: there is always room below OrdersMax and EntriesMax.
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
	noted  int // entries
	tables map[shardmap.Location]*table
	open   map[int]*byExpiry // by database; those paid or closed leave when their time comes
}

// A table is one table of orders: its keys, and its buyers' orders by ascending id.
type table struct {
	ids      map[int64]*schema.Order
	keys     map[ordersvc.Key]*schema.Order
	buyers   map[int64][]*schema.Order
	journals map[int64][]schema.Entry // by order
}

// New returns an empty Store.
func New(c Config) *Store {
	if c.OrdersMax <= 0 {
		c.OrdersMax = 1_000_000
	}
	if c.EntriesMax <= 0 {
		c.EntriesMax = 4 * c.OrdersMax
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	return &Store{config: c, tables: map[shardmap.Location]*table{}, open: map[int]*byExpiry{}}
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
		s.config.OnCommit(stamp, created, nil)
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
	if err := s.room(); err != nil {
		return ordersvc.Result{Err: err}, false
	}
	s.count++
	t.ids[o.ID], t.keys[key] = &o, &o
	if s.open[database] == nil {
		s.open[database] = &byExpiry{}
	}
	heap.Push(s.open[database], &o)
	// Nearly always at the end: ids come about in the order of time.
	i, _ := position(t.buyers[o.UID], o.ID)
	t.buyers[o.UID] = slices.Insert(t.buyers[o.UID], i, &o)
	return ordersvc.Result{Order: o}, true
}

func (s *Store) room() error {
	if s.config.Room != nil {
		if err := s.config.Room(); err != nil {
			return fmt.Errorf("%w: %w", cluster.ErrUnavailable, err)
		}
	}
	return nil
}

// Change implements ordersvc.Store.
func (s *Store) Change(_ context.Context, database int, changes []ordersvc.Change) []ordersvc.Changed {
	s.mu.Lock()
	defer s.mu.Unlock()
	stamp := s.now()
	results := make([]ordersvc.Changed, len(changes))
	var changed []*schema.Order // each once
	var entries []schema.Entry
	for i := range changes {
		c := &changes[i]
		t := s.tables[shardmap.Location{Database: database, Table: c.Order.Table()}]
		if t == nil || t.ids[c.Order.Snowflake()] == nil {
			results[i].Err = ordersvc.ErrNotFound
			continue
		}
		o := t.ids[c.Order.Snowflake()]
		life := ordersvc.Life{Order: *o, Journal: t.journals[o.ID]}
		r := life.Apply(c, stamp)
		if life.Order.Ver > o.Ver {
			if err := s.roomForEntry(&r.Entry); err != nil {
				results[i].Err = err
				continue
			}
			s.noted++
			t.journals[o.ID] = life.Journal
			*o = life.Order
			entries = append(entries, r.Entry)
			if !slices.Contains(changed, o) {
				changed = append(changed, o)
			}
		}
		results[i] = r
	}
	if len(entries) > 0 && s.config.OnCommit != nil {
		orders := make([]schema.Order, len(changed))
		for i, o := range changed {
			orders[i] = *o
		}
		s.config.OnCommit(stamp, orders, entries)
	}
	return results
}

func (s *Store) roomForEntry(e *schema.Entry) error {
	if err := entryRefusal(e); err != nil {
		return err
	}
	if s.noted >= s.config.EntriesMax {
		return fmt.Errorf("%w: the memory store is full with %d journal entries", cluster.ErrUnavailable, s.noted)
	}
	return s.room()
}

func (s *Store) table(loc shardmap.Location) *table {
	t := s.tables[loc]
	if t == nil {
		t = &table{map[int64]*schema.Order{}, map[ordersvc.Key]*schema.Order{}, map[int64][]*schema.Order{}, map[int64][]schema.Entry{}}
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

// Journal implements ordersvc.Store.
func (s *Store) Journal(_ context.Context, loc shardmap.Location, id int64) ([]schema.Entry, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.tables[loc]; t != nil {
		return slices.Clone(t.journals[id]), nil
	}
	return nil, nil
}

// Due implements ordersvc.Store.
func (s *Store) Due(_ context.Context, database, most int) (due []ordersvc.Due, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := s.open[database]
	if open == nil {
		return nil, nil
	}
	end := s.now() - ordersvc.ExpiryGrace
	var again []*schema.Order
	for len(due) < most && open.Len() > 0 && (*open)[0].ExpiresAt <= end {
		if o := heap.Pop(open).(*schema.Order); o.Status == schema.Created {
			due = append(due, ordersvc.Due{ID: o.OrderID(), ExpiresAt: o.ExpiresAt.Time()})
			again = append(again, o)
		}
	}
	for _, o := range again {
		heap.Push(open, o)
	}
	return due, nil
}

// byExpiry is orders that were created, the one that expires first at the top.
type byExpiry []*schema.Order

func (h byExpiry) Len() int           { return len(h) }
func (h byExpiry) Less(i, j int) bool { return h[i].ExpiresAt < h[j].ExpiresAt }
func (h byExpiry) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *byExpiry) Push(o any) { *h = append(*h, o.(*schema.Order)) }

// Pop implements heap.Interface.
func (h *byExpiry) Pop() any {
	last := len(*h) - 1
	o := (*h)[last]
	*h = (*h)[:last]
	return o
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

// A column is whether a value fits into a column.
type column struct {
	name string
	fits bool
}

func misfit(columns ...column) error {
	for _, c := range columns {
		if !c.fits {
			return errors.New("memstore: the value does not fit into column " + c.name)
		}
	}
	return nil
}

func ascii(s string, most int) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return len(s) <= most
}

func text(s string, most int) bool { return utf8.ValidString(s) && utf8.RuneCountInString(s) <= most }

// refusal says why the columns of order_t could not hold o; the limits are those of
// the migrations.
func refusal(o *schema.Order) error {
	return misfit(
		column{"out_trade_no", ascii(o.OutTradeNo, 64)},
		column{"currency", ascii(o.Currency, 3)},
		column{"subject", text(o.Subject, 256)},
		column{"metadata", utf8.ValidString(o.Metadata) && len(o.Metadata) < 1<<16},
		column{"created_by", ascii(o.CreatedBy, 16)},
		column{"request_id", ascii(o.RequestID, 64)},
	)
}

// entryRefusal is refusal for journal_t.
func entryRefusal(e *schema.Entry) error {
	return misfit(
		column{"op", ascii(e.Op, 160)},
		column{"currency", ascii(e.Currency, 3)},
		column{"ref", ascii(e.Ref, 160)},
		column{"reason", text(e.Reason, 256)},
		column{"actor", ascii(e.Actor, 16)},
		column{"key_id", ascii(e.KeyID, 64)},
		column{"request_id", ascii(e.RequestID, 64)},
		column{"channel_refund_no", ascii(e.ChannelRefundNo, 64)},
	)
}
