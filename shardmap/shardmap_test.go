package shardmap_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/slot"
	"pgregory.net/rapid"
)

// spec returns a correct map of n databases on two servers.
func spec(n int) shardmap.Spec {
	s := shardmap.Spec{
		Epoch:   1,
		Servers: []shardmap.Server{{Name: "uid-a", Address: "127.0.0.1:3311"}, {Name: "bid-a", Address: "127.0.0.1:3312"}},
		Meta:    "uid-a",
	}
	for d := 1; d <= n; d++ {
		s.UID = append(s.UID, shardmap.Placement{Database: d, Server: "uid-a"})
		s.BID = append(s.BID, shardmap.Placement{Database: d, Server: "bid-a"})
	}
	return s
}

func mustNew(t testing.TB, s shardmap.Spec) *shardmap.Map {
	t.Helper()
	m, err := shardmap.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestLocatesTheWorkedExample(t *testing.T) {
	for n, want := range map[int]int{8: 1, 16: 9, 32: 25, 64: 57} {
		m := mustNew(t, spec(n))
		if got := m.Locate(9527); got != (shardmap.Location{Database: want, Table: 7}) {
			t.Errorf("of %d: %+v, want database %d, table 7", n, got, want)
		}
	}
	db := mustNew(t, spec(8)).Database(shardmap.UID, 1)
	if db.Schema != "octopay_uid_01" || db.Server.Address != "127.0.0.1:3311" {
		t.Errorf("database 1 is %+v", db)
	}
}

func TestEverySlotHasExactlyOneOwner(t *testing.T) {
	for _, n := range []int{8, 16, 32, 64} {
		m := mustNew(t, spec(n))
		count := map[shardmap.Location]int{}
		for s := int64(0); s < slot.Count; s++ {
			loc := m.Locate(slot.Count + s)
			if loc.Database < 1 || loc.Database > n {
				t.Fatalf("of %d: slot %d is in database %d", n, s, loc.Database)
			}
			count[loc]++
		}
		if len(count) != n*slot.Tables {
			t.Fatalf("of %d: %d tables hold slots, want %d", n, len(count), n*slot.Tables)
		}
		for loc, c := range count {
			if c != slot.MaxDatabases/n {
				t.Fatalf("of %d: %+v holds %d slots, want %d", n, loc, c, slot.MaxDatabases/n)
			}
		}
	}
}

func TestPlacementByKeyAndByInfoAgree(t *testing.T) {
	maps := []*shardmap.Map{mustNew(t, spec(8)), mustNew(t, spec(16)), mustNew(t, spec(32)), mustNew(t, spec(64))}
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.Int64Range(1, 1<<63-1).Draw(t, "key")
		for i, m := range maps {
			a, b := m.Locate(key), m.LocateInfo(slot.Info(key), slot.Table(key))
			if a != b {
				t.Fatalf("of %d: %+v by key, %+v by info", m.Size(), a, b)
			}
			if i > 0 {
				before := maps[i-1].Locate(key)
				if a.Table != before.Table || a.Database != before.Database && a.Database != before.Database+maps[i-1].Size() {
					t.Fatalf("doubling to %d moves %+v to %+v", m.Size(), before, a)
				}
			}
		}
	})
}

func TestNewFindsEverythingThatIsWrong(t *testing.T) {
	cases := map[string]struct {
		break_ func(*shardmap.Spec)
		want   string
	}{
		"epoch 0":                   {func(s *shardmap.Spec) { s.Epoch = 0 }, "epoch"},
		"no servers":                {func(s *shardmap.Spec) { s.Servers = nil }, "not listed"},
		"a server twice":            {func(s *shardmap.Spec) { s.Servers[1].Name = "uid-a" }, "listed twice"},
		"two names, one address":    {func(s *shardmap.Spec) { s.Servers[1].Address = s.Servers[0].Address }, "one address"},
		"address without port":      {func(s *shardmap.Spec) { s.Servers[0].Address = "db" }, "host:port"},
		"meta nowhere":              {func(s *shardmap.Spec) { s.Meta = "" }, "meta"},
		"seven databases":           {func(s *shardmap.Spec) { s.UID = s.UID[:7] }, "7 databases"},
		"missing slots":             {func(s *shardmap.Spec) { s.UID[2].Database = 2 }, "database 3 is missing"},
		"doubly owned slots":        {func(s *shardmap.Spec) { s.BID[2].Database = 2 }, "two owners"},
		"database out of range":     {func(s *shardmap.Spec) { s.BID[2].Database = 9 }, "outside 1 … 8"},
		"database on no server":     {func(s *shardmap.Spec) { s.BID[2].Server = "x" }, "not listed"},
		"clusters of unequal size":  {func(s *shardmap.Spec) { s.BID = spec(16).BID }, "same number"},
		"prefix that needs quoting": {func(s *shardmap.Spec) { s.Prefix = "a`b" }, "prefix"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := spec(8)
			c.break_(&s)
			_, err := shardmap.New(s)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want one about %q", err, c.want)
			}
		})
	}
	s := spec(8)
	s.Epoch, s.Meta, s.UID[0].Database = -1, "nowhere", 5
	_, err := shardmap.New(s)
	for _, want := range []string{"epoch", "meta", "two owners", "missing"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("all faults at once: %v lacks %q", err, want)
		}
	}
}

func TestParse(t *testing.T) {
	m := mustNew(t, spec(16))
	again, err := shardmap.Parse(m.Text())
	if err != nil {
		t.Fatal(err)
	}
	if again.Hash() != m.Hash() || again.Epoch() != m.Epoch() {
		t.Errorf("the canonical text reads back as another map")
	}
	if m, err := shardmap.Parse([]byte("---\n" + string(m.Text()) + "...\n# the end\n")); err != nil || m.Hash() != again.Hash() {
		t.Errorf("with the marks of one document: %v", err)
	}
	for name, c := range map[string]struct{ text, want string }{
		"nothing":                {"", "it is empty"},
		"only a comment":         {"# later\n", "it is empty"},
		"a word for a number":    {"epoch: one", "line 1"},
		"an unknown field":       {string(m.Text()) + "colour: blue\n", "colour"},
		"two maps":               {string(m.Text()) + "---\n" + string(mustNew(t, spec(8)).Text()), "one document"},
		"a second that is empty": {string(m.Text()) + "---\n", "one document"},
		"a second that is wrong": {string(m.Text()) + "---\n{", "one document"},
	} {
		if _, err := shardmap.Parse([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one about %q", name, err, c.want)
		}
	}
}

func TestHashIsOfTheMapAndNotOfItsLayout(t *testing.T) {
	a, b := spec(8), spec(8)
	slices.Reverse(b.UID)
	slices.Reverse(b.Servers)
	if mustNew(t, a).Hash() != mustNew(t, b).Hash() {
		t.Error("one map, two hashes")
	}
	b.Servers[0].Address = "127.0.0.1:9"
	if mustNew(t, a).Hash() == mustNew(t, b).Hash() {
		t.Error("two maps, one hash")
	}
}

func BenchmarkLocate(b *testing.B) {
	m := mustNew(b, spec(8))
	b.ReportAllocs()
	key, sum := int64(9527), 0
	for b.Loop() {
		sum += m.Locate(key).Database
		key += 7919
	}
	if sum == 0 {
		b.Fatal("located nothing")
	}
}
