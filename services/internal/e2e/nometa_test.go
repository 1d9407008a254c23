package e2e_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/faultproxy"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/services/internal/boottest"
	"github.com/octopay/octopay/shardmap"
	"gopkg.in/yaml.v3"
)

// The meta database is on a server of its own, which goes away, and orderd is restarted.
// With a file of the keys it serves the orders there are; new ones wait for the meta
// database. A map file that some database says isn't in force serves nobody.
func TestAnOrderdIsRestartedWithoutTheMetaDatabase(t *testing.T) {
	stack := localstack.Private(t, localstack.Options{Need: []localstack.Need{localstack.UID, localstack.BID, localstack.Meta}})
	for _, server := range []string{"uid-a", "bid-a"} {
		_, err := stack.Admin(t, server).Exec("GRANT ALL ON *.* TO '" + stack.User + "'@'%'")
		must(t, err)
	}
	link := faultproxy.New(t, stack.Server("bid-a").Address())
	via := stack.Via(t, "bid-a", link.Addr())
	var spec shardmap.Spec
	must(t, yaml.Unmarshal(via.Map.Text(), &spec))
	spec.Meta, spec.Prefix = "bid-a", "apart_"
	text, err := yaml.Marshal(spec)
	must(t, err)
	m, err := shardmap.Parse(text)
	must(t, err)
	apart := *via
	apart.Map = m
	file := filepath.Join(t.TempDir(), "map.yaml")
	must(t, os.WriteFile(file, m.Text(), 0o600))
	keysFile := filepath.Join(t.TempDir(), "keys")
	env := append(os.Environ(), "OCTOPAY_MAP_FILE="+file, "OCTOPAY_DB_USER="+stack.User, "OCTOPAY_DB_PASSWORD="+stack.Password)
	if out, err := operate(t, env, "migrate"); err != nil {
		t.Fatalf("octopay migrate: %v\n%s", err, out)
	}
	env = append(env, "OCTOPAY_NATS_URL=nats://127.0.0.1:1", keyVariable+boottest.Key(t, &apart), "OCTOPAY_KEYS_FILE="+keysFile)

	first := start(t, "orderd", env).ready(t)
	a, err := settle(t, each(first.api), request{UID: "9527", BID: "1001", OutTradeNo: "meta-1", Amount: 100, Currency: "CNY", Subject: "x"})
	must(t, err)
	id := a.order(t).OrderID
	eventually.True(t, "the keys are in their file", func() bool { _, err := os.Stat(keysFile); return err == nil })
	first.terminate(t)

	link.Refuse(true)
	link.CutAll()
	second := start(t, "orderd", env)
	ask := func(method, path string, body any) (answer, error) {
		ctx, cancel := context.WithTimeout(t.Context(), eventually.Patience)
		defer cancel()
		return call(t, ctx, method, second.api+path, body)
	}
	eventually.True(t, "what there is is served", func() bool {
		a, err := ask(http.MethodGet, "/v1/orders/"+id, nil)
		return err == nil && a.status == http.StatusOK
	})
	if a, err := ask(http.MethodPost, "/v1/orders", request{UID: "9527", BID: "1001", OutTradeNo: "meta-2", Amount: 100, Currency: "CNY", Subject: "x"}); err != nil || a.status != http.StatusServiceUnavailable {
		t.Errorf("a new order without a worker number: %v, %v", a, err)
	}
	if a, err := ask(http.MethodPost, "/v1/orders/"+id+"/close", nil); err != nil || a.status != http.StatusOK {
		t.Errorf("a close: %v, %v", a, err)
	}
	if !second.said("it begins with the map file") {
		t.Error("it did not say that it begins with its file")
	}
	link.Refuse(false)
	second.ready(t)
	if a, err := settle(t, each(second.api), request{UID: "9527", BID: "1001", OutTradeNo: "meta-2", Amount: 100, Currency: "CNY", Subject: "x"}); err != nil || a.status != http.StatusCreated {
		t.Errorf("a new order when the meta database is back: %v, %v", a, err)
	}
	second.terminate(t)

	// One database obeys a newer map: this file is an old one, and begins nothing alone.
	place := m.Database(shardmap.UID, 3)
	_, err = stack.Admin(t, "uid-a").Exec("UPDATE `" + place.Schema + "`.owner SET epoch = epoch + 1")
	must(t, err)
	link.Refuse(true)
	link.CutAll()
	third := launch(t, "orderd", env, 1)
	eventually.True(t, "it waits", func() bool { return third.said("waiting", "the meta database") })
	if third.said("it begins with the map file") {
		t.Error("it began with a file that isn't in force")
	}
}
