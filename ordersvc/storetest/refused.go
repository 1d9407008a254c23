package storetest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/schema"
)

// refusals are orders that no store takes: a column cannot hold a value. The service
// never lets one through; a store is the last line.
var refusals = map[string]func(*schema.Order){
	"a number of 65 bytes":        func(o *schema.Order) { o.OutTradeNo = strings.Repeat("n", 65) },
	"a number that is not ASCII":  func(o *schema.Order) { o.OutTradeNo = "numéro" },
	"a subject of 257 characters": func(o *schema.Order) { o.Subject = strings.Repeat("é", 257) },
	"a subject that is not UTF-8": func(o *schema.Order) { o.Subject = "a\xf0\x9fb" },
	"metadata of 64 KiB":          func(o *schema.Order) { o.Metadata = strings.Repeat("m", 1<<16) },
	"a currency of 4 letters":     func(o *schema.Order) { o.Currency = "CNYY" },
	"an actor of 17 bytes":        func(o *schema.Order) { o.CreatedBy = strings.Repeat("a", 17) },
	"a request id of 65 bytes":    func(o *schema.Order) { o.RequestID = strings.Repeat("r", 65) },
}

func refused(t *testing.T, s ordersvc.Store) {
	for name, spoil := range refusals {
		for _, at := range []int{0, 4, 8} {
			t.Run(fmt.Sprintf("%s, in place %d of 9", name, at), func(t *testing.T) {
				var orders []schema.Order
				for i := range 9 {
					orders = append(orders, Order(Buyer(1, i/2), fmt.Sprintf("refused-%d", i)))
				}
				spoil(&orders[at])
				results := insert(t, s, orders...)
				for i, r := range results {
					switch {
					case i != at:
						created(t, s, orders[i], r)
					case r.Err == nil:
						t.Errorf("it was stored: %+v", r.Order)
					case errors.Is(r.Err, ordersvc.ErrUnknown), errors.Is(r.Err, cluster.ErrUnavailable), errors.Is(r.Err, ordersvc.ErrDuplicateID):
						t.Errorf("refused with %v, which asks to try it again", r.Err)
					default:
						if _, err := s.Order(background, Place(orders[i].UID), orders[i].ID); !errors.Is(err, ordersvc.ErrNotFound) {
							t.Errorf("the refused order by its id: %v", err)
						}
					}
				}
			})
		}
	}
}
