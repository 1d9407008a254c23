package binlog

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/octopay/octopay/schema"
)

// valueOf makes, of a byte and a text, a value as a log may have it.
func valueOf(kind byte, number int64, text string) any {
	switch kind % 9 {
	case 0:
		return number
	case 1:
		return int32(number)
	case 2:
		return uint64(number)
	case 3:
		return text
	case 4:
		return []byte(text)
	case 5:
		return nil
	case 6:
		return int8(number)
	case 7:
		return math.Float64frombits(uint64(number))
	}
	return []any{text}
}

// FuzzRow: a row of the log in which one column is anything is understood as what the value
// says, or refused by the name of that column; nothing of the value is in the reason.
func FuzzRow(f *testing.F) {
	for column := range uint8(40) {
		f.Add(column, column, int64(column), "2026-11-30 13:29:00.123")
	}
	f.Add(uint8(8), uint8(3), int64(1), "paid")
	f.Add(uint8(8), uint8(0), int64(9), "")
	for column := range uint8(22) { // text that is none, in every column
		f.Add(column, uint8(3), int64(0), "a\xffb")
		f.Add(column, uint8(4), int64(0), "a\xffb")
	}
	f.Add(uint8(0), uint8(2), int64(-1), "")
	f.Add(uint8(19), uint8(3), int64(0), "0000-00-00 00:00:00.000")
	f.Fuzz(func(t *testing.T, column, kind uint8, number int64, text string) {
		for _, of := range []struct {
			kind    int
			columns []string
			values  []any
			fields  func() ([]any, func() string)
		}{
			{int(orders), schema.OrderColumns, anOrderRow(), func() ([]any, func() string) {
				o := new(schema.Order)
				return o.Fields(), func() string { return fmt.Sprintf("%+v", *o) }
			}},
			{int(entries), schema.EntryColumns, anEntryRow(), func() ([]any, func() string) {
				e := new(schema.Entry)
				return e.Fields(), func() string { return fmt.Sprintf("%+v", *e) }
			}},
		} {
			p := planOf(t, of.columns)
			fields, before := of.fields()
			if err := p.fill(fields, of.values); err != nil {
				t.Fatalf("a right row: %v", err)
			}
			want := before()
			i := int(column) % len(of.columns)
			v := valueOf(kind, number, text)
			row := slices.Clone(of.values)
			row[i] = v
			fields, after := of.fields()
			err := p.fill(fields, row)
			if err != nil {
				if !strings.HasPrefix(err.Error(), "column "+of.columns[i]+":") && !strings.HasPrefix(err.Error(), "column "+of.columns[i]+" ") {
					t.Fatalf("%s = %v: %v", of.columns[i], v, err)
				}
				if len(text) > 8 && strings.Contains(err.Error(), text) {
					t.Fatalf("%v repeats the value", err)
				}
				continue
			}
			// What was taken: a number for a number, and valid text for text.
			switch v := v.(type) {
			case []byte:
				if !utf8.Valid(v) {
					t.Fatalf("%s = %q was taken", of.columns[i], v)
				}
			case string:
				if !utf8.ValidString(v) {
					t.Fatalf("%s = %q was taken", of.columns[i], v)
				}
			case uint64:
				if v > math.MaxInt64 {
					t.Fatalf("%s = %d was taken", of.columns[i], v)
				}
			case float64, []any, int8:
				t.Fatalf("%s = %v of %T was taken", of.columns[i], v, v)
			}
			// The other columns are as they were.
			row[i] = of.values[i]
			fields, again := of.fields()
			if err := p.fill(fields, row); err != nil || again() != want {
				t.Fatalf("%s: %v, %s", after(), err, again())
			}
		}
		var p plan
		if s := p.text(nil); s != "" {
			t.Fatal(s)
		}
	})
}

// planOf is the plan of a table whose log gives every column in our order.
func planOf(t *testing.T, columns []string) *plan {
	t.Helper()
	table := &replication.TableMapEvent{}
	for _, name := range columns {
		table.ColumnName = append(table.ColumnName, []byte(name))
		table.ColumnType = append(table.ColumnType, mysql.MYSQL_TYPE_VARCHAR)
	}
	k := orders
	if columns[0] == "order_id" {
		k = entries
	}
	p, err := newPlan(k, table)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func anOrderRow() []any {
	const at = "2026-11-30 13:29:00.123"
	return []any{int64(1), int64(9527), int64(1001), "A-1", int64(1), "CNY", "s", "{}", "paid", int64(2), int64(1), int64(0), "wechat", "4200", int64(0), nil, "app", "r", at, at, at, nil}
}

func anEntryRow() []any {
	const at = "2026-11-30 13:29:00.123"
	return []any{int64(1), int64(2), int64(9527), int64(1001), "pay:wechat:4200", "paid", int64(1), "CNY", "created", "paid", "wechat:4200", nil, "channel", "k", "r", at, at, nil}
}
