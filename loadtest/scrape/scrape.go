// Package scrape reads figures from the ops port of a program of Octopay.
package scrape

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Metrics are the text that /metrics answers.
type Metrics []byte

var client = &http.Client{Timeout: 2 * time.Second}

// Get reads the metrics of the program whose ops port is at base.
func Get(ctx context.Context, base string) (Metrics, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("scrape: %s answers %s", req.URL, resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, 64<<20))
}

// Each calls f with each value of a metric, whatever its labels.
func (m Metrics) Each(name string, f func(float64)) {
	for line := range bytes.Lines(m) {
		rest, ok := bytes.CutPrefix(line, []byte(name))
		if !ok || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		if rest[0] == '{' {
			// A label's value may hold a brace; the value follows the last.
			rest = rest[bytes.LastIndexByte(rest, '}')+1:]
		}
		fields := bytes.Fields(rest)
		if len(fields) == 0 {
			continue
		}
		if v, err := strconv.ParseFloat(string(fields[0]), 64); err == nil {
			f(v)
		}
	}
}

// Sum returns the sum of a metric over all labels; 0 without it.
func (m Metrics) Sum(name string) (sum float64) {
	m.Each(name, func(v float64) { sum += v })
	return sum
}

// Max returns the largest value of a metric, if it is there.
func (m Metrics) Max(name string) (largest float64, ok bool) {
	m.Each(name, func(v float64) {
		if !ok || v > largest {
			largest, ok = v, true
		}
	})
	return largest, ok
}
