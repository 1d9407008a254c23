package storetest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/schema"
)

const newest = 1<<63 - 1

// walk reads a list to its end, page by page, calling each after every page.
func walk(t testing.TB, s ordersvc.Store, q ordersvc.Query, each func(ordersvc.Page)) {
	t.Helper()
	for pages := 0; ; pages++ {
		page, err := s.List(background, Place(q.UID), q)
		if err != nil {
			t.Fatalf("list: %v", err)
		}
		if len(page.Orders) > q.Limit {
			t.Fatalf("%d orders on a page of %d", len(page.Orders), q.Limit)
		}
		each(page)
		if page.Next == 0 {
			return
		}
		if page.Next >= q.Before || pages > 1000 {
			t.Fatalf("the page before %d goes on before %d", q.Before, page.Next)
		}
		q.Before = page.Next
	}
}

func lists(t *testing.T, s ordersvc.Store) {
	uid, other := Buyer(7, 1), Buyer(7, 1)
	var orders, mixed []schema.Order
	for i := range 25 {
		o := Order(uid, fmt.Sprintf("list-%d", i))
		o.BID += int64(i % 3)
		orders = append(orders, o)
		mixed = append(mixed, o, Order(other, fmt.Sprintf("list-%d", i)))
	}
	for i, r := range insert(t, s, mixed...) {
		created(t, s, mixed[i], r)
		if i%2 == 0 {
			orders[i/2] = r.Order
		}
	}
	slices.Reverse(orders) // newest first

	for _, c := range []struct {
		name string
		q    ordersvc.Query
		want []schema.Order
	}{
		{"all", ordersvc.Query{Before: newest}, orders},
		{"of a status that all have", ordersvc.Query{Before: newest, Status: schema.Created}, orders},
		{"of a status that none has", ordersvc.Query{Before: newest, Status: schema.Paid}, nil},
		{"before the third: without it", ordersvc.Query{Before: orders[2].ID}, orders[3:]},
		{"from the third on: with it", ordersvc.Query{Before: newest, Min: orders[2].ID}, orders[:3]},
		{"between two", ordersvc.Query{Before: orders[4].ID, Min: orders[9].ID, Status: schema.Created}, orders[5:10]},
		{"an empty range", ordersvc.Query{Before: orders[4].ID, Min: orders[4].ID}, nil},
		{"below all", ordersvc.Query{Before: orders[24].ID}, nil},
	} {
		for _, limit := range []int{1, 5, 24, 25, 26, 100} {
			c.q.UID, c.q.Limit = uid, limit
			var got []schema.Order
			pages := 0
			walk(t, s, c.q, func(p ordersvc.Page) {
				got = append(got, p.Orders...)
				pages++
			})
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("%s, pages of %d: (-want +got)\n%s", c.name, limit, d)
			}
			if want := max(1, (len(c.want)+limit-1)/limit); pages != want {
				t.Errorf("%s: %d pages of %d, want %d", c.name, pages, limit, want)
			}
		}
	}
}

// What was there when a walk began comes exactly once, however much arrives.
func walkWhileInserting(t *testing.T, s ordersvc.Store) {
	uid := Buyer(2, 9)
	want := map[int64]bool{}
	for i := range 30 {
		o := Order(uid, fmt.Sprintf("walk-%d", i))
		created(t, s, o, insert(t, s, o)[0])
		want[o.ID] = true
	}
	more := 0
	walk(t, s, ordersvc.Query{UID: uid, Before: newest, Limit: 4}, func(p ordersvc.Page) {
		for _, o := range p.Orders {
			if !want[o.ID] {
				t.Errorf("order %d came twice, or too late", o.ID)
			}
			delete(want, o.ID)
		}
		together(3, func(i int) { insert(t, s, Order(uid, fmt.Sprintf("walk-more-%d-%d", more, i))) })
		more++
	})
	if len(want) != 0 {
		t.Errorf("%d orders did not come", len(want))
	}
}

// A page looks at ExaminedMax rows at most, and says where to go on.
func examined(t *testing.T, s ordersvc.Store) {
	uid := Buyer(4, 9)
	const n = ordersvc.ExaminedMax + 50
	var oldest []int64
	for i := 0; i < n; i += 500 {
		var orders []schema.Order
		for j := i; j < min(i+500, n); j++ {
			o := Order(uid, fmt.Sprintf("examined-%d", j))
			orders = append(orders, o)
			if j <= 50 {
				oldest = append(oldest, o.ID)
			}
		}
		for _, r := range insert(t, s, orders...) {
			if r.Err != nil || r.Taken {
				t.Fatalf("insert: %+v", r)
			}
		}
	}
	q := ordersvc.Query{UID: uid, Before: newest, Limit: 100, Status: schema.Closed}
	page, err := s.List(background, Place(uid), q)
	if err != nil || len(page.Orders) != 0 {
		t.Fatalf("%d orders, %v", len(page.Orders), err)
	}
	if page.Next <= oldest[49] || page.Next > oldest[50] {
		t.Errorf("it goes on before %d; the oldest 50 are %d … %d, the next is %d", page.Next, oldest[0], oldest[49], oldest[50])
	}
	q.Before = page.Next
	if page, err = s.List(background, Place(uid), q); err != nil || len(page.Orders) != 0 || page.Next != 0 {
		t.Errorf("the rest: %d orders, next %d, %v", len(page.Orders), page.Next, err)
	}

	// Exactly ExaminedMax rows in the range are one page.
	q = ordersvc.Query{UID: uid, Before: newest, Min: oldest[50], Limit: 1, Status: schema.Closed}
	if page, err = s.List(background, Place(uid), q); err != nil || page.Next != 0 {
		t.Errorf("exactly as many as may be examined: next %d, %v", page.Next, err)
	}

	got := 0
	walk(t, s, ordersvc.Query{UID: uid, Before: newest, Limit: 100, Status: schema.Created}, func(p ordersvc.Page) { got += len(p.Orders) })
	if got != n {
		t.Errorf("a walk gives %d orders of %d", got, n)
	}
}
