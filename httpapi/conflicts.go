package httpapi

import (
	"math"
	"strconv"

	"github.com/octopay/octopay/httpapi/problem"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/syncer/conflict"
)

// listConflicts is GET /v1/admin/conflicts: the one that was found last comes first.
func listConflicts(c *call) error {
	var f faults
	c.refuseBody(&f)
	params := c.query(&f, "limit", "cursor", "kind")
	q := conflict.Query{Before: math.MaxInt64, Limit: readLimit(&f, params[0])}
	q.Kind = readParam(&f, "kind", params[2], func(s string) (conflict.Kind, flaw) {
		kind, err := conflict.ParseKind(s)
		if err != nil {
			return 0, flawConflict
		}
		return kind, fine
	})
	if err := f.err(); err != nil {
		return err
	}
	flt := filter{list: listOfConflicts, status: byte(q.Kind)}
	if cursor := params[1].value; cursor != "" {
		next, ok := flt.next(cursor)
		if !ok {
			return &problem.Problem{Code: problem.InvalidCursor}
		}
		q.Before = next
	}
	ctx, cancel := c.context()
	defer cancel()
	page, err := c.api.config.Conflicts.List(ctx, q)
	if err != nil {
		return err
	}
	next := ""
	if page.Next > 0 {
		next = flt.cursor(page.Next)
	}
	c.completeUntil(page.CompleteUntil)
	c.answer(200, func(b []byte) []byte { return appendList(b, page.Conflicts, next, appendConflict) })
	return nil
}

// appendConflict appends a conflict with its orders, the oldest first.
func appendConflict(b []byte, k *conflict.Conflict) []byte {
	b = append(b, `{"conflict_id":"`...)
	b = strconv.AppendInt(b, k.ID, 10)
	b = appendText(append(b, `","kind":`...), k.Kind.String())
	bid, outTradeNo, channel, tradeNo := "", "", "", ""
	if k.Kind == conflict.OutTradeNo {
		bid, outTradeNo = strconv.FormatInt(k.BID, 10), k.Number
	} else {
		channel, tradeNo = ordersvc.ParseRef(k.Number)
	}
	b = appendTextOrNull(append(b, `,"bid":`...), bid)
	b = appendTextOrNull(append(b, `,"out_trade_no":`...), outTradeNo)
	b = appendTextOrNull(append(b, `,"channel":`...), channel)
	b = appendTextOrNull(append(b, `,"channel_trade_no":`...), tradeNo)
	b = appendTime(append(b, `,"found_at":`...), k.FoundAt)
	b = append(b, `,"orders":[`...)
	for i := range k.Orders {
		o := &k.Orders[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"order_id":"`...)
		b = idgen.Make(o.UID, o.ID).AppendTo(b)
		b = strconv.AppendInt(append(b, `","uid":"`...), o.UID, 10)
		b = strconv.AppendInt(append(b, `","bid":"`...), o.BID, 10)
		b = append(b, `","seq":`...)
		if o.Seq == 0 {
			b = append(b, "null"...)
		} else {
			b = strconv.AppendInt(b, o.Seq, 10)
		}
		b = appendTime(append(b, `,"found_at":`...), o.FoundAt)
		b = append(b, '}')
	}
	return append(b, "]}"...)
}
