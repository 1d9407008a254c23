package schema

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/slot"
	"github.com/pressly/goose/v3"
)

// shapes say what the migrations make, one part of a table to a line:
//
//	order_*<TAB>column subject<TAB>varchar(256) not null, utf8mb4_bin
//
// They are what a new database says of itself, written down, so that a check needs no
// database of its own. A test holds them to the migrations.
//
//go:embed shapes
var shapes embed.FS

// A Difference is a part of a database that isn't as the migrations make it.
type Difference struct {
	Table string // "" is the database itself
	Part  string // such as "column subject" or "index buyer"
	Is    string // "" is: not there
	Want  string // "" is: not to be there
}

// String says it in one line.
func (d Difference) String() string {
	is, want := cmp.Or(d.Is, "missing"), cmp.Or(d.Want, "not there")
	if d.Is == "" {
		want = "there: " + d.Want
	}
	if d.Table == "" {
		return fmt.Sprintf("%s is %s; should be %s", d.Part, is, want)
	}
	return fmt.Sprintf("table %s: %s is %s; should be %s", d.Table, d.Part, is, want)
}

// Check compares the database at a place, part by part, with what the migrations make:
// its tables, their columns by name and order, types, nullability, collations,
// defaults, indexes and constraints. Whatever else acts on its rows, such as a trigger or
// an event, is a difference too, as far as the account may see it: see Unseen. It returns
// what differs, by table; a database that isn't there is one difference. db is a pool on
// place.Server. It changes nothing.
func Check(ctx context.Context, db *sql.DB, place shardmap.Database) ([]Difference, error) {
	want, err := expected(place.Cluster)
	if err != nil {
		return nil, fmt.Errorf("check %s: %w", place, err)
	}
	is, err := describe(ctx, db, place.Schema)
	if err != nil {
		return nil, fmt.Errorf("check %s: %w", place, err)
	}
	if len(is) == 0 {
		return []Difference{{Part: "the database", Want: "see octopay migrate"}}, nil
	}
	if is[migrationsPart], err = applied(ctx, db, place.Schema); err != nil {
		return nil, fmt.Errorf("check %s: %w", place, err)
	}
	return compare(is, want), nil
}

// Unseen returns what of the database at a place the account of db may not see, so that
// Check doesn't find it: triggers and events are shown to those alone who may make them. A
// right that comes from a role isn't known to it.
func Unseen(ctx context.Context, db *sql.DB, place shardmap.Database) (unseen []string, err error) {
	for _, right := range []struct{ name, shows string }{{"TRIGGER", "triggers"}, {"EVENT", "events"}, {"PROCESS", "foreign keys of other schemas"}} {
		var has bool
		// The name in a grant is a pattern.
		if err := db.QueryRowContext(ctx, `SELECT
			EXISTS (SELECT 1 FROM information_schema.user_privileges WHERE grantee = me.name AND privilege_type = ?) OR
			EXISTS (SELECT 1 FROM information_schema.schema_privileges WHERE grantee = me.name AND privilege_type = ? AND ? LIKE table_schema)
			FROM (SELECT CONCAT('\'', REPLACE(CURRENT_USER(), '@', '\'@\''), '\'') AS name) AS me`, right.name, right.name, place.Schema).Scan(&has); err != nil {
			return nil, fmt.Errorf("rights on %s: %w", place, err)
		}
		if !has {
			unseen = append(unseen, right.shows)
		}
	}
	return unseen, nil
}

// A part names a part of a database.
type part struct{ table, name string }

// A shape is what each part of a database is.
type shape map[part]string

var (
	migrationsPart = part{"", "the list of applied migrations"}
	schemaPart     = part{"", "the default collation"}
)

const (
	tablePart = "the table"
	orderPart = "the order of columns"
)

// compare returns the differences, by table and part. Of a table that is missing, or too
// much, it says no more than that.
func compare(is, want shape) (out []Difference) {
	all := maps.Clone(want)
	maps.Copy(all, is)
	for p := range all {
		whole := part{p.table, tablePart}
		if is[p] == want[p] || p != whole && p.table != "" && (is[whole] == "") != (want[whole] == "") {
			continue
		}
		if p.name == orderPart && !sameColumns(is[p], want[p]) {
			continue // each column that is too much or missing is named
		}
		out = append(out, Difference{Table: p.table, Part: p.name, Is: is[p], Want: want[p]})
	}
	slices.SortFunc(out, func(a, b Difference) int {
		return cmp.Or(strings.Compare(a.Table, b.Table), strings.Compare(a.Part, b.Part))
	})
	return out
}

func sameColumns(a, b string) bool {
	return slices.Equal(slices.Sorted(slices.Values(strings.Split(a, ","))), slices.Sorted(slices.Values(strings.Split(b, ","))))
}

// expected returns what the migrations of a cluster make.
func expected(c shardmap.Cluster) (shape, error) {
	versions, err := versionsOf(c)
	if err != nil {
		return nil, err
	}
	text, err := shapes.ReadFile("shapes/" + cmp.Or(string(c), "meta") + ".txt")
	if err != nil {
		return nil, err
	}
	s, err := parseShape(string(text))
	if err != nil {
		return nil, err
	}
	s[migrationsPart] = versions
	return s, nil
}

func parseShape(text string) (shape, error) {
	s := shape{}
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != 3 {
			return nil, fmt.Errorf("the line %q of a shape has %d fields", line, len(fields))
		}
		name, each := strings.CutSuffix(fields[0], "*")
		if !each {
			s[part{fields[0], fields[1]}] = fields[2]
			continue
		}
		for t := range slot.Tables {
			s[part{name + strconv.Itoa(t), fields[1]}] = fields[2]
		}
	}
	return s, nil
}

// format is the opposite of parseShape.
func (s shape) format() string {
	var lines []string
	for p, value := range s {
		table := p.table
		if name, digit, _ := strings.Cut(table, "_"); slices.Contains([]string{"order", "journal"}, name) && len(digit) == 1 {
			table = name + "_*"
		}
		lines = append(lines, table+"\t"+p.name+"\t"+value+"\n")
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "")
}

// versionsOf returns the migrations of a cluster, by number.
func versionsOf(c shardmap.Cluster) (string, error) {
	entries, err := fs.ReadDir(migrations, "migrations/"+cmp.Or(string(c), "meta"))
	if err != nil {
		return "", err
	}
	var versions []string
	for _, e := range entries { // sorted by name
		number, _, _ := strings.Cut(e.Name(), "_")
		versions = append(versions, strings.TrimLeft(number, "0"))
	}
	return strings.Join(versions, " "), nil
}

// applied returns the migrations that a database says it has.
func applied(ctx context.Context, db *sql.DB, schema string) (string, error) {
	var versions sql.NullString
	err := db.QueryRowContext(ctx, "SELECT GROUP_CONCAT(DISTINCT version_id ORDER BY version_id SEPARATOR ' ') FROM `"+schema+"`."+goose.DefaultTablename+
		" WHERE version_id > 0 AND is_applied").Scan(&versions)
	if isNoTable(err) {
		return "", nil
	}
	return versions.String, err
}

// describe returns what a database is; nothing if there is none. The table of migrations
// belongs to goose.
func describe(ctx context.Context, db *sql.DB, schema string) (shape, error) {
	s := shape{}
	for _, q := range descriptions {
		// Without the right to ask, see Unseen.
		if err := s.add(ctx, db, q, schema); err != nil && !isDenied(err) {
			return nil, err
		}
	}
	for p := range s { // the order of columns is the columns' own
		if p.table == goose.DefaultTablename {
			delete(s, p)
		}
	}
	return s, nil
}

// descriptions return a table, the name of one of its parts, and what it is. Names of
// tables and columns are compared as they are written.
var descriptions = []string{
	"SELECT '', '" + schemaPart.name + "', default_collation_name FROM information_schema.schemata WHERE schema_name = ?",

	`SELECT table_name, '` + tablePart + `', CONCAT_WS(', ', LOWER(table_type), engine, table_collation, NULLIF(create_options, ''))
		FROM information_schema.tables WHERE table_schema = ?`,

	`SELECT table_name, CONCAT('column ', column_name), CONCAT(column_type, IF(is_nullable = 'YES', ' null', ' not null'),
			IFNULL(CONCAT(', ', collation_name), ''), IFNULL(CONCAT(', default ', column_default), ''),
			IF(extra = '', '', CONCAT(', ', extra)), IFNULL(CONCAT(', as ', generation_expression), ''))
		FROM information_schema.columns WHERE table_schema = ?`,

	`SELECT table_name, '` + orderPart + `', GROUP_CONCAT(column_name ORDER BY ordinal_position)
		FROM information_schema.columns WHERE table_schema = ? GROUP BY table_name`,

	`SELECT table_name, CONCAT('index ', index_name), CONCAT(IF(MIN(non_unique), '', 'unique '),
			GROUP_CONCAT(CONCAT(column_name, IFNULL(CONCAT('(', sub_part, ')'), ''), IF(collation = 'D', ' desc', '')) ORDER BY seq_in_index),
			' ', LOWER(MIN(index_type)), IF(MIN(ignored) = 'YES', ', ignored', ''))
		FROM information_schema.statistics WHERE table_schema = ? GROUP BY table_name, index_name`,

	`SELECT table_name, CONCAT('check ', constraint_name), check_clause
		FROM information_schema.check_constraints WHERE constraint_schema = ?`,

	`SELECT table_name, CONCAT('foreign key ', constraint_name), CONCAT('to ', unique_constraint_schema, '.', referenced_table_name)
		FROM information_schema.referential_constraints WHERE constraint_schema = ?`,

	`SELECT event_object_table, CONCAT('trigger ', trigger_name), LOWER(CONCAT(action_timing, ' ', event_manipulation))
		FROM information_schema.triggers WHERE event_object_schema = ?`,

	`SELECT '', CONCAT('event ', event_name), LOWER(CONCAT(event_type, ', ', status))
		FROM information_schema.events WHERE event_schema = ?`,

	// A foreign key of another schema locks our rows, and refuses to change them. Asked of
	// information_schema it would have every table of the server opened.
	`SELECT SUBSTRING_INDEX(ref_name, '/', -1), CONCAT('foreign key ', REPLACE(id, '/', '.')), CONCAT('from ', REPLACE(for_name, '/', '.'))
		FROM information_schema.innodb_sys_foreign, (SELECT CONCAT(?, '/') AS ours) AS me
		WHERE LEFT(ref_name, LENGTH(ours)) = ours AND LEFT(for_name, LENGTH(ours)) <> ours`,
}

func (s shape) add(ctx context.Context, db *sql.DB, query, schema string) (err error) {
	rows, err := db.QueryContext(ctx, query, schema)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var p part
		var value string
		if err := rows.Scan(&p.table, &p.name, &value); err != nil {
			return err
		}
		s[p] = strings.Join(strings.Fields(value), " ")
	}
	return rows.Err()
}
