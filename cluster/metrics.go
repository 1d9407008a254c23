package cluster

import (
	"database/sql"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	labels      = []string{"cluster", "database", "pool"}
	openDesc    = prometheus.NewDesc("octopay_database_connections", "Open connections.", labels, nil)
	inUseDesc   = prometheus.NewDesc("octopay_database_connections_in_use", "Connections in use.", labels, nil)
	waitsDesc   = prometheus.NewDesc("octopay_database_connection_waits_total", "Waits for a connection inside the pool; stays 0.", labels, nil)
	upDesc      = prometheus.NewDesc("octopay_database_up", "1 while reads or writes of the database are taken.", labels, nil)
	breakerDesc = prometheus.NewDesc("octopay_database_breaker_state", "0 closed, 1 half-open, 2 open: after failures in a row the database is left alone.", labels, nil)
	epochDesc   = prometheus.NewDesc("octopay_shard_map_epoch", "Epoch of the shard map in use, by its hash.", []string{"hash"}, nil)
)

// Describe implements prometheus.Collector.
func (c *Cluster) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{openDesc, inUseDesc, waitsDesc, upDesc, breakerDesc, epochDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Cluster) Collect(ch chan<- prometheus.Metric) {
	m := c.Map()
	ch <- prometheus.MustNewConstMetric(epochDesc, prometheus.GaugeValue, float64(m.Epoch()), m.Hash())
	for _, d := range c.All() {
		l := d.link.Load()
		cl := string(l.place.Cluster)
		if cl == "" {
			cl = "meta"
		}
		for _, p := range []struct {
			name    string
			db      *sql.DB
			breaker *breaker
			refused error
		}{
			{"read", l.readers, l.answers, d.readable(l)},
			{"write", l.writers, l.writes, d.writable(l)},
		} {
			up := 1.0
			if p.refused != nil {
				up = 0
			}
			s := p.db.Stats()
			labels := []string{cl, l.place.Schema, p.name}
			ch <- prometheus.MustNewConstMetric(openDesc, prometheus.GaugeValue, float64(s.OpenConnections), labels...)
			ch <- prometheus.MustNewConstMetric(inUseDesc, prometheus.GaugeValue, float64(s.InUse), labels...)
			ch <- prometheus.MustNewConstMetric(waitsDesc, prometheus.CounterValue, float64(s.WaitCount), labels...)
			ch <- prometheus.MustNewConstMetric(upDesc, prometheus.GaugeValue, up, labels...)
			ch <- prometheus.MustNewConstMetric(breakerDesc, prometheus.GaugeValue, float64(p.breaker.State()), labels...)
		}
	}
}
