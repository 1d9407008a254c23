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

// The refusals of a Change. The order's status and amounts are as they were.
var (
	ErrAlreadyPaid       = errors.New("ordersvc: the order is paid")
	ErrNotPaid           = errors.New("ordersvc: the order is not paid")
	ErrClosed            = errors.New("ordersvc: the order is closed")
	ErrNotExpired        = errors.New("ordersvc: the order has not expired")
	ErrTradeNoReused     = errors.New("ordersvc: the channel_trade_no was applied or given back with another amount or currency")
	ErrAmountMismatch    = errors.New("ordersvc: another amount than the order's was paid")
	ErrCurrencyMismatch  = errors.New("ordersvc: another currency than the order's was paid")
	ErrRefundNotFound    = errors.New("ordersvc: refund not found")
	ErrRefundNoReused    = errors.New("ordersvc: the out_refund_no is used by another refund")
	ErrRefundSucceeded   = errors.New("ordersvc: the refund has succeeded")
	ErrFullyRefunded     = errors.New("ordersvc: nothing is left to refund")
	ErrTooManyRefunds    = errors.New("ordersvc: the order has too many refunds")
	ErrExceedsPaid       = errors.New("ordersvc: the refund exceeds what is left of the payment")
	ErrUnappliedNotFound = errors.New("ordersvc: unapplied payment not found")
	ErrSettled           = errors.New("ordersvc: the unapplied payment is settled")
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
