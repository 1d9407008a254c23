package payconfig

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	lookEvery = 2 * time.Second
	// damagedMax is how many versions a look passes over to find one that is good.
	damagedMax = 16
)

// errLost reports a meta database without any config, though there was one.
var errLost = errors.New("payment config: the meta database has none any more; what is in force stays")

// A Watch holds the config in force in this process. It is safe for concurrent use.
type Watch struct {
	store *Store
	log   *slog.Logger
	force atomic.Pointer[Snapshot]

	refused atomic.Int64 // the newest version, if it isn't good; else 0
	agreed  atomic.Int64 // when the store last said that force is the newest: ns since began
	began   time.Time

	mu   sync.Mutex // one look at a time
	said string     // why the newest is not in force
}

// Follow returns a watch of a store, with the newest config that is good in force. It
// fails when the store can't be asked, or has nothing that is good: then nobody can say
// who may create orders.
func Follow(ctx context.Context, store *Store, log *slog.Logger) (*Watch, error) {
	w := &Watch{store: store, log: log, began: time.Now()}
	if err := w.Look(ctx); w.force.Load() == nil {
		return nil, err
	}
	return w, nil
}

// Snapshot returns the config in force. Another one may take over at any time, so
// whoever needs two answers that agree asks one Snapshot for both.
func (w *Watch) Snapshot() *Snapshot { return w.force.Load() }

// Run looks for the newest config every two seconds until ctx ends. While the meta
// database is away, or what is newest there isn't good, the last good one stays in
// force; it is logged once, and again when the reason changes.
func (w *Watch) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			_ = w.Look(ctx) // it says what is wrong
		}
	}
}

// Look asks for the newest config now, and puts it in force if it is good. The error says
// why the newest isn't, and is logged already.
func (w *Watch) Look(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.look(ctx)
	now := ""
	if err != nil {
		now = err.Error()
	}
	switch {
	case now == w.said || ctx.Err() != nil:
		return err
	case now == "":
		w.log.Info("the newest payment config is in force", "version", w.Snapshot().Version())
	default:
		w.log.Error("the newest payment config is not in force", "because", now)
	}
	w.said = now
	return err
}

func (w *Watch) look(ctx context.Context) error {
	asked := time.Since(w.began)
	version, hash, err := w.store.newest(ctx)
	if err != nil {
		return err
	}
	force := w.force.Load()
	switch {
	case version == 0 && force == nil:
		w.take(Stored{Snapshot: Default()})
	case version == 0 && force.version != 0:
		return errLost
	case version == 0, force != nil && force.version == version && force.hash == hash:
	default:
		stored, err := w.store.Version(ctx, version)
		var damaged *DamagedError
		if errors.As(err, &damaged) {
			w.refused.Store(version)
			return errors.Join(err, w.older(ctx, version))
		}
		if err != nil {
			return err // it may have vanished, which the next look sees
		}
		w.take(stored)
	}
	w.refused.Store(0)
	w.agreed.Store(int64(asked))
	return nil
}

// older puts the newest config before version in force that is good, unless what is in
// force is as new.
func (w *Watch) older(ctx context.Context, version int64) error {
	for range damagedMax {
		stored, err := w.store.before(ctx, version)
		var damaged *DamagedError
		switch {
		case errors.As(err, &damaged):
			version = damaged.Version
			continue
		case errors.Is(err, sql.ErrNoRows):
			return nil
		case err != nil:
			return err
		}
		if force := w.force.Load(); force == nil || force.version < stored.Version() {
			w.take(stored)
		}
		return nil
	}
	return fmt.Errorf("payment config: nor is any of the %d versions before it", damagedMax)
}

func (w *Watch) take(s Stored) {
	var before int64
	if old := w.force.Swap(s.Snapshot); old != nil {
		before = old.version
	}
	w.log.Info("payment config", "version", s.version, "hash", s.hash, "merchants", len(s.merchants), "channels", len(s.channels),
		"refuses_unknown", s.refuseUnknown, "version_before", before)
}

var (
	versionDesc = prometheus.NewDesc("octopay_payconfig_version", "Version of the payment config in force, by its hash; 0: none was set.", []string{"hash"}, nil)
	ageDesc     = prometheus.NewDesc("octopay_payconfig_age_seconds", "Time since the meta database said that the payment config in force is the newest.", nil, nil)
	refusedDesc = prometheus.NewDesc("octopay_payconfig_refused_version", "The newest stored version, if it is not in force because it is damaged or not valid; else 0.", nil, nil)
)

// Describe implements prometheus.Collector.
func (w *Watch) Describe(ch chan<- *prometheus.Desc) {
	ch <- versionDesc
	ch <- ageDesc
	ch <- refusedDesc
}

// Collect implements prometheus.Collector.
func (w *Watch) Collect(ch chan<- prometheus.Metric) {
	s := w.Snapshot()
	ch <- prometheus.MustNewConstMetric(versionDesc, prometheus.GaugeValue, float64(s.version), s.hash)
	ch <- prometheus.MustNewConstMetric(ageDesc, prometheus.GaugeValue, (time.Since(w.began) - time.Duration(w.agreed.Load())).Seconds())
	ch <- prometheus.MustNewConstMetric(refusedDesc, prometheus.GaugeValue, float64(w.refused.Load()))
}
