package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/lease"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/services/internal/boottest"
	"github.com/octopay/octopay/shardmap"
)

// An estate is a whole installation, its map in force, with an operator beside it.
type estate struct {
	stack *localstack.Stack
	c     *cluster.Cluster
	env   []string
}

func newEstate(t *testing.T, need ...localstack.Need) *estate {
	t.Helper()
	s := localstack.Test(t, need...)
	e := &estate{stack: s, c: s.Cluster(t), env: boottest.Environ(t, s, s.Map)}
	if _, err := cluster.ResolveMap(t.Context(), e.c, s.Map); err != nil {
		t.Fatal(err)
	}
	return e
}

// exec runs a statement in a database; %s in it is its schema.
func (e *estate) exec(t *testing.T, db *cluster.Database, statement string, args ...any) {
	t.Helper()
	admin := e.stack.Admin(t, db.Place().Server.Name)
	if _, err := admin.ExecContext(t.Context(), strings.ReplaceAll(statement, "%s", "`"+db.Schema()+"`"), args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// check runs octopay check and returns its differences and warnings.
func (e *estate) check(t *testing.T, args ...string) (code int, differs, warnings []string, all string) {
	t.Helper()
	code, stdout, stderr := octopay(t, e.env, append([]string{"check"}, args...)...)
	if stderr != "" {
		t.Errorf("on stderr: %s", stderr)
	}
	for line := range strings.Lines(stdout) {
		line = strings.TrimSpace(line)
		if text, ok := strings.CutPrefix(line, "DIFFERS "); ok {
			differs = append(differs, strings.ReplaceAll(text, e.stack.Map.Prefix(), ""))
		}
		if text, ok := strings.CutPrefix(line, "WARNING "); ok {
			warnings = append(warnings, text)
		}
	}
	return code, differs, warnings, stdout
}

// orderOf is an order of a buyer as it is stored, made at a time.
func orderOf(uid, bid int64, snowflake int64) schema.Order {
	at := schema.MillisOf(idgen.SnowflakeTime(snowflake))
	return schema.Order{
		ID: snowflake, UID: uid, BID: bid, OutTradeNo: fmt.Sprint("n", snowflake), Amount: 19900, Currency: "CNY", Subject: "s", Metadata: "{}",
		Status: schema.Created, Ver: 1, CreatedBy: "app", RequestID: "r", ExpiresAt: at + 1000, UpdatedAt: at,
	}
}

// insert stores orders in one table.
func (e *estate) insert(t *testing.T, db *cluster.Database, table int, orders ...schema.Order) {
	t.Helper()
	var args []any
	for _, o := range orders {
		args = append(args, o.Values()...)
	}
	row := "(?" + strings.Repeat(",?", len(schema.OrderColumns)-1) + ")"
	e.exec(t, db, fmt.Sprintf("INSERT INTO %%s.order_%d (%s) VALUES %s", table, schema.List(schema.OrderColumns), row+strings.Repeat(","+row, len(orders)-1)), args...)
}

// without returns settings without some variables.
func without(env []string, names ...string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return slices.Contains(names, name)
	})
}

// One estate for all, each step of which leaves it as it was.
func TestCheck(t *testing.T) {
	e := newEstate(t, localstack.UID, localstack.BID, localstack.Meta)
	e.env = without(e.env, "OCTOPAY_NATS_URL") // see TestCheckLooksAtTheMirror
	uid := func(n int) *cluster.Database { return e.c.Database(shardmap.UID, n) }
	bid := func(n int) *cluster.Database { return e.c.Database(shardmap.BID, n) }
	epoch := int64(e.stack.Map.Epoch())

	code, differs, warnings, all := e.check(t)
	if code != 0 || len(differs) > 0 || len(warnings) > 0 {
		t.Fatalf("a new installation: exit %d:\n%s", code, all)
	}
	for _, want := range []string{
		"Map: epoch ", e.stack.Map.Hash(), "Clocks, against this machine's: bid-a ", ", uid-a ", "Worker numbers: 0 of 1024 are held",
		"NATS: nats_url (OCTOPAY_NATS_URL) is not set", "Order ids: their layout ends on 2094-09-07.", "there are 0 recent buyers", "Spread of 64000 random uids: ", " in a database, ", " in a table, ",
		"Checked: 17 databases on 2 servers. Differences: 0. Warnings: 0.\n",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("it doesn't say %q:\n%s", want, all)
		}
	}

	for _, c := range []struct {
		name         string
		change, back func()
		want         []string
	}{
		// Fault 27; that nobody misreads it, see TestCheckLooksAtTheMirror.
		{"a column of one shard drifts",
			func() { e.exec(t, uid(3), "ALTER TABLE %s.order_4 MODIFY amount INT NOT NULL") },
			func() { e.exec(t, uid(3), "ALTER TABLE %s.order_4 MODIFY amount BIGINT NOT NULL") },
			[]string{"octopay_uid_03@uid-a: table order_4: column amount is int(11) not null; should be bigint(20) not null"}},
		{"the mirror lacks a column that is read, and a table",
			func() {
				e.exec(t, bid(8), "ALTER TABLE %s.journal_9 DROP COLUMN reason")
				e.exec(t, bid(8), "DROP TABLE %s.order_2")
			},
			func() {
				e.exec(t, bid(8), "ALTER TABLE %s.journal_9 ADD reason VARCHAR(256) NULL AFTER ref")
				e.exec(t, bid(8), "CREATE TABLE %s.order_2 LIKE %s.order_1")
			},
			[]string{"octopay_bid_08@bid-a: table journal_9: column reason is missing; should be there: varchar(256) null, utf8mb4_bin, default NULL",
				"octopay_bid_08@bid-a: table order_2: the table is missing; should be there: base table, InnoDB, utf8mb4_bin"}},
		{"something acts on rows behind our back",
			func() {
				e.exec(t, bid(8), "CREATE TRIGGER %s.shadow AFTER INSERT ON %s.order_2 FOR EACH ROW SET @seen = 1")
				e.exec(t, uid(1), "CREATE EVENT %s.nightly ON SCHEDULE EVERY 1 DAY DO DELETE FROM %s.order_2")
			},
			func() {
				e.exec(t, bid(8), "DROP TRIGGER %s.shadow")
				e.exec(t, uid(1), "DROP EVENT %s.nightly")
			},
			[]string{"octopay_bid_08@bid-a: table order_2: trigger shadow is after insert; should be not there",
				"octopay_uid_01@uid-a: event nightly is recurring, enabled; should be not there"}},
		{"the register and the map are of two minds",
			func() {
				e.exec(t, e.c.Meta(), "DELETE FROM %s.database_made WHERE cluster = 'uid' AND number IN (2, 3)")
				e.exec(t, e.c.Meta(), "UPDATE %s.database_made SET server = 'bid-z' WHERE cluster = 'bid' AND number = 4")
				e.exec(t, e.c.Meta(), "INSERT INTO %s.database_made VALUES ('uid', 9, 'uid-a', UTC_TIMESTAMP(3))")
			},
			func() {
				e.exec(t, e.c.Meta(), "INSERT INTO %s.database_made VALUES ('uid', 2, 'uid-a', UTC_TIMESTAMP(3)), ('uid', 3, 'uid-a', UTC_TIMESTAMP(3))")
				e.exec(t, e.c.Meta(), "UPDATE %s.database_made SET server = 'bid-a' WHERE cluster = 'bid' AND number = 4")
				e.exec(t, e.c.Meta(), "DELETE FROM %s.database_made WHERE number = 9")
			},
			[]string{"octopay_meta@uid-a: by its register bid:4 was made on server bid-z; by the map it is on bid-a",
				"octopay_meta@uid-a: by its register uid:9 was made, on server uid-a; the map does not have it",
				"octopay_meta@uid-a: its register lacks uid:2 uid:3, which the map has: see octopay migrate"}},
		{"a database is where the map doesn't put it",
			func() {
				for _, name := range []string{"octopay_uid_09", "octopay_bid_01", "octopay_other"} {
					e.exec(t, uid(1), "CREATE DATABASE `"+e.stack.Map.Prefix()+name+"`")
				}
			},
			func() {
				for _, name := range []string{"octopay_uid_09", "octopay_bid_01", "octopay_other"} {
					e.exec(t, uid(1), "DROP DATABASE `"+e.stack.Map.Prefix()+name+"`")
				}
			},
			[]string{"uid-a: schema octopay_bid_01 is there; the map does not put it on this server",
				"uid-a: schema octopay_uid_09 is there; the map does not put it on this server"}},
		{"a database obeys another epoch, and one is another",
			func() {
				e.exec(t, bid(5), "UPDATE %s.owner SET epoch = epoch + 1")
				e.exec(t, uid(7), "UPDATE %s.owner SET `database` = 6")
			},
			func() {
				e.exec(t, bid(5), "UPDATE %s.owner SET epoch = epoch - 1")
				e.exec(t, uid(7), "UPDATE %s.owner SET `database` = 7")
			},
			[]string{fmt.Sprintf("octopay_bid_05@bid-a: it says that it is bid:5 and obeys epoch %d; should be bid:5, epoch %d", epoch+1, epoch),
				fmt.Sprintf("octopay_uid_07@uid-a: it says that it is uid:6 and obeys epoch %d; should be uid:7, epoch %d", epoch, epoch)}},
		{"a database that nobody made to the end",
			func() { e.exec(t, uid(1), "DELETE FROM %s.owner") },
			func() { e.exec(t, uid(1), "INSERT INTO %s.owner VALUES (1, 'uid', 1, ?)", epoch) },
			[]string{fmt.Sprintf("octopay_uid_01@uid-a: it doesn't say which database it is; should be uid:1, epoch %d: see octopay migrate", epoch)}},
		{"an order that is not where its buyer's key puts it",
			func() { e.insert(t, uid(2), 3, orderOf(9527, 1001, 77)) },
			func() { e.exec(t, uid(2), "DELETE FROM %s.order_3") },
			[]string{"octopay_uid_02@uid-a: table order_3: 1 of its newest 1 orders, such as the one of id 77, belong to another table by their uid"}},
		{"no worker numbers are given out",
			func() { e.exec(t, e.c.Meta(), "DELETE FROM %s.lease") },
			func() {
				e.exec(t, e.c.Meta(), "INSERT INTO %s.lease (name, holder, token, until_ms) VALUES ('worker/', '', 0, 0)")
			},
			[]string{"octopay_meta@uid-a: it gives out no worker numbers: octopay migrate has not ended"}},
	} {
		c.change()
		code, differs, warnings, all := e.check(t)
		if code != 1 || !slices.Equal(differs, c.want) || len(warnings) > 0 || !strings.Contains(all, fmt.Sprintf("Differences: %d. ", len(c.want))) {
			t.Errorf("%s: exit %d:\n%s", c.name, code, all)
		}
		c.back()
	}

	t.Run("as JSON", func(t *testing.T) { e.checkJSON(t) })
	t.Run("worker numbers are counted", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), eventually.Patience)
		defer cancel()
		for _, name := range []string{"worker/3", "worker/900"} {
			if _, err := lease.NewSQL(e.c.Meta()).Acquire(ctx, name, "test", lease.Term); err != nil {
				t.Fatal(err)
			}
		}
		if code, _, _, all := e.check(t); code != 0 || !strings.Contains(all, "Worker numbers: 2 of 1024 are held, 1022 are free") || !strings.Contains(all, "The last lease ends at ") {
			t.Errorf("exit %d:\n%s", code, all)
		}
	})
	t.Run("buyers of a file", func(t *testing.T) { spreadOfAFile(t, e) })
	t.Run("buyers whose numbers are snowflakes are found to be few shards' alone", func(t *testing.T) { testFault15SpreadOfSnowflakes(t, e) })
	t.Run("a map of the same epoch that is another", func(t *testing.T) {
		other := e.stack.Via(t, "bid-a", "localhost:"+e.c.Map().Servers(shardmap.BID)[0].Address[len("127.0.0.1:"):])
		conflict := &estate{stack: e.stack, env: without(boottest.Environ(t, e.stack, other.Map), "OCTOPAY_NATS_URL")}
		code, differs, _, all := conflict.check(t)
		if code != 1 || len(differs) != 1 || !strings.Contains(differs[0], e.stack.Map.Hash()) || !strings.Contains(differs[0], other.Map.Hash()) {
			t.Errorf("exit %d:\n%s", code, all)
		}
	})
}

// checkJSON reads what check says as JSON.
func (e *estate) checkJSON(t *testing.T) {
	meta := e.c.Meta()
	e.exec(t, meta, "UPDATE %s.database_made SET server = 'x' WHERE cluster = 'uid' AND number = 2")
	e.exec(t, meta, "INSERT INTO %s.lease VALUES ('worker/7', 'h', 1, 4000000000000)")
	code, stdout, stderr := octopay(t, e.env, "check", "--json")
	e.exec(t, meta, "UPDATE %s.database_made SET server = 'uid-a' WHERE cluster = 'uid' AND number = 2")
	e.exec(t, meta, "DELETE FROM %s.lease WHERE name = 'worker/7'")
	kinds := map[string]int{}
	var last sum
	for line := range strings.Lines(stdout) {
		var l said
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		kinds[l.Kind]++
		if (l.Where != "") != (l.Kind == "warning" || l.Kind == "difference") {
			t.Errorf("where: %s", line)
		}
		if err := json.Unmarshal([]byte(line), &last); err != nil {
			t.Fatal(err)
		}
	}
	if code != 1 || stderr != "" || kinds["note"] < 5 || kinds["warning"] != 1 || kinds["difference"] != 1 || last != (sum{"summary", 17, 2, 1, 1}) {
		t.Errorf("exit %d, %s\n%s", code, stderr, stdout)
	}
}

// Fault 15, before any of these buyers comes: --uids judges a sample from elsewhere.
func spreadOfAFile(t *testing.T, e *estate) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "uids")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var even, snowflakes strings.Builder
	for i := range 6400 {
		fmt.Fprintln(&even, 1_000_000+i)
		fmt.Fprintf(&snowflakes, "  %d\r\n", int64(1+i)<<22)
	}
	for _, c := range []struct {
		name, text string
		warnings   int
		want       string
	}{
		{"in a row", even.String(), 0, "Spread of 6400 uids of the file: 800 to 800 in a database, 640 to 640 in a table, 10 to 10 in a slot."},
		{"snowflakes", snowflakes.String(), 3, "Spread of 6400 uids of the file: 0 to 1280 in a database, 0 to 1280 in a table, 0 to 1280 in a slot."},
		{"few, and some twice", "7\n\n9527\n7\n", 0, "Spread of 2 uids of the file: 0 to 2 in a database (too few to judge), 0 to 2 in a table (too few to judge), 0 to 1 in a slot (too few to judge)."},
	} {
		code, differs, warnings, all := e.check(t, "--uids", write(c.text))
		if code != 0 || len(differs) > 0 || len(warnings) != c.warnings || !strings.Contains(all, c.want) {
			t.Errorf("%s: exit %d:\n%s", c.name, code, all)
		}
	}
	for text, want := range map[string]string{"": "it names no uid", "7\n0\n": "line 2 is no uid", "9223372036854775808": "line 1 is no uid", "7,8": "line 1 is no uid"} {
		if code, stdout, stderr := octopay(t, e.env, "check", "--uids", write(text)); code != 2 || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit %d, %s%s", text, code, stdout, stderr)
		}
	}
	if code, _, stderr := octopay(t, e.env, "check", "--uids", filepath.Join(t.TempDir(), "none")); code != 2 || !strings.Contains(stderr, "no such file") {
		t.Errorf("no file: exit %d, %s", code, stderr)
	}
}

// Fault 15. Uids that another system made as snowflakes, of one id in each millisecond:
// their low bits are 0, so by the slot's arithmetic they fall into 5 of 640 slots.
func testFault15SpreadOfSnowflakes(t *testing.T, e *estate) {
	byPlace := map[shardmap.Location][]schema.Order{}
	for i := int64(1); i <= 2000; i++ {
		o := orderOf(i<<12, 1001, idgen.FirstAt(idgen.Epoch.Add(time.Hour))+i)
		at := e.c.Map().Locate(o.UID)
		byPlace[at] = append(byPlace[at], o)
	}
	for at, orders := range byPlace {
		for some := range slices.Chunk(orders, 500) {
			e.insert(t, e.c.Database(shardmap.UID, at.Database), at.Table, some...)
		}
	}
	code, differs, warnings, all := e.check(t)
	// Each of five tables is looked at for its newest 200, and counts from where the
	// youngest of these begin.
	if code != 0 || len(differs) > 0 || len(warnings) != 3 || !strings.Contains(all, "Spread of 996 recent buyers: ") ||
		!strings.Contains(strings.Join(warnings, "\n"), "635 of 640 have none") {
		t.Errorf("exit %d:\n%s", code, all)
	}
}

func TestCheckSaysWhatIsAway(t *testing.T) {
	s := localstack.Test(t, localstack.UID, localstack.Meta)
	away := s.Via(t, "bid-a", "127.0.0.1:1") // nobody listens there
	e := &estate{stack: s, env: without(boottest.Environ(t, s, away.Map), "OCTOPAY_NATS_URL")}
	code, differs, _, all := e.check(t)
	if code != 1 || len(differs) != 3 || !strings.Contains(all, "Differences: 3.") ||
		!strings.HasPrefix(differs[0], "bid-a: could not be checked: ") || !strings.Contains(differs[0], "nor were its databases, of which it has 8") ||
		differs[1] != "octopay_meta@uid-a: its register lacks bid:1 bid:2 bid:3 bid:4 bid:5 bid:6 bid:7 bid:8, which the map has: see octopay migrate" ||
		!strings.HasPrefix(differs[2], "octopay_meta@uid-a: there is no map in force") {
		t.Errorf("exit %d:\n%s", code, all)
	}
}

// A server with every setting as nobody wants it, and one that is frozen.
func TestCheckAsksTheServersThemselves(t *testing.T) {
	s := localstack.Private(t, localstack.Options{
		Need: []localstack.Need{localstack.UID, localstack.Meta, localstack.BID},
		Args: []string{"--binlog-format=MIXED", "--binlog-row-image=MINIMAL", "--binlog-row-metadata=MINIMAL", "--binlog-annotate-row-events=ON",
			"--gtid-strict-mode=OFF", "--log-slave-updates=OFF", "--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2",
			"--binlog-expire-logs-seconds=3600", "--table-open-cache=100", "--binlog-ignore-db=elsewhere",
			// What a session of ours sets by itself.
			"--sql-mode=", "--transaction-isolation=REPEATABLE-READ", "--character-set-server=latin1", "--lock-wait-timeout=86400"},
		Env: []string{"TZ=Asia/Shanghai"},
	})
	e := &estate{stack: s, c: s.Cluster(t), env: without(boottest.Environ(t, s, s.Map), "OCTOPAY_NATS_URL")}
	if _, err := cluster.ResolveMap(t.Context(), e.c, s.Map); err != nil {
		t.Fatal(err)
	}
	frozen := s.Server("bid-a")
	if err := frozen.Pause(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	code, differs, warnings, all := e.check(t)
	if took := time.Since(began); took > 3*time.Minute {
		t.Errorf("it took %s", took)
	}
	if err := frozen.Continue(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"bid-a: could not be checked: ",
		"uid-a: binlog_annotate_row_events is ON; should be OFF",
		"uid-a: binlog_expire_logs_seconds is 3600; should be at least 259200",
		"uid-a: binlog_format is MIXED; should be ROW",
		"uid-a: binlog_ignore_db is elsewhere; should be empty",
		"uid-a: binlog_row_image is MINIMAL; should be FULL",
		"uid-a: binlog_row_metadata is MINIMAL; should be FULL",
		"uid-a: gtid_strict_mode is OFF; should be ON",
		"uid-a: innodb_flush_log_at_trx_commit is 2; should be 1",
		"uid-a: log_slave_updates is OFF; should be ON",
		"uid-a: sync_binlog is 0; should be 1",
		"uid-a: table_open_cache is 100; should be above ",
	}
	if code != 1 || !slices.EqualFunc(differs, want, strings.HasPrefix) {
		t.Errorf("exit %d:\n%s", code, all)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "uid-a: the server's time zone is CST; should be UTC") {
		t.Errorf("warnings: %q", warnings)
	}
}

func texts(r *report) (out []string) {
	for _, f := range r.findings {
		word := "DIFFERS "
		if f.warning {
			word = "WARNING "
		}
		out = append(out, word+f.where+": "+f.text)
	}
	slices.Sort(out)
	return out
}

func TestEverySettingIsJudged(t *testing.T) {
	global, session := map[string]string{
		"binlog_expire_logs_seconds": "259200", "table_definition_cache": "801", "table_open_cache": "801",
		"time_zone": "SYSTEM", "system_time_zone": "UTC", "sync_binlog": "1",
	}, map[string]string{"max_allowed_packet": "16777216", "wait_timeout": "300"}
	for _, s := range slices.Concat(settingsUID, settingsAll) {
		global[s.name] = s.want
	}
	for _, s := range sessionSettings {
		session[s.name] = s.want
	}
	uid, bid := host{Server: shardmap.Server{Name: "u"}, uid: true}, host{Server: shardmap.Server{Name: "b"}}
	judge := func(h host, global, session map[string]string) []string {
		var r report
		r.settings(h, global, session, 800)
		return texts(&r)
	}
	if got := append(judge(uid, global, session), judge(bid, global, session)...); len(got) > 0 {
		t.Fatalf("as it should be: %q", got)
	}

	logs := map[string]bool{"binlog_expire_logs_seconds": true}
	for _, s := range settingsUID {
		logs[s.name] = true
	}
	for name, is := range global {
		bad := map[string]string{"binlog_expire_logs_seconds": "3600", "table_definition_cache": "800", "table_open_cache": "400", "sync_binlog": "0",
			"time_zone": "Europe/Berlin", "system_time_zone": "CET"}[name]
		if bad == "" {
			bad = map[string]string{"ON": "OFF", "OFF": "ON", "1": "2", "FULL": "NO_LOG", "ROW": "MIXED"}[is]
		}
		changed := maps.Clone(global)
		changed[name] = bad
		got := judge(uid, changed, session)
		want := "DIFFERS u: " + name + " is " + bad + "; should be "
		if strings.HasSuffix(name, "time_zone") {
			want = "WARNING u: the server's time zone is " + bad + "; should be UTC"
		}
		if name == "log_bin" {
			got = slices.DeleteFunc(got, func(s string) bool { return strings.Contains(s, "sync_binlog") })
		}
		if len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Errorf("%s is %s: %q, want %q", name, bad, got, want)
		}
		if mirror := judge(bid, changed, session); (len(mirror) == 0) != logs[name] {
			t.Errorf("%s is %s on a server without the truth: %q", name, bad, mirror)
		}
	}
	for _, s := range sessionSettings {
		changed := maps.Clone(session)
		changed[s.name] = ""
		if got := judge(bid, global, changed); len(got) != 1 || got[0] != "DIFFERS b: in a session of ours "+s.name+" is empty; should be "+s.want+because(s.why) {
			t.Errorf("%s: %q", s.name, got)
		}
	}
	for _, s := range leastSettings {
		changed := maps.Clone(session)
		changed[s.name] = fmt.Sprint(s.want - 1)
		if got := judge(bid, global, changed); len(got) != 1 || !strings.HasPrefix(got[0], fmt.Sprintf("DIFFERS b: in a session of ours %s is %d; should be at least %d", s.name, s.want-1, s.want)) {
			t.Errorf("%s: %q", s.name, got)
		}
	}
	for kept, want := range map[string]int{"0": 0, "259199": 1, "604800.000000": 0, "": 1} {
		global["binlog_expire_logs_seconds"] = kept
		if got := judge(uid, global, session); len(got) != want {
			t.Errorf("logs are kept %q seconds: %q", kept, got)
		}
	}
	delete(global, "binlog_row_metadata")
	global["binlog_expire_logs_seconds"] = "0"
	if got := judge(uid, global, session); len(got) != 1 || !strings.Contains(got[0], "binlog_row_metadata is unknown to this server") {
		t.Errorf("an old server: %q", got)
	}
}

func TestClocksAreComparedAsFarAsTheyCanBe(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name   string
		clocks []clock
		want   []string
	}{
		{"none answered", []clock{{}}, nil},
		{"a second apart", []clock{{"a", -500 * ms, 0}, {"b", 500 * ms, 0}, {"c", 0, 0}}, nil},
		{"more apart", []clock{{"a", -501 * ms, 0}, {}, {"b", 501 * ms, 0}}, []string{"WARNING b: its clock is 1.002 s ahead of that of a"}},
		{"this machine's is the odd one", []clock{{"a", -1500 * ms, 0}, {"b", -1501 * ms, ms}}, []string{
			"WARNING a: its clock is 1.500 s behind this machine's", "WARNING b: its clock is 1.501 s behind this machine's"}},
		{"the answers took long", []clock{{"a", -1500 * ms, 600 * ms}, {"b", 400 * ms, 600 * ms}}, nil},
	} {
		var r report
		r.clocks(c.clocks)
		if got := texts(&r); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestWorkerNumbersAndTheEndOfTheIDsAreWatched(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name string
		held int
		end  time.Duration
		now  time.Time
		want []string
	}{
		{"one of many", 1, lease.Term, now, nil},
		{"nearly all", 1000, lease.Term, now, []string{"WARNING meta: 1000 of 1024 worker numbers are held"}},
		{"a lease from before the clock was set back", 1, time.Hour, now, []string{"WARNING meta: a worker number is leased until 2026-11-30 13:00:00.000 UTC, in more than 5m0s"}},
		{"a year before the end", 1, 0, idgen.End.AddDate(-1, 0, 1), []string{"WARNING meta: the layout of order ids ends on 2094-09-07"}},
		{"at the end", 1, 0, idgen.End.Add(-time.Minute), []string{"DIFFERS meta: its clock says 2094-09-07"}},
		{"before the beginning", 1, 0, idgen.Epoch.Add(-time.Second), []string{"DIFFERS meta: its clock says 2024-12-31"}},
	} {
		var r report
		r.workers("meta", c.held, c.now.Add(c.end), c.now)
		if got := texts(&r); !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
