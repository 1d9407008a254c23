package ordersvc

import (
	"fmt"

	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/schema"
)

// A Change is an operation on one order.
type Change struct {
	Order idgen.ID
	UID   int64 // of the order; 0: whatever it is
	BID   int64 // of the order; 0: whatever it is
	By    By
	Do    Operation
}

// By is who asks for a change.
type By struct {
	Actor     string // app, merchant, channel, ops, expiry
	KeyID     string
	RequestID string
}

// A Changed is the fate of one Change.
type Changed struct {
	// Life is the order and its journal after the change. It is zero when the order
	// isn't there, or when nothing could be learnt.
	Life Life
	// Entry is what recorded the change, now or the first time. It is zero when nothing
	// was recorded.
	Entry schema.Entry
	// Replayed reports that the same change happened before.
	Replayed bool
	// Err is nil, or why the order's status and amounts are as they were: one of this
	// package's errors, or why nothing could be learnt. Entry may record it all the same.
	Err error
}

// An Operation is what a Change does. Its fields are valid as the HTTP contract says.
type Operation interface {
	// decide says what becomes of l: nothing of it is changed.
	decide(l *Life, now schema.Millis) decision
}

// A decision is what an operation does to an order.
type decision struct {
	entry   schema.Entry  // to write, if it has an Op; its seq, ids, From and By are not set
	repeats *schema.Entry // the entry of the same operation, done before
	err     error         // the answer, though an entry may be written or repeated
}

// Apply decides a change of l at the store's time now, and does it. Errors of the
// operation itself are in Changed. The entry to write is the last of l.Journal, if that
// has grown.
//
// It is the whole state machine; stores call it under the order's lock.
func (l *Life) Apply(c *Change, now schema.Millis) Changed {
	o := &l.Order
	if o.OrderID() != c.Order || (c.UID != 0 && c.UID != o.UID) || (c.BID != 0 && c.BID != o.BID) {
		return Changed{Err: ErrNotFound}
	}
	d := c.Do.decide(l, now)
	if d.repeats != nil {
		return Changed{Life: *l, Entry: *d.repeats, Replayed: true, Err: d.err}
	}
	if d.entry.Op == "" {
		return Changed{Life: *l, Replayed: d.err == nil, Err: d.err}
	}
	e := d.entry
	e.OrderID, e.UID, e.BID, e.From = o.ID, o.UID, o.BID, o.Status
	if e.To == 0 {
		e.To = e.From
	}
	e.Seq, e.RecordedAt = o.Ver+1, max(now, o.UpdatedAt)
	e.Actor, e.KeyID, e.RequestID = c.By.Actor, c.By.KeyID, c.By.RequestID
	if e.Kind == schema.KindPaid && e.PaidAt == 0 {
		e.PaidAt = e.RecordedAt
	}
	if f := advance(o, &e); f != nil {
		return Changed{Err: fmt.Errorf("ordersvc: the order can't take its own change: %w", f)}
	}
	l.Journal = append(l.Journal, e)
	return Changed{Life: Life{*o, l.Journal[:len(l.Journal):len(l.Journal)]}, Entry: e, Err: d.err}
}

// unappliedErrs are the answers to a payment that could not be applied, by its kind.
// That to a late one is the closed order.
var unappliedErrs = map[string]error{
	UnappliedDuplicate: ErrAlreadyPaid,
	UnappliedAmount:    ErrAmountMismatch,
	UnappliedCurrency:  ErrCurrencyMismatch,
}

// A Pay is a channel's word that an order was paid.
type Pay struct {
	Channel, TradeNo string // together the payment's identity
	Amount           int64
	Currency         string
	PaidAt           schema.Millis // 0: when it is recorded
}

func (p Pay) decide(l *Life, _ schema.Millis) decision {
	o := &l.Order
	applied := o.Channel == p.Channel && o.ChannelTradeNo == p.TradeNo
	same := o.PaidAmount == p.Amount && o.Currency == p.Currency
	ref := Ref(p.Channel, p.TradeNo)
	if applied && same {
		return decision{repeats: l.find("pay:" + ref)}
	}
	unapplied := fmt.Sprintf("unapplied:%s:%d%s", ref, p.Amount, p.Currency)
	if e := l.find(unapplied); e != nil {
		return decision{repeats: e, err: unappliedErrs[e.Reason]}
	}
	if l.spent(ref) {
		return decision{err: ErrTradeNoReused}
	}
	e := schema.Entry{Amount: p.Amount, Currency: p.Currency, Ref: ref}
	kind := ""
	switch moves[schema.KindPaid][o.Status] {
	case pays:
		switch {
		case p.Currency != o.Currency:
			kind = UnappliedCurrency
		case p.Amount != o.Amount:
			kind = UnappliedAmount
		default:
			e.Op, e.Kind, e.To, e.PaidAt = "pay:"+ref, schema.KindPaid, schema.Paid, p.PaidAt
			return decision{entry: e}
		}
	case duplicate:
		kind = UnappliedDuplicate
	case late:
		kind = UnappliedLate
	}
	e.Op, e.Kind, e.Reason = unapplied, schema.KindUnappliedPayment, kind
	return decision{entry: e, err: unappliedErrs[kind]}
}

// spent reports whether the money of the payment that is called so outside was applied, or
// given back as an unapplied one. Whatever else was or will be told of it is the same
// money with another amount or currency, and nothing of that is given back.
func (l *Life) spent(ref string) bool {
	if ref == Ref(l.Order.Channel, l.Order.ChannelTradeNo) {
		return true
	}
	for i := range l.Journal {
		if e := &l.Journal[i]; e.Kind == schema.KindUnappliedRefunded {
			if u, ok := l.Unapplied(settledSeq(e)); ok && u.Entry.Ref == ref {
				return true
			}
		}
	}
	return false
}

// A Close ends an order that isn't paid.
type Close struct{ Reason schema.CloseReason } // by the merchant or the buyer

func (c Close) decide(l *Life, _ schema.Millis) decision {
	switch moves[schema.KindClosed][l.Order.Status] {
	case closes:
		return decision{entry: closing("close", c.Reason)}
	case isPaid:
		return decision{err: ErrAlreadyPaid}
	}
	return decision{repeats: l.closed()}
}

func closing(op string, reason schema.CloseReason) schema.Entry {
	return schema.Entry{Op: op, Kind: schema.KindClosed, To: schema.Closed, Reason: reason.String()}
}

// closed returns the entry that closed the order.
func (l *Life) closed() *schema.Entry {
	for i := range l.Journal {
		if l.Journal[i].Kind == schema.KindClosed {
			return &l.Journal[i]
		}
	}
	return nil
}

// An Expire closes an order that wasn't paid in time. It is right only if the order is
// still created, and only from its expires_at and half a minute on, by the store's
// clock; else nothing happens.
type Expire struct{}

func (Expire) decide(l *Life, now schema.Millis) decision {
	if moves[schema.KindClosed][l.Order.Status] != closes || now < l.Order.ExpiresAt+ExpiryGrace {
		return decision{err: ErrNotExpired}
	}
	return decision{entry: closing("expire", schema.Expired)}
}

// A Return sends back a part of the payment, or all of it.
type Return struct {
	No     string // unique within the order
	Amount int64
	Reason string
}

func (r Return) decide(l *Life, _ schema.Millis) decision {
	o := &l.Order
	if before, ok := l.Refund(r.No); ok {
		if before.Unapplied == 0 && before.Entry.Amount == r.Amount {
			return decision{repeats: &before.Entry}
		}
		return decision{err: ErrRefundNoReused}
	}
	switch moves[schema.KindRefunded][o.Status] {
	case notPaid:
		return decision{err: ErrNotPaid}
	case isClosed:
		return decision{err: ErrClosed}
	case isSpent:
		return decision{err: ErrFullyRefunded}
	}
	count := 0
	for i := range l.Journal {
		if l.Journal[i].Kind == schema.KindRefunded {
			count++
		}
	}
	left := o.PaidAmount - o.RefundedAmount
	switch {
	case count >= RefundsMax:
		return decision{err: ErrTooManyRefunds}
	case r.Amount > left:
		return decision{err: ErrExceedsPaid}
	}
	e := schema.Entry{
		Op: "refund:" + r.No, Kind: schema.KindRefunded, To: schema.PartiallyRefunded,
		Amount: r.Amount, Currency: o.Currency, Ref: r.No, Reason: r.Reason,
	}
	if r.Amount == left {
		e.To = schema.Refunded
	}
	return decision{entry: e}
}

// A ReturnResult is a channel's word on what became of a refund.
type ReturnResult struct {
	No              string
	Succeeded       bool // else it failed, and may yet succeed
	ChannelRefundNo string
}

func (r ReturnResult) decide(l *Life, _ schema.Millis) decision {
	refund, ok := l.Refund(r.No)
	if !ok {
		return decision{err: ErrRefundNotFound}
	}
	e := schema.Entry{
		Op: "refund_result:" + r.No + ":" + string(RefundFailed), Kind: schema.KindRefundFailed,
		Amount: refund.Entry.Amount, Currency: refund.Entry.Currency, Ref: r.No, ChannelRefundNo: r.ChannelRefundNo,
	}
	if r.Succeeded {
		e.Op, e.Kind = "refund_result:"+r.No+":"+string(RefundSucceeded), schema.KindRefundSucceeded
	}
	if before := l.find(e.Op); before != nil {
		return decision{repeats: before}
	}
	if refund.Status == RefundSucceeded {
		return decision{err: ErrRefundSucceeded}
	}
	return decision{entry: e}
}

// A ReturnUnapplied sends back the whole of an unapplied payment.
type ReturnUnapplied struct {
	Seq    int64 // of the entry that recorded it
	No     string
	Reason string
}

func (r ReturnUnapplied) decide(l *Life, _ schema.Millis) decision {
	u, ok := l.Unapplied(r.Seq)
	switch {
	case !ok:
		return decision{err: ErrUnappliedNotFound}
	case u.State == UnappliedRefunded && u.Settled.Ref == r.No:
		return decision{repeats: &u.Settled}
	case u.State != UnappliedOpen:
		return decision{err: ErrSettled}
	case l.spent(u.Entry.Ref):
		return decision{err: ErrTradeNoReused}
	}
	if _, taken := l.Refund(r.No); taken {
		return decision{err: ErrRefundNoReused}
	}
	return decision{entry: schema.Entry{
		Op: unappliedRefundOp(r.Seq), Kind: schema.KindUnappliedRefunded,
		Amount: u.Entry.Amount, Currency: u.Entry.Currency, Ref: r.No, Reason: r.Reason,
	}}
}

// A VoidUnapplied says that an unapplied payment needs no refund.
type VoidUnapplied struct {
	Seq    int64
	Reason string
}

func (v VoidUnapplied) decide(l *Life, _ schema.Millis) decision {
	u, ok := l.Unapplied(v.Seq)
	switch {
	case !ok:
		return decision{err: ErrUnappliedNotFound}
	case u.State == UnappliedVoided:
		return decision{repeats: &u.Settled}
	case u.State != UnappliedOpen:
		return decision{err: ErrSettled}
	}
	return decision{entry: schema.Entry{
		Op: unappliedVoidOp(v.Seq), Kind: schema.KindUnappliedVoided,
		Amount: u.Entry.Amount, Currency: u.Entry.Currency, Reason: v.Reason,
	}}
}
