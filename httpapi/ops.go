package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// An OpsConfig is what the ops listener's handler is made of.
type OpsConfig struct {
	Gatherer prometheus.Gatherer
	// Ready returns what isn't ready, each by name, none when all is. Its ctx ends
	// after 2 s.
	Ready func(ctx context.Context) []string
	// Draining reports whether the process is ending; nil: never.
	Draining func() bool
	// Databases returns which databases don't serve; nil: they all do.
	Databases func() Databases
	// Parts returns which parts of the program stand still; nil: none does.
	Parts func() Parts
}

// Parts says which parts of a program stand still.
type Parts struct {
	Standing []string // each by name, with why
	Working  bool     // some part goes on
}

// Databases says which databases don't serve, each by name.
type Databases struct {
	Unavailable []string // are neither read nor written
	ReadOnly    []string // are read, and not written
	Serving     bool     // enough to be sent requests
}

// NewOps returns the handler of the ops listener: /healthz says that the process runs,
// /readyz whether it should be sent requests, which databases don't serve, and which parts
// stand still, /metrics everything else. Nothing here is ever shed.
func NewOps(c OpsConfig) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answerOps(w, http.StatusOK, health{Status: "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if c.Draining != nil && c.Draining() {
			answerOps(w, http.StatusServiceUnavailable, health{Status: "draining"})
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
		defer cancel()
		if waiting := c.Ready(ctx); len(waiting) > 0 {
			answerOps(w, http.StatusServiceUnavailable, health{Status: "waiting", WaitingFor: waiting})
			return
		}
		d := Databases{Serving: true}
		if c.Databases != nil {
			d = c.Databases()
		}
		p := Parts{Working: true}
		if c.Parts != nil {
			p = c.Parts()
		}
		h := health{Status: "ready", Unavailable: d.Unavailable, ReadOnly: d.ReadOnly, Standing: p.Standing}
		if !d.Serving || !p.Working {
			h.Status = "unavailable"
			answerOps(w, http.StatusServiceUnavailable, h)
			return
		}
		answerOps(w, http.StatusOK, h)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(c.Gatherer, promhttp.HandlerOpts{}))
	return withoutBodies(mux)
}

// A health is an answer of /healthz or /readyz.
type health struct {
	Status      string   `json:"status"` // ok; ready, waiting, draining, unavailable
	WaitingFor  []string `json:"waiting_for,omitempty"`
	Unavailable []string `json:"unavailable,omitempty"`
	ReadOnly    []string `json:"read_only,omitempty"`
	Standing    []string `json:"standing_still,omitempty"`
}

func answerOps(w http.ResponseWriter, status int, h health) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(h) // an error is a client that left
}
