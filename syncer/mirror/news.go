package mirror

import (
	"cmp"
	"context"

	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/slot"
)

// A Stamp is a place in the order in which rows of one table were stamped: by time, then
// by order, then by seq, which orders don't have.
type Stamp struct {
	At         schema.Millis // updated_at, recorded_at
	Order, Seq int64
}

// Compare is below 0 when s comes before t.
func (s Stamp) Compare(t Stamp) int {
	return cmp.Or(cmp.Compare(s.At, t.At), cmp.Compare(s.Order, t.Order), cmp.Compare(s.Seq, t.Seq))
}

// A Reach is how far the rows of one database were read, in each of its tables.
type Reach struct{ Orders, Entries [slot.Tables]Stamp }

// Until returns the time before which everything was read.
func (r *Reach) Until() schema.Millis {
	until := r.Orders[0].At
	for i := range slot.Tables {
		until = min(until, r.Orders[i].At, r.Entries[i].At)
	}
	return until
}

// News are the rows of one database that were stamped since, as far as somebody asks who
// looks for what two orders share.
type News struct {
	SameNumber []SameNumber
	Payments   []Payment
	Rows       int   // examined
	More       bool  // there may be more already
	Reach      Reach // behind all that was examined
}

// A SameNumber is two orders of one merchant with one number. They are of two buyers: of
// one buyer a number has one order.
type SameNumber struct {
	BID        int64
	OutTradeNo string
	Order, UID int64 // that which is new
	Other      int64 // the oldest besides
	OtherUID   int64
}

// A Payment is a payment that an order has, be it applied or not.
type Payment struct {
	Ref             string // channel:number
	Order, Seq, UID int64  // of the entry that recorded it
	BID             int64
}

// Follower reads what was stamped since. SQL and Memory are; errors are a Reader's.
type Follower interface {
	// News returns what comes behind reach in database n, 1 … N, the oldest of each table
	// first and at most most of it. It MUST NOT go past the time up to which the mirror is
	// complete: behind that a row may be in flight that was stamped before others which are
	// there. So whoever goes on at the Reach that is returned meets every row at least once
	// after its last change, and, of two rows that concern each other, meets the one that
	// was stamped later when both are there.
	News(ctx context.Context, n int, reach Reach, most int) (News, error)
}

// ahead moves the places of r, none of which is in a table that has more, to the time up to
// which everything was read.
func (r *Reach) ahead(until schema.Millis) {
	for i := range slot.Tables {
		for _, s := range []*Stamp{&r.Orders[i], &r.Entries[i]} {
			// Of a row of that very time the order isn't 0: it comes behind.
			if s.At < until {
				*s = Stamp{At: until}
			}
		}
	}
}

// isPayment reports whether an entry records that money came.
func isPayment(k schema.Kind) bool {
	return k == schema.KindPaid || k == schema.KindUnappliedPayment
}
