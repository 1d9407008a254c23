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
			place:   place,
			orders:  map[int64]schema.Order{},
			entries: map[[2]int64]schema.Entry{},
			byBID:   map[int64][]int64{},
			marks:   map[string]stream.Mark{},
			letters: map[apply.LetterKey]apply.Letter{},
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

// Entries returns the journal of an order as the mirror of bid has it, in order.
func (m *Memory) Entries(bid, order int64) []schema.Entry {
	d := m.databases[m.m.Locate(bid).Database-1]
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []schema.Entry
	for key, e := range d.entries {
		if key[0] == order && e.BID == bid {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b schema.Entry) int { return cmp.Compare(a.Seq, b.Seq) })
	return out
}

// A memory is one database.
type memory struct {
	place shardmap.Database

	mu       sync.Mutex
	orders   map[int64]schema.Order
	entries  map[[2]int64]schema.Entry // by order and seq
	byBID    map[int64][]int64         // ids, rising
	marks    map[string]stream.Mark
	letters  map[apply.LetterKey]apply.Letter // open ones
	progress apply.Progress
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
		d.orders[o.ID] = o.Order
		if !ok {
			ids := d.byBID[o.BID]
			i, _ := slices.BinarySearch(ids, o.ID)
			d.byBID[o.BID] = slices.Insert(ids, i, o.ID)
		}
	}
	for _, e := range entries {
		key := [2]int64{e.OrderID, e.Seq}
		if old, ok := d.entries[key]; !ok {
			d.entries[key] = e.Entry
		} else if old.UID != e.UID || old.BID != e.BID {
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
