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
