// Package apply brings what the stream holds into one merchant database, exactly as
// far as that database itself says.
//
// It decides where reading begins, which rows belong here, which can't be applied
// (dead letters), and what goes into one transaction: rows, dead letters, marks, and
// the progress, all or nothing. So an applier has no state to lose, and two of them
// on one database do no harm: the second finds the progress moved and gives up.
//
// It leaves to package stream how messages come, to a Target how a database keeps
// them, and to package syncer when an applier runs.
package apply

import (
	"context"
	"errors"

	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/stream"
)

var (
	// ErrMoved reports that another applier applied something meanwhile. Nothing was
	// changed.
	ErrMoved = errors.New("apply: another applier moved the progress")
	// ErrNoStream reports that there is no stream yet: a collector makes it.
	ErrNoStream = errors.New("apply: there is no stream yet")
	// ErrLost reports that NATS lost messages that this database has applied, so that
	// their sequences may be given to others. The stream has to be made anew.
	ErrLost = errors.New("apply: the stream lost messages")
	// ErrRefill reports that the stream no longer holds what this database lacks. It
	// has to be refilled from the truth.
	ErrRefill = errors.New("apply: the stream no longer holds what this database lacks; it must be refilled from the truth")
	// ErrStalled reports that the stream had a message for this database which its reader
	// didn't get. A new reader gets it.
	ErrStalled = errors.New("apply: nothing comes though the stream has more")
	// ErrTooManyLetters reports that so many dead letters are open that something else
	// than a few rows must be wrong. Nothing more is applied until they are settled.
	ErrTooManyLetters = errors.New("apply: too many dead letters are open")
	// ErrNoLetter reports that there is no such open dead letter.
	ErrNoLetter = errors.New("apply: no such open dead letter")
)

// LettersMax bounds the open dead letters of one database.
const LettersMax = 10_000

// A Progress says how far the stream is applied in a database.
type Progress struct {
	Incarnation string // of the stream; "" is none yet
	Seq         uint64 // the last message applied
	StoredAt    int64  // when NATS stored that message, ns since 1970; 0: not known
}

// A State is what a database says about itself.
type State struct {
	Progress Progress
	Marks    map[string]stream.Mark // by server
	Letters  int                    // open dead letters
}

// An Origin is the place of a row in the stream.
type Origin struct {
	Seq     uint64
	Item    int // index in the message; -1: the whole message
	Subject string
	Payload []byte // the wire form of the row, or the whole message
}

// An Order is an order to be applied.
type Order struct {
	schema.Order
	Origin Origin
}

// An Entry is a journal entry to be applied.
type Entry struct {
	schema.Entry
	Origin Origin
}

// A LetterKey names a dead letter.
type LetterKey struct {
	Incarnation string
	Seq         uint64
	Item        int
}

// A Letter is a dead letter: what could not be applied.
type Letter struct {
	LetterKey
	Subject string
	Reason  string // without values of the row
	Payload []byte
	FoundAt schema.Millis
}

// reasonTaken is the reason of a row whose key another order has.
const reasonTaken = "another order has this id"

// Taken returns the dead letter for a row, from its place in a stream, whose key another
// order has: an order of another buyer or merchant.
func Taken(incarnation string, o Origin) Letter { return letter(incarnation, o, reasonTaken) }

// LetterState is what became of a dead letter; the names are those of the column's
// ENUM.
type LetterState string

// The states.
const (
	LetterOpen    LetterState = "open"
	LetterRetried LetterState = "retried"
	LetterDropped LetterState = "dropped"
)

// A Change is one transaction of an applier. It is applied whole or not at all.
type Change struct {
	From, To Progress
	Orders   []Order // at most one state of each order, sorted by id
	Entries  []Entry // each once, sorted by order and seq
	Letters  []Letter
	Marks    []stream.Mark // at most one of each server
}

// Rows returns the number of rows.
func (c *Change) Rows() int { return len(c.Orders) + len(c.Entries) }

// A Target is a merchant database. Implementations pass mirrortest.Run and are safe
// for concurrent use.
type Target interface {
	// Place says which database this is.
	Place() shardmap.Database

	// State returns what the database says now.
	State(ctx context.Context) (State, error)

	// Apply makes a change. It MUST lock the progress first and return ErrMoved,
	// changing nothing, when it is not c.From. An order replaces what is stored only
	// if its ver is higher; an entry that is stored already changes nothing. A row
	// that the database refuses for what is in it becomes a dead letter, and doesn't
	// fail its neighbours; so does one of another order (uid or bid differ) than the
	// stored row with its key (Taken). While a dead letter is open, c's own included, c.Marks
	// change nothing. A mark's time never falls. It returns the number of open dead
	// letters.
	//
	// After any error whether the change was made may be unknown; State tells.
	Apply(ctx context.Context, c *Change) (letters int, err error)

	// Letters returns open dead letters, oldest first, at most limit.
	Letters(ctx context.Context, limit int) ([]Letter, error)

	// Settle gives an open dead letter its end, together with the rows that were made
	// of it, as Apply would apply them; a row that would become a dead letter is an
	// error, and the letter stays open. ErrNoLetter: it isn't open.
	Settle(ctx context.Context, key LetterKey, as LetterState, orders []Order, entries []Entry) error
}
