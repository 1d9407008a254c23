package conflict

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/syncer/mirror"
)

// Memory is a Table in this process. It grows with the payments of its mirror.
type Memory struct {
	mu      sync.Mutex
	reach   []mirror.Reach            // by database
	firsts  map[string]mirror.Payment // by reference
	all     []Conflict                // ids are places, from 1
	known   map[conflictKey]int       // their places, from 0
	perKind [len(kindNames)]int
}

type conflictKey struct {
	kind   Kind
	bid    int64
	number string
}

// NewMemory returns an empty table for a mirror of so many databases.
func NewMemory(databases int) *Memory {
	return &Memory{reach: make([]mirror.Reach, databases), firsts: map[string]mirror.Payment{}, known: map[conflictKey]int{}}
}

// Reach implements Table.
func (m *Memory) Reach(_ context.Context, n int) (mirror.Reach, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reach[n-1], nil
}

// Save implements Table.
func (m *Memory) Save(_ context.Context, n int, reach mirror.Reach) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	have := &m.reach[n-1]
	for i := range reach.Orders {
		have.Orders[i] = later(have.Orders[i], reach.Orders[i])
		have.Entries[i] = later(have.Entries[i], reach.Entries[i])
	}
	return nil
}

func later(a, b mirror.Stamp) mirror.Stamp {
	if b.Compare(a) > 0 {
		return b
	}
	return a
}

// First implements Table.
func (m *Memory) First(_ context.Context, payments []mirror.Payment) ([]mirror.Payment, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]mirror.Payment, len(payments))
	for i, p := range payments {
		first, ok := m.firsts[p.Ref]
		if !ok {
			first, m.firsts[p.Ref] = p, p
		}
		out[i] = first
	}
	return out, nil
}

// Add implements Table.
func (m *Memory) Add(_ context.Context, pairs []Pair) (added Added, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := schema.MillisOf(time.Now())
	for _, p := range pairs {
		key := conflictKey{p.Kind, p.BID, p.Number}
		i, ok := m.known[key]
		if !ok {
			if m.perKind[p.Kind] >= ConflictsMax {
				added.Unlisted[p.Kind]++
				continue
			}
			i = len(m.all)
			m.all = append(m.all, Conflict{ID: int64(i + 1), Kind: p.Kind, BID: p.BID, Number: p.Number, FoundAt: now})
			m.known[key] = i
			m.perKind[p.Kind]++
			added.New[p.Kind]++
		}
		c := &m.all[i]
		for _, o := range p.Orders {
			at, is := slices.BinarySearchFunc(c.Orders, o, compareOrders)
			if !is && len(c.Orders) < OrdersMax {
				o.FoundAt = now
				// Anew, since a page that was listed has the one there was.
				c.Orders = slices.Insert(slices.Clone(c.Orders), at, o)
			}
		}
	}
	return added, nil
}

// List implements Lister.
func (m *Memory) List(_ context.Context, q Query) (page Page, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.reach {
		if until := m.reach[i].Until(); i == 0 || until < page.CompleteUntil {
			page.CompleteUntil = until
		}
	}
	for i := int(min(q.Before-1, int64(len(m.all)))) - 1; i >= 0; i-- {
		c := m.all[i]
		if q.Kind != 0 && c.Kind != q.Kind {
			continue
		}
		if len(page.Conflicts) == q.Limit {
			page.Next = page.Conflicts[q.Limit-1].ID
			break
		}
		page.Conflicts = append(page.Conflicts, c)
	}
	return page, nil
}
