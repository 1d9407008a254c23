package apply

import (
	"errors"
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// Only what a row says sets it aside. A state of the server that did so would empty the
// stream into dead letters.
func TestOnlyTheContentOfARowIsRefused(t *testing.T) {
	for number := range uint16(5000) {
		want := false
		switch number {
		case 1048, 1264, 1265, 1292, 1366, 1406, 4025:
			want = true
		}
		if got := refusesRow(fmt.Errorf("apply: %w", &mysql.MySQLError{Number: number})); got != want {
			t.Errorf("%d: %t", number, got)
		}
	}
	if refusesRow(nil) || refusesRow(errors.New("no answer")) {
		t.Error("no word of the server refuses a row")
	}
}
