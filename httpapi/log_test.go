package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/octopay/octopay/auth"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/lane"
	"github.com/prometheus/client_golang/prometheus"
)

// lines are the log's lines with this message.
func (s *service) lines(msg string) (lines []map[string]any) {
	s.t.Helper()
	for line := range strings.Lines(s.log.String()) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			s.t.Fatalf("%v: %s", err, line)
		}
		if v["msg"] == msg {
			lines = append(lines, v)
		}
	}
	return lines
}

// settled waits for n lines: a client may have its answer before the log has its line.
func (s *service) settled(msg string, n int) []map[string]any {
	s.t.Helper()
	eventually.True(s.t, fmt.Sprint(n, " lines of ", msg), func() bool { return strings.Count(s.log.String(), `"msg":"`+msg+`"`) >= n })
	lines := s.lines(msg)
	if len(lines) != n {
		s.t.Fatalf("%d lines of %q, want %d: %v", len(lines), msg, n, lines)
	}
	return lines
}

func TestTheAccessLogHasTheseFieldsAndNoOthers(t *testing.T) {
	s := start(t, func(c *Config) { c.Keys = &fakeKeys{keys: map[string]auth.Key{"dev-app": {ID: "a1", Role: auth.App}}} })
	made := s.send("POST", "/v1/orders", body(), "X-Request-Id", "r-1", "Authorization", "Bearer dev-app")
	s.get("/v1/orders/abc", "X-Request-Id", "r-2")
	s.send("BREW", "/nowhere", "", "X-Request-Id", "r-3")
	s.orders.err = lane.ErrFull
	s.send("POST", "/v1/orders", body(), "X-Request-Id", "r-4")

	lines := s.settled("request", 4)
	common := []string{"bytes", "client", "code", "duration_ms", "level", "method", "msg", "request_id", "route", "status", "time"}
	for i, want := range []struct {
		level, route, method, code string
		status                     float64
		order                      bool
	}{
		{"INFO", "/v1/orders", "POST", "ok", 201, true},
		{"INFO", "/v1/orders/{order_id}", "GET", "order_not_found", 404, false},
		{"INFO", "unmatched", "other", "not_found", 404, false},
		{"DEBUG", "/v1/orders", "POST", "overloaded", 503, false},
	} {
		l := lines[i]
		fields := slices.Clone(common)
		if want.route != "unmatched" { // before that nobody has asked for a key
			fields = append(fields, "key_id")
			if l["key_id"] != "a1" {
				t.Errorf("%v", l)
			}
		}
		if want.order {
			fields = append(fields, "order_id")
			if l["order_id"] != made.object()["order_id"] || l["bytes"] != float64(len(made.body)) {
				t.Errorf("%v", l)
			}
		}
		slices.Sort(fields)
		if got := slices.Sorted(maps.Keys(l)); !slices.Equal(got, fields) {
			t.Errorf("%d: fields %v", i, got)
		}
		if l["level"] != want.level || l["route"] != want.route || l["method"] != want.method || l["code"] != want.code ||
			l["status"] != want.status || l["request_id"] != fmt.Sprintf("r-%d", i+1) {
			t.Errorf("%d: %v", i, l)
		}
	}
	if strings.Contains(s.log.String(), "dev-app") || strings.Contains(s.log.String(), "Le Max") {
		t.Errorf("a header's or a body's value: %s", s.log.String())
	}
}

func TestAnInternalErrorIsLoggedOnceWithItsRequest(t *testing.T) {
	s := start(t)
	s.orders.err = fmt.Errorf("insert: %w", errors.New("Error 1366 (22007): Incorrect value 'O'Hara' for column"))
	s.send("POST", "/v1/orders", body(), "X-Request-Id", "r-1").is(500, "internal")
	s.settled("request", 1)
	l := s.settled("internal error", 1)[0]
	if l["request_id"] != "r-1" || l["route"] != "/v1/orders" || l["level"] != "ERROR" ||
		l["error"] != "insert: Error 1366 (22007): Incorrect value … for column" {
		t.Errorf("%v", l)
	}
}

func TestWhatAnErrorQuotesIsCut(t *testing.T) {
	for text, want := range map[string]string{
		"connection refused":                      "connection refused",
		"Duplicate entry 'a-b' for key 'place'":   "Duplicate entry …",
		"near 'x' or \"y\" at line 1":             "near … at line 1",
		"parsing \"secret\": invalid syntax":      "parsing …: invalid syntax",
		"an open ' and secret":                    "an open …",
		"column `a`.`b` and 'it's'":               "column …",
		"value 'unclosed \" and ` more' at row 1": "value … at row 1",
	} {
		if got := unquoted(errors.New(text)); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestMetricsCountByRouteMethodAndCode(t *testing.T) {
	s := start(t)
	s.create(body()).is(201, "")
	s.create(body()).is(200, "")
	s.create(body()).is(200, "")
	s.create(body("amount", "1")).is(409, "out_trade_no_reused")
	s.get("/v1/users/1/orders")
	s.send("HEAD", "/v1/users/1/orders", "")
	s.get("/v1/users/2/orders?limit=0")
	s.settled("request", 7)
	want := map[string]float64{
		"/v1/orders POST 201 ok":                           1,
		"/v1/orders POST 200 ok":                           2,
		"/v1/orders POST 409 out_trade_no_reused":          1,
		"/v1/users/{uid}/orders GET 200 ok":                1,
		"/v1/users/{uid}/orders HEAD 200 ok":               1,
		"/v1/users/{uid}/orders GET 400 invalid_parameter": 1,
	}
	if got := s.counts(); !maps.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

// counts reads octopay_http_requests_total, and checks that the histogram counts the
// same.
func (s *service) counts() map[string]float64 {
	s.t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	counts, seconds, total := map[string]float64{}, 0.0, 0.0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			switch f.GetName() {
			case "octopay_http_requests_total":
				counts[strings.Join([]string{labels["route"], labels["method"], labels["status"], labels["code"]}, " ")] = m.GetCounter().GetValue()
				total += m.GetCounter().GetValue()
			case "octopay_http_request_duration_seconds":
				seconds += float64(m.GetHistogram().GetSampleCount())
			case "octopay_http_requests_in_flight":
				if m.GetGauge().GetValue() != 0 {
					s.t.Errorf("%v in flight", m.GetGauge().GetValue())
				}
			}
		}
	}
	if seconds != total {
		s.t.Errorf("%v durations of %v requests", seconds, total)
	}
	return counts
}

// Fault 30, of labels: what clients make up must not become labels: each would stay in memory for ever.
func TestAFloodOfMadeUpPathsMethodsAndNamesGrowsNoMetrics(t *testing.T) {
	s := start(t)
	for i := range 60 {
		s.get(fmt.Sprintf("/v1/x%d", i)).is(404, "not_found")
		s.send(fmt.Sprintf("BREW%d", i), "/v1/orders", "").is(405, "method_not_allowed")
		s.get(fmt.Sprintf("/v1/orders/%d?x%d=1", i, i)).is(400, "invalid_parameter")
		s.get(fmt.Sprintf("/v1/users/%d/orders", i+1)).is(200, "")
	}
	s.settled("request", 240)
	want := map[string]float64{
		"unmatched GET 404 not_found":                     60,
		"/v1/orders other 405 method_not_allowed":         60,
		"/v1/orders/{order_id} GET 400 invalid_parameter": 60,
		"/v1/users/{uid}/orders GET 200 ok":               60,
	}
	if got := s.counts(); !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

func TestTwoAPIsCannotShareARegistry(t *testing.T) {
	s := start(t)
	if _, err := New(Config{Orders: s.orders, Mirror: fakeMirror{s.orders}, Conflicts: s.conflicts, Keys: devKeys(), Registry: s.registry}); err == nil {
		t.Error("it would count for the other")
	}
	if _, err := New(Config{Orders: s.orders, Mirror: fakeMirror{s.orders}, Conflicts: s.conflicts, Keys: devKeys(), Registry: prometheus.NewRegistry()}); err != nil {
		t.Error(err)
	}
	if _, err := New(Config{Orders: s.orders, Mirror: fakeMirror{s.orders}, Conflicts: s.conflicts}); err == nil {
		t.Error("an API without keys")
	}
	if _, err := New(Config{Orders: s.orders, Conflicts: s.conflicts, Keys: devKeys()}); err == nil {
		t.Error("an API without a mirror")
	}
	if _, err := New(Config{Orders: s.orders, Mirror: fakeMirror{s.orders}, Keys: devKeys()}); err == nil {
		t.Error("an API without a list of conflicts")
	}
}
