package httpapi

import (
	"net/http"

	"github.com/octopay/octopay/httpapi/problem"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/syncer/mirror"
)

// Lists of what happened to orders: rows are entries of journals, newest order first and
// of one order the newest entry. What a row says of its present state is a fold of the few
// entries of its order's journal that say so, as the mirror has them.

// unappliedStates are the states that a list of unapplied payments can be asked for; their
// numbers are those in a filter.
var unappliedStates = []ordersvc.UnappliedState{"", ordersvc.UnappliedOpen, ordersvc.UnappliedRefunded, ordersvc.UnappliedVoided}

// refundStates are those of a list of refunds. Of which entries the list is then made is
// the reason why a refund that failed is found among millions that didn't: each refund has
// one entry that accepted it, and at most one of each result.
var refundStates = []struct {
	status ordersvc.RefundStatus
	kinds  []schema.Kind
}{
	{"", []schema.Kind{schema.KindRefunded, schema.KindUnappliedRefunded}},
	{ordersvc.RefundAccepted, []schema.Kind{schema.KindRefunded, schema.KindUnappliedRefunded}},
	{ordersvc.RefundSucceeded, []schema.Kind{schema.KindRefundSucceeded}},
	{ordersvc.RefundFailed, []schema.Kind{schema.KindRefundFailed}},
}

// listUnapplied is GET /v1/merchants/{bid}/unapplied-payments.
func listUnapplied(c *call) error {
	var f faults
	flt := filter{list: listOfUnapplied}
	var w flaw
	if flt.owner, w = parseKey(c.params[0]); w.bad() {
		f.add("bid", w)
	}
	return c.listUnapplied(&f, flt)
}

// listAllUnapplied is GET /v1/admin/unapplied-payments.
func listAllUnapplied(c *call) error {
	return c.listUnapplied(&faults{}, filter{list: listOfAllUnapplied})
}

func (c *call) listUnapplied(f *faults, flt filter) error {
	flt, q, err := c.readEntries(f, flt, "state", func(s string) (byte, flaw) {
		for i, state := range unappliedStates[1:] {
			if s == string(state) {
				return byte(i + 1), fine
			}
		}
		return 0, flawState
	})
	if err != nil {
		return err
	}
	if err := c.withinRate(flt.owner); err != nil {
		return err
	}
	if flt.owner != 0 && !c.sees(flt.owner) {
		return &problem.Problem{Code: problem.MerchantNotFound}
	}
	q.Kinds = []schema.Kind{schema.KindUnappliedPayment}
	q.Beside = func(e *schema.Entry) mirror.Beside { return mirror.Beside{Ops: ordersvc.UnappliedOps(e.Seq)} }
	fold := func(e *schema.Entry, journal []schema.Entry) (ordersvc.Unapplied, bool) {
		life := ordersvc.Life{Journal: journal}
		return life.Unapplied(e.Seq)
	}
	if flt.status != 0 {
		q.Match = func(e *schema.Entry, journal []schema.Entry) bool {
			u, _ := fold(e, journal)
			return u.State == unappliedStates[flt.status]
		}
	}
	return answerEntries(c, flt, q, fold, appendUnapplied)
}

// listAllRefunds is GET /v1/admin/refunds.
func listAllRefunds(c *call) error {
	flt, q, err := c.readEntries(&faults{}, filter{list: listOfAllRefunds}, "status", func(s string) (byte, flaw) {
		for i, state := range refundStates[1:] {
			if s == string(state.status) {
				return byte(i + 1), fine
			}
		}
		return 0, flawRefund
	})
	if err != nil {
		return err
	}
	q.Kinds = refundStates[flt.status].kinds
	q.Beside = func(e *schema.Entry) mirror.Beside {
		return mirror.Beside{Ref: e.Ref, Kinds: ordersvc.RefundKinds()}
	}
	fold := func(e *schema.Entry, journal []schema.Entry) (ordersvc.Refund, bool) {
		life := ordersvc.Life{Journal: journal}
		return life.Refund(e.Ref)
	}
	if flt.status != 0 {
		q.Match = func(e *schema.Entry, journal []schema.Entry) bool {
			r, ok := fold(e, journal)
			return ok && r.Status == refundStates[flt.status].status
		}
	}
	return answerEntries(c, flt, q, fold, appendRefundOfAll)
}

// readEntries reads the parameters of a list of entries, of which one is a state.
func (c *call) readEntries(f *faults, flt filter, state string, parse func(string) (byte, flaw)) (filter, mirror.EntryQuery, error) {
	c.refuseBody(f)
	params := c.query(f, "limit", "cursor", state)
	q := mirror.EntryQuery{BID: flt.owner, Before: mirror.Newest, Limit: readLimit(f, params[0])}
	flt.status = readParam(f, state, params[2], parse)
	if err := f.err(); err != nil {
		return flt, q, err
	}
	if cursor := params[1].value; cursor != "" {
		next, ok := flt.nextEntry(cursor)
		if !ok {
			return flt, q, &problem.Problem{Code: problem.InvalidCursor}
		}
		q.Before = next
	}
	return flt, q, nil
}

// answerEntries sends a page of entries, each as fold makes it of its journal's part
// and appendRow writes it.
func answerEntries[T any](c *call, flt filter, q mirror.EntryQuery, fold func(*schema.Entry, []schema.Entry) (T, bool), appendRow func([]byte, *T) []byte) error {
	ctx, cancel := c.context()
	defer cancel()
	page, err := c.api.config.Mirror.Entries(ctx, q)
	if err != nil {
		return err
	}
	rows := make([]T, 0, len(page.Found))
	for i := range page.Found {
		if row, ok := fold(&page.Found[i].Entry, page.Found[i].Journal); ok {
			rows = append(rows, row)
		}
	}
	next := ""
	if page.Next != (mirror.Position{}) {
		next = flt.cursor(page.Next.Order, page.Next.Seq)
	}
	c.completeUntil(page.CompleteUntil)
	c.answer(http.StatusOK, func(b []byte) []byte { return appendList(b, rows, next, appendRow) })
	return nil
}
