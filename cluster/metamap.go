package cluster

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/octopay/octopay/internal/dberr"
	"github.com/octopay/octopay/shardmap"
)

// ErrMapConflict reports two maps that differ and have one epoch. Nobody can say which
// is in force; an operator makes a map of a higher epoch.
var ErrMapConflict = errors.New("two shard maps have one epoch")

// ResolveMap returns the map in force: that of the higher epoch, of file's and the one
// that the meta database holds. A file's that is newer, or the first, is stored there.
// With one epoch and different maps it returns ErrMapConflict, which names both hashes.
//
// The meta database is c's. Done twice, it changes nothing the second time; an error
// that is ErrUnavailable may be gone at the next try.
func ResolveMap(ctx context.Context, c *Cluster, file *shardmap.Map) (*shardmap.Map, error) {
	stored, err := storedMap(ctx, c.Meta())
	if err != nil {
		return nil, err
	}
	if stored == nil || stored.Epoch() < file.Epoch() {
		if err := storeMap(ctx, c.Meta(), file); err != nil {
			return nil, err
		}
		// Somebody else may have stored one at the same moment.
		if stored, err = storedMap(ctx, c.Meta()); err != nil {
			return nil, err
		}
	}
	switch {
	case stored == nil || stored.Epoch() < file.Epoch():
		return nil, fmt.Errorf("the shard map of epoch %d was stored in %s and is not there", file.Epoch(), c.Meta().Place())
	case stored.Epoch() == file.Epoch() && stored.Hash() != file.Hash():
		return nil, fmt.Errorf("%w: epoch %d has hash %s in %s and %s in the file", ErrMapConflict, file.Epoch(), stored.Hash(), c.Meta().Place(), file.Hash())
	}
	return stored, nil
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

// storeMap adds m, unless there is a map of its epoch.
func storeMap(ctx context.Context, meta *Database, m *shardmap.Map) error {
	c, err := meta.Conn(ctx)
	if err != nil {
		return fmt.Errorf("store the shard map: %w", err)
	}
	_, err = c.ExecContext(ctx, "INSERT INTO `"+meta.Schema()+"`.shard_map (epoch, hash, text) VALUES (?, ?, ?) ON DUPLICATE KEY UPDATE epoch = epoch",
		m.Epoch(), m.Hash(), string(m.Text()))
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
