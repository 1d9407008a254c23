package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/services/internal/boot"
	"github.com/octopay/octopay/shardmap"
	"github.com/schollz/progressbar/v3"
)

type migrateCmd struct{}

// migrationsMax is how many databases are migrated at once. A server spends most of a
// CREATE TABLE in waiting for its disk.
const migrationsMax = 8

// Run migrates the meta database, finds the map in force, and migrates its databases.
// The meta database goes first: with a wrong map nothing else may be touched.
func (migrateCmd) Run(ctx context.Context, s boot.Shared, to console) error {
	file, err := s.Map()
	if err != nil {
		return err
	}
	pools := servers{config: access(s), pools: map[string]*sql.DB{}}
	defer pools.close()
	if err := schema.Migrate(ctx, pools.of(file.Meta().Server), file.Meta(), file.Epoch()); err != nil {
		return fmt.Errorf("%s; no other database was touched", sentence(err))
	}
	handles := cluster.Open(file, access(s))
	m, err := cluster.ResolveMap(ctx, handles, file)
	if err := errors.Join(err, handles.Close()); err != nil {
		return err
	}
	if m.Hash() != file.Hash() {
		fmt.Fprintf(to.out, "The map file has epoch %d. The meta database has a newer map, of epoch %d, and that one is used.\n", file.Epoch(), m.Epoch())
	}

	places := append(m.Databases(shardmap.UID), m.Databases(shardmap.BID)...)
	told := newProgress(to, len(places)+1, watched(to.err))
	told.done(m.Meta(), nil)
	errs := make([]error, len(places))
	turn := make(chan struct{}, migrationsMax)
	var wait sync.WaitGroup
	for i, p := range places {
		wait.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			errs[i] = schema.Migrate(ctx, pools.of(p.Server), p, m.Epoch())
			told.done(p, errs[i])
		})
	}
	wait.Wait()
	told.end()

	failed := 0
	for _, err := range errs {
		if err != nil {
			failed++
		}
	}
	if failed > 0 {
		fmt.Fprintf(to.err, "octopay: %d of %d databases failed:\n", failed, len(places)+1)
		for _, err := range errs {
			if err != nil {
				fmt.Fprintf(to.err, "  %s\n", sentence(err))
			}
		}
		return errSaid
	}
	fmt.Fprintf(to.out, "%d databases are up to date. The map of epoch %d is in force; its hash is %s.\n", len(places)+1, m.Epoch(), m.Hash())
	return nil
}

// sentence says what to do about an error of schema.Migrate.
func sentence(err error) string {
	switch {
	case errors.Is(err, schema.ErrMigrating):
		return err.Error() + "; wait until it has ended, and run octopay migrate again"
	case errors.Is(err, schema.ErrOldMap):
		return err.Error() + "; get the newer map"
	}
	return err.Error()
}

// servers opens one pool for each server.
type servers struct {
	config cluster.Config
	mu     sync.Mutex
	pools  map[string]*sql.DB
}

func (s *servers) of(server shardmap.Server) *sql.DB {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pools[server.Name] == nil {
		s.pools[server.Name] = cluster.OpenServer(server, s.config)
	}
	return s.pools[server.Name]
}

func (s *servers) close() {
	for _, db := range s.pools {
		_ = db.Close()
	}
}

// A progress tells what is done: a bar where a person watches, and otherwise a line
// for each database.
type progress struct {
	mu  sync.Mutex
	out io.Writer
	bar *progressbar.ProgressBar
}

func newProgress(to console, databases int, watched bool) *progress {
	p := &progress{out: to.out}
	if watched {
		p.bar = progressbar.NewOptions(databases,
			progressbar.OptionSetWriter(to.err),
			progressbar.OptionSetDescription("migrating"),
			progressbar.OptionShowCount(),
			progressbar.OptionSetPredictTime(false),
			progressbar.OptionSetWidth(40),
			progressbar.OptionClearOnFinish())
	}
	return p
}

func (p *progress) done(place shardmap.Database, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.bar != nil:
		_ = p.bar.Add(1)
	case err != nil:
		fmt.Fprintf(p.out, "%s failed\n", place)
	default:
		fmt.Fprintf(p.out, "%s is up to date\n", place)
	}
}

func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}

// watched reports whether w is a terminal.
func watched(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
