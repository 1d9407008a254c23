// Package ordersvc is the payment order: its rules, its life, and the service that
// keeps both.
//
// It decides what a create means: a new order, a replay of one, or a number used
// twice. It leaves to the Store how rows are kept, to package lane how writes are
// gathered, to package idgen how ids are made, and to its caller the shape and
// range of every field: what reaches Service is valid.
package ordersvc

import (
	"context"
	"time"

	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/schema"
)

// A New is an order to create. Its fields are valid as the HTTP contract says.
type New struct {
	Key
	Amount    int64 // minor units
	Currency  string
	Subject   string
	Metadata  string // canonical, see schema.Order
	ExpiresIn time.Duration
	Actor     string // app, merchant
	RequestID string
}

// A Created is the answer to a create.
type Created struct {
	Order    schema.Order // as it is now
	Replayed bool         // it was there before
}

// Service is the order service. It is safe for concurrent use.
type Service struct{}

// Create makes an order, or returns the one that the same request made before.
// Errors: *ReusedError, ErrUnknown, ErrNoWorker, lane.ErrFull, lane.ErrWait,
// lane.ErrClosed, cluster.ErrUnavailable, or a fault.
func (s *Service) Create(ctx context.Context, n New) (Created, error) { panic("unwritten") }

// Get returns the order with this id. ErrNotFound also when the parts of the id
// disagree with the order stored under its snowflake.
func (s *Service) Get(ctx context.Context, id idgen.ID) (schema.Order, error) { panic("unwritten") }

// Journal returns the stored journal of o up to o.Ver, oldest first. The creation
// is not among it: the order's own columns are that entry.
func (s *Service) Journal(ctx context.Context, o schema.Order) ([]schema.Entry, error) {
	panic("unwritten")
}

// Find returns the order with this idempotency key, or ErrNotFound.
func (s *Service) Find(ctx context.Context, k Key) (schema.Order, error) { panic("unwritten") }

// List returns orders of one buyer, newest first.
func (s *Service) List(ctx context.Context, q Query) (Page, error) { panic("unwritten") }
