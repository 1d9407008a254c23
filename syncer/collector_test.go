package syncer

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// A life of a collector that ends takes its notes with it. The next one meets the stream
// full again, which the log has been told.
func TestAFullStreamIsNotedInEachLife(t *testing.T) {
	notes := map[cause]string{}
	c := &collector{
		log: slog.New(slog.DiscardHandler), metrics: &collectorMetrics{full: prometheus.NewGauge(prometheus.GaugeOpts{})},
		note: func(c cause, why string) { notes[c] = why }, begins: 7,
	}
	for life := range 2 {
		clear(notes)
		c.metrics.full.Set(0)
		c.sayFull()
		if notes[noRoom] == "" || testutil.ToFloat64(c.metrics.full) != 1 || c.pressed.Load() != 7 {
			t.Errorf("life %d: nobody says that the stream is full: %v", life, notes)
		}
	}
	c.sayNotFull()
	if notes[noRoom] != "" || testutil.ToFloat64(c.metrics.full) != 0 || c.pressed.Load() != 0 {
		t.Errorf("the stream isn't full any more: %v", notes)
	}
}
