package ordersvc

import (
	"errors"

	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/lane"
	"github.com/octopay/octopay/schema"
)

// ErrUnknown reports a write whose outcome was not learned. The order may or may
// not exist; repeating the call with the same out_trade_no is safe and settles it.
var ErrUnknown = lane.ErrUnknown

var (
	// ErrNotFound reports that no order has this id or key.
	ErrNotFound = errors.New("ordersvc: order not found")
	// ErrDuplicateID reports a snowflake that two orders were given: two processes
	// use one worker number. Nothing was stored for the second.
	ErrDuplicateID = errors.New("ordersvc: duplicate id")
	// ErrNoWorker reports that ids cannot be made now. Nothing was written; later
	// it may work.
	ErrNoWorker = errors.New("ordersvc: no worker number")
)

// A ReusedError reports a create whose out_trade_no already names another order of
// this buyer at this merchant: other amount, currency or subject.
type ReusedError struct {
	OrderID idgen.ID
	Status  schema.Status
}

func (e *ReusedError) Error() string {
	return "ordersvc: out_trade_no is already used by another order"
}
