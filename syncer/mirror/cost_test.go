package mirror_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/slot"
	"github.com/octopay/octopay/syncer/mirror"
)

// What a page and a scan read depends on what they return, and not on what there is: with
// thousands of rows before, behind and beside what is wanted, the server reads some more
// than the rows of the answer.
func TestStatementsReadWhatTheyReturn(t *testing.T) {
	const rows, most = 5000, 20
	stack := localstack.Test(t, localstack.BID)
	c := stack.Cluster(t)
	db := c.Database(shardmap.BID, 3)
	name := db.Schema()
	conn, err := stack.Admin(t, db.Place().Server.Name).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	exec := func(text string, args ...any) {
		t.Helper()
		if _, err := conn.ExecContext(t.Context(), text, args...); err != nil {
			t.Fatal(err)
		}
	}
	// In each table: every fourth entry is one of the list's, of two merchants; each stamp
	// has two rows; and a number is one of many orders.
	for table := range slot.Tables {
		exec(fmt.Sprintf("INSERT INTO `%[1]s`.journal_%[2]d (order_id, seq, uid, bid, op, kind, amount, from_status, to_status, ref, actor, request_id, recorded_at)"+
			" SELECT seq DIV 2, 2 + seq MOD 2, 1, 1 + seq MOD 3, 'op', ELT(1 + seq MOD 4, 'unapplied_payment', 'paid', 'closed', 'refunded'), 1, 'paid', 'paid', 'wechat:1', 'channel', 'r',"+
			" TIMESTAMPADD(MICROSECOND, 1000 * (seq DIV 2), '2026-12-01') FROM `%[1]s`.seq_1_to_%[3]d", name, table, rows))
		exec(fmt.Sprintf("INSERT INTO `%[1]s`.order_%[2]d (id, uid, bid, out_trade_no, amount, currency, subject, metadata, status, ver, paid_amount, refunded_amount, unapplied_payments, created_by, request_id, expires_at, updated_at)"+
			" SELECT seq, seq, 1, IF(seq MOD 2, 'always', CONCAT('n', seq)), 1, 'CNY', 's', '{}', 'created', 1, 0, 0, 0, 'app', 'r', '2026-12-01', TIMESTAMPADD(MICROSECOND, 1000 * (seq DIV 2), '2026-12-01') FROM `%[1]s`.seq_1_to_%[3]d", name, table, rows))
		exec(fmt.Sprintf("ANALYZE TABLE `%s`.journal_%d, `%[1]s`.order_%[2]d", name, table))
	}
	day, err := schema.ParseMillis("2026-12-01 00:00:00.000")
	if err != nil {
		t.Fatal(err)
	}
	var reach mirror.Reach
	for i := range slot.Tables {
		reach.Orders[i] = mirror.Stamp{At: day + 1000, Order: 2001}
		reach.Entries[i] = mirror.Stamp{At: day + 1000, Order: 1000, Seq: 2}
	}
	list := mirror.EntryQuery{Kinds: []schema.Kind{schema.KindUnappliedPayment}}
	ofOne := list
	ofOne.BID = 1
	type statement struct {
		name  string
		text  string
		args  []any
		want  int // rows of the answer
		reads int // at most
	}
	var all []statement
	add := func(name string, want, each int) func(text string, args []any) {
		return func(text string, args []any) { all = append(all, statement{name, text, args, want, each * want}) }
	}
	middle := mirror.Position{Order: 1200, Seq: 2}
	add("a page of one merchant", most, 2)(mirror.KeysText(db, []int{4}, "merchant_kind", ofOne, middle, most))
	add("a page of all", 10*most, 2)(mirror.KeysText(db, mirror.AllTables, "kinds", list, middle, most))
	orders, entries, ordersArgs, entriesArgs := mirror.NewsTexts(name, reach, day+2000, most)
	// A row; its number's first other order, which may be the row itself.
	add("new orders", 10*most, 4)(orders, ordersArgs)
	add("new entries", 10*most, 2)(entries, entriesArgs)
	// An order that has thousands of entries, all of one reference, and as many of them were
	// settled: one of the operations that may have settled each is there.
	exec(fmt.Sprintf("INSERT INTO `%[1]s`.journal_4 (order_id, seq, uid, bid, op, kind, amount, from_status, to_status, ref, actor, request_id, recorded_at)"+
		" SELECT 9000, seq, 1, 1, IF(seq <= %[2]d, CONCAT('unapplied:', seq), CONCAT('settles:', seq - %[2]d)), IF(seq <= %[2]d, 'unapplied_payment', 'unapplied_voided'), 1, 'paid', 'paid', 'wechat:1', 'channel', 'r',"+
		" '2026-11-30' FROM `%[1]s`.seq_1_to_%[3]d", name, rows, 2*rows))
	exec(fmt.Sprintf("INSERT INTO `%[1]s`.journal_4 (order_id, seq, uid, bid, op, kind, amount, from_status, to_status, ref, actor, request_id, recorded_at)"+
		" VALUES (9000, 20000, 1, 1, 'refund', 'refunded', 1, 'paid', 'paid', 'wechat:1', 'app', 'r', '2026-11-30')", name))
	var at []mirror.Position
	var settlings []mirror.Beside
	for i := range int64(most) {
		at = append(at, mirror.Position{Order: 9000, Seq: 1 + 7*i})
		settlings = append(settlings, mirror.Beside{Ops: []string{fmt.Sprintf("settles:%d", 1+7*i), fmt.Sprintf("other:%d", 1+7*i)}})
	}
	of, settles, ofArgs, settlesArgs := mirror.EntriesTexts(db, 4, at, 9000, settlings...)
	add("entries of a long journal", most, 2)(of, ofArgs)
	add("what settles them", most, 4)(settles, settlesArgs)
	_, refunds, _, refundsArgs := mirror.EntriesTexts(db, 4, nil, 9000, mirror.Beside{
		Ref: "wechat:1", Kinds: []schema.Kind{schema.KindRefunded, schema.KindUnappliedRefunded, schema.KindRefundSucceeded, schema.KindRefundFailed},
	})
	add("what has a refund's number", 1, 8)(refunds, refundsArgs)
	exec(fmt.Sprintf("ANALYZE TABLE `%s`.journal_4", name))
	for _, s := range all {
		t.Run(s.name, func(t *testing.T) {
			read := func(text string, args ...any) (rows int) {
				t.Helper()
				r, err := conn.QueryContext(t.Context(), text, args...)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = r.Close() }()
				for r.Next() {
					rows++
				}
				if err := r.Err(); err != nil {
					t.Fatal(err)
				}
				return rows
			}
			before := handlers(t, conn)
			got := read(s.text, s.args...)
			reads := handlers(t, conn) - before
			t.Logf("%d rows, %d read", got, reads)
			if got != s.want {
				t.Errorf("%d rows, want %d", got, s.want)
			}
			if reads > s.reads {
				t.Errorf("the server read %d rows for an answer of %d, want at most %d", reads, got, s.reads)
			}
		})
	}
}

// handlers returns how many rows the server has read from tables and indexes for this
// session, but for temporary tables that it wrote itself.
func handlers(t *testing.T, conn *sql.Conn) (n int) {
	t.Helper()
	rows, err := conn.QueryContext(t.Context(), "SHOW SESSION STATUS LIKE 'Handler_read%'")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		var value int
		if err := rows.Scan(&name, &value); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(name, "rnd") { // of the answer's temporary table, and of SHOW itself
			n += value
		}
	}
	return n
}
