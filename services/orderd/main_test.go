package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/services/internal/boottest"
	"github.com/octopay/octopay/shardmap"
	"gopkg.in/yaml.v3"
)

func TestMain(m *testing.M) { eventually.Main(m) }

func environ(t *testing.T, s *localstack.Stack, m *shardmap.Map) []string {
	return append(boottest.Environ(t, s, m), "OCTOPAY_ADDR=127.0.0.1:0")
}

func TestWrongSettingsEndItAtOnceAndAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		args, env []string
		want      string
	}{
		"an unknown variable":        {env: []string{"OCTOPAY_PORT=x"}, want: "OCTOPAY_PORT"},
		"an address of the world":    {env: []string{"OCTOPAY_ADDR=0.0.0.0:8080"}, want: "addr must be"},
		"an ops port of the world":   {env: []string{"OCTOPAY_OPS_ADDR=:8081"}, want: "ops_addr must be"},
		"no reads":                   {env: []string{"OCTOPAY_READ_PERMITS=0"}, want: "read_permits must be from 1 to"},
		"an end before its begin":    {env: []string{"OCTOPAY_SHUTDOWN_WAIT=-5s"}, want: "shutdown_wait must be from 0s to"},
		"a broker without a scheme":  {env: []string{"OCTOPAY_NATS_URL=foo"}, want: "nats_url must be"},
		"a level that there isn't":   {env: []string{"OCTOPAY_LOG_LEVEL=loud"}, want: "log_level"},
		"no map file":                {env: []string{"OCTOPAY_OPS_ADDR=127.0.0.1:0"}, want: "OCTOPAY_MAP_FILE"},
		"a file that there isn't":    {args: []string{"-config", "/nowhere/x.yaml"}, want: "/nowhere/x.yaml"},
		"an argument too many":       {args: []string{"start"}, want: "usage"},
		"a flag that there isn't":    {args: []string{"-port", "1"}, want: "-port"},
		"a map that is not complete": {env: []string{"OCTOPAY_OPS_ADDR=127.0.0.1:0", "OCTOPAY_MAP_FILE=testdata/half.yaml"}, want: "database 8 is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			err := run(t.Context(), c.args, c.env, io.Discard)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one about %s", err, c.want)
			}
		})
	}
}

func TestHelpSaysWhatEachSettingIs(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), []string{"-h"}, []string{"OCTOPAY_ADDR=elsewhere"}, &out); err != nil {
		t.Fatal(err)
	}
	help := strings.Join(strings.Fields(out.String()), " ") // as wide as the longest name
	for _, want := range []string{
		"OCTOPAY_ADDR where the API listens, host:port; without TLS and without plaintext that of this machine alone [127.0.0.1:8080]",
		"OCTOPAY_DB_PASSWORD the user's password; only as a variable",
		"OCTOPAY_READ_PERMITS reads of one database at once [8]",
		"OCTOPAY_SHUTDOWN_WAIT time for requests under way at the end [13s]",
	} {
		if !strings.Contains(help, want) {
			t.Errorf("the help lacks %q:\n%s", want, &out)
		}
	}
}

func TestItWaitsForTheMetaDatabaseAndSaysSo(t *testing.T) {
	stack := localstack.Private(t, localstack.Options{Need: []localstack.Need{localstack.UID, localstack.Meta}})
	env, key := environ(t, stack, stack.Map), boottest.Key(t, stack)
	if err := stack.Server("uid-a").Stop(); err != nil {
		t.Fatal(err)
	}
	program := boottest.Start(t, run, env)
	ops := program.Listening(t)
	if waiting := program.Await(t, "waiting"); waiting["for"] != "the meta database" {
		t.Errorf("it waits for %v", waiting)
	}
	if status, body := boottest.Get(t, ops+"/healthz"); status != http.StatusOK {
		t.Errorf("health: %d %s", status, body)
	}
	if status, body := boottest.Get(t, ops+"/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "the meta database") {
		t.Errorf("readiness without its database: %d %s", status, body)
	}
	if err := stack.Server("uid-a").Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	api := program.Listening(t)
	boottest.Ready(t, ops)
	if status, body := boottest.Get(t, api+"/v1/users/9527/orders", key); status != http.StatusOK {
		t.Errorf("list: %d %s", status, body)
	}
	if _, body := boottest.Get(t, ops+"/metrics"); !strings.Contains(body, `octopay_shard_map_epoch{hash="`+stack.Map.Hash()+`"} 1`) {
		t.Error("the metrics don't hold the map's epoch and hash")
	}
	// Fault 11: when ids run out can be watched.
	if _, body := boottest.Get(t, ops+"/metrics"); !strings.Contains(body, "octopay_id_layout_end_timestamp_seconds 3.9") {
		t.Error("the metrics don't say when the layout of ids ends")
	}
	if err := program.Stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if strings.Contains(program.Log(), stack.Password) {
		t.Error("the log holds the password")
	}
}

func TestAWrongPasswordIsWaitedForAndSaidInWords(t *testing.T) {
	stack := localstack.Test(t, localstack.Meta)
	program := boottest.Start(t, run, append(environ(t, stack, stack.Map), "OCTOPAY_DB_PASSWORD=s3cret"))
	because, _ := program.Await(t, "waiting")["because"].(string)
	if want := stack.Map.Meta().String() + ": account " + stack.User + ", without TLS: not sent: access denied: the user or the password is wrong (server error 1045)"; !strings.Contains(because, want) {
		t.Errorf("it waits because %q", because)
	}
	if err := program.Stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if strings.Contains(program.Log(), "s3cret") || strings.Contains(program.Log(), stack.Password) {
		t.Error("the log holds a password")
	}
}

func TestAMapOfTheSameEpochWithAnotherHashStopsIt(t *testing.T) {
	stack := localstack.Test(t, localstack.UID, localstack.Meta)
	var spec shardmap.Spec
	if err := yaml.Unmarshal(stack.Map.Text(), &spec); err != nil {
		t.Fatal(err)
	}
	spec.Servers = append(spec.Servers, shardmap.Server{Name: "another", Address: "127.0.0.1:1"})
	other, err := shardmap.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	program := boottest.Start(t, run, environ(t, stack, stack.Map))
	program.Listening(t)
	program.Listening(t)
	err = run(t.Context(), nil, environ(t, stack, other), io.Discard)
	if err == nil || !strings.Contains(err.Error(), stack.Map.Hash()) || !strings.Contains(err.Error(), other.Hash()) {
		t.Errorf("error %v, want one that names both hashes", err)
	}
	if err := program.Stop(); err != nil {
		t.Error(err)
	}
}
