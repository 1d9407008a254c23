package localstack

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"

	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"golang.org/x/sync/errgroup"
)

// places returns the databases of the map that are needed.
func (s *Stack) places() (out []shardmap.Database) {
	if s.options.needs(UID) {
		out = append(out, s.Map.Databases(shardmap.UID)...)
	}
	if s.options.needs(BID) {
		out = append(out, s.Map.Databases(shardmap.BID)...)
	}
	if s.options.needs(Meta) {
		out = append(out, s.Map.Meta())
	}
	return out
}

// migrate makes and migrates the needed databases, all at once: a server spends the
// time of a CREATE TABLE mostly in waiting for its disk.
func (s *Stack) migrate(ctx context.Context) error {
	pools := map[string]*sql.DB{}
	defer func() {
		for _, db := range pools {
			_ = db.Close()
		}
	}()
	places := s.places()
	errs := make([]error, len(places))
	var wait sync.WaitGroup
	for i, p := range places {
		db := pools[p.Server.Name]
		if db == nil {
			db = openSQL(p.Server.Address, s.User, s.Password)
			pools[p.Server.Name] = db
		}
		wait.Go(func() { errs[i] = schema.Migrate(ctx, db, p, s.Map.Epoch()) })
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	meta := s.Map.Meta()
	made := slices.DeleteFunc(places, func(p shardmap.Database) bool { return p.Cluster == "" })
	if !s.options.needs(Meta) || len(made) == 0 {
		return nil
	}
	// As octopay migrate does; without it octopay check finds fault with the register.
	_, err := schema.Found(ctx, pools[meta.Server.Name], meta, made, 0)
	return err
}

// drop drops every database of the map's prefix, on every server of the map that can
// have one, and the streams.
func (s *Stack) drop(ctx context.Context) error {
	var errs []error
	servers := map[string]string{}
	for _, p := range s.places() {
		servers[p.Server.Name] = p.Server.Address
	}
	for _, address := range servers {
		errs = append(errs, s.dropOn(ctx, address))
	}
	if s.options.needs(NATS) {
		errs = append(errs, dropStreams(ctx, s.NATSURL, s.Map.Prefix()))
	}
	return errors.Join(errs...)
}

func (s *Stack) dropOn(ctx context.Context, address string) error {
	db := openSQL(address, s.admin, s.Password)
	defer func() { _ = db.Close() }()
	prefix := s.Map.Prefix() + "octopay_"
	rows, err := db.QueryContext(ctx, "SELECT schema_name FROM information_schema.schemata WHERE LEFT(schema_name, ?) = ?", len(prefix), prefix)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var g errgroup.Group
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return errors.Join(err, g.Wait())
		}
		g.Go(func() error {
			_, err := db.ExecContext(ctx, "DROP DATABASE `"+name+"`")
			return err
		})
	}
	return errors.Join(rows.Err(), g.Wait())
}
