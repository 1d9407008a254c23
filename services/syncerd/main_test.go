package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/services/internal/boottest"
)

func TestMain(m *testing.M) { eventually.Main(m) }

func TestWrongSettingsEndItAtOnceAndAreNamed(t *testing.T) {
	for name, c := range map[string]struct{ env, want string }{
		"an unknown variable":       {"OCTOPAY_PORT=1", "OCTOPAY_PORT"},
		"an ops port of the world":  {"OCTOPAY_OPS_ADDR=:8082", "ops_addr must be"},
		"no room":                   {"OCTOPAY_STREAM_BYTES_MAX=1", "stream_bytes_max must be from 67108864 to"},
		"less than no room":         {"OCTOPAY_STREAM_BYTES_MAX=-1", "stream_bytes_max must be from 67108864 to"},
		"a broker without a scheme": {"OCTOPAY_NATS_URL=foo", "nats_url must be"},
		"orderd's, and no map":      {"OCTOPAY_ADDR=127.0.0.1:8080", "OCTOPAY_MAP_FILE"},
	} {
		err := run(t.Context(), nil, []string{"OCTOPAY_OPS_ADDR=127.0.0.1:0", c.env}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one about %s", name, err, c.want)
		}
	}
}

func TestHelpSaysWhatEachSettingIs(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), []string{"-h"}, nil, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"[127.0.0.1:8082]", "[nats://127.0.0.1:4222]", "[8589934592]", "OCTOPAY_MAP_FILE "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the help lacks %q:\n%s", want, &out)
		}
	}
}

func TestItWaitsForNATSAndSaysSo(t *testing.T) {
	stack := localstack.Private(t, localstack.Options{})
	env := boottest.Environ(t, stack, stack.Map)
	if err := stack.Server("nats").Stop(); err != nil {
		t.Fatal(err)
	}
	program := boottest.Start(t, run, env)
	ops := program.Listening(t)
	if waiting := program.Await(t, "waiting"); waiting["for"] != "NATS" {
		t.Errorf("it waits for %v", waiting)
	}
	if status, body := boottest.Get(t, ops+"/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "NATS") {
		t.Errorf("readiness without its broker: %d %s", status, body)
	}
	if err := stack.Server("nats").Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for program.Await(t, "mirror")["state"] != "running" {
	}
	if status, body := boottest.Get(t, ops+"/readyz"); status != http.StatusOK {
		t.Errorf("readiness: %d %s", status, body)
	}
	if err := program.Stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}
