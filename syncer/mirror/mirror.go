// Package mirror reads the mirror: the copy of every order by merchant.
//
// It decides what a list holds and up to when it is complete. How the copy comes
// about is left to package apply. There are two mirrors: SQL, in the bid cluster, and
// Memory, in this process; both pass mirrortest.Run.
package mirror

import (
	"context"

	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/stream"
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

// ExaminedMax is how many rows one page of a list examines at most. So a page can
// hold fewer than Limit orders, even none, and have a next one.
const ExaminedMax = 10_000

// Reader reads the mirror. Errors: cluster.ErrBusy, cluster.ErrUnavailable
// (wrapped), or a fault.
type Reader interface {
	List(ctx context.Context, q Query) (Page, error)
}

// completeUntil is the least time of the marks of all uid servers, 0 when one has
// none.
func completeUntil(m *shardmap.Map, marks map[string]stream.Mark) schema.Millis {
	var least schema.Millis
	for i, s := range m.Servers(shardmap.UID) {
		if at := marks[s.Name].At; i == 0 || at < least {
			least = at
		}
	}
	return least
}
