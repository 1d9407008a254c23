// Package report says what a load test measured: the figures of one run, of runs side
// by side, and how people see them (terminal, JSON, one HTML page). It measures
// nothing itself.
package report

import "time"

// A Run is one run of one generator against one target. Times are in the unit of
// their name.
type Run struct {
	Scenario    string             `json:"scenario"`  // create, get, …, or a mix
	Target      string             `json:"target"`    // octopay, direct, echo, raw
	Loop        string             `json:"loop"`      // Open or Closed
	Generator   string             `json:"generator"` // such as "closed loop, wrk, 512 connections"
	Seed        uint64             `json:"seed"`
	PerRequest  int                `json:"orders_per_request,omitempty"` // at most; 0: one. A batch's orders are answers of their own
	Started     time.Time          `json:"started"`
	DurationSec float64            `json:"duration_sec"` // that was measured, without warming up
	Offered     int64              `json:"offered"`      // requests that were due; closed loop: that were sent
	Sent        int64              `json:"sent"`
	Dropped     int64              `json:"dropped"`       // due and never sent
	Cut         int64              `json:"cut,omitempty"` // sent, and their answers not waited for
	ByAnswer    map[string]int64   `json:"by_answer"`     // by status and problem code: "201", "503 overloaded"; or one of the answers below
	Failures    Failures           `json:"failures,omitempty"`
	PerSecond   float64            `json:"per_second"` // answers of success
	LatencyMs   Quantiles          `json:"latency_ms"` // from the intended send time; closed loop: from the sending
	LagMs       Quantiles          `json:"lag_ms"`     // from the intended to the real send time; open loop
	Seconds     []Second           `json:"seconds"`
	CPUSec      map[string]float64 `json:"cpu_sec"` // used during the run, by program: orderd, mariadbd, …, generator
	// UnsettledBefore is what Unsettled was of the requests that warmed up: what they
	// wrote is checked with the run.
	UnsettledBefore int64    `json:"unsettled_before,omitempty"`
	Check           *Check   `json:"check,omitempty"`
	Invalid         []string `json:"invalid,omitempty"` // why its figures mean nothing; none: they do
}

// The loops: what decides when a request is sent.
const (
	Open   = "open"   // when it is due
	Closed = "closed" // when one before was answered
)

// What stands in place of a status.
const (
	Timeout      = "timeout"       // no answer in the time that the generator waits
	NoAnswer     = "error"         // no answer: the connection broke
	NotConnected = "not connected" // there was no connection to send it on
	NotAnOrder   = "not an order"  // a status of success, and not what was asked for
	OtherAnswer  = "other"         // answered with a code beyond AnswersMax different ones
)

// AnswersMax bounds how many different answers are counted.
const AnswersMax = 64

// Quantiles are of a distribution, in one unit.
type Quantiles struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// A Second is what happened in one second of a run, by the time that requests were
// due. What wasn't measured is absent: its pointer is nil.
type Second struct {
	At           int              `json:"at"`      // since the beginning
	Offered      int64            `json:"offered"` // were due; open loop
	Sent         int64            `json:"sent"`    // of those, whenever that was; open loop
	ByAnswer     map[string]int64 `json:"by_answer"`
	LatencyMs    *Quantiles       `json:"latency_ms,omitempty"`
	LaneBatch    *float64         `json:"lane_batch,omitempty"`     // orders in a transaction, mean
	MirrorLagSec *float64         `json:"mirror_lag_sec,omitempty"` // the largest
}

// A Check is what both clusters held after a run, against what was acknowledged.
type Check struct {
	Acknowledged int      `json:"acknowledged"`
	Found        int      `json:"found"` // acknowledged and in the truth
	Missing      int      `json:"missing"`
	Doubled      int      `json:"doubled"`
	Wrong        int      `json:"wrong"`            // other content than was sent, another place, or more open than can be
	Unequal      int      `json:"unequal"`          // the mirror lacks it, has it otherwise, or has what the truth hasn't
	Open         int      `json:"open"`             // stored, and never answered: their connection ended before
	Mirror       bool     `json:"mirror"`           // the mirror was looked at
	Behind       string   `json:"behind,omitempty"` // why the mirror could not be complete: it was looked at as it was
	Named        []string `json:"named,omitempty"`  // the first of what is wrong, by order id
}

// Fails reports whether anything is not as it must be.
func (c Check) Fails() bool { return c.Missing+c.Doubled+c.Wrong+c.Unequal > 0 || c.Behind != "" }
