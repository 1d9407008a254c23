package httpapi

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

// connections returns the lines about connections of a level, and how many failures they
// count.
func (s *service) connections(level string) (lines []map[string]any, sum int) {
	for _, line := range s.lines("connection") {
		if line["level"] == level {
			lines = append(lines, line)
			sum += int(line["count"].(float64))
		}
	}
	return lines, sum
}

func TestAFloodOfConnectionsThatFailIsNoFloodOfLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{t: t, log: &syncBuffer{}}
		l := newServerLog(slog.New(slog.NewJSONHandler(s.log, nil)))
		const each = 10 * time.Millisecond
		const all = int(time.Minute / each)
		for i := range all {
			fmt.Fprintf(l, "http: TLS handshake error from 203.0.113.%d:5555: EOF\n", i%200)
			time.Sleep(each)
		}
		fmt.Fprintln(l, "http: Accept error: accept tcp [2001:db8::7]:443: accept4: too many open files; retrying in 5ms")
		if lines, sum := s.connections("WARN"); sum != 1 || !strings.Contains(lines[0]["error"].(string), "too many open files") {
			t.Errorf("another kind has to wait: %v", lines)
		}
		// The last come to light though none follows.
		time.Sleep(serverLogEvery)
		synctest.Wait()
		lines, sum := s.connections("INFO")
		if len(lines) != 7 || sum != all { // the first, and each tenth second
			t.Errorf("%d lines of %v failures", len(lines), sum)
		}
		for _, line := range lines {
			if line["error"] != "http: TLS handshake error from …: EOF" {
				t.Errorf("%v", line)
			}
		}
		if strings.Contains(s.log.String(), "203.0.113") || strings.Contains(s.log.String(), "2001:db8") {
			t.Errorf("an address: %s", s.log)
		}
		// After a while of silence one is written at once again, and nothing before it.
		time.Sleep(time.Hour)
		fmt.Fprintln(l, "http: TLS handshake error from 203.0.113.7:5555: EOF")
		if lines, sum := s.connections("INFO"); len(lines) != 8 || sum != all+1 {
			t.Errorf("%d lines of %v failures", len(lines), sum)
		}
	})
}

func TestATextIsShortenedBetweenCharacters(t *testing.T) {
	for _, c := range []struct {
		text string
		want int
	}{
		{"", 0},
		{strings.Repeat("x", causeMax), causeMax},
		{strings.Repeat("x", causeMax+1), causeMax},
		{strings.Repeat("x", causeMax-1) + "é", causeMax - 1},
		{strings.Repeat("x", causeMax-1) + "切", causeMax - 1},
		{strings.Repeat("x", causeMax-2) + "切", causeMax - 2},
		{strings.Repeat("x", causeMax-3) + "切é", causeMax},
	} {
		if got := shortened(c.text); len(got) != c.want || !strings.HasPrefix(c.text, got) || !utf8.ValidString(got) {
			t.Errorf("of %d bytes %d are left, want %d", len(c.text), len(got), c.want)
		}
	}
}
