package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/mirrorpb"
	"google.golang.org/protobuf/proto"
	"gopkg.in/yaml.v3"
)

// A mirror is a bid cluster with an operator beside it.
type mirror struct {
	c   *cluster.Cluster
	env []string
}

func newMirror(t *testing.T) *mirror {
	s := localstack.Test(t, localstack.BID, localstack.Meta)
	path := filepath.Join(t.TempDir(), "map.yaml")
	if err := os.WriteFile(path, s.Map.Text(), 0o600); err != nil {
		t.Fatal(err)
	}
	return &mirror{
		c:   s.Cluster(t),
		env: []string{"OCTOPAY_MAP_FILE=" + path, "OCTOPAY_DB_USER=" + s.User, "OCTOPAY_DB_PASSWORD=" + s.Password},
	}
}

func (m *mirror) exec(t *testing.T, database int, format string, args ...any) {
	t.Helper()
	db := m.c.Database(shardmap.BID, database)
	c, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.ExecContext(t.Context(), fmt.Sprintf(format, "`"+db.Schema()+"`"), args...); err != nil {
		t.Fatal(err)
	}
}

func (m *mirror) letter(t *testing.T, database int, stream string, seq, item int, payload []byte) {
	t.Helper()
	m.exec(t, database, "INSERT INTO %s.dead_letter (incarnation, stream_seq, item, subject, reason, payload, found_at) VALUES (?, ?, ?, 'mirror.row.0', 'undecodable row', ?, '2026-11-30 12:00:00.123')",
		stream, seq, item, payload)
}

// dead runs octopay mirror dead-letters.
func (m *mirror) dead(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return octopay(t, m.env, append([]string{"mirror", "dead-letters"}, args...)...)
}

// row is the wire form of an order of this merchant.
func row(t *testing.T, bid int64) []byte {
	t.Helper()
	at := schema.MillisOf(idgen.Epoch.Add(1000))
	o := schema.Order{
		ID: idgen.FirstAt(idgen.Epoch.Add(1e9)) | 7, UID: 9527, BID: bid, OutTradeNo: "n", Amount: 1, Currency: "CNY", Subject: "s", Metadata: "{}",
		Status: schema.Created, Ver: 1, CreatedBy: "app", RequestID: "r", ExpiresAt: at, UpdatedAt: at,
	}
	raw, err := proto.Marshal(&mirrorpb.Row{Row: &mirrorpb.Row_Order{Order: mirrorpb.FromOrder(&o)}})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestDeadLetters(t *testing.T) {
	m := newMirror(t)
	code, stdout, stderr := m.dead(t, "list")
	if code != 0 || stdout != "No dead letter is open.\n" || stderr != "" {
		t.Fatalf("none: exit %d, %q, %q", code, stdout, stderr)
	}

	const bid = 1 // database 1, table 1
	m.letter(t, 1, "MIRROR@1", 41, 0, row(t, bid))
	m.letter(t, 1, "MIRROR@1", 42, -1, []byte("\xff\xff"))
	m.letter(t, 3, "MIRROR@1", 43, 5, row(t, bid))
	m.letter(t, 3, "MIRROR@2", 43, 5, []byte("x"))
	code, stdout, _ = m.dead(t, "list")
	for _, want := range []string{"1:41:0 ", "1:42:-1 ", "3:43:5 ", "2026-11-30 12:00:00.123 UTC", "undecodable row", "MIRROR@2", "Open: 4. Shown: 4."} {
		if !strings.Contains(stdout, want) {
			t.Errorf("exit %d, the list lacks %q:\n%s", code, want, stdout)
		}
	}
	if _, stdout, _ := m.dead(t, "list", "--database", "3", "--limit", "1"); !strings.Contains(stdout, "Open: 2. Shown: 1.") || strings.Contains(stdout, "1:41:0") {
		t.Errorf("of database 3:\n%s", stdout)
	}

	for _, bad := range []struct {
		args string
		code int
		want string
	}{
		{"retry", 2, "name letters, or say --all"},
		{"drop --all 1:41:0", 2, "name letters, or say --all"},
		{"drop 41", 2, `"41" is no letter`},
		{"drop 1:44:0 1:41:0", 1, "1:44:0 is not open"},
		{"drop 3:43:5", 1, "3:43:5 names letters of two streams"},
		{"list --database 9", 2, "there is no database 9"},
	} {
		if code, stdout, stderr := m.dead(t, strings.Fields(bad.args)...); code != bad.code || !strings.Contains(stderr, bad.want) || stdout != "" {
			t.Errorf("%s: exit %d, %q, %q", bad.args, code, stdout, stderr)
		}
	}

	// One of two can be applied; the other stays open and says why.
	code, stdout, stderr = m.dead(t, "retry", "1:41:0", "1:42:-1")
	if code != 1 || !strings.Contains(stdout, "1:41:0 is retried\nLetters retried: 1. Still open: 1.") || !strings.Contains(stderr, "1:42:-1: ") {
		t.Errorf("retry: exit %d, %q, %q", code, stdout, stderr)
	}
	db := m.c.Database(shardmap.BID, 1)
	if got := count(t, m, db, "order_1 WHERE uid = 9527"); got != 1 {
		t.Errorf("%d orders came from the letter", got)
	}
	code, stdout, stderr = m.dead(t, "drop", "--stream", "MIRROR@2", "3:43:5")
	if code != 0 || !strings.Contains(stdout, "3:43:5 is dropped\n") || stderr != "" {
		t.Errorf("drop: exit %d, %q, %q", code, stdout, stderr)
	}
	code, stdout, stderr = m.dead(t, "drop", "--all")
	if code != 0 || !strings.Contains(stdout, "Letters dropped: 2. Still open: 0.") {
		t.Errorf("drop all: exit %d, %q, %q", code, stdout, stderr)
	}
	if got := count(t, m, db, "dead_letter WHERE state = 'dropped'"); got != 1 {
		t.Errorf("%d letters of database 1 are dropped", got)
	}
	if _, stdout, _ := m.dead(t, "list"); stdout != "No dead letter is open.\n" {
		t.Errorf("in the end: %s", stdout)
	}
}

func count(t *testing.T, m *mirror, db *cluster.Database, where string) (n int) {
	t.Helper()
	c, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM `"+db.Schema()+"`."+where).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A command that reads puts no map in force.
func TestReadingPutsNoMapInForce(t *testing.T) {
	stack := localstack.Test(t, localstack.BID, localstack.Meta)
	var spec shardmap.Spec
	if err := yaml.Unmarshal(stack.Map.Text(), &spec); err != nil {
		t.Fatal(err)
	}
	db := stack.Admin(t, "uid-a")
	maps := func() (n int) {
		if err := db.QueryRow("SELECT COUNT(*) FROM `" + stack.Map.Meta().Schema + "`.shard_map").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	list := func(epoch shardmap.Epoch) (int, string, string) {
		spec.Epoch = epoch
		path := filepath.Join(t.TempDir(), "map.yaml")
		if err := os.WriteFile(path, mustMap(t, spec).Text(), 0o600); err != nil {
			t.Fatal(err)
		}
		return octopay(t, []string{"OCTOPAY_MAP_FILE=" + path, "OCTOPAY_DB_USER=" + stack.User, "OCTOPAY_DB_PASSWORD=" + stack.Password}, "mirror", "dead-letters", "list")
	}
	for _, when := range []string{"before there is a map", "with a map in force"} {
		for _, epoch := range []shardmap.Epoch{stack.Map.Epoch(), 9} {
			before := maps()
			code, stdout, stderr := list(epoch)
			// Under the file's map of epoch 9 the databases, which obey 1, are none of its.
			works := epoch != 9 || before > 0
			if (code == 0 && stdout == "No dead letter is open.\n") != works || maps() != before {
				t.Errorf("%s, the file's of epoch %d: %d maps, exit %d, %s%s", when, epoch, maps(), code, stdout, stderr)
			}
		}
		if err := cluster.PutMapInForce(t.Context(), stack.Cluster(t), stack.Map); err != nil {
			t.Fatal(err)
		}
	}
	spec.Servers = append(spec.Servers, shardmap.Server{Name: "another", Address: "127.0.0.1:1"})
	if code, _, stderr := list(stack.Map.Epoch()); code != 1 || !strings.Contains(stderr, "two shard maps have one epoch") {
		t.Errorf("another map of this epoch: exit %d, %s", code, stderr)
	}
}
