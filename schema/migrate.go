package schema

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/octopay/octopay/shardmap"
	"github.com/pressly/goose/v3"
)

//go:embed migrations
var migrations embed.FS

var (
	// ErrMigrating reports that somebody else is migrating this database. Nothing was
	// changed; the same call can be made again later.
	ErrMigrating = errors.New("schema: another migration of this database is running")

	// ErrOldMap reports that the database obeys a map of a higher epoch than the
	// caller's. Nothing was changed; get the newer map.
	ErrOldMap = errors.New("schema: the database obeys a newer map")
)

// Migrate brings the database at place up to date: it makes the schema when there
// is none, runs the migrations that it lacks, and writes which database it is and
// the epoch that it obeys, which never falls. Done twice, it changes nothing the
// second time. The meta database, whose Cluster is "", has no owner.
//
// db is a pool on place.Server with parseTime=true; it needs no default database.
// One connection of it does everything and is closed at the end, never given back to the pool:
//
//   - Connections of Octopay have no default database, so that no statement can
//     reach a wrong one, but migrations name their tables alone. A "USE" on a
//     connection of its own, which nobody gets afterwards, serves both.
//   - The lock against a second migration belongs to the connection that runs the
//     statements. A statement that goes on after its client is gone still holds it.
//
// MariaDB commits at every CREATE and ALTER, so a migration that was cut off leaves
// a part of itself: each must be written so that it can run again over that part.
func Migrate(ctx context.Context, db *sql.DB, place shardmap.Database, epoch shardmap.Epoch) error {
	if err := migrate(ctx, db, place, epoch); err != nil {
		return fmt.Errorf("migrate %s: %w", place, err)
	}
	return nil
}

func migrate(ctx context.Context, db *sql.DB, place shardmap.Database, epoch shardmap.Epoch) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	var result error
	discarded := conn.Raw(func(dc any) error {
		one, ok := dc.(session)
		if !ok {
			result = fmt.Errorf("a connection of %T is not one of the MySQL driver", dc)
			return nil
		}
		lent := sql.OpenDB(lender{one})
		lent.SetMaxOpenConns(1)
		result = errors.Join(migrateOn(ctx, lent, place, epoch), lent.Close())
		return driver.ErrBadConn // closes it, and with that the lock and the default database go
	})
	if errors.Is(discarded, driver.ErrBadConn) {
		return result
	}
	return errors.Join(result, discarded, conn.Close())
}

// migrateOn does it all; db has one connection, always the same.
func migrateOn(ctx context.Context, db *sql.DB, place shardmap.Database, epoch shardmap.Epoch) error {
	if err := lock(ctx, db, place.Schema); err != nil {
		return err
	}
	defer unlock(ctx, db)
	name := "`" + place.Schema + "`"
	if _, err := db.ExecContext(ctx, "CREATE DATABASE IF NOT EXISTS "+name+" CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, "USE "+name); err != nil {
		return err
	}
	// Somebody else's database must not be altered, so its owner is asked first.
	if _, err := owner(ctx, db, place, epoch); err != nil {
		return err
	}
	if err := up(ctx, db, place.Cluster); err != nil {
		return err
	}
	return own(ctx, db, place, epoch)
}

func lock(ctx context.Context, db *sql.DB, schema string) error {
	var got sql.NullInt64
	// Prefix and name together stay below the 64 characters that a lock's name may have.
	if err := db.QueryRowContext(ctx, "SELECT GET_LOCK(?, 0)", "octopay_migrate:"+schema).Scan(&got); err != nil {
		return err
	}
	if !got.Valid {
		return errors.New("the server could not give the lock")
	}
	if got.Int64 != 1 {
		return ErrMigrating
	}
	return nil
}

// unlock gives the lock back at once: a server notices some time after the close that
// a connection is closed. Where this fails, the end of the connection does it.
func unlock(ctx context.Context, db *sql.DB) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = db.ExecContext(ctx, "DO RELEASE_ALL_LOCKS()")
}

func up(ctx context.Context, db *sql.DB, cluster shardmap.Cluster) error {
	dir := string(cluster)
	if cluster == "" {
		dir = "meta"
	}
	fsys, err := fs.Sub(migrations, "migrations/"+dir)
	if err != nil {
		return err
	}
	if err := completeVersions(ctx, db); err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectMySQL, db, fsys, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	_, err = p.Up(ctx)
	return err
}

// completeVersions removes a table of versions that holds none. goose makes the table
// and its first row in two steps, and never runs again after a cut between them.
func completeVersions(ctx context.Context, db *sql.DB) error {
	var rows int
	err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+goose.DefaultTablename).Scan(&rows)
	if isNoTable(err) {
		return nil
	}
	if err == nil && rows == 0 {
		_, err = db.ExecContext(ctx, "DROP TABLE "+goose.DefaultTablename)
	}
	return err
}

func isNoTable(err error) bool {
	var refused *mysql.MySQLError
	return errors.As(err, &refused) && refused.Number == 1146
}

// owner reports whether the database says already that it is place at this epoch;
// what it may not be is an error. A database that is new says nothing.
func owner(ctx context.Context, db *sql.DB, place shardmap.Database, epoch shardmap.Epoch) (settled bool, err error) {
	if place.Cluster == "" {
		return true, nil
	}
	var (
		cluster shardmap.Cluster
		number  int
		obeys   shardmap.Epoch
	)
	err = db.QueryRowContext(ctx, "SELECT cluster, `database`, epoch FROM owner WHERE id = 1").Scan(&cluster, &number, &obeys)
	switch {
	case errors.Is(err, sql.ErrNoRows), isNoTable(err):
		return false, nil
	case err != nil:
		return false, err
	case cluster != place.Cluster || number != place.Number:
		return false, fmt.Errorf("it is database %d of the %s cluster, not %d of %s", number, cluster, place.Number, place.Cluster)
	case obeys > epoch:
		return false, fmt.Errorf("%w: its epoch is %d, ours %d", ErrOldMap, obeys, epoch)
	}
	return obeys == epoch, nil
}

// own writes the owner row. Others raise the epoch too, so the statement itself sees
// to it that it never falls.
func own(ctx context.Context, db *sql.DB, place shardmap.Database, epoch shardmap.Epoch) error {
	settled, err := owner(ctx, db, place, epoch)
	if err != nil || settled {
		return err
	}
	if _, err := db.ExecContext(ctx,
		"INSERT INTO owner (id, cluster, `database`, epoch) VALUES (1, ?, ?, ?) ON DUPLICATE KEY UPDATE epoch = GREATEST(epoch, VALUES(epoch))",
		place.Cluster, place.Number, epoch); err != nil {
		return err
	}
	_, err = owner(ctx, db, place, epoch)
	return err
}

// A session is what database/sql uses of a connection of the MySQL driver.
type session interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.NamedValueChecker
	driver.Validator
}

// A lender is a driver.Connector that lends one connection again and again: goose
// wants a *sql.DB, and all its work must be on the connection that holds the lock.
type lender struct{ session session }

func (l lender) Connect(context.Context) (driver.Conn, error) {
	if !l.session.IsValid() {
		return nil, errors.New("the connection broke")
	}
	return lent{l.session}, nil
}

func (l lender) Driver() driver.Driver { return mysql.MySQLDriver{} }

// lent is the session without the right to close it.
type lent struct{ session }

func (lent) Close() error { return nil }
