package auth

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	keysDesc     = prometheus.NewDesc("octopay_auth_keys", "API keys in memory.", nil, nil)
	leftDesc     = prometheus.NewDesc("octopay_auth_keys_not_understood", "Stored API keys that this program refuses since it doesn't understand them; stays 0.", nil, nil)
	sealedDesc   = prometheus.NewDesc("octopay_auth_keys_sealed", "API keys whose signing secret no master key of this process decrypts; stays 0.", nil, nil)
	ageDesc      = prometheus.NewDesc("octopay_auth_snapshot_age_seconds", "Since the API keys were last read from the meta database; +Inf when they never were. At 3600 all are refused.", nil, nil)
	refusedDesc  = prometheus.NewDesc("octopay_auth_refused_total", "Requests refused for their key or signature.", []string{"reason"}, nil)
	failuresDesc = prometheus.NewDesc("octopay_auth_refresh_failures_total", "Times that the API keys could not be read.", nil, nil)
	savesDesc    = prometheus.NewDesc("octopay_auth_file_failures_total", "Times that the file of API keys could not be written.", nil, nil)
)

// Describe implements prometheus.Collector.
func (k *Keyring) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{keysDesc, leftDesc, sealedDesc, ageDesc, refusedDesc, failuresDesc, savesDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (k *Keyring) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	count := func(d *prometheus.Desc, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	l, age := &list{}, math.Inf(1)
	if s := k.snapshot.Load(); s != nil {
		l, age = s.list, time.Since(s.sentAt).Seconds()
		if s.fixed {
			age = 0
		}
	}
	gauge(keysDesc, float64(len(l.keys)))
	gauge(leftDesc, float64(l.left))
	gauge(sealedDesc, float64(l.sealed))
	gauge(ageDesc, age)
	for r, name := range reasonNames {
		count(refusedDesc, k.refused[r].Load(), name)
	}
	count(failuresDesc, k.failures.Load())
	count(savesDesc, k.saveFailures.Load())
}
