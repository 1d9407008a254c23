package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/octopay/octopay/lease"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
)

// What a migration saw before it changed anything.
type seen struct {
	inForce  *shardmap.Map // nil: none yet
	register schema.Register
	owners   map[schema.Ref]schema.Owner // of the databases that are there
	away     map[schema.Ref]error        // those that could not be looked at
}

// What the operator told about databases.
type told struct {
	moved map[schema.Ref]bool // the data was brought to the server of the map
	empty map[schema.Ref]bool // what is lost may be made again, empty
}

// A plan is what a migration does.
type plan struct {
	m       *shardmap.Map
	first   bool // there was nothing before
	raises  bool // m is not in force yet
	wait    time.Duration
	adopted []shardmap.Database // are there, and not in the register
	left    []shardmap.Database // places that databases were moved away from
	steps   []step
}

// A step is what becomes of one database of a cluster.
type step struct {
	place shardmap.Database
	make  bool           // it isn't there
	epoch shardmap.Epoch // that it obeys, where it is there
	away  error          // it can't be reached, and nothing is done
}

// newest returns the map to migrate: the file's, or a newer one in force.
func newest(file, inForce *shardmap.Map) *shardmap.Map {
	if inForce != nil && inForce.Epoch() > file.Epoch() {
		return inForce
	}
	return file
}

// newPlan decides what is done for a map, or says, sentence by sentence, why nothing may
// be. An order that can't be found is made a second time, so a database is never made
// where one was before, under this map or in another place.
func newPlan(file *shardmap.Map, s seen, t told) (p plan, faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	p.m = newest(file, s.inForce)
	p.raises = s.inForce == nil || s.inForce.Hash() != p.m.Hash()
	p.first = s.inForce == nil && len(s.owners) == 0 && len(s.register.Made) == 0
	if s.inForce != nil && s.inForce.Size() != p.m.Size() {
		fault("the map has %d databases in each cluster, the map in force %d; octopay can't change that yet", p.m.Size(), s.inForce.Size())
		return p, faults
	}
	for ref := range s.register.Made {
		if ref.Number > p.m.Size() {
			fault("%s was made, and the map has only %d databases in each cluster", ref, p.m.Size())
		}
	}
	faults = append(faults, p.planMeta(file, s, t)...)
	for _, place := range clustersOf(p.m) {
		faults = append(faults, p.planDatabase(place, s, t)...)
	}
	return p, faults
}

// planMeta decides about the meta database.
func (p *plan) planMeta(file *shardmap.Map, s seen, t told) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	meta, here := schema.Ref{}, p.m.Meta().Server.Name
	if p.m != file && file.Meta().Server.Name != here {
		fault("meta: it is on server %s by the map in force, and on %s by this file; get the newer map", here, file.Meta().Server.Name)
	}
	if before, known := s.before(p.m.Meta()); known && before.Name != here {
		// Programs may still lease numbers from the one that was left behind.
		p.wait = lease.Term
		if !t.moved[meta] {
			fault("meta: it was on server %s, and is on %s by this map; if its data was brought there, say --moved meta", before.Name, here)
		}
	}
	if len(s.owners) > 0 && !s.register.Opened && !s.register.Leased {
		p.wait = lease.Term
		if s.inForce == nil && !t.empty[meta] {
			fault("meta: databases of this map are there, %s for one, but not their meta database on server %s; mend the map, or bring it there, or, if it is lost, say --empty meta", s.anyone(p.m), here)
		}
	}
	return faults
}

// planDatabase decides about a database of a cluster.
func (p *plan) planDatabase(place shardmap.Database, s seen, t told) (faults []string) {
	ref := schema.RefOf(place)
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Sprintf("%s: "+format, append([]any{ref}, args...)...))
	}
	owner, there := s.owners[ref]
	before, known := s.before(place)
	moved := known && before.Name != place.Server.Name
	err := owner.Is(place, p.m.Epoch())
	switch {
	case s.away[ref] != nil && p.raises:
		fault("server %s can't be asked for it: %s", place.Server.Name, s.away[ref])
	case s.away[ref] != nil:
		p.steps = append(p.steps, step{place: place, away: s.away[ref]})
		return nil
	case moved && !t.moved[ref]:
		fault("it was on server %s, and is on %s by this map; if its data was brought there, say --moved %s", before.Name, place.Server.Name, ref)
	case moved && !there:
		fault("it was moved from server %s to %s, and is not there; bring its data there first, for it is not made empty", before.Name, place.Server.Name)
	case there && err != nil:
		fault("on server %s: %s", place.Server.Name, sentence(err))
	case !there && known && before.Address != "" && before.Address != place.Server.Address:
		fault("server %s had address %s, and at %s it is not there: refusing to make it empty", before.Name, before.Address, place.Server.Address)
	case !there && s.wasMade(ref) && !t.empty[ref]:
		fault("it was made, and is not on server %s: refusing to make it empty; bring its data back, or, if it is lost, say --empty %s", place.Server.Name, ref)
	}
	if faults != nil {
		return faults
	}
	p.steps = append(p.steps, step{place: place, make: !there, epoch: owner.Epoch})
	if moved && s.inForce != nil {
		p.left = append(p.left, s.inForce.Database(place.Cluster, place.Number))
	}
	if there && !moved && s.register.Made[ref] == "" {
		p.adopted = append(p.adopted, place)
	}
	return nil
}

// before returns the server that a database was on: by the map in force, and before there
// was one by the register, which knows no address. known is false if neither says.
func (s seen) before(place shardmap.Database) (server shardmap.Server, known bool) {
	if s.inForce == nil {
		name, known := s.register.Made[schema.RefOf(place)]
		return shardmap.Server{Name: name}, known
	}
	if place.Cluster == "" {
		return s.inForce.Meta().Server, true
	}
	return s.inForce.Database(place.Cluster, place.Number).Server, true
}

// wasMade reports whether a database was made, as far as is known. A register that wasn't
// kept from the beginning doesn't know all. Then those of the map in force were made; and
// where there is none, a database has others beside it that were.
func (s seen) wasMade(ref schema.Ref) bool {
	if _, made := s.register.Made[ref]; made || s.register.Complete {
		return made
	}
	return s.inForce != nil || len(s.owners) > 0
}

// anyone returns a database that is there.
func (s seen) anyone(m *shardmap.Map) schema.Ref {
	for _, place := range clustersOf(m) {
		if _, there := s.owners[schema.RefOf(place)]; there {
			return schema.RefOf(place)
		}
	}
	return schema.Ref{}
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
