package schema_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/faultproxy"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
)

// open opens a pool as the programs' user, on a server or a proxy to it, with the
// parts of a connection that Migrate asks for and no more.
func open(t *testing.T, s *localstack.Stack, address string) *sql.DB {
	t.Helper()
	return openAs(t, s.User, s.Password, address)
}

func openAs(t *testing.T, user, password, address string) *sql.DB {
	t.Helper()
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User, c.Passwd, c.ParseTime = "tcp", address, user, password, true
	c.Logger = silent{} // cuts are made here on purpose
	connector, err := mysql.NewConnector(c)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

type silent struct{}

func (silent) Print(...any) {}

// empty returns databases that don't exist yet, and a pool on their server.
func empty(t *testing.T) (*localstack.Stack, *sql.DB) {
	t.Helper()
	s := localstack.Test(t, localstack.Meta)
	return s, open(t, s, s.Server("uid-a").Address())
}

func list(t *testing.T, db *sql.DB, query string, args ...any) (out []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

func tables(t *testing.T, db *sql.DB, schema string) []string {
	t.Helper()
	return list(t, db, "SELECT table_name FROM information_schema.tables WHERE table_schema = ? AND table_name <> 'goose_db_version' ORDER BY 1", schema)
}

// indexes returns one line for each index of a table: its columns, "unique" first
// where it is.
func indexes(t *testing.T, db *sql.DB, schema, table string) []string {
	t.Helper()
	return list(t, db, `SELECT CONCAT(IF(MIN(non_unique), '', 'unique '), GROUP_CONCAT(column_name ORDER BY seq_in_index))
		FROM information_schema.statistics WHERE table_schema = ? AND table_name = ? GROUP BY index_name ORDER BY 1`, schema, table)
}

func eachTable(name string) (out []string) {
	for i := range 10 {
		out = append(out, fmt.Sprintf("%s_%d", name, i))
	}
	return out
}

func TestMigrateMakesTheTablesOfTheDesign(t *testing.T) {
	s, db := empty(t)
	m := s.Map
	for _, c := range []struct {
		place   shardmap.Database
		tables  []string
		indexes map[string][]string
	}{
		{
			m.Database(shardmap.UID, 1),
			slices.Concat(eachTable("journal"), eachTable("order"), []string{"owner"}),
			map[string][]string{
				"order":   {"status,expires_at", "uid,id", "unique id", "unique uid,bid,out_trade_no", "updated_at,id"},
				"journal": {"unique order_id,op", "unique order_id,seq"},
			},
		},
		{
			m.Database(shardmap.BID, 1),
			slices.Concat([]string{"conflict_scan", "dead_letter"}, eachTable("journal"), []string{"mark"}, eachTable("order"), []string{"owner", "payment_reference", "progress"}),
			map[string][]string{
				"order":   {"bid,id", "bid,out_trade_no,id", "bid,status,id", "unique id", "updated_at,id"},
				"journal": {"bid,kind,order_id,seq", "bid,recorded_at,order_id,seq", "kind,order_id,seq", "order_id,op", "recorded_at,order_id,seq", "ref,kind", "unique order_id,seq"},
			},
		},
		{m.Meta(), []string{"api_key", "api_key_audit", "api_key_version", "conflict", "conflict_order", "database_made", "lease", "payment_config", "shard_map"}, nil},
	} {
		if err := schema.Migrate(t.Context(), db, c.place, m.Epoch()); err != nil {
			t.Fatal(err)
		}
		if got := tables(t, db, c.place.Schema); !slices.Equal(got, c.tables) {
			t.Errorf("%s: tables %v, want %v", c.place, got, c.tables)
		}
		for name, want := range c.indexes {
			for _, table := range eachTable(name) {
				if got := indexes(t, db, c.place.Schema, table); !slices.Equal(got, want) {
					t.Errorf("%s.%s: indexes %q, want %q", c.place, table, got, want)
				}
			}
		}
		// Keys compare by bytes, and text holds every character.
		for _, column := range list(t, db, `SELECT CONCAT(table_name, '.', column_name, ' ', collation_name) FROM information_schema.columns
			WHERE table_schema = ? AND collation_name NOT IN ('ascii_bin', 'utf8mb4_bin') AND table_name <> 'goose_db_version'`, c.place.Schema) {
			t.Errorf("%s: %s", c.place, column)
		}
		if c.place.Cluster == "" {
			continue
		}
		for name, want := range map[string][]string{"order": schema.OrderColumns, "journal": schema.EntryColumns} {
			for _, table := range eachTable(name) {
				got := list(t, db, "SELECT column_name FROM information_schema.columns WHERE table_schema = ? AND table_name = ? ORDER BY ordinal_position", c.place.Schema, table)
				if !slices.Equal(got, want) {
					t.Errorf("%s.%s: columns %v, want %v", c.place, table, got, want)
				}
			}
		}
	}
	// A mirror takes whatever the truth holds: no unique key but the primary ones.
	if keys := list(t, db, `SELECT CONCAT(table_name, '.', constraint_name) FROM information_schema.table_constraints
		WHERE table_schema = ? AND constraint_type = 'UNIQUE' AND table_name <> 'goose_db_version'`, m.Database(shardmap.BID, 1).Schema); keys != nil {
		t.Errorf("unique keys in the mirror: %v", keys)
	}
}

func TestMigrateTwiceChangesNothing(t *testing.T) {
	s, db := empty(t)
	for _, place := range []shardmap.Database{s.Map.Database(shardmap.UID, 2), s.Map.Database(shardmap.BID, 2), s.Map.Meta()} {
		look := func() []string {
			return append(
				list(t, db, "SELECT CONCAT(table_name, ' ', create_time) FROM information_schema.tables WHERE table_schema = ? ORDER BY 1", place.Schema),
				list(t, db, "SELECT CONCAT(id, ' ', version_id, ' ', tstamp) FROM `"+place.Schema+"`.goose_db_version ORDER BY 1")...)
		}
		if err := schema.Migrate(t.Context(), db, place, 1); err != nil {
			t.Fatal(err)
		}
		if place.Cluster == shardmap.BID {
			if _, err := db.Exec("UPDATE `" + place.Schema + "`.progress SET incarnation = 'x', stream_seq = 18446744073709551615"); err != nil {
				t.Fatal(err)
			}
		}
		before := look()
		if err := schema.Migrate(t.Context(), db, place, 1); err != nil {
			t.Fatal(err)
		}
		if after := look(); !slices.Equal(before, after) {
			t.Errorf("%s: before %v\nafter %v", place, before, after)
		}
		if place.Cluster == shardmap.BID {
			if got := list(t, db, "SELECT CONCAT(id, incarnation, stream_seq) FROM `"+place.Schema+"`.progress"); !slices.Equal(got, []string{"1x18446744073709551615"}) {
				t.Errorf("progress is %v", got)
			}
		}
	}
}

func TestASecondMigrationOfOneDatabaseRefuses(t *testing.T) {
	s, db := empty(t)
	place, other := s.Map.Database(shardmap.UID, 3), s.Map.Database(shardmap.UID, 4)

	holder, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Close() }()
	var got int
	if err := holder.QueryRowContext(t.Context(), "SELECT GET_LOCK(?, 0)", "octopay_migrate:"+place.Schema).Scan(&got); err != nil || got != 1 {
		t.Fatal(got, err)
	}
	if err := schema.Migrate(t.Context(), db, place, 1); !errors.Is(err, schema.ErrMigrating) {
		t.Errorf("under another's lock: %v", err)
	}
	if n := list(t, db, "SELECT schema_name FROM information_schema.schemata WHERE schema_name = ?", place.Schema); n != nil {
		t.Error("refused, and made the database")
	}
	if err := schema.Migrate(t.Context(), db, other, 1); err != nil {
		t.Errorf("another database: %v", err)
	}
	if _, err := holder.ExecContext(t.Context(), "DO RELEASE_LOCK(?)", "octopay_migrate:"+place.Schema); err != nil {
		t.Fatal(err)
	}

	// Really at once: each does it, or says that another does.
	const many = 6
	var wait sync.WaitGroup
	errs := make([]error, many)
	start := make(chan struct{})
	for i := range many {
		wait.Go(func() {
			<-start
			errs[i] = schema.Migrate(t.Context(), db, place, 1)
		})
	}
	close(start)
	wait.Wait()
	done := 0
	for _, err := range errs {
		switch {
		case err == nil:
			done++
		case !errors.Is(err, schema.ErrMigrating):
			t.Error(err)
		}
	}
	if done == 0 || done == many {
		t.Errorf("%d of %d migrated at once", done, many)
	}
	if n := len(tables(t, db, place.Schema)); n != 21 {
		t.Errorf("%d tables, want 21", n)
	}
}

func TestMigrateLeavesNoLockAndNoDefaultDatabase(t *testing.T) {
	s, db := empty(t)
	db.SetMaxOpenConns(1)
	place := s.Map.Database(shardmap.UID, 5)
	if err := schema.Migrate(t.Context(), db, place, 1); err != nil {
		t.Fatal(err)
	}
	var free int
	var database sql.NullString
	if err := db.QueryRow("SELECT IS_FREE_LOCK(?), DATABASE()", "octopay_migrate:"+place.Schema).Scan(&free, &database); err != nil {
		t.Fatal(err)
	}
	if free != 1 || database.Valid {
		t.Errorf("lock free: %d, default database %q", free, database.String)
	}
	if _, err := db.Exec("SELECT * FROM owner"); err == nil {
		t.Error("a table is found without its database's name")
	}
}

func owner(t *testing.T, db *sql.DB, place shardmap.Database) string {
	t.Helper()
	return strings.Join(list(t, db, "SELECT CONCAT(id, ' ', cluster, ' ', `database`, ' ', epoch) FROM `"+place.Schema+"`.owner"), ";")
}

func TestTheEpochOfADatabaseNeverFalls(t *testing.T) {
	s, db := empty(t)
	for _, place := range []shardmap.Database{s.Map.Database(shardmap.UID, 6), s.Map.Database(shardmap.BID, 6)} {
		for _, step := range []struct {
			epoch shardmap.Epoch
			err   error
			then  int
		}{{2, nil, 2}, {2, nil, 2}, {5, nil, 5}, {4, schema.ErrOldMap, 5}, {5, nil, 5}, {6, nil, 6}} {
			if err := schema.Migrate(t.Context(), db, place, step.epoch); !errors.Is(err, step.err) {
				t.Errorf("%s, epoch %d: %v, want %v", place, step.epoch, err, step.err)
			}
			if got, want := owner(t, db, place), fmt.Sprintf("1 %s 6 %d", place.Cluster, step.then); got != want {
				t.Errorf("%s, epoch %d: owner %q, want %q", place, step.epoch, got, want)
			}
		}
	}
}

func TestAnothersDatabaseIsNotTouched(t *testing.T) {
	s, db := empty(t)
	place := s.Map.Database(shardmap.UID, 7)
	if err := schema.Migrate(t.Context(), db, place, 3); err != nil {
		t.Fatal(err)
	}
	before, was := tables(t, db, place.Schema), owner(t, db, place)
	// A migration that ran in spite of it would be seen.
	if _, err := db.Exec("DELETE FROM `" + place.Schema + "`.goose_db_version"); err != nil {
		t.Fatal(err)
	}
	number, cluster := place, place
	number.Number, cluster.Cluster = 8, shardmap.BID
	for _, wrong := range []shardmap.Database{number, cluster} {
		err := schema.Migrate(t.Context(), db, wrong, 9)
		if err == nil || errors.Is(err, schema.ErrOldMap) || !strings.Contains(err.Error(), "it is database 7 of the uid cluster") {
			t.Errorf("as %s %d: %v", wrong.Cluster, wrong.Number, err)
		}
	}
	if err := schema.Migrate(t.Context(), db, place, 2); !errors.Is(err, schema.ErrOldMap) {
		t.Error(err)
	}
	if got := list(t, db, "SELECT version_id FROM `"+place.Schema+"`.goose_db_version"); got != nil {
		t.Errorf("migrations ran: %v", got)
	}
	if got := tables(t, db, place.Schema); !slices.Equal(got, before) || owner(t, db, place) != was {
		t.Errorf("tables %v, owner %s", got, owner(t, db, place))
	}
}

// MariaDB can't roll a CREATE TABLE back, so what a cut migration leaves is a part.
// The next one completes it.
func TestACutMigrationIsCompletedByTheNext(t *testing.T) {
	s, db := empty(t)
	proxy := faultproxy.New(t, s.Server("uid-a").Address())
	via := open(t, s, proxy.Addr())
	place := s.Map.Database(shardmap.BID, 8)
	for _, at := range []string{
		"CREATE DATABASE", "goose_db_version", "order_0 (", "order_9", "journal_4", "INTO progress", "EXISTS owner", "order_9 ADD", "EXISTS conflict_scan", "EXISTS payment_reference", "COMMIT", "INTO owner",
	} {
		for _, point := range []faultproxy.Point{faultproxy.BeforePacket, faultproxy.AfterReply} {
			if _, err := db.Exec("DROP DATABASE IF EXISTS `" + place.Schema + "`"); err != nil {
				t.Fatal(err)
			}
			fault := proxy.Arm(point, func(packet []byte) bool {
				return strings.Contains(string(packet), at) && !strings.Contains(string(packet), "information_schema")
			})
			if err := schema.Migrate(t.Context(), via, place, 1); err == nil {
				t.Fatalf("cut %s %q: no error", point, at)
			}
			select {
			case <-fault.Done():
			default:
				t.Fatalf("the cut %s %q did not happen", point, at)
			}
			ctx, cancel := context.WithTimeout(t.Context(), eventually.Patience)
			err := schema.Migrate(ctx, db, place, 1)
			for errors.Is(err, schema.ErrMigrating) && ctx.Err() == nil { // until the server has noticed the cut
				err = schema.Migrate(ctx, db, place, 1)
			}
			cancel()
			if err != nil {
				t.Fatalf("after the cut %s %q: %v", point, at, err)
			}
			if n := len(tables(t, db, place.Schema)); n != 26 || owner(t, db, place) != "1 bid 8 1" {
				t.Errorf("after the cut %s %q: %d tables, owner %q", point, at, n, owner(t, db, place))
			}
			if rows := list(t, db, "SELECT CONCAT(id, incarnation, stream_seq) FROM `"+place.Schema+"`.progress"); !slices.Equal(rows, []string{"10"}) {
				t.Errorf("after the cut %s %q: progress %v", point, at, rows)
			}
		}
	}
}

func TestMigrateSaysWhichDatabaseFailed(t *testing.T) {
	s, _ := empty(t)
	db := open(t, s, "127.0.0.1:1")
	place := s.Map.Database(shardmap.UID, 1)
	if err := schema.Migrate(t.Context(), db, place, 1); err == nil || !strings.Contains(err.Error(), place.String()) {
		t.Error(err)
	}
}

// The guard of a write locks the owner row: no epoch is raised between the guard and the
// end of the transaction.
func TestTheGuardHoldsTheEpoch(t *testing.T) {
	stack := localstack.Test(t, localstack.UID)
	admin, place := stack.Admin(t, "uid-a"), stack.Map.Database(shardmap.UID, 1)
	var conns [2]*sql.Conn
	for i := range conns {
		c, err := admin.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns[i] = c
	}
	exec := func(c *sql.Conn, text string, args ...any) error {
		_, err := c.ExecContext(t.Context(), text, args...)
		return err
	}
	raise := "UPDATE `" + place.Schema + "`.owner SET epoch = epoch + 1"
	if err := errors.Join(
		exec(conns[1], "SET innodb_lock_wait_timeout = 1"),
		exec(conns[0], "BEGIN"), exec(conns[0], schema.OwnerGuard(place.Schema), 1)); err != nil {
		t.Fatal(err)
	}
	var said *mysql.MySQLError
	if err := exec(conns[1], raise); !errors.As(err, &said) || said.Number != 1205 {
		t.Errorf("the epoch was raised under a transaction: %v", err)
	}
	if err := errors.Join(exec(conns[0], "ROLLBACK"), exec(conns[1], raise)); err != nil {
		t.Error(err)
	}
}
