package boot_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/services/internal/boot"
	"github.com/octopay/octopay/shardmap"
	"gopkg.in/yaml.v3"
)

// A program whose file is older than the map in force begins with the newer map.
func TestAProgramBeginsWithTheMapInForce(t *testing.T) {
	stack := localstack.Test(t, localstack.Meta)
	var spec shardmap.Spec
	if err := yaml.Unmarshal(stack.Map.Text(), &spec); err != nil {
		t.Fatal(err)
	}
	spec.Epoch++
	newer, err := shardmap.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.PutMapInForce(t.Context(), stack.Cluster(t), newer); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "map.yaml")
	if err := os.WriteFile(file, stack.Map.Text(), 0o600); err != nil {
		t.Fatal(err)
	}
	p := boot.NewProgram(slog.New(slog.DiscardHandler), boot.Shared{MapFile: file, DBUser: stack.User, DBPassword: stack.Password})
	databases, err := p.Cluster(t.Context(), cluster.Config{}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = databases.Close() }()
	if m := databases.Map(); m.Hash() != newer.Hash() {
		t.Errorf("it begins with the map of epoch %d, in force is %d", m.Epoch(), newer.Epoch())
	}
}

// Waiting doesn't mend it.
func TestAProgramWithTwoMapsOfOneEpochEnds(t *testing.T) {
	stack := localstack.Test(t, localstack.Meta)
	var spec shardmap.Spec
	if err := yaml.Unmarshal(stack.Map.Text(), &spec); err != nil {
		t.Fatal(err)
	}
	spec.Servers = append(spec.Servers, shardmap.Server{Name: "another", Address: "127.0.0.1:1"})
	other, err := shardmap.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.PutMapInForce(t.Context(), stack.Cluster(t), other); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "map.yaml")
	if err := os.WriteFile(file, stack.Map.Text(), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Patience)
	defer cancel()
	p := boot.NewProgram(slog.New(slog.DiscardHandler), boot.Shared{MapFile: file, DBUser: stack.User, DBPassword: stack.Password})
	if _, err := p.Cluster(ctx, cluster.Config{}, false); !errors.Is(err, cluster.ErrMapConflict) {
		t.Errorf("it goes on until %v, want a conflict", err)
	}
}
