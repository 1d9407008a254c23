package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/services/internal/boottest"
	"github.com/octopay/octopay/shardmap"
)

// Each setting of a real server is set wrong by itself, and only it is named. What a
// session of ours asks for by itself is not to be said: it is as it should be.
func TestEachWrongSettingOfAServerIsNamed(t *testing.T) {
	s := localstack.Private(t, localstack.Options{Need: []localstack.Need{localstack.UID, localstack.Meta, localstack.BID}})
	e := &estate{stack: s, c: s.Cluster(t), env: without(boottest.Environ(t, s, s.Map), "OCTOPAY_NATS_URL")}
	if _, err := cluster.ResolveMap(t.Context(), e.c, s.Map); err != nil {
		t.Fatal(err)
	}
	admin := s.Admin(t, "uid-a")
	// More tables than the least that table_definition_cache can be; some are others'.
	exec := func(statement string) {
		t.Helper()
		if _, err := admin.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(statement, err)
		}
	}
	exec("CREATE DATABASE elsewhere")
	for i := range 250 {
		exec(fmt.Sprintf("CREATE TABLE elsewhere.t%d (id INT)", i))
	}
	if code, differs, warnings, all := e.check(t); code != 0 || len(differs)+len(warnings) > 0 {
		t.Fatalf("as it should be: exit %d\n%s", code, all)
	}
	session := func(name, value, rest string) (string, string, []string) {
		return "init_connect", "'SET SESSION " + name + " = " + value + "'", []string{"uid-a: in a session of ours " + name + " is " + rest}
	}
	type wrong struct {
		name, value string // of the variable
		differs     []string
		warns       string
	}
	one := func(name, value, want string) wrong {
		return wrong{name: name, value: value, differs: []string{"uid-a: " + name + " is " + want}}
	}
	inSession := func(name, value, want string) wrong {
		variable, set, differs := session(name, value, want)
		return wrong{name: variable, value: set, differs: differs}
	}
	for _, c := range []wrong{
		one("binlog_format", "'STATEMENT'", "STATEMENT; should be ROW"),
		one("binlog_row_image", "'NOBLOB'", "NOBLOB; should be FULL"),
		one("binlog_row_metadata", "'NO_LOG'", "NO_LOG; should be FULL"),
		one("binlog_annotate_row_events", "ON", "ON; should be OFF"),
		one("gtid_strict_mode", "OFF", "OFF; should be ON"),
		one("sync_binlog", "1000", "1000; should be 1"),
		one("innodb_flush_log_at_trx_commit", "0", "0; should be 1"),
		one("binlog_expire_logs_seconds", "86400", "86400"),
		one("table_definition_cache", "400", "400; should be above "),
		one("table_open_cache", "200", "200; should be above "),
		one("read_only", "ON", "ON; should be OFF"),

		// Our sessions set these.
		{name: "sql_mode", value: "'ANSI'"},
		{name: "tx_isolation", value: "'REPEATABLE-READ'"},
		{name: "innodb_lock_wait_timeout", value: "50"},
		{name: "lock_wait_timeout", value: "86400"},
		{name: "idle_transaction_timeout", value: "0"},
		{name: "character_set_server", value: "latin1"},
		{name: "character_set_client", value: "latin1"},
		{name: "collation_connection", value: "latin1_swedish_ci"},
		// And these not.
		{name: "max_statement_time", value: "5", differs: []string{"uid-a: in a session of ours max_statement_time is 5.000000; should be 0.000000"}},
		{name: "max_allowed_packet", value: "1048576", differs: []string{"uid-a: in a session of ours max_allowed_packet is 1048576; should be at least 16777216"}},
		{name: "wait_timeout", value: "60", differs: []string{"uid-a: in a session of ours wait_timeout is 60; should be at least 300"}},
		{name: "tx_read_only", value: "ON", differs: []string{"uid-a: in a session of ours tx_read_only is ON; should be OFF"}},
		inSession("autocommit", "0", "OFF; should be ON"),
		inSession("completion_type", "1", "CHAIN; should be NO_CHAIN"),
		inSession("sql_select_limit", "1000", "1000; should be 18446744073709551615"),
		inSession("unique_checks", "0", "OFF; should be ON"),

		{name: "time_zone", value: "'+08:00'", warns: "uid-a: the server's time zone is +08:00; should be UTC"},
		// The clock, of this server alone: the other's is right.
		{name: "init_connect", value: "'SET SESSION timestamp = UNIX_TIMESTAMP() + 20'", warns: "uid-a: its clock is "},
	} {
		var before string
		if err := admin.QueryRowContext(t.Context(), "SELECT @@GLOBAL."+c.name).Scan(&before); err != nil {
			t.Fatal(c.name, err)
		}
		set := func(value string) { t.Helper(); exec("SET GLOBAL " + c.name + " = " + value) }
		set(c.value)
		code, differs, warnings, all := e.check(t)
		// A text of digits alone is a number to SET.
		if strings.Trim(before, "0123456789.") == "" && before != "" {
			set(before)
		} else {
			set("'" + before + "'")
		}
		wantCode := min(len(c.differs), 1)
		right := code == wantCode && slices.EqualFunc(differs, c.differs, strings.HasPrefix)
		switch {
		case c.warns == "":
			right = right && len(warnings) == 0
		case strings.Contains(c.warns, "clock"):
			// They are sorted by their text, and how far ahead it is differs by a ms.
			ahead := func(of string) bool {
				return slices.ContainsFunc(warnings, func(w string) bool { return strings.HasPrefix(w, c.warns) && strings.HasSuffix(w, "ahead of "+of) })
			}
			right = right && len(warnings) == 2 && ahead("that of bid-a") && ahead("this machine's")
		default:
			right = right && len(warnings) == 1 && strings.HasPrefix(warnings[0], c.warns)
		}
		if !right {
			t.Errorf("%s = %s: exit %d, want %d and %q %q:\n%s", c.name, c.value, code, wantCode, c.differs, c.warns, all)
		}
	}

	// Fault 11: the layout of ids has an end, and a beginning, which a clock can leave.
	exec(`SET GLOBAL init_connect = 'SET SESSION timestamp = UNIX_TIMESTAMP("2024-12-31 12:00:00")'`)
	want := "octopay_meta@uid-a: its clock says 2024-12-31 12:00:00.000 UTC; the layout of order ids has times from 2025-01-01 to 2094-09-07"
	if code, differs, _, all := e.check(t); code != 1 || !slices.Equal(differs, []string{want}) {
		t.Errorf("before the layout begins: exit %d\n%s", code, all)
	}
}

// A server that can't be set right while it runs, and one without a binary log.
func TestAServerWithoutABinaryLogIsNamed(t *testing.T) {
	s := localstack.Private(t, localstack.Options{
		Need: []localstack.Need{localstack.UID, localstack.Meta, localstack.BID},
		Args: []string{"--skip-log-bin", "--log-slave-updates=OFF", "--max-prepared-stmt-count=0"},
	})
	e := &estate{stack: s, c: s.Cluster(t), env: without(boottest.Environ(t, s, s.Map), "OCTOPAY_NATS_URL")}
	if _, err := cluster.ResolveMap(t.Context(), e.c, s.Map); err != nil {
		t.Fatal(err)
	}
	code, differs, warnings, all := e.check(t)
	if want := []string{"uid-a: log_bin is OFF; should be ON", "uid-a: log_slave_updates is OFF; should be ON"}; code != 1 || len(warnings) > 0 || !slices.EqualFunc(differs, want, strings.HasPrefix) {
		t.Errorf("exit %d:\n%s", code, all)
	}
}

// What a session must see is judged by what it does see: pools of other settings than
// ours, on a real server.
func TestEachWrongSettingOfASessionIsNamed(t *testing.T) {
	s := localstack.Test(t, localstack.UID)
	server := s.Map.Servers(shardmap.UID)[0]
	for _, c := range []struct{ name, value, want string }{
		{"tx_isolation", "'REPEATABLE-READ'", "REPEATABLE-READ; should be READ-COMMITTED"},
		{"sql_mode", "''", "empty; should be STRICT_ALL_TABLES"},
		{"sql_mode", "'STRICT_ALL_TABLES,ANSI_QUOTES'", "ANSI_QUOTES,STRICT_ALL_TABLES; should be STRICT_ALL_TABLES"},
		{"time_zone", "'SYSTEM'", "SYSTEM; should be +00:00"},
		{"innodb_lock_wait_timeout", "50", "50; should be 1"},
		{"lock_wait_timeout", "86400", "86400; should be 2"},
		{"idle_transaction_timeout", "0", "0; should be 2"},
		{"character_set_client", "latin1", "latin1; should be utf8mb4"},
		{"character_set_results", "latin1", "latin1; should be utf8mb4"},
		{"collation_connection", "utf8mb4_general_ci", "utf8mb4_general_ci; should be utf8mb4_bin"},
	} {
		db := cluster.OpenServer(server, cluster.Config{User: s.User, Password: s.Password})
		db.SetMaxOpenConns(1) // what is set stays
		if _, err := db.ExecContext(t.Context(), "SET SESSION "+c.name+" = "+c.value); err != nil {
			t.Fatal(c.name, err)
		}
		var r report
		_, err := r.server(t.Context(), db, host{Server: server}, s.Map.Prefix()+"nothing")
		if want := []string{"DIFFERS uid-a: in a session of ours " + c.name + " is " + c.want}; err != nil || !slices.Equal(texts(&r), want) {
			t.Errorf("%s = %s: %q, %v; want %q", c.name, c.value, texts(&r), err, want)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The measurement itself, of a server whose clock is this machine's, and of sessions of
// it in which time is another.
func TestAClockIsMeasured(t *testing.T) {
	s := localstack.Test(t, localstack.UID)
	db := cluster.OpenServer(s.Map.Servers(shardmap.UID)[0], cluster.Config{User: s.User, Password: s.Password})
	t.Cleanup(func() { _ = db.Close() })
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// UTC_TIMESTAMP is cut to µs.
	if c, err := measure(t.Context(), conn, "uid-a"); err != nil || c.server != "uid-a" || c.ahead.Abs() > c.within+time.Millisecond || c.within <= 0 {
		t.Errorf("a right clock: %+v, %v", c, err)
	}
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		began := time.Now()
		if _, err := conn.ExecContext(t.Context(), fmt.Sprintf("SET SESSION timestamp = UNIX_TIMESTAMP() + %d", int(ahead.Seconds()))); err != nil {
			t.Fatal(err)
		}
		c, err := measure(t.Context(), conn, "uid-a")
		// It stands still from when it was set, which is cut to seconds.
		off := time.Since(began) + time.Second
		if err != nil || math.Abs(float64(c.ahead-ahead)) > float64(off+c.within) {
			t.Errorf("%s ahead: %+v, %v; it may be off by %s", ahead, c, err, off)
		}
		var r report
		r.clocks([]clock{c})
		if got := texts(&r); len(got) != 1 || !strings.HasPrefix(got[0], "WARNING uid-a: its clock is ") {
			t.Errorf("%s ahead: %q", ahead, got)
		}
		if _, err := conn.ExecContext(t.Context(), "SET SESSION timestamp = DEFAULT"); err != nil {
			t.Fatal(err)
		}
	}
}
