// Package conflict finds what two orders share and must not: one out_trade_no of a
// merchant that two buyers' orders have, and one payment of a channel that two orders
// have, applied or not.
//
//	mirror: news -> Scan -> references (who had this payment first?)
//	                     -> conflicts
//	                     -> reach: how far this database was read
//
// It finds each conflict once, whatever order rows come in and however often a scan is
// killed, and decides how many are kept. Both orders live: a conflict is listed, nothing is
// repaired. It leaves to package mirror what is new, up to when that is known, which
// entries are payments and which orders of a merchant have one number; and to its caller
// that a database is scanned by one at a time, which only saves work.
package conflict

import (
	"context"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/syncer/mirror"
)

// A Kind is what is shared. The number is its place in the column's ENUM.
type Kind uint8

// The kinds; 0 is any.
const (
	OutTradeNo     Kind = iota + 1 // one merchant's number, two buyers' orders
	ChannelTradeNo                 // one payment of a channel, two orders
)

// Kinds are all kinds.
var Kinds = []Kind{OutTradeNo, ChannelTradeNo}

var kindNames = [...]string{"", "out_trade_no", "channel_trade_no"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("unknown(%d)", uint8(k))
}

// ParseKind reads the name of a kind.
func ParseKind(s string) (Kind, error) {
	for _, k := range Kinds {
		if k.String() == s {
			return k, nil
		}
	}
	return 0, fmt.Errorf("conflict: unknown kind")
}

const (
	// OrdersMax is how many orders of one conflict are kept: more say nothing new.
	OrdersMax = 100
	// ConflictsMax is how many conflicts of one kind are kept, and some more where several
	// are found at once. Whoever makes more uses numbers that mean nothing; that they are not
	// kept is counted.
	ConflictsMax = 100_000
)

// A Conflict is what some orders share.
type Conflict struct {
	ID      int64 // rises in the order in which they were found, more or less
	Kind    Kind
	BID     int64  // of an OutTradeNo; else 0
	Number  string // out_trade_no, or channel:number
	FoundAt schema.Millis
	Orders  []Order // the oldest first; two at least, OrdersMax at most
}

// An Order is one of a Conflict's.
type Order struct {
	ID, UID, BID int64
	Seq          int64         // of the entry that recorded the payment; 0 of an OutTradeNo
	FoundAt      schema.Millis // when it joined
}

// A Pair is two orders that share something.
type Pair struct {
	Kind   Kind
	BID    int64  // as in a Conflict
	Number string // as in a Conflict
	Orders [2]Order
}

// An Added says what became of some pairs, by kind.
type Added struct {
	New      [len(kindNames)]int // conflicts that weren't known
	Unlisted [len(kindNames)]int // pairs that are not kept since ConflictsMax are
}

// A Query selects conflicts.
type Query struct {
	Kind   Kind  // 0: any
	Before int64 // ids below this
	Limit  int   // conflicts, at least 1
}

// A Page is part of a list, what was found last first.
type Page struct {
	Conflicts []Conflict
	Next      int64 // the Before of the next page, 0 at the end
	// CompleteUntil: of orders that share something and were stamped earlier, all are
	// included, but for those beyond OrdersMax and ConflictsMax. It is the least of all
	// databases.
	CompleteUntil schema.Millis
}

// A Lister lists conflicts. Errors: cluster.ErrBusy, cluster.ErrUnavailable (wrapped), or a
// fault.
type Lister interface {
	List(ctx context.Context, q Query) (Page, error)
}

// A Table keeps what scans have found and how far they have come. Implementations pass
// conflicttest.Run, and are safe for concurrent use; whatever is done twice, or by two at
// once, is done once. Errors are as a Lister's; of a call that failed, any part may have
// been done.
type Table interface {
	Lister

	// Reach returns how far database n, 1 … N, was scanned.
	Reach(ctx context.Context, n int) (mirror.Reach, error)

	// Save says that database n was scanned up to reach. No place of it goes back.
	Save(ctx context.Context, n int, reach mirror.Reach) error

	// First returns for each payment the one that was given to First before all others of
	// its Ref: itself, if none was.
	First(ctx context.Context, payments []mirror.Payment) ([]mirror.Payment, error)

	// Add adds pairs to the conflicts: an order of a known one joins it. Once ctx ends it may
	// stop between pairs. What it returns with an error was done.
	Add(ctx context.Context, pairs []Pair) (Added, error)
}

// referenceDatabases is how many databases of the mirror keep references: the first ones.
// No cluster has fewer, so that no reference ever moves to another one. Part of the
// stored format, as is the sum.
const referenceDatabases = 8

// referenceDatabase returns which database keeps a reference.
func referenceDatabase(ref string) int {
	return int(crc32.ChecksumIEEE([]byte(ref))%referenceDatabases) + 1
}

// A Scan looks at one database, again and again.
type Scan struct {
	Database int // 1 … N
	News     mirror.Follower
	Table    Table
	// Observe is called after each look, also after one that failed; nil: it isn't.
	Observe func(Report)
}

// A Report is what one look found.
type Report struct {
	Rows  int           // examined; 0 of a look that failed
	Until schema.Millis // the time before which everything was examined
	Added Added
}

const (
	// lookEvery is the time between two looks when nothing is new.
	lookEvery = time.Second
	// rowsAtOnce is how many rows of each table are looked at at once, by their kind.
	rowsAtOnce = 100
	// saveMax is how long saving a reach may take once ctx has ended.
	saveMax = 15 * time.Second
	// saveEvery is how often the reach is saved while nothing is new.
	saveEvery = 10 * time.Second
)

// Run scans until ctx ends, whose error it returns, or something fails. It stops between
// what is done at once: the next scan does what isn't saved again, and what is done costs
// it a read.
func (s *Scan) Run(ctx context.Context) error {
	reach, err := s.Table.Reach(ctx, s.Database)
	if err != nil {
		return err
	}
	tick := time.NewTimer(0)
	defer tick.Stop()
	var saved time.Time
	for {
		if err := s.pass(ctx, &reach, &saved); err != nil {
			return err
		}
		tick.Reset(lookEvery)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// Pass goes on from where the database was left until nothing is new, and saves how far
// that is.
func (s *Scan) Pass(ctx context.Context) error {
	reach, err := s.Table.Reach(ctx, s.Database)
	if err != nil {
		return err
	}
	var saved time.Time
	return s.pass(ctx, &reach, &saved)
}

// pass makes looks until nothing is new or ctx ends. A look has no time of its own: how much
// it writes depends on what it finds, and each thing that it does has a bound.
func (s *Scan) pass(ctx context.Context, reach *mirror.Reach, saved *time.Time) error {
	for more := true; more; {
		if err := ctx.Err(); err != nil {
			return err
		}
		news, err := s.look(ctx, reach, saved)
		if err != nil {
			return err
		}
		more = news.More
	}
	return nil
}

// look examines what is new, adds the conflicts that it finds, and then saves how far it
// has come: whoever is killed in between leaves what the next one does again.
func (s *Scan) look(ctx context.Context, reach *mirror.Reach, saved *time.Time) (mirror.News, error) {
	news, err := s.News.News(ctx, s.Database, *reach, rowsAtOnce)
	if err != nil {
		return news, err
	}
	pairs := numbered(news.SameNumber)
	firsts, err := s.Table.First(ctx, news.Payments)
	if err != nil {
		return news, err
	}
	pairs = append(pairs, shared(news.Payments, firsts)...)
	report := Report{Until: reach.Until()}
	// What was added counts even when the rest fails: it is known by then.
	if report.Added, err = s.Table.Add(ctx, pairs); err == nil {
		err = s.save(ctx, &news, saved)
	}
	if err == nil {
		*reach = news.Reach
		report.Rows, report.Until = news.Rows, reach.Until()
	}
	if s.Observe != nil {
		s.Observe(report)
	}
	return news, err
}

// save saves how far news go, at once where rows were examined and now and then where none
// were. It outlives ctx for a while: what was examined needn't be again.
func (s *Scan) save(ctx context.Context, news *mirror.News, saved *time.Time) error {
	if news.Rows == 0 && time.Since(*saved) < saveEvery {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveMax)
	defer cancel()
	if err := s.Table.Save(ctx, s.Database, news.Reach); err != nil {
		return err
	}
	*saved = time.Now()
	return nil
}

// numbered returns the pairs that orders with one number are.
func numbered(all []mirror.SameNumber) (pairs []Pair) {
	for _, t := range all {
		pairs = append(pairs, Pair{OutTradeNo, t.BID, t.OutTradeNo, [2]Order{
			{ID: t.Other, UID: t.OtherUID, BID: t.BID}, {ID: t.Order, UID: t.UID, BID: t.BID},
		}})
	}
	return pairs
}

// shared returns the pairs that payments make with those which had their references first.
// Of one order a reference may be recorded more than once, with other amounts: that is no
// conflict.
func shared(payments, firsts []mirror.Payment) (pairs []Pair) {
	for i, p := range payments {
		f := firsts[i]
		if f.Order == p.Order && f.UID == p.UID {
			continue
		}
		pairs = append(pairs, Pair{ChannelTradeNo, 0, p.Ref, [2]Order{
			{ID: f.Order, UID: f.UID, BID: f.BID, Seq: f.Seq}, {ID: p.Order, UID: p.UID, BID: p.BID, Seq: p.Seq},
		}})
	}
	return pairs
}
