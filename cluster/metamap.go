package cluster

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/octopay/octopay/internal/dberr"
	"github.com/octopay/octopay/shardmap"
	"golang.org/x/sync/errgroup"
)

// ErrMapConflict reports two maps that differ and have one epoch. Nobody can say which
// is in force; an operator makes a map of a higher epoch.
var ErrMapConflict = errors.New("two shard maps have one epoch")

// MapInForce returns the map in force, the one of the highest epoch in c's meta database;
// nil if there is none yet. If file, a map that the caller knows, is another one of the
// same epoch, it returns ErrMapConflict, which names both hashes. It changes nothing.
//
// An error that is ErrUnavailable may be gone at the next try.
func MapInForce(ctx context.Context, c *Cluster, file *shardmap.Map) (*shardmap.Map, error) {
	stored, err := storedMap(ctx, c.Meta())
	if err != nil || stored == nil {
		return nil, err
	}
	return stored, conflict(c.Meta(), stored, file)
}

// ResolveMap returns the map that a program begins with: the one in force, see
// MapInForce, which may be newer than file. In a meta database that has no map, file is
// put in force.
//
// A file that is newer than the map in force is an error, to be tried again: the map
// follows when octopay migrate has put it in force. A program can't do that. It doesn't
// know whether the databases are where its file says; under a wrong line of it, the
// orders of a database would be gone, and made a second time somewhere else.
func ResolveMap(ctx context.Context, c *Cluster, file *shardmap.Map) (*shardmap.Map, error) {
	stored, err := MapInForce(ctx, c, file)
	if err == nil && stored == nil {
		// Somebody else may store one at the same moment.
		if err = storeMap(ctx, c.Meta(), file); err == nil {
			stored, err = MapInForce(ctx, c, file)
		}
	}
	switch {
	case err != nil:
		return nil, err
	case stored == nil:
		return nil, lost(c.Meta(), file)
	case stored.Epoch() < file.Epoch():
		return nil, fmt.Errorf("the map file has epoch %d and isn't in force, in %s there is epoch %d: run octopay migrate with this file", file.Epoch(), c.Meta().Place(), stored.Epoch())
	}
	return stored, nil
}

// Obeyed returns nil when every database of the truth says that it obeys c's map. A map that
// isn't in force any more is then ruled out, without the meta database: octopay migrate
// raises the epoch of all databases before it puts another map in force, so one that an old
// map finds where it still is says so. Only a truth that was moved whole, and whose old
// servers go on with the old epoch, isn't noticed.
func Obeyed(ctx context.Context, c *Cluster) error {
	var g errgroup.Group
	for _, place := range c.Map().Databases(shardmap.UID) {
		g.Go(func() error {
			// Read asks for the epoch by itself.
			return c.Database(shardmap.UID, place.Number).Read(ctx, func(context.Context, *sql.Conn) error { return nil })
		})
	}
	return g.Wait()
}

// PutMapInForce stores m, whose databases obey it, as the map in force. Done twice it
// changes nothing. It returns ErrMapConflict when there is another map of m's epoch, and
// an error when there is a newer one.
func PutMapInForce(ctx context.Context, c *Cluster, m *shardmap.Map) error {
	if err := storeMap(ctx, c.Meta(), m); err != nil {
		return err
	}
	stored, err := MapInForce(ctx, c, m)
	switch {
	case err != nil:
		return err
	case stored == nil || stored.Epoch() < m.Epoch():
		return lost(c.Meta(), m)
	case stored.Epoch() > m.Epoch():
		return fmt.Errorf("the map of epoch %d is not put in force, in %s there is epoch %d", m.Epoch(), c.Meta().Place(), stored.Epoch())
	}
	return nil
}

func conflict(meta *Database, stored, file *shardmap.Map) error {
	if stored.Epoch() == file.Epoch() && stored.Hash() != file.Hash() {
		return fmt.Errorf("%w: epoch %d has hash %s in %s and %s in the file", ErrMapConflict, file.Epoch(), stored.Hash(), meta.Place(), file.Hash())
	}
	return nil
}

func lost(meta *Database, m *shardmap.Map) error {
	return fmt.Errorf("the shard map of epoch %d was stored in %s and is not there", m.Epoch(), meta.Place())
}

// storedMap returns the map of the highest epoch in the meta database, nil if it has
// none.
func storedMap(ctx context.Context, meta *Database) (*shardmap.Map, error) {
	var epoch shardmap.Epoch
	var hash, text string
	err := meta.Read(ctx, func(ctx context.Context, c *sql.Conn) error {
		return c.QueryRowContext(ctx, "SELECT epoch, hash, text FROM `"+meta.Schema()+"`.shard_map ORDER BY epoch DESC LIMIT 1").
			Scan(&epoch, &hash, &text)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the shard map: %w", err)
	}
	m, err := shardmap.Parse([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("the shard map of epoch %d in %s: %w", epoch, meta.Place(), err)
	}
	if m.Epoch() != epoch || m.Hash() != hash {
		return nil, fmt.Errorf("the shard map of epoch %d in %s is damaged: its text has epoch %d and hash %s, not %s", epoch, meta.Place(), m.Epoch(), m.Hash(), hash)
	}
	return m, nil
}

// storeMap adds m, unless there is a map of its epoch or a newer one.
func storeMap(ctx context.Context, meta *Database, m *shardmap.Map) error {
	c, err := meta.Conn(ctx)
	if err != nil {
		return fmt.Errorf("store the shard map: %w", err)
	}
	table := "`" + meta.Schema() + "`.shard_map"
	_, err = c.ExecContext(ctx, "INSERT INTO "+table+" (epoch, hash, text) SELECT ?, ?, ? FROM DUAL"+
		" WHERE NOT EXISTS (SELECT 1 FROM "+table+" AS newer WHERE newer.epoch > ?) ON DUPLICATE KEY UPDATE epoch = VALUES(epoch)",
		m.Epoch(), m.Hash(), string(m.Text()), m.Epoch())
	if err == nil {
		_ = c.Close()
		return nil
	}
	Discard(c)
	if dberr.Of(err) == dberr.Refused {
		return fmt.Errorf("store the shard map: %w", dberr.Clean(err))
	}
	return fmt.Errorf("store the shard map: %w", meta.unavailable(err))
}
