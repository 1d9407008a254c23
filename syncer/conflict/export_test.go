package conflict

import (
	"context"
	"database/sql"

	"github.com/octopay/octopay/cluster"
)

// WriteMax is how long a transaction may take.
const WriteMax = writeMax

// AtOnce is how many conflicts are written at once.
const AtOnce = conflictsAtOnce

// Turn takes the turn of the meta database until release is called.
func (s *SQL) Turn() (release func()) {
	s.turns[0] <- struct{}{}
	return func() { <-s.turns[0] }
}

// Write writes into a database.
func (s *SQL) Write(ctx context.Context, db *cluster.Database, f func(ctx context.Context, c *sql.Conn) error) error {
	return s.write(ctx, db, f)
}
