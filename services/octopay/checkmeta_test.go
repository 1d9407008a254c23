package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/octopay/octopay/auth"
	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/payconfig"
	"github.com/octopay/octopay/services/internal/boot"
	"github.com/octopay/octopay/services/internal/boottest"
	"github.com/octopay/octopay/shardmap"
)

// What programs read of the meta database before they are ready is looked at: each step
// leaves it as it was.
func TestCheckLooksAtKeysAndConfig(t *testing.T) {
	s := localstack.Test(t, localstack.UID, localstack.BID, localstack.Meta)
	e := &estate{stack: s, c: s.Cluster(t), env: without(boottest.Environ(t, s, s.Map), "OCTOPAY_NATS_URL")}
	if _, err := cluster.ResolveMap(t.Context(), e.c, s.Map); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Keys: 0 app, 0 merchant, 0 channel, 0 ops; 0 of them sign, 0 end later. Revoked: 0.", "Payment config: none was ever set; every merchant may take orders."} {
		if code, _, _, all := e.check(t); code != 0 || !strings.Contains(all, want) {
			t.Errorf("a new installation: exit %d, without %q:\n%s", code, want, all)
		}
	}
	one, err := boot.Shared{MasterKey: master("1")}.Masters()
	if err != nil {
		t.Fatal(err)
	}
	store := auth.NewStore(e.c.Meta(), one)
	var ids []string
	for _, spec := range []auth.Spec{{Role: auth.App}, {Role: auth.Channel}, {Role: auth.Ops}, {Role: auth.Ops}} {
		made, err := store.Create(t.Context(), spec, "tester")
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, made.ID)
	}
	if _, err := store.Revoke(t.Context(), ids[3], "tester"); err != nil {
		t.Fatal(err)
	}
	config, err := payconfig.Decode([]byte(shops))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := payconfig.NewStore(e.c.Meta()).Set(t.Context(), 0, config, "tester"); err != nil {
		t.Fatal(err)
	}
	bare := e.env
	const where = "octopay_meta@uid-a: "
	for _, c := range []struct {
		name, key    string
		change, back string
		differs      []string // how they begin
		says         []string
	}{
		{"all is well", master("1"), "", "", nil, []string{
			"Keys: 1 app, 0 merchant, 1 channel, 1 ops; 1 of them sign, 0 end later. Revoked: 1.\n",
			"Payment config: version 1, set by tester at ", ", with 2 merchants (2 enabled) and 1 channel; unknown merchants: refuse. Its hash is " + config.Hash()}},
		{"no master key is known", "", "", "", nil, []string{"(OCTOPAY_MASTER_KEY_FILE) is not set: whether the signing secrets of 1 can be decrypted was not looked at."}},
		{"another master key", master("2"), "", "", []string{
			where + "keys: the signing secrets of 1 are decrypted by no master key that is set here, and programs with these master keys refuse them: \"" + ids[1] + "\" ("}, nil},
		{"a key that is none", master("1"), "UPDATE %s.api_key SET role = 'robot' WHERE id = '" + ids[0] + "'", "UPDATE %s.api_key SET role = 'app' WHERE id = '" + ids[0] + "'",
			[]string{where + "keys: 1 are none for this program, and refused: \"" + ids[0] + "\" (a role is "}, []string{"Keys: 0 app"}},
		{"the version of the keys is gone", master("1"), "DELETE FROM %s.api_key_version", "INSERT INTO %s.api_key_version VALUES (1, 9)",
			[]string{where + "keys: read the keys: "}, []string{"octopay keys reseal"}},
		{"a config that isn't its hash", master("1"), "UPDATE %s.payment_config SET hash = REVERSE(hash)", "UPDATE %s.payment_config SET hash = REVERSE(hash)",
			[]string{where + "payment config: version 1, the newest, is in force nowhere: it is not the text of its hash; octopay config set --if-version 1 sets one"}, nil},
		{"a config of a newer program", master("1"), "INSERT INTO %s.payment_config SELECT 2, hash, '{\"secret\":1}', set_by, set_at FROM %s.payment_config", "DELETE FROM %s.payment_config WHERE version = 2",
			[]string{where + "payment config: version 2, the newest, is in force nowhere: payconfig: the config is not valid: "}, nil},
		{"there is no table of keys", master("1"), "RENAME TABLE %s.api_key TO %s.hidden", "RENAME TABLE %s.hidden TO %s.api_key",
			[]string{where + "table api_key: the table is missing", where + "table hidden"}, []string{"Payment config: version 1"}},
		{"there is no table of configs", master("1"), "RENAME TABLE %s.payment_config TO %s.hidden", "RENAME TABLE %s.hidden TO %s.payment_config",
			[]string{where + "table hidden", where + "table payment_config: the table is missing"}, []string{"Keys: 1 app"}},
	} {
		if c.change != "" {
			e.exec(t, e.c.Meta(), c.change)
		}
		e.env = slices.Clone(bare)
		if c.key != "" {
			e.env = append(e.env, "OCTOPAY_MASTER_KEY="+c.key)
		}
		code, differs, warnings, all := e.check(t)
		if c.back != "" {
			e.exec(t, e.c.Meta(), c.back)
		}
		if code != min(1, len(c.differs)) || !slices.EqualFunc(differs, c.differs, strings.HasPrefix) || len(warnings) > 0 || strings.Contains(all, master("1")) || strings.Contains(all, master("2")) {
			t.Errorf("%s: exit %d\n%s", c.name, code, all)
		}
		for _, want := range c.says {
			if !strings.Contains(all, want) {
				t.Errorf("%s: it doesn't say %q:\n%s", c.name, want, all)
			}
		}
	}
	e.env = append(slices.Clone(bare), "OCTOPAY_MASTER_KEY=x")
	if code, stdout, stderr := octopay(t, e.env, "check"); code != 2 || stdout != "" || !strings.Contains(stderr, "master_key") {
		t.Errorf("a master key that is none: exit %d\n%s%s", code, stdout, stderr)
	}
}

// A table that the account may not read is there, and is no table that is missing: whether
// its keys and its config are good nobody knows, and it is said.
func TestCheckSaysThatItMayNotReadKeysAndConfig(t *testing.T) {
	e := newEstate(t, localstack.UID, localstack.BID, localstack.Meta)
	admin := e.stack.Admin(t, "uid-a")
	meta := e.c.Meta().Schema()
	user := e.stack.Map.Prefix() + "reader"
	of := "'" + user + "'@'%'"
	exec := func(statements ...string) {
		t.Helper()
		for _, s := range statements {
			if _, err := admin.ExecContext(t.Context(), s); err != nil {
				t.Fatalf("%s: %v", s, err)
			}
		}
	}
	exec("CREATE USER "+of+" IDENTIFIED BY '"+e.stack.Password+"'", "GRANT BINLOG MONITOR, PROCESS ON *.* TO "+of, "GRANT TRIGGER, EVENT ON `"+meta+"`.* TO "+of)
	t.Cleanup(func() {
		if _, err := admin.Exec("DROP USER " + of); err != nil {
			t.Error(err)
		}
	})
	for _, in := range []shardmap.Cluster{shardmap.UID, shardmap.BID} {
		for _, place := range e.stack.Map.Databases(in) {
			if place.Server.Name == "uid-a" {
				exec("GRANT SELECT, TRIGGER, EVENT ON `" + place.Schema + "`.* TO " + of)
			}
		}
	}
	rows, err := admin.QueryContext(t.Context(), "SELECT table_name FROM information_schema.tables WHERE table_schema = ?", meta)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var tables []string
	for rows.Next() {
		var table string
		if err := rows.Scan(&table); err != nil {
			t.Fatal(err)
		}
		tables = append(tables, table)
	}
	if err := rows.Err(); err != nil || len(tables) < 5 {
		t.Fatal(tables, err)
	}
	for _, table := range tables {
		right := "SELECT"
		if table == "api_key" || table == "payment_config" {
			right = "INSERT" // enough to see that it is there, and of which columns
		}
		exec("GRANT " + right + " ON `" + meta + "`.`" + table + "` TO " + of)
	}
	e.env = append(without(e.env, "OCTOPAY_NATS_URL", "OCTOPAY_DB_USER"), "OCTOPAY_DB_USER="+user)
	want := []string{
		"octopay_meta@uid-a: keys: read the keys: ",
		"octopay_meta@uid-a: payment config: ",
	}
	code, differs, _, all := e.check(t)
	denied := slices.DeleteFunc(slices.Clone(differs), func(s string) bool { return !strings.HasPrefix(s, "octopay_meta@uid-a: ") })
	if code != 1 || !slices.EqualFunc(denied, want, strings.HasPrefix) {
		t.Errorf("exit %d\n%s", code, all)
	}
	for _, d := range denied {
		if !strings.Contains(d, "(server error 1142)") {
			t.Errorf("it doesn't say that it was refused: %s", d)
		}
	}
}
