package cluster_test

import (
	"context"
	"errors"
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

func TestTheMapOfTheHigherEpochIsInForce(t *testing.T) {
	c := localstack.Test(t, localstack.Meta).Cluster(t)
	first := variant(t, c.Map(), 3, false)
	second := variant(t, c.Map(), 5, true)
	for _, s := range []struct {
		name string
		file *shardmap.Map
		want *shardmap.Map
	}{
		{"the first one is stored", first, first},
		{"again, nothing changes", first, first},
		{"an older file's is not", variant(t, c.Map(), 1, true), first},
		{"a newer file's is stored", second, second},
		{"the older file again", first, second},
	} {
		got, err := cluster.ResolveMap(t.Context(), c, s.file)
		if err != nil || got.Hash() != s.want.Hash() || got.Epoch() != s.want.Epoch() {
			t.Fatalf("%s: %v, %v; want epoch %d", s.name, got, err, s.want.Epoch())
		}
	}
}

func TestOneEpochAndTwoMapsIsAConflict(t *testing.T) {
	c := localstack.Test(t, localstack.Meta).Cluster(t)
	one, other := variant(t, c.Map(), 3, false), variant(t, c.Map(), 3, true)
	if _, err := cluster.ResolveMap(t.Context(), c, one); err != nil {
		t.Fatal(err)
	}
	_, err := cluster.ResolveMap(t.Context(), c, other)
	if !errors.Is(err, cluster.ErrMapConflict) || !strings.Contains(err.Error(), one.Hash()) || !strings.Contains(err.Error(), other.Hash()) {
		t.Errorf("%v; want a conflict that names both hashes", err)
	}
	if got, err := cluster.ResolveMap(t.Context(), c, one); err != nil || got.Hash() != one.Hash() {
		t.Errorf("the first one is in force no more: %v", err)
	}
}

// Of many that come first at once with two maps of one epoch, all with one of the maps
// are served, and all with the other one learn of the conflict.
func TestTwoMapsStoredAtOnce(t *testing.T) {
	c := localstack.Test(t, localstack.Meta).Cluster(t)
	maps := [2]*shardmap.Map{variant(t, c.Map(), 3, false), variant(t, c.Map(), 3, true)}
	var errs [6]error
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { _, errs[i] = cluster.ResolveMap(t.Context(), c, maps[i%2]) })
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil && !errors.Is(err, cluster.ErrMapConflict) || (err == nil) != (errs[i%2] == nil) || (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("%v", errs)
		}
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
