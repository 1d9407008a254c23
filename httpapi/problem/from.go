package problem

import (
	"context"
	"errors"

	"github.com/octopay/octopay/auth"
	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/lane"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/payconfig"
)

// From returns how to answer err, the error of a call that may have written (write)
// or only read. An error that it doesn't know is Internal, with err as its Cause.
//
// The order of the cases matters: an error that says that the outcome is unknown is
// that, whatever else it wraps.
func From(err error, write bool) *Problem {
	var (
		known  *Problem
		reused *ordersvc.ReusedError
	)
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &reused):
		return &Problem{Code: OutTradeNoReused, OrderID: reused.OrderID, Current: reused.Status.String()}
	case write && errors.Is(err, ordersvc.ErrUnknown):
		return &Problem{Code: OutcomeUnknown, Cause: err}
	case errors.Is(err, auth.ErrUnauthenticated):
		return &Problem{Code: Unauthenticated}
	case errors.Is(err, auth.ErrSignature):
		return &Problem{Code: SignatureInvalid}
	case errors.Is(err, auth.ErrSkew):
		return &Problem{Code: TimestampSkew}
	case errors.Is(err, auth.ErrUnavailable):
		return &Problem{Code: ShardUnavailable, Cause: err}
	case errors.Is(err, ordersvc.ErrNotFound):
		return &Problem{Code: OrderNotFound}
	case errors.Is(err, lane.ErrFull):
		return &Problem{Code: Overloaded, Shed: QueueFull, Cause: err}
	case errors.Is(err, lane.ErrWait):
		return &Problem{Code: Overloaded, Shed: QueueWait, Cause: err}
	case errors.Is(err, lane.ErrClosed):
		return &Problem{Code: Draining, Cause: err}
	case errors.Is(err, cluster.ErrBusy):
		return &Problem{Code: Overloaded, Shed: Database, Cause: err}
	case errors.Is(err, cluster.ErrUnavailable), errors.Is(err, ordersvc.ErrNoWorker):
		return &Problem{Code: ShardUnavailable, Cause: err}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, ordersvc.ErrUnknown):
		// Nobody says what a write that was left alone has done. A read left alone
		// has done nothing.
		if write {
			return &Problem{Code: OutcomeUnknown, Cause: err}
		}
		return &Problem{Code: ShardUnavailable, Cause: err}
	}
	for _, r := range refused {
		if errors.Is(err, r.err) {
			return &Problem{Code: r.code}
		}
	}
	return &Problem{Code: Internal, Cause: err}
}

// refused are the answers to creates that the config doesn't allow, and to changes that an
// order can't have.
var refused = []struct {
	err  error
	code Code
}{
	{payconfig.ErrNotRead, ShardUnavailable},
	{payconfig.ErrMerchantNotFound, MerchantNotFound},
	{payconfig.ErrMerchantDisabled, MerchantDisabled},
	{payconfig.ErrCurrencyUnsupported, CurrencyUnsupported},
	{ordersvc.ErrAlreadyPaid, OrderAlreadyPaid},
	{ordersvc.ErrNotPaid, OrderNotPaid},
	{ordersvc.ErrClosed, OrderClosed},
	{ordersvc.ErrTradeNoReused, ChannelTradeNoReused},
	{ordersvc.ErrAmountMismatch, AmountMismatch},
	{ordersvc.ErrCurrencyMismatch, CurrencyMismatch},
	{ordersvc.ErrRefundNotFound, RefundNotFound},
	{ordersvc.ErrRefundNoReused, OutRefundNoReused},
	{ordersvc.ErrRefundSucceeded, RefundAlreadySucceeded},
	{ordersvc.ErrFullyRefunded, OrderFullyRefunded},
	{ordersvc.ErrTooManyRefunds, TooManyRefunds},
	{ordersvc.ErrExceedsPaid, RefundExceedsPaid},
	{ordersvc.ErrUnappliedNotFound, UnappliedPaymentNotFound},
	{ordersvc.ErrSettled, UnappliedPaymentSettled},
}
