package mirror

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/apply"
	"github.com/octopay/octopay/syncer/stream"
)

// Memory is a mirror in this process: it is read as a Reader, and its databases are
// Targets of appliers. It grows with the orders that it holds. It is safe for
// concurrent use.
type Memory struct {
	m         *shardmap.Map
	databases []*memory
}

// NewMemory returns an empty mirror.
func NewMemory(m *shardmap.Map) *Memory {
	out := &Memory{m: m}
	for _, place := range m.Databases(shardmap.BID) {
		out.databases = append(out.databases, &memory{
			m:        m,
			place:    place,
			orders:   map[int64]schema.Order{},
			entries:  map[int64][]schema.Entry{},
			byBID:    map[int64][]int64{},
			entryRun: map[run][]Position{},
			byNumber: map[number][]int64{},
			marks:    map[string]stream.Mark{},
			letters:  map[apply.LetterKey]apply.Letter{},
		})
	}
	return out
}

// Target returns database n, 1 … N.
func (m *Memory) Target(n int) apply.Target { return m.databases[n-1] }

// List implements Reader.
func (m *Memory) List(_ context.Context, q Query) (Page, error) {
	d := m.databases[m.m.Locate(q.BID).Database-1]
	d.mu.Lock()
	defer d.mu.Unlock()
	page := Page{CompleteUntil: completeUntil(m.m, d.marks)}
	ids := d.byBID[q.BID]
	from, _ := slices.BinarySearch(ids, q.Before)
	for i, examined := from-1, 0; i >= 0 && ids[i] >= q.Min; i-- {
		if len(page.Orders) == q.Limit || examined == ExaminedMax {
			page.Next = ids[i+1]
			break
		}
		examined++
		o := d.orders[ids[i]]
		if (q.Status == 0 || o.Status == q.Status) && (q.OutTradeNo == "" || o.OutTradeNo == q.OutTradeNo) {
			page.Orders = append(page.Orders, o)
		}
	}
	return page, nil
}

// Entries implements Reader.
func (m *Memory) Entries(ctx context.Context, q EntryQuery) (EntryPage, error) {
	databases := m.databases
	if q.BID != 0 {
		databases = []*memory{m.databases[m.m.Locate(q.BID).Database-1]}
	}
	shelves := make([]shelf, len(databases))
	for i, d := range databases {
		shelves[i] = d
	}
	return walk(ctx, shelves, &q)
}

// Journal returns the journal of an order as the mirror of bid has it, in order.
func (m *Memory) Journal(bid, order int64) []schema.Entry {
	d := m.databases[m.m.Locate(bid).Database-1]
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.journal(bid, order)
}

// A memory is one database.
type memory struct {
	m     *shardmap.Map
	place shardmap.Database

	mu       sync.Mutex
	orders   map[int64]schema.Order
	entries  map[int64][]schema.Entry // by order, their seq rising
	byBID    map[int64][]int64        // ids, rising
	entryRun map[run][]Position       // rising
	byNumber map[number][]int64       // ids, rising
	stamps   [2][]Stamp               // of orders, of entries; rising
	marks    map[string]stream.Mark
	letters  map[apply.LetterKey]apply.Letter // open ones
	progress apply.Progress
}

// A run is the entries of one kind, of a merchant or, by 0, of all.
type run struct {
	bid  int64
	kind schema.Kind
}

func (d *memory) runs(q *EntryQuery) int { return len(q.Kinds) }

func (d *memory) completeUntil(context.Context) (schema.Millis, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return completeUntil(d.m, d.marks), nil
}

func (d *memory) keys(_ context.Context, q *EntryQuery, before Position, most int) (keys []key, floor Position, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, kind := range q.Kinds {
		of := d.entryRun[run{q.BID, kind}]
		to, _ := slices.BinarySearchFunc(of, before, Position.Compare)
		from := max(0, to-most)
		for _, p := range of[from:to] {
			keys = append(keys, key{Position: p})
		}
		if to-from == most && of[from].Compare(floor) > 0 {
			floor = of[from]
		}
	}
	return keys, floor, nil
}

func (d *memory) read(_ context.Context, q *EntryQuery, keys []key) (out []schema.Entry, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	type name struct {
		order int64
		kind  schema.Kind // of a reference; 0: it is an operation
		text  string
	}
	at, names, orders := map[Position]bool{}, map[name]bool{}, map[int64]bool{}
	for _, k := range keys {
		at[k.Position], orders[k.Order] = true, true
		of := d.entries[k.Order]
		i, _ := slices.BinarySearchFunc(of, k.Seq, func(e schema.Entry, seq int64) int { return cmp.Compare(e.Seq, seq) })
		b := q.beside(&of[i])
		for _, op := range b.Ops {
			names[name{k.Order, 0, op}] = true
		}
		for _, kind := range b.Kinds {
			names[name{k.Order, kind, b.Ref}] = b.Ref != ""
		}
	}
	for order := range orders {
		for _, e := range d.journal(q.BID, order) {
			if at[Position{order, e.Seq}] || names[name{order, 0, e.Op}] || names[name{order, e.Kind, e.Ref}] {
				out = append(out, e)
			}
		}
	}
	return out, nil
}

// A number is what a merchant calls an order.
type number struct {
	bid        int64
	outTradeNo string
}

// The stamps that a memory keeps in order.
const (
	ofOrders = iota
	ofEntries
)

// stamp keeps a stamp in its order.
func (d *memory) stamp(of int, s Stamp) {
	i, _ := slices.BinarySearchFunc(d.stamps[of], s, Stamp.Compare)
	d.stamps[of] = slices.Insert(d.stamps[of], i, s)
}

// keepOrder keeps an order, in the place of what it was before.
func (d *memory) keepOrder(o schema.Order) {
	old, was := d.orders[o.ID]
	d.orders[o.ID] = o
	if was {
		i, _ := slices.BinarySearchFunc(d.stamps[ofOrders], Stamp{At: old.UpdatedAt, Order: o.ID}, Stamp.Compare)
		d.stamps[ofOrders] = slices.Delete(d.stamps[ofOrders], i, i+1)
	} else {
		ids, same := d.byBID[o.BID], number{o.BID, o.OutTradeNo}
		i, _ := slices.BinarySearch(ids, o.ID)
		d.byBID[o.BID] = slices.Insert(ids, i, o.ID)
		i, _ = slices.BinarySearch(d.byNumber[same], o.ID)
		d.byNumber[same] = slices.Insert(d.byNumber[same], i, o.ID)
	}
	d.stamp(ofOrders, Stamp{At: o.UpdatedAt, Order: o.ID})
}

// News implements Follower. A database in memory is one table, the first.
func (m *Memory) News(_ context.Context, n int, reach Reach, most int) (News, error) {
	d := m.databases[n-1]
	d.mu.Lock()
	defer d.mu.Unlock()
	until := completeUntil(d.m, d.marks)
	news := News{Reach: reach}
	next := func(of int, place *Stamp) (found []Stamp) {
		all := d.stamps[of]
		from, is := slices.BinarySearchFunc(all, *place, Stamp.Compare)
		if is {
			from++
		}
		to, _ := slices.BinarySearchFunc(all, Stamp{At: until}, Stamp.Compare)
		if to = max(to, from); to-from >= most {
			to, news.More = from+most, true
		}
		if found = all[from:to]; len(found) > 0 {
			*place = found[len(found)-1]
		}
		news.Rows += len(found)
		return found
	}
	for _, s := range next(ofOrders, &news.Reach.Orders[0]) {
		o := d.orders[s.Order]
		for _, id := range d.byNumber[number{o.BID, o.OutTradeNo}] {
			if id != o.ID {
				news.SameNumber = append(news.SameNumber, SameNumber{o.BID, o.OutTradeNo, o.ID, o.UID, id, d.orders[id].UID})
				break
			}
		}
	}
	for _, s := range next(ofEntries, &news.Reach.Entries[0]) {
		of := d.entries[s.Order]
		i := slices.IndexFunc(of, func(e schema.Entry) bool { return e.Seq == s.Seq })
		if e := of[i]; isPayment(e.Kind) && e.Ref != "" {
			news.Payments = append(news.Payments, Payment{e.Ref, e.OrderID, e.Seq, e.UID, e.BID})
		}
	}
	if !news.More {
		news.Reach.ahead(until)
	}
	return news, nil
}

// journal returns the entries of an order, those of a merchant or, by 0, all. The
// database is locked.
func (d *memory) journal(bid, order int64) (out []schema.Entry) {
	for _, e := range d.entries[order] {
		if bid == 0 || e.BID == bid {
			out = append(out, e)
		}
	}
	return out
}

// insert keeps an entry, and reports whether it is there: another order's is in its way.
func (d *memory) insert(e schema.Entry) bool {
	of := d.entries[e.OrderID]
	i, found := slices.BinarySearchFunc(of, e.Seq, func(e schema.Entry, seq int64) int { return cmp.Compare(e.Seq, seq) })
	if found {
		return of[i].UID == e.UID && of[i].BID == e.BID
	}
	d.entries[e.OrderID] = slices.Insert(of, i, e)
	d.stamp(ofEntries, Stamp{e.RecordedAt, e.OrderID, e.Seq})
	p := Position{e.OrderID, e.Seq}
	for _, r := range []run{{0, e.Kind}, {e.BID, e.Kind}} {
		i, _ := slices.BinarySearchFunc(d.entryRun[r], p, Position.Compare)
		d.entryRun[r] = slices.Insert(d.entryRun[r], i, p)
	}
	return true
}

func (d *memory) Place() shardmap.Database { return d.place }

func (d *memory) State(context.Context) (apply.State, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := apply.State{Progress: d.progress, Marks: map[string]stream.Mark{}, Letters: len(d.letters)}
	maps.Copy(s.Marks, d.marks)
	return s, nil
}

func (d *memory) Apply(_ context.Context, c *apply.Change) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.progress != c.From {
		return 0, apply.ErrMoved
	}
	for _, l := range append(d.put(c.To.Incarnation, c.Orders, c.Entries), c.Letters...) {
		if _, ok := d.letters[l.LetterKey]; !ok {
			l.FoundAt = schema.MillisOf(time.Now())
			d.letters[l.LetterKey] = l
		}
	}
	if len(d.letters) == 0 {
		for _, m := range c.Marks {
			if old, ok := d.marks[m.Server]; !ok || m.At >= old.At {
				d.marks[m.Server] = m
			}
		}
	}
	d.progress = c.To
	return len(d.letters), nil
}

// put stores rows and returns those that another order's are in the way of.
func (d *memory) put(incarnation string, orders []apply.Order, entries []apply.Entry) (taken []apply.Letter) {
	for _, o := range orders {
		old, ok := d.orders[o.ID]
		if ok && (old.UID != o.UID || old.BID != o.BID) {
			taken = append(taken, apply.Taken(incarnation, o.Origin))
			continue
		}
		if ok && old.Ver >= o.Ver {
			continue
		}
		d.keepOrder(o.Order)
	}
	for _, e := range entries {
		if !d.insert(e.Entry) {
			taken = append(taken, apply.Taken(incarnation, e.Origin))
		}
	}
	return taken
}

func (d *memory) Letters(_ context.Context, limit int) ([]apply.Letter, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	open := slices.SortedFunc(maps.Values(d.letters), func(a, b apply.Letter) int {
		return cmp.Or(cmp.Compare(a.FoundAt, b.FoundAt), cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Item, b.Item))
	})
	return open[:min(limit, len(open))], nil
}

func (d *memory) Settle(_ context.Context, key apply.LetterKey, _ apply.LetterState, orders []apply.Order, entries []apply.Entry) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.letters[key]; !ok {
		return apply.ErrNoLetter
	}
	// A letter holds at most the rows of one message; what is put before one that is
	// refused is put again when the letter is.
	if taken := d.put(key.Incarnation, orders, entries); len(taken) > 0 {
		return errors.New("mirror: " + taken[0].Reason)
	}
	delete(d.letters, key)
	return nil
}
