// Package mirror reads the mirror: the copy of every order by merchant.
package mirror

import (
	"context"

	"github.com/octopay/octopay/schema"
)

// A Query selects orders of one merchant.
type Query struct {
	BID        int64
	Status     schema.Status // 0: any
	OutTradeNo string        // "": any
	Min        int64         // snowflakes from here …
	Before     int64         // … to below here
	Limit      int           // orders, at least 1
}

// A Page is part of a list, newest first.
type Page struct {
	Orders []schema.Order
	Next   int64 // the Before of the next page, 0 at the end
	// CompleteUntil: every change stamped earlier is included. 0 (1970) before the
	// first mark of every uid server.
	CompleteUntil schema.Millis
}

// Reader reads the mirror. Errors: cluster.ErrBusy, cluster.ErrUnavailable
// (wrapped), or a fault.
type Reader interface {
	List(ctx context.Context, q Query) (Page, error)
}
