package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/internal/dberr"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/services/internal/boot"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/slot"
	"golang.org/x/time/rate"
)

type checkCmds struct {
	Installation checkCmd       `cmd:"" name:"installation" default:"withargs" help:"Say what differs between the servers and what is to be: schemas, settings, clocks, the map, the mirror, keys. It is what check does without another word."`
	Orders       checkOrdersCmd `cmd:"" name:"orders" help:"Prove of each order that its row is what its creation and its journal make."`
}

type checkOrdersCmd struct {
	From     string        `name:"from" xor:"begin" placeholder:"ID|TIME" help:"Begin with this order, or with what was made at this time (RFC 3339)."`
	Since    time.Duration `name:"since" xor:"begin" placeholder:"24h" help:"Begin with what was made so long ago."`
	To       string        `name:"to" placeholder:"ID|TIME" help:"End before this order, or before this time."`
	UID      int64         `name:"uid" placeholder:"N" help:"Only the orders of this buyer, in the truth."`
	Mirror   bool          `name:"mirror" help:"The rows of the mirror too."`
	Rate     int           `name:"rate" default:"20000" placeholder:"N" help:"Read at most so many rows a second, of orders and of journals: 20,000 unless it is given; 0: as many as come."`
	Findings int           `name:"findings" default:"100" placeholder:"N" help:"Name at most so many faults, 100 unless it is given; all are counted."`
	JSON     bool          `name:"json" help:"One JSON object a line."`
}

// Validate implements kong's: what it returns is an error of the command line.
func (c checkOrdersCmd) Validate() error {
	from, until, err := c.bounds(time.Now())
	switch {
	case err != nil:
		return err
	case from >= until:
		return errors.New("nothing is between --from, or --since, and --to")
	case c.Since < 0:
		return errors.New("--since must be above 0")
	case c.UID < 0:
		return errors.New("--uid is from 1")
	case c.UID > 0 && c.Mirror:
		return errors.New("--uid is of the truth alone: the mirror is by merchants")
	case c.Rate < 0:
		return errors.New("--rate must be at least 0")
	case c.Findings < 1:
		return errors.New("--findings must be at least 1")
	}
	return nil
}

// bounds returns the range of snowflakes, which doesn't have its end. Without bounds it
// has what no id can be, too.
func (c checkOrdersCmd) bounds(now time.Time) (from, until int64, err error) {
	from, until = math.MinInt64, math.MaxInt64
	if c.Since > 0 {
		from = idgen.FirstAt(now.Add(-c.Since))
	}
	if c.From != "" {
		if from, err = parseBound(c.From); err != nil {
			return 0, 0, fmt.Errorf("--from: %w", err)
		}
	}
	if c.To != "" {
		if until, err = parseBound(c.To); err != nil {
			return 0, 0, fmt.Errorf("--to: %w", err)
		}
	}
	return from, until, nil
}

// parseBound reads an order id, or the time of one.
func parseBound(s string) (int64, error) {
	if !strings.ContainsAny(s, "-:") {
		id, err := idgen.Parse(s)
		if err != nil {
			return 0, fmt.Errorf("%w; see octopay id. Or a time, such as 2026-12-01T08:00:00Z", err)
		}
		return id.Snowflake(), nil
	}
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return 0, errors.New("it is no time with an offset, such as 2026-12-01T08:00:00Z")
	}
	return idgen.FirstAt(at), nil
}

const (
	// walkersMax is how many pages are read at once.
	walkersMax = 4
	// pageWithin bounds the reading of a page.
	pageWithin = 9 * time.Second
	// pageTries is how often a page is asked for that a database doesn't answer.
	pageTries = 4
)

// Run reads every order of the range with its journal, and says which aren't as they must
// be. All tables are walked at once by rising ids, the one that is least far first, so
// that one id says how far all of them are.
func (c checkOrdersCmd) Run(ctx context.Context, s boot.Shared, to console) error {
	file, err := mapFile(s)
	if err != nil {
		return err
	}
	config, err := access(s)
	if err != nil {
		return err
	}
	config.ReadTimeout = pageWithin
	said := to
	if c.JSON {
		said.out = to.err
	}
	db, err := openToRead(ctx, file, config, said)
	if err != nil {
		return err
	}
	err = newAuditor(c, db, to).run(ctx)
	return errors.Join(err, db.Close())
}

// A walk is one table on its way.
type walk struct {
	db     *cluster.Database
	table  int
	next   int64 // the first snowflake that has yet to be judged
	done   bool
	busy   bool // somebody reads it
	failed bool // it could not be read
}

// An auditor is a check of orders under way.
type auditor struct {
	checkOrdersCmd
	c           *cluster.Cluster
	m           *shardmap.Map
	from, until int64
	pace        *rate.Limiter
	to          console

	size     int           // orders of a page
	patience time.Duration // how long a row may be on its way to the mirror
	between  func(*walk)   // in tests: called between the readings of rows and of journals
	waits    func()        // in tests: called before the mirror's marks are looked at

	mu      sync.Mutex // of what follows, and of the output
	walks   []*walk
	gauge   *gauge
	sum     orderSum
	named   int
	late    map[string]*late // by database
	failure error            // of the output
}

// An orderSum is the last line as JSON.
type orderSum struct {
	Kind        string `json:"kind"` // summary
	Databases   int    `json:"databases"`
	Tables      int    `json:"tables"`
	Orders      int64  `json:"orders"`
	Entries     int64  `json:"entries"`
	Again       int64  `json:"looked_at_again"` // copies that were on their way
	Faulty      int64  `json:"faulty_orders"`
	Differences int64  `json:"differences"`
	GoOn        string `json:"go_on_from,omitempty"` // it did not come to the end; see --from
}

// A late is what of a database of the mirror could not be judged.
type late struct {
	orders int64
	why    string
}

func newAuditor(c checkOrdersCmd, db *cluster.Cluster, to console) *auditor {
	a := &auditor{checkOrdersCmd: c, c: db, m: db.Map(), to: to, size: pageOrders, patience: copyWithin, late: map[string]*late{}}
	a.sum.Kind = "summary"
	a.from, a.until, _ = c.bounds(to.now) // Validate saw the error
	limit := rate.Inf
	if c.Rate > 0 {
		limit = rate.Limit(c.Rate)
	}
	a.pace = rate.NewLimiter(limit, pageOrders)
	add := func(in shardmap.Cluster, database, table int) {
		a.walks = append(a.walks, &walk{db: db.Database(in, database), table: table, next: a.from})
	}
	if c.UID > 0 {
		at := a.m.Locate(c.UID)
		add(shardmap.UID, at.Database, at.Table)
		a.sum.Databases = 1
		return a
	}
	clusters := []shardmap.Cluster{shardmap.UID}
	if c.Mirror {
		clusters = append(clusters, shardmap.BID)
	}
	for _, in := range clusters {
		for n := range a.m.Size() {
			for table := range slot.Tables {
				add(in, n+1, table)
			}
		}
	}
	a.sum.Databases = len(clusters) * a.m.Size()
	return a
}

// run walks, and ends with the sum.
func (a *auditor) run(ctx context.Context) error {
	a.sum.Tables = len(a.walks)
	a.gauge = newGauge(a.to, a.estimate(ctx))
	var walkers sync.WaitGroup
	for range walkersMax {
		walkers.Go(func() {
			for w := a.take(); w != nil; w = a.take() {
				a.step(ctx, w)
				if ctx.Err() != nil {
					return
				}
			}
		})
	}
	walkers.Wait()
	a.gauge.end()
	return a.end()
}

// take returns the table that is least far and that nobody reads, for the caller to read;
// nil when there is none.
func (a *auditor) take() *walk {
	a.mu.Lock()
	defer a.mu.Unlock()
	var least *walk
	for _, w := range a.walks {
		if !w.done && !w.busy && !w.failed && (least == nil || w.next < least.next) {
			least = w
		}
	}
	if least == nil || a.failure != nil {
		return nil
	}
	least.busy = true
	return least
}

// step reads and judges one page of a table.
func (a *auditor) step(ctx context.Context, w *walk) {
	p, at, err := a.page(ctx, w, w.next, a.until)
	var open map[int64]imprint
	if err == nil {
		open = a.judge(w, p)
		if len(open) > 0 {
			a.settle(ctx, w, open)
		}
		a.wait(ctx, len(p.orders)+len(p.entries))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	w.busy = false
	switch {
	case err == nil && ctx.Err() != nil && len(open) > 0:
		return // it was not judged to the end: whoever goes on reads it again
	case err == nil:
		w.next, w.done = p.next, p.next >= a.until
		a.sum.Orders += int64(len(p.orders))
		a.sum.Entries += int64(len(p.entries))
	case ctx.Err() == nil:
		w.failed = true
		a.whole(w.place(), at, fmt.Sprintf("%s could not be checked: %v", at, dberr.Clean(err)))
	}
	if position, all := a.position(); !all {
		a.gauge.tell(time.Now(), &a.sum, position)
	}
}

func (w *walk) place() string { return w.db.Place().String() }

// wait keeps to the rate.
func (a *auditor) wait(ctx context.Context, rows int) {
	for rows > 0 {
		n := min(rows, a.pace.Burst())
		if a.pace.WaitN(ctx, n) != nil {
			return // the end of ctx is seen by who walks
		}
		rows -= n
	}
}

// position returns from where on not everything is judged; all reports that everything is.
func (a *auditor) position() (next int64, all bool) {
	next, all = math.MaxInt64, true
	for _, w := range a.walks {
		if !w.done {
			next, all = min(next, w.next), false
		}
	}
	return next, all
}

// goOn returns a position as --from takes it. It is a time, cut to ms: no whole order id
// is between two orders of different buyers.
func goOn(position int64) string {
	return idgen.SnowflakeTime(max(position, 0)).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// An orderFinding is a fault, as it is said.
type orderFinding struct {
	said
	OrderID string `json:"order_id,omitempty"`
	Table   string `json:"table,omitempty"`
	Seq     int64  `json:"seq,omitempty"` // of a journal's entry
	Column  string `json:"column,omitempty"`
	Has     string `json:"has,omitempty"` // where it says both: neither is a text of others
	Want    string `json:"should_be,omitempty"`
}

// found says what is wrong with an order.
func (a *auditor) found(w *walk, order string, faults []tableFault) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sum.Faulty++
	for _, f := range faults {
		of := "order " + order
		if f.Seq > 0 {
			of += fmt.Sprintf(", entry %d", f.Seq)
		}
		a.differs(orderFinding{
			said:    said{Where: w.place(), Text: f.table + ": " + of + ": " + f.Text()},
			OrderID: order, Table: f.table, Seq: f.Seq, Column: f.Column, Has: f.Has, Want: f.Want,
		})
	}
}

// differs counts a finding, and says it unless enough were. a.mu is held.
func (a *auditor) differs(f orderFinding) {
	a.sum.Differences++
	switch a.named++; {
	case a.named <= a.Findings:
		f.Kind = "difference"
		a.write(f, fmt.Sprintf("DIFFERS %s: %s", f.Where, f.Text))
	case a.named == a.Findings+1:
		text := fmt.Sprintf("What differs beyond these %d is counted and not named; --findings names more.", a.Findings)
		a.write(said{Kind: "note", Text: text}, text)
	}
}

// whole says what differs as a whole: that is always said. a.mu is held.
func (a *auditor) whole(where, table, text string) {
	a.sum.Differences++
	a.write(orderFinding{said: said{"difference", where, text}, Table: table}, fmt.Sprintf("DIFFERS %s: %s", where, text))
}

// write writes a line. a.mu is held.
func (a *auditor) write(object any, text string) {
	a.gauge.aside()
	var err error
	if a.JSON {
		err = json.NewEncoder(a.to.out).Encode(object)
	} else {
		_, err = fmt.Fprintln(a.to.out, text)
	}
	a.failure = cmp.Or(a.failure, err)
}

// end writes the sum, and fails unless all is well.
func (a *auditor) end() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.walks {
		if l := a.late[w.place()]; l != nil && w.table == 0 {
			a.whole(w.place(), "", fmt.Sprintf("%d orders could not be judged: %s: see octopay check", l.orders, l.why))
		}
	}
	position, all := a.position()
	line := fmt.Sprintf("Checked: %d orders and %d entries of their journals, in %d tables of %d databases. Orders at fault: %d. Differences: %d.",
		a.sum.Orders, a.sum.Entries, a.sum.Tables, a.sum.Databases, a.sum.Faulty, a.sum.Differences)
	if a.sum.Again > 0 {
		line += fmt.Sprintf(" Looked at again, since they were on their way to the mirror: %d.", a.sum.Again)
	}
	if !all {
		a.sum.GoOn = goOn(position)
		line += fmt.Sprintf(" It did not come to the end: --from %s goes on.", a.sum.GoOn)
	}
	a.write(a.sum, line)
	switch {
	case a.failure != nil:
		return a.failure
	case !all || a.sum.Differences > 0:
		return errSaid
	}
	return nil
}

// A tableFault is a fault and the table that it is in.
type tableFault struct {
	table string
	ordersvc.Fault
}
