package httpapi

import (
	"cmp"
	"math"
	"net/http"

	"github.com/octopay/octopay/httpapi/problem"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/syncer/mirror"
)

// listUserOrders is GET /v1/users/{uid}/orders, from the truth.
func listUserOrders(c *call) error {
	var f faults
	flt, q, err := c.readList(&f, listOfUser, "uid")
	if err != nil {
		return err
	}
	ctx, cancel := c.context()
	defer cancel()
	page, err := c.api.config.Orders.List(ctx, ordersvc.Query{
		UID: flt.owner, Status: schema.Status(flt.status), Min: flt.min, Before: q.before, Limit: q.limit,
	})
	if err != nil {
		return err
	}
	c.answerPage(flt, page.Orders, page.Next)
	return nil
}

// listMerchantOrders is GET /v1/merchants/{bid}/orders, from the mirror.
func listMerchantOrders(c *call) error {
	var f faults
	flt, q, err := c.readList(&f, listOfMerchant, "bid")
	if err != nil {
		return err
	}
	if err := c.withinRate(flt.owner); err != nil {
		return err
	}
	if !c.sees(flt.owner) {
		return &problem.Problem{Code: problem.MerchantNotFound}
	}
	ctx, cancel := c.context()
	defer cancel()
	page, err := c.api.config.Mirror.List(ctx, mirror.Query{
		BID: flt.owner, Status: schema.Status(flt.status), OutTradeNo: flt.outTradeNo,
		Min: flt.min, Before: q.before, Limit: q.limit,
	})
	if err != nil {
		return err
	}
	c.completeUntil(page.CompleteUntil)
	c.answerPage(flt, page.Orders, page.Next)
	return nil
}

// completeUntil says up to when the mirror is complete.
func (c *call) completeUntil(m schema.Millis) {
	c.w.Header()["X-Mirror-Complete-Until"] = []string{m.Time().Format(timeLayout)}
}

// A pageQuery is which page of a list is wanted.
type pageQuery struct {
	before int64 // snowflakes below this
	limit  int
}

// readList reads the parameters of a list of owner's orders.
func (c *call) readList(f *faults, kind list, owner string) (filter, pageQuery, error) {
	c.refuseBody(f)
	names := []string{"limit", "cursor", "status", "created_from", "created_to"}
	if kind == listOfMerchant {
		names = append(names, "out_trade_no")
	}
	q := c.query(f, names...)
	flt := filter{list: kind, before: math.MaxInt64}
	var w flaw
	if flt.owner, w = parseKey(c.params[0]); w.bad() {
		f.add(owner, w)
	}
	limit := readLimit(f, q[0])
	flt.status = byte(readParam(f, "status", q[2], parseStatus))
	if q[3].value != "" {
		flt.min = idgen.FirstAt(readParam(f, "created_from", q[3], parseBound))
	}
	if q[4].value != "" {
		flt.before = idgen.FirstAt(readParam(f, "created_to", q[4], parseBound))
	}
	if kind == listOfMerchant {
		flt.outTradeNo = readParam(f, "out_trade_no", q[5], parseNumber)
	}
	if err := f.err(); err != nil {
		return flt, pageQuery{}, err
	}
	page := pageQuery{before: flt.before, limit: limit}
	if cursor := q[1].value; cursor != "" {
		next, ok := flt.next(cursor)
		if !ok {
			return flt, page, &problem.Problem{Code: problem.InvalidCursor}
		}
		page.before = next
	}
	return flt, page, nil
}

// readLimit reads how many rows a page may have.
func readLimit(f *faults, p param) int {
	return cmp.Or(readParam(f, "limit", p, parseLimit), limitElse)
}

// answerPage sends a page that goes on below the snowflake next, 0 at the end.
func (c *call) answerPage(flt filter, orders []schema.Order, next int64) {
	cursor := ""
	if next > 0 {
		cursor = flt.cursor(next)
	}
	c.answer(http.StatusOK, func(b []byte) []byte { return appendPage(b, orders, cursor) })
}
