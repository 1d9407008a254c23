// Package lease says who owns a name until when, and builds on that the right to
// make order ids.
//
// A Table keeps the leases: in the meta database (SQL), or in memory for programs
// that are a whole system in one process. A Keeper holds a name while a function
// runs. A Worker holds a worker number for an idgen.Generator. What a name stands for
// is left to the callers.
//
// # Time
//
// A lease ends by the table's clock, which every answer tells. A holder never compares
// it with a clock of its own. It counts by its monotonic clock from the moment at
// which it sent the request, which is before the table read its clock: so it sees
// every lease end no later than the table does, however slow the answer was. A request
// whose answer doesn't come counts as one that did nothing, whether or not it did.
//
// A lease can't stop a process that stands still from going on when it wakes. What is
// done under a name must be harmless when two do it for a moment, or be fenced by what
// it writes to. Ids need neither:
//
// # Why no id repeats
//
// The lease of a worker number bounds the times that are written into ids, and not
// only the moment at which they are made. Let T be a token of one number: one
// acquisition.
//
//  1. Ids made under T lie in [now, until): now is what the table's clock said when T
//     was acquired, and until the newest end of the lease that the holder was told.
//     Package idgen sees to it, whatever renewals say about the clock later.
//  2. The table stores an end before it tells it, and never lowers it while it is a
//     worker number's: not when its clock steps back, and not when the number is
//     given back.
//  3. The next token is given only when the stored end is not above what the clock
//     says; comparing and writing are one statement under the row's lock. So all its
//     ids are of times from that end on, above all ids made under T.
//  4. One token is held by one process, in one generator, whose ids rise. The answer to
//     an acquisition goes to the one who sent it; one that is lost leaves the number
//     with nobody until its end.
//
// Nothing here asks whether a clock is right, how long a process paused, or when a
// request arrived. It asks one thing: that the table forgets nothing that it told.
// A table that is new to programs which had another one has forgotten everything. It
// gives out no number before Term has passed: by then every lease of the other one has
// ended. Its own clock counts that time, so it must not be behind the clock of the server
// before. octopay migrate closes the meta databases that it makes for databases which
// are there, and those that were moved. Whoever restores one from a backup, or goes over
// to a replica of it that may lag, must let Term pass before programs use it.
package lease

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

var (
	// ErrTaken reports a name that somebody holds. Nothing was changed.
	ErrTaken = errors.New("lease: the name is taken")
	// ErrClosed reports a worker number that was asked of a table that gives none out
	// yet, taken or not. Nothing was changed.
	ErrClosed = errors.New("lease: the table gives out no worker numbers yet")
	// ErrLost reports a lease that was held and is no longer: it ended, or somebody
	// else has the name.
	ErrLost = errors.New("lease: lost")
)

// A Lease is the right to a name until a time, as one answer of a Table told it.
type Lease struct {
	Name   string
	Holder string
	Token  int64     // counts the holders of the name, from 1
	Until  time.Time // when it ends, by the table's clock; whole ms, UTC
	Now    time.Time // what that clock said …
	SentAt time.Time // … to a request sent at this moment; monotonic
}

// End returns when the lease ends by this process's monotonic clock, which is no later
// than it ends by the table's, unless that clock is made to jump. The table cuts its
// time to ms, so its lease may be shorter by almost one.
func (l Lease) End() time.Time { return l.SentAt.Add(l.Until.Sub(l.Now) - time.Millisecond) }

// A Table keeps who owns a name until when. Implementations pass leasetest.Run and are
// safe for concurrent use. They obey ctx: a call returns soon after its end.
//
// Names and holders are ASCII, at most 64 and 128 characters. A name is never removed,
// so names come from the code and the map, not from clients. Terms are whole ms.
//
// An error that is none of ErrTaken, ErrClosed and ErrLost means that the outcome isn't known: the
// call may have done what it was asked, or may do it yet.
type Table interface {
	// Acquire gives name to holder for term, if its last lease has ended. ErrTaken if
	// it hasn't, whoever holds it, and though it be the same holder. ErrClosed if it is
	// a worker number and the table is closed to those who want one.
	Acquire(ctx context.Context, name, holder string, term time.Duration) (Lease, error)

	// Renew moves the end of l to term from now, never back, and returns l anew. It
	// works as long as l wasn't released, and nobody has acquired the name since l was;
	// after that, ErrLost.
	Renew(ctx context.Context, l Lease, term time.Duration) (Lease, error)

	// Release ends l now, if it hasn't ended, and if nobody has acquired the name
	// since. A renewal of l that is still on its way does nothing any more.
	Release(ctx context.Context, l Lease) error

	// Taken returns which names that begin with prefix are leased, and what the
	// table's clock says. prefix has no characters that SQL or LIKE knows.
	Taken(ctx context.Context, prefix string) (names map[string]bool, now time.Time, err error)
}

// NewHolder returns a name for this process as a holder, another one with every call:
// the machine, the process and a random part.
func NewHolder() string {
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	host, _ := os.Hostname()
	host = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '?'
		}
		return r
	}, host)
	return fmt.Sprintf("%.64s/%d/%s", host, os.Getpid(), hex.EncodeToString(random[:]))
}
