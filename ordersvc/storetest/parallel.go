package storetest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/slot"
)

func parallelOneKey(t *testing.T, s ordersvc.Store) {
	const n = 50
	uid := Buyer(3, 3)
	orders := make([]schema.Order, n)
	results := make([]ordersvc.Result, n)
	for i := range orders {
		orders[i] = Order(uid, "one-key")
		orders[i].Amount = int64(i + 1)
	}
	together(n, func(i int) { results[i] = insert(t, s, orders[i])[0] })
	winner := -1
	for i, r := range results {
		if r.Err == nil && !r.Taken {
			if winner >= 0 {
				t.Fatalf("%d and %d both made the order", winner, i)
			}
			winner = i
		}
	}
	if winner < 0 {
		t.Fatalf("nobody made the order: %+v", results[0])
	}
	created(t, s, orders[winner], results[winner])
	for i, r := range results {
		if i != winner {
			taken(t, results[winner].Order, r)
		}
	}
}

func parallelManyKeys(t *testing.T, s ordersvc.Store) {
	const callers, each = 20, 10
	orders := make([][]schema.Order, callers)
	results := make([][]ordersvc.Result, callers)
	for i := range orders {
		for j := range each {
			orders[i] = append(orders[i], Order(Buyer(i%Databases+1, j%slot.Tables), fmt.Sprintf("many-%d-%d", i, j)))
		}
	}
	together(callers, func(i int) { results[i] = insert(t, s, orders[i]...) })
	for i := range orders {
		for j, o := range orders[i] {
			created(t, s, o, results[i][j])
		}
	}
}

// Batches that hold the same keys in different orders, each with ids of its own:
// whoever is first with a key has it, and all others are told so.
func parallelOverlap(t *testing.T, s ordersvc.Store) {
	const callers, keys = 8, 40
	var buyers [keys]int64
	for i := range buyers {
		buyers[i] = Buyer(5, i%slot.Tables)
	}
	orders := make([][]schema.Order, callers)
	results := make([][]ordersvc.Result, callers)
	for i := range orders {
		for _, k := range rand.Perm(keys) {
			orders[i] = append(orders[i], Order(buyers[k], "overlap"))
		}
	}
	together(callers, func(i int) { results[i] = insert(t, s, orders[i]...) })
	winners := map[int64]schema.Order{}
	for i := range orders {
		for j, o := range orders[i] {
			if r := results[i][j]; r.Err == nil && !r.Taken {
				if w, twice := winners[o.UID]; twice {
					t.Fatalf("orders %d and %d were both made under one key", w.ID, o.ID)
				}
				created(t, s, o, r)
				winners[o.UID] = r.Order
			}
		}
	}
	if len(winners) != keys {
		t.Errorf("%d orders were made of %d keys", len(winners), keys)
	}
	for i := range orders {
		for j, o := range orders[i] {
			if w := winners[o.UID]; w.ID != o.ID {
				taken(t, w, results[i][j])
			}
		}
	}
}
