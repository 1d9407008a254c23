package e2e_test

import (
	"fmt"
	"strings"
)

// A deed is one call about one order, or the end of its time.
type deed struct {
	kind     string // create, get, pay, close, refund, result, settle, void, expire
	amount   int64
	currency string
	number   string // of a payment or a refund
	seq      int    // of an unapplied payment
	ok       bool   // the refund succeeded
}

// A verdict is what an answer says. Of an order that it has: status, version, and sums.
type verdict struct {
	status   int
	code     string
	replayed bool
	late     bool
	recorded bool
	order    string
}

// A ledger is all that is known of an order, as a text: a line for its creation and one
// for each entry of its journal. It is the reference: the contract's sentences in their
// order, each answered by reading the lines anew. "" is an order that isn't there.
type ledger string

func (l ledger) lines() [][]string {
	var out [][]string
	for _, line := range strings.Split(strings.TrimSuffix(string(l), "\n"), "\n") {
		out = append(out, strings.Fields(line))
	}
	return out
}

func (l ledger) and(format string, args ...any) ledger {
	return l + ledger(fmt.Sprintf(format, args...)) + "\n"
}

// has returns the entry that begins with these words, and its seq; 0: there is none.
func (l ledger) has(words ...string) (line []string, seq int) {
	for i, line := range l.lines() {
		if len(line) >= len(words) && strings.Join(line[:len(words)], " ") == strings.Join(words, " ") {
			return line, i + 1
		}
	}
	return nil, 0
}

// sums returns the order's state: its status, and what was paid and refunded.
func (l ledger) sums() (status string, paid, refunded int64, unapplied int) {
	status = "created"
	for _, line := range l.lines() {
		var n int64
		switch line[0] {
		case "pay":
			_, _ = fmt.Sscan(line[2], &n)
			status, paid = "paid", n
		case "close", "expire":
			status = "closed"
		case "refund":
			_, _ = fmt.Sscan(line[2], &n)
			refunded += n
			status = "partially_refunded"
			if refunded == paid {
				status = "refunded"
			}
		case "unapplied":
			unapplied++
		}
	}
	return status, paid, refunded, unapplied
}

// seen is the order as an answer shows it.
func (l ledger) seen() string {
	status, paid, refunded, unapplied := l.sums()
	return seen(status, int64(len(l.lines())), paid, refunded, int64(unapplied))
}

func seen(status string, version, paid, refunded, unapplied int64) string {
	return fmt.Sprintf("%s v%d paid %d refunded %d unapplied %d", status, version, paid, refunded, unapplied)
}

// do returns what becomes of the order, and the answer.
func (l ledger) do(d deed) (ledger, verdict) {
	yes := func(after ledger, status int) (ledger, verdict) {
		return after, verdict{status: status, replayed: after == l, order: after.seen()}
	}
	no := func(status int, code string) (ledger, verdict) { return l, verdict{status: status, code: code} }
	money := fmt.Sprint(d.amount, d.currency)
	if d.kind == "create" {
		switch line, _ := l.has("create"); {
		case line == nil:
			return yes(l.and("create %s", money), 201)
		case line[1] == money:
			return yes(l, 200)
		}
		return no(409, "out_trade_no_reused")
	}
	born, _ := l.has("create")
	if born == nil {
		return no(404, "order_not_found")
	}
	status, paid, refunded, _ := l.sums()
	switch d.kind {
	case "get":
		_, v := yes(l, 200)
		v.replayed = false
		return l, v
	case "pay":
		return l.pay(d, born[1], status)
	case "close", "expire":
		switch status {
		case "created":
			return yes(l.and("%s", d.kind), 200)
		case "closed":
			return yes(l, 200)
		}
		return no(409, "order_already_paid")
	case "refund":
		if line, _ := l.has("refund", d.number); line != nil && line[2] == fmt.Sprint(d.amount) {
			return yes(l, 200)
		}
		switch {
		case l.refundNumberTaken(d.number):
			return no(409, "out_refund_no_reused")
		case status == "created":
			return no(409, "order_not_paid")
		case status == "closed":
			return no(409, "order_closed")
		case status == "refunded":
			return no(409, "order_fully_refunded")
		case d.amount > paid-refunded:
			return no(422, "refund_exceeds_paid")
		}
		return yes(l.and("refund %s %d", d.number, d.amount), 201)
	case "result":
		word := map[bool]string{true: "succeeded", false: "failed"}[d.ok]
		if !l.refundNumberTaken(d.number) {
			return no(404, "refund_not_found")
		}
		if _, seq := l.has("result", d.number, word); seq > 0 {
			return yes(l, 200)
		}
		if _, seq := l.has("result", d.number, "succeeded"); seq > 0 {
			return no(409, "refund_already_succeeded")
		}
		return yes(l.and("result %s %s", d.number, word), 200)
	}
	return l.settle(d)
}

// pay is a payment of an order created with what is asked.
func (l ledger) pay(d deed, asked, status string) (ledger, verdict) {
	money := fmt.Sprint(d.amount, d.currency)
	if _, seq := l.has("pay", d.number, fmt.Sprint(d.amount), d.currency); seq > 0 {
		return l, verdict{status: 200, replayed: true, order: l.seen()}
	}
	why := ""
	after := l
	if line, seq := l.has("unapplied", d.number, money); seq > 0 {
		why = line[3] // as the first time
	} else {
		if l.spent(d.number) {
			return l, verdict{status: 409, code: "channel_trade_no_reused"}
		}
		switch {
		case status == "closed":
			why = "late"
		case status != "created":
			why = "duplicate"
		case !strings.HasSuffix(asked, d.currency):
			why = "currency"
		case asked != money:
			why = "amount"
		default:
			after = l.and("pay %s %d %s", d.number, d.amount, d.currency)
			return after, verdict{status: 200, order: after.seen()}
		}
		after = l.and("unapplied %s %s %s", d.number, money, why)
	}
	switch why {
	case "late":
		return after, verdict{status: 200, replayed: after == l, late: true, order: after.seen()}
	case "duplicate":
		return after, verdict{status: 409, code: "order_already_paid", recorded: true}
	}
	return after, verdict{status: 422, code: why + "_mismatch", recorded: true}
}

// settle refunds or voids an unapplied payment.
func (l ledger) settle(d deed) (ledger, verdict) {
	lines := l.lines()
	if d.seq > len(lines) || lines[d.seq-1][0] != "unapplied" {
		return l, verdict{status: 404, code: "unapplied_payment_not_found"}
	}
	seq := fmt.Sprint(d.seq)
	settled, _ := l.has("settle", seq)
	_, voided := l.has("void", seq)
	switch {
	case d.kind == "settle" && settled != nil && settled[2] == d.number, d.kind == "void" && voided > 0:
		return l, verdict{status: 200, replayed: true, order: l.seen()}
	case settled != nil || voided > 0:
		return l, verdict{status: 409, code: "unapplied_payment_settled"}
	case d.kind == "void":
		after := l.and("void %s", seq)
		return after, verdict{status: 200, order: after.seen()}
	case l.spent(lines[d.seq-1][1]):
		return l, verdict{status: 409, code: "channel_trade_no_reused"}
	case l.refundNumberTaken(d.number):
		return l, verdict{status: 409, code: "out_refund_no_reused"}
	}
	after := l.and("settle %s %s", seq, d.number)
	return after, verdict{status: 201, order: after.seen()}
}

// spent reports whether a payment was applied, or given back unapplied.
func (l ledger) spent(number string) bool {
	lines := l.lines()
	for _, line := range lines {
		var seq int
		if line[0] == "settle" {
			_, _ = fmt.Sscan(line[1], &seq)
		}
		if line[0] == "pay" && line[1] == number || seq > 0 && lines[seq-1][1] == number {
			return true
		}
	}
	return false
}

// refundNumberTaken reports whether a refund of the order has this number.
func (l ledger) refundNumberTaken(number string) bool {
	for _, line := range l.lines() {
		if line[0] == "refund" && line[1] == number || line[0] == "settle" && line[2] == number {
			return true
		}
	}
	return false
}
