package httpapi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/octopay/octopay/httpapi/hostiletest"
	"github.com/octopay/octopay/httpapi/openapitest"
	"github.com/prometheus/common/expfmt"
)

// metricsText is every metric as an operator's program reads it.
func (s *service) metricsText() string {
	s.t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			s.t.Fatal(err)
		}
	}
	return b.String()
}

// A flood sends markers in every place that a request has.
type flood struct {
	s       *service
	client  *http.Client
	search  *hostiletest.Search
	order   string // the order that is asked for
	sent    int
	answers map[int]int // how often each status
}

// send sends one request. What refuses it must not repeat a marker.
func (f *flood) send(r hostiletest.Request) {
	f.s.t.Helper()
	req, err := http.NewRequest(r.Method, f.s.url+r.Target, strings.NewReader(r.Body))
	if err != nil {
		f.s.t.Fatalf("%s %q: %v", r.Method, r.Target, err)
	}
	if r.Body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	maps.Copy(req.Header, r.Header)
	res, err := f.client.Do(req)
	if err != nil {
		f.s.t.Fatal(err)
	}
	f.read(res, r.Method+" "+r.Target+" "+r.Body)
}

func (f *flood) read(res *http.Response, sent string) {
	f.s.t.Helper()
	got, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		f.s.t.Fatal(err)
	}
	f.sent++
	f.answers[res.StatusCode]++
	if found := f.search.Leaks(res.StatusCode, res.Header, got); found != nil {
		f.s.t.Errorf("%d to %.300s repeats %v", res.StatusCode, sent, found)
	}
}

// raw sends what is not HTTP.
func (f *flood) raw(text string) {
	f.s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(f.s.url, "http://"))
	if err != nil {
		f.s.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, text) // it may hang up meanwhile
	_ = conn.(*net.TCPConn).CloseWrite()
	if res, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
		f.read(res, text)
	}
}

// Twenty markers are sent in every place of every call. They come to light in no log at
// its most verbose level, in no metric, and in no answer but an order's own.
func TestWhatClientsSendComesToLightNowhere(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	markers := hostiletest.Markers(seed)
	s := start(t)
	f := &flood{s: s, search: hostiletest.NewSearch(markers), answers: map[int]int{}, client: &http.Client{Transport: keyed{http.DefaultTransport}}}
	clean := s.create(body("out_trade_no", `"clean"`)).is(201, "").object()["order_id"].(string)
	for _, m := range markers {
		// Of one that was paid once too often all calls find something to do.
		f.order = s.create(body("out_trade_no", `"`+strconv.Itoa(f.sent)+`"`, "subject", m.JSON(), "metadata", `{"a":`+m.JSON()+`}`)).is(201, "").object()["order_id"].(string)
		s.post(f.order, "/pay", money("1", 19900, "CNY")).is(200, "")
		s.post(f.order, "/pay", money("2", 19900, "CNY")).is(409, "order_already_paid")
		s.post(f.order, "/refunds", refund("r", 1)).is(201, "")
		for _, c := range openapitest.Calls(t) {
			values := map[string]string{"order_id": f.order, "out_refund_no": "r", "seq": "3", "uid": "9527", "bid": "1001"}
			for _, r := range hostiletest.Requests(t, c, m, values) {
				f.send(r)
			}
		}
		for _, text := range hostiletest.Broken(m, "dev-app") {
			f.raw(text)
		}
		// What belongs to an order comes back in it.
		if own := s.get("/v1/orders/"+f.order).is(200, ""); f.search.In(own.body) == nil {
			t.Errorf("%s is not in its order: %s", m.Name, own.body)
		}
	}
	for _, path := range []string{"/v1/orders/" + clean, "/v1/orders/" + clean + "?include=journal", "/v1/orders/" + clean + "/refunds"} {
		if got := s.get(path, as("dev-ops")...).is(200, ""); f.search.In(got.body) != nil {
			t.Errorf("%s has %v", path, f.search.In(got.body))
		}
	}
	f.panics(markers)
	t.Logf("%d requests: %v", f.sent, f.answers)
	for _, status := range []int{200, 201, 400, 401, 404, 405, 409, 413, 415, 422, 500} {
		if f.answers[status] == 0 {
			t.Errorf("nothing was answered %d", status)
		}
	}
	log := s.log.String()
	if found := f.search.In(log); found != nil {
		t.Errorf("the log has %v", found)
	}
	metrics := s.metricsText()
	if found := f.search.In(metrics); found != nil {
		t.Errorf("a metric has %v", found)
	}
	if lines := strings.Count(log, "\n"); lines < f.sent*9/10 || !strings.Contains(metrics, `octopay_http_requests_total{code="invalid_parameter"`) {
		t.Errorf("the log has %d lines; is it the whole of it?", lines)
	}
}

// panics has stores panic with markers, and fail with errors that quote them as drivers do.
func (f *flood) panics(markers []hostiletest.Marker) {
	f.s.t.Helper()
	defer func() { f.s.orders.err, f.s.orders.panics = nil, nil }()
	get := hostiletest.Request{Method: "GET", Target: "/v1/orders/" + f.order}
	create := hostiletest.Request{Method: "POST", Target: "/v1/orders", Body: body()}
	batch := hostiletest.Request{Method: "POST", Target: "/v1/orders/batch", Body: `{"orders":[` + body() + `]}`}
	for _, m := range markers {
		for _, thrown := range []any{m.Text, errors.New(m.Text), fmt.Errorf("store: %w", errors.New(m.Text)), &m, m, []string{m.Text}, map[string]int{m.Text: 1}} {
			f.s.orders.panics = thrown
			f.send(get)
			f.send(create)
		}
		f.s.orders.panics = nil
		f.s.orders.err = fmt.Errorf("insert: Error 1062 (23000): Duplicate entry '%s' for key 'place'", m.Text)
		f.send(create)
		f.send(batch)
	}
}

// A search that finds nothing where something is would make a fine test of anything.
func TestTheSearchFindsMarkers(t *testing.T) {
	for _, m := range hostiletest.Markers(7) {
		search := hostiletest.NewSearch([]hostiletest.Marker{m})
		log := &syncBuffer{}
		slog.New(slog.NewJSONHandler(log, nil)).Info("request", "path", "/v1/orders/"+m.Text)
		asText := &syncBuffer{}
		slog.New(slog.NewTextHandler(asText, nil)).Info("request", "error", errors.New("no such row: "+m.Text))
		for how, text := range map[string]string{
			"a line of JSON": log.String(), "a line of text": asText.String(), "a URL": url.QueryEscape(m.Text), "a quotation": fmt.Sprintf("%q", m.Text),
			"a body": body("subject", m.JSON()), "a header": fmt.Sprint(http.Header{"X": {m.Text}}), "bytes": fmt.Sprintf("%x", m.Text),
		} {
			if found := search.In(text); len(found) != 1 {
				t.Errorf("%s as %s is not found in %s", m.Name, how, text)
			}
		}
		if len(m.Text) > 20 && search.In("cut: "+m.Text[:16]) == nil {
			t.Errorf("the beginning of %s isn't found", m.Name)
		}
	}
	if found := hostiletest.NewSearch(hostiletest.Markers(8)).In(fmt.Sprint(hostiletest.Markers(9))); found != nil {
		t.Errorf("others are found: %v", found)
	}
	for range 1000 {
		if n := hostiletest.Card(strconv.Itoa(100000000 + rand.IntN(899999999))); len(n) != 16 || !luhn(n) {
			t.Fatalf("%s is no card", n)
		}
	}
}

// luhn is the rule as it is written on paper.
func luhn(number string) bool {
	sum := 0
	for i := range len(number) {
		d := int(number[i] - '0')
		if (len(number)-i)%2 == 0 {
			d = d*2/10 + d*2%10
		}
		sum += d
	}
	return sum%10 == 0
}
