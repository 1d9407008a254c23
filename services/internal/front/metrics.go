package front

import (
	"github.com/octopay/octopay/lane"
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	ops, waited, took prometheus.Histogram
	duplicates        prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	seconds := prometheus.ExponentialBuckets(0.0005, 2, 15) // 0.5 ms … 8 s
	m := &metrics{
		ops: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "octopay_lane_batch_orders", Help: "Orders in one transaction.", Buckets: prometheus.ExponentialBuckets(1, 2, 10)}),
		waited: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "octopay_lane_wait_seconds", Help: "Wait of a transaction's oldest order until it began.", Buckets: seconds}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "octopay_lane_transaction_seconds", Help: "From a transaction's begin until its outcome.", Buckets: seconds}),
		duplicates: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "octopay_duplicate_ids_total", Help: "Ids that two orders were given. An alarm: stays 0."}),
	}
	r.MustRegister(m.ops, m.waited, m.took, m.duplicates)
	return m
}

func (m *metrics) batch(b lane.Batch) {
	m.ops.Observe(float64(b.Ops))
	m.waited.Observe(b.Waited.Seconds())
	m.took.Observe(b.Took.Seconds())
}
