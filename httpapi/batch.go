package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/octopay/octopay/httpapi/problem"
	"github.com/octopay/octopay/ordersvc"
)

// batchTime is when a batch is answered at the latest, from its headers on. What is still
// open then is of unknown outcome.
const batchTime = 9 * time.Second

// batchBytes bounds the bodies of all batches that are read at one time.
const batchBytes = 64 << 20

// An item is one order of a batch.
type item struct {
	order ordersvc.New
	err   error // why it is none
}

// createBatch is POST /v1/orders/batch: many creates, each with the fate that it would
// have had alone.
func createBatch(c *call) error {
	var f faults
	c.query(&f)
	size := c.r.ContentLength
	if size < 0 || size > batchMax {
		size = batchMax
	}
	if !c.api.batches.TryAcquire(size) {
		return &problem.Problem{Code: problem.Overloaded, Shed: problem.Bytes}
	}
	defer c.api.batches.Release(size)
	var items []item
	err := c.read(batchMax, func(body []byte) (err error) {
		items, err = decodeBatch(body, &f)
		return err
	})
	if err != nil {
		return err
	}
	if err := f.err(); err != nil {
		return err
	}
	var orders []ordersvc.New
	for i := range items {
		if items[i].err == nil {
			items[i].err = c.own(items[i].order.BID)
		}
		if items[i].err == nil {
			items[i].err = c.withinRate(items[i].order.BID) // each is a call, as it would have been alone
		}
		if items[i].err == nil {
			items[i].order.Actor, items[i].order.RequestID = c.key.Role.String(), c.id
			orders = append(orders, items[i].order)
		}
	}
	ctx, cancel := context.WithDeadline(c.r.Context(), c.arrived.Add(min(batchTime, c.api.config.CallTimeout)))
	defer cancel()
	outcomes := c.api.config.Orders.CreateAll(ctx, orders)
	c.answer(http.StatusOK, func(b []byte) []byte {
		b = append(b, `{"results":[`...)
		next := 0
		for i := range items {
			if i > 0 {
				b = append(b, ',')
			}
			if err := items[i].err; err != nil {
				b = c.appendRefused(b, err)
				continue
			}
			b = c.appendOutcome(b, &outcomes[next])
			next++
		}
		return append(b, "]}"...)
	})
	return nil
}

func (c *call) appendOutcome(b []byte, o *ordersvc.Outcome) []byte {
	if o.Err != nil {
		return c.appendRefused(b, o.Err)
	}
	status := http.StatusCreated
	if o.Replayed {
		status = http.StatusOK
	}
	b = strconv.AppendInt(append(b, `{"status":`...), int64(status), 10)
	b = strconv.AppendBool(append(b, `,"replayed":`...), o.Replayed)
	b = appendOrder(append(b, `,"order":`...), &o.Order)
	return append(b, '}')
}

func (c *call) appendRefused(b []byte, err error) []byte {
	p := problem.From(err, true)
	c.note(p)
	b = strconv.AppendInt(append(b, `{"status":`...), int64(p.Code.Status()), 10)
	b = p.Append(append(b, `,"error":`...), c.id)
	return append(b, '}')
}

// decodeBatch reads the body of a batch. Faulty fields of an order are that item's error;
// those of the batch are added to f. The error is a body that can't be read at all.
func decodeBatch(body []byte, f *faults) (items []item, err error) {
	err = decodeObject(body, []string{"orders"}, 1, f, func(d *decoder, _ int) (flaw, error) {
		if d.dec.PeekKind() != '[' {
			return flawNotOrders, d.skip()
		}
		if _, err := d.dec.ReadToken(); err != nil {
			return fine, err
		}
		count := 0
		for ; d.dec.PeekKind() != ']'; count++ {
			if count >= batchOrdersMax {
				if err := d.skip(); err != nil {
					return fine, err
				}
				continue
			}
			own := faults{at: "orders[" + strconv.Itoa(count) + "]"}
			var n ordersvc.New
			if d.dec.PeekKind() != '{' {
				own.add("", flawNotOrder)
				if err := d.skip(); err != nil {
					return fine, err
				}
			} else {
				own.at += "."
				if n, err = d.order(&own); err != nil {
					return fine, err
				}
			}
			items = append(items, item{n, own.err()})
		}
		if _, err := d.dec.ReadToken(); err != nil {
			return fine, err
		}
		switch {
		case count == 0:
			return flawNoOrders, nil
		case count > batchOrdersMax:
			return flawOrders, nil
		}
		return fine, nil
	})
	return items, err
}
