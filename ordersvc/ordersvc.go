// Package ordersvc is the payment order: its rules, its life, and the service that
// keeps both.
//
// It decides what a create means, a new order, a replay of one, or a number used twice
// (Service.Create); and what every later operation does to an order, a state machine
// that is a table and a pure function (Life.Apply). It leaves to the Store how rows are
// kept and locked, to package lane how writes are
// gathered, to package idgen how ids are made, and to its caller the shape and
// range of every field: what reaches Service is valid.
package ordersvc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/lane"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"golang.org/x/sync/errgroup"
)

// A New is an order to create. Its fields are valid as the HTTP contract says.
type New struct {
	Key
	Amount    int64 // minor units
	Currency  string
	Subject   string
	Metadata  string // canonical, see schema.Order
	ExpiresIn time.Duration
	Actor     string // app, merchant
	RequestID string
}

// A Created is the answer to a create.
type Created struct {
	Order    schema.Order // as it is now
	Replayed bool         // it was there before
}

// IDs makes order ids as one worker number at a time.
type IDs interface {
	// Next returns a new id for uid, or why none can be made now.
	Next(uid int64) (idgen.ID, error)
	// GiveBack stops using a worker number, if it is the one in use: another process
	// uses it too. Until another one is acquired Next returns an error.
	GiveBack(worker int)
}

// Service is the order service. It is safe for concurrent use.
type Service struct {
	shards    func() *shardmap.Map
	store     Store
	ids       IDs
	alarm     func(idgen.ID)
	available func(database int) error
	policy    func(bid int64, currency string) error
	creates   []*lane.Lane[schema.Order, Result] // by database - 1
	changes   []*lane.Lane[Change, Changed]      // the same
}

// A Config says how the service writes. Zero values are the defaults.
type Config struct {
	Creates, Changes lane.Config // of the lanes; their Gates are set here
	// AtOnce is how many transactions of creates, and how many of changes, are in flight
	// on one server; below 1 it is the Gate's default.
	AtOnce int
	// DuplicateID is called for every id that two orders were given. It must not
	// block.
	DuplicateID func(idgen.ID)
	// Available returns why a database (1 … N) takes no writes now, as far as is known
	// without asking it; nil if it does. Then orders don't queue for it. No function:
	// they all do.
	Available func(database int) error
	// Policy returns why a merchant gets no new order in this currency; nil: it does. It
	// doesn't stop a repeat of a create that happened. No function: all do.
	Policy func(bid int64, currency string) error
}

// mintMax is how many ids one create may use up on duplicates.
const mintMax = 3

// beginMax is how long after its arrival the last transaction of a create may begin.
// With what a transaction and its settling may take the answer stays below 10 s.
const beginMax = 2500 * time.Millisecond

// NewService returns a service of the orders in store. It creates nothing until Run
// runs. shards returns the map in use, which may become another one of the same size: a
// database keeps its lane, and its gate, wherever it moves.
func NewService(shards func() *shardmap.Map, store Store, ids IDs, c Config) *Service {
	s := &Service{shards: shards, store: store, ids: ids, alarm: c.DuplicateID, available: c.Available, policy: c.Policy}
	if s.alarm == nil {
		s.alarm = func(idgen.ID) {}
	}
	if s.available == nil {
		s.available = func(int) error { return nil }
	}
	if s.policy == nil {
		s.policy = func(int64, string) error { return nil }
	}
	// Changes have gates of their own: they wait for locks, and new orders not for them.
	creates, changes := map[string]*lane.Gate{}, map[string]*lane.Gate{}
	gated := func(config lane.Config, gates map[string]*lane.Gate, server string) lane.Config {
		if gates[server] == nil {
			gates[server] = lane.NewGate(c.AtOnce)
		}
		config.Gate = gates[server]
		return config
	}
	for _, db := range shards().Databases(shardmap.UID) {
		s.creates = append(s.creates, lane.New(gated(c.Creates, creates, db.Server.Name), func(ctx context.Context, orders []schema.Order) []Result {
			return store.Insert(ctx, db.Number, orders)
		}))
		s.changes = append(s.changes, lane.New(gated(c.Changes, changes, db.Server.Name), func(ctx context.Context, changes []Change) []Changed {
			return store.Change(ctx, db.Number, changes)
		}))
	}
	return s
}

// Run runs the lanes until ctx ends; then it refuses new creates and changes, finishes
// those that were accepted, and returns.
func (s *Service) Run(ctx context.Context) error {
	var g errgroup.Group
	for i := range s.creates {
		g.Go(func() error { return s.creates[i].Run(ctx) })
		g.Go(func() error { return s.changes[i].Run(ctx) })
	}
	return g.Wait()
}

// Create makes an order, or returns the one that the same request made before. What isn't
// known when ctx ends is ErrUnknown. Errors: that, *ReusedError, what Config.Policy
// returned, ErrNoWorker, lane.ErrFull, lane.ErrWait, lane.ErrClosed, cluster.ErrUnavailable, or a fault.
func (s *Service) Create(ctx context.Context, n New) (Created, error) {
	e := s.enter(n, s.ids.Next)
	begin, cancel := context.WithTimeout(ctx, beginMax)
	defer cancel()
	return s.await(begin, ctx, n, e)
}

// An Outcome is the fate of one create of many.
type Outcome struct {
	Created
	Err error // as Create's
}

// CreateAll is Create for each of all, at once. Of equal keys the first decides.
func (s *Service) CreateAll(ctx context.Context, all []New) []Outcome {
	begin, cancel := context.WithTimeout(ctx, beginMax)
	defer cancel()
	entered := make([]entered, len(all))
	for i, n := range all {
		entered[i] = s.enter(n, s.ids.Next)
	}
	out := make([]Outcome, len(all))
	for i, n := range all {
		out[i].Created, out[i].Err = s.await(begin, ctx, n, entered[i])
	}
	return out
}

// entered is a create that is in its lane.
type entered struct {
	id       idgen.ID
	database int
	ticket   lane.Ticket[schema.Order, Result]
	err      error // why it isn't
	refused  error // the policy's: it may have happened before
}

// enter gives n an id and puts it into its lane.
func (s *Service) enter(n New, mint func(uid int64) (idgen.ID, error)) (e entered) {
	e.database = s.shards().Locate(n.UID).Database
	if e.refused = s.policy(n.BID, n.Currency); e.refused != nil {
		return e
	}
	if e.id, e.err = mint(n.UID); e.err != nil {
		e.err = fmt.Errorf("%w: %w", ErrNoWorker, e.err)
		return e
	}
	if e.err = s.available(e.database); e.err != nil {
		return e
	}
	o := n.Order(e.id)
	e.ticket, e.err = s.creates[e.database-1].Enter(o, packetBytes(o))
	e.err = s.why(e.database, e.err)
	return e
}

// await waits for what becomes of a create. If another order has its id it is given
// another one.
func (s *Service) await(begin, end context.Context, n New, e entered) (Created, error) {
	if e.refused != nil {
		return s.repeat(end, n, e.refused)
	}
	for tries := 1; ; tries++ {
		if e.err != nil {
			return Created{}, e.err
		}
		r, err := e.ticket.Wait(begin, end)
		if err == nil {
			err = r.Err
		}
		switch {
		case errors.Is(err, ErrDuplicateID):
			s.alarm(e.id)
			s.ids.GiveBack(e.id.Worker())
			if tries == mintMax {
				return Created{}, fmt.Errorf("%w: %d ids in a row", ErrDuplicateID, mintMax)
			}
			e = s.enter(n, func(uid int64) (idgen.ID, error) { return s.mintSoon(begin, uid) })
		case err != nil:
			return Created{}, s.why(e.database, err)
		case r.Taken && !n.made(r.Order):
			return Created{}, &ReusedError{OrderID: r.Order.OrderID(), Status: r.Order.Status}
		default:
			return Created{Order: r.Order, Replayed: r.Taken}, nil
		}
	}
}

// repeat answers a create that may not be made any more, if it was made before.
func (s *Service) repeat(ctx context.Context, n New, refused error) (Created, error) {
	o, err := s.Find(ctx, n.Key)
	switch {
	case errors.Is(err, ErrNotFound):
		return Created{}, refused
	case err != nil:
		return Created{}, err
	case !n.made(o):
		return Created{}, &ReusedError{OrderID: o.OrderID(), Status: o.Status}
	}
	return Created{Order: o, Replayed: true}, nil
}

// Change does an operation on an order. What isn't known when ctx ends is ErrUnknown.
// Errors: those of this package that refuse a change, with what is known of the order;
// ErrNotFound, ErrUnknown, lane.ErrFull, lane.ErrWait, lane.ErrClosed,
// cluster.ErrUnavailable, or a fault, with nothing.
func (s *Service) Change(ctx context.Context, c Change) (Changed, error) {
	database := s.shards().LocateInfo(c.Order.Info(), c.Order.Table()).Database
	if err := s.available(database); err != nil {
		return Changed{}, err
	}
	ticket, err := s.changes[database-1].Enter(c, changeBytes)
	if err != nil {
		return Changed{}, s.why(database, err)
	}
	begin, cancel := context.WithTimeout(ctx, beginMax)
	defer cancel()
	r, err := ticket.Wait(begin, ctx)
	if err != nil {
		return Changed{}, s.why(database, err)
	}
	return r, r.Err
}

// changeBytes bounds what one change adds to a packet: an UPDATE, and an entry whose
// reason is 256 characters of 4 bytes, doubled by escaping.
const changeBytes = 4096

// why returns why an operation found no way through its lane: if the database went away
// meanwhile, that.
func (s *Service) why(database int, err error) error {
	if errors.Is(err, lane.ErrWait) || errors.Is(err, lane.ErrFull) {
		if away := s.available(database); away != nil {
			return away
		}
	}
	return err
}

// mintSoon makes an id as soon as there is a worker number, or returns at the end of
// ctx why there is none.
func (s *Service) mintSoon(ctx context.Context, uid int64) (idgen.ID, error) {
	for {
		id, err := s.ids.Next(uid)
		if err == nil {
			return id, nil
		}
		select {
		case <-ctx.Done():
			return idgen.ID{}, err
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Order returns the row that n becomes under id. Its UpdatedAt is the store's to set.
func (n New) Order(id idgen.ID) schema.Order {
	o := schema.Order{
		ID: id.Snowflake(), UID: n.UID, BID: n.BID, OutTradeNo: n.OutTradeNo,
		Amount: n.Amount, Currency: n.Currency, Subject: n.Subject, Metadata: n.Metadata,
		Status: schema.Created, Ver: 1, CreatedBy: n.Actor, RequestID: n.RequestID,
	}
	o.ExpiresAt = o.CreatedAt() + schema.Millis(n.ExpiresIn.Milliseconds())
	return o
}

// made reports whether o is what a request like n makes: what the caller may vary
// between repeats isn't compared.
func (n New) made(o schema.Order) bool {
	return n.Amount == o.Amount && n.Currency == o.Currency && n.Subject == o.Subject
}

// packetBytes bounds how long o's row is in a statement: its texts may double by
// escaping, the rest is below 512.
func packetBytes(o schema.Order) int { return 512 + 2*(len(o.Subject)+len(o.Metadata)) }

// Get returns the order with this id. ErrNotFound also when the parts of the id
// disagree with the order stored under its snowflake.
func (s *Service) Get(ctx context.Context, id idgen.ID) (schema.Order, error) {
	o, err := s.store.Order(ctx, s.shards().LocateInfo(id.Info(), id.Table()), id.Snowflake())
	if err != nil {
		return schema.Order{}, err
	}
	if o.OrderID() != id {
		return schema.Order{}, ErrNotFound
	}
	return o, nil
}

// Journal returns the stored journal of o up to o.Ver, oldest first. The creation
// is not among it: the order's own columns are that entry.
func (s *Service) Journal(ctx context.Context, o schema.Order) ([]schema.Entry, error) {
	if o.Ver == 1 {
		return nil, nil
	}
	entries, err := s.store.Journal(ctx, s.shards().Locate(o.UID), o.ID)
	if err != nil {
		return nil, err
	}
	// What happened since o was read is left out: the answer is one version.
	for i, e := range entries {
		if e.Seq > o.Ver {
			return entries[:i], nil
		}
	}
	return entries, nil
}

// Life returns the order with this id and its whole journal, as of one version.
func (s *Service) Life(ctx context.Context, id idgen.ID) (Life, error) {
	o, err := s.Get(ctx, id)
	if err != nil {
		return Life{}, err
	}
	entries, err := s.Journal(ctx, o)
	return Life{o, entries}, err
}

// Find returns the order with this idempotency key, or ErrNotFound.
func (s *Service) Find(ctx context.Context, k Key) (schema.Order, error) {
	return s.store.Find(ctx, s.shards().Locate(k.UID), k)
}

// List returns orders of one buyer, newest first.
func (s *Service) List(ctx context.Context, q Query) (Page, error) {
	return s.store.List(ctx, s.shards().Locate(q.UID), q)
}
