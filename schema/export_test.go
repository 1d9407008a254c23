package schema

import (
	"context"
	"database/sql"
)

// Shape returns what a database is, in the form of the files in shapes/.
func Shape(ctx context.Context, db *sql.DB, schema string) (string, error) {
	s, err := describe(ctx, db, schema)
	return s.format(), err
}
