package main

import (
	"context"
	"database/sql"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
)

// placesOf returns every database of a map, the meta database last.
func placesOf(m *shardmap.Map) []shardmap.Database {
	return slices.Concat(m.Databases(shardmap.UID), m.Databases(shardmap.BID), []shardmap.Database{m.Meta()})
}

// register compares the databases that were made, as the meta database knows them, with
// those of the map.
func (r *report) register(made map[schema.Ref]string, m *shardmap.Map) {
	where := m.Meta().String()
	if len(made) == 0 {
		r.differs(where, "its register names no database that was made: see octopay migrate")
		return
	}
	var unknown []string
	rest := map[schema.Ref]bool{}
	for ref := range made {
		rest[ref] = true
	}
	for _, place := range placesOf(m) {
		ref := schema.RefOf(place)
		delete(rest, ref)
		switch server, ok := made[ref]; {
		case !ok:
			unknown = append(unknown, ref.String())
		case server != place.Server.Name:
			r.differs(where, "by its register %s was made on server %s; by the map it is on %s", ref, server, place.Server.Name)
		}
	}
	if len(unknown) > 0 {
		r.differs(where, "its register lacks %s, which the map has: see octopay migrate", strings.Join(unknown, " "))
	}
	for ref := range rest {
		r.differs(where, "by its register %s was made, on server %s; the map does not have it", ref, made[ref])
	}
}

// ourSchema is what follows a map's prefix in the name of a database.
var ourSchema = regexp.MustCompile(`^octopay_(uid_\d{2}|bid_\d{2}|meta)$`)

// strays finds databases on a server that the map puts elsewhere, or nowhere: an order in
// one of them is found by nobody.
func (r *report) strays(ctx context.Context, conn *sql.Conn, h host, prefix string) (err error) {
	rows, err := conn.QueryContext(ctx, "SELECT schema_name FROM information_schema.schemata WHERE LEFT(schema_name, ?) = ?", len(prefix), prefix)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return err
		}
		if own, ours := strings.CutPrefix(name, prefix); ours && ourSchema.MatchString(own) && !h.schemas[name] {
			r.differs(h.Name, "schema %s is there; the map does not put it on this server", name)
		}
	}
	return rows.Err()
}
