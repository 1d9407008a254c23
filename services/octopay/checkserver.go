package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/octopay/octopay/shardmap"
)

// A host is a server of the map and what it is for.
type host struct {
	shardmap.Server
	uid       bool            // it has databases of the truth, so its binary log is read
	databases int             // of the map
	schemas   map[string]bool // their names
}

func serversOf(m *shardmap.Map) (out []host) {
	at := func(s shardmap.Server) *host {
		i := slices.IndexFunc(out, func(h host) bool { return h.Name == s.Name })
		if i < 0 {
			i, out = len(out), append(out, host{Server: s, schemas: map[string]bool{}})
		}
		return &out[i]
	}
	for _, d := range placesOf(m) {
		h := at(d.Server)
		h.uid = h.uid || d.Cluster == shardmap.UID
		h.databases++
		h.schemas[d.Schema] = true
	}
	slices.SortFunc(out, func(a, b host) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// A setting is a variable of a server and what it must be.
type setting struct {
	name string
	want string
	why  string
}

// settingsUID are what the collector needs of a binary log, see package syncer.
var settingsUID = []setting{
	{"log_bin", "ON", "the mirror is made from the binary log"},
	{"binlog_format", "ROW", "the mirror is made from rows"},
	{"binlog_row_image", "FULL", "the mirror needs every column of a row"},
	{"binlog_row_metadata", "FULL", "columns are found by name"},
	{"binlog_annotate_row_events", "OFF", "every statement's text would be in the log"},
	{"gtid_strict_mode", "ON", "positions must rise"},
	{"log_slave_updates", "ON", "a replica that takes over must have the log"},
}

// settingsAll are those of every server.
var settingsAll = []setting{
	{"innodb_flush_log_at_trx_commit", "1", "what was acknowledged must outlive a crash"},
	{"read_only", "OFF", "it is to be written"},
}

// sessionSettings are what a session of ours asks for, and must see, and those that it
// leaves to the server, of which another value would change what its statements do.
var sessionSettings = []setting{
	{name: "tx_isolation", want: "READ-COMMITTED"},
	{name: "sql_mode", want: "STRICT_ALL_TABLES"},
	{name: "time_zone", want: "+00:00"},
	{name: "innodb_lock_wait_timeout", want: "1"},
	{name: "lock_wait_timeout", want: "2"},
	{name: "idle_transaction_timeout", want: "2"},
	{name: "character_set_client", want: "utf8mb4"},
	{name: "character_set_connection", want: "utf8mb4"},
	{name: "character_set_results", want: "utf8mb4"},
	{name: "collation_connection", want: "utf8mb4_bin"},

	{name: "autocommit", want: "ON"},
	{name: "completion_type", want: "NO_CHAIN", why: "COMMIT must not begin another transaction"},
	{name: "max_statement_time", want: "0.000000", why: "a statement that is cut has an unknown outcome"},
	{name: "sql_log_bin", want: "ON", why: "the mirror is made from the binary log"},
	{name: "sql_select_limit", want: "18446744073709551615", why: "every row must be seen"},
	{name: "tx_read_only", want: "OFF", why: "it is to write"},
	{name: "unique_checks", want: "ON", why: "unique keys decide which order is first"},
}

// leastSettings are numbers that a session may have more of.
var leastSettings = []struct {
	name string
	want int
	why  string
}{
	{"max_allowed_packet", 16 << 20, "a batch of orders, and one of the mirror, is one packet"},
	{"wait_timeout", 300, "connections are kept for four minutes"},
}

// binlogKept is the least binlog_expire_logs_seconds: three days, in which a mirror that
// stands still can be brought back.
const binlogKept = 259200

// server checks the settings of a server and measures its clock.
func (r *report) server(ctx context.Context, db *sql.DB, h host, prefix string) (clock, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return clock{}, err
	}
	defer func() { _ = conn.Close() }()
	clock, err := measure(ctx, conn, h.Name)
	if err != nil {
		return clock, err
	}
	global, err := variables(ctx, conn, "SHOW GLOBAL VARIABLES")
	if err != nil {
		return clock, err
	}
	session, err := variables(ctx, conn, "SHOW SESSION VARIABLES")
	if err != nil {
		return clock, err
	}
	tables, err := countTables(ctx, conn)
	if err != nil {
		return clock, err
	}
	r.settings(h, global, session, tables)
	if err := r.strays(ctx, conn, h, prefix); err != nil {
		return clock, err
	}
	if h.uid {
		return clock, r.filters(ctx, conn, h)
	}
	return clock, nil
}

// countTables counts the tables of a server, those of others among them as far as the
// account may see them. Nothing is asked of a table but its name, or the server would open
// them all.
func countTables(ctx context.Context, conn *sql.Conn) (n int, err error) {
	if err := conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema <> 'information_schema'").Scan(&n); err != nil {
		return 0, err
	}
	var all int // of InnoDB
	err = conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.innodb_sys_tables").Scan(&all)
	if refused := new(mysql.MySQLError); errors.As(err, &refused) && refused.Number == 1227 {
		err = nil // the account lacks the right PROCESS
	}
	return max(n, all), err
}

// settings judges the variables of a server that has so many tables.
func (r *report) settings(h host, global, session map[string]string, tables int) {
	want := settingsAll
	if h.uid {
		want = slices.Concat(settingsUID, want)
	}
	if global["log_bin"] == "ON" {
		// Otherwise a crash of the machine rolls back what is committed and not in the log.
		want = append(slices.Clone(want), setting{"sync_binlog", "1", "what was acknowledged must outlive a crash"})
	}
	for _, s := range want {
		if is, there := global[s.name]; !there || !strings.EqualFold(is, s.want) {
			r.differs(h.Name, "%s is %s; should be %s: %s", s.name, shown(is, there), s.want, s.why)
		}
	}
	for _, s := range sessionSettings {
		if is, there := session[s.name]; !there || is != s.want {
			r.differs(h.Name, "in a session of ours %s is %s; should be %s%s", s.name, shown(is, there), s.want, because(s.why))
		}
	}
	for _, s := range leastSettings {
		if n, err := strconv.Atoi(session[s.name]); err != nil || n < s.want {
			r.differs(h.Name, "in a session of ours %s is %s; should be at least %d: %s", s.name, shown(session[s.name], true), s.want, s.why)
		}
	}
	if h.uid {
		// 0 keeps them for ever.
		if kept, err := strconv.ParseFloat(global["binlog_expire_logs_seconds"], 64); err != nil || kept != 0 && kept < binlogKept {
			r.differs(h.Name, "binlog_expire_logs_seconds is %s; should be at least %d: what the mirror has not read yet must be kept", global["binlog_expire_logs_seconds"], binlogKept)
		}
	}
	for _, name := range []string{"table_definition_cache", "table_open_cache"} {
		if n, err := strconv.Atoi(global[name]); err != nil || n <= tables {
			r.differs(h.Name, "%s is %s; should be above %d, the number of tables", name, global[name], tables)
		}
	}
	// Every session of ours has a time zone of its own. What is left to the server's is the
	// start of a transaction, which the collector reads.
	if zone := serverZone(global); !isUTC(zone) {
		r.warn(h.Name, "the server's time zone is %s; should be UTC: where clocks are set back, the mirror's marks stand still for an hour a year", zone)
	}
}

// filters finds databases that are left out of the binary log.
func (r *report) filters(ctx context.Context, conn *sql.Conn, h host) (err error) {
	rows, err := conn.QueryContext(ctx, "SHOW MASTER STATUS") // File, Position, Binlog_Do_DB, Binlog_Ignore_DB
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var file, position, do, ignore string
		if err := rows.Scan(&file, &position, &do, &ignore); err != nil {
			return err
		}
		if do != "" {
			r.differs(h.Name, "binlog_do_db is %s; should be empty: the mirror needs every database", do)
		}
		if ignore != "" {
			r.differs(h.Name, "binlog_ignore_db is %s; should be empty: the mirror needs every database", ignore)
		}
	}
	return rows.Err()
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

func shown(value string, there bool) string {
	switch {
	case !there:
		return "unknown to this server"
	case value == "":
		return "empty"
	}
	return value
}

// serverZone is the zone of a session that asks for none.
func serverZone(global map[string]string) string {
	if zone := global["time_zone"]; zone != "SYSTEM" {
		return zone
	}
	return global["system_time_zone"]
}

func isUTC(zone string) bool {
	return slices.Contains([]string{"UTC", "ETC/UTC", "+00:00", "GMT", "UCT", "UNIVERSAL", "ZULU"}, strings.ToUpper(zone))
}

func variables(ctx context.Context, conn *sql.Conn, query string) (_ map[string]string, err error) {
	rows, err := conn.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	out := map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		out[name] = value
	}
	return out, rows.Err()
}

// A clock is how far a server's clock is ahead of this machine's, and how far that
// figure can be off.
type clock struct {
	server        string // "" is none
	ahead, within time.Duration
}

// clockMost is how far clocks may be apart without a warning.
const clockMost = time.Second

// measure asks for the time several times and keeps the answer that took the shortest.
func measure(ctx context.Context, conn *sql.Conn, server string) (best clock, err error) {
	for range 5 {
		var there time.Time
		sent := time.Now()
		if err := conn.QueryRowContext(ctx, "SELECT UTC_TIMESTAMP(6)").Scan(&there); err != nil {
			return best, err
		}
		half := time.Since(sent) / 2
		if best.server == "" || half < best.within {
			best = clock{server, there.Sub(sent.Add(half)), half}
		}
	}
	return best, nil
}

// clocks compares the clocks of servers with this machine's and with each other.
func (r *report) clocks(all []clock) {
	all = slices.DeleteFunc(slices.Clone(all), func(c clock) bool { return c.server == "" })
	if len(all) == 0 {
		return
	}
	var texts []string
	for _, c := range all {
		texts = append(texts, fmt.Sprintf("%s %+d ms", c.server, c.ahead.Milliseconds()))
		if c.ahead.Abs()-c.within > clockMost {
			r.warn(c.server, "its clock is %s this machine's", apart(c.ahead))
		}
	}
	r.note("Clocks, against this machine's: %s.", strings.Join(texts, ", "))
	byTime := func(a, b clock) int { return cmp.Compare(a.ahead, b.ahead) }
	slow, fast := slices.MinFunc(all, byTime), slices.MaxFunc(all, byTime)
	if d := fast.ahead - slow.ahead; d-fast.within-slow.within > clockMost {
		r.warn(fast.server, "its clock is %s that of %s", apart(d), slow.server)
	}
}

func apart(d time.Duration) string {
	if d < 0 {
		return fmt.Sprintf("%.3f s behind", -d.Seconds())
	}
	return fmt.Sprintf("%.3f s ahead of", d.Seconds())
}
