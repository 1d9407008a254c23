package rig

import (
	"math"
	"testing"
	"time"

	"github.com/octopay/octopay/loadtest/report"
	"pgregory.net/rapid"
)

var zero = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func sec(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Of a program that works evenly a run has what it used meanwhile, wherever the samples
// fell.
func TestOnlyTheTimeOfTheRunCounts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		share := rapid.Float64Range(0, 2).Draw(rt, "CPUs that it uses")
		var samples []cpuSample
		for at := 0.0; at < 30; at += rapid.Float64Range(0.1, 2).Draw(rt, "gap") {
			samples = append(samples, cpuSample{zero.Add(sec(at)), map[string]time.Duration{"orderd": sec(100 + share*at)}})
		}
		last := samples[len(samples)-1].at.Sub(zero).Seconds()
		begin := rapid.Float64Range(0, last).Draw(rt, "begin")
		end := rapid.Float64Range(begin, last).Draw(rt, "end")
		got := used(samples, zero.Add(sec(begin)), zero.Add(sec(end)))
		if want := share * (end - begin); math.Abs(got["orderd"].Seconds()-want) > 1e-6 {
			rt.Fatalf("%v s, want %v", got, want)
		}
	})
}

func TestAProgramThatCameOrWentIsLeftOut(t *testing.T) {
	samples := []cpuSample{
		{zero, map[string]time.Duration{"stays": 0, "goes": 0}},
		{zero.Add(sec(1)), map[string]time.Duration{"stays": sec(1), "goes": sec(1), "comes": 0}},
		{zero.Add(sec(2)), map[string]time.Duration{"stays": sec(2), "comes": sec(1)}},
	}
	got := used(samples, zero.Add(sec(0.5)), zero.Add(sec(1.5)))
	if len(got) != 1 || got["stays"] != sec(1) {
		t.Errorf("%v", got)
	}
	if got := used(nil, zero, zero.Add(sec(1))); len(got) != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

// Each second has the mean batch of its own transactions, and the lag that was told in it.
func TestSecondsHaveTheirOwnBatchesAndLag(t *testing.T) {
	lag := func(s float64) *float64 { return &s }
	said := []saidSample{
		{zero.Add(sec(-0.5)), 1000, 1000, lag(9)},
		{zero.Add(sec(0.5)), 1010, 1010, lag(1)}, // 10 a second, alone
		{zero.Add(sec(1.5)), 1810, 1020, lag(2)}, // 80 in a transaction
		{zero.Add(sec(2.5)), 1810, 1020, nil},    // nothing
		{zero.Add(sec(3.5)), 1810, 1020, lag(3)},
	}
	seconds := []report.Second{{At: 0}, {At: 1}, {At: 2}, {At: 3}}
	describe(seconds, said, zero)
	want := []struct{ batch, lag float64 }{{(5 + 400) / 10.0, 1}, {80, 2}, {0, 0}, {0, 3}}
	for i, s := range seconds {
		check := func(what string, got *float64, want float64) {
			if (got == nil) != (want == 0) || got != nil && math.Abs(*got-want) > 1e-9 {
				t.Errorf("second %d: %s %v, want %v", i, what, got, want)
			}
		}
		check("batch", s.LaneBatch, want[i].batch)
		check("lag", s.MirrorLagSec, want[i].lag)
	}
	describe(seconds[:1], nil, zero)
}
