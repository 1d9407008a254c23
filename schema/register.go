package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/octopay/octopay/shardmap"
)

// A Ref names a database of an installation. The zero Ref is the meta database.
type Ref struct {
	Cluster shardmap.Cluster
	Number  int
}

// RefOf returns the name of the database at a place.
func RefOf(place shardmap.Database) Ref { return Ref{place.Cluster, place.Number} }

// String returns it as an operator writes it: uid:3, meta.
func (r Ref) String() string {
	if r == (Ref{}) {
		return "meta"
	}
	return fmt.Sprintf("%s:%d", r.Cluster, r.Number)
}

// A Register is what a meta database knows of its installation, besides the map. The
// zero Register is that of a meta database that isn't there.
type Register struct {
	// Exists says that the meta database has a place for the map.
	Exists bool
	// Opened says that it was decided from when on it gives out worker numbers; before
	// that, it gives out none.
	Opened bool
	// Leased says that worker numbers were given out.
	Leased bool
	// Made is the server, by its name in the map, of each database that was made.
	Made map[Ref]string
	// Complete says that the register was kept from the first database on: what isn't
	// in Made was never made.
	Complete bool
}

// workerNames begins the names of the leases of worker numbers. The row of this very
// name says from when on they are given out; package lease obeys it.
const workerNames = "worker/"

// ReadRegister reads the register of the meta database at a place. db is a pool on its
// server. It changes nothing.
func ReadRegister(ctx context.Context, db *sql.DB, meta shardmap.Database) (Register, error) {
	r, err := readRegister(ctx, db, meta)
	if err != nil {
		return Register{}, fmt.Errorf("read the register in %s: %w", meta, err)
	}
	return r, nil
}

func readRegister(ctx context.Context, db *sql.DB, meta shardmap.Database) (r Register, err error) {
	count := func(what string) (n int, err error) {
		err = db.QueryRowContext(ctx, "SELECT COUNT(*) FROM `"+meta.Schema+"`."+what).Scan(&n)
		if isNoTable(err) {
			return 0, nil
		}
		return n, err
	}
	var maps, opened, leased int
	if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = ? AND table_name = 'shard_map'", meta.Schema).Scan(&maps); err != nil {
		return r, err
	}
	if opened, err = count("lease WHERE name = '" + workerNames + "'"); err != nil {
		return r, err
	}
	if leased, err = count("lease WHERE name LIKE '" + workerNames + "_%'"); err != nil {
		return r, err
	}
	r.Exists, r.Opened, r.Leased, r.Made = maps > 0, opened > 0, leased > 0, map[Ref]string{}
	rows, err := db.QueryContext(ctx, "SELECT cluster, number, server FROM `"+meta.Schema+"`.database_made")
	if isNoTable(err) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var ref Ref
		var server string
		if err := rows.Scan(&ref.Cluster, &ref.Number, &server); err != nil {
			return r, err
		}
		r.Made[ref] = server
	}
	_, r.Complete = r.Made[Ref{}]
	return r, rows.Err()
}

// Found brings the meta database at a place up to date, making it when there is none, and
// opens its register with the databases that were made before it, all at once.
//
// With wait above 0 no worker number is given out before that time has passed by its
// clock. A meta database that doesn't know which numbers are leased, since it is new to an
// installation that has databases, must wait until every lease that another may have
// given has ended. A later call may make the wait longer, never shorter. Found returns
// when numbers are given out, the zero time if they are already.
func Found(ctx context.Context, db *sql.DB, meta shardmap.Database, made []shardmap.Database, wait time.Duration) (from time.Time, err error) {
	err = alone(ctx, db, meta, func(db *sql.DB) error {
		if err := create(ctx, db, meta); err != nil {
			return err
		}
		if err := up(ctx, db, meta.Cluster); err != nil {
			return err
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if err = enter(ctx, tx, meta, append([]shardmap.Database{meta}, made...)...); err == nil {
			from, err = openNumbers(ctx, tx, wait)
		}
		if err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	})
	return from, err
}

// Enter writes into the register of a meta database that a database was made. db is a
// pool on the meta database's server.
func Enter(ctx context.Context, db *sql.DB, meta, made shardmap.Database) error {
	if err := enter(ctx, db, meta, made); err != nil {
		return fmt.Errorf("register %s: %w", made, err)
	}
	return nil
}

// An execer is a *sql.DB or a *sql.Tx.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func enter(ctx context.Context, db execer, meta shardmap.Database, made ...shardmap.Database) error {
	for _, place := range made {
		if _, err := db.ExecContext(ctx, "INSERT INTO `"+meta.Schema+"`.database_made (cluster, number, server, made_at) VALUES (?, ?, ?, UTC_TIMESTAMP(3)) ON DUPLICATE KEY UPDATE server = VALUES(server)",
			place.Cluster, place.Number, place.Server.Name); err != nil {
			return err
		}
	}
	return nil
}

// openNumbers lets worker numbers be given out when wait has passed, or later, as it was
// decided before. Until this row is there they are not given out at all, so nobody gets
// one in the moment between the making of the table and this.
func openNumbers(ctx context.Context, db execer, wait time.Duration) (from time.Time, err error) {
	const now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000"
	if _, err := db.ExecContext(ctx, "INSERT INTO lease (name, holder, token, until_ms) VALUES (?, '', 0, IF(? > 0, "+now+" + ?, 0)) ON DUPLICATE KEY UPDATE until_ms = GREATEST(until_ms, VALUES(until_ms))",
		workerNames, wait.Milliseconds(), wait.Milliseconds()); err != nil {
		return from, err
	}
	var until int64
	var open bool
	if err := db.QueryRowContext(ctx, "SELECT until_ms, until_ms <= "+now+" FROM lease WHERE name = ?", workerNames).Scan(&until, &open); err != nil || open {
		return from, err
	}
	return time.UnixMilli(until).UTC(), nil
}
