package httpapi

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestOps(t *testing.T) {
	var waiting []string
	draining := false
	databases := Databases{Serving: true}
	parts := Parts{Working: true}
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "octopay_something"}))
	ops := NewOps(OpsConfig{
		Gatherer:  registry,
		Ready:     func(context.Context) []string { return waiting },
		Draining:  func() bool { return draining },
		Databases: func() Databases { return databases },
		Parts:     func() Parts { return parts },
	})
	ask := func(method, path string) (int, string) {
		w := httptest.NewRecorder()
		ops.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		return w.Code, strings.TrimSpace(w.Body.String())
	}
	for _, tc := range []struct {
		name         string
		waiting      []string
		draining     bool
		method, path string
		status       int
		body         string
	}{
		{"alive", nil, false, "GET", "/healthz", 200, `{"status":"ok"}`},
		{"alive while it waits", []string{"a"}, false, "GET", "/healthz", 200, `{"status":"ok"}`},
		{"alive while it drains", nil, true, "GET", "/healthz", 200, `{"status":"ok"}`},
		{"ready", nil, false, "GET", "/readyz", 200, `{"status":"ready"}`},
		{"waiting, and for what", []string{"uid database 3", "worker number"}, false, "GET", "/readyz", 503,
			`{"status":"waiting","waiting_for":["uid database 3","worker number"]}`},
		{"draining", nil, true, "GET", "/readyz", 503, `{"status":"draining"}`},
		{"a path that there isn't", nil, false, "GET", "/v1/orders", 404, "404 page not found"},
		{"a method that there isn't", nil, false, "POST", "/readyz", 405, "Method Not Allowed"},
	} {
		waiting, draining = tc.waiting, tc.draining
		if status, body := ask(tc.method, tc.path); status != tc.status || body != tc.body {
			t.Errorf("%s: %d %s", tc.name, status, body)
		}
	}
	waiting, draining = nil, false
	for _, tc := range []struct {
		databases Databases
		status    int
		body      string
	}{
		{Databases{Unavailable: []string{"octopay_uid_03@uid-a"}, Serving: true}, 200, `{"status":"ready","unavailable":["octopay_uid_03@uid-a"]}`},
		{Databases{ReadOnly: []string{"octopay_uid_03@uid-a"}, Serving: true}, 200, `{"status":"ready","read_only":["octopay_uid_03@uid-a"]}`},
		{Databases{Unavailable: []string{"octopay_uid_01@uid-a"}}, 503, `{"status":"unavailable","unavailable":["octopay_uid_01@uid-a"]}`},
	} {
		databases = tc.databases
		if status, body := ask("GET", "/readyz"); status != tc.status || body != tc.body {
			t.Errorf("%+v: %d %s", tc.databases, status, body)
		}
	}
	databases = Databases{Serving: true}
	for _, tc := range []struct {
		parts  Parts
		status int
		body   string
	}{
		{Parts{Standing: []string{"a: b"}, Working: true}, 200, `{"status":"ready","standing_still":["a: b"]}`},
		{Parts{Standing: []string{"a: b"}}, 503, `{"status":"unavailable","standing_still":["a: b"]}`},
	} {
		parts = tc.parts
		if status, body := ask("GET", "/readyz"); status != tc.status || body != tc.body {
			t.Errorf("%+v: %d %s", tc.parts, status, body)
		}
	}
	parts = Parts{Working: true}
	if status, body := ask("GET", "/metrics"); status != 200 || !strings.Contains(body, "octopay_something 0") {
		t.Errorf("%d %s", status, body)
	}
	if status, _ := ask("HEAD", "/readyz"); status != 200 {
		t.Errorf("HEAD: %d", status)
	}
}

// A program without requests, such as the syncer's, never drains.
func TestOpsWithoutDraining(t *testing.T) {
	ops := NewOps(OpsConfig{Gatherer: prometheus.NewRegistry(), Ready: func(context.Context) []string { return nil }})
	w := httptest.NewRecorder()
	ops.ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
	if w.Code != 200 {
		t.Error(w.Code)
	}
}
