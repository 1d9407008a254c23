package httpapi

import (
	"net/http"

	octopay "github.com/octopay/octopay"
	"github.com/octopay/octopay/auth"
	"github.com/octopay/octopay/httpapi/problem"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/schema"
)

// createOrder is POST /v1/orders.
func createOrder(c *call) error {
	var f faults
	c.query(&f)
	n, err := c.newOrder(&f)
	if err != nil {
		return err
	}
	if err := c.own(n.BID); err != nil {
		return err
	}
	if err := c.withinRate(n.BID); err != nil {
		return err
	}
	n.Actor, n.RequestID = c.key.Role.String(), c.id
	ctx, cancel := c.context()
	defer cancel()
	created, err := c.api.config.Orders.Create(ctx, n)
	if err != nil {
		return err
	}
	c.orderID = created.Order.OrderID()
	status := http.StatusOK
	if created.Replayed {
		c.w.Header()["Idempotent-Replayed"] = yes
	} else {
		status = http.StatusCreated
		c.w.Header()["Location"] = []string{"/v1/orders/" + c.orderID.String()}
	}
	c.answer(status, func(b []byte) []byte { return appendOrder(b, &created.Order) })
	return nil
}

// newOrder reads the body of a create. The faults of the query are in f already.
func (c *call) newOrder(f *faults) (n ordersvc.New, err error) {
	err = c.read(bodyMax, func(body []byte) error {
		n, err = decodeOrder(body, f)
		return err
	})
	if err != nil {
		return ordersvc.New{}, err
	}
	return n, f.err()
}

// findOrder is GET /v1/orders: the order of an idempotency key.
func findOrder(c *call) error {
	var f faults
	c.refuseBody(&f)
	q := c.query(&f, "uid", "bid", "out_trade_no")
	require(&f, "uid", q[0])
	require(&f, "bid", q[1])
	require(&f, "out_trade_no", q[2])
	key := ordersvc.Key{
		UID:        readParam(&f, "uid", q[0], parseKey),
		BID:        readParam(&f, "bid", q[1], parseKey),
		OutTradeNo: readParam(&f, "out_trade_no", q[2], parseNumber),
	}
	if err := f.err(); err != nil {
		return err
	}
	if err := c.withinRate(key.BID); err != nil {
		return err
	}
	if !c.sees(key.BID) {
		return ordersvc.ErrNotFound
	}
	ctx, cancel := c.context()
	defer cancel()
	order, err := c.api.config.Orders.Find(ctx, key)
	if err != nil {
		return err
	}
	c.orderID = order.OrderID()
	c.answer(http.StatusOK, func(b []byte) []byte { return appendOrder(b, &order) })
	return nil
}

// order reads the order id of the path. Whatever is there names an order or none, so a
// text that can't be an id is no other error than an id that isn't there. If uid is given
// the order is that buyer's. All calls about one order come by here, and those of a
// merchant count for its rate.
func (c *call) order(uid int64) (idgen.ID, error) {
	if err := c.withinRate(0); err != nil {
		return idgen.ID{}, err
	}
	id, err := idgen.Parse(c.params[0])
	if err != nil {
		return idgen.ID{}, &problem.Problem{Code: problem.OrderNotFound}
	}
	c.orderID = id
	if uid != 0 && !id.Of(uid) {
		return idgen.ID{}, &problem.Problem{Code: problem.OrderNotFound} // its buyer is another, without a look
	}
	return id, nil
}

// getOrder is GET /v1/orders/{order_id}.
func getOrder(c *call) error {
	var f faults
	c.refuseBody(&f)
	q := c.query(&f, "include", "uid")
	journal := readParam(&f, "include", q[0], func(s string) (bool, flaw) {
		if s != "journal" {
			return false, flawInclude
		}
		return true, fine
	})
	uid := readParam(&f, "uid", q[1], parseKey)
	if err := f.err(); err != nil {
		return err
	}
	id, err := c.order(uid)
	if err != nil {
		return err
	}
	ctx, cancel := c.context()
	defer cancel()
	order, err := c.api.config.Orders.Get(ctx, id)
	if err != nil {
		return err
	}
	if uid != 0 && uid != order.UID || !c.sees(order.BID) {
		return ordersvc.ErrNotFound
	}
	if !journal {
		c.answer(http.StatusOK, func(b []byte) []byte { return appendOrder(b, &order) })
		return nil
	}
	var entries []schema.Entry
	if order.Ver > 1 { // version 1 is the creation, which isn't stored as an entry
		if entries, err = c.api.config.Orders.Journal(ctx, order); err != nil {
			return err
		}
	}
	c.answer(http.StatusOK, func(b []byte) []byte { return appendOrderAndJournal(b, &order, entries, c.key.Role == auth.Ops) })
	return nil
}

// getOpenAPI is GET /openapi.yaml.
func getOpenAPI(c *call) error {
	var f faults
	c.refuseBody(&f)
	c.query(&f)
	if err := f.err(); err != nil {
		return err
	}
	c.send(http.StatusOK, typeYAML, octopay.OpenAPI)
	return nil
}
