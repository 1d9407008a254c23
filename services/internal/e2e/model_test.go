package e2e_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/go-sql-driver/mysql"
	"github.com/octopay/octopay/auth"
	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/faultproxy"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"
)

// verdict returns what an answer says.
func (a answer) verdict(t testing.TB) verdict {
	var body struct {
		Status    json.RawMessage
		Code      string
		Recorded  bool
		Version   int64
		Paid      int64           `json:"paid_amount"`
		Refunded  int64           `json:"refunded_amount"`
		Unapplied int64           `json:"unapplied_payments"`
		Order     json.RawMessage `json:"order"`
	}
	if err := json.Unmarshal(a.raw, &body); err != nil {
		t.Errorf("%v in %s", err, a)
	}
	v := verdict{status: a.status, code: body.Code, recorded: body.Recorded,
		replayed: a.header.Get("Idempotent-Replayed") == "true", late: a.header.Get("X-Late-Payment") == "true"}
	if a.status >= 300 {
		return v
	}
	if body.Order != nil {
		inner := answer{status: a.status, header: http.Header{}, raw: body.Order}.verdict(t)
		v.order = inner.order
		return v
	}
	var status string
	if err := json.Unmarshal(body.Status, &status); err != nil {
		t.Errorf("%v in %s", err, a)
	}
	v.order = seen(status, body.Version, body.Paid, body.Refunded, body.Unapplied)
	return v
}

// neverLearnt is when an operation ends whose answer was lost: it may happen at any time
// from its beginning on.
const neverLearnt = math.MaxInt64

// lives is the reference for porcupine: one order's ledger. An operation whose output is
// nil was never answered.
var lives = porcupine.Model{
	Init: func() any { return ledger("") },
	Step: func(state, in, out any) (bool, any) {
		after, want := state.(ledger).do(in.(deed))
		return out == nil || out.(verdict) == want, after
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
	DescribeState:     func(state any) string { return strings.ReplaceAll(string(state.(ledger)), "\n", "; ") },
}

// A story is one order, and what was done to it.
type story struct {
	scriptedOrder
	create request

	mu      sync.Mutex
	id      string // once it is known
	history []porcupine.Operation
	acked   []deed
	aged    bool
}

// known returns the order's id, "" before there is one.
func (s *story) known() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// made sets the order's id.
func (s *story) made(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id = id
}

func (s *story) add(client int, d deed, call time.Duration, out any, back time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	end := int64(back)
	if out == nil {
		end = neverLearnt
	} else if out.(verdict).status < 300 {
		s.acked = append(s.acked, d)
	}
	s.history = append(s.history, porcupine.Operation{ClientId: client, Input: d, Call: int64(call), Output: out, Return: end})
}

// A stage is two orderd behind a proxy, and a syncerd, on which scripts are played.
type stage struct {
	t       *testing.T
	rig     *rig
	link    *faultproxy.Proxy
	admin   *sql.DB
	channel *channelKey
	ops     string
	began   time.Time
	plays   int

	mu       sync.Mutex
	orderd   []*program
	spare    *program // takes the place of the next that is killed
	turn     int
	unknown  atomic.Int64
	done     atomic.Int64
	happened map[string]int
	aged     []idgen.ID
}

// The whole life of orders against its model: random scripts, played on two orderd while
// connections to the truth are cut before, after and behind what they carry, processes
// are killed and transactions deadlock. Every caller repeats what he wasn't answered.
//
// Every history must be linearizable: each answer is the one that the contract gives, at
// some moment between the call and its answer, of one sequence of all that was done to
// the order. Then the row is the fold of its journal, with one applied payment and no
// more refunded than paid; what was acknowledged is in it; and the mirror has the same.
func TestOrdersLiveAsTheirModel(t *testing.T) {
	checks := "25"
	if *long {
		checks = "400"
	}
	must(t, flag.Set("rapid.checks", checks))
	stack := localstack.Private(t, localstack.Options{})
	link := faultproxy.New(t, stack.Server("uid-a").Address())
	env := append(environment(t, stack.Via(t, "uid-a", link.Addr())), "OCTOPAY_MASTER_KEY="+masterKey)
	ops, err := auth.NewStore(stack.Cluster(t).Meta(), nil).Create(t.Context(), auth.Spec{Role: auth.Ops}, "test")
	must(t, err)
	s := &stage{
		t: t, link: link, admin: stack.Admin(t, "uid-a"), channel: newChannel(t, stack), ops: ops.Text,
		began: time.Now(), happened: map[string]int{},
	}
	s.rig = rigOn(t, stack, env)
	s.orderd = s.rig.api
	operations := 0
	all := scripts()
	rapid.Check(t, func(r *rapid.T) {
		operations += s.play(r, all.Draw(r, "script"))
	})
	for kind, point := range cutAt {
		s.happened[kind] = link.Fired(point)
	}
	for _, kind := range faultKinds {
		if s.happened[kind] == 0 {
			t.Errorf("no %s happened: %v", kind, s.happened)
		}
	}
	if s.unknown.Load() == 0 {
		t.Error("no answer was lost")
	}

	c := stack.Cluster(t)
	truth, journal := rows(t, c, shardmap.UID), entries(t, c, shardmap.UID)
	mirrored(t, c, truth, journal)
	s.giveTimeBack()
	out, err := operate(t, env, "check", "orders", "--mirror", "--json")
	if err != nil {
		t.Errorf("octopay check orders: %v\n%s", err, out)
	}
	written := 0
	for _, all := range journal {
		written += len(all)
	}
	t.Logf("%d scripts, %d operations on %d orders, %d journal entries; %d answers lost; %v; 0 histories wrong, mirror equal",
		s.plays, operations, len(truth), written, s.unknown.Load(), s.happened)
}

// play plays a script and judges what came of it. It returns how many operations there
// were.
func (s *stage) play(r *rapid.T, p script) int {
	s.plays++
	stories := make([]*story, len(p.orders))
	total := 0
	for i, o := range p.orders {
		stories[i] = &story{scriptedOrder: o, create: request{
			UID: fmt.Sprint(640*(1000*s.plays+i) + 11), BID: "1001", OutTradeNo: fmt.Sprint("M-", s.plays), Amount: o.amount, Currency: o.currency, Subject: "x",
		}}
		total += len(o.deeds)
	}
	s.done.Store(0)
	if s.spare == nil {
		s.spare = start(s.t, "orderd", s.rig.env).ready(s.t)
	}
	var faults sync.WaitGroup
	defer faults.Wait()
	ended := make(chan error, 1)
	go func() { ended <- s.perform(stories, p.inBatch) }()
	var err error
	over := false
	for _, f := range p.faults {
		for !over && s.done.Load() < int64(f.at*float64(total)) {
			select {
			case err = <-ended:
				over = true
			case <-time.After(time.Millisecond):
			}
		}
		if !over {
			faults.Go(func() { s.cause(f.kind, stories) })
		}
	}
	if !over {
		err = <-ended
	}
	if err != nil {
		r.Fatal(err)
	}
	operations := 0
	for _, one := range stories {
		s.judge(r, one)
		operations += len(one.history)
	}
	return operations
}

// perform creates the orders, and does to each what is scripted: three callers at once.
func (s *stage) perform(stories []*story, inBatch int) error {
	var creators errgroup.Group
	creators.Go(func() error { return s.batch(stories[:inBatch]) })
	for _, one := range stories[inBatch:] {
		creators.Go(func() error {
			return s.attempt(one, 0, deed{kind: "create", amount: one.amount, currency: one.currency})
		})
	}
	if err := creators.Wait(); err != nil {
		return err
	}
	const callers = 3
	var g errgroup.Group
	for _, one := range stories {
		for caller := range callers {
			g.Go(func() error {
				for i := caller; i < len(one.deeds); i += callers {
					if err := s.attempt(one, caller+1, one.deeds[i]); err != nil {
						return err
					}
					s.done.Add(1)
				}
				return nil
			})
		}
	}
	return g.Wait()
}

// base returns the next process's URL.
func (s *stage) base() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn++
	return s.orderd[s.turn%len(s.orderd)].api
}

// attempt does a deed until it is answered for good.
func (s *stage) attempt(one *story, caller int, d deed) error {
	if d.kind == "expire" {
		return s.age(one)
	}
	for {
		base := s.base()
		method, target, body, role := http.MethodPost, base+"/v1/orders", any(nil), auth.App
		switch d.kind {
		case "create":
			again := one.create
			again.Amount = d.amount
			body = again
		case "get":
			method, target = http.MethodGet, target+"/"+one.known()
		default:
			var path string
			path, body, role = d.call(one.scriptedOrder)
			target += "/" + one.known() + path
		}
		call := time.Since(s.began)
		a, err := s.ask(role, one.known(), method, base, target, body)
		back := time.Since(s.began)
		switch {
		case err != nil && strings.Contains(err.Error(), "connection refused"):
		case err != nil, a.status == http.StatusGatewayTimeout:
			s.unknown.Add(1)
			one.add(caller, d, call, nil, back)
		case a.status == http.StatusServiceUnavailable: // and nothing was done: else the history can't be
		case a.status >= 500:
			return fmt.Errorf("%+v: %s", d, a)
		default:
			one.add(caller, d, call, a.verdict(s.t), back)
			if one.known() == "" {
				one.made(a.order(s.t).OrderID)
			}
			return nil
		}
		pass(5 * time.Millisecond)
	}
}

// ask makes one request as a role.
func (s *stage) ask(role auth.Role, id, method, base, target string, body any) (answer, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 15*time.Second)
	defer cancel()
	switch role {
	case auth.Channel:
		return callAs(s.t, ctx, s.channel.text, method, target, body, s.channel.sign(id))
	case auth.Ops:
		return callAs(s.t, ctx, s.ops, method, target, body, nil)
	}
	return callAs(s.t, ctx, keyOf(s.t, strings.TrimPrefix(base, "http://")), method, target, body, nil)
}

// batch creates orders by one request, repeated until each item is answered for good.
func (s *stage) batch(stories []*story) error {
	left := stories
	for len(left) > 0 {
		var items []request
		for _, one := range left {
			items = append(items, one.create)
		}
		base := s.base()
		call := time.Since(s.began)
		a, err := s.ask(auth.App, "", http.MethodPost, base, base+"/v1/orders/batch", map[string]any{"orders": items})
		back := time.Since(s.began)
		var answered struct {
			Results []struct {
				Status   int
				Replayed bool
				Order    json.RawMessage
				Error    json.RawMessage
			}
		}
		switch {
		case err != nil && strings.Contains(err.Error(), "connection refused"), err == nil && a.status == http.StatusServiceUnavailable:
			pass(5 * time.Millisecond)
			continue
		case err != nil:
			answered.Results = nil
		case a.status != http.StatusOK:
			return fmt.Errorf("a batch: %s", a)
		default:
			if err := json.Unmarshal(a.raw, &answered); err != nil || len(answered.Results) != len(left) {
				return fmt.Errorf("a batch of %d: %w, %s", len(left), err, a)
			}
		}
		var again []*story
		for i, one := range left {
			d := deed{kind: "create", amount: one.amount, currency: one.currency}
			item := answer{status: http.StatusGatewayTimeout, header: http.Header{}}
			if answered.Results != nil {
				item.status, item.raw = answered.Results[i].Status, answered.Results[i].Order
				if answered.Results[i].Replayed {
					item.header.Set("Idempotent-Replayed", "true")
				}
			}
			switch item.status {
			case http.StatusServiceUnavailable:
				again = append(again, one)
			case http.StatusGatewayTimeout:
				s.unknown.Add(1)
				one.add(0, d, call, nil, back)
				again = append(again, one)
			case http.StatusCreated, http.StatusOK:
				one.add(0, d, call, item.verdict(s.t), back)
				one.made(item.order(s.t).OrderID)
			default:
				return fmt.Errorf("item %d: %s", i, answered.Results[i].Error)
			}
		}
		left = again
	}
	return nil
}

// age sets an order's time to one that is over, once; the scanner closes it some time
// later, unless somebody was faster.
func (s *stage) age(one *story) error {
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.aged {
		return nil
	}
	one.aged = true
	id, err := idgen.Parse(one.id)
	if err != nil {
		return err
	}
	one.history = append(one.history, porcupine.Operation{Input: deed{kind: "expire"}, Call: int64(time.Since(s.began)), Return: neverLearnt})
	for {
		_, err = s.admin.ExecContext(s.t.Context(), "UPDATE "+s.table("order")+" SET expires_at = UTC_TIMESTAMP(3) - INTERVAL 31 SECOND WHERE id = ? AND status = 'created'", id.Snowflake())
		if !lostLock(err) {
			return err
		}
	}
}

// lostLock reports whether a transaction lost a deadlock, or waited for a lock too long.
func lostLock(err error) bool {
	var said *mysql.MySQLError
	return errors.As(err, &said) && (said.Number == 1205 || said.Number == 1213)
}

// giveTimeBack sets the times of those that were aged to what an order can have, in both
// clusters.
func (s *stage) giveTimeBack() {
	m := s.rig.stack.Map
	copies := m.Locate(1001)
	at := m.Database(shardmap.BID, copies.Database)
	for _, side := range []struct {
		db    *sql.DB
		table string
	}{
		{s.admin, s.table("order")},
		{s.rig.stack.Admin(s.t, at.Server.Name), fmt.Sprintf("`%s`.order_%d", at.Schema, copies.Table)},
	} {
		for _, id := range s.aged {
			_, err := side.db.ExecContext(s.t.Context(), "UPDATE "+side.table+" SET expires_at = ? WHERE id = ?", id.Time().Add(time.Hour), id.Snowflake())
			must(s.t, err)
		}
	}
}

// table names the table of all orders, or of their journals.
func (s *stage) table(kind string) string {
	at := s.rig.stack.Map.Locate(11)
	return fmt.Sprintf("`%s`.%s_%d", s.rig.stack.Map.Database(shardmap.UID, at.Database).Schema, kind, at.Table)
}

// writes matches what orders are written with.
func writes(packet []byte) bool {
	return faultproxy.Query("SET @n=0;")(packet) || faultproxy.Query(" ON DUPLICATE KEY UPDATE id=id;")(packet)
}

var cutAt = map[string]faultproxy.Point{
	"cut before it is sent": faultproxy.BeforePacket,
	"cut after it is sent":  faultproxy.BeforeReply,
	"cut after the commit":  faultproxy.AfterReply,
}

// cause makes a fault happen, and counts it when it did.
func (s *stage) cause(kind string, stories []*story) {
	switch point, is := cutAt[kind]; {
	case is:
		s.link.Arm(point, writes) // it counts by itself
	case kind == "kill -9":
		s.mu.Lock()
		old := s.orderd[0]
		s.orderd = []*program{s.orderd[1], s.spare}
		s.spare = nil
		s.mu.Unlock()
		old.kill(s.t)
	case kind == "deadlock":
		if !s.deadlock(stories) {
			return
		}
	}
	s.mu.Lock()
	s.happened[kind]++
	s.mu.Unlock()
}

// deadlock takes the locks of two orders in the order in which nobody of ours does, as a
// transaction that the server would rather keep than one of ours. It reports whether
// there was a deadlock: there is none while nobody changes both at once.
func (s *stage) deadlock(stories []*story) bool {
	var ids []int64
	for _, one := range stories {
		if id, err := idgen.Parse(one.known()); err == nil {
			ids = append(ids, id.Snowflake())
		}
	}
	if len(ids) < 2 {
		return false
	}
	slices.Sort(ids)
	conn, err := s.admin.Conn(s.t.Context())
	must(s.t, err)
	defer cluster.Discard(conn)
	exec := func(text string, args ...any) error {
		_, err := conn.ExecContext(s.t.Context(), text, args...)
		return err
	}
	schema, _, _ := strings.Cut(s.table("order"), ".")
	must(s.t, exec("CREATE TEMPORARY TABLE "+schema+".weight (n INT PRIMARY KEY) ENGINE=InnoDB"))
	before := s.deadlocks()
	for range 20 {
		must(s.t, exec("SET innodb_lock_wait_timeout = 1"))
		must(s.t, exec("BEGIN"))
		must(s.t, exec("INSERT INTO "+schema+".weight SELECT seq FROM "+schema+".seq_1_to_200"))
		err := exec("SELECT 1 FROM "+s.table("order")+" WHERE id = ? FOR UPDATE", ids[len(ids)-1])
		if err == nil {
			pass(3 * time.Millisecond)
			err = exec("SELECT 1 FROM "+s.table("order")+" WHERE id IN (?"+strings.Repeat(",?", len(ids)-2)+") ORDER BY id FOR UPDATE", args(ids[:len(ids)-1])...)
		}
		if !lostLock(err) {
			must(s.t, err)
		}
		must(s.t, exec("ROLLBACK"))
		if s.deadlocks() > before {
			return true
		}
	}
	return false
}

func args(ids []int64) (out []any) {
	for _, id := range ids {
		out = append(out, id)
	}
	return out
}

func (s *stage) deadlocks() (n int) {
	var name string
	must(s.t, s.admin.QueryRowContext(s.t.Context(), "SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'").Scan(&name, &n))
	return n
}

// judge holds what is stored of an order against what was answered.
func (s *stage) judge(r *rapid.T, one *story) {
	id, err := idgen.Parse(one.id)
	if err != nil {
		r.Fatal(err)
	}
	var row schema.Order
	var journal []schema.Entry
	eventually.True(s.t, "whoever is late has expired", func() bool {
		row, journal = s.stored(id)
		return !one.aged || row.Status != schema.Created
	})
	if one.aged {
		s.aged = append(s.aged, id)
	}
	folded, err := ordersvc.Fold(ordersvc.Born(row), journal)
	if len(journal) == 0 {
		folded.UpdatedAt = row.UpdatedAt
	}
	if err != nil || folded != row {
		r.Errorf("the journal makes %+v (%v), the row is %+v", folded, err, row)
	}
	if row.RefundedAmount > row.PaidAmount || row.PaidAmount > row.Amount {
		r.Errorf("refunded more than paid, or paid more than asked: %+v", row)
	}
	count := map[string]int{}
	paid := 0
	for _, e := range journal {
		count[e.Op]++
		if e.Kind == schema.KindPaid {
			paid++
		}
	}
	if paid > 1 {
		r.Errorf("%d payments were applied", paid)
	}
	for _, d := range one.acked {
		// A pay that was acknowledged may be a late one, recorded under another name.
		op := d.op()
		if op != "" && count[op] == 0 && count[fmt.Sprintf("unapplied:wechat:%s:%d%s", d.number, d.amount, d.currency)] == 0 {
			r.Errorf("%s: %+v was acknowledged and is not in the journal", one.id, d)
		}
	}
	if result := porcupine.CheckOperationsTimeout(lives, one.history, time.Minute); result != porcupine.Ok {
		text := ""
		slices.SortFunc(one.history, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
		for _, o := range one.history {
			text += fmt.Sprintf("\n%d: %9d %9d %s", o.ClientId, o.Call/1000, o.Return/1000, lives.DescribeOperation(o.Input, o.Output))
		}
		r.Errorf("the history of %s (%d %s) is %s%s\nits journal: %+v", one.id, one.amount, one.currency, result, text, journal)
	}
}

// stored reads an order and its journal from the truth, in one snapshot.
func (s *stage) stored(id idgen.ID) (row schema.Order, journal []schema.Entry) {
	tx, err := s.admin.BeginTx(s.t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	must(s.t, err)
	defer func() { _ = tx.Rollback() }()
	must(s.t, tx.QueryRowContext(s.t.Context(), "SELECT "+schema.List(schema.OrderColumns)+" FROM "+s.table("order")+" WHERE id = ?", id.Snowflake()).Scan(row.Fields()...))
	rs, err := tx.QueryContext(s.t.Context(), "SELECT "+schema.List(schema.EntryColumns)+" FROM "+s.table("journal")+" WHERE order_id = ? ORDER BY seq", id.Snowflake())
	must(s.t, err)
	for rs.Next() {
		var e schema.Entry
		must(s.t, rs.Scan(e.Fields()...))
		journal = append(journal, e)
	}
	must(s.t, errors.Join(rs.Err(), rs.Close()))
	return row, journal
}
