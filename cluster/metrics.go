package cluster

import (
	"database/sql"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	labels    = []string{"cluster", "database", "pool"}
	openDesc  = prometheus.NewDesc("octopay_database_connections", "Open connections.", labels, nil)
	inUseDesc = prometheus.NewDesc("octopay_database_connections_in_use", "Connections in use.", labels, nil)
	waitsDesc = prometheus.NewDesc("octopay_database_connection_waits_total", "Waits for a connection inside the pool; stays 0.", labels, nil)
	epochDesc = prometheus.NewDesc("octopay_shard_map_epoch", "Epoch of the shard map in use, by its hash.", []string{"hash"}, nil)
)

// Describe implements prometheus.Collector.
func (c *Cluster) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{openDesc, inUseDesc, waitsDesc, epochDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Cluster) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(epochDesc, prometheus.GaugeValue, float64(c.m.Epoch()), c.m.Hash())
	for _, d := range c.All() {
		cl := string(d.place.Cluster)
		if cl == "" {
			cl = "meta"
		}
		for name, db := range map[string]*sql.DB{"read": d.readers, "write": d.writers} {
			s := db.Stats()
			l := []string{cl, d.place.Schema, name}
			ch <- prometheus.MustNewConstMetric(openDesc, prometheus.GaugeValue, float64(s.OpenConnections), l...)
			ch <- prometheus.MustNewConstMetric(inUseDesc, prometheus.GaugeValue, float64(s.InUse), l...)
			ch <- prometheus.MustNewConstMetric(waitsDesc, prometheus.CounterValue, float64(s.WaitCount), l...)
		}
	}
}
