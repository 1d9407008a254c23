package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/services/internal/boottest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWrongSettingsEndItAtOnceAndAreNamed(t *testing.T) {
	for want, env := range map[string][]string{
		"OCTOPAY_ADDR":     {"OCTOPAY_ADDR=127.0.0.1:8080"}, // orderd's
		"ops_addr must be": {"OCTOPAY_OPS_ADDR=:8082"},
		"OCTOPAY_MAP_FILE": {"OCTOPAY_OPS_ADDR=127.0.0.1:0"},
	} {
		err := run(t.Context(), nil, env, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want one about %s", env, err, want)
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
