// Package check compares what both clusters hold after a run with what was acknowledged
// in it, and with what was sent.
//
// It reads the databases by SQL, past all that serves requests. What a request was is
// package traffic's word, since a stored out_trade_no names it; what was acknowledged is
// the generator's. It decides
//
//   - missing: acknowledged, and not in the truth;
//   - doubled: stored twice, under one id or under one out_trade_no; or one id was
//     given to two creates;
//   - wrong: another content than was sent, in a database or table that isn't its
//     buyer's, or acknowledged to another create; or stored without an answer though
//     none could be lost;
//   - unequal: the mirror lacks it, has it in any column otherwise, twice or in
//     another place, or has what the truth hasn't;
//   - open: stored as it was sent, and never acknowledged.
//
// It reads windows of ids, from both clusters at once. A window has at most 20,000
// acknowledged orders and what was created in 10 s, whichever is less, so both clusters'
// rows of it take some 50 MB; beside them each acknowledged order of the run takes 80
// bytes and its out_trade_no.
package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/loadtest/report"
	"github.com/octopay/octopay/loadtest/traffic"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
)

// Acks are the creates that were answered 201 or 200: which order, and for which
// out_trade_no.
type Acks []traffic.Ack

// A Config says what is checked. Zero values are the defaults.
type Config struct {
	Mirror bool          // the bid cluster too
	Within time.Duration // for the mirror to be complete; 2 min
	// Since is when the runs began, by a clock that is at most 15 s off. What is older is
	// not looked at, unless it was acknowledged. Without it what is older than the first
	// acknowledged order by more than 15 s is not, and without one everything is looked at.
	Since time.Time
	// OpenMax is how many orders may be stored that were never acknowledged: what
	// report.Run.Unsettled says.
	OpenMax int
	// Unnamed is how many orders were acknowledged of which nobody wrote down the id, and
	// which can be told by their number alone: raw's.
	Unnamed int
	// Settle is how long a request may yet write that has no answer; 16 s. Where fewer
	// orders are open than can be, the truth is looked at again until then, or until Idle.
	Settle time.Duration
	// Idle reports whether the service has nothing under way that could write; nil: nobody
	// knows.
	Idle func(context.Context) bool
	Say  func(string) // is told what was found, and what is waited for; nil: nobody
	// CaughtUp is called once, when the mirror has what the truth had at the beginning and
	// before it is read; nil: not called. It isn't called for one that isn't complete in time.
	CaughtUp func()
}

// ErrMirror reports a mirror that could not be looked at. What the truth holds was found.
var ErrMirror = errors.New("check: the mirror could not be looked at")

// ErrIncomplete reports a mirror that wasn't complete in time.
var ErrIncomplete = errors.New("the mirror is not complete")

const (
	windowAcks = 20_000
	windowTime = 10 * time.Second
	// margin is how long before the first acknowledged order the first of the run can
	// have been made: each is answered within 10 s. It is as much before Since.
	margin = 15 * time.Second
	// expires is when an order expires for which nothing else was asked.
	expires = 30 * time.Minute
	// namedMax is how many orders are named.
	namedMax = 10
	// settle is the default of Config.Settle: a request is answered in 10 s, and what it
	// began to write then is decided in 6 more.
	settle = 16 * time.Second
	// again is how often the truth is looked at until it stands still.
	again = 500 * time.Millisecond
)

// Check compares what is stored of the runs of plans with acks: the truth first, once it
// stands still, and then, once it is complete, the mirror. A mirror that isn't complete in
// time is compared as it is, and report.Check.Behind says so. What it found is no error,
// see report.Check.Fails; that it could not look is. With ErrMirror the figures are of the
// truth alone.
func Check(ctx context.Context, c *cluster.Cluster, plans []*traffic.Plan, acks Acks, config Config) (report.Check, error) {
	if config.Within <= 0 {
		config.Within = 2 * time.Minute
	}
	if config.Settle <= 0 {
		config.Settle = settle
	}
	if config.Say == nil {
		config.Say = func(string) {}
	}
	run := checker{c, plans, acks, config}
	watched := run.watch(ctx)
	defer watched(false)
	truth, err := run.settled(ctx)
	if err != nil || !config.Mirror {
		return truth, err
	}
	config.Say(fmt.Sprintf("the truth has %d of %d acknowledged orders: %d missing, %d doubled, %d wrong",
		truth.Found, truth.Acknowledged, truth.Missing, truth.Doubled, truth.Wrong))
	late := AwaitMirror(ctx, c, config.Within, config.Say)
	if late != nil && !errors.Is(late, ErrIncomplete) {
		return truth, fmt.Errorf("%w: %w", ErrMirror, late)
	}
	watched(late == nil)
	both, _, err := run.look(ctx, true)
	if err != nil {
		return truth, fmt.Errorf("%w: %w", ErrMirror, errors.Join(late, err))
	}
	if late != nil {
		both.Behind = late.Error()
	}
	return both, nil
}

// watch waits for the mirror beside all else, for Config.CaughtUp. The function that it
// returns ends that; complete says that it needn't be cut off, since the mirror is there.
func (r checker) watch(ctx context.Context) (end func(complete bool)) {
	if !r.config.Mirror || r.config.CaughtUp == nil {
		return func(bool) {}
	}
	ctx, cancel := context.WithCancel(ctx)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if AwaitMirror(ctx, r.c, r.config.Within, nil) == nil {
			r.config.CaughtUp()
		}
	}()
	return func(complete bool) {
		if !complete {
			cancel()
		}
		<-gone
		cancel()
	}
}

// A checker is a check under way.
type checker struct {
	c      *cluster.Cluster
	plans  []*traffic.Plan
	acks   Acks
	config Config
}

// settled looks at the truth until nothing more can come: as many orders are open as can
// be, nothing is under way, or it would have come.
func (r checker) settled(ctx context.Context) (report.Check, error) {
	began, said := time.Now(), false
	for {
		// Before it is looked at, or what comes meanwhile would be overlooked.
		idle := r.config.OpenMax == 0 || time.Since(began) >= r.config.Settle || r.config.Idle != nil && r.config.Idle(ctx)
		found, unanswered, err := r.look(ctx, false)
		if err != nil || idle || unanswered >= r.config.OpenMax {
			return found, err
		}
		if !said {
			said = true
			r.config.Say(fmt.Sprintf("%d requests have no answer, and %d of them are stored: what the others may yet write is awaited for %s at most",
				r.config.OpenMax, unanswered, r.config.Settle))
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
			return report.Check{}, ctx.Err()
		}
	}
}

// look reads what is stored, and compares it. Beside what it found it returns how many
// orders the truth has that were never acknowledged, whether or not they are right.
func (r checker) look(ctx context.Context, mirror bool) (_ report.Check, unanswered int, err error) {
	config := r.config
	config.Mirror = mirror
	v := newVerdict(r.c.Map(), r.plans, r.acks, config)
	first, last, err := bounds(ctx, r.c, mirror)
	if err != nil {
		return report.Check{}, 0, err
	}
	since := config.Since
	if len(v.acks) > 0 {
		// An acknowledged order may be missing at either end.
		if at := idgen.SnowflakeTime(v.acks[0].id); since.IsZero() || at.Before(since) {
			since = at
		}
		first, last = min(first, v.acks[0].id), max(last, v.acks[len(v.acks)-1].id)
	}
	if !since.IsZero() {
		first = max(first, idgen.FirstAt(since.Add(-margin)))
	}
	for from := first; from <= last; {
		until := min(v.end(from), last+1)
		truth, mirrored, err := read(ctx, r.c, mirror, from, until, v.ours)
		if err != nil {
			return report.Check{}, 0, err
		}
		v.window(from, until, truth, mirrored)
		from = until
	}
	return v.result(), v.unanswered, nil
}

// A placed is a row and where it is.
type placed struct {
	schema.Order
	at shardmap.Location
}

// An ack is an acknowledged order.
type ack struct {
	id    int64 // the snowflake
	whole idgen.ID
	no    string // the out_trade_no that it was asked for under
}

// A verdict is what is known so far. Nothing of it does I/O.
type verdict struct {
	shards *shardmap.Map
	plans  []*traffic.Plan
	seen   []numbers // of each plan
	acks   []ack     // in order of id
	config Config
	check  report.Check
	lost   []string // of check.Open, the first

	unanswered int // ids in the truth that weren't acknowledged
}

func newVerdict(shards *shardmap.Map, plans []*traffic.Plan, acks Acks, config Config) *verdict {
	v := &verdict{shards: shards, plans: plans, seen: make([]numbers, len(plans)), config: config}
	v.check.Mirror = config.Mirror
	v.acks = make([]ack, 0, len(acks))
	for _, a := range acks {
		v.acks = append(v.acks, ack{a.ID.Snowflake(), a.ID, a.OutTradeNo})
	}
	slices.SortFunc(v.acks, func(a, b ack) int {
		return cmp.Or(cmp.Compare(a.id, b.id), strings.Compare(a.no, b.no), strings.Compare(a.whole.String(), b.whole.String()))
	})
	repeats := slices.ContainsFunc(plans, func(p *traffic.Plan) bool {
		return slices.ContainsFunc(p.Mix, func(s traffic.Share) bool { return s.Kind == traffic.Repeat })
	})
	kept := v.acks[:0]
	for i, a := range v.acks {
		if i > 0 && a.id == kept[len(kept)-1].id {
			// A repeat is answered with the order that there is.
			if a != kept[len(kept)-1] || !repeats {
				v.check.Doubled++
				v.name(a.whole.String(), "acknowledged to two creates")
			}
			continue
		}
		kept = append(kept, a)
	}
	v.acks = kept
	v.check.Acknowledged += len(v.acks)
	return v
}

// before returns how many acknowledged orders have ids below id.
func (v *verdict) before(id int64) int {
	i, _ := slices.BinarySearchFunc(v.acks, id, func(a ack, id int64) int { return cmp.Compare(a.id, id) })
	return i
}

// acked returns the acknowledged order of a snowflake.
func (v *verdict) acked(id int64) (ack, bool) {
	if i := v.before(id); i < len(v.acks) && v.acks[i].id == id {
		return v.acks[i], true
	}
	return ack{}, false
}

// end returns where the window that begins at from ends.
func (v *verdict) end(from int64) int64 {
	until := idgen.FirstAt(idgen.SnowflakeTime(from).Add(windowTime))
	if i := v.before(from) + windowAcks; i < len(v.acks) {
		until = min(until, v.acks[i].id)
	}
	return max(until, from+1)
}

// plan returns which plan's create a row is, and its number.
func (v *verdict) plan(o schema.Order) (plan int, n uint64, ok bool) {
	for i, p := range v.plans {
		if n, ok := p.Number(o.OutTradeNo); ok {
			return i, n, true
		}
	}
	return 0, 0, false
}

// ours reports whether a row is to be looked at.
func (v *verdict) ours(o schema.Order) bool {
	// Also a number of this run that no create had: nobody asked for that order.
	for _, p := range v.plans {
		if strings.HasPrefix(o.OutTradeNo, p.Run+"-") {
			return true
		}
	}
	_, ok := v.acked(o.ID)
	return ok
}

// window judges the orders with ids from here to below there.
func (v *verdict) window(from, until int64, truth, mirror []placed) {
	byID := func(rows []placed) map[int64][]placed {
		m := make(map[int64][]placed, len(rows))
		for _, r := range rows {
			m[r.ID] = append(m[r.ID], r)
		}
		return m
	}
	ts, ms := byID(truth), byID(mirror)
	ids := make([]int64, 0, len(ts))
	for id := range ts {
		ids = append(ids, id)
	}
	for id := range ms {
		ids = append(ids, id)
	}
	for _, a := range v.acks[v.before(from):v.before(until)] {
		ids = append(ids, a.id)
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		v.judge(id, ts[id], ms[id])
	}
}

// judge looks at the rows of one id.
func (v *verdict) judge(id int64, truth, mirror []placed) {
	a, acked := v.acked(id)
	if !acked && len(truth) > 0 {
		v.unanswered++
	}
	switch {
	case len(truth) == 0:
		if acked {
			v.check.Missing++
			v.name(a.whole.String(), "missing: acknowledged, and not in the truth")
		}
	case len(truth) > 1:
		if acked {
			v.check.Found++
		}
		v.check.Doubled++
		v.name(truth[0].OrderID().String(), "doubled: in "+places(truth))
		for _, t := range truth {
			if plan, n, ok := v.plan(t.Order); ok {
				v.seen[plan].add(n)
			}
		}
	default:
		if acked {
			v.check.Found++
		}
		v.one(truth[0], a, acked)
	}
	if v.config.Mirror {
		v.copied(truth, mirror)
	}
}

// one judges the one row that the truth has of an id.
func (v *verdict) one(t placed, a ack, acked bool) {
	name := t.OrderID().String()
	if acked {
		name = a.whole.String()
	}
	plan, n, ok := v.plan(t.Order)
	if !ok {
		v.check.Wrong++
		v.name(name, "wrong: no create of this run had its out_trade_no")
		return
	}
	var faults []string
	want := wanted(v.plans[plan].Order(n), t.Order)
	if columns := differ(want, t.Order); len(columns) > 0 {
		faults = append(faults, "other than was sent: "+strings.Join(columns, ", "))
	}
	if at := v.shards.Locate(want.UID); at != t.at {
		faults = append(faults, fmt.Sprintf("in %s, belongs in %s", place(t.at), place(at)))
	}
	if acked && a.whole != t.OrderID() {
		faults = append(faults, "its buyer's id is "+t.OrderID().String())
	}
	if acked && a.no != t.OutTradeNo {
		faults = append(faults, fmt.Sprintf("acknowledged to %.64q, stored for %s", a.no, t.OutTradeNo))
	}
	again := v.seen[plan].add(n)
	switch {
	case len(faults) > 0:
		v.check.Wrong++
		v.name(name, "wrong: "+strings.Join(faults, "; "))
	case again:
		v.check.Doubled++
		v.name(name, fmt.Sprintf("doubled: create %d of %s is stored under another id too", n, v.plans[plan].Run))
	case !acked:
		v.check.Open++
		if len(v.lost) < namedMax {
			v.lost = append(v.lost, name)
		}
	}
}

// copied judges the rows that the mirror has of an id.
func (v *verdict) copied(truth, mirror []placed) {
	var faults []string
	var name string
	switch {
	case len(truth) == 0 && len(mirror) == 0:
		return
	case len(truth) == 0:
		name = mirror[0].OrderID().String()
		faults = append(faults, "the mirror has it, the truth hasn't")
	case len(mirror) == 0:
		name = truth[0].OrderID().String()
		faults = append(faults, "not in the mirror")
	case len(mirror) > 1:
		name = truth[0].OrderID().String()
		faults = append(faults, "in the mirror twice: in "+places(mirror))
	default:
		t, m := truth[0], mirror[0]
		name = t.OrderID().String()
		if columns := differ(t.Order, m.Order); len(columns) > 0 {
			faults = append(faults, "the mirror has otherwise: "+strings.Join(columns, ", "))
		}
		if at := v.shards.Locate(t.BID); at != m.at {
			faults = append(faults, fmt.Sprintf("in %s of the mirror, belongs in %s", place(m.at), place(at)))
		}
	}
	if len(faults) > 0 {
		v.check.Unequal++
		v.name(name, "unequal: "+strings.Join(faults, "; "))
	}
}

func (v *verdict) name(id, what string) {
	if len(v.check.Named) < namedMax {
		v.check.Named = append(v.check.Named, id+" "+what)
	}
}

// result returns what was found, when every window was looked at.
func (v *verdict) result() report.Check {
	if n := v.config.Unnamed; n > 0 {
		found := min(n, v.check.Open)
		v.check.Acknowledged += n
		v.check.Found += found
		v.check.Missing += n - found
		v.check.Open -= found
		if found < n {
			v.name(fmt.Sprint(n-found), "missing: acknowledged, and not in the truth")
		}
	}
	if more := v.check.Open - v.config.OpenMax; more > 0 {
		v.check.Wrong += more
		for _, id := range v.lost {
			v.name(id, fmt.Sprintf("wrong: stored and never acknowledged, as are %d; %d answers can have been lost", v.check.Open, v.config.OpenMax))
		}
	}
	return v.check
}

// wanted returns what is stored of a create under this id; what the request didn't
// decide is taken from the row.
func wanted(sent traffic.Order, row schema.Order) schema.Order {
	o := schema.Order{
		ID: row.ID, UID: sent.UID, BID: sent.BID, OutTradeNo: sent.OutTradeNo,
		Amount: sent.Amount, Currency: sent.Currency, Subject: sent.Subject, Metadata: sent.Metadata(),
		Status: schema.Created, Ver: 1, CreatedBy: "app", RequestID: row.RequestID,
		UpdatedAt: max(row.UpdatedAt, row.CreatedAt()),
	}
	o.ExpiresAt = o.CreatedAt() + schema.Millis(expires.Milliseconds())
	return o
}

// differ returns the columns in which two rows differ.
func differ(a, b schema.Order) (columns []string) {
	if a == b {
		return nil
	}
	as, bs := a.Values(), b.Values()
	for i, column := range schema.OrderColumns {
		if as[i] != bs[i] {
			columns = append(columns, column)
		}
	}
	return columns
}

func place(l shardmap.Location) string {
	return fmt.Sprintf("table %d of database %d", l.Table, l.Database)
}

func places(rows []placed) string {
	var all []string
	for _, r := range rows {
		all = append(all, place(r.at))
	}
	return strings.Join(all, " and in ")
}

// numbers is a set of the numbers of creates, which lie close together.
type numbers struct {
	pages map[uint64]*[pageBits / 64]uint64
}

const pageBits = 4096

// add reports whether n is in the set already, and puts it there.
func (s *numbers) add(n uint64) bool {
	if s.pages == nil {
		s.pages = map[uint64]*[pageBits / 64]uint64{}
	}
	p := s.pages[n/pageBits]
	if p == nil {
		p = new([pageBits / 64]uint64)
		s.pages[n/pageBits] = p
	}
	word, bit := &p[n%pageBits/64], uint64(1)<<(n%64)
	was := *word&bit != 0
	*word |= bit
	return was
}
