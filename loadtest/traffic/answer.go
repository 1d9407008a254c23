package traffic

import (
	"bytes"
	"fmt"
	"net/http"
	"regexp"
	"strconv"

	json "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/octopay/octopay/idgen"
)

// A Success is an answer whose status says that all went well, 2xx.
type Success struct {
	Status   int
	Replayed bool   // it has Idempotent-Replayed
	Body     []byte // as much as Plan.AnswerMax
}

const (
	// answerMax is how much of an answer is looked at. An order that is longer is none:
	// those of a plan have a few hundred bytes.
	answerMax = 4 << 10
	// itemMax is the same for each order of a batch.
	itemMax = 1 << 10
)

// AnswerMax returns how many bytes of an answer are looked at.
func (p *Plan) AnswerMax() int {
	if p.stride > 1 {
		return answerMax + itemMax*int(p.stride)
	}
	return answerMax
}

// A Fault is why a Success isn't what was asked for.
type Fault struct {
	Kind string // one of a few
	Text string // with what it was seen
}

// The kinds of Fault.
const (
	wrongStatus  = "neither 201 nor a replay"
	noJSON       = "no JSON of an order"
	noOrderID    = "no order id"
	otherBuyer   = "the order id isn't of this buyer's table"
	otherCreate  = "the out_trade_no of another create"
	neverSent    = "the out_trade_no of no create that was sent"
	otherOrder   = "not the order that the same create was answered with before"
	madeAgain    = "201, though the same create had been answered 201"
	noReadStatus = "a read that isn't answered 200"
	noObject     = "a read without an order or a list"
	noBatch      = "a batch without the fate of each of its orders"
)

// fault returns a Fault of an answer.
func (s Success) fault(kind, format string, args ...any) *Fault {
	return &Fault{kind, fmt.Sprintf(format, args...) + fmt.Sprintf("; %d %.160q", s.Status, s.Body)}
}

// An answered is what says which order an answer is.
type answered struct {
	OrderID    string `json:"order_id"`
	OutTradeNo string `json:"out_trade_no"`
}

func (s Success) order() (a answered, fault *Fault) {
	if err := json.Unmarshal(s.Body, &a); err != nil {
		return a, s.fault(noJSON, "%v", err)
	}
	return a, nil
}

// Read says what is wrong with the answer to a read; nil: nothing. It must be an order or
// begin a list; of what, changes while a run goes on.
func Read(s Success) *Fault {
	if s.Status != http.StatusOK {
		return s.fault(noReadStatus, "it must be 200")
	}
	d := jsontext.NewDecoder(bytes.NewReader(s.Body))
	if d.PeekKind() != jsontext.KindBeginObject {
		return s.fault(noObject, "it is no object")
	}
	_, err := d.ReadToken()
	for err == nil && d.PeekKind() == jsontext.KindString {
		var name jsontext.Token
		if name, err = d.ReadToken(); err == nil {
			if name := name.String(); name == "order_id" || name == "data" {
				return nil
			}
			err = d.SkipValue()
		}
	}
	return s.fault(noObject, "%v", err)
}

// Accepts returns the id with which a create of o was accepted: by 201, or 200 and a
// replay, with an order that has this out_trade_no, and an id of this buyer's table.
func (o Order) Accepts(s Success) (idgen.ID, *Fault) {
	a, fault := s.order()
	if fault != nil {
		return idgen.ID{}, fault
	}
	return o.accepts(s, a)
}

func (o Order) accepts(s Success, a answered) (idgen.ID, *Fault) {
	if s.Status != http.StatusCreated && (s.Status != http.StatusOK || !s.Replayed) {
		return idgen.ID{}, s.fault(wrongStatus, "%s", o.OutTradeNo)
	}
	id, err := idgen.Parse(a.OrderID)
	switch {
	case err != nil:
		return id, s.fault(noOrderID, "%s: %v", o.OutTradeNo, err)
	case !id.Of(o.UID):
		return id, s.fault(otherBuyer, "%s, of buyer %d", o.OutTradeNo, o.UID)
	case a.OutTradeNo != o.OutTradeNo:
		return id, s.fault(otherCreate, "it must be %s", o.OutTradeNo)
	}
	return id, nil
}

// A Ledger takes the answers to the creates of a plan, and keeps those that are
// acknowledgements. The rule is the same for whatever sends: Order.Accepts; the answers to
// one create and its repeats are all the same order; one of them at most is 201.
//
// Answers are compared with those before as long as a repeat can come, not for ever. One
// goroutine at a time uses a Ledger.
type Ledger struct {
	plan *Plan
	acks []Ack
	// What creates were answered with, by their numbers. When recent has keep of them the
	// older ones go: a create is repeated within repeatWithin requests.
	recent, older map[uint64]first
	keep          int
}

// A first is what is known of the first answer to a create.
type first struct {
	id   idgen.ID
	made bool // an answer was 201
}

// recentMax is many times as much as repeatWithin and what is under way at once.
const recentMax = 1 << 18

// NewLedger returns the ledger of a plan, without an entry.
func NewLedger(p *Plan) *Ledger { return &Ledger{plan: p, recent: map[uint64]first{}, keep: recentMax} }

// Acks returns the creates that were acknowledged, a repeat once more, in the order in
// which they were taken.
func (l *Ledger) Acks() []Ack { return l.acks }

// Create takes the answer to create n, or to a repeat of it. It says what is wrong with
// it; nil: it is an acknowledgement.
func (l *Ledger) Create(n uint64, s Success) *Fault {
	a, fault := s.order()
	if fault != nil {
		return fault
	}
	return l.take(n, s, a)
}

// Some takes the answer to a create of which nobody knows which it was; only requests with
// numbers below until were sent. That of two creates each has the other's answer Some
// can't see.
func (l *Ledger) Some(until uint64, s Success) *Fault {
	a, fault := s.order()
	if fault != nil {
		return fault
	}
	n, ok := l.plan.Number(a.OutTradeNo)
	if !ok || l.plan.request(n) >= until {
		return s.fault(neverSent, "%.64q", a.OutTradeNo)
	}
	return l.take(n, s, a)
}

// A Fate is what became of an order of a batch.
type Fate struct {
	Answer string // as that of a create is counted, 201 or 200; of one that was refused ItemAnswer and the same
	Fault  *Fault // why a success isn't what was asked for
}

// ItemAnswer begins what the refusal of one order of a batch is counted as.
const ItemAnswer = "item "

// A result is an order's part of the answer to a batch.
type result struct {
	Status   int            `json:"status"`
	Replayed bool           `json:"replayed"`
	Order    jsontext.Value `json:"order"`
	Error    struct {
		Code string `json:"code"`
	} `json:"error"`
}

func (s Success) results() (all []result, fault *Fault) {
	var body struct {
		Results []result `json:"results"`
	}
	if err := json.Unmarshal(s.Body, &body); err != nil {
		return nil, s.fault(noBatch, "%v", err)
	}
	if s.Status != http.StatusOK || s.Replayed || len(body.Results) == 0 {
		return nil, s.fault(noBatch, "it has %d results", len(body.Results))
	}
	return body.Results, nil
}

// IsBatch reports whether an answer looks like that to a batch.
func (s Success) IsBatch() bool {
	return bytes.HasPrefix(bytes.TrimLeft(s.Body, " \t\r\n"), []byte(`{"results"`))
}

// Batch takes the answer to request n, a batch: what became of each of its orders, by the
// rule for a create that is sent alone. An answer that isn't one to this batch is one Fate.
func (l *Ledger) Batch(n uint64, s Success) []Fate {
	first, orders := l.plan.Writes(n)
	all, fault := s.results()
	if fault == nil && len(all) != orders {
		fault = s.fault(noBatch, "it has %d results for %d orders", len(all), orders)
	}
	if fault != nil {
		return []Fate{{Fault: fault}}
	}
	fates := make([]Fate, len(all))
	for i := range all {
		fates[i] = all[i].fate(func(s Success, a answered) *Fault { return l.take(first+uint64(i), s, a) })
	}
	return fates
}

// SomeBatch takes the answer to a batch of which nobody knows which it was; only requests
// with numbers below until were sent. All its orders must be of one batch, in their places.
func (l *Ledger) SomeBatch(until uint64, s Success) []Fate {
	all, fault := s.results()
	if fault != nil {
		return []Fate{{Fault: fault}}
	}
	for i, r := range all {
		if r.Status >= 300 {
			continue
		}
		a, fault := r.success().order()
		if fault != nil {
			continue // it is found once more, as that order's
		}
		if n, ok := l.plan.Number(a.OutTradeNo); ok && l.plan.request(n) < until && l.plan.Batches(l.plan.request(n)) && n%l.plan.stride == uint64(i) {
			return l.Batch(l.plan.request(n), s)
		}
		return []Fate{{Fault: s.fault(neverSent, "%.64q in place %d of a batch", a.OutTradeNo, i)}}
	}
	// Every order was refused, or is none.
	fates := make([]Fate, len(all))
	for i := range all {
		fates[i] = all[i].fate(func(s Success, a answered) *Fault { return s.fault(neverSent, "%.64q", a.OutTradeNo) })
	}
	return fates
}

func (r *result) success() Success {
	return Success{Status: r.Status, Replayed: r.Replayed, Body: r.Order}
}

// fate returns what became of an order, which take takes if it may be an acknowledgement.
func (r *result) fate(take func(Success, answered) *Fault) Fate {
	status := strconv.Itoa(r.Status)
	if r.Status >= 300 {
		if !IsCode(r.Error.Code) {
			return Fate{Answer: ItemAnswer + status}
		}
		return Fate{Answer: ItemAnswer + status + " " + r.Error.Code}
	}
	a, fault := r.success().order()
	if fault == nil {
		fault = take(r.success(), a)
	}
	return Fate{Answer: status, Fault: fault}
}

// codeForm is how codes of problems look.
var codeForm = regexp.MustCompile(`^[a-z0-9_]{1,64}$`)

// IsCode reports whether s looks like the code of a problem: what else a service writes
// there is not repeated.
func IsCode(s string) bool { return codeForm.MatchString(s) }

// Knows reports whether an answer is an order of the plan, which no read reads.
func (l *Ledger) Knows(s Success) bool {
	a, fault := s.order()
	if fault != nil {
		return false
	}
	_, ok := l.plan.Number(a.OutTradeNo)
	return ok
}

func (l *Ledger) take(n uint64, s Success, a answered) *Fault {
	o := l.plan.Order(n)
	id, fault := o.accepts(s, a)
	if fault != nil {
		return fault
	}
	before, again := l.recent[n]
	if !again {
		before, again = l.older[n]
	}
	made := s.Status == http.StatusCreated
	switch {
	case !again:
	case before.id != id:
		return s.fault(otherOrder, "%s was %s", o.OutTradeNo, before.id)
	case before.made && made:
		return s.fault(madeAgain, "%s", o.OutTradeNo)
	}
	l.acks = append(l.acks, Ack{id, o.OutTradeNo})
	if len(l.recent) >= l.keep {
		l.recent, l.older = make(map[uint64]first, l.keep), l.recent
	}
	l.recent[n] = first{id, made || before.made}
	return nil
}
