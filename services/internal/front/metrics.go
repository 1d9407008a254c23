package front

import (
	"time"

	"github.com/octopay/octopay/lane"
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	ops, waited, took *prometheus.HistogramVec // by queue: creates, changes
	duplicates        prometheus.Counter
	expiries          prometheus.Counter
	overdue           prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) *metrics {
	seconds := prometheus.ExponentialBuckets(0.0005, 2, 15) // 0.5 ms … 8 s
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{"queue"})
	}
	m := &metrics{
		ops:    histogram("octopay_lane_batch_orders", "Operations in one transaction: new orders (creates), or changes of orders.", prometheus.ExponentialBuckets(1, 2, 10)),
		waited: histogram("octopay_lane_wait_seconds", "Wait of a transaction's oldest operation until it began.", seconds),
		took:   histogram("octopay_lane_transaction_seconds", "From a transaction's begin until its outcome.", seconds),
		duplicates: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "octopay_duplicate_ids_total", Help: "Ids that two orders were given. An alarm: stays 0."}),
		expiries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "octopay_expired_orders_total", Help: "Orders that this process closed for their time."}),
		overdue: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "octopay_expiry_overdue_seconds", Help: "How long the order that this process closed last for its time, and waited longest, had been over its time; half a minute is intended."}),
	}
	r.MustRegister(m.ops, m.waited, m.took, m.duplicates, m.expiries, m.overdue)
	return m
}

// batches returns what observes the batches of a queue.
func (m *metrics) batches(queue string) func(lane.Batch) {
	ops, waited, took := m.ops.WithLabelValues(queue), m.waited.WithLabelValues(queue), m.took.WithLabelValues(queue)
	return func(b lane.Batch) {
		ops.Observe(float64(b.Ops))
		waited.Observe(b.Waited.Seconds())
		took.Observe(b.Took.Seconds())
	}
}

func (m *metrics) expired(closed int, overdue time.Duration) {
	m.expiries.Add(float64(closed))
	m.overdue.Set(overdue.Seconds())
}
