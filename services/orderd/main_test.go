package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/shardmap"
	"go.uber.org/goleak"
	"gopkg.in/yaml.v3"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A logbook is a program's log that a test waits on.
type logbook struct {
	mu    sync.Mutex
	text  bytes.Buffer
	lines chan map[string]any
}

func newLogbook() *logbook { return &logbook{lines: make(chan map[string]any, 1000)} }

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	for _, line := range bytes.Split(bytes.TrimSpace(p), []byte("\n")) {
		var m map[string]any
		if json.Unmarshal(line, &m) == nil {
			select {
			case l.lines <- m:
			default:
			}
		}
	}
	return len(p), nil
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// await returns the next line with this msg.
func (l *logbook) await(t *testing.T, msg string) map[string]any {
	t.Helper()
	limit := time.After(30 * time.Second)
	for {
		select {
		case m := <-l.lines:
			if m["msg"] == msg {
				return m
			}
		case <-limit:
			t.Fatalf("no line %q in\n%s", msg, l)
		}
	}
}

func environ(t *testing.T, s *localstack.Stack, m *shardmap.Map) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "map.yaml")
	if err := os.WriteFile(path, m.Text(), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"OCTOPAY_MAP_FILE=" + path, "OCTOPAY_DB_USER=" + s.User, "OCTOPAY_DB_PASSWORD=" + s.Password,
		"OCTOPAY_ADDR=127.0.0.1:0", "OCTOPAY_OPS_ADDR=127.0.0.1:0"}
}

// get returns status and body.
func get(t *testing.T, target string) (int, string) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	resp, err := c.Get(target)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestWrongSettingsEndItAtOnceAndAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		args, env []string
		want      string
	}{
		"an unknown variable":        {env: []string{"OCTOPAY_ADRESS=x"}, want: "OCTOPAY_ADRESS"},
		"an address of the world":    {env: []string{"OCTOPAY_ADDR=0.0.0.0:8080"}, want: "addr must be"},
		"an ops port of the world":   {env: []string{"OCTOPAY_OPS_ADDR=:8081"}, want: "ops_addr must be"},
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

func TestItWaitsForTheMetaDatabaseAndSaysSo(t *testing.T) {
	stack := localstack.Private(t, localstack.Options{Need: []localstack.Need{localstack.UID, localstack.Meta}})
	env := environ(t, stack, stack.Map)
	if err := stack.Server("uid-a").Stop(); err != nil {
		t.Fatal(err)
	}
	log := newLogbook()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, nil, env, log) }()
	ops := fmt.Sprintf("http://%s", log.await(t, "listening")["addr"])
	if waiting := log.await(t, "waiting"); waiting["for"] != "the meta database" {
		t.Errorf("it waits for %v", waiting)
	}
	if status, body := get(t, ops+"/healthz"); status != http.StatusOK {
		t.Errorf("health: %d %s", status, body)
	}
	if status, body := get(t, ops+"/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "the meta database") {
		t.Errorf("readiness without its database: %d %s", status, body)
	}
	if err := stack.Server("uid-a").Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	api := fmt.Sprintf("http://%s", log.await(t, "listening")["addr"])
	if status, body := get(t, ops+"/readyz"); status != http.StatusOK {
		t.Errorf("readiness: %d %s", status, body)
	}
	if status, body := get(t, api+"/v1/users/9527/orders"); status != http.StatusOK {
		t.Errorf("list: %d %s", status, body)
	}
	if _, body := get(t, ops+"/metrics"); !strings.Contains(body, `octopay_shard_map_epoch{hash="`+stack.Map.Hash()+`"} 1`) {
		t.Error("the metrics don't hold the map's epoch and hash")
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if strings.Contains(log.String(), stack.Password) {
		t.Error("the log holds the password")
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
	log := newLogbook()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, nil, environ(t, stack, stack.Map), log) }()
	log.await(t, "listening")
	log.await(t, "listening")
	err = run(t.Context(), nil, environ(t, stack, other), io.Discard)
	if err == nil || !strings.Contains(err.Error(), stack.Map.Hash()) || !strings.Contains(err.Error(), other.Hash()) {
		t.Errorf("error %v, want one that names both hashes", err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
