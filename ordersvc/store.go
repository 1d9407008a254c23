package ordersvc

import (
	"context"

	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
)

// Store keeps orders and their journal by buyer: it is the truth. Implementations
// pass storetest.Run and are safe for concurrent use.
//
// An error is one of ErrNotFound, ErrUnknown, cluster.ErrUnavailable,
// cluster.ErrBusy (wrapped), or a fault of the store itself.
type Store interface {
	// Insert adds orders of one database (1 … N) in one transaction and returns one
	// Result for each, in order. Every order has status Created, ver 1 and its
	// buyer's table; UpdatedAt is not set: the store sets it to the greater of its
	// clock inside the transaction and the order's CreatedAt.
	//
	// An order whose (uid, bid, out_trade_no) is taken changes nothing and yields
	// what is stored; equal keys within one call: the first is stored. One order
	// MUST NOT fail its neighbours: an order that the store refuses alone gets
	// Result.Err alone. A commit whose outcome was not learned is ErrUnknown for
	// all that it held; running the same call again settles it.
	//
	// Insert runs under its own deadlines; ctx carries values only and its end does
	// not interrupt.
	Insert(ctx context.Context, database int, orders []schema.Order) []Result

	// Change does changes of orders of one database (1 … N) in one transaction, as
	// Life.Apply decides under each order's lock, and returns one Changed for each, in
	// order. Changes of one order happen one after another; every one that Life.Apply
	// recorded is stored with its entry. An order that isn't there is ErrNotFound.
	//
	// One change MUST NOT fail its neighbours. A commit whose outcome was not learned is
	// ErrUnknown for all that it held; running the same call again settles it.
	//
	// Its deadlines are as Insert's.
	Change(ctx context.Context, database int, changes []Change) []Changed

	// Order returns the order stored under the snowflake id at loc, or ErrNotFound.
	Order(ctx context.Context, loc shardmap.Location, id int64) (schema.Order, error)

	// Find returns the order with this idempotency key at loc, or ErrNotFound.
	Find(ctx context.Context, loc shardmap.Location, key Key) (schema.Order, error)

	// Journal returns the stored entries of an order, oldest first.
	Journal(ctx context.Context, loc shardmap.Location, id int64) ([]schema.Entry, error)

	// Due returns orders of one database (1 … N) that are created, and whose time was over
	// half a minute ago by the store's clock, the longest overdue of each table first; at
	// most so many.
	Due(ctx context.Context, database, most int) ([]Due, error)

	// List returns orders of one buyer, newest first, and from where to go on.
	List(ctx context.Context, loc shardmap.Location, q Query) (Page, error)
}

// A Key is an order's idempotency key; its scope is exactly one buyer.
type Key struct {
	UID, BID   int64
	OutTradeNo string
}

// A Result is the fate of one order of an Insert.
type Result struct {
	// Order is what is stored under the order's idempotency key.
	Order schema.Order
	// Taken reports that another order was stored under the key before: Order is
	// that one.
	Taken bool
	// Err is nil, or why nothing can be said of this order. ErrDuplicateID: nothing
	// was stored under the key, because another order has the same snowflake.
	Err error
}

// A Query selects orders of one buyer.
type Query struct {
	UID    int64
	Status schema.Status // 0: any
	Min    int64         // snowflakes from here …
	Before int64         // … to below here
	Limit  int           // orders, at least 1
}

// A Page is part of a list, newest first.
type Page struct {
	Orders []schema.Order
	// Next is the Before of the next page, 0 at the end. A page may hold fewer
	// than Limit orders, even none, and have a next one: it examines at most
	// ExaminedMax rows.
	Next int64
}

// ExaminedMax is how many rows one page of a list examines at most.
const ExaminedMax = 10_000
