package syncer

import (
	"log/slog"
	"sync"

	"github.com/octopay/octopay/syncer/apply"
	"github.com/prometheus/client_golang/prometheus"
)

// readers is what the collectors of a process know of the databases that read the stream,
// by schema. Each database is dropped, and said to be, once, however many collect.
type readers struct {
	log   *slog.Logger
	gauge *prometheus.GaugeVec

	mu      sync.Mutex                // held by the one that purges; the others don't wait
	known   map[string]apply.Progress // what it said last
	dropped map[string]bool           // the stream no longer waits for it
}

func newReaders(gauge *prometheus.GaugeVec, log *slog.Logger) *readers {
	return &readers{log: log, gauge: gauge, known: map[string]apply.Progress{}, dropped: map[string]bool{}}
}

// hear takes in what the databases say, and returns what each has applied of an
// incarnation: one that doesn't answer has at least applied what it said last. silent are
// those that said nothing since this process runs. r.mu is held.
func (r *readers) hear(states []databaseState, incarnation string) (applied []uint64, silent []bool) {
	applied, silent = make([]uint64, len(states)), make([]bool, len(states))
	for i, s := range states {
		if s.err == nil {
			r.known[s.schema] = s.Progress
		}
		p, ok := r.known[s.schema]
		silent[i] = !ok
		if p.Incarnation == incarnation {
			applied[i] = p.Seq
		}
	}
	return applied, silent
}

// drop says whether the stream keeps what a database hasn't applied. r.mu is held.
func (r *readers) drop(schema string, gone bool) {
	if gone && !r.dropped[schema] {
		r.log.Error("a database applied nothing for so long that the stream no longer waits for it; it has to be refilled", "database", schema)
	}
	r.dropped[schema] = gone
	v := 0.0
	if gone {
		v = 1
	}
	r.gauge.WithLabelValues(schema).Set(v)
}
