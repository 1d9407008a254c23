package httpapi

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAFloodOfConnectionsThatFailIsNoFloodOfLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{t: t, log: &syncBuffer{}}
		l := newServerLog(slog.New(slog.NewJSONHandler(s.log, nil)))
		const each = 10 * time.Millisecond
		for i := range int(time.Minute / each) {
			fmt.Fprintf(l, "http: TLS handshake error from 203.0.113.%d:5555: EOF\n", i%200)
			time.Sleep(each)
		}
		fmt.Fprintln(l, "http: Accept error: accept tcp [2001:db8::7]:443: accept4: too many open files; retrying in 5ms")
		lines := s.lines("connection")
		sum := 0.0
		for _, line := range lines[:len(lines)-1] {
			sum += line["count"].(float64)
			if line["level"] != "INFO" || line["error"] != "http: TLS handshake error from …: EOF" {
				t.Errorf("%v", line)
			}
		}
		if len(lines) != 7 || sum != 5001 { // the first, and each tenth second; what came since waits
			t.Errorf("%d lines of %v failures", len(lines), sum)
		}
		last := lines[len(lines)-1]
		if last["level"] != "WARN" || !strings.Contains(last["error"].(string), "too many open files") {
			t.Errorf("another kind has to wait: %v", last)
		}
		if strings.Contains(s.log.String(), "203.0.113") || strings.Contains(s.log.String(), "2001:db8") {
			t.Errorf("an address: %s", s.log)
		}
	})
}
