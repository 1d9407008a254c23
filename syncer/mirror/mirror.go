// Package mirror reads the mirror: the copy of every order by merchant.
//
// It decides what a list holds and up to when it is complete; and, for whoever looks for
// what orders share, what is new, which entries are payments and which orders have one
// number. How the copy comes about is left to package apply, and what else an entry of a
// journal means to whoever asks for it. There are two mirrors: SQL, in the bid cluster, and
// Memory, in this process; both pass mirrortest.Run.
package mirror

import (
	"cmp"
	"context"
	"math"
	"slices"

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

// A Position is the place of an entry in a list of entries: newer orders come first, and
// of one order newer entries. The zero Position is behind all.
type Position struct{ Order, Seq int64 }

// Newest is the position before all entries.
var Newest = Position{math.MaxInt64, math.MaxInt64}

// Compare is below 0 when p is behind q in a list, and above it when it is before q.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Order, q.Order), cmp.Compare(p.Seq, q.Seq))
}

// An EntryQuery selects entries of journals: what happened to orders of one merchant, or
// of all.
type EntryQuery struct {
	BID   int64         // 0: of all merchants
	Kinds []schema.Kind // of these kinds, at least one
	// Beside names the entries that say what became of one; nil: there are none.
	Beside func(e *schema.Entry) Beside
	// Match reports whether an entry is wanted, by itself and those beside it as the mirror
	// has them, oldest first; nil: every one is.
	Match  func(e *schema.Entry, journal []schema.Entry) bool
	Before Position // behind here; at first Newest
	Limit  int      // entries, at least 1
}

// A Beside names entries of one order: those of some operations, and those of some kinds
// with one reference. A journal has no end, so a caller MUST name a few of it, however long
// it is.
type Beside struct {
	Ops   []string
	Ref   string        // "": none
	Kinds []schema.Kind // with Ref
}

// Has reports whether an entry of the order is among them.
func (b *Beside) Has(e *schema.Entry) bool {
	return slices.Contains(b.Ops, e.Op) || b.Ref != "" && e.Ref == b.Ref && slices.Contains(b.Kinds, e.Kind)
}

// beside returns what is beside e.
func (q *EntryQuery) beside(e *schema.Entry) Beside {
	if q.Beside == nil {
		return Beside{}
	}
	return q.Beside(e)
}

// Around returns what of a journal a list brings along with e: itself, and what is beside
// it.
func (q *EntryQuery) Around(e *schema.Entry, journal []schema.Entry) (out []schema.Entry) {
	b := q.beside(e)
	for i := range journal {
		if journal[i].Seq == e.Seq || b.Has(&journal[i]) {
			out = append(out, journal[i])
		}
	}
	return out
}

// A Found is an entry of a list.
type Found struct {
	Entry   schema.Entry
	Journal []schema.Entry // itself and those beside it as the mirror has them, oldest first
}

// An EntryPage is part of a list of entries, in the order of Position.
type EntryPage struct {
	Found []Found
	Next  Position // the Before of the next page, zero at the end
	// CompleteUntil is as in a Page; of all merchants' entries it is the least of all
	// databases.
	CompleteUntil schema.Millis
}

// Reader reads the mirror. Errors: cluster.ErrBusy, cluster.ErrUnavailable
// (wrapped), or a fault.
type Reader interface {
	List(ctx context.Context, q Query) (Page, error)
	// Entries returns entries, each with those beside it. What it examines, at most
	// ExaminedMax and a few, are rows of the list and these entries; how long an order's
	// journal is makes no difference.
	Entries(ctx context.Context, q EntryQuery) (EntryPage, error)
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
