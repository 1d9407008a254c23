package schema_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
)

// A new database is what the written shapes say. After a new migration, what this test
// says differs is to be brought into shapes/; WRITE_SHAPES=1 writes the files anew.
func TestTheShapesAreWhatTheMigrationsMake(t *testing.T) {
	s, db := empty(t)
	for _, place := range []shardmap.Database{s.Map.Database(shardmap.UID, 2), s.Map.Database(shardmap.BID, 2), s.Map.Meta()} {
		if place.Cluster != "" { // the meta database is there
			differences, err := schema.Check(t.Context(), db, place)
			if err != nil || len(differences) != 1 || differences[0].String() != "the database is missing; should be there: see octopay migrate" {
				t.Errorf("%s: %v, %v", place, differences, err)
			}
		}
		if err := schema.Migrate(t.Context(), db, place, s.Map.Epoch()); err != nil {
			t.Fatal(err)
		}
		if os.Getenv("WRITE_SHAPES") != "" {
			text, err := schema.Shape(t.Context(), db, place.Schema)
			if err != nil {
				t.Fatal(err)
			}
			name := string(place.Cluster)
			if name == "" {
				name = "meta"
			}
			if err := os.WriteFile("shapes/"+name+".txt", []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		differences, err := schema.Check(t.Context(), db, place)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range differences {
			t.Errorf("%s: %s (by shapes/, which WRITE_SHAPES=1 writes anew)", place, d)
		}
	}
}

// Each way in which a database can drift is found, and nothing else is said.
func TestCheckFindsDrift(t *testing.T) {
	s, db := empty(t)
	place := s.Map.Database(shardmap.UID, 1)
	if err := schema.Migrate(t.Context(), db, place, s.Map.Epoch()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ change, back, want string }{
		{"ALTER TABLE %s.order_4 MODIFY subject VARCHAR(200) NOT NULL", "ALTER TABLE %s.order_4 MODIFY subject VARCHAR(256) NOT NULL",
			"table order_4: column subject is varchar(200) not null, utf8mb4_bin; should be varchar(256) not null, utf8mb4_bin"},
		{"ALTER TABLE %s.order_9 MODIFY paid_at DATETIME(3) NOT NULL", "ALTER TABLE %s.order_9 MODIFY paid_at DATETIME(3) NULL",
			"table order_9: column paid_at is datetime(3) not null; should be datetime(3) null, default NULL"},
		{"ALTER TABLE %s.journal_0 MODIFY op VARCHAR(160) CHARACTER SET ascii COLLATE ascii_general_ci NOT NULL", "ALTER TABLE %s.journal_0 MODIFY op VARCHAR(160) CHARACTER SET ascii COLLATE ascii_bin NOT NULL",
			"table journal_0: column op is varchar(160) not null, ascii_general_ci; should be varchar(160) not null, ascii_bin"},
		{"ALTER TABLE %s.order_0 ALTER amount SET DEFAULT 0", "ALTER TABLE %s.order_0 ALTER amount DROP DEFAULT",
			"table order_0: column amount is bigint(20) not null, default 0; should be bigint(20) not null"},
		{"ALTER TABLE %s.order_0 MODIFY ver BIGINT NOT NULL AFTER amount", "ALTER TABLE %s.order_0 MODIFY ver BIGINT NOT NULL AFTER status",
			"table order_0: the order of columns is id,uid,bid,out_trade_no,amount,ver,currency,"},
		{"ALTER TABLE %s.order_0 ADD note TEXT AFTER bid", "ALTER TABLE %s.order_0 DROP note",
			"table order_0: column note is text null, utf8mb4_bin, default NULL; should be not there"},
		{"ALTER TABLE %s.order_3 DROP INDEX place, ADD UNIQUE place (uid, out_trade_no)", "ALTER TABLE %s.order_3 DROP INDEX place, ADD UNIQUE place (uid, bid, out_trade_no)",
			"table order_3: index place is unique uid,out_trade_no btree; should be unique uid,bid,out_trade_no btree"},
		{"ALTER TABLE %s.order_3 DROP INDEX changed", "ALTER TABLE %s.order_3 ADD INDEX changed (updated_at, id)",
			"table order_3: index changed is missing; should be there: updated_at,id btree"},
		{"ALTER TABLE %s.order_3 ALTER INDEX buyer IGNORED", "ALTER TABLE %s.order_3 ALTER INDEX buyer NOT IGNORED",
			"table order_3: index buyer is uid,id btree, ignored; should be uid,id btree"},
		{"CREATE TABLE %s.order_10 (id INT)", "DROP TABLE %s.order_10",
			"table order_10: the table is base table, InnoDB, utf8mb4_bin; should be not there"},
		{"INSERT INTO %s.goose_db_version (version_id, is_applied) VALUES (77, 1)", "DELETE FROM %s.goose_db_version WHERE version_id = 77",
			"the list of applied migrations is 1 77; should be 1"},
		{"ALTER DATABASE %s COLLATE utf8mb4_general_ci", "ALTER DATABASE %s COLLATE utf8mb4_bin",
			"the default collation is utf8mb4_general_ci; should be utf8mb4_bin"},
	} {
		admin := s.Admin(t, "uid-a")
		for _, step := range []struct{ statement, want string }{{c.change, c.want}, {c.back, ""}} {
			if _, err := admin.ExecContext(t.Context(), fmt.Sprintf(step.statement, "`"+place.Schema+"`")); err != nil {
				t.Fatal(step.statement, err)
			}
			differences, err := schema.Check(t.Context(), db, place)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case step.want == "" && len(differences) > 0:
				t.Errorf("after %s: %v", step.statement, differences)
			case step.want != "" && (len(differences) != 1 || !strings.HasPrefix(differences[0].String(), step.want)):
				t.Errorf("after %s: %v, want %s", step.statement, differences, step.want)
			}
		}
	}
}
