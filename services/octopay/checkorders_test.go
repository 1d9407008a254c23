package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/ordersvc/mysqlstore"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"golang.org/x/time/rate"
)

// bornAt is when the first order of these tests is made; each is a second after the one
// before.
var bornAt = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// life is order n, with what became of it.
func life(n int, uid, bid int64, ops ...ordersvc.Operation) *ordersvc.Life {
	made := bornAt.Add(time.Duration(n) * time.Second)
	o := ordersvc.New{
		Key: ordersvc.Key{UID: uid, BID: bid, OutTradeNo: fmt.Sprint("n", n)}, Amount: 10_000, Currency: "CNY", Subject: "Le Max 2", Metadata: `{"sku":"a"}`,
		ExpiresIn: time.Hour, Actor: "app", RequestID: "r",
	}.Order(idgen.Make(uid, idgen.FirstAt(made)))
	o.UpdatedAt = o.CreatedAt() + 3
	l := &ordersvc.Life{Order: o}
	for i, op := range ops {
		l.Apply(&ordersvc.Change{Order: o.OrderID(), By: ordersvc.By{Actor: "app", RequestID: "r"}, Do: op}, o.UpdatedAt+schema.Millis(i+1))
	}
	return l
}

func payment(number string, amount int64) ordersvc.Pay {
	return ordersvc.Pay{Channel: "wechat", TradeNo: number, Amount: amount, Currency: "CNY"}
}

// lives are n orders in all tables, with what can become of one.
func lives(n int) (all []*ordersvc.Life) {
	many := make([]ordersvc.Operation, 40) // more entries than a page has
	for i := range many {
		many[i] = payment(fmt.Sprint("x", i), 1)
	}
	for i := range n {
		all = append(all, life(i, int64(1+i), int64(1001+i%13), [][]ordersvc.Operation{
			nil,
			{payment("p", 10_000)},
			{payment("p", 10_000), ordersvc.Return{No: "a", Amount: 1}, ordersvc.ReturnResult{No: "a", Succeeded: true}, ordersvc.Return{No: "b", Amount: 9_999}},
			{ordersvc.Close{Reason: schema.ByBuyer}, payment("p", 10_000), ordersvc.ReturnUnapplied{Seq: 3, No: "u"}},
			{payment("q", 9_999), payment("p", 10_000), payment("r", 10_000), ordersvc.VoidUnapplied{Seq: 2, Reason: "by hand"}},
			many,
			nil,
		}[i%7]...))
	}
	return all
}

// put stores orders with their journals in a cluster, where they belong.
func (e *estate) put(t *testing.T, in shardmap.Cluster, all ...*ordersvc.Life) {
	t.Helper()
	type at struct {
		db    *cluster.Database
		table int
	}
	orders, entries := map[at][]any{}, map[at][]any{}
	for _, l := range all {
		key := l.Order.UID
		if in == shardmap.BID {
			key = l.Order.BID
		}
		loc := e.c.Map().Locate(key)
		to := at{e.c.Database(in, loc.Database), loc.Table}
		orders[to] = append(orders[to], l.Order.Values()...)
		for i := range l.Journal {
			entries[to] = append(entries[to], l.Journal[i].Values()...)
		}
	}
	insert := func(to at, table string, columns []string, values []any) {
		row := "(?" + strings.Repeat(",?", len(columns)-1) + ")"
		if n := len(values) / len(columns); n > 0 {
			e.exec(t, to.db, fmt.Sprintf("INSERT INTO %%s.%s_%d (%s) VALUES %s", table, to.table, schema.List(columns), row+strings.Repeat(","+row, n-1)), values...)
		}
	}
	for to := range orders {
		insert(to, "order", schema.OrderColumns, orders[to])
		insert(to, "journal", schema.EntryColumns, entries[to])
	}
}

func entriesOf(all []*ordersvc.Life) (n int) {
	for _, l := range all {
		n += len(l.Journal)
	}
	return n
}

// besides returns what stderr says but for how far a check is, which it says when that takes
// long.
func besides(stderr string) string {
	var rest strings.Builder
	for line := range strings.Lines(stderr) {
		if !strings.Contains(line, " of about ") {
			rest.WriteString(line)
		}
	}
	return rest.String()
}

// checkOrders runs octopay check orders.
func (e *estate) checkOrders(t *testing.T, args ...string) (code int, differs []string, last, all string) {
	t.Helper()
	code, stdout, stderr := octopay(t, e.env, append([]string{"check", "orders"}, args...)...)
	if stderr := besides(stderr); stderr != "" {
		t.Errorf("on stderr: %s", stderr)
	}
	differs, last = e.lines(stdout)
	return code, differs, last, stdout
}

func (e *estate) lines(stdout string) (differs []string, last string) {
	for line := range strings.Lines(stdout) {
		last = strings.TrimSpace(line)
		if text, ok := strings.CutPrefix(last, "DIFFERS "); ok {
			differs = append(differs, strings.ReplaceAll(text, e.stack.Map.Prefix(), ""))
		}
	}
	return differs, last
}

// The order that is spoiled is of buyer 9527, database 1, table 7, and of merchant 1001,
// database 5, table 1. Its journal: 2 unapplied, 3 paid, 4 refunded, 5 its result.
func victim() *ordersvc.Life {
	return life(5000, liveUID, liveBID, payment("q", 9_999), payment("p", 10_000), ordersvc.Return{No: "a", Amount: 4_000}, ordersvc.ReturnResult{No: "a", Succeeded: true})
}

func TestCheckOrders(t *testing.T) {
	e := newEstate(t, localstack.UID, localstack.BID, localstack.Meta)
	uid := func(n int) *cluster.Database { return e.c.Database(shardmap.UID, n) }
	if code, _, last, all := e.checkOrders(t); code != 0 || last != "Checked: 0 orders and 0 entries of their journals, in 80 tables of 8 databases. Orders at fault: 0. Differences: 0." {
		t.Fatalf("nothing: exit %d\n%s", code, all)
	}
	good, v := lives(1600), victim()
	e.put(t, shardmap.UID, append(good, v)...)
	e.put(t, shardmap.BID, append(good, v)...)
	n, entries := len(good)+1, entriesOf(good)+len(v.Journal)
	sum := func(orders, entries, tables, databases int) string {
		return fmt.Sprintf("Checked: %d orders and %d entries of their journals, in %d tables of %d databases. Orders at fault: 0. Differences: 0.", orders, entries, tables, databases)
	}
	at := func(n int) string { return bornAt.Add(time.Duration(n) * time.Second).Format(time.RFC3339) }
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"all of the truth", nil, sum(n, entries, 80, 8)},
		{"the mirror too", []string{"--mirror"}, sum(2*n, 2*entries, 160, 16)},
		{"a range of time", []string{"--from", at(100), "--to", at(300)}, sum(200, entriesOf(good[100:300]), 80, 8)},
		{"from an id to an id", []string{"--from", good[100].Order.OrderID().String(), "--to", good[107].Order.OrderID().String()}, sum(7, entriesOf(good[100:107]), 80, 8)},
		{"from a time on", []string{"--from", at(1599)}, sum(2, entriesOf(good[1599:])+len(v.Journal), 80, 8)},
		{"since", []string{"--since", "1ms"}, sum(0, 0, 80, 8)},
		{"one buyer", []string{"--uid", fmt.Sprint(liveUID)}, sum(1, len(v.Journal), 1, 1)},
		{"one buyer in a range", []string{"--uid", fmt.Sprint(liveUID), "--to", at(5000)}, sum(0, 0, 1, 1)},
		{"as many as come", []string{"--rate", "0"}, sum(n, entries, 80, 8)},
	} {
		if code, _, last, all := e.checkOrders(t, c.args...); code != 0 || last != c.want {
			t.Errorf("%s: exit %d, want %s\n%s", c.name, code, c.want, all)
		}
	}

	o := v.Order
	id := o.OrderID().String()
	row := "octopay_uid_01@uid-a: order_7: order " + id + ": "
	entry := func(seq int) string {
		return fmt.Sprintf("octopay_uid_01@uid-a: journal_7: order %s, entry %d: ", id, seq)
	}
	set := func(assignment string) []string {
		return []string{fmt.Sprintf("UPDATE IGNORE %%s.order_7 SET %s WHERE id = %d", assignment, o.ID)}
	}
	setEntry := func(seq int, assignment string) []string {
		return []string{fmt.Sprintf("UPDATE IGNORE %%s.journal_7 SET %s WHERE order_id = %d AND seq = %d", assignment, o.ID, seq)}
	}
	next := idgen.Make(liveUID, o.ID+1).String()
	spoils := []struct {
		name       string
		statements []string
		want       []string // how findings begin; all of them
	}{
		{"id", set("id = id + 1"), []string{
			row + "id is missing: there is no row, and a journal of 4 entries",
			strings.Replace(row, id, next, 1) + "status is partially_refunded; should be created", "…"}},
		{"uid, of the same place", set("uid = uid + 640"), []string{strings.Replace(entry(2), id, idgen.Make(liveUID+640, o.ID).String(), 1) + "uid is 9527; should be 10167"}},
		{"uid, of another place", set("uid = uid + 1"), []string{
			"octopay_uid_01@uid-a: order_7: order " + idgen.Make(liveUID+1, o.ID).String() + ": uid is 9528, whose orders are in order_8 of database 1", "…"}},
		{"uid, of nobody", set("uid = 0"), []string{fmt.Sprintf("octopay_uid_01@uid-a: order_7: order of id %d: uid is 0; uids begin with 1", o.ID), "…"}},
		{"bid", set("bid = bid + 1"), []string{entry(2) + "bid is 1001; should be 1002"}},
		{"out_trade_no", set("out_trade_no = 'a secret'"), []string{row + "out_trade_no is none that a creation takes"}},
		{"amount", set("amount = 0"), []string{row + "amount is 0; should be 1 to 9007199254740991", "…", row + "paid_amount is 10000, of 0"}},
		{"currency", set("currency = 'USD'"), []string{entry(2) + "reason is another", entry(3) + "currency is CNY; should be USD"}},
		{"subject", set("subject = ''"), []string{row + "subject is empty, too long, or no text"}},
		{"metadata", set("metadata = 'secret'"), []string{row + "metadata is no JSON object of at most 16 texts"}},
		{"status", set("status = 'closed'"), []string{row + "status is closed; should be partially_refunded"}},
		{"a status that is none", set("status = 'secret'"), []string{row + "status holds what no program can read"}},
		{"ver", set("ver = ver + 1"), []string{row + "ver is 6; should be 5"}},
		{"paid_amount", set("paid_amount = paid_amount - 1"), []string{row + "paid_amount is 9999; should be 10000"}},
		{"refunded_amount", set("refunded_amount = 10001"), []string{row + "refunded_amount is 10001; should be 4000"}},
		{"channel", set("channel = 'secret'"), []string{row + "channel differs from what its journal makes"}},
		{"channel_trade_no", set("channel_trade_no = NULL"), []string{row + "channel_trade_no differs from what its journal makes"}},
		{"unapplied_payments", set("unapplied_payments = 2"), []string{row + "unapplied_payments is 2; should be 1"}},
		{"close_reason", set("close_reason = 'expired'"), []string{row + "close_reason is expired; should be null"}},
		{"created_by", set("created_by = 'secret'"), []string{row + "created_by is neither app nor merchant"}},
		{"request_id", set("request_id = ''"), []string{row + "request_id is none that a request has"}},
		{"expires_at", set("expires_at = '2027-01-01'"), []string{row + "expires_at is 2027-01-01 00:00:00.000 UTC; the order was made at 2026-11-30 13:23:20.000 UTC and expires"}},
		{"updated_at", set("updated_at = updated_at + INTERVAL 1 SECOND"), []string{row + "updated_at is 2026-11-30 13:23:21.007 UTC; should be 2026-11-30 13:23:20.007 UTC"}},
		{"paid_at", set("paid_at = NULL"), []string{row + "paid_at is null; should be 2026-11-30 13:23:20.005 UTC"}},
		{"closed_at", set("closed_at = updated_at"), []string{row + "closed_at is 2026-11-30 13:23:20.007 UTC; should be null"}},

		{"an entry's order", setEntry(5, "order_id = order_id + 1"), []string{row + "ver is 5; should be 4", row + "updated_at", "octopay_uid_01@uid-a: order_7: order " + next + ": id is missing: there is no row, and a journal of 1 entries"}},
		{"an entry's seq", setEntry(5, "seq = 7"), []string{entry(7) + "seq is 7; the entry before has 4, so 5 is missing", row + "ver is 5; should be 7"}},
		{"an entry's uid", setEntry(3, "uid = 1"), []string{entry(3) + "uid is 1; should be 9527", "…"}},
		{"an entry's bid", setEntry(3, "bid = 1"), []string{entry(3) + "bid is 1; should be 1001", "…"}},
		{"an entry's op", setEntry(3, "op = 'pay:secret'"), []string{entry(3) + "op is another operation than"}},
		{"an entry's kind", setEntry(5, "kind = 'refund_failed'"), []string{entry(5) + "op is another operation than"}},
		{"an entry's kind that is none", setEntry(5, "kind = 'secret'"), []string{"octopay_uid_01@uid-a: journal_7: order " + id + ", entry 5: kind holds what no program can read"}},
		{"an entry's amount", setEntry(3, "amount = 1"), []string{entry(3) + "amount is 1; should be 10000", "…"}},
		{"an entry's currency", setEntry(4, "currency = 'USD'"), []string{entry(4) + "currency is USD; should be CNY", entry(5) + "currency is CNY; should be USD"}},
		{"an entry's from_status", setEntry(4, "from_status = 'closed'"), []string{entry(4) + "from_status is closed; should be paid", "…"}},
		{"an entry's to_status", setEntry(3, "to_status = 'closed'"), []string{entry(3) + "to_status is closed; no entry of kind paid leads there from created", "…"}},
		{"an entry's ref", setEntry(3, "ref = 'wechat:secret'"), []string{entry(3) + "op is another", row + "channel_trade_no differs"}},
		{"an entry's reason", setEntry(2, "reason = 'secret'"), []string{entry(2) + "reason is another than the order and the payment make"}},
		{"the reason of its result", setEntry(5, "reason = 'secret'"), []string{entry(5) + "reason is set"}},
		{"an entry's actor", setEntry(4, "actor = 'secret'"), []string{entry(4) + "actor is none of app, merchant,"}},
		{"an entry's key_id", setEntry(4, "key_id = 'a secret'"), []string{entry(4) + "key_id is none that a key has"}},
		{"an entry's request_id", setEntry(4, "request_id = 'a secret'"), []string{entry(4) + "request_id is none that a request has"}},
		{"an entry's recorded_at", setEntry(4, "recorded_at = '2026-11-30'"), []string{entry(4) + "recorded_at is 2026-11-30 00:00:00.000 UTC; the version before is of", "…"}},
		{"an entry's paid_at", setEntry(3, "paid_at = '2026-11-30'"), []string{row + "paid_at is 2026-11-30 13:23:20.005 UTC; should be 2026-11-30 00:00:00.000 UTC"}},
		{"an entry's channel_refund_no", setEntry(3, "channel_refund_no = 'secret'"), []string{entry(3) + "channel_refund_no is set"}},
		{"an entry is missing", []string{fmt.Sprintf("DELETE FROM %%s.journal_7 WHERE order_id = %d AND seq = 5", o.ID)}, []string{row + "ver is 5; should be 4", row + "updated_at is"}},
		{"the payment is missing", []string{fmt.Sprintf("DELETE FROM %%s.journal_7 WHERE order_id = %d AND seq = 3", o.ID)}, []string{entry(4) + "seq is 4; the entry before has 2, so 3 is missing", entry(4) + "from_status is paid; should be created", "…"}},
		{"the journal is missing", []string{fmt.Sprintf("DELETE FROM %%s.journal_7 WHERE order_id = %d", o.ID)}, []string{row + "status is partially_refunded; should be created", "…"}},
		{"the row is missing", []string{fmt.Sprintf("DELETE FROM %%s.order_7 WHERE id = %d", o.ID)}, []string{row + "id is missing: there is no row, and a journal of 4 entries"}},
		{"a doubled payment", []string{
			fmt.Sprintf("INSERT INTO %%s.journal_7 (%[1]s) SELECT %[2]s FROM %%s.journal_7 WHERE order_id = %[3]d AND seq = 3", schema.List(schema.EntryColumns),
				strings.Replace(strings.Replace(strings.Replace(schema.List(schema.EntryColumns), "seq", "6", 1), ",op,", ",'pay:wechat:again',", 1), "recorded_at", "recorded_at + INTERVAL 1 SECOND", 1), o.ID),
			fmt.Sprintf("UPDATE %%s.order_7 SET ver = 6, paid_amount = 20000 WHERE id = %d", o.ID)},
			[]string{entry(6) + "from_status is created; should be partially_refunded", row + "paid_amount is 20000, of 10000"}},
		{"an edge that there isn't", []string{
			fmt.Sprintf("UPDATE %%s.journal_7 SET kind = 'closed', to_status = 'closed', reason = 'buyer' WHERE order_id = %d AND seq = 4", o.ID),
			fmt.Sprintf("UPDATE %%s.order_7 SET status = 'closed' WHERE id = %d", o.ID)},
			[]string{entry(4) + "to_status is closed; no entry of kind closed leads there from paid"}},
	}
	for _, c := range spoils {
		for _, s := range c.statements {
			e.exec(t, uid(1), s)
		}
		code, differs, last, all := e.checkOrders(t, "--rate", "0", "--from", at(4000))
		more := slices.Contains(c.want, "…")
		begins := slices.DeleteFunc(slices.Clone(c.want), func(s string) bool { return s == "…" })
		rest := slices.Clone(differs)
		for _, want := range begins {
			i := slices.IndexFunc(rest, func(s string) bool { return strings.HasPrefix(s, want) })
			if i < 0 {
				t.Errorf("%s: it doesn't say %q", c.name, want)
				continue
			}
			rest = slices.Delete(rest, i, i+1)
		}
		if code != 1 || len(rest) > 0 && !more || !strings.Contains(last, fmt.Sprintf("Differences: %d.", len(differs))) || strings.Contains(all, "Orders at fault: 0") || strings.Contains(all, "secret") {
			t.Errorf("%s: exit %d\n%s", c.name, code, all)
		}
		e.exec(t, uid(1), fmt.Sprintf("DELETE FROM %%s.order_7 WHERE id >= %d", o.ID))
		e.exec(t, uid(1), fmt.Sprintf("DELETE FROM %%s.journal_7 WHERE order_id >= %d", o.ID))
		e.put(t, shardmap.UID, v)
	}
	t.Run("one buyer's is found by the buyer", func(t *testing.T) {
		e.exec(t, uid(1), fmt.Sprintf("UPDATE %%s.order_7 SET ver = 9 WHERE id = %d", o.ID))
		code, differs, _, all := e.checkOrders(t, "--uid", fmt.Sprint(liveUID))
		e.exec(t, uid(1), fmt.Sprintf("UPDATE %%s.order_7 SET ver = 5 WHERE id = %d", o.ID))
		if code != 1 || !slices.Equal(differs, []string{row + "ver is 9; should be 5"}) {
			t.Errorf("exit %d\n%s", code, all)
		}
	})
	for _, table := range []string{"order_3", "journal_3"} {
		t.Run("there is no "+table, func(t *testing.T) {
			e.exec(t, uid(4), "RENAME TABLE %s."+table+" TO %s.hidden")
			code, differs, last, all := e.checkOrders(t)
			e.exec(t, uid(4), "RENAME TABLE %s.hidden TO %s."+table)
			if code != 1 || len(differs) != 1 || !strings.HasPrefix(differs[0], "octopay_uid_04@uid-a: "+table+" could not be checked: ") || !strings.Contains(differs[0], "1146") ||
				!strings.Contains(last, "Orders at fault: 0. Differences: 1. It did not come to the end: --from 2025-01-01T00:00:00.000Z goes on.") {
				t.Errorf("exit %d\n%s", code, all)
			}
		})
	}
	t.Run("a database that is another", func(t *testing.T) {
		e.exec(t, uid(4), "UPDATE %s.owner SET `database` = 5")
		code, differs, _, all := e.checkOrders(t)
		e.exec(t, uid(4), "UPDATE %s.owner SET `database` = 4")
		if code != 1 || len(differs) != 10 || !strings.HasPrefix(differs[0], "octopay_uid_04@uid-a: order_") {
			t.Errorf("exit %d\n%s", code, all)
		}
	})
	t.Run("as JSON, and no more than are wanted", func(t *testing.T) {
		e.exec(t, uid(1), "UPDATE %s.order_7 SET ver = ver + 1")
		defer e.exec(t, uid(1), "UPDATE %s.order_7 SET ver = ver - 1")
		code, stdout, stderr := octopay(t, e.env, "check", "orders", "--json", "--findings", "2")
		var found []orderFinding
		var last orderSum
		kinds := map[string]int{}
		for line := range strings.Lines(stdout) {
			var f orderFinding
			if err := errors.Join(json.Unmarshal([]byte(line), &f), json.Unmarshal([]byte(line), &last)); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if kinds[f.Kind]++; f.Kind == "difference" {
				found = append(found, f)
			}
		}
		of := 0 // in that table
		for _, l := range append(good, v) {
			if e.c.Map().Locate(l.Order.UID) == e.c.Map().Locate(liveUID) {
				of++
			}
		}
		want := orderSum{Kind: "summary", Databases: 8, Tables: 80, Orders: int64(n), Entries: int64(entries), Faulty: int64(of), Differences: int64(of)}
		if code != 1 || besides(stderr) != "" || !maps.Equal(kinds, map[string]int{"difference": 2, "note": 1, "summary": 1}) || last != want || of < 5 {
			t.Errorf("exit %d, want %+v\n%s%s", code, want, stderr, stdout)
		}
		for _, f := range found {
			if f.Table != "order_7" || f.Column != "ver" || f.Has == "" || f.Want == "" || f.Has == f.Want || len(f.OrderID) != idgen.Digits || !strings.HasSuffix(f.Where, "octopay_uid_01@uid-a") ||
				f.Text != fmt.Sprintf("order_7: order %s: ver is %s; should be %s", f.OrderID, f.Has, f.Want) {
				t.Errorf("%+v", f)
			}
		}
	})
	t.Run("it keeps to the rate", func(t *testing.T) {
		began := time.Now()
		const perSecond = 4000
		if code, _, _, all := e.checkOrders(t, "--rate", fmt.Sprint(perSecond)); code != 0 {
			t.Errorf("exit %d\n%s", code, all)
		}
		if took, least := time.Since(began), time.Duration(n+entries-pageOrders)*time.Second/perSecond; took < least {
			t.Errorf("%d rows took %s; at least %s must pass", n+entries, took, least)
		}
	})
}

// An auditor of an estate, its output, and the page size that makes a few orders many pages.
func (e *estate) auditor(t *testing.T, c checkOrdersCmd) (a *auditor, out *bytes.Buffer) {
	t.Helper()
	if c.Findings == 0 {
		c.Findings = 1000
	}
	out = &bytes.Buffer{}
	a = newAuditor(c, e.c, console{out: out, err: &bytes.Buffer{}, now: time.Now()})
	a.size = 2
	return a, out
}

// A page is of one moment: while it is read, between its rows and their journals, each
// order of it is changed by the program's own store, and others are beside it. None is
// taken for a fault.
func TestAChangeWhileOrdersAreCheckedIsNoFault(t *testing.T) {
	e := newEstate(t, localstack.UID, localstack.BID, localstack.Meta)
	all := lives(320)
	e.put(t, shardmap.UID, all...)
	store := mysqlstore.New(e.c)
	t.Cleanup(func() { _ = store.Close() })
	var turn sync.Mutex
	change := func(l *ordersvc.Life, number string) bool {
		turn.Lock()
		defer turn.Unlock()
		done := store.Change(t.Context(), e.c.Map().Locate(l.Order.UID).Database, []ordersvc.Change{{
			Order: l.Order.OrderID(), By: ordersvc.By{Actor: "app", RequestID: "r"}, Do: payment(number, 9_998),
		}})
		return done[0].Entry.Op != "" && !done[0].Replayed
	}

	a, out := e.auditor(t, checkOrdersCmd{})
	changed := atomic.Int64{}
	a.between = func(w *walk) {
		for _, l := range all {
			if at := e.c.Map().Locate(l.Order.UID); at.Database == w.db.Place().Number && at.Table == w.table && change(l, "between") {
				changed.Add(1)
			}
		}
	}
	stop := make(chan struct{})
	var beside sync.WaitGroup
	others := atomic.Int64{}
	beside.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if change(all[i%len(all)], fmt.Sprint("beside", i)) {
				others.Add(1)
			}
		}
	})
	err := a.run(t.Context())
	close(stop)
	beside.Wait()
	if err != nil || a.sum.Differences > 0 || a.sum.Orders != int64(len(all)) {
		t.Errorf("%v\n%s", err, out)
	}
	if changed.Load() != int64(len(all)) || others.Load() == 0 {
		t.Errorf("%d of %d orders were changed between two readings, and %d beside them: the fault did not happen", changed.Load(), len(all), others.Load())
	}
	// The truth is as it says: all is there, and right.
	again, out := e.auditor(t, checkOrdersCmd{})
	if err := again.run(t.Context()); err != nil || again.sum.Entries != int64(entriesOf(all))+changed.Load()+others.Load() {
		t.Errorf("%v, %d entries, %d + %d\n%s", err, again.sum.Entries, changed.Load(), others.Load(), out)
	}
}

// What is on its way to the mirror is no fault, and what has arrived wrong is.
func TestACopyOnItsWayIsNoFault(t *testing.T) {
	e := newEstate(t, localstack.UID, localstack.BID, localstack.Meta)
	v := victim()
	e.put(t, shardmap.UID, v)
	e.put(t, shardmap.BID, v)
	copies := e.c.Database(shardmap.BID, 5) // table 1
	last := &v.Journal[len(v.Journal)-1]
	lose := func() {
		e.exec(t, copies, fmt.Sprintf("DELETE FROM %%s.journal_1 WHERE order_id = %d AND seq = %d", last.OrderID, last.Seq))
	}
	arrive := func() {
		e.exec(t, copies, fmt.Sprintf("INSERT INTO %%s.journal_1 (%s) VALUES (?%s)", schema.List(schema.EntryColumns), strings.Repeat(",?", len(schema.EntryColumns)-1)), last.Values()...)
	}
	marks := func() { // pass all that is committed by now
		var position string
		if err := e.stack.Admin(t, "uid-a").QueryRow("SELECT @@GLOBAL.gtid_binlog_pos").Scan(&position); err != nil {
			t.Fatal(err)
		}
		e.exec(t, copies, "REPLACE INTO %s.mark (server, gtid, at) VALUES ('uid-a', ?, '2026-11-30')", position)
	}
	wrong := []string{
		"octopay_bid_05@bid-a: order_1: order " + v.Order.OrderID().String() + ": ver is 5; should be 4",
		"octopay_bid_05@bid-a: order_1: order " + v.Order.OrderID().String() + ": updated_at is 2026-11-30 13:23:20.007 UTC; should be 2026-11-30 13:23:20.006 UTC",
	}
	for _, c := range []struct {
		name     string
		waits    func(look int)
		patience time.Duration
		want     []string
		faulty   int64
		again    int // rows that are read again: an order, and what its journal has
	}{
		{"it arrives", func(look int) {
			if look == 2 {
				arrive()
				marks()
			}
		}, time.Minute, nil, 0, 5},
		{"all has arrived, and it is wrong", func(look int) {
			if look == 2 {
				marks()
			}
		}, time.Minute, wrong, 1, 4},
		{"nothing arrives", func(int) {}, time.Millisecond, []string{
			"octopay_bid_05@bid-a: 1 orders could not be judged: what server uid-a had committed had not arrived after 1ms: see octopay check"}, 0, 0},
		{"it is another each time", func(look int) {
			marks()
			e.exec(t, copies, fmt.Sprintf("UPDATE %%s.order_1 SET ver = %d", 100+look))
		}, time.Minute, []string{"octopay_bid_05@bid-a: 1 orders could not be judged: they changed each of 10 times that they were looked at: see octopay check"}, 0, copyLooks * 4},
	} {
		e.exec(t, copies, "DELETE FROM %s.mark")
		e.exec(t, copies, "UPDATE %s.order_1 SET ver = 5")
		lose()
		a, out := e.auditor(t, checkOrdersCmd{Mirror: true})
		a.patience = c.patience
		const rows = 1 << 20
		a.pace = rate.NewLimiter(1e-9, rows) // counts
		looks := 0
		a.waits = func() { looks++; c.waits(looks) }
		err := a.run(t.Context())
		differs, _ := e.lines(out.String())
		if !slices.Equal(differs, c.want) || a.sum.Faulty != c.faulty || a.sum.Again != 1 || (err != nil) != (len(c.want) > 0) || looks == 0 {
			t.Errorf("%s: %v, %d looks\n%s", c.name, err, looks, out)
		}
		if read, want := rows-int(math.Round(a.pace.Tokens())), int(a.sum.Orders+a.sum.Entries)+c.again; read != want {
			t.Errorf("%s: %d rows were within the rate, and %d were read", c.name, read, want)
		}
		if c.name != "it arrives" {
			arrive()
		}
	}
}

// A mark that is none is said of the mark: its database answers, and goes on being asked.
func TestAMarkThatIsNoneIsNoFaultOfTheDatabase(t *testing.T) {
	e := newEstate(t, localstack.UID, localstack.BID, localstack.Meta)
	copies := e.c.Database(shardmap.BID, 5)
	e.exec(t, copies, "REPLACE INTO %s.mark (server, gtid, at) VALUES ('uid-a', 'x', '2026-11-30')")
	for range 10 {
		if marks, err := applied(t.Context(), copies); err == nil || errors.Is(err, cluster.ErrUnavailable) {
			t.Fatalf("the marks: %v, %v", marks, err)
		}
	}
	if err := copies.Readable(); err != nil {
		t.Error(err)
	}
}

// goesOn finds from where on a check that was ended goes on.
var goesOn = regexp.MustCompile(`--from (\S+) goes on`)

// What was ended goes on where it was: two halves find what the whole finds.
func TestACheckOfOrdersIsCutAndGoesOn(t *testing.T) {
	e := newEstate(t, localstack.UID, localstack.Meta)
	all := lives(800)
	want := map[string]bool{}
	for i, l := range all {
		if i%5 == 0 {
			l.Order.Ver++
			want[l.Order.OrderID().String()] = true
		}
	}
	e.put(t, shardmap.UID, all...)
	found := func(out string) map[string]bool {
		ids := map[string]bool{}
		for _, m := range regexp.MustCompile(`order (\d{23})`).FindAllStringSubmatch(out, -1) {
			ids[m[1]] = true
		}
		return ids
	}
	a, out := e.auditor(t, checkOrdersCmd{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pages := atomic.Int64{}
	a.between = func(*walk) {
		if pages.Add(1) == 200 { // of 480 and some
			cancel()
		}
	}
	if err := a.run(ctx); !errors.Is(err, errSaid) {
		t.Errorf("a check that was ended: %v\n%s", err, out)
	}
	first := found(out.String())
	from := goesOn.FindStringSubmatch(out.String())
	if from == nil || strings.HasPrefix(from[1], "2025") || len(first) == 0 || len(first) >= len(want) {
		t.Fatalf("%d of %d were found; %q\n%s", len(first), len(want), from, out)
	}
	code, _, last, text := e.checkOrders(t, "--from", from[1], "--findings", "1000")
	second := found(text)
	if code != 1 || strings.Contains(last, "goes on") || len(second) == 0 || len(second) >= len(want) {
		t.Errorf("the rest: exit %d, %d found; %s", code, len(second), last)
	}
	maps.Copy(second, first)
	if !maps.Equal(second, want) {
		t.Errorf("both found %d of %d", len(second), len(want))
	}
}

// The mirror is made by syncerd's own parts while orders are made and changed: whatever is
// looked at when, no copy is wrong.
func TestAMirrorThatIsMadeHasNoFaults(t *testing.T) {
	e := newEstate(t)
	newBrook(t, e.stack)
	e.mirrors(t, nil)
	store := mysqlstore.New(e.c)
	t.Cleanup(func() { _ = store.Close() })
	stop := make(chan struct{})
	var writers sync.WaitGroup
	var wrote atomic.Int64
	for w := range 2 {
		writers.Go(func() {
			for i := w; ; i += 2 {
				select {
				case <-stop:
					return
				default:
				}
				l := life(i, int64(1+i), int64(1001+i%13))
				n := e.c.Map().Locate(l.Order.UID).Database
				store.Insert(t.Context(), n, []schema.Order{l.Order})
				for _, op := range []ordersvc.Operation{payment("q", 9_999), payment("p", 10_000), ordersvc.Return{No: "a", Amount: 1}, ordersvc.Return{No: "b", Amount: 9_999}} {
					if r := store.Change(t.Context(), n, []ordersvc.Change{{Order: l.Order.OrderID(), By: ordersvc.By{Actor: "app", RequestID: "r"}, Do: op}}); r[0].Entry.Seq > 0 {
						wrote.Add(1)
					}
				}
			}
		})
	}
	looked, moved := int64(0), 0
	for range 8 {
		before := wrote.Load()
		code, stdout, stderr := octopay(t, e.env, "check", "orders", "--mirror", "--rate", "0", "--json")
		var sum orderSum
		for line := range strings.Lines(stdout) {
			if err := json.Unmarshal([]byte(line), &sum); err != nil {
				t.Fatal(err)
			}
		}
		if code != 0 || besides(stderr) != "" {
			t.Errorf("exit %d\n%s%s", code, stderr, stdout)
		}
		if looked = sum.Orders; wrote.Load() > before {
			moved++
		}
	}
	close(stop)
	writers.Wait()
	if moved == 0 || looked == 0 {
		t.Errorf("%d of 8 looks were beside changes, the last at %d orders", moved, looked)
	}
}

func TestAGaugeSaysHowFarItIs(t *testing.T) {
	var out bytes.Buffer
	g := newGauge(console{err: &out}, 1000)
	sum := orderSum{Orders: 700, Differences: 2}
	position := idgen.FirstAt(bornAt) + 77
	g.tell(g.said.Add(gaugeEvery-1), &sum, position)
	if out.Len() > 0 {
		t.Errorf("too early: %s", &out)
	}
	g.tell(g.said.Add(gaugeEvery), &sum, position)
	sum.Orders = 1100 // it was a guess
	g.tell(g.said.Add(gaugeEvery), &sum, position)
	g.end()
	const of = " orders, and all that were made before 2026-11-30T12:00:00.000Z; differences: 2\n"
	if want := "octopay: 700 of about 1000" + of + "octopay: 1100 of about 1100" + of; out.String() != want {
		t.Errorf("%s, want\n%s", &out, want)
	}
	if from, err := parseBound(goOn(position)); err != nil || from > position || from < position-77 {
		t.Errorf("%s leads to %d, %v; it was %d", goOn(position), from, err, position)
	}
}
