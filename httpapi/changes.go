package httpapi

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/octopay/octopay/httpapi/problem"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/schema"
)

// readChange reads what all changes of an order have: the query's uid, and a body that is
// an object of these fields, of which the first so many are required. Without required
// ones there may be no body.
func (c *call) readChange(names []string, required int, read func(d *decoder, field int) (flaw, error)) (ordersvc.Change, error) {
	var f faults
	q := c.query(&f, "uid")
	change := ordersvc.Change{
		UID: readParam(&f, "uid", q[0], parseKey),
		BID: c.key.BID, // of a merchant; otherwise 0
		By:  ordersvc.By{Actor: c.key.Role.String(), KeyID: c.key.ID, RequestID: c.id},
	}
	if c.r.ContentLength != 0 || required > 0 {
		err := c.read(bodyMax, func(body []byte) error {
			if err := c.signed(body); err != nil {
				return err
			}
			return decodeObject(body, names, required, &f, read)
		})
		if err != nil {
			return change, err
		}
	}
	if err := f.err(); err != nil {
		return change, err
	}
	id, err := c.order(change.UID)
	change.Order = id
	return change, err
}

// change does a change. What it returns is done or repeated; else the error is the answer.
func (c *call) change(change ordersvc.Change, do ordersvc.Operation) (ordersvc.Changed, error) {
	change.Do = do
	ctx, cancel := c.context()
	defer cancel()
	r, err := c.api.config.Orders.Change(ctx, change)
	if err != nil {
		p := problem.From(err, true)
		p.Recorded = r.Entry.Kind == schema.KindUnappliedPayment
		if r.Life.Order.Status != 0 && p.Code.Status() == http.StatusConflict && p.Current == "" {
			p.Current = r.Life.Order.Status.String()
		}
		return r, p
	}
	if r.Replayed {
		c.w.Header()["Idempotent-Replayed"] = yes
	}
	return r, nil
}

// payOrder is POST /v1/orders/{order_id}/pay: a channel says that money came.
func payOrder(c *call) error {
	var p ordersvc.Pay
	change, err := c.readChange([]string{"channel", "channel_trade_no", "amount", "currency", "paid_at"}, 4, func(d *decoder, field int) (w flaw, err error) {
		switch field {
		case 0:
			p.Channel, w, err = d.textField(checkChannel)
		case 1:
			p.TradeNo, w, err = d.textField(checkNumber[[]byte])
		case 2:
			p.Amount, w, err = d.integer(1, amountMax, flawAmountRange)
		case 3:
			p.Currency, w, err = d.textField(checkCurrency)
		case 4:
			p.PaidAt, w, err = d.time()
		}
		return w, err
	})
	if err != nil {
		return err
	}
	r, err := c.change(change, p)
	if err != nil {
		return err
	}
	if r.Entry.Kind == schema.KindUnappliedPayment {
		c.w.Header()["X-Late-Payment"] = yes
	}
	c.answer(http.StatusOK, func(b []byte) []byte { return appendOrder(b, &r.Life.Order) })
	return nil
}

// closeOrder is POST /v1/orders/{order_id}/close.
func closeOrder(c *call) error {
	do := ordersvc.Close{Reason: schema.ByMerchant}
	change, err := c.readChange([]string{"reason"}, 0, func(d *decoder, _ int) (flaw, error) {
		_, w, err := d.textField(func(s []byte) flaw {
			switch string(s) {
			case "merchant":
			case "buyer":
				do.Reason = schema.ByBuyer
			default:
				return flawCloseReason
			}
			return fine
		})
		return w, err
	})
	if err != nil {
		return err
	}
	r, err := c.change(change, do)
	if err != nil {
		return err
	}
	c.answer(http.StatusOK, func(b []byte) []byte { return appendOrder(b, &r.Life.Order) })
	return nil
}

// refundOrder is POST /v1/orders/{order_id}/refunds.
func refundOrder(c *call) error {
	if err := c.mayRefund(); err != nil {
		return err
	}
	var do ordersvc.Return
	change, err := c.readChange([]string{"out_refund_no", "amount", "reason"}, 2, func(d *decoder, field int) (w flaw, err error) {
		switch field {
		case 0:
			do.No, w, err = d.textField(checkRefundNumber)
		case 1:
			do.Amount, w, err = d.integer(1, amountMax, flawAmountRange)
		case 2:
			do.Reason, w, err = d.textField(checkReason)
		}
		return w, err
	})
	if err != nil {
		return err
	}
	r, err := c.change(change, do)
	if err != nil {
		return err
	}
	return c.answerRefund(&r, do.No, http.StatusCreated, nil)
}

// answerRefund answers with a refund and its order, and with what else there is. When it
// was made now, status is 201.
func (c *call) answerRefund(r *ordersvc.Changed, no string, status int, more func([]byte) []byte) error {
	refund, _ := r.Life.Refund(no)
	switch {
	case status != http.StatusCreated:
	case r.Replayed:
		status = http.StatusOK
	default:
		c.w.Header()["Location"] = []string{"/v1/orders/" + c.orderID.String() + "/refunds/" + url.PathEscape(no)}
	}
	c.answer(status, func(b []byte) []byte {
		b = appendRefund(append(b, `{"refund":`...), &r.Life.Order, &refund)
		if more != nil {
			b = more(b)
		}
		b = appendOrder(append(b, `,"order":`...), &r.Life.Order)
		return append(b, '}')
	})
	return nil
}

// settleRefund is POST /v1/orders/{order_id}/refunds/{out_refund_no}/result.
func settleRefund(c *call) error {
	do := ordersvc.ReturnResult{No: c.params[1]}
	change, err := c.readChange([]string{"result", "channel_refund_no", "out_refund_no"}, 1, func(d *decoder, field int) (w flaw, err error) {
		switch field {
		case 1:
			do.ChannelRefundNo, w, err = d.textField(checkNumber[[]byte])
			return w, err
		case 2: // the signature is of the body, not of the path
			_, w, err = d.textField(func(s []byte) flaw {
				if string(s) != do.No {
					return flawOtherRefund
				}
				return fine
			})
			return w, err
		}
		_, w, err = d.textField(func(s []byte) flaw {
			switch ordersvc.RefundStatus(s) {
			case ordersvc.RefundSucceeded:
				do.Succeeded = true
			case ordersvc.RefundFailed:
			default:
				return flawResult
			}
			return fine
		})
		return w, err
	})
	if err != nil {
		return err
	}
	r, err := c.change(change, do)
	if err != nil {
		return err
	}
	return c.answerRefund(&r, do.No, http.StatusOK, nil)
}

// refundUnapplied is POST /v1/orders/{order_id}/unapplied-payments/{seq}/refund.
func refundUnapplied(c *call) error {
	if err := c.mayRefund(); err != nil {
		return err
	}
	do := ordersvc.ReturnUnapplied{Seq: c.seq()}
	change, err := c.readChange([]string{"out_refund_no", "reason"}, 1, func(d *decoder, field int) (w flaw, err error) {
		if field == 0 {
			do.No, w, err = d.textField(checkRefundNumber)
		} else {
			do.Reason, w, err = d.textField(checkReason)
		}
		return w, err
	})
	if err != nil {
		return err
	}
	r, err := c.settle(change, do, do.Seq)
	if err != nil {
		return err
	}
	return c.answerRefund(&r, do.No, http.StatusCreated, func(b []byte) []byte {
		u, _ := r.Life.Unapplied(do.Seq)
		return appendUnapplied(append(b, `,"unapplied_payment":`...), &u)
	})
}

// voidUnapplied is POST /v1/orders/{order_id}/unapplied-payments/{seq}/void.
func voidUnapplied(c *call) error {
	do := ordersvc.VoidUnapplied{Seq: c.seq()}
	change, err := c.readChange([]string{"reason"}, 1, func(d *decoder, _ int) (w flaw, err error) {
		do.Reason, w, err = d.textField(checkReason)
		return w, err
	})
	if err != nil {
		return err
	}
	r, err := c.settle(change, do, do.Seq)
	if err != nil {
		return err
	}
	u, _ := r.Life.Unapplied(do.Seq)
	c.answer(http.StatusOK, func(b []byte) []byte {
		b = appendUnapplied(append(b, `{"unapplied_payment":`...), &u)
		b = appendOrder(append(b, `,"order":`...), &r.Life.Order)
		return append(b, '}')
	})
	return nil
}

// seq reads the number of an unapplied payment; 0, which none has, for what is none.
func (c *call) seq() int64 {
	seq, _ := parseKey(c.params[1])
	return seq
}

// settle is change for an unapplied payment, whose state says why it can't be.
func (c *call) settle(change ordersvc.Change, do ordersvc.Operation, seq int64) (ordersvc.Changed, error) {
	r, err := c.change(change, do)
	var p *problem.Problem
	if errors.As(err, &p) && p.Code == problem.UnappliedPaymentSettled {
		u, _ := r.Life.Unapplied(seq)
		p.Current = string(u.State)
	}
	return r, err
}

// listRefunds is GET /v1/orders/{order_id}/refunds: all of them, which are few.
func listRefunds(c *call) error {
	life, err := c.readLife()
	if err != nil {
		return err
	}
	all := life.Refunds()
	c.answer(http.StatusOK, func(b []byte) []byte {
		b = append(b, `{"data":[`...)
		for i := range all {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendRefund(b, &life.Order, &all[i])
		}
		return append(b, `],"has_more":false,"next_cursor":null}`...)
	})
	return nil
}

// getRefund is GET /v1/orders/{order_id}/refunds/{out_refund_no}.
func getRefund(c *call) error {
	life, err := c.readLife()
	if err != nil {
		return err
	}
	refund, ok := life.Refund(c.params[1])
	if !ok {
		return &problem.Problem{Code: problem.RefundNotFound}
	}
	c.answer(http.StatusOK, func(b []byte) []byte { return appendRefund(b, &life.Order, &refund) })
	return nil
}

// readLife reads the order of the path with its journal.
func (c *call) readLife() (ordersvc.Life, error) {
	var f faults
	c.refuseBody(&f)
	q := c.query(&f, "uid")
	uid := readParam(&f, "uid", q[0], parseKey)
	if err := f.err(); err != nil {
		return ordersvc.Life{}, err
	}
	id, err := c.order(uid)
	if err != nil {
		return ordersvc.Life{}, err
	}
	ctx, cancel := c.context()
	defer cancel()
	life, err := c.api.config.Orders.Life(ctx, id)
	if err == nil && (uid != 0 && uid != life.Order.UID || !c.sees(life.Order.BID)) {
		err = ordersvc.ErrNotFound
	}
	return life, err
}
