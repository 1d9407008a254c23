package httpapi

import (
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/octopay/octopay/httpapi/problem"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics count what is answered. No label holds text of a client: routes are
// patterns, methods and codes come from tables.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	inFlight prometheus.Gauge
}

func newMetrics() *metrics {
	return &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "octopay_http_requests_total",
			Help: "Answers, by route, method, HTTP status and code (ok, or the problem's).",
		}, []string{"route", "method", "status", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "octopay_http_request_duration_seconds",
			Help:    "From a request's headers to its answer's last byte, by route, method and code.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"route", "method", "code"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "octopay_http_requests_in_flight",
			Help: "Requests under way.",
		}),
	}
}

// Describe sends the descriptions of all metrics.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	m.requests.Describe(ch)
	m.seconds.Describe(ch)
	m.inFlight.Describe(ch)
}

// Collect sends all metrics.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.requests.Collect(ch)
	m.seconds.Collect(ch)
	m.inFlight.Collect(ch)
}

// The methods that have a name of their own in metrics and logs.
const (
	methodGET = iota
	methodHEAD
	methodPOST
	methodOther
	methodCount
)

var methodNames = [methodCount]string{http.MethodGet, http.MethodHead, http.MethodPost, "other"}

func methodOf(name string) int {
	switch name {
	case http.MethodGet:
		return methodGET
	case http.MethodHead:
		return methodHEAD
	case http.MethodPost:
		return methodPOST
	}
	return methodOther
}

// What has no code of package problem: a status 201, and a client that left.
const (
	outcomeCreated = int(problem.Codes) + iota
	outcomeGone
	outcomeCount
)

// statusGone is logged and counted for clients that left; nobody receives it.
const statusGone = 499

// A series is where one kind of answer is counted.
type series struct {
	requests prometheus.Counter
	seconds  prometheus.Observer
}

// A seriesTable keeps the series of one route, each looked up once.
type seriesTable [methodCount][outcomeCount]atomic.Pointer[series]

// outcome returns the call's place in the table, and its labels.
func (c *call) outcome() (i, status int, code string) {
	switch {
	case c.gone:
		return outcomeGone, statusGone, "client_gone"
	case c.code != 0:
		return int(c.code), c.code.Status(), c.code.String()
	case c.status == http.StatusCreated:
		return outcomeCreated, c.status, "ok"
	}
	return 0, http.StatusOK, "ok"
}

// observe counts an answered call.
func (m *metrics) observe(c *call, seconds float64) {
	method := methodOf(c.r.Method)
	i, status, code := c.outcome()
	slot := &c.route.series[method][i]
	s := slot.Load()
	if s == nil {
		s = &series{
			requests: m.requests.WithLabelValues(c.route.pattern, methodNames[method], strconv.Itoa(status), code),
			seconds:  m.seconds.WithLabelValues(c.route.pattern, methodNames[method], code),
		}
		slot.Store(s) // whoever else came here found the same two
	}
	s.requests.Inc()
	s.seconds.Observe(seconds)
}
