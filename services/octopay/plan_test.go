package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/octopay/octopay/lease"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
)

// twoServers is a map: the truth and the meta database on uid-a, the mirror on bid-a.
func twoServers(epoch shardmap.Epoch, change ...func(*shardmap.Spec)) shardmap.Spec {
	spec := shardmap.Spec{Epoch: epoch, Meta: "uid-a", Servers: []shardmap.Server{{Name: "uid-a", Address: "10.0.0.1:3306"}, {Name: "bid-a", Address: "10.0.0.2:3306"}}}
	for d := 1; d <= 8; d++ {
		spec.UID = append(spec.UID, shardmap.Placement{Database: d, Server: "uid-a"})
		spec.BID = append(spec.BID, shardmap.Placement{Database: d, Server: "bid-a"})
	}
	for _, c := range change {
		c(&spec)
	}
	return spec
}

func uid3OnBidA(s *shardmap.Spec)    { s.UID[2].Server = "bid-a" }
func metaOnBidA(s *shardmap.Spec)    { s.Meta = "bid-a" }
func bidAElsewhere(s *shardmap.Spec) { s.Servers[1].Address = "10.0.0.9:3306" }
func sixteen(s *shardmap.Spec) {
	for d := 9; d <= 16; d++ {
		s.UID = append(s.UID, shardmap.Placement{Database: d, Server: "uid-a"})
		s.BID = append(s.BID, shardmap.Placement{Database: d, Server: "bid-a"})
	}
}

func ref(name string) schema.Ref {
	var r schema.Ref
	if name != "meta" {
		c, n, _ := strings.Cut(name, ":")
		r.Cluster = shardmap.Cluster(c)
		_, _ = fmt.Sscan(n, &r.Number)
	}
	return r
}

// nothing is what is seen before the first migration.
func nothing() seen {
	return seen{owners: map[schema.Ref]schema.Owner{}, away: map[schema.Ref]error{}, register: schema.Register{Made: map[schema.Ref]string{}}}
}

// installed is what is seen under a map in force.
func installed(m *shardmap.Map) seen {
	s := nothing()
	s.inForce = m
	s.register = schema.Register{Exists: true, Opened: true, Leased: true, Complete: true, Made: map[schema.Ref]string{}}
	s.register.Made[schema.Ref{}] = m.Meta().Server.Name
	for _, place := range clustersOf(m) {
		s.register.Made[schema.RefOf(place)] = place.Server.Name
		s.owners[schema.RefOf(place)] = schema.Owner{Cluster: place.Cluster, Number: place.Number, Epoch: m.Epoch()}
	}
	return s
}

func (s seen) without(names ...string) seen {
	for _, name := range names {
		delete(s.owners, ref(name))
	}
	return s
}

func (s seen) unregistered(names ...string) seen {
	for _, name := range names {
		delete(s.register.Made, ref(name))
	}
	_, s.register.Complete = s.register.Made[schema.Ref{}]
	return s
}

func (s seen) noMap() seen { s.inForce = nil; return s }

// metaLost is what is seen of an installation whose meta database is not there.
func (s seen) metaLost() seen {
	s.inForce, s.register = nil, schema.Register{Made: map[schema.Ref]string{}}
	return s
}

// byOthers is an installation that octopay migrate didn't make.
func (s seen) byOthers() seen {
	s.register = schema.Register{Exists: true, Opened: true, Made: map[schema.Ref]string{}}
	return s
}

func (s seen) isAway(name string) seen {
	delete(s.owners, ref(name))
	s.away[ref(name)] = errors.New("nobody answers")
	return s
}

func (s seen) owned(name string, o schema.Owner) seen { s.owners[ref(name)] = o; return s }

func tell(flags string) (t told) {
	t = told{moved: map[schema.Ref]bool{}, empty: map[schema.Ref]bool{}}
	for _, f := range strings.Fields(flags) {
		if name, ok := strings.CutPrefix(f, "moved="); ok {
			t.moved[ref(name)] = true
		} else if name, ok := strings.CutPrefix(f, "empty="); ok {
			t.empty[ref(name)] = true
		}
	}
	return t
}

// summary is a plan in one line: what is made, adopted, left; the wait.
func summary(p plan, faults []string) string {
	if len(faults) > 0 {
		return "refused: " + strings.Join(faults, " | ")
	}
	var made, adopted, left, away []string
	upgraded := 0
	for _, s := range p.steps {
		switch {
		case s.away != nil:
			away = append(away, schema.RefOf(s.place).String())
		case s.make:
			made = append(made, schema.RefOf(s.place).String())
		default:
			upgraded++
		}
	}
	for _, place := range p.adopted {
		adopted = append(adopted, schema.RefOf(place).String())
	}
	for _, place := range p.left {
		left = append(left, place.String())
	}
	out := []string{fmt.Sprintf("epoch %d", p.m.Epoch())}
	for name, list := range map[string][]string{"made": made, "adopted": adopted, "left": left, "away": away} {
		switch {
		case len(list) >= 8:
			out = append(out, fmt.Sprintf("%s %d", name, len(list)))
		case len(list) > 0:
			out = append(out, name+" "+strings.Join(list, ","))
		}
	}
	for name, is := range map[string]bool{"first": p.first, "raises": p.raises, "waits": p.wait == lease.Term, fmt.Sprintf("%d upgraded", upgraded): upgraded > 0} {
		if is {
			out = append(out, name)
		}
	}
	slices.Sort(out[1:])
	return strings.Join(out, "; ")
}

func TestThePlan(t *testing.T) {
	in := func(change ...func(*shardmap.Spec)) *shardmap.Map { return mustMap(t, twoServers(3, change...)) }
	for _, c := range []struct {
		name  string
		file  shardmap.Spec
		seen  seen
		told  string
		want  string // of a refusal: what it must contain
		lines int    // of a refusal
	}{
		// The first time.
		{"nothing is there: all is made", twoServers(3), nothing(), "", "epoch 3; first; made 16; raises", 0},
		{"the first migration was cut off: the rest is made", twoServers(3), installed(in()).noMap().without("uid:5", "bid:1").unregistered("uid:5", "bid:1"), "",
			"epoch 3; 14 upgraded; made uid:5,bid:1; raises", 0},
		{"cut between the making and the register: it is adopted", twoServers(3), installed(in()).noMap().unregistered("uid:5"), "",
			"epoch 3; 16 upgraded; adopted uid:5; raises", 0},
		{"a program has stored the map meanwhile: the rest is made", twoServers(3), installed(in()).without("uid:5").unregistered("uid:5"), "",
			"epoch 3; 15 upgraded; made uid:5", 0},
		{"one that was made is lost before the first migration has ended", twoServers(3), installed(in()).noMap().without("uid:5", "bid:1").unregistered("bid:1"), "",
			"refused: uid:5: it was made, and is not on server uid-a: refusing to make it empty", 1},
		{"one that was made is elsewhere in the corrected map", twoServers(4, uid3OnBidA), installed(in()).noMap().without("uid:3"), "",
			"refused: uid:3: it was on server uid-a, and is on bid-a by this map", 1},
		{"a server that is away", twoServers(3), nothing().isAway("bid:2"), "", "refused: bid:2: server bid-a can't be asked for it: nobody answers", 1},

		// Again.
		{"all is there", twoServers(3), installed(in()), "", "epoch 3; 16 upgraded", 0},
		{"the file is older", twoServers(2, uid3OnBidA), installed(in()), "", "epoch 3; 16 upgraded", 0},
		{"the file is older and leads to another meta database", twoServers(2, metaOnBidA), installed(in()), "", "refused: meta: it is on server uid-a by the map in force, and on bid-a by this file; get the newer map", 1},
		{"a database is away: the others are brought up to date", twoServers(3), installed(in()).isAway("bid:2"), "", "epoch 3; 15 upgraded; away bid:2", 0},
		{"a database is lost", twoServers(3), installed(in()).without("uid:3"), "", "refused: uid:3: it was made, and is not on server uid-a: refusing to make it empty; bring its data back, or, if it is lost, say --empty uid:3", 1},
		{"a lost one may be empty", twoServers(3), installed(in()).without("uid:3"), "empty=uid:3", "epoch 3; 15 upgraded; made uid:3", 0},
		{"another is named", twoServers(3), installed(in()).without("uid:3"), "empty=uid:4 empty=bid:3 moved=uid:3", "refused: uid:3: it was made", 1},
		{"one is named that is there: it stays", twoServers(3), installed(in()), "empty=uid:3", "epoch 3; 16 upgraded", 0},
		{"another database is in its place", twoServers(3), installed(in()).owned("uid:3", schema.Owner{Cluster: shardmap.UID, Number: 4, Epoch: 3}), "", "refused: uid:3: on server uid-a: it is database 4 of the uid cluster", 1},
		{"it obeys a newer map", twoServers(3), installed(in()).owned("uid:3", schema.Owner{Cluster: shardmap.UID, Number: 3, Epoch: 9}), "", "its epoch is 9, ours 3; get the newer map", 1},

		// Made by others, who kept no register.
		{"by others: all is adopted", twoServers(3), installed(in()).byOthers().noMap(), "", "epoch 3; 16 upgraded; adopted 16; raises", 0},
		{"by others: with a map, one is missing", twoServers(3), installed(in()).byOthers().without("uid:3"), "", "refused: uid:3: it was made", 1},
		{"by others: without a map, one is missing", twoServers(3), installed(in()).byOthers().noMap().without("uid:3"), "", "refused: uid:3: it was made", 1},
		{"by others: only the meta database", twoServers(3), nothing().byOthers(), "", "epoch 3; first; made 16; raises", 0},
		{"under a program without a register", twoServers(3), func() seen {
			s := installed(in())
			s.register = schema.Register{Exists: true, Leased: true, Made: map[schema.Ref]string{}}
			return s
		}(), "", "epoch 3; 16 upgraded; adopted 16", 0},

		// A newer map.
		{"only the epoch", twoServers(4), installed(in()), "", "epoch 4; 16 upgraded; raises", 0},
		{"it was cut off", twoServers(4), installed(in()).owned("uid:3", schema.Owner{Cluster: shardmap.UID, Number: 3, Epoch: 4}), "", "epoch 4; 16 upgraded; raises", 0},
		{"an address", twoServers(4, bidAElsewhere), installed(in()), "", "epoch 4; 16 upgraded; raises", 0},
		{"an address at which it isn't", twoServers(4, bidAElsewhere), installed(in()).without("bid:2", "bid:3"), "", "refused: bid:2: server bid-a had address 10.0.0.2:3306, and at 10.0.0.9:3306 it is not there: refusing to make it empty", 2},
		{"nor may it be empty there", twoServers(4, bidAElsewhere), installed(in()).without("bid:2"), "empty=bid:2", "refused: bid:2: server bid-a had address", 1},
		{"a server that is away", twoServers(4), installed(in()).isAway("bid:2"), "", "refused: bid:2: server bid-a can't be asked", 1},
		{"more databases", twoServers(4, sixteen), installed(in()), "", "refused: the map has 16 databases in each cluster, the map in force 8", 1},
		{"fewer databases", twoServers(4), installed(in(sixteen)), "", "refused: the map has 8 databases in each cluster, the map in force 16", 1},
		{"fewer than were made", twoServers(4), installed(in(sixteen)).noMap(), "", "was made, and the map has only 8 databases", 16},
		{"one is elsewhere", twoServers(4, uid3OnBidA), installed(in()).without("uid:3"), "", "refused: uid:3: it was on server uid-a, and is on bid-a by this map; if its data was brought there, say --moved uid:3", 1},
		{"nor may it be empty there", twoServers(4, uid3OnBidA), installed(in()).without("uid:3"), "empty=uid:3", "refused: uid:3: it was on server uid-a", 1},
		{"it was moved, and its data isn't there", twoServers(4, uid3OnBidA), installed(in()).without("uid:3"), "moved=uid:3 empty=uid:3", "refused: uid:3: it was moved from server uid-a to bid-a, and is not there", 1},
		{"it was moved", twoServers(4, uid3OnBidA), installed(in()), "moved=uid:3", "epoch 4; 16 upgraded; left octopay_uid_03@uid-a; raises", 0},
		{"it was not said that it was moved", twoServers(4, uid3OnBidA), installed(in()), "moved=uid:4", "refused: uid:3: it was on server uid-a", 1},
		{"every fault is said", twoServers(4, uid3OnBidA, metaOnBidA), installed(in()).without("uid:5").isAway("bid:7"), "", "refused: meta: it was on server uid-a, and is on bid-a by this map; if its data was brought there, say --moved meta | uid:3", 4},

		// The meta database.
		{"it was moved", twoServers(4, metaOnBidA), installed(in()), "moved=meta", "epoch 4; 16 upgraded; raises; waits", 0},
		{"it was moved, the first migration hasn't ended", twoServers(4, metaOnBidA), installed(in()).noMap(), "", "refused: meta: it was on server uid-a", 1},
		{"it is not there", twoServers(3), installed(in()).metaLost(), "", "refused: meta: databases of this map are there, uid:1 for one, but not their meta database on server uid-a", 1},
		{"it is said to be moved, and is not there", twoServers(3), installed(in()).metaLost(), "moved=meta", "refused: meta: databases of this map are there", 1},
		{"it is lost: a new one waits", twoServers(3), installed(in()).metaLost(), "empty=meta", "epoch 3; 16 upgraded; adopted 16; raises; waits", 0},
		{"it is lost, and a database too", twoServers(3), installed(in()).metaLost().without("bid:2"), "empty=meta", "refused: bid:2: it was made", 1},
		{"it is lost, and a database that may be empty", twoServers(3), installed(in()).metaLost().without("bid:2"), "empty=meta empty=bid:2", "epoch 3; 15 upgraded; adopted 15; made bid:2; raises; waits", 0},
		{"it is new, and a program has stored its map there", twoServers(3), func() seen {
			s := installed(in())
			s.register = schema.Register{Exists: true, Made: map[schema.Ref]string{}}
			return s
		}(), "", "epoch 3; 16 upgraded; adopted 16; waits", 0},
	} {
		got := summary(newPlan(mustMap(t, c.file), c.seen, tell(c.told)))
		refused := strings.HasPrefix(got, "refused: ")
		switch {
		case refused != (c.lines > 0):
			t.Errorf("%s:\n  %s\nwant\n  %s", c.name, got, c.want)
		case refused && (!strings.Contains(got, c.want) || strings.Count(got, " | ") != c.lines-1):
			t.Errorf("%s:\n  %s\nwant, of %d\n  %s", c.name, got, c.lines, c.want)
		case !refused && got != c.want:
			t.Errorf("%s:\n  %s\nwant\n  %s", c.name, got, c.want)
		}
	}
}
