package binlog

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/internal/gen"
	"github.com/octopay/octopay/syncer/source"
	"pgregory.net/rapid"
)

// What is in a row comes out of the log as it went into the table.
func TestRowsComeAsTheyWereWritten(t *testing.T) {
	r := shared(t)
	reader := r.open(r.here())
	rapid.Check(t, func(t *rapid.T) {
		o := gen.Order(t, gen.Key().Draw(t, "uid"), gen.Key().Draw(t, "bid"), newOrder(1).ID, 1)
		r.insertOrder(o)
		got := rowsOf(r.until(reader, r.here()))
		if len(got.Orders) != 1 || got.Orders[0] != o {
			t.Fatalf("an order came as\n%+v, it went as\n%+v\n%+v", got.Orders, o, got.Broken)
		}
		// A state after it, and its entry, in one transaction.
		o2 := gen.Order(t, o.UID, o.BID, o.ID, 2)
		e := gen.Entry(t, o.UID, o.BID, o.ID, 2)
		tx, err := r.admin.Begin()
		if err != nil {
			t.Fatal(err)
		}
		var sets []string
		for _, c := range schema.OrderColumns {
			sets = append(sets, c+" = ?")
		}
		if _, err := tx.Exec("UPDATE "+r.table(o.UID, "order")+" SET "+strings.Join(sets, ", ")+" WHERE id = ?", append(o2.Values(), o.ID)...); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(insert(r.table(e.UID, "journal"), schema.EntryColumns, 1), e.Values()...); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		got = rowsOf(r.until(reader, r.here()))
		if len(got.Orders) != 1 || got.Orders[0] != o2 || len(got.Entries) != 1 || got.Entries[0] != e {
			t.Fatalf("a change came as\n%+v\n%+v, it went as\n%+v\n%+v", got.Orders, got.Entries, o2, e)
		}
	})
}

// A transaction has one end, behind its last row; one of others has an end too; one
// that was rolled back has nothing.
func TestEveryTransactionHasOneEnd(t *testing.T) {
	r := shared(t)
	start := r.here()
	reader := r.open(start)
	run := func(statements ...string) {
		t.Helper()
		tx, err := r.admin.Begin()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range statements {
			if _, err := tx.Exec(s); err != nil {
				t.Fatalf("%s: %v", s, err)
			}
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	other := "`" + r.stack.Map.Prefix() + "octopay_other`"
	r.exec("CREATE DATABASE " + other)
	t.Cleanup(func() { r.exec("DROP DATABASE " + other) })
	r.exec("CREATE TABLE " + other + ".order_1 (id INT PRIMARY KEY) ENGINE=InnoDB")
	r.exec("CREATE TABLE " + other + ".plain (id INT PRIMARY KEY) ENGINE=Aria")
	want := []string{"0", "0", "0"}

	var orders []schema.Order
	for uid := int64(1); uid <= 700; uid += 23 { // many databases and tables
		orders = append(orders, newOrder(uid))
	}
	tx, err := r.admin.Begin()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range orders {
		if _, err := tx.Exec(insert(r.table(o.UID, "order"), schema.OrderColumns, 1), o.Values()...); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	want = append(want, fmt.Sprint(len(orders)))

	run("INSERT INTO " + other + ".order_1 VALUES (1)")
	want = append(want, "0")
	run("INSERT INTO " + other + ".plain VALUES (1)") // without transactions: ends in a statement
	want = append(want, "0")

	tx, err = r.admin.Begin()
	if err != nil {
		t.Fatal(err)
	}
	gone := newOrder(1)
	if _, err := tx.Exec(insert(r.table(1, "order"), schema.OrderColumns, 1), gone.Values()...); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	last := newOrder(77)
	kept, dropped := newOrder(78), newOrder(78)
	tx, err = r.admin.Begin()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []any{last, "SAVEPOINT a", kept, "SAVEPOINT b", dropped, "ROLLBACK TO b"} {
		text, args := "", []any(nil)
		switch s := s.(type) {
		case string:
			text = s
		case schema.Order:
			text, args = insert(r.table(s.UID, "order"), schema.OrderColumns, 1), s.Values()
		}
		if _, err := tx.Exec(text, args...); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	want = append(want, "2")

	// The server is shared: transactions of other tests come in between, without rows.
	var got []string
	batches := r.until(reader, r.here())
	ends := map[string]bool{}
	for _, b := range batches {
		if b.End.IsZero() || ends[b.End.String()] {
			t.Errorf("a transaction of %d rows ends at %q", b.Rows(), b.End)
		}
		ends[b.End.String()] = true
		if b.Rows() > 0 {
			got = append(got, fmt.Sprint(b.Rows()))
		}
	}
	if len(batches) < len(want) {
		t.Errorf("%d transactions, want at least %d", len(batches), len(want))
	}
	if diff := cmp.Diff([]string{fmt.Sprint(len(orders)), "2"}, got); diff != "" {
		t.Errorf("transactions with rows differ:\n%s", diff)
	}
	all := rowsOf(batches)
	if diff := cmp.Diff(append(orders, last, kept), all.Orders); diff != "" {
		t.Errorf("orders differ:\n%s", diff)
	}
}

// From the end of any transaction the reading goes on exactly there.
func TestReadingGoesOnFromAnyEnd(t *testing.T) {
	r := shared(t)
	start := r.here()
	var orders []schema.Order
	for uid := int64(1); uid <= 8; uid++ {
		o := newOrder(uid)
		r.insertOrder(o)
		orders = append(orders, o)
	}
	end := r.here()
	batches := r.until(r.open(start), end)
	seen := 0
	for i, b := range batches {
		seen += len(b.Orders)
		if seen == len(orders) {
			break
		}
		if len(b.Orders) == 0 && i%5 != 0 {
			continue // of the transactions of others some are enough
		}
		again := r.open(b.End)
		rest := rowsOf(r.until(again, end))
		if diff := cmp.Diff(orders[seen:], rest.Orders); diff != "" {
			t.Fatalf("behind %s:\n%s", b.End, diff)
		}
		_ = again.Close()
	}
	if seen != len(orders) {
		t.Errorf("%d of %d orders were read", seen, len(orders))
	}
}

// A transaction of any size comes in parts, and nothing is saved between them.
func TestALargeTransactionComesInParts(t *testing.T) {
	r := shared(t)
	start := r.here()
	const rows = 3*partRows + 10
	tx, err := r.admin.Begin()
	if err != nil {
		t.Fatal(err)
	}
	var want []schema.Order
	for len(want) < rows {
		var args []any
		n := min(500, rows-len(want))
		for range n {
			o := newOrder(5)
			want = append(want, o)
			args = append(args, o.Values()...)
		}
		if _, err := tx.Exec(insert(r.table(5, "order"), schema.OrderColumns, n), args...); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	batches := r.until(r.open(start), r.here())
	var parts []int
	open := false
	for _, b := range batches {
		if b.Rows() > 0 || open {
			parts = append(parts, b.Rows())
			open = b.End.IsZero()
		}
	}
	if len(parts) < 3 || open || slices.Max(parts) > 2*partRows {
		t.Errorf("the transaction came in parts of %v, its end is missing: %v", parts, open)
	}
	if diff := cmp.Diff(want, rowsOf(batches).Orders); diff != "" {
		t.Errorf("orders differ:\n%s", diff)
	}
}

// The truth deletes nothing; what is deleted by hand is counted and said once.
func TestDeletesAreCountedAndIgnored(t *testing.T) {
	r := shared(t)
	reader := r.open(r.here())
	for range 2 {
		a, b := newOrder(3), newOrder(3)
		r.insertOrder(a)
		r.insertOrder(b)
		r.exec("DELETE FROM "+r.table(3, "order")+" WHERE id IN (?, ?)", a.ID, b.ID)
	}
	got := rowsOf(r.until(reader, r.here()))
	if len(got.Orders) != 4 || len(got.Broken) != 0 {
		t.Errorf("%d orders, %v", len(got.Orders), got.Broken)
	}
	if n := r.src.Deletes(); n != 4 {
		t.Errorf("%d deletes were counted, want 4", n)
	}
	if n := strings.Count(r.log.String(), "deleted"); n != 1 {
		t.Errorf("said %d times:\n%s", n, r.log)
	}
}

// Columns are found by their names, at whatever place; numbers are read with their
// sign (fault 17), ENUMs by their names.
func TestFault17ColumnsAreReadAsTheTableHasThem(t *testing.T) {
	r := shared(t)
	table := r.table(4, "order")
	r.exec("ALTER TABLE " + table + " ADD COLUMN novelty INT NOT NULL DEFAULT 7 FIRST, MODIFY COLUMN bid BIGINT NOT NULL AFTER closed_at," +
		" MODIFY COLUMN amount BIGINT UNSIGNED NOT NULL, MODIFY COLUMN ver INT NOT NULL," +
		" MODIFY COLUMN status ENUM('closed','refunded','created','novel','paid','partially_refunded') CHARACTER SET ascii COLLATE ascii_bin NOT NULL")
	reader := r.open(r.here())
	var want []schema.Order
	for _, status := range []schema.Status{schema.Created, schema.Paid, schema.Closed} {
		o := newOrder(4)
		o.Status, o.Amount = status, 1<<53-1
		r.insertOrder(o)
		want = append(want, o)
	}
	got := rowsOf(r.until(reader, r.here()))
	if diff := cmp.Diff(want, got.Orders); diff != "" || len(got.Broken) != 0 {
		t.Errorf("orders differ:\n%s\n%+v", diff, got.Broken)
	}
	// Above what fits, it is no negative number, but no order either.
	o := newOrder(4)
	r.insertOrder(o)
	r.exec("UPDATE "+table+" SET amount = 18446744073709551615 WHERE id = ?", o.ID)
	got = rowsOf(r.until(reader, r.here()))
	if len(got.Orders) != 1 || len(got.Broken) != 1 || !strings.Contains(got.Broken[0].Reason, "amount") {
		t.Errorf("orders %+v, broken %+v", got.Orders, got.Broken)
	}
}

// A row that can't be understood doesn't stop those behind it, and isn't lost.
func TestBrokenRows(t *testing.T) {
	r := shared(t)
	table := r.table(6, "order")
	r.exec("ALTER TABLE " + table + " MODIFY COLUMN status ENUM('created','paid','partially_refunded','refunded','closed','novel') CHARACTER SET ascii COLLATE ascii_bin NOT NULL")
	conn, err := r.admin.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	lax := func(text string, args ...any) {
		t.Helper()
		if _, err := conn.ExecContext(t.Context(), text, args...); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	lax("SET sql_mode = ''")
	reader := r.open(r.here())
	for _, c := range []struct{ name, reason, set string }{
		{"a zero date", "expires_at", "expires_at = 0"},
		{"a date without a day", "expires_at", "expires_at = '2026-11-00'"},
		{"a status of the future", "status", "status = 'novel'"},
		{"a status that is none", "status", "status = 'x'"},
		{"a buyer of another table", "another table", "uid = 7"},
		{"a buyer of another database", "another table", "uid = 16"},
		{"no buyer", "uid", "uid = 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newOrder(6)
			r.insertOrder(o)
			lax("UPDATE "+table+" SET "+c.set+" WHERE id = ?", o.ID)
			good := newOrder(6)
			r.insertOrder(good)
			got := rowsOf(r.until(reader, r.here()))
			if diff := cmp.Diff([]schema.Order{o, good}, got.Orders); diff != "" {
				t.Errorf("the good ones differ:\n%s", diff)
			}
			if len(got.Broken) != 1 {
				t.Fatalf("%d are broken", len(got.Broken))
			}
			b := got.Broken[0]
			if b.BID != o.BID || !strings.Contains(b.Reason, c.reason) || !strings.HasSuffix(b.Table, ".order_6") || !strings.Contains(b.Text, fmt.Sprint(o.ID)) {
				t.Errorf("broken: %+v", b)
			}
		})
	}
	t.Run("a row image that isn't whole", func(t *testing.T) {
		o := newOrder(6)
		r.insertOrder(o)
		lax("SET SESSION binlog_row_image = MINIMAL")
		lax("UPDATE "+table+" SET amount = 5 WHERE id = ?", o.ID)
		got := rowsOf(r.until(reader, r.here()))
		if len(got.Orders) != 1 || len(got.Broken) != 1 || !strings.Contains(got.Broken[0].Reason, "binlog_row_image") {
			t.Errorf("orders %+v, broken %+v", got.Orders, got.Broken)
		}
	})
}

// What can't be read without losing rows stops the reading and says where.
func TestWhatStopsTheReading(t *testing.T) {
	r := shared(t)
	fails := func(reader source.Reader, parts ...string) {
		t.Helper()
		for {
			b, err := reader.Next(t.Context())
			if err == nil {
				if b.Rows() > 0 {
					t.Fatalf("read on to %+v", b)
				}
				continue
			}
			for _, part := range parts {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error doesn't name %q: %v", part, err)
				}
			}
			return
		}
	}
	t.Run("a table without a column", func(t *testing.T) {
		r.exec("ALTER TABLE " + r.table(8, "order") + " CHANGE COLUMN metadata meta TEXT NOT NULL")
		reader := r.open(r.here())
		o := newOrder(8)
		r.exec(strings.Replace(insert(r.table(8, "order"), schema.OrderColumns, 1), "metadata", "meta", 1), o.Values()...)
		fails(reader, "order_8", "metadata", "uid-a")
	})
	t.Run("a statement instead of its rows", func(t *testing.T) {
		conn, err := r.admin.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		reader := r.open(r.here())
		for _, text := range []string{"SET SESSION tx_isolation = 'REPEATABLE-READ'", "SET SESSION binlog_format = STATEMENT"} {
			if _, err := conn.ExecContext(t.Context(), text); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := conn.ExecContext(t.Context(), "UPDATE "+r.table(9, "order")+" SET amount = 1 WHERE id = 1"); err != nil {
			t.Fatal(err)
		}
		o := newOrder(9)
		if _, err := conn.ExecContext(t.Context(), insert(r.table(9, "order"), schema.OrderColumns, 1), o.Values()...); err != nil {
			t.Fatal(err)
		}
		fails(reader, "binlog_format")
	})
}

// A transaction that made a temporary table is in the log even when it was rolled back.
// What it wrote isn't the truth.
func TestRowsThatWereRolledBackDoNotCome(t *testing.T) {
	r := shared(t)
	order := func(o schema.Order) func(*sql.Tx) error {
		return func(tx *sql.Tx) error {
			_, err := tx.Exec(insert(r.table(o.UID, "order"), schema.OrderColumns, 1), o.Values()...)
			return err
		}
	}
	say := func(text string) func(*sql.Tx) error {
		return func(tx *sql.Tx) error { _, err := tx.Exec(text); return err }
	}
	schemaOf := r.stack.Map.Database(shardmap.UID, 1).Schema
	temporary := say("CREATE TEMPORARY TABLE `" + schemaOf + "`.passing (id INT)")
	// run makes one transaction that the server logs, however it ends.
	run := func(commit bool, steps ...func(*sql.Tx) error) {
		t.Helper()
		before := r.here()
		tx, err := r.admin.Begin()
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range append(steps, say("DROP TEMPORARY TABLE `"+schemaOf+"`.passing")) {
			if err := step(tx); err != nil {
				t.Fatal(err)
			}
		}
		end := tx.Rollback
		if commit {
			end = tx.Commit
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if r.here().String() == before.String() {
			t.Fatal("the transaction isn't in the log: the test shows nothing")
		}
	}
	reader := r.open(r.here())
	gone, good := newOrder(9), newOrder(9)
	run(false, order(gone), temporary)
	run(true, order(good), temporary)
	if got := rowsOf(r.until(reader, r.here())); len(got.Orders) != 1 || got.Orders[0] != good {
		t.Errorf("read %+v, want the one that was committed", got)
	}
	stops := func(reader source.Reader) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), eventually.Patience)
		defer cancel()
		for {
			b, err := reader.Next(ctx)
			if err == nil && b.End.IsZero() || err == nil && b.Rows() == 0 {
				continue
			}
			if err == nil || !strings.Contains(err.Error(), "rolled back") {
				t.Errorf("the reading goes on: %+v, %v", b, err)
			}
			return
		}
	}
	start := r.here()
	run(true, order(newOrder(9)), temporary, say("SAVEPOINT a"), order(newOrder(9)), say("ROLLBACK TO a"))
	stops(r.open(start))
	start = r.here()
	var large []func(*sql.Tx) error
	for range partRows + 1 {
		large = append(large, order(newOrder(9)))
	}
	run(false, append(large, temporary)...)
	stops(r.open(start))
}

// Every reader is a replica of its own: two at once get everything.
func TestTwoReadersAtOnce(t *testing.T) {
	r := shared(t)
	start := r.here()
	one, two := r.open(start), r.open(start)
	for range 3 {
		o := newOrder(2)
		r.insertOrder(o)
		end := r.here()
		for _, reader := range []source.Reader{one, two} {
			if got := rowsOf(r.until(reader, end)); len(got.Orders) != 1 || got.Orders[0] != o {
				t.Fatalf("read %+v", got)
			}
		}
	}
}
