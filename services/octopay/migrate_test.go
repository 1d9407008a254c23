package main

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/faultproxy"
	"github.com/octopay/octopay/lease"
	"github.com/octopay/octopay/shardmap"
)

// One site for all, in this order: to make seventeen databases takes seconds.
func TestMigrate(t *testing.T) {
	s := newSite(t)
	for _, step := range []struct {
		name string
		test func(*testing.T, *site)
	}{
		{"a first migration is cut off", firstIsCut},
		{"what it made may not get lost, and the rest is made", firstLost},
		{"every database is there, and nothing left to do", makesEveryDatabase},
		{"it refuses a database that is being migrated", refusesTwoAtOnce},
		{"it refuses while another one is at work", refusesAnother},
		{"with another map of this epoch it touches nothing", refusesAConflict},
		{"a database that is lost is not made again, empty", refusesLost},
		{"a wrong line in a map changes nothing", refusesWrongMaps},
		{"it names the databases of a server that is away", namesWhatFailed},
		{"of two at once with maps of one epoch one wins", oneOfTwoMaps},
		{"an address may change", changesAnAddress},
		{"a cut on the way to a newer map is mended by the next", newerIsCut},
		{"a database is moved with its data", movesADatabase},
		{"it uses the newer map of the meta database", usesTheNewerMap},
		{"the meta database is moved with its data", movesMeta},
		{"the meta database is lost", losesMeta},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.test(t, s) }) {
			return
		}
	}
}

func firstIsCut(t *testing.T, s *site) {
	cut := s.proxy.Arm(faultproxy.BeforePacket, func(packet []byte) bool { return strings.Contains(string(packet), "EXISTS order_7") })
	code, stdout, stderr := s.migrate(t, s.spec)
	select {
	case <-cut.Done():
	default:
		t.Fatal("the cut did not happen")
	}
	if code != 1 || !strings.Contains(stdout, "None of these databases is there: this is a new installation.") || strings.Count(stdout, "is up to date\n") != 16 ||
		!strings.Contains(stderr, "1 of 17 databases failed") || !strings.Contains(stderr, "The map of epoch 3 is not in force.") {
		t.Errorf("exit %d:\n%s%s", code, stdout, stderr)
	}
	if got := s.text(t, "uid-a", "SELECT COUNT(*) FROM `"+s.meta(t).Schema+"`.shard_map"); got != "0" {
		t.Errorf("%s maps are in force", got)
	}
}

func firstLost(t *testing.T, s *site) {
	s.exec(t, "uid-a", "DROP DATABASE `"+s.uid(t, 5).Schema+"`")
	s.refuses(t, s.spec, "uid:5: it was made, and is not on server uid-a: refusing to make it empty")
	if code, _, stderr := s.migrate(t, s.spec, "--empty", "uid:05"); code != 2 || !strings.Contains(stderr, "--empty uid:05: that is no database of the map") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	s.works(t, s.spec, "17 databases are up to date", "--empty", "uid:5")
}

func makesEveryDatabase(t *testing.T, s *site) {
	s.works(t, s.spec, "17 databases are up to date. The map of epoch 3 is in force")
	if n := len(s.schemas(t, "uid-a")) + len(s.schemas(t, "bid-a")); n != 17 {
		t.Errorf("%d databases", n)
	}
	m := mustMap(t, s.spec)
	for _, place := range clustersOf(m) {
		s.text(t, place.Server.Name, "SELECT COUNT(*) FROM `"+place.Schema+"`.order_9")
	}
	// It is the first meta database: nobody has a worker number that it doesn't know.
	if err := s.number(t, "worker/5"); err != nil && !errors.Is(err, lease.ErrTaken) {
		t.Error(err)
	}
}

// A migration holds a lock of its database; here the test holds two of them.
func refusesTwoAtOnce(t *testing.T, s *site) {
	defer s.locked(t, "uid-a", "octopay_migrate:"+s.spec.Prefix+"octopay_uid_03", "octopay_migrate:"+s.spec.Prefix+"octopay_uid_08")()
	code, stdout, stderr := s.migrate(t, s.spec)
	if code != 1 || strings.Count(stdout, "is up to date\n") != 15 || strings.Count(stdout, "failed\n") != 2 {
		t.Errorf("exit %d:\n%s", code, stdout)
	}
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	if len(lines) != 3 || lines[0] != "octopay: 2 of 17 databases failed:" ||
		!strings.Contains(lines[1], "octopay_uid_03@uid-a: ") || !strings.Contains(lines[2], "octopay_uid_08@uid-a: ") ||
		!strings.Contains(lines[1], "another migration of this database is running; wait") {
		t.Errorf("it says:\n%s", stderr)
	}
}

func refusesAnother(t *testing.T, s *site) {
	defer s.locked(t, "uid-a", "octopay_installation:"+s.meta(t).Schema)()
	s.refuses(t, s.spec, "another octopay migrate is at work")
}

func another(s *shardmap.Spec) {
	s.Servers = append(s.Servers, shardmap.Server{Name: "another", Address: "127.0.0.1:1"})
}

func refusesAConflict(t *testing.T, s *site) {
	other := s.with(3, another)
	s.refuses(t, other, mustMap(t, s.spec).Hash())
	s.refuses(t, other, mustMap(t, other).Hash())
}

// An order of a lost database is "not found", and the client's retry makes it again.
func refusesLost(t *testing.T, s *site) {
	place := s.uid(t, 3)
	s.exec(t, "uid-a", "RENAME TABLE `"+place.Schema+"`.owner TO `"+s.meta(t).Schema+"`.kept")
	s.refuses(t, s.spec, "uid:3: it was made, and is not on server uid-a: refusing to make it empty")
	s.refuses(t, s.with(4), "uid:3: it was made")
	s.exec(t, "uid-a", "DROP DATABASE `"+place.Schema+"`")
	s.refuses(t, s.spec, "uid:3: it was made")
	s.refuses(t, s.with(4), "uid:3: it was made")
	// Neither where it was registered nor where others wrote no register.
	s.exec(t, "uid-a", "CREATE TABLE `"+s.meta(t).Schema+"`.register AS SELECT * FROM `"+s.meta(t).Schema+"`.database_made")
	s.exec(t, "uid-a", "DELETE FROM `"+s.meta(t).Schema+"`.database_made")
	s.refuses(t, s.spec, "uid:3: it was made")
	s.exec(t, "uid-a", "INSERT INTO `"+s.meta(t).Schema+"`.database_made SELECT * FROM `"+s.meta(t).Schema+"`.register")
	s.exec(t, "uid-a", "DROP TABLE `"+s.meta(t).Schema+"`.register, `"+s.meta(t).Schema+"`.kept")
	s.works(t, s.spec, "The map of epoch 3 is in force", "--empty", "uid:3")
}

func refusesWrongMaps(t *testing.T, s *site) {
	for _, c := range []struct {
		name   string
		change func(*shardmap.Spec)
		want   string
		flags  []string
	}{
		{"a server", uid3OnBidA, "uid:3: it was on server uid-a, and is on bid-a by this map", nil},
		{"a server, and its data isn't there", uid3OnBidA, "uid:3: it was moved from server uid-a to bid-a, and is not there", []string{"--moved", "uid:3", "--empty", "uid:3"}},
		{"a server of the mirror", func(s *shardmap.Spec) { s.BID[4].Server = "uid-a" }, "bid:5: it was on server bid-a", nil},
		{"an address", func(s *shardmap.Spec) {
			s.Servers = s.Servers[:1]
			s.Servers = append(s.Servers, shardmap.Server{Name: "bid-a", Address: strings.Replace(s.Servers[0].Address, "127.0.0.1", "localhost", 1)})
		}, "bid:8: server bid-a had address", nil},
		{"a name", func(s *shardmap.Spec) {
			s.Servers[1].Name = "bid-b"
			for i := range s.BID {
				s.BID[i].Server = "bid-b"
			}
		}, "bid:8: it was on server bid-a, and is on bid-b by this map", nil},
		{"the meta database", metaOnBidA, "meta: databases of this map are there, uid:1 for one, but not their meta database on server bid-a", nil},
		{"the meta database, and its data isn't there", metaOnBidA, "meta: databases of this map are there", []string{"--moved", "meta"}},
		{"the number", sixteen, "the map has 16 databases in each cluster, the map in force 8", nil},
		{"a server that is away", func(s *shardmap.Spec) { s.Servers[1].Address = "127.0.0.1:1" }, "bid:8: server bid-a can't be asked for it", nil},
		{"the meta database on a server that is away", func(s *shardmap.Spec) { another(s); s.Meta = "another" }, "octopay_meta@another", nil},
	} {
		t.Run(c.name, func(t *testing.T) { s.refuses(t, s.with(4, c.change), c.want, c.flags...) })
	}
	s.holds(t)
}

func namesWhatFailed(t *testing.T, s *site) {
	s.proxy.Refuse(true)
	defer s.proxy.Refuse(false)
	code, stdout, stderr := s.migrate(t, s.spec)
	if code != 1 || strings.Count(stdout, "is up to date\n") != 9 || strings.Count(stderr, "@bid-a: ") != 8 || !strings.Contains(stderr, "8 of 17 databases failed") {
		t.Errorf("exit %d:\n%s\n%s", code, stdout, stderr)
	}
	s.refuses(t, s.with(4), "bid:8: server bid-a can't be asked for it")
}

func oneOfTwoMaps(t *testing.T, s *site) {
	specs := [2]shardmap.Spec{s.with(4), s.with(4, another)}
	var codes [2]int
	var errs [2]string
	var wait sync.WaitGroup
	for i := range specs {
		wait.Go(func() { codes[i], _, errs[i] = s.migrate(t, specs[i]) })
	}
	wait.Wait()
	winner := 0
	if codes[0] != 0 {
		winner = 1
	}
	loser := errs[1-winner]
	if codes[winner] != 0 || codes[1-winner] != 1 || !strings.Contains(loser, "another octopay migrate is at work") && !strings.Contains(loser, "two shard maps have one epoch") {
		t.Fatalf("exits %v: %q", codes, errs)
	}
	s.spec = specs[winner]
	s.holds(t)
	s.refuses(t, specs[1-winner], "two shard maps have one epoch")
}

func changesAnAddress(t *testing.T, s *site) {
	other := faultproxy.New(t, s.proxy.Addr())
	s.works(t, s.with(5, func(s *shardmap.Spec) { s.Servers[1].Address = other.Addr() }), "The map of epoch 5 is in force")
	if other.Accepted() == 0 {
		t.Error("nothing went to the new address")
	}
	proxy := s.proxy.Addr()
	s.works(t, s.with(6, func(s *shardmap.Spec) { s.Servers[1].Address = proxy }), "The map of epoch 6 is in force")
}

func newerIsCut(t *testing.T, s *site) {
	m := mustMap(t, s.spec)
	obey := func() string {
		var out []string
		for _, place := range clustersOf(m) {
			out = append(out, strings.Fields(s.owner(t, place))[2])
		}
		return strings.Join(out, "")
	}
	before := strings.Repeat("6", 16)
	// One that can't be brought up to date keeps all of them under the old map.
	unlock := s.locked(t, "uid-a", "octopay_migrate:"+s.uid(t, 2).Schema)
	code, _, stderr := s.migrate(t, s.with(7))
	unlock()
	if code != 1 || !strings.Contains(stderr, "1 of 17 databases failed") || !strings.Contains(stderr, "The map of epoch 7 is not in force") || obey() != before {
		t.Errorf("exit %d, the databases obey %s: %s", code, obey(), stderr)
	}
	s.holds(t)
	// A later cut leaves some under each.
	cut := s.proxy.Arm(faultproxy.BeforePacket, func(packet []byte) bool { return strings.Contains(string(packet), "INTO owner") })
	code, _, stderr = s.migrate(t, s.with(7))
	select {
	case <-cut.Done():
	default:
		t.Fatal("the cut did not happen")
	}
	if code != 1 || !strings.Contains(stderr, "The map of epoch 7 is not in force") || strings.Count(obey(), "6") != 1 || strings.Count(obey(), "7") != 15 {
		t.Errorf("exit %d, the databases obey %s: %s", code, obey(), stderr)
	}
	s.refuses(t, s.with(6), "obeys a newer map: its epoch is 7, ours 6; get the newer map")
	s.works(t, s.with(7), "The map of epoch 7 is in force")
}

func movesADatabase(t *testing.T, s *site) {
	old := s.uid(t, 3)
	s.copied(t, old, "bid-a", "owner")
	s.exec(t, "bid-a", "INSERT INTO `"+old.Schema+"`.journal_1 SELECT 1, 2, 3, 4, 'pay:a:b', 'paid', 5, 'CNY', 'created', 'paid', NULL, NULL, 'channel', NULL, 'r', NOW(3), NOW(3), NULL")
	s.refuses(t, s.with(8, uid3OnBidA), "if its data was brought there, say --moved uid:3")
	s.works(t, s.with(8, uid3OnBidA), "The map of epoch 8 is in force", "--moved", "uid:3")
	if got := s.text(t, "bid-a", "SELECT COUNT(*) FROM `"+old.Schema+"`.journal_1"); got != "1" {
		t.Errorf("%s rows of what was brought there", got)
	}
	// Whoever still follows the map before can't write to the place that was left.
	if got := s.owner(t, old); got != "uid 3 8" {
		t.Errorf("the place that was left is %q", got)
	}
	s.works(t, s.spec, "The map of epoch 8 is in force")
	s.exec(t, "uid-a", "DROP DATABASE `"+old.Schema+"`") // it is not missed
	s.works(t, s.spec, "The map of epoch 8 is in force")
}

func usesTheNewerMap(t *testing.T, s *site) {
	old := s.spec
	m := mustMap(t, s.with(9))
	c := cluster.Open(m, s.access)
	err := cluster.PutMapInForce(t.Context(), c, m)
	if err := errors.Join(err, c.Close()); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := s.migrate(t, old)
	if code != 0 || !strings.Contains(stdout, "The map file has epoch 8. The meta database has a newer map, of epoch 9") || !strings.Contains(stdout, "The map of epoch 9 is in force") {
		t.Errorf("exit %d:\n%s\n%s", code, stdout, stderr)
	}
	s.spec = s.with(9)
	s.holds(t)
}

// By the copy a number is free that its holder has renewed since.
func movesMeta(t *testing.T, s *site) {
	s.exec(t, "uid-a", "REPLACE INTO `"+s.meta(t).Schema+"`.lease VALUES ('worker/5', 'a', 7, 1)")
	s.copied(t, s.meta(t), "bid-a", "lease", "shard_map", "database_made")
	s.refuses(t, s.with(10, metaOnBidA), "meta: it was on server uid-a, and is on bid-a by this map")
	s.works(t, s.with(10, metaOnBidA), "Worker numbers are given out from ", "--moved", "meta")
	if err := s.number(t, "worker/5"); !errors.Is(err, lease.ErrClosed) {
		t.Errorf("a number at once: %v", err)
	}
	s.later(t, lease.Term+time.Second)
	if err := s.number(t, "worker/5"); err != nil {
		t.Errorf("a number after %s: %v", lease.Term, err)
	}
	s.works(t, s.spec, "The map of epoch 10 is in force")
	s.exec(t, "uid-a", "DROP DATABASE `"+s.meta(t).Schema+"`")
}

// While the new one is empty, processes go on with the numbers of the one before.
func losesMeta(t *testing.T, s *site) {
	meta := s.meta(t)
	s.exec(t, "bid-a", "DROP DATABASE `"+meta.Schema+"`")
	const lost = "meta: databases of this map are there, uid:1 for one, but not their meta database on server bid-a"
	s.refuses(t, s.spec, lost)
	s.exec(t, "bid-a", "CREATE DATABASE `"+meta.Schema+"`")
	s.refuses(t, s.spec, lost)
	s.exec(t, "uid-a", "RENAME TABLE `"+s.uid(t, 7).Schema+"`.owner TO `"+s.uid(t, 7).Schema+"`.kept")
	s.refuses(t, s.spec, "uid:7: it was made, and is not on server uid-a: refusing to make it empty", "--empty", "meta")
	s.exec(t, "uid-a", "RENAME TABLE `"+s.uid(t, 7).Schema+"`.kept TO `"+s.uid(t, 7).Schema+"`.owner")

	// A cut before it is decided when numbers are given out gives none out either.
	cut := s.proxy.Arm(faultproxy.BeforePacket, func(packet []byte) bool { return strings.Contains(string(packet), "INTO lease") })
	code, _, stderr := s.migrate(t, s.spec, "--empty", "meta")
	select {
	case <-cut.Done():
	default:
		t.Fatal("the cut did not happen")
	}
	if code != 1 || !strings.Contains(stderr, "no other database was touched") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if err := s.number(t, "worker/5"); !errors.Is(err, lease.ErrClosed) {
		t.Errorf("a number of one that isn't complete: %v", err)
	}
	s.refuses(t, s.spec, lost)

	s.works(t, s.spec, "Worker numbers are given out from ", "--empty", "meta")
	s.works(t, s.spec, "The map of epoch 10 is in force")
	for _, left := range []time.Duration{lease.Term - 10*time.Second, time.Minute} {
		if err := s.number(t, "worker/5"); !errors.Is(err, lease.ErrClosed) {
			t.Errorf("a number at once: %v", err)
		}
		s.later(t, left)
	}
	if err := s.number(t, "worker/5"); err != nil {
		t.Errorf("a number after %s: %v", lease.Term, err)
	}
}

func TestMigrateTouchesNothingWithoutTheMetaDatabase(t *testing.T) {
	s := newSite(t)
	spec := s.with(3, func(s *shardmap.Spec) { another(s); s.Meta = "another" })
	s.refuses(t, spec, "octopay_meta@another")
	spec = s.with(3, func(s *shardmap.Spec) { another(s); s.BID[2].Server = "another" })
	s.refuses(t, spec, "bid:3: server another can't be asked for it")
}
