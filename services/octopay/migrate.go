package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/command"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/services/internal/boot"
	"github.com/octopay/octopay/shardmap"
	"github.com/schollz/progressbar/v3"
)

type migrateCmd struct {
	Moved []string `name:"moved" placeholder:"DATABASE" help:"The map has this database (uid:3, bid:5, meta) on another server than the map in force, and its data was brought there. May be given again."`
	Empty []string `name:"empty" placeholder:"DATABASE" help:"This database was made before, and is lost: make it again, empty. May be given again."`
}

// migrationsMax is how many databases are migrated at once. A server spends most of a
// CREATE TABLE in waiting for its disk.
const migrationsMax = 8

// Run migrates the databases of the map, and then puts the map in force. Everything is
// looked at first: with a wrong map nothing may be touched. The meta database goes first
// then, since it says what was made; and all databases are brought up to date before the
// first of them obeys the new map, since until that is in force programs can't use it.
func (c migrateCmd) Run(ctx context.Context, s boot.Shared, to console) (err error) {
	file, err := mapFile(s)
	if err != nil {
		return err
	}
	word, err := c.told(file)
	if err != nil {
		return err
	}
	config, err := access(s)
	if err != nil {
		return err
	}
	pools := servers{config: config, pools: map[string]*sql.DB{}}
	defer pools.close()
	meta := pools.of(file.Meta().Server)
	unlock, err := lockInstallation(ctx, meta, file.Meta())
	if err != nil {
		return fmt.Errorf("%s: %w; nothing was changed", file.Meta(), err)
	}
	defer unlock()
	handles := cluster.Open(file, config)
	defer func() { err = errors.Join(err, handles.Close()) }()

	saw, err := look(ctx, &pools, handles, file)
	if err != nil {
		return fmt.Errorf("%w; nothing was changed", err)
	}
	p, faults := newPlan(file, saw, word)
	if len(faults) > 0 {
		fmt.Fprintln(to.err, "octopay: nothing was changed:")
		for _, f := range faults {
			fmt.Fprintf(to.err, "  %s\n", f)
		}
		return errSaid
	}
	if p.m != file {
		fmt.Fprintf(to.out, "The map file has epoch %d. The meta database has a newer map, of epoch %d, and that one is used.\n", file.Epoch(), p.m.Epoch())
	}
	if p.first {
		fmt.Fprintln(to.out, "None of these databases is there: this is a new installation.")
	}
	w := worker{plan: p, pools: &pools, meta: meta, to: to, told: newProgress(to, len(p.steps)+1, watched(to.err))}
	return w.migrate(ctx, saw.register, handles)
}

// told reads the names of databases.
func (c migrateCmd) told(m *shardmap.Map) (t told, err error) {
	names := map[string]schema.Ref{}
	for _, place := range append(clustersOf(m), m.Meta()) {
		names[schema.RefOf(place).String()] = schema.RefOf(place)
	}
	read := func(flag string, given []string) map[schema.Ref]bool {
		out := map[schema.Ref]bool{}
		for _, name := range given {
			ref, ok := names[name]
			if !ok {
				err = errors.Join(err, command.Usage("--%s %s: that is no database of the map; they are uid:1 to uid:%d, bid:1 to bid:%d, and meta", flag, name, m.Size(), m.Size()))
			}
			out[ref] = true
		}
		return out
	}
	return told{moved: read("moved", c.Moved), empty: read("empty", c.Empty)}, err
}

// clustersOf returns the databases of both clusters.
func clustersOf(m *shardmap.Map) []shardmap.Database {
	return append(m.Databases(shardmap.UID), m.Databases(shardmap.BID)...)
}

// lockInstallation keeps other operators from migrating the databases of this meta
// database, which needn't be there, until unlock is called.
func lockInstallation(ctx context.Context, db *sql.DB, meta shardmap.Database) (unlock func(), err error) {
	name := "octopay_installation:" + meta.Schema
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	var got sql.NullInt64
	if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, 0)", name).Scan(&got); err != nil || got.Int64 != 1 {
		if err == nil {
			err = errors.New("another octopay migrate is at work; wait until it has ended")
		}
		return nil, errors.Join(err, conn.Close())
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_, _ = conn.ExecContext(ctx, "DO RELEASE_LOCK(?)", name)
		cluster.Discard(conn) // where that failed, this does it
	}, nil
}

// look looks at the installation, and changes nothing.
func look(ctx context.Context, pools *servers, handles *cluster.Cluster, file *shardmap.Map) (s seen, err error) {
	if s.register, err = schema.ReadRegister(ctx, pools.of(file.Meta().Server), file.Meta()); err != nil {
		return s, err
	}
	if s.register.Exists {
		if s.inForce, err = cluster.MapInForce(ctx, handles, file); err != nil {
			return s, err
		}
	}
	s.owners, s.away = map[schema.Ref]schema.Owner{}, map[schema.Ref]error{}
	var mu sync.Mutex
	m := newest(file, s.inForce)
	each(clustersOf(m), func(place shardmap.Database) {
		owner, there, err := schema.Look(ctx, pools.of(place.Server), place)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil:
			s.away[schema.RefOf(place)] = err
		case there:
			s.owners[schema.RefOf(place)] = owner
		}
	})
	return s, nil
}

// each calls f with every one of all, some at once.
func each[T any](all []T, f func(T)) {
	turn := make(chan struct{}, migrationsMax)
	var wait sync.WaitGroup
	for _, one := range all {
		wait.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			f(one)
		})
	}
	wait.Wait()
}

// A worker carries a plan out.
type worker struct {
	plan
	pools *servers
	meta  *sql.DB // of the meta database's server
	to    console
	told  *progress
}

func (w *worker) migrate(ctx context.Context, register schema.Register, handles *cluster.Cluster) error {
	from, err := schema.Found(ctx, w.meta, w.m.Meta(), w.adopted, w.wait)
	if err != nil {
		return fmt.Errorf("%s; no other database was touched", sentence(err))
	}
	w.told.done(w.m.Meta(), nil)
	failures := w.prepare(ctx)
	if len(failures) == 0 {
		w.leave(ctx)
		failures = w.finish(ctx, register)
	}
	w.told.end()
	if len(failures) == 0 && w.wait > 0 {
		// From now on nobody writes ids whose number another meta database gave him.
		from, err = schema.Found(ctx, w.meta, w.m.Meta(), nil, w.wait)
	}
	if !from.IsZero() {
		fmt.Fprintf(w.to.out, "Worker numbers are given out from %s on, by the meta database's clock: those that another one gave out may be in use until then. Until then programs that start answer creates with 503.\n", from.Format(timeLayout))
	}
	switch {
	case len(failures) > 0:
		return w.failed(failures)
	case err != nil:
		return errors.New(sentence(err))
	}
	if err := cluster.PutMapInForce(ctx, handles, w.m); err != nil {
		return err
	}
	fmt.Fprintf(w.to.out, "%d databases are up to date. The map of epoch %d is in force; its hash is %s.\n", len(w.steps)+1, w.m.Epoch(), w.m.Hash())
	return nil
}

// prepare brings the databases that are there up to date, each under the map that it
// obeys, when they are about to obey another one. From then until that is in force they
// serve nobody, so what takes long, or fails, comes before.
func (w *worker) prepare(ctx context.Context) map[shardmap.Database]error {
	if !w.raises {
		return nil
	}
	return w.eachStep(func(s step) error {
		if s.make {
			return nil
		}
		return schema.Upgrade(ctx, w.pools.of(s.place.Server), s.place, s.epoch)
	})
}

// leave closes the places that databases were moved away from to programs that follow
// the map before. A server that is gone can't be closed; then it is said.
func (w *worker) leave(ctx context.Context) {
	for _, old := range w.left {
		if err := schema.Close(ctx, w.pools.of(old.Server), old, w.m.Epoch()); err != nil {
			fmt.Fprintf(w.to.err, "octopay: %s was moved away, and that place can't be closed: %v. See to it that no program writes there any more.\n", old, err)
		}
	}
}

// finish makes what is to be made, and lets every database obey the map.
func (w *worker) finish(ctx context.Context, register schema.Register) map[shardmap.Database]error {
	return w.eachStep(func(s step) error {
		err := s.away
		switch {
		case err != nil:
		case s.make:
			err = schema.Migrate(ctx, w.pools.of(s.place.Server), s.place, w.m.Epoch())
		default:
			err = schema.Upgrade(ctx, w.pools.of(s.place.Server), s.place, w.m.Epoch())
		}
		if err == nil && register.Made[schema.RefOf(s.place)] != s.place.Server.Name {
			err = schema.Enter(ctx, w.meta, w.m.Meta(), s.place)
		}
		w.told.done(s.place, err)
		return err
	})
}

// eachStep calls f with every step, and returns what failed.
func (w *worker) eachStep(f func(step) error) map[shardmap.Database]error {
	var mu sync.Mutex
	failures := map[shardmap.Database]error{}
	each(w.steps, func(s step) {
		if err := f(s); err != nil {
			mu.Lock()
			defer mu.Unlock()
			failures[s.place] = err
		}
	})
	return failures
}

// failed says which databases failed, in the order of the map.
func (w *worker) failed(failures map[shardmap.Database]error) error {
	fmt.Fprintf(w.to.err, "octopay: %d of %d databases failed:\n", len(failures), len(w.steps)+1)
	for _, s := range w.steps {
		if err := failures[s.place]; err != nil {
			if s.away != nil {
				err = fmt.Errorf("%s: %w", s.place, err)
			}
			fmt.Fprintf(w.to.err, "  %s\n", sentence(err))
		}
	}
	if w.raises {
		fmt.Fprintf(w.to.err, "The map of epoch %d is not in force. Run octopay migrate with it again.\n", w.m.Epoch())
	}
	return errSaid
}

// servers opens one pool for each server.
type servers struct {
	config cluster.Config
	mu     sync.Mutex
	pools  map[string]*sql.DB // by address: two maps may have two of a name
}

func (s *servers) of(server shardmap.Server) *sql.DB {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pools[server.Address] == nil {
		s.pools[server.Address] = cluster.OpenServer(server, s.config)
	}
	return s.pools[server.Address]
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
