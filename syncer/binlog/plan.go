package binlog

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/octopay/octopay/schema"
)

// A plan says where in a row of the log each column of ours is. It is made from what
// the log says about the table, and holds as long as that stays the same.
type plan struct {
	columns []string    // ours
	at      []int       // their places in the row
	names   [][]string  // for an ENUM its names, from 1; else nil
	tables  tableColumn // what the plan was made from
}

// tableColumn is what a log says about a table's columns.
type tableColumn struct {
	names [][]byte
	types []byte
	enums [][][]byte
}

func clone(in [][]byte) [][]byte {
	out := make([][]byte, len(in))
	for i := range in {
		out[i] = bytes.Clone(in[i])
	}
	return out
}

func (p *plan) fits(t *replication.TableMapEvent) bool {
	return bytes.Equal(p.tables.types, t.ColumnType) &&
		slices.EqualFunc(p.tables.names, t.ColumnName, bytes.Equal) &&
		slices.EqualFunc(p.tables.enums, t.EnumStrValue, func(a, b [][]byte) bool { return slices.EqualFunc(a, b, bytes.Equal) })
}

func newPlan(k kind, t *replication.TableMapEvent) (*plan, error) {
	p := &plan{columns: schema.OrderColumns}
	if k == entries {
		p.columns = schema.EntryColumns
	}
	if len(t.ColumnName) == 0 {
		return nil, errors.New("the log doesn't name the columns; it was written before binlog_row_metadata was FULL")
	}
	enums := t.EnumStrValueMap()
	for _, column := range p.columns {
		i := slices.IndexFunc(t.ColumnName, func(name []byte) bool { return string(name) == column })
		if i < 0 {
			return nil, fmt.Errorf("the table has no column %s", column)
		}
		p.at = append(p.at, i)
		p.names = append(p.names, enums[i])
	}
	p.tables = tableColumn{names: clone(t.ColumnName), types: bytes.Clone(t.ColumnType)}
	for _, names := range t.EnumStrValue {
		p.tables.enums = append(p.tables.enums, clone(names))
	}
	return p, nil
}

// fill sets the fields, in the order of the columns, from the values of a row.
func (p *plan) fill(fields, values []any) error {
	for i, field := range fields {
		v := values[p.at[i]]
		if p.names[i] != nil {
			if n, ok := v.(int64); ok {
				if n < 1 || n > int64(len(p.names[i])) {
					return fmt.Errorf("column %s holds no name of its ENUM", p.columns[i])
				}
				v = p.names[i][n-1]
			}
		}
		if err := set(field, v); err != nil {
			return fmt.Errorf("column %s: %w", p.columns[i], err)
		}
	}
	return nil
}

// errNotUTF8 reports a text that can't travel: protobuf refuses it, and the whole message.
var errNotUTF8 = errors.New("not UTF-8")

// set stores a value of the log in a field of a row.
func set(field, v any) error {
	switch f := field.(type) {
	case *int64:
		switch n := v.(type) {
		case int64:
			*f = n
		case int32:
			*f = int64(n)
		case uint64: // a column that somebody made UNSIGNED
			if n > math.MaxInt64 {
				return errors.New("above 2^63-1")
			}
			*f = int64(n)
		default:
			return fmt.Errorf("a number can't come as %T", v)
		}
	case *string:
		switch s := v.(type) {
		case string:
			*f = strings.Clone(s) // the log's memory is that of a whole event
		case []byte:
			*f = string(s)
		default:
			return fmt.Errorf("a text can't come as %T", v)
		}
		if !utf8.ValidString(*f) {
			return errNotUTF8
		}
	case sql.Scanner:
		switch s := v.(type) {
		case string:
			if !utf8.ValidString(s) {
				return errNotUTF8
			}
			v = strings.Clone(s)
		case []byte:
			if !utf8.Valid(s) {
				return errNotUTF8
			}
		}
		return f.Scan(v)
	default:
		return fmt.Errorf("a field can't be %T", field)
	}
	return nil
}

// number returns the value of a number column, 0 if it isn't one.
func (p *plan) number(column string, values []any) int64 {
	i := slices.Index(p.columns, column)
	var n int64
	if i < 0 || p.at[i] >= len(values) || set(&n, values[p.at[i]]) != nil {
		return 0
	}
	return n
}

// textMax bounds what is kept of a broken row.
const textMax = 4 << 10

// text returns what is readable of a row, for an operator.
func (p *plan) text(values []any) string {
	var b strings.Builder
	for i, column := range p.columns {
		if p.at[i] >= len(values) {
			continue
		}
		switch v := values[p.at[i]].(type) {
		case []byte:
			fmt.Fprintf(&b, "%s=%q ", column, v)
		case string:
			fmt.Fprintf(&b, "%s=%q ", column, v)
		default:
			fmt.Fprintf(&b, "%s=%v ", column, v)
		}
		if b.Len() > textMax {
			return strings.ToValidUTF8(b.String()[:textMax], "")
		}
	}
	return strings.TrimSpace(b.String())
}
