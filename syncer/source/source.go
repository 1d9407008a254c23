// Package source is the contract between the collector and what it collects from:
// the truth of one server as a sequence of committed transactions, and a clock that
// says up to when that sequence is complete.
//
// Two things implement it: binlog, over a MariaDB server, and tap, over a store in
// this process. Where a collector begins, and what it does with what it reads, is
// decided in package syncer.
package source

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/octopay/octopay/schema"
)

var (
	// ErrPurged reports that the source no longer has what follows the position asked
	// for. Reading on from anywhere else would lose rows: whoever lacks them has to
	// be refilled.
	ErrPurged = errors.New("source: what follows the position is no longer kept")
	// ErrNotFresh reports that the clock could not learn a new stamp now, because
	// somebody else keeps an old answer alive. Nothing is wrong with the source; the
	// next try may succeed.
	ErrNotFresh = errors.New("source: no fresh answer")
	// ErrStalled reports that a Reader got nothing for so long, not even a sign of life,
	// that something must be in the way.
	ErrStalled = errors.New("source: silent")
)

// A PurgedError is an ErrPurged that says what is still kept.
type PurgedError struct {
	Oldest Position // what follows this is kept
}

func (e *PurgedError) Error() string {
	return fmt.Sprintf("%v; kept is what follows %q", ErrPurged, e.Oldest)
}

// Unwrap returns ErrPurged.
func (e *PurgedError) Unwrap() error { return ErrPurged }

// A Source is the truth of one server.
type Source interface {
	// Open returns a Reader of all that was committed after the position. PurgedError
	// (wrapped): that is no longer kept. Any other error, such as a server that is
	// away or has refused settings, may be over at the next try.
	Open(ctx context.Context, after Position) (Reader, error)

	// Clock returns a clock of this server.
	Clock(ctx context.Context) (Clock, error)

	// Now returns the server's clock.
	Now(ctx context.Context) (schema.Millis, error)
}

// A Reader yields transactions in the order of their commits. It is used by one
// goroutine, and is over after its first error.
type Reader interface {
	// Next waits for the next part of a committed transaction. The rows are as that
	// transaction left them; they are never read again from a table.
	Next(ctx context.Context) (Batch, error)
	// Saved says that everything up to a position has been published and that nobody
	// will ask for it again, unless the stream is lost.
	Saved(Position)
	Close() error
}

// A Batch is a committed transaction, or a part of a large one. Rows of one
// transaction come in no particular order.
type Batch struct {
	Orders  []schema.Order
	Entries []schema.Entry
	Broken  []Broken
	// End is the position behind the transaction. It is zero when more parts of it
	// follow: nothing may be saved between the parts. Every transaction of the server
	// has an End, also one without rows of ours.
	End Position
}

// Rows returns the number of rows.
func (b Batch) Rows() int { return len(b.Orders) + len(b.Entries) + len(b.Broken) }

// Broken is a row of the truth that can't be understood. It must not stop the rows
// behind it, nor get lost.
type Broken struct {
	Table  string // with its schema
	BID    int64  // 0 when even that is unreadable
	Reason string // without values
	Text   string // what is readable, for an operator
}

// StampInterval is the least time between two stamps of one clock.
const StampInterval = 150 * time.Millisecond

// A Stamp is a promise about a server's history: every transaction whose rows are
// stamped (updated_at, recorded_at) before At lies before Position.
type Stamp struct {
	At       schema.Millis
	Position Position
	Now      schema.Millis // the server's clock at this stamp
}

// A Clock makes stamps. It is used by one goroutine.
type Clock interface {
	// Stamp returns a new stamp, or ErrNotFresh (wrapped). It may be called no more
	// often than every StampInterval.
	Stamp(ctx context.Context) (Stamp, error)
	Close() error
}
