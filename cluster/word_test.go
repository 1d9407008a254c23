package cluster

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/octopay/octopay/internal/dberr"
	"github.com/octopay/octopay/shardmap"
)

// An answer is what becomes of the question about the owner row.
type answer struct {
	query, next, close error
	row                []driver.Value
}

func (a answer) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return a, a.query
}
func (answer) Columns() []string { return make([]string, 4) }
func (a answer) Close() error    { return a.close }
func (a answer) Next(row []driver.Value) error {
	copy(row, a.row)
	return a.next
}

// Only the end of the rows means that there is no owner row, and only an answer is kept:
// a database that couldn't speak hasn't said that it is another one.
func TestTheOwnerRowsWord(t *testing.T) {
	ours := []driver.Value{[]byte("uid"), int64(3), int64(7), int64(0)}
	change := func(i int, v driver.Value) []driver.Value {
		row := append([]driver.Value(nil), ours...)
		row[i] = v
		return row
	}
	for name, c := range map[string]struct {
		answer
		class    dberr.Class
		says     string
		readOnly bool
	}{
		"ours":               {answer: answer{row: ours}},
		"on a demoted one":   {answer: answer{row: change(3, int64(1))}, readOnly: true},
		"no row":             {answer{next: io.EOF}, dberr.Stale, "there is none", false},
		"another epoch":      {answer{row: change(2, int64(8))}, dberr.Stale, "it says epoch 8, the map in use has 7", false},
		"another number":     {answer{row: change(1, int64(4))}, dberr.Stale, "it says database 4", false},
		"another cluster":    {answer{row: change(0, []byte("bid"))}, dberr.Stale, "cluster bid", false},
		"no table":           {answer{query: &mysql.MySQLError{Number: 1146}}, dberr.Missing, "no such table", false},
		"no answer":          {answer{query: mysql.ErrInvalidConn}, dberr.Unknown, "", false},
		"half an answer":     {answer{next: io.ErrUnexpectedEOF}, dberr.Unknown, "", false},
		"too late an answer": {answer{next: context.DeadlineExceeded}, dberr.Unknown, "", false},
		"an answer, cut":     {answer{row: ours, close: mysql.ErrInvalidConn}, dberr.Unknown, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLink(shardmap.Database{Cluster: shardmap.UID, Number: 3, Schema: "x"}, 7, Config{}.withDefaults())
			defer l.close()
			_, err := l.ask(t.Context(), c.answer)
			if dberr.Of(err) != c.class || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want %v: %s", err, c.class, c.says)
			}
			w := l.word.Load()
			if kept := w != nil; kept == (c.class == dberr.Unknown) {
				t.Fatalf("kept: %v", kept)
			}
			if w != nil && (!errors.Is(w.err, err) || w.readOnly != c.readOnly) {
				t.Errorf("kept %+v", w)
			}
		})
	}
}
