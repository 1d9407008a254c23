package schema_test

import (
	"database/sql"
	"fmt"
	"os"
	"slices"
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
			"the list of applied migrations is 1 2 77; should be 1 2"},
		{"ALTER TABLE %s.order_5 ADD big BOOLEAN AS (amount > 100) PERSISTENT", "ALTER TABLE %s.order_5 DROP big",
			"table order_5: column big is tinyint(1) null, "},
		{"ALTER TABLE %s.order_5 MODIFY subject VARCHAR(256) NOT NULL INVISIBLE DEFAULT ''", "ALTER TABLE %s.order_5 MODIFY subject VARCHAR(256) NOT NULL",
			"table order_5: column subject is varchar(256) not null, utf8mb4_bin, default '', INVISIBLE; should be varchar(256) not null, utf8mb4_bin"},
		{"ALTER TABLE %s.order_6 ADD CONSTRAINT positive CHECK (amount > 0)", "ALTER TABLE %s.order_6 DROP CONSTRAINT positive",
			"table order_6: check positive is `amount` > 0; should be not there"},
		{"ALTER TABLE %s.journal_6 ADD CONSTRAINT parent FOREIGN KEY (order_id) REFERENCES %[1]s.order_6 (id)", "ALTER TABLE %s.journal_6 DROP FOREIGN KEY parent",
			"table journal_6: foreign key parent is to "},
		{"ALTER TABLE %s.journal_7 ROW_FORMAT = COMPRESSED", "ALTER TABLE %s.journal_7 ROW_FORMAT = DEFAULT",
			"table journal_7: the table is base table, InnoDB, utf8mb4_bin, row_format=COMPRESSED; should be base table, InnoDB, utf8mb4_bin"},
		{"ALTER TABLE %s.journal_7 PARTITION BY KEY (order_id) PARTITIONS 2", "ALTER TABLE %s.journal_7 REMOVE PARTITIONING",
			"table journal_7: the table is base table, InnoDB, utf8mb4_bin, partitioned; should be base table, InnoDB, utf8mb4_bin"},
		{"ALTER TABLE %s.journal_8 ENGINE = Aria", "CREATE OR REPLACE TABLE %s.journal_8 LIKE %[1]s.journal_9",
			"table journal_8: the table is base table, Aria, utf8mb4_bin"},
		{"CREATE VIEW %s.paid AS SELECT id FROM %[1]s.order_1 WHERE status = 'paid'", "DROP VIEW %s.paid",
			"table paid: the table is view; should be not there"},
		{"CREATE TRIGGER %s.shadow BEFORE UPDATE ON %[1]s.order_2 FOR EACH ROW SET NEW.amount = 1", "DROP TRIGGER %s.shadow",
			"table order_2: trigger shadow is before update; should be not there"},
		{"CREATE EVENT %s.nightly ON SCHEDULE EVERY 1 DAY DO DELETE FROM %[1]s.order_2", "DROP EVENT %s.nightly",
			"event nightly is recurring, enabled; should be not there"},
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

// What the account may not see is said, and what another may see is found by it.
func TestWhatAnAccountMayNotSeeIsSaid(t *testing.T) {
	s, db := empty(t)
	place, admin := s.Map.Database(shardmap.UID, 1), s.Admin(t, "uid-a")
	other := s.Map.Prefix() + "narrow"
	exec := func(statement string) {
		t.Helper()
		if _, err := admin.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(statement, err)
		}
	}
	if err := schema.Migrate(t.Context(), db, place, s.Map.Epoch()); err != nil {
		t.Fatal(err)
	}
	exec("CREATE TRIGGER `" + place.Schema + "`.shadow BEFORE UPDATE ON `" + place.Schema + "`.order_2 FOR EACH ROW SET NEW.amount = 1")
	exec("CREATE USER '" + other + "'@'%' IDENTIFIED BY '" + s.Password + "'")
	t.Cleanup(func() {
		if _, err := admin.Exec("DROP USER '" + other + "'@'%'"); err != nil {
			t.Error(err)
		}
	})
	exec("GRANT SELECT ON `" + place.Schema + "`.* TO '" + other + "'@'%'")
	narrow := openAs(t, other, s.Password, place.Server.Address)
	for _, c := range []struct {
		name   string
		db     *sql.DB
		unseen []string
		found  int
	}{
		{"may only read", narrow, []string{"triggers", "events", "foreign keys of other schemas"}, 0},
		{"the programs' account", db, nil, 1},
		{"may do everything", admin, nil, 1},
	} {
		unseen, err := schema.Unseen(t.Context(), c.db, place)
		if err != nil || !slices.Equal(unseen, c.unseen) {
			t.Errorf("%s: unseen %q, %v", c.name, unseen, err)
		}
		if found, err := schema.Check(t.Context(), c.db, place); err != nil || len(found) != c.found {
			t.Errorf("%s: %v, %v", c.name, found, err)
		}
	}
}

// Another schema's foreign key to our rows locks them.
func TestAForeignKeyFromElsewhereIsFound(t *testing.T) {
	s, db := empty(t)
	place, admin := s.Map.Database(shardmap.UID, 1), s.Admin(t, "uid-a")
	if err := schema.Migrate(t.Context(), db, place, s.Map.Epoch()); err != nil {
		t.Fatal(err)
	}
	elsewhere := s.Map.Database(shardmap.UID, 2).Schema
	for _, statement := range []string{"CREATE DATABASE `" + elsewhere + "`",
		"CREATE TABLE `" + elsewhere + "`.child (parent BIGINT, CONSTRAINT theirs FOREIGN KEY (parent) REFERENCES `" + place.Schema + "`.order_3 (id)) ENGINE=InnoDB"} {
		if _, err := admin.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(statement, err)
		}
	}
	found, err := schema.Check(t.Context(), db, place)
	if want := "table order_3: foreign key " + elsewhere + ".theirs is from " + elsewhere + ".child; should be not there"; err != nil || len(found) != 1 || found[0].String() != want {
		t.Errorf("%v, %v; want %s", found, err, want)
	}
	if _, err := admin.ExecContext(t.Context(), "DROP TABLE `"+elsewhere+"`.child"); err != nil {
		t.Fatal(err)
	}
}
