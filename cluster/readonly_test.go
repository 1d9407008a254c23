package cluster_test

import (
	"errors"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/shardmap"
)

// Fault 3. A driver that takes the word of a read-only server for a broken connection
// makes database/sql run the statement again.
func TestFault3ARefusalIsNoBrokenConnection(t *testing.T) {
	d := localstack.Test(t, localstack.UID).Cluster(t).Database(shardmap.UID, 1)
	w, err := d.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Discard(w)
	for _, number := range []uint16{1290, 1792, 1836} {
		_, err := w.ExecContext(t.Context(), "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = ?", number)
		var said *mysql.MySQLError
		if !errors.As(err, &said) || said.Number != number {
			t.Errorf("error %d came as %v", number, err)
		}
	}
	if err := w.PingContext(t.Context()); err != nil {
		t.Errorf("the connection afterwards: %v", err)
	}
}

// Also where nobody looks after the handles, and nothing is known of the server.
func TestAReadOnlyServerTakesNoWriter(t *testing.T) {
	stack := localstack.Private(t, localstack.Options{Need: []localstack.Need{localstack.UID}})
	exec(t, stack.Admin(t, "uid-a"), "SET GLOBAL read_only = ON")
	d := stack.Cluster(t).Database(shardmap.UID, 1)
	refusesWriters(t, d)
	if _, err := query(t, d, "SELECT 1"); err != nil {
		t.Errorf("a read: %v", err)
	}
}
