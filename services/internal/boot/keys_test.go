package boot_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/octopay/octopay/auth"
	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/faultproxy"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/services/internal/boot"
	dto "github.com/prometheus/client_model/go"
)

// A program isn't ready before it knows its keys, and works with those of its file where
// the meta database is away.
func TestAProgramIsReadyWhenItKnowsItsKeys(t *testing.T) {
	stack := localstack.Test(t, localstack.Meta)
	databases := stack.Cluster(t)
	file := filepath.Join(t.TempDir(), "keys")
	made, err := auth.NewStore(databases.Meta(), nil).Create(t.Context(), auth.Spec{Role: auth.Ops}, "tester")
	if err != nil {
		t.Fatal(err)
	}
	start := func(c *cluster.Cluster) (*auth.Keyring, *boot.Program, func()) {
		program := boot.NewProgram(slog.New(slog.DiscardHandler), boot.Shared{})
		keys, part, err := program.Keys(c, file)
		if err != nil {
			t.Fatal(err)
		}
		if missing := program.Ready.Missing(); !slices.Equal(missing, []string{part.Name}) {
			t.Errorf("before it runs it waits for %q", missing)
		}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- part.Run(ctx) }()
		return keys, program, func() {
			stop()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	}
	keys, program, stop := start(databases)
	eventually.True(t, "it is ready", func() bool { return len(program.Ready.Missing()) == 0 })
	if _, err := keys.Verify(made.Text); err != nil {
		t.Error(err)
	}
	families, err := program.Registry.Gather()
	if err != nil || !slices.ContainsFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == "octopay_auth_keys" }) {
		t.Errorf("its metrics lack those of the keys, %v", err)
	}
	eventually.True(t, "the file is written", func() bool { _, err := os.Stat(file); return err == nil })
	stop()

	away := stack.Via(t, "uid-a", faultproxy.Nobody(t)).Cluster(t)
	keys, program, stop = start(away)
	defer stop()
	eventually.True(t, "it is ready by its file", func() bool { return len(program.Ready.Missing()) == 0 })
	if _, err := keys.Verify(made.Text); err != nil {
		t.Error(err)
	}
}

func TestAWrongMasterKeyEndsAProgram(t *testing.T) {
	program := boot.NewProgram(slog.New(slog.DiscardHandler), boot.Shared{MasterKey: "s3cret"})
	if _, _, err := program.Keys(nil, ""); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("error %v", err)
	}
}
