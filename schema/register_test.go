package schema_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/faultproxy"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
)

func TestADatabaseSaysWhatItIs(t *testing.T) {
	s, db := empty(t)
	place := s.Map.Database(shardmap.UID, 1)
	look := func(want string) {
		t.Helper()
		o, there, err := schema.Look(t.Context(), db, place)
		if got := strings.TrimSpace(fmt.Sprintln(there, o, err)); got != want {
			t.Errorf("%s; want %s", got, want)
		}
	}
	look("false { 0 0} <nil>")
	if _, err := db.Exec("CREATE DATABASE `" + place.Schema + "`"); err != nil {
		t.Fatal(err)
	}
	look("false { 0 0} <nil>")
	if err := schema.Migrate(t.Context(), db, place, 3); err != nil {
		t.Fatal(err)
	}
	look("true {uid 1 3} <nil>")
	if _, err := db.Exec("DELETE FROM `" + place.Schema + "`.owner"); err != nil {
		t.Fatal(err)
	}
	look("false { 0 0} <nil>")
	away := open(t, s, "127.0.0.1:1")
	if _, there, err := schema.Look(t.Context(), away, place); err == nil || there {
		t.Errorf("of a server that is away: there %v, %v", there, err)
	}
}

func TestUpgradeMakesNothing(t *testing.T) {
	s, db := empty(t)
	place := s.Map.Database(shardmap.BID, 1)
	exists := func() bool {
		return list(t, db, "SELECT schema_name FROM information_schema.schemata WHERE schema_name = ?", place.Schema) != nil
	}
	if err := schema.Upgrade(t.Context(), db, place, 1); !errors.Is(err, schema.ErrMissing) || exists() {
		t.Errorf("no schema: %v; made: %v", err, exists())
	}
	if _, err := db.Exec("CREATE DATABASE `" + place.Schema + "`"); err != nil {
		t.Fatal(err)
	}
	if err := schema.Upgrade(t.Context(), db, place, 1); !errors.Is(err, schema.ErrMissing) || tables(t, db, place.Schema) != nil {
		t.Errorf("a schema with nothing in it: %v, %v", err, tables(t, db, place.Schema))
	}
	if err := schema.Migrate(t.Context(), db, place, 1); err != nil {
		t.Fatal(err)
	}
	// What it lacks, it gets; the epoch rises.
	for _, s := range []string{".mark", ".goose_db_version"} {
		if _, err := db.Exec("DROP TABLE `" + place.Schema + "`" + s); err != nil {
			t.Fatal(err)
		}
	}
	if err := schema.Upgrade(t.Context(), db, place, 2); err != nil || len(tables(t, db, place.Schema)) != 26 || owner(t, db, place) != "1 bid 1 2" {
		t.Errorf("%v: %d tables, owner %s", err, len(tables(t, db, place.Schema)), owner(t, db, place))
	}
	if err := schema.Upgrade(t.Context(), db, place, 1); !errors.Is(err, schema.ErrOldMap) {
		t.Error(err)
	}
	other := place
	other.Number = 2
	if err := schema.Upgrade(t.Context(), db, other, 3); err == nil || errors.Is(err, schema.ErrMissing) || owner(t, db, place) != "1 bid 1 2" {
		t.Errorf("as another: %v, owner %s", err, owner(t, db, place))
	}
}

func TestAClosedDatabaseObeysTheNewerMap(t *testing.T) {
	s, db := empty(t)
	place, missing := s.Map.Database(shardmap.UID, 1), s.Map.Database(shardmap.UID, 2)
	if err := schema.Migrate(t.Context(), db, place, 3); err != nil {
		t.Fatal(err)
	}
	another := place
	another.Number = 7
	for _, step := range []struct {
		place shardmap.Database
		epoch shardmap.Epoch
		want  string
	}{{place, 5, "1 uid 1 5"}, {place, 4, "1 uid 1 5"}, {another, 9, "1 uid 1 5"}, {missing, 9, "1 uid 1 5"}} {
		if err := schema.Close(t.Context(), db, step.place, step.epoch); err != nil || owner(t, db, place) != step.want {
			t.Errorf("%s %d at epoch %d: %v, owner %s", step.place, step.place.Number, step.epoch, err, owner(t, db, place))
		}
	}
}

func register(t *testing.T, db *sql.DB, meta shardmap.Database) schema.Register {
	t.Helper()
	r, err := schema.ReadRegister(t.Context(), db, meta)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTheRegisterOfAnInstallation(t *testing.T) {
	s, db := empty(t)
	s.Map = remapped(t, s.Map, func(spec *shardmap.Spec) { spec.Prefix += "x_" }) // whose meta database isn't made
	meta, one, two := s.Map.Meta(), s.Map.Database(shardmap.UID, 1), s.Map.Database(shardmap.BID, 2)
	t.Cleanup(func() { _, _ = db.Exec("DROP DATABASE IF EXISTS `" + meta.Schema + "`") })
	want := schema.Register{Made: map[schema.Ref]string{}}
	check := func(when string) {
		t.Helper()
		if got := register(t, db, meta); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", when, got, want)
		}
	}
	check("before there is a meta database")

	// One that others made knows nothing of its installation.
	if err := schema.Migrate(t.Context(), db, meta, 1); err != nil {
		t.Fatal(err)
	}
	want.Exists, want.Opened = true, true
	check("one that was only migrated")

	if from, err := schema.Found(t.Context(), db, meta, []shardmap.Database{one}, 0); err != nil || !from.IsZero() {
		t.Fatal(from, err)
	}
	want.Complete, want.Made = true, map[schema.Ref]string{{}: "uid-a", {Cluster: shardmap.UID, Number: 1}: "uid-a"}
	check("founded")
	if err := schema.Enter(t.Context(), db, meta, two); err != nil {
		t.Fatal(err)
	}
	want.Made[schema.RefOf(two)] = "bid-a"
	check("with one more")
	two.Server.Name = "bid-b"
	if err := schema.Enter(t.Context(), db, meta, two); err != nil {
		t.Fatal(err)
	}
	want.Made[schema.RefOf(two)] = "bid-b"
	check("moved")
	if _, err := db.Exec("INSERT INTO `" + meta.Schema + "`.lease VALUES ('worker/77', 'a', 1, 1)"); err != nil {
		t.Fatal(err)
	}
	want.Leased = true
	check("with a worker number")

	if _, err := schema.ReadRegister(t.Context(), open(t, s, "127.0.0.1:1"), meta); err == nil || !strings.Contains(err.Error(), meta.String()) {
		t.Errorf("of a server that is away: %v", err)
	}
}

// remapped returns m with a change.
func remapped(t *testing.T, m *shardmap.Map, change func(*shardmap.Spec)) *shardmap.Map {
	t.Helper()
	spec := shardmap.Spec{Epoch: m.Epoch(), Prefix: m.Prefix(), Meta: m.Meta().Server.Name}
	seen := map[string]bool{}
	for _, c := range []shardmap.Cluster{shardmap.UID, shardmap.BID} {
		for _, d := range m.Databases(c) {
			if !seen[d.Server.Name] {
				seen[d.Server.Name] = true
				spec.Servers = append(spec.Servers, d.Server)
			}
			p := shardmap.Placement{Database: d.Number, Server: d.Server.Name}
			if c == shardmap.UID {
				spec.UID = append(spec.UID, p)
			} else {
				spec.BID = append(spec.BID, p)
			}
		}
	}
	change(&spec)
	out, err := shardmap.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// opens is when worker numbers are given out, in s from now, in whole minutes; 0: already.
func opens(t *testing.T, db *sql.DB, meta shardmap.Database) string {
	t.Helper()
	return strings.Join(list(t, db, "SELECT GREATEST(0, 60 * CEIL((until_ms / 1000 - TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) / 1000000) / 60)) FROM `"+meta.Schema+"`.lease WHERE name = 'worker/'"), ",")
}

func TestTheWaitForWorkerNumbersNeverGetsShorter(t *testing.T) {
	s, db := empty(t)
	meta := s.Map.Meta() // made by Migrate
	if got := opens(t, db, meta); got != "0" {
		t.Errorf("the first meta database gives numbers out in %s s", got)
	}
	for _, step := range []struct {
		wait time.Duration
		then string
	}{{0, "0"}, {5 * time.Minute, "300"}, {0, "300"}, {time.Minute, "300"}, {10 * time.Minute, "600"}} {
		from, err := schema.Found(t.Context(), db, meta, nil, step.wait)
		if err != nil || opens(t, db, meta) != step.then {
			t.Errorf("wait %s: in %s s, want %s, %v", step.wait, opens(t, db, meta), step.then, err)
		}
		if left := 60 * math.Ceil(time.Until(from).Minutes()); !from.IsZero() && fmt.Sprint(left) != step.then || from.IsZero() != (step.then == "0") {
			t.Errorf("wait %s: it says %s, want %s s", step.wait, from, step.then)
		}
		if err := schema.Migrate(t.Context(), db, meta, 1); err != nil || opens(t, db, meta) != step.then {
			t.Errorf("after a migration: in %s s, %v", opens(t, db, meta), err)
		}
	}
}

// Cut anywhere, a founding is ended by the next one; and until the register says from
// when on worker numbers are given out, it says nothing else either.
func TestACutFoundingIsCompletedByTheNext(t *testing.T) {
	s, db := empty(t)
	proxy := faultproxy.New(t, s.Server("uid-a").Address())
	via := open(t, s, proxy.Addr())
	meta, made := s.Map.Meta(), s.Map.Databases(shardmap.UID)
	for _, at := range []string{"CREATE DATABASE", "goose_db_version", "EXISTS lease", "EXISTS shard_map", "EXISTS database_made", "EXISTS api_key ", "EXISTS api_key_version", "INTO api_key_version", "EXISTS api_key_audit", "EXISTS payment_config", "EXISTS conflict ", "EXISTS conflict_order", "INTO `" + meta.Schema, "INTO lease", "SELECT until_ms", "COMMIT"} {
		for _, point := range []faultproxy.Point{faultproxy.BeforePacket, faultproxy.AfterReply} {
			if _, err := db.Exec("DROP DATABASE IF EXISTS `" + meta.Schema + "`"); err != nil {
				t.Fatal(err)
			}
			opened := at != "COMMIT" // goose commits too, before
			fault := proxy.Arm(point, func(packet []byte) bool {
				opened = opened || strings.Contains(string(packet), "SELECT until_ms")
				return opened && strings.Contains(string(packet), at)
			})
			if _, err := schema.Found(t.Context(), via, meta, made, 5*time.Minute); err == nil {
				t.Fatalf("cut %s %q: no error", point, at)
			}
			select {
			case <-fault.Done():
			default:
				t.Fatalf("the cut %s %q did not happen", point, at)
			}
			if r := register(t, db, meta); r.Opened != (len(r.Made) == 9) || len(r.Made) != 0 && len(r.Made) != 9 {
				t.Errorf("the cut %s %q left %+v", point, at, r)
			}
			ctx, cancel := context.WithTimeout(t.Context(), eventually.Patience)
			_, err := schema.Found(ctx, db, meta, made, 5*time.Minute)
			for errors.Is(err, schema.ErrMigrating) && ctx.Err() == nil { // until the server has noticed the cut
				_, err = schema.Found(ctx, db, meta, made, 5*time.Minute)
			}
			cancel()
			if r := register(t, db, meta); err != nil || !r.Opened || !r.Complete || len(r.Made) != 9 || opens(t, db, meta) != "300" {
				t.Errorf("after the cut %s %q: %v, %+v, in %s s", point, at, err, r, opens(t, db, meta))
			}
			if got := tables(t, db, meta.Schema); !slices.Equal(got, []string{"api_key", "api_key_audit", "api_key_version", "conflict", "conflict_order", "database_made", "lease", "payment_config", "shard_map"}) {
				t.Errorf("after the cut %s %q: %v", point, at, got)
			}
		}
	}
}
