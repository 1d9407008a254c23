package mirror

import (
	"cmp"
	"context"
	"slices"

	"github.com/octopay/octopay/schema"
	"golang.org/x/sync/errgroup"
)

// A shelf is one database as a list of entries sees it: one run of entries for each of its
// tables and each kind, in the order of Position.
type shelf interface {
	// runs is how many runs the list takes from.
	runs(q *EntryQuery) int
	// completeUntil says up to when everything is included.
	completeUntil(ctx context.Context) (schema.Millis, error)
	// keys returns the next positions of each run behind before, at most most of each, in
	// any order. All that there is at floor and before it is among them.
	keys(ctx context.Context, q *EntryQuery, before Position, most int) (keys []key, floor Position, err error)
	// read returns the entries at keys and those beside each, in any order, and each
	// once; of one merchant's alone if the query is.
	read(ctx context.Context, q *EntryQuery, keys []key) ([]schema.Entry, error)
}

// A key is where an entry is: its position, which shelf has it, and in which table.
type key struct {
	Position
	shelf, table int
}

const (
	// shelvesAtOnce is how many databases one page asks at once.
	shelvesAtOnce = 8
	// keysMax is how many keys' entries are read at once.
	keysMax = 200
	// enough is how many rows a page may have examined and go on: close to the most it
	// would go on in ever smaller steps.
	enough = ExaminedMax - keysMax
)

// walk returns a page of what is on the shelves. Every shelf is asked for the positions
// that come next on it, which its indexes hold, and the merged order is known down to the
// highest floor: what a shelf has below its own isn't known yet. Whole entries, and those
// beside them, are read of what comes first in that order alone.
func walk(ctx context.Context, shelves []shelf, q *EntryQuery) (page EntryPage, err error) {
	// Before the rows: what the marks promise is then in the rows.
	untils := make([]schema.Millis, len(shelves))
	if err := all(ctx, shelves, func(ctx context.Context, i int) (err error) {
		untils[i], err = shelves[i].completeUntil(ctx)
		return err
	}); err != nil {
		return EntryPage{}, err
	}
	page.CompleteUntil = slices.Min(untils)

	runs := 0
	for _, s := range shelves {
		runs += s.runs(q)
	}
	before := q.Before
	for examined := 0; ; {
		// Half of what may be examined goes to positions, so that the entries of those that
		// were found can be read.
		most := (ExaminedMax - examined) / runs / 2
		if most == 0 {
			page.Next = before
			return page, nil
		}
		wanted := chunk
		if q.Match == nil {
			// One more than is wanted, to know whether there is a next page.
			wanted = q.Limit + 1 - len(page.Found)
		}
		keys, floor, err := next(ctx, shelves, q, before, min(most, wanted))
		if err != nil {
			return EntryPage{}, err
		}
		examined += len(keys)
		keys = slices.DeleteFunc(keys, func(k key) bool { return k.Compare(floor) < 0 })
		for len(keys) > 0 {
			if len(page.Found) == q.Limit || examined >= enough {
				page.Next = before
				return page, nil
			}
			// A few are beside each.
			n := min(len(keys), keysMax, 1+(ExaminedMax-examined)/10)
			if q.Match == nil {
				n = min(n, q.Limit-len(page.Found))
			}
			orders, read, err := entriesOf(ctx, shelves, q, keys[:n])
			if err != nil {
				return EntryPage{}, err
			}
			examined += read
			for _, k := range keys[:n] {
				if len(page.Found) == q.Limit {
					page.Next = before
					return page, nil
				}
				before = k.Position
				of := orders[k.shelf][k.Order]
				i, there := slices.BinarySearchFunc(of, k.Seq, func(e schema.Entry, seq int64) int { return cmp.Compare(e.Seq, seq) })
				if !there {
					continue
				}
				if around := q.Around(&of[i], of); q.Match == nil || q.Match(&of[i], around) {
					page.Found = append(page.Found, Found{of[i], around})
				}
			}
			keys = keys[n:]
		}
		if floor == (Position{}) {
			return page, nil
		}
		before = floor
		if len(page.Found) == q.Limit || examined >= enough {
			page.Next = before
			return page, nil
		}
	}
}

// next returns the positions that come next on all shelves, in their order, and the
// highest of the floors.
func next(ctx context.Context, shelves []shelf, q *EntryQuery, before Position, most int) (keys []key, floor Position, err error) {
	found := make([][]key, len(shelves))
	floors := make([]Position, len(shelves))
	if err := all(ctx, shelves, func(ctx context.Context, i int) (err error) {
		found[i], floors[i], err = shelves[i].keys(ctx, q, before, most)
		for j := range found[i] {
			found[i][j].shelf = i
		}
		return err
	}); err != nil {
		return nil, Position{}, err
	}
	keys = slices.Concat(found...)
	slices.SortFunc(keys, func(a, b key) int { return b.Compare(a.Position) })
	return keys, slices.MaxFunc(floors, Position.Compare), nil
}

// entriesOf returns the entries at keys and those beside them, by shelf and order, oldest
// first, and how many they are.
func entriesOf(ctx context.Context, shelves []shelf, q *EntryQuery, keys []key) (orders []map[int64][]schema.Entry, read int, err error) {
	of := make([][]key, len(shelves))
	for _, k := range keys {
		of[k.shelf] = append(of[k.shelf], k)
	}
	entries := make([][]schema.Entry, len(shelves))
	if err := all(ctx, shelves, func(ctx context.Context, i int) (err error) {
		if len(of[i]) > 0 {
			entries[i], err = shelves[i].read(ctx, q, of[i])
		}
		return err
	}); err != nil {
		return nil, 0, err
	}
	orders = make([]map[int64][]schema.Entry, len(shelves))
	for i, on := range entries {
		read += len(on)
		slices.SortFunc(on, func(a, b schema.Entry) int { return cmp.Compare(a.Seq, b.Seq) })
		orders[i] = map[int64][]schema.Entry{}
		for _, e := range on {
			orders[i][e.OrderID] = append(orders[i][e.OrderID], e)
		}
	}
	return orders, read, nil
}

// all calls f for each shelf, several at once, and returns the first error.
func all(ctx context.Context, shelves []shelf, f func(ctx context.Context, i int) error) error {
	if len(shelves) == 1 {
		return f(ctx, 0)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(shelvesAtOnce)
	for i := range shelves {
		g.Go(func() error { return f(ctx, i) })
	}
	return g.Wait()
}
