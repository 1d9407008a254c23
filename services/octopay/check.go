package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/internal/command"
	"github.com/octopay/octopay/internal/dberr"
	"github.com/octopay/octopay/lease"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/services/internal/boot"
	"github.com/octopay/octopay/shardmap"
)

type checkCmd struct {
	UIDs string `name:"uids" placeholder:"FILE" help:"Judge the spread of these buyers, one uid a line, and not of those who made the newest orders."`
	JSON bool   `name:"json" help:"One JSON object a line."`
}

const (
	// checksMax is how many databases are looked at at once.
	checksMax = 8
	// They bound all that is asked of one server, and of one database, so that one which
	// is frozen doesn't hold the command up. A server that is, is asked nothing more.
	serverWithin   = 10 * time.Second
	databaseWithin = 20 * time.Second
)

// A report gathers what a check finds. It is safe for concurrent use.
type report struct {
	mu       sync.Mutex
	findings []finding
	notes    []string
}

// A finding is a difference, or a warning, which fails nothing.
type finding struct {
	where   string // a server, or a database with its server
	text    string
	warning bool
}

func (r *report) differs(where, format string, args ...any) { r.add(where, false, format, args) }
func (r *report) warn(where, format string, args ...any)    { r.add(where, true, format, args) }

func (r *report) add(where string, warning bool, format string, args []any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.findings = append(r.findings, finding{where, fmt.Sprintf(format, args...), warning})
}

func (r *report) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// failed is the difference that a place couldn't be asked.
func (r *report) failed(where string, err error) {
	r.differs(where, "could not be checked: %v", dberr.Clean(err))
}

// A said is one line of a report as JSON.
type said struct {
	Kind  string `json:"kind"`            // note, warning, difference
	Where string `json:"where,omitempty"` // a server, or a database with its server
	Text  string `json:"text"`
}

// A sum is the last line of a report as JSON.
type sum struct {
	Kind        string `json:"kind"` // summary
	Databases   int    `json:"databases"`
	Servers     int    `json:"servers"`
	Differences int    `json:"differences"`
	Warnings    int    `json:"warnings"`
}

// end writes it all, what differs last, and fails if anything does.
func (r *report) end(to console, asJSON bool, databases, servers int) error {
	total := sum{Kind: "summary", Databases: databases, Servers: servers}
	var lines []said
	slices.Sort(r.notes)
	for _, n := range r.notes {
		lines = append(lines, said{Kind: "note", Text: n})
	}
	slices.SortStableFunc(r.findings, func(a, b finding) int {
		if a.warning != b.warning {
			if a.warning {
				return -1
			}
			return 1
		}
		return cmp.Or(strings.Compare(a.where, b.where), strings.Compare(a.text, b.text))
	})
	for _, f := range r.findings {
		if f.warning {
			total.Warnings++
			lines = append(lines, said{"warning", f.where, f.text})
		} else {
			total.Differences++
			lines = append(lines, said{"difference", f.where, f.text})
		}
	}
	out := json.NewEncoder(to.out)
	for _, l := range lines {
		var err error
		switch {
		case asJSON:
			err = out.Encode(l)
		case l.Kind == "note":
			_, err = fmt.Fprintln(to.out, l.Text)
		case l.Kind == "warning":
			_, err = fmt.Fprintf(to.out, "WARNING %s: %s\n", l.Where, l.Text)
		default:
			_, err = fmt.Fprintf(to.out, "DIFFERS %s: %s\n", l.Where, l.Text)
		}
		if err != nil {
			return err
		}
	}
	var err error
	if asJSON {
		err = out.Encode(total)
	} else {
		_, err = fmt.Fprintf(to.out, "Checked: %d databases on %d servers. Differences: %d. Warnings: %d.\n", databases, servers, total.Differences, total.Warnings)
	}
	if err == nil && total.Differences > 0 {
		err = errSaid
	}
	return err
}

// Run checks that schemas, settings, clocks, the map and the mirror agree on every server.
// It changes nothing. The servers come first, so that one that doesn't answer holds it up
// once; then the stream, then the databases, so that one that is seen to be behind the
// stream is.
func (c checkCmd) Run(ctx context.Context, s boot.Shared, to console) error {
	file, err := mapFile(s)
	if err != nil {
		return err
	}
	masters, err := s.Masters()
	if err != nil {
		return command.Usage("%w", err)
	}
	var uids []int64
	if c.UIDs != "" {
		if uids, err = readUIDs(c.UIDs); err != nil {
			return command.Usage("--uids: %w", err)
		}
	}
	config, err := access(s)
	if err != nil {
		return err
	}
	var r report
	m, err := r.theMap(ctx, file, config)
	if err != nil {
		return err
	}
	pools := servers{config: config, pools: map[string]*sql.DB{}}
	defer pools.close()

	all, clocks, away := r.servers(ctx, m, &pools)
	b := r.broker(ctx, s, m)
	defer b.close()
	places := placesOf(m)
	samples, copies := make([]sample, len(places)), make([]*copied, len(places))
	unseen := make([][]string, len(places))
	atOnce(len(places), func(i int) {
		if away[places[i].Server.Name] {
			return
		}
		within, cancel := context.WithTimeout(ctx, databaseWithin)
		defer cancel()
		db := pools.of(places[i].Server)
		var err error
		if samples[i], err = r.database(within, db, places[i], m); err == nil && places[i].Cluster == shardmap.BID {
			copies[i], err = readCopied(within, db, places[i])
		}
		if err == nil {
			unseen[i], err = schema.Unseen(within, db, places[i])
		}
		if err != nil {
			r.failed(places[i].String(), err)
		}
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.unseen(places, unseen)
	r.mirror(ctx, b, m, clocks, copies)
	if !away[m.Meta().Server.Name] {
		within, cancel := context.WithTimeout(ctx, databaseWithin)
		r.keysAndConfig(within, m, config, masters)
		cancel()
	}
	if c.UIDs != "" {
		r.spread(uids, "uids of the file", m.Size())
	} else {
		var truth sample
		for _, s := range samples {
			truth = truth.with(s)
		}
		r.spreadOfBuyers(truth.buyers(), m.Size())
	}
	return r.end(to, c.JSON, len(places), len(all))
}

// servers checks the servers themselves, and returns their clocks and which don't answer.
func (r *report) servers(ctx context.Context, m *shardmap.Map, pools *servers) (all []host, clocks []clock, away map[string]bool) {
	all = serversOf(m)
	clocks, away = make([]clock, len(all)), map[string]bool{}
	atOnce(len(all), func(i int) {
		within, cancel := context.WithTimeout(ctx, serverWithin)
		defer cancel()
		var err error
		if clocks[i], err = r.server(within, pools.of(all[i].Server), all[i], m.Prefix()); err != nil {
			r.mu.Lock()
			away[all[i].Name] = true
			r.mu.Unlock()
			r.failed(all[i].Name, fmt.Errorf("%w; nor were its databases, of which it has %d", dberr.Clean(err), all[i].databases))
		}
	})
	r.clocks(clocks)
	return all, clocks, away
}

// unseen says, once for all its databases, what a server doesn't show to the account.
func (r *report) unseen(places []shardmap.Database, unseen [][]string) {
	said := map[string]bool{}
	for i, place := range places {
		for _, what := range unseen[i] {
			if key := place.Server.Name + what; !said[key] {
				said[key] = true
				r.warn(place.Server.Name, "%s were not looked at in all databases: this account may not see them; see --db-user", what)
			}
		}
	}
}

// atOnce calls f with 0 … n-1, some at a time.
func atOnce(n int, f func(i int)) {
	var wait sync.WaitGroup
	turn := make(chan struct{}, checksMax)
	for i := range n {
		wait.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			f(i)
		})
	}
	wait.Wait()
}

// theMap returns the map that the databases are checked against: the one in force, or
// that of the file where there is none.
func (r *report) theMap(ctx context.Context, file *shardmap.Map, access cluster.Config) (*shardmap.Map, error) {
	c := cluster.Open(file, access)
	stored, err := cluster.MapInForce(ctx, c, file)
	if err := c.Close(); err != nil {
		return nil, err
	}
	meta, m := file.Meta().String(), file
	switch {
	case errors.Is(err, cluster.ErrMapConflict):
		r.differs(meta, "%v; what follows is by the file", err)
	case err != nil:
		r.differs(meta, "the map in force could not be read: %v; what follows is by the file", dberr.Clean(err))
	case stored == nil:
		r.differs(meta, "there is no map in force; should be that of epoch %d: see octopay migrate", file.Epoch())
	case stored.Epoch() < file.Epoch():
		m = stored
		r.differs(meta, "the map in force is of epoch %d; the file's is of epoch %d: see octopay migrate", stored.Epoch(), file.Epoch())
	case stored.Epoch() > file.Epoch():
		m = stored
		r.warn(meta, "the map in force is of epoch %d, and the file's of epoch %d only: bring the file up to date", stored.Epoch(), file.Epoch())
	}
	r.note("Map: epoch %d, %d databases in each cluster, hash %s.", m.Epoch(), m.Size(), m.Hash())
	return m, nil
}

// database checks one database, and returns its newest orders.
func (r *report) database(ctx context.Context, db *sql.DB, place shardmap.Database, m *shardmap.Map) (sample, error) {
	differences, err := schema.Check(ctx, db, place)
	if err != nil {
		return sample{}, err
	}
	for _, d := range differences {
		r.differs(place.String(), "%s", d)
	}
	if place.Cluster == "" {
		if known, err := schema.ReadRegister(ctx, db, place); err != nil {
			return sample{}, err
		} else if known.Exists {
			r.register(known.Made, m)
		}
		return sample{}, r.leases(ctx, db, place)
	}
	switch owner, there, err := schema.Look(ctx, db, place); {
	case err != nil:
		return sample{}, err
	case !there:
		r.differs(place.String(), "it doesn't say which database it is; should be %s, epoch %d: see octopay migrate", schema.RefOf(place), m.Epoch())
	case owner != schema.Owner{Cluster: place.Cluster, Number: place.Number, Epoch: m.Epoch()}:
		r.differs(place.String(), "it says that it is %s:%d and obeys epoch %d; should be %s, epoch %d", owner.Cluster, owner.Number, owner.Epoch, schema.RefOf(place), m.Epoch())
	}
	s, err := r.newest(ctx, db, place, m)
	if isMissingTable(err) {
		return sample{}, nil // said already, by name
	}
	return s, err
}

// leases looks at the worker numbers.
func (r *report) leases(ctx context.Context, db *sql.DB, meta shardmap.Database) (err error) {
	// The row without a number says from when on numbers are given out.
	rows, err := db.QueryContext(ctx, "SELECT name, until_ms, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000 FROM `"+meta.Schema+"`.lease WHERE name LIKE 'worker/%'")
	if isMissingTable(err) {
		return nil // said already
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	held, longest, opened := 0, time.Time{}, false
	var now time.Time
	for rows.Next() {
		var name string
		var until, at int64
		if err := rows.Scan(&name, &until, &at); err != nil {
			return err
		}
		now = time.UnixMilli(at).UTC()
		end := time.UnixMilli(until).UTC()
		switch {
		case name == "worker/":
			opened = true
			if end.After(now) {
				r.warn(meta.String(), "no worker number is given out before %s", end.Format(timeLayout))
			}
		case end.After(now):
			held++
			if end.After(longest) {
				longest = end
			}
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if !opened {
		r.differs(meta.String(), "it gives out no worker numbers: octopay migrate has not ended")
		return nil
	}
	r.workers(meta.String(), held, longest, now)
	return nil
}

const (
	workersMost  = idgen.Workers * 9 / 10   // held: then it is time to ask why
	layoutNotice = 365 * 24 * time.Hour     // before the end of the ids
	leaseMost    = lease.Term + time.Second // how far ahead a lease can end
)

// workers judges the worker numbers at a time of the meta database.
func (r *report) workers(meta string, held int, longest, now time.Time) {
	line := fmt.Sprintf("Worker numbers: %d of %d are held, %d are free; it is %s by %s.", held, idgen.Workers, idgen.Workers-held, now.Format(timeLayout), meta)
	if held > 0 {
		line += fmt.Sprintf(" The last lease ends at %s.", longest.Format(timeLayout))
	}
	r.note("%s", line)
	r.note("Order ids: their layout ends on %s.", idgen.End.Format(time.DateOnly))
	switch {
	case held >= workersMost:
		r.warn(meta, "%d of %d worker numbers are held; a process that finds none makes no orders", held, idgen.Workers)
	case longest.Sub(now) > leaseMost:
		r.warn(meta, "a worker number is leased until %s, in more than %s: the clock was set back", longest.Format(timeLayout), lease.Term)
	}
	switch {
	case now.Before(idgen.Epoch) || !now.Add(lease.Term).Before(idgen.End):
		r.differs(meta, "its clock says %s; the layout of order ids has times from %s to %s", now.Format(timeLayout), idgen.Epoch.Format(time.DateOnly), idgen.End.Format(time.DateOnly))
	case idgen.End.Sub(now) < layoutNotice:
		r.warn(meta, "the layout of order ids ends on %s", idgen.End.Format(time.DateOnly))
	}
}
