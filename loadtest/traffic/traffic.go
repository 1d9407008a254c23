// Package traffic makes the requests of a load test.
//
// Request n of a Plan is a function of the plan and of n alone. So whoever sends them,
// in whatever order and by how many processes, sends the same ones, and the checker
// knows from a stored out_trade_no what was sent under it:
//
//	out_trade_no   <run>-<n>          one run has one name
//
// A plan with batches of k orders numbers them so that request n has the orders n·k to
// n·k + k-1, of which a single create is the first.
//
// It says as well which answers acknowledge a create: whoever sends, by the same rule.
//
// It does no I/O and decides nothing about when a request is sent.
package traffic

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/octopay/octopay/idgen"
)

// A Kind is what a request asks for.
type Kind string

// The kinds. Create, Batch and Repeat write, the others read orders that are Known.
const (
	Create         Kind = "create"
	Batch          Kind = "batch"  // many creates in one request
	Repeat         Kind = "repeat" // an earlier create again
	Get            Kind = "get"
	LookUp         Kind = "look-up" // by (uid, bid, out_trade_no)
	ListByUser     Kind = "list-by-uid"
	ListByMerchant Kind = "list-by-bid"
)

// Kinds are all kinds.
var Kinds = []Kind{Create, Batch, Repeat, Get, LookUp, ListByUser, ListByMerchant}

// Writes reports whether requests of this kind write.
func (k Kind) Writes() bool { return k == Create || k == Batch || k == Repeat }

// A Share is how many of a mix's requests are of one kind.
type Share struct {
	Kind   Kind
	Weight int // of all weights
}

// ParseMix reads a mix such as "create" or "create=3,get=5".
func ParseMix(text string) ([]Share, error) {
	var mix []Share
	for part := range strings.SplitSeq(text, ",") {
		name, weight, weighted := strings.Cut(part, "=")
		s := Share{Kind: Kind(name), Weight: 1}
		if weighted {
			var err error
			if s.Weight, err = strconv.Atoi(weight); err != nil {
				return nil, fmt.Errorf("traffic: %q is no weight", weight)
			}
		}
		if err := s.check(); err != nil {
			return nil, err
		}
		mix = append(mix, s)
	}
	return mix, nil
}

func (s Share) check() error {
	switch {
	case !slices.Contains(Kinds, s.Kind):
		return fmt.Errorf("traffic: there is no kind of request %q", s.Kind)
	case s.Weight < 1 || s.Weight > weightsMax:
		return fmt.Errorf("traffic: the weight of %s must be from 1 to %d", s.Kind, weightsMax)
	}
	return nil
}

// An Order is what a create asks for.
type Order struct {
	UID, BID   int64
	OutTradeNo string
	Amount     int64 // minor units
	Currency   string
	Subject    string
	SKU        string // its metadata
}

// An Ack is a create that was acknowledged: asked for under this out_trade_no, and
// answered with this order. The answer to a repeat is another of the same.
type Ack struct {
	ID         idgen.ID // order_id
	OutTradeNo string
}

// A Known order can be read: it was acknowledged before the run.
type Known struct {
	ID         string // order_id
	UID, BID   int64
	OutTradeNo string
}

// A Request is one request, as it is sent.
type Request struct {
	Kind   Kind
	Order  uint64 // the number of the order that it creates, of a batch its first; of writes
	Method string
	Target string // path and query
	Body   []byte // JSON; nil: none
}

// A Plan says what the requests of a run are. It is not changed once New returned it,
// and safe for concurrent use.
type Plan struct {
	Config
	merchantShare []float64 // cumulative
	weights       int
	repeats       bool
	reads         bool
	creates       bool
	stride        uint64 // numbers of orders from one request to the next
}

// A Config is what a Plan is made of. Zero values are the defaults.
type Config struct {
	Run       string  // 1 … 20 of [0-9a-z]; required
	Seed      uint64  // of all choices
	Buyers    int64   // how many buyers there are; 1,000,000
	Merchants int     // how many merchants; 1,000
	Zipf      float64 // merchant k has a share like 1/k^Zipf; 0: all have the same
	HotBuyer  float64 // share of the creates that one buyer makes, 0 … 1
	Mix       []Share // creates alone
	BatchSize int     // orders of a batch; 50
	Known     []Known // required when the mix reads
}

// Bounds of a Config.
const (
	MerchantsMax = 100_000
	BatchMax     = 500 // orders of a batch
	weightsMax   = 1_000_000
	// repeatWithin is how many requests ago a create may be that is repeated.
	repeatWithin = 5_000
	firstBID     = 1001
)

var runName = regexp.MustCompile(`^[0-9a-z]{1,20}$`)

// New returns the plan of c, or names what is wrong with it.
func New(c Config) (*Plan, error) {
	if c.Buyers == 0 {
		c.Buyers = 1_000_000
	}
	if c.Merchants == 0 {
		c.Merchants = 1_000
	}
	if len(c.Mix) == 0 {
		c.Mix = []Share{{Create, 1}}
	}
	if c.BatchSize == 0 {
		c.BatchSize = 50
	}
	p := &Plan{Config: c, stride: 1}
	switch {
	case !runName.MatchString(c.Run):
		return nil, errors.New("traffic: a run's name has 1 to 20 of 0-9 and a-z")
	case c.Buyers < 1:
		return nil, errors.New("traffic: there must be a buyer")
	case c.Merchants < 1 || c.Merchants > MerchantsMax:
		return nil, fmt.Errorf("traffic: there must be 1 to %d merchants", MerchantsMax)
	case c.BatchSize < 1 || c.BatchSize > BatchMax:
		return nil, fmt.Errorf("traffic: a batch has 1 to %d orders", BatchMax)
	case !(c.Zipf >= 0 && c.Zipf <= 10):
		return nil, errors.New("traffic: the exponent of the merchants' shares must be from 0 to 10")
	case !(c.HotBuyer >= 0 && c.HotBuyer <= 1):
		return nil, errors.New("traffic: the hot buyer's share must be from 0 to 1")
	}
	for _, s := range c.Mix {
		if err := s.check(); err != nil {
			return nil, err
		}
		if !s.Kind.Writes() && len(c.Known) == 0 {
			return nil, fmt.Errorf("traffic: there are no orders that %s could read", s.Kind)
		}
		if s.Kind == Batch {
			p.stride = uint64(c.BatchSize)
		}
		p.weights += s.Weight
		p.repeats = p.repeats || s.Kind == Repeat
		p.creates = p.creates || s.Kind.Writes()
		p.reads = p.reads || !s.Kind.Writes()
	}
	p.merchantShare = shares(c.Merchants, c.Zipf)
	return p, nil
}

// Reads reports whether there are reads among the requests.
func (p *Plan) Reads() bool { return p.reads }

// PerRequest returns how many orders one request asks for at most.
func (p *Plan) PerRequest() int { return int(p.stride) }

// Creates reports whether there are creates, batches or repeats among them.
func (p *Plan) Creates() bool { return p.creates }

// Scenario says what the requests are, as ParseMix reads it.
func (p *Plan) Scenario() string {
	if len(p.Mix) == 1 {
		return string(p.Mix[0].Kind)
	}
	var parts []string
	for _, s := range p.Mix {
		parts = append(parts, fmt.Sprintf("%s=%d", s.Kind, s.Weight))
	}
	return strings.Join(parts, ",")
}

// Request returns request n.
func (p *Plan) Request(n uint64) Request {
	kind := p.kind(n)
	if first, orders := p.writes(kind, n); kind == Batch {
		return p.batch(first, orders)
	} else if orders > 0 {
		return p.create(kind, first)
	}
	return p.read(kind, p.Known[p.rng(n, forRequest).IntN(len(p.Known))])
}

// Writes returns the numbers of the orders that request n asks for: the first, and how
// many; none if it reads.
func (p *Plan) Writes(n uint64) (first uint64, orders int) { return p.writes(p.kind(n), n) }

// Batches reports whether request n is a batch.
func (p *Plan) Batches(n uint64) bool { return p.kind(n) == Batch }

func (p *Plan) writes(kind Kind, n uint64) (first uint64, orders int) {
	switch kind {
	case Create:
		return n * p.stride, 1
	case Batch:
		return n * p.stride, p.BatchSize
	case Repeat:
		return p.earlier(n, p.rng(n, forRequest)) * p.stride, 1
	}
	return 0, 0
}

// Order returns what create n asks for.
func (p *Plan) Order(n uint64) Order {
	rng := p.rng(n, forOrder)
	o := Order{
		OutTradeNo: p.Run + "-" + strconv.FormatUint(n, 10),
		UID:        1 + rng.Int64N(p.Buyers),
		BID:        firstBID + int64(search(p.merchantShare, rng.Float64())),
		Amount:     1 + rng.Int64N(1_000_000),
		Currency:   [...]string{"CNY", "JPY", "KWD"}[rng.IntN(3)],
		Subject:    "Le Max 2 🐙 " + strconv.Itoa(rng.IntN(1000)),
		SKU:        "lm2-" + strconv.Itoa(rng.IntN(1000)),
	}
	if rng.Float64() < p.HotBuyer {
		o.UID = 1
	}
	return o
}

// Number returns the number of the create that was sent under outTradeNo, if it was
// one of this plan.
func (p *Plan) Number(outTradeNo string) (n uint64, ok bool) {
	digits, ok := strings.CutPrefix(outTradeNo, p.Run+"-")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || strconv.FormatUint(n, 10) != digits {
		return 0, false
	}
	switch p.kind(p.request(n)) {
	case Create:
		return n, n%p.stride == 0
	case Batch:
		return n, true
	}
	return 0, false
}

// request returns which request asks for an order first.
func (p *Plan) request(order uint64) uint64 { return order / p.stride }

// Metadata returns the order's metadata as it is stored.
func (o Order) Metadata() string { return `{"sku":"` + o.SKU + `"}` }

func (p *Plan) create(kind Kind, n uint64) Request {
	return Request{Kind: kind, Order: n, Method: "POST", Target: "/v1/orders", Body: p.Order(n).appendTo(nil)}
}

func (p *Plan) batch(first uint64, orders int) Request {
	body := []byte(`{"orders":[`)
	for i := range orders {
		if i > 0 {
			body = append(body, ',')
		}
		body = p.Order(first + uint64(i)).appendTo(body)
	}
	return Request{Kind: Batch, Order: first, Method: "POST", Target: "/v1/orders/batch", Body: append(body, "]}"...)}
}

// appendTo appends what a create sends.
func (o Order) appendTo(b []byte) []byte {
	subject, err := json.Marshal(o.Subject)
	if err != nil {
		panic(err) // a string
	}
	return fmt.Appendf(b, `{"uid":"%d","bid":"%d","out_trade_no":"%s","amount":%d,"currency":"%s","subject":%s,"metadata":%s}`,
		o.UID, o.BID, o.OutTradeNo, o.Amount, o.Currency, subject, o.Metadata())
}

func (p *Plan) read(kind Kind, k Known) Request {
	r := Request{Kind: kind, Method: "GET"}
	switch kind {
	case Get:
		r.Target = "/v1/orders/" + k.ID
	case LookUp:
		r.Target = fmt.Sprintf("/v1/orders?uid=%d&bid=%d&out_trade_no=%s", k.UID, k.BID, url.QueryEscape(k.OutTradeNo))
	case ListByUser:
		r.Target = fmt.Sprintf("/v1/users/%d/orders", k.UID)
	case ListByMerchant:
		r.Target = fmt.Sprintf("/v1/merchants/%d/orders", k.BID)
	}
	return r
}

// kind returns the kind of request n.
func (p *Plan) kind(n uint64) Kind {
	switch {
	case n == 0 && p.repeats:
		return Create // so that there is something to repeat
	case len(p.Mix) == 1:
		return p.Mix[0].Kind
	}
	at := p.rng(n, forKind).IntN(p.weights)
	for _, s := range p.Mix {
		if at -= s.Weight; at < 0 {
			return s.Kind
		}
	}
	panic("traffic: the weights don't add up")
}

// earlier returns the number of a create before n, and not long before where there is
// one.
func (p *Plan) earlier(n uint64, rng *rand.Rand) uint64 {
	m := n - 1 - rng.Uint64N(min(n, repeatWithin))
	for m > 0 && p.kind(m) != Create {
		m--
	}
	return m
}

// What the choices of a number are drawn for: each has a sequence of its own.
const (
	forOrder uint64 = iota
	forKind
	forRequest
)

func (p *Plan) rng(n, purpose uint64) *rand.Rand {
	return rand.New(rand.NewPCG(p.Seed^purpose<<62, n))
}

// shares returns the cumulative shares of n merchants, the largest first.
func shares(n int, zipf float64) []float64 {
	out := make([]float64, n)
	sum := 0.0
	for k := range out {
		sum += weight(k+1, zipf)
		out[k] = sum
	}
	for k := range out {
		out[k] /= sum
	}
	return out
}

func weight(rank int, zipf float64) float64 { return math.Pow(float64(rank), -zipf) }

// search returns the first of cumulative shares that is above x.
func search(shares []float64, x float64) int {
	return min(sort.Search(len(shares), func(i int) bool { return shares[i] > x }), len(shares)-1)
}
