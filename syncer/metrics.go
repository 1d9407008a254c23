package syncer

import (
	"sync"
	"time"

	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/apply"
	"github.com/octopay/octopay/syncer/conflict"
	"github.com/prometheus/client_golang/prometheus"
)

// Labels are names of the map: servers and schemas.
var (
	lagDesc = prometheus.NewDesc("octopay_mirror_lag_seconds",
		"Age of what a merchant database has applied of a uid server, by that server's clock; at rest 1 to 2 s.",
		[]string{"server", "database"}, nil)
	markLagDesc = prometheus.NewDesc("octopay_mirror_published_lag_seconds",
		"Age of the newest mark published for a uid server, by that server's clock; told by the process that collects, or did last.", []string{"server"}, nil)
	bytesDesc   = prometheus.NewDesc("octopay_mirror_stream_bytes", "Size of the stream when it was last asked for.", nil, nil)
	deletesDesc = prometheus.NewDesc("octopay_mirror_deletes_total",
		"Rows of the truth that were deleted by hand; the mirror keeps them.", []string{"server"}, nil)
)

// metrics are those of all collectors, appliers and scans of this process.
type metrics struct {
	c          Config
	collectors map[string]*collectorMetrics
	appliers   map[string]*applierMetrics
	conflicts  [2]*prometheus.CounterVec // found, unlisted; by kind
	scanned    *prometheus.CounterVec
	scanUntil  *prometheus.GaugeVec
	loops      *prometheus.GaugeVec
	stalls     *prometheus.CounterVec
	dropped    *prometheus.GaugeVec
	all        []prometheus.Collector

	mu     sync.Mutex
	clocks map[string]clockReading
}

// A clockReading says what a server's clock showed at a moment of ours.
type clockReading struct {
	now schema.Millis
	at  time.Time
}

// since returns the age of m by the server's clock.
func (r clockReading) since(m schema.Millis) float64 {
	return (time.Duration(r.now-m)*time.Millisecond + time.Since(r.at)).Seconds()
}

type collectorMetrics struct {
	rows, messages    prometheus.Counter
	remade, clockBack prometheus.Counter
	full              prometheus.Gauge

	mu sync.Mutex
	at schema.Millis // of the newest mark, 0 if that is another process's to say
}

// marked says when the server's newest mark is of: at a life's start that in the stream,
// whoever published it, and then each that is published. Of 0, which promises nothing, it
// is none: what was promised before grows old.
func (m *collectorMetrics) marked(at schema.Millis) {
	if at == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at = at
}

// taken says that another process collects. As long as none does, what this one has
// published goes on growing old, whatever keeps it from publishing more.
func (m *collectorMetrics) taken() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at = 0
}

type applierMetrics struct {
	orders, entries, skipped prometheus.Counter
	letters                  prometheus.Gauge

	mu    sync.Mutex
	marks map[string]schema.Millis // nil while another process applies
}

func (m *applierMetrics) applied(r apply.Report) {
	m.orders.Add(float64(r.Orders))
	m.entries.Add(float64(r.Entries))
	m.skipped.Add(float64(r.Skipped))
	m.letters.Set(float64(r.Letters))
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.marks == nil {
		m.marks = map[string]schema.Millis{}
	}
	for _, mark := range r.Marks {
		m.marks[mark.Server] = max(m.marks[mark.Server], mark.At)
	}
}

func (m *applierMetrics) stopped() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.marks = nil
}

func newMetrics(c Config) *metrics {
	m := &metrics{c: c, collectors: map[string]*collectorMetrics{}, appliers: map[string]*applierMetrics{}, clocks: map[string]clockReading{}}
	counter := func(name, help string, label string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "octopay_mirror_" + name, Help: help}, []string{label})
		m.all = append(m.all, v)
		return v
	}
	gauge := func(name, help string, label string) *prometheus.GaugeVec {
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "octopay_mirror_" + name, Help: help}, []string{label})
		m.all = append(m.all, v)
		return v
	}
	rows := counter("published_rows_total", "Rows published.", "server")
	messages := counter("published_messages_total", "Messages of rows published.", "server")
	remade := counter("stream_remade_total", "How often the stream was made anew because NATS lost messages.", "server")
	back := counter("clock_back_total", "How often a server's clock stepped back by more than a second.", "server")
	full := gauge("stream_full", "1 while a collector waits because the stream is full.", "server")
	m.dropped = gauge("dropped", "1 if the stream no longer keeps what a database hasn't applied, which then must be refilled.", "database")
	for _, s := range c.Map.Servers(shardmap.UID) {
		m.collectors[s.Name] = &collectorMetrics{
			rows: rows.WithLabelValues(s.Name), messages: messages.WithLabelValues(s.Name),
			remade: remade.WithLabelValues(s.Name), clockBack: back.WithLabelValues(s.Name),
			full: full.WithLabelValues(s.Name),
		}
	}
	orders := counter("applied_orders_total", "Orders applied.", "database")
	entries := counter("applied_entries_total", "Journal entries applied.", "database")
	skipped := counter("skipped_rows_total", "Rows of other databases of the group.", "database")
	letters := gauge("dead_letters_open", "Rows and messages that could not be applied and wait for an operator.", "database")
	for _, d := range c.Map.Databases(shardmap.BID) {
		m.appliers[d.Schema] = &applierMetrics{
			orders: orders.WithLabelValues(d.Schema), entries: entries.WithLabelValues(d.Schema),
			skipped: skipped.WithLabelValues(d.Schema), letters: letters.WithLabelValues(d.Schema),
		}
	}
	for i, of := range []struct{ name, help string }{
		{"octopay_conflicts_found_total", "Numbers of which this process found that two orders share them."},
		{"octopay_conflicts_unlisted_total", "Pairs of orders that share a number and are not listed, since too many are. An alarm: stays 0."},
	} {
		m.conflicts[i] = prometheus.NewCounterVec(prometheus.CounterOpts{Name: of.name, Help: of.help}, []string{"kind"})
		for _, kind := range conflict.Kinds {
			m.conflicts[i].WithLabelValues(kind.String()) // they are 0, not absent
		}
		m.all = append(m.all, m.conflicts[i])
	}
	m.scanned = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "octopay_conflict_scan_rows_total", Help: "Rows that scans for conflicts examined."}, []string{"database"})
	m.scanUntil = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "octopay_conflict_scan_until_seconds",
		Help: "Time, in seconds since 1970, before which all rows were examined for conflicts; told by the process that scans."}, []string{"database"})
	m.all = append(m.all, m.scanned, m.scanUntil)
	m.stalls = counter("stalls_total", "How often a collector or applier was started anew because nothing came though there was more.", "part")
	m.loops = gauge("part_running", "1 while a collector, an applier or a scan for conflicts of this process runs.", "part")
	return m
}

func (m *metrics) collector(server string) *collectorMetrics { return m.collectors[server] }
func (m *metrics) applier(schema string) *applierMetrics     { return m.appliers[schema] }

// A scanMetrics is those of one database.
type scanMetrics struct {
	m        *metrics
	database string
}

func (m *metrics) scan(schema string) scanMetrics { return scanMetrics{m, schema} }

func (s scanMetrics) observe(r conflict.Report) {
	for _, kind := range conflict.Kinds {
		s.m.conflicts[0].WithLabelValues(kind.String()).Add(float64(r.Added.New[kind]))
		s.m.conflicts[1].WithLabelValues(kind.String()).Add(float64(r.Added.Unlisted[kind]))
	}
	s.m.scanned.WithLabelValues(s.database).Add(float64(r.Rows))
	s.m.scanUntil.WithLabelValues(s.database).Set(float64(r.Until) / 1000)
}

// stopped says that this process doesn't scan any more: another one tells how far it is.
func (s scanMetrics) stopped() { s.m.scanUntil.DeleteLabelValues(s.database) }

func (m *metrics) state(part string, running bool) {
	v := 0.0
	if running {
		v = 1
	}
	m.loops.WithLabelValues(part).Set(v)
}

func (m *metrics) clock(server string, now schema.Millis, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clocks[server] = clockReading{now, at}
}

func (m *metrics) reading(server string) (clockReading, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.clocks[server]
	return r, ok
}

// markAge returns the age of a server's newest mark, if this process collects, or did and
// no other does.
func (m *metrics) markAge(server string) (time.Duration, bool) {
	clock, ok := m.reading(server)
	c := m.collectors[server]
	c.mu.Lock()
	defer c.mu.Unlock()
	if !ok || c.at == 0 {
		return 0, false
	}
	return time.Duration(clock.since(c.at) * float64(time.Second)), true
}

// Describe implements prometheus.Collector.
func (s *Service) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{lagDesc, markLagDesc, bytesDesc, deletesDesc} {
		ch <- d
	}
	for _, c := range s.metrics.all {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector. A lag is told by the process that applies,
// once it has read the server's clock and a mark was applied; it grows by itself when
// nothing comes.
func (s *Service) Collect(ch chan<- prometheus.Metric) {
	m := s.metrics
	for _, c := range m.all {
		c.Collect(ch)
	}
	ch <- prometheus.MustNewConstMetric(bytesDesc, prometheus.GaugeValue, float64(s.c.Stream.Bytes()))
	for server, src := range s.c.Sources {
		if d, ok := src.(interface{ Deletes() uint64 }); ok {
			ch <- prometheus.MustNewConstMetric(deletesDesc, prometheus.CounterValue, float64(d.Deletes()), server)
		}
		clock, ok := m.reading(server)
		if !ok {
			continue
		}
		c := m.collectors[server]
		c.mu.Lock()
		at := c.at
		c.mu.Unlock()
		if at != 0 {
			ch <- prometheus.MustNewConstMetric(markLagDesc, prometheus.GaugeValue, clock.since(at), server)
		}
		for schema, a := range m.appliers {
			a.mu.Lock()
			at := a.marks[server]
			a.mu.Unlock()
			if at != 0 {
				ch <- prometheus.MustNewConstMetric(lagDesc, prometheus.GaugeValue, clock.since(at), server, schema)
			}
		}
	}
}
