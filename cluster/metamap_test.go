package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/shardmap"
	"gopkg.in/yaml.v3"
)

// variant returns m with another epoch, and with its first bid database elsewhere if
// moved.
func variant(t *testing.T, m *shardmap.Map, epoch shardmap.Epoch, moved bool) *shardmap.Map {
	t.Helper()
	var spec shardmap.Spec
	if err := yaml.Unmarshal(m.Text(), &spec); err != nil {
		t.Fatal(err)
	}
	spec.Epoch = epoch
	if moved {
		spec.BID[0].Server = spec.UID[0].Server
	}
	out, err := shardmap.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// inForce is the map in force: its epoch, and whether it was moved.
func inForce(t *testing.T, c *cluster.Cluster) string {
	t.Helper()
	m, err := cluster.MapInForce(t.Context(), c, c.Map())
	if err != nil {
		t.Fatal(err)
	}
	if m == nil {
		return "none"
	}
	return fmt.Sprintf("%d %s", m.Epoch(), m.Database(shardmap.BID, 1).Server.Name)
}

// A program stores the map of its file where there is none, and never a newer one. Only
// an operator puts that in force.
func TestAProgramBeginsWithTheMapInForce(t *testing.T) {
	c := localstack.Test(t, localstack.Meta).Cluster(t)
	first := variant(t, c.Map(), 3, false)
	second := variant(t, c.Map(), 5, true)
	if got := inForce(t, c); got != "none" {
		t.Fatalf("before there is one: %s", got)
	}
	for _, s := range []struct {
		name  string
		put   bool
		file  *shardmap.Map
		want  *shardmap.Map // nil: an error
		force string
	}{
		{"the first one is stored", false, first, first, "3 bid-a"},
		{"again, nothing changes", false, first, first, "3 bid-a"},
		{"an older file's is not", false, variant(t, c.Map(), 1, true), first, "3 bid-a"},
		{"nor a newer file's", false, second, nil, "3 bid-a"},
		{"a newer one is put in force", true, second, second, "5 uid-a"},
		{"again, nothing changes", true, second, second, "5 uid-a"},
		{"and programs begin with it", false, second, second, "5 uid-a"},
		{"with the older file too", false, first, second, "5 uid-a"},
		{"an older one is not put in force", true, variant(t, c.Map(), 4, false), nil, "5 uid-a"},
	} {
		got, err := s.file, error(nil)
		if s.put {
			err = cluster.PutMapInForce(t.Context(), c, s.file)
		} else {
			got, err = cluster.ResolveMap(t.Context(), c, s.file)
		}
		switch {
		case s.want == nil && (err == nil || errors.Is(err, cluster.ErrMapConflict) || !strings.Contains(err.Error(), fmt.Sprintf("the map of epoch %d ", s.file.Epoch())) && !strings.Contains(err.Error(), "octopay migrate")):
			t.Errorf("%s: %v", s.name, err)
		case s.want != nil && (err != nil || got.Hash() != s.want.Hash()):
			t.Errorf("%s: %v, %v; want epoch %d", s.name, got, err, s.want.Epoch())
		}
		if got := inForce(t, c); got != s.force {
			t.Errorf("%s: in force is %s, want %s", s.name, got, s.force)
		}
	}
}

func TestOneEpochAndTwoMapsIsAConflict(t *testing.T) {
	c := localstack.Test(t, localstack.Meta).Cluster(t)
	one, other := variant(t, c.Map(), 3, false), variant(t, c.Map(), 3, true)
	if _, err := cluster.ResolveMap(t.Context(), c, one); err != nil {
		t.Fatal(err)
	}
	_, asked := cluster.MapInForce(t.Context(), c, other)
	_, resolved := cluster.ResolveMap(t.Context(), c, other)
	for what, err := range map[string]error{"a reader": asked, "a program": resolved, "an operator": cluster.PutMapInForce(t.Context(), c, other)} {
		if !errors.Is(err, cluster.ErrMapConflict) || !strings.Contains(err.Error(), one.Hash()) || !strings.Contains(err.Error(), other.Hash()) {
			t.Errorf("%s: %v; want a conflict that names both hashes", what, err)
		}
	}
	if got, err := cluster.ResolveMap(t.Context(), c, one); err != nil || got.Hash() != one.Hash() {
		t.Errorf("the first one is in force no more: %v", err)
	}
}

// Of many that come first at once with two maps of one epoch, all with one of the maps
// are served, and all with the other one learn of the conflict. The same when they are
// put in force.
func TestTwoMapsStoredAtOnce(t *testing.T) {
	for name, store := range map[string]func(*cluster.Cluster, *shardmap.Map) error{
		"by programs": func(c *cluster.Cluster, m *shardmap.Map) error {
			_, err := cluster.ResolveMap(t.Context(), c, m)
			return err
		},
		"by operators": func(c *cluster.Cluster, m *shardmap.Map) error { return cluster.PutMapInForce(t.Context(), c, m) },
	} {
		t.Run(name, func(t *testing.T) {
			c := localstack.Test(t, localstack.Meta).Cluster(t)
			maps := [2]*shardmap.Map{variant(t, c.Map(), 3, false), variant(t, c.Map(), 3, true)}
			var errs [6]error
			var wg sync.WaitGroup
			for i := range errs {
				wg.Go(func() { errs[i] = store(c, maps[i%2]) })
			}
			wg.Wait()
			for i, err := range errs {
				if err != nil && !errors.Is(err, cluster.ErrMapConflict) || (err == nil) != (errs[i%2] == nil) || (errs[0] == nil) == (errs[1] == nil) {
					t.Fatalf("%v", errs)
				}
			}
		})
	}
}

func TestADamagedMapIsNotUsed(t *testing.T) {
	c := localstack.Test(t, localstack.Meta).Cluster(t)
	if _, err := cluster.ResolveMap(t.Context(), c, variant(t, c.Map(), 3, false)); err != nil {
		t.Fatal(err)
	}
	conn, err := c.Meta().Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, damage := range []string{"hash = REPEAT('0', 64)", "epoch = 9", "text = 'epoch: 1'", "text = ''"} {
		if _, err := conn.ExecContext(t.Context(), "UPDATE `"+c.Meta().Schema()+"`.shard_map SET "+damage); err != nil {
			t.Fatal(err)
		}
		if got, err := cluster.ResolveMap(t.Context(), c, variant(t, c.Map(), 3, false)); err == nil {
			t.Errorf("%s: the map of epoch %d", damage, got.Epoch())
		}
	}
}

func TestAMetaDatabaseThatIsAwayIsUnavailable(t *testing.T) {
	m := localstack.Test(t, localstack.Meta).Cluster(t).Map()
	var spec shardmap.Spec
	if err := yaml.Unmarshal(m.Text(), &spec); err != nil {
		t.Fatal(err)
	}
	for i := range spec.Servers {
		spec.Servers[i].Address = "127.0.0.1:" + string(rune('1'+i)) // nobody listens there
	}
	m, err := shardmap.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	c := cluster.Open(m, cluster.Config{})
	defer c.Close()
	if _, err := cluster.ResolveMap(context.Background(), c, m); !errors.Is(err, cluster.ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
}

// Behind the newer one it would be in force as soon as that is gone.
func TestAMapThatIsNotPutInForceIsNotStored(t *testing.T) {
	stack := localstack.Test(t, localstack.UID, localstack.Meta)
	c := stack.Cluster(t)
	if err := cluster.PutMapInForce(t.Context(), c, variant(t, c.Map(), 5, false)); err != nil {
		t.Fatal(err)
	}
	if err := cluster.PutMapInForce(t.Context(), c, variant(t, c.Map(), 4, false)); err == nil {
		t.Error("an older map is in force")
	}
	var older int
	if err := stack.Admin(t, "uid-a").QueryRow("SELECT COUNT(*) FROM `" + c.Meta().Schema() + "`.shard_map WHERE epoch < 5").Scan(&older); err != nil || older != 0 {
		t.Errorf("an older map is stored: %d, %v", older, err)
	}
}
