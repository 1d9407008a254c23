package ordersvc

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/octopay/octopay/schema"
)

// A Fault is a column of an order's row, or of an entry of its journal, that no creation
// and no operation could have left so. It names no text that people or other systems
// wrote: such a column differs, and how is not said.
type Fault struct {
	Seq       int64  // of the entry; 0: it is in the order's row
	Column    string // as it is stored
	Has, Want string // both values; "" where What says it
	What      string // what is wrong with the column, a predicate
}

// Text returns the fault without its place: "status is paid; should be created".
func (f *Fault) Text() string {
	if f.What == "" {
		return fmt.Sprintf("%s is %s; should be %s", f.Column, f.Has, f.Want)
	}
	return f.Column + " " + f.What
}

// Error returns the text of the fault with the entry that it is in.
func (f *Fault) Error() string {
	if f.Seq == 0 {
		return f.Text()
	}
	return fmt.Sprintf("entry %d: %s", f.Seq, f.Text())
}

// differs is a column that has another value than it should. It holds no text of others.
func differs(seq int64, column string, has, want any) *Fault {
	return &Fault{Seq: seq, Column: column, Has: shown(has), Want: shown(want)}
}

// breaks is a column that breaks a rule.
func breaks(seq int64, column, what string) *Fault {
	return &Fault{Seq: seq, Column: column, What: what}
}

// shown returns a stored value as people read it.
func shown(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case schema.Millis:
		if v == 0 {
			return "null"
		}
		return v.SQL() + " UTC"
	case schema.CloseReason:
		if v == 0 {
			return "null"
		}
	case string:
		if v == "" {
			return "null"
		}
	}
	return fmt.Sprint(v)
}

// Audit returns what is wrong with an order, given its whole journal by rising seq: a row
// that isn't the fold of its creation and its journal, entries that can't follow each
// other or that no operation writes, and columns of the creation that none has. Where the
// fold ends at an entry, what comes after it is not judged.
//
// What one row alone says, and nothing else repeats, is judged by its form: of the order
// out_trade_no, subject, metadata, expires_at and who asked for it; of an entry actor, key_id,
// request_id, and the reason and the channel_refund_no that people and channels give. Another
// text of the same form is not found here. Seqs rise by one. The place of the order is the
// caller's to judge.
func Audit(row schema.Order, journal []schema.Entry) (faults []Fault) {
	add := func(f *Fault) {
		if f != nil {
			faults = append(faults, *f)
		}
	}
	for _, f := range badCreation(&row) {
		add(f)
	}
	l := Life{Order: Born(row)}
	for i := range journal {
		e := &journal[i]
		if want := l.Order.Ver + 1; e.Seq > want {
			add(breaks(e.Seq, "seq", fmt.Sprintf("is %d; the entry before has %d, so %d is missing", e.Seq, l.Order.Ver, want)))
		}
		stop := advance(&l.Order, e)
		if stop == nil {
			for _, f := range l.badEntry(e) {
				add(f)
			}
			l.Journal = journal[:i+1]
			continue
		}
		add(stop)
		// The row can't be compared with what its journal makes, but with itself.
		if row.PaidAmount < 0 || row.PaidAmount > row.Amount {
			add(breaks(0, "paid_amount", fmt.Sprintf("is %d, of %d", row.PaidAmount, row.Amount)))
		}
		if row.RefundedAmount < 0 || row.RefundedAmount > row.PaidAmount {
			add(breaks(0, "refunded_amount", fmt.Sprintf("is %d, of %d that were paid", row.RefundedAmount, row.PaidAmount)))
		}
		if last := journal[len(journal)-1].Seq; row.Ver != last {
			add(differs(0, "ver", row.Ver, last))
		}
		return faults
	}
	if len(journal) == 0 && row.UpdatedAt > l.Order.UpdatedAt {
		l.Order.UpdatedAt = row.UpdatedAt // when it was written
	}
	has, want := row.Values(), l.Order.Values()
	for i, column := range schema.OrderColumns {
		switch {
		case has[i] == want[i]:
		case isText(column, has[i]) || isText(column, want[i]):
			add(breaks(0, column, "differs from what its journal makes"))
		default:
			add(differs(0, column, has[i], want[i]))
		}
	}
	return faults
}

// isText reports whether a value is what people or other systems wrote.
func isText(column string, v any) bool {
	_, is := v.(string)
	return is && column != "currency"
}

// The ranges of the contract, once more on purpose: what was stored is judged by what is
// written down here, and not by what the program that takes requests has them be today.
const (
	amountMost    = 1<<53 - 1
	expiresLeast  = schema.Millis(60_000)
	expiresMost   = schema.Millis(86_400_000)
	subjectMost   = 256 // code points, of a reason too
	metadataMost  = 16  // pairs
	numberMost    = 64  // characters of an out_trade_no, and of the ids of a request and a key
	inNumber      = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_.:|*-"
	inRequestID   = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_.-"
	capitals      = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	currencyChars = 3
)

// badCreation returns what is wrong with the columns that an order has from its creation
// on.
func badCreation(o *schema.Order) (faults []*Fault) {
	wrong := func(is bool, column, what string) {
		if is {
			faults = append(faults, breaks(0, column, what))
		}
	}
	var pairs map[string]string
	made := o.CreatedAt()
	wrong(o.ID < 1, "id", fmt.Sprintf("is %d; ids begin with 1", o.ID))
	wrong(o.UID < 1, "uid", fmt.Sprintf("is %d; uids begin with 1", o.UID))
	wrong(o.BID < 1, "bid", fmt.Sprintf("is %d; bids begin with 1", o.BID))
	wrong(!made1to(o.OutTradeNo, numberMost, inNumber) || o.OutTradeNo[0] == '-', "out_trade_no", "is none that a creation takes")
	wrong(o.Amount < 1 || o.Amount > amountMost, "amount", fmt.Sprintf("is %d; should be 1 to %d", o.Amount, int64(amountMost)))
	wrong(len(o.Currency) != currencyChars || !made1to(o.Currency, currencyChars, capitals), "currency", "is not three capital letters")
	wrong(o.Subject == "" || !isPhrase(o.Subject), "subject", "is empty, too long, or no text")
	wrong(json.Unmarshal([]byte(o.Metadata), &pairs) != nil || pairs == nil || len(pairs) > metadataMost, "metadata", "is no JSON object of at most 16 texts")
	wrong(o.CreatedBy != "app" && o.CreatedBy != "merchant", "created_by", "is neither app nor merchant")
	wrong(!made1to(o.RequestID, numberMost, inRequestID), "request_id", "is none that a request has")
	wrong(o.ExpiresAt < made+expiresLeast || o.ExpiresAt > made+expiresMost, "expires_at",
		fmt.Sprintf("is %s; the order was made at %s and expires 60 to 86400 seconds later", shown(o.ExpiresAt), shown(made)))
	return faults
}

// made1to reports whether s has 1 to most characters, all of a set of ASCII.
func made1to(s string, most int, of string) bool {
	return s != "" && len(s) <= most && strings.Trim(s, of) == ""
}

// isPhrase reports whether s is what a subject or a reason can be.
func isPhrase(s string) bool {
	return utf8.ValidString(s) && utf8.RuneCountInString(s) <= subjectMost
}

// badEntry returns what is wrong with an entry that the order could take, in columns that
// the order's row doesn't show. l is the order with it, and the journal before it.
func (l *Life) badEntry(e *schema.Entry) (faults []*Fault) {
	o := &l.Order
	wrong := func(is bool, column, what string) {
		if is {
			faults = append(faults, breaks(e.Seq, column, what))
		}
	}
	is := func(amount int64, currency string) {
		if e.Amount != amount {
			faults = append(faults, differs(e.Seq, "amount", e.Amount, amount))
		}
		if e.Currency != currency {
			faults = append(faults, differs(e.Seq, "currency", e.Currency, currency))
		}
	}
	op := ""
	switch e.Kind {
	case schema.KindPaid:
		op = "pay:" + e.Ref
		channel, number := ParseRef(e.Ref)
		wrong(channel == "" || number == "", "ref", "names no payment")
	case schema.KindClosed:
		if op = "close"; e.Reason == schema.Expired.String() {
			op = "expire"
		}
		is(0, "")
	case schema.KindRefunded:
		op = "refund:" + e.Ref
		is(e.Amount, o.Currency)
		count := 1
		for i := range l.Journal {
			if l.Journal[i].Kind == schema.KindRefunded {
				count++
			}
		}
		wrong(count > RefundsMax, "kind", fmt.Sprintf("makes it refund %d of this order; %d are the most", count, RefundsMax))
	case schema.KindRefundSucceeded, schema.KindRefundFailed:
		result := RefundSucceeded
		if e.Kind == schema.KindRefundFailed {
			result = RefundFailed
		}
		op = "refund_result:" + e.Ref + ":" + string(result)
		r, ok := l.Refund(e.Ref)
		wrong(!ok, "ref", "is of no refund before it")
		if ok {
			is(r.Entry.Amount, r.Entry.Currency)
			wrong(r.Status == RefundSucceeded, "kind", "is a result of a refund that has succeeded before")
		}
	case schema.KindUnappliedPayment:
		op = fmt.Sprintf("unapplied:%s:%d%s", e.Ref, e.Amount, e.Currency)
		wrong(e.Amount < 1, "amount", fmt.Sprintf("is %d; a payment has at least 1", e.Amount))
		wrong(e.Reason != l.unappliedKind(e), "reason", "is another than the order and the payment make")
	case schema.KindUnappliedRefunded, schema.KindUnappliedVoided:
		name := "unapplied_refund"
		if e.Kind == schema.KindUnappliedVoided {
			name = "unapplied_void"
		}
		seq := settledSeq(e)
		op = fmt.Sprintf("%s:%d", name, seq)
		u, ok := l.Unapplied(seq)
		wrong(!ok, "op", "settles no unapplied payment before it")
		if ok {
			is(u.Entry.Amount, u.Entry.Currency)
			wrong(u.State != UnappliedOpen, "op", "settles an unapplied payment that was settled before")
		}
		if e.Kind == schema.KindUnappliedVoided {
			wrong(e.Ref != "", "ref", "is that of a refund; it was voided")
		}
	}
	if e.Kind == schema.KindRefunded || e.Kind == schema.KindUnappliedRefunded {
		_, taken := l.Refund(e.Ref)
		wrong(e.Ref == "" || taken, "ref", "is no number of its own for a refund")
	}
	switch e.Kind {
	case schema.KindRefunded, schema.KindUnappliedRefunded, schema.KindUnappliedVoided:
		wrong(!isPhrase(e.Reason), "reason", "is too long, or no text")
	case schema.KindPaid, schema.KindRefundSucceeded, schema.KindRefundFailed:
		wrong(e.Reason != "", "reason", "is set; an entry of this kind has none")
	}
	switch e.Actor {
	case "app", "merchant", "channel", "ops", "expiry":
	default:
		wrong(true, "actor", "is none of app, merchant, channel, ops and expiry")
	}
	wrong(e.KeyID != "" && !made1to(e.KeyID, numberMost, inRequestID), "key_id", "is none that a key has")
	wrong(!made1to(e.RequestID, numberMost, inRequestID), "request_id", "is none that a request has")
	results := e.Kind == schema.KindRefundSucceeded || e.Kind == schema.KindRefundFailed
	wrong(e.ChannelRefundNo != "" && !results, "channel_refund_no", "is set; only a refund's result has one")
	wrong(e.ChannelRefundNo != "" && results && !made1to(e.ChannelRefundNo, numberMost, inNumber), "channel_refund_no", "is none that a channel gives")
	wrong((e.PaidAt != 0) != (e.Kind == schema.KindPaid), "paid_at", fmt.Sprintf("is %s; an entry of kind paid has one, and no other", shown(e.PaidAt)))
	wrong(e.Op != op, "op", "is another operation than its kind and its other columns say")
	return faults
}

// unappliedKind says why a payment could not be applied; "" if it could.
func (l *Life) unappliedKind(e *schema.Entry) string {
	o := &l.Order
	switch moves[schema.KindPaid][o.Status] {
	case late:
		return UnappliedLate
	case duplicate:
		return UnappliedDuplicate
	}
	switch {
	case e.Currency != o.Currency:
		return UnappliedCurrency
	case e.Amount != o.Amount:
		return UnappliedAmount
	}
	return ""
}
