package localstack

import (
	"context"
	"database/sql"
	"errors"

	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"golang.org/x/sync/errgroup"
)

// places returns the databases of the map that are needed.
func (s *Stack) places() (out []shardmap.Database) {
	if s.need.needs(UID) {
		out = append(out, s.Map.Databases(shardmap.UID)...)
	}
	if s.need.needs(BID) {
		out = append(out, s.Map.Databases(shardmap.BID)...)
	}
	if s.need.needs(Meta) {
		out = append(out, s.Map.Meta())
	}
	return out
}

// migrate makes and migrates the needed databases, all at once: a server spends the
// time of a CREATE TABLE mostly in waiting for its disk.
func (s *Stack) migrate(ctx context.Context) error {
	return s.each(s.User, func(db *sql.DB, place shardmap.Database) error {
		return schema.Migrate(ctx, db, place, s.Map.Epoch())
	})
}

// drop drops the needed databases and the streams of the map's prefix.
func (s *Stack) drop(ctx context.Context) error {
	err := s.each(s.admin, func(db *sql.DB, place shardmap.Database) error {
		_, err := db.ExecContext(ctx, "DROP DATABASE IF EXISTS `"+place.Schema+"`")
		return err
	})
	if s.need.needs(NATS) {
		err = errors.Join(err, dropStreams(ctx, s.NATSURL, s.Map.Prefix()))
	}
	return err
}

// each runs f for every needed database, all at once, and returns every error.
func (s *Stack) each(user string, f func(*sql.DB, shardmap.Database) error) error {
	pools := map[string]*sql.DB{}
	defer func() {
		for _, db := range pools {
			_ = db.Close()
		}
	}()
	places := s.places()
	errs := make([]error, len(places))
	var g errgroup.Group
	for i, p := range places {
		db := pools[p.Server.Name]
		if db == nil {
			db = openSQL(p.Server.Address, user, s.Password)
			pools[p.Server.Name] = db
		}
		g.Go(func() error {
			errs[i] = f(db, p)
			return nil
		})
	}
	_ = g.Wait()
	return errors.Join(errs...)
}
