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

	// ErrMissing reports a database that was to be there. Nothing was made.
	ErrMissing = errors.New("schema: the database is not there")
)

// Migrate brings the database at place up to date: it makes the schema when there
// is none, runs the migrations that it lacks, and writes which database it is and
// the epoch that it obeys, which never falls. Done twice, it changes nothing the
// second time.
//
// The meta database, whose Cluster is "", has no owner. One that is made gives out
// worker numbers at once, so this must be the first that the installation has; see
// Found.
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
	return alone(ctx, db, place, func(db *sql.DB) error {
		if err := create(ctx, db, place); err != nil {
			return err
		}
		return migrate(ctx, db, place, epoch)
	})
}

// Upgrade is Migrate for a database of a cluster that was made before. Where it isn't, it
// makes nothing and returns ErrMissing.
func Upgrade(ctx context.Context, db *sql.DB, place shardmap.Database, epoch shardmap.Epoch) error {
	return alone(ctx, db, place, func(db *sql.DB) error {
		if _, there, err := Look(ctx, db, place); err != nil {
			return err
		} else if !there {
			return ErrMissing
		}
		if err := use(ctx, db, place); err != nil {
			return err
		}
		return migrate(ctx, db, place, epoch)
	})
}

// alone calls f with a pool of one connection, always the same, that holds the lock of
// the database at place.
func alone(ctx context.Context, db *sql.DB, place shardmap.Database, f func(*sql.DB) error) error {
	if err := oneConnection(ctx, db, func(lent *sql.DB) error {
		if err := lock(ctx, lent, place.Schema); err != nil {
			return err
		}
		defer unlock(ctx, lent)
		return f(lent)
	}); err != nil {
		return fmt.Errorf("migrate %s: %w", place, err)
	}
	return nil
}

func oneConnection(ctx context.Context, db *sql.DB, f func(*sql.DB) error) error {
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
		result = errors.Join(f(lent), lent.Close())
		return driver.ErrBadConn // closes it, and with that the lock and the default database go
	})
	if errors.Is(discarded, driver.ErrBadConn) {
		return result
	}
	return errors.Join(result, discarded, conn.Close())
}

// create makes the schema if there is none, and makes it the default.
func create(ctx context.Context, db *sql.DB, place shardmap.Database) error {
	if _, err := db.ExecContext(ctx, "CREATE DATABASE IF NOT EXISTS `"+place.Schema+"` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"); err != nil {
		return err
	}
	return use(ctx, db, place)
}

func use(ctx context.Context, db *sql.DB, place shardmap.Database) error {
	_, err := db.ExecContext(ctx, "USE `"+place.Schema+"`")
	return err
}

// migrate brings the schema at place, which is the default, up to date.
func migrate(ctx context.Context, db *sql.DB, place shardmap.Database, epoch shardmap.Epoch) error {
	if place.Cluster == "" {
		if err := up(ctx, db, place.Cluster); err != nil {
			return err
		}
		_, err := openNumbers(ctx, db, 0)
		return err
	}
	// Somebody else's database must not be altered, so its owner is asked first.
	if _, err := settled(ctx, db, place, epoch); err != nil {
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

// isNoTable reports that a table, or its schema, isn't there.
func isNoTable(err error) bool {
	var refused *mysql.MySQLError
	return errors.As(err, &refused) && (refused.Number == 1146 || refused.Number == 1049)
}

// isDenied reports the lack of a right on the whole server.
func isDenied(err error) bool {
	var refused *mysql.MySQLError
	return errors.As(err, &refused) && refused.Number == 1227
}

// An Owner is what a database of a cluster says of itself.
type Owner struct {
	Cluster shardmap.Cluster
	Number  int
	Epoch   shardmap.Epoch // of the map that it obeys
}

// Is reports whether the owner is that of place under a map of epoch; the error, which
// is ErrOldMap when the database obeys a newer map, says what it is instead.
func (o Owner) Is(place shardmap.Database, epoch shardmap.Epoch) error {
	switch {
	case o.Cluster != place.Cluster || o.Number != place.Number:
		return fmt.Errorf("it is database %d of the %s cluster, not %d of %s", o.Number, o.Cluster, place.Number, place.Cluster)
	case o.Epoch > epoch:
		return fmt.Errorf("%w: its epoch is %d, ours %d", ErrOldMap, o.Epoch, epoch)
	}
	return nil
}

// Look returns what the schema of a cluster's database at place says it is. It is not
// there where there is no such schema, or one that says nothing: one that nobody has
// made, or not to the end. db is a pool on place.Server. Look changes nothing.
func Look(ctx context.Context, db *sql.DB, place shardmap.Database) (o Owner, there bool, err error) {
	err = db.QueryRowContext(ctx, "SELECT cluster, `database`, epoch FROM `"+place.Schema+"`.owner WHERE id = 1").Scan(&o.Cluster, &o.Number, &o.Epoch)
	switch {
	case errors.Is(err, sql.ErrNoRows), isNoTable(err):
		return Owner{}, false, nil
	case err != nil:
		return Owner{}, false, err
	}
	return o, true, nil
}

// Close raises the epoch that the database at place obeys, if it is there, and so ends
// the writes of programs that follow an older map: those of a place that it was moved
// away from. db is a pool on place.Server.
func Close(ctx context.Context, db *sql.DB, place shardmap.Database, epoch shardmap.Epoch) error {
	_, err := db.ExecContext(ctx, "UPDATE `"+place.Schema+"`.owner SET epoch = GREATEST(epoch, ?) WHERE id = 1 AND cluster = ? AND `database` = ?",
		epoch, place.Cluster, place.Number)
	if err != nil && !isNoTable(err) {
		return fmt.Errorf("close %s: %w", place, err)
	}
	return nil
}

// settled reports whether the database says already that it is place at this epoch;
// what it may not be is an error. A database that is new says nothing.
func settled(ctx context.Context, db *sql.DB, place shardmap.Database, epoch shardmap.Epoch) (bool, error) {
	o, there, err := Look(ctx, db, place)
	if err != nil || !there {
		return false, err
	}
	return o.Epoch == epoch, o.Is(place, epoch)
}

// own writes the owner row. Others raise the epoch too, so the statement itself sees
// to it that it never falls.
func own(ctx context.Context, db *sql.DB, place shardmap.Database, epoch shardmap.Epoch) error {
	done, err := settled(ctx, db, place, epoch)
	if err != nil || done {
		return err
	}
	if _, err := db.ExecContext(ctx,
		"INSERT INTO owner (id, cluster, `database`, epoch) VALUES (1, ?, ?, ?) ON DUPLICATE KEY UPDATE epoch = GREATEST(epoch, VALUES(epoch))",
		place.Cluster, place.Number, epoch); err != nil {
		return err
	}
	_, err = settled(ctx, db, place, epoch)
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
