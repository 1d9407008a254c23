package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/httpapi/problem"
	"github.com/octopay/octopay/lane"
)

// aRefusalLog is refusals that write to a buffer, in JSON.
func aRefusalLog(t *testing.T, level slog.Level) (*refusals, *service) {
	s := &service{t: t, log: &syncBuffer{}}
	return &refusals{log: slog.New(slog.NewJSONHandler(s.log, &slog.HandlerOptions{Level: level}))}, s
}

func TestTheFirstRefusalIsLoggedWithItsCauseAndTheOthersAsANumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := aRefusalLog(t, slog.LevelInfo)
		away := func(n int) error {
			return fmt.Errorf("%w: uid database %d: server error 1290", cluster.ErrUnavailable, n)
		}
		r.note(problem.From(away(0), true))
		line := s.lines("refused")
		if len(line) != 1 || line[0]["level"] != "WARN" || line[0]["code"] != "shard_unavailable" || line[0]["count"] != 1.0 || line[0]["error"] != away(0).Error() {
			t.Fatalf("at once: %v", line)
		}
		for i := range 900 {
			time.Sleep(refusalsEvery / 1000)
			r.note(problem.From(away(i), false))
		}
		if n := len(s.lines("refused")); n != 1 {
			t.Errorf("%d lines before the time", n)
		}
		r.note(problem.From(lane.ErrFull, true)) // of another code
		time.Sleep(refusalsEvery)
		line = s.lines("refused")
		if len(line) != 3 || line[1]["code"] != "overloaded" || line[1]["count"] != 1.0 || line[1]["reason"] != "queue_full" {
			t.Fatalf("another code: %v", line)
		}
		if line[2]["code"] != "shard_unavailable" || line[2]["count"] != 900.0 || line[2]["error"] != away(899).Error() {
			t.Errorf("the others: %v", line[2])
		}
		time.Sleep(time.Hour)
		if n := len(s.lines("refused")); n != 3 {
			t.Errorf("%d lines when all is well again", n)
		}
		r.note(problem.From(away(7), true))
		if line = s.lines("refused"); len(line) != 4 || line[3]["count"] != 1.0 || line[3]["error"] != away(7).Error() {
			t.Errorf("the next trouble: %v", line)
		}
	})
}

func TestAFloodOfRefusalsIsCountedAndIsNoFloodOfLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := aRefusalLog(t, slog.LevelInfo)
		const clients, each, codes = 20, 300, 3
		var all sync.WaitGroup
		for range clients {
			all.Go(func() {
				for range each {
					time.Sleep(200 * time.Millisecond) // a minute in all, everybody at once
					r.note(&problem.Problem{Code: problem.Overloaded, Shed: problem.QueueWait})
					r.note(&problem.Problem{Code: problem.ShardUnavailable})
					r.note(&problem.Problem{Code: problem.Draining})
				}
			})
		}
		all.Wait()
		time.Sleep(2 * refusalsEvery)
		lines, sum := map[any]int{}, map[any]float64{}
		for _, l := range s.lines("refused") {
			lines[l["code"]]++
			sum[l["code"]] += l["count"].(float64)
			// How a process ends is no trouble.
			if level := l["level"]; level != "WARN" && l["code"] != "draining" || l["code"] == "draining" && level != "INFO" {
				t.Errorf("%v", l)
			}
		}
		for code, n := range lines {
			if n < 6 || n > 8 || sum[code] != clients*each {
				t.Errorf("%s: %d lines, %v refusals", code, n, sum[code])
			}
		}
		if len(lines) != codes {
			t.Errorf("%v", lines)
		}
	})
}

func TestARefusalIsSeenAtInfoWithoutValues(t *testing.T) {
	const secret = "6222020012345678"
	for name, err := range map[string]error{
		"a driver's text":       fmt.Errorf("%w: uid database 3: %w", cluster.ErrUnavailable, errors.New("sql: Scan error on column index 3, name \"subject\": converting \""+secret+"\" to a int64")),
		"another driver's text": fmt.Errorf("%w: uid database 3: Error 1062: Duplicate entry '%s' for key 'place'", cluster.ErrUnavailable, secret),
		"a long text":           fmt.Errorf("%w: %s%s", cluster.ErrUnavailable, strings.Repeat("x", 600), secret),
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.orders.err = err
			for range 5 {
				s.create(body()).is(503, "shard_unavailable")
				s.get("/v1/orders?uid=1&bid=1&out_trade_no="+secret).is(503, "shard_unavailable")
			}
			line := s.settled("refused", 1)[0] // the others wait
			if line["level"] != "WARN" || line["code"] != "shard_unavailable" || !strings.HasPrefix(line["error"].(string), "database unavailable: ") {
				t.Errorf("%v", line)
			}
			if log := s.log.String(); strings.Contains(log, secret) {
				t.Errorf("a value: %s", log)
			}
		})
	}
}

// All that is refused otherwise says enough in its own line, and who left is no trouble.
func TestOnlyWantOfRoomIsLoggedAsARefusal(t *testing.T) {
	s := start(t)
	s.get("/nope").is(404, "not_found")
	s.create("").is(400, "malformed_json")
	s.send("POST", "/v1/orders", body(), "Content-Type", "text/plain").is(415, "unsupported_media_type")
	s.orders.err = errors.New("something")
	s.create(body()).is(500, "internal")
	s.orders.err = context.DeadlineExceeded
	s.create(body()).is(504, "outcome_unknown")
	s.settled("request", 5)
	if got := s.lines("refused"); len(got) > 0 {
		t.Errorf("%v", got)
	}
	s.orders.err = context.DeadlineExceeded
	s.get("/v1/users/1/orders").is(503, "shard_unavailable")
	s.settled("refused", 1)
}

func BenchmarkRefusalIsCounted(b *testing.B) {
	r := &refusals{log: slog.New(slog.DiscardHandler)}
	p := &problem.Problem{Code: problem.Overloaded, Shed: problem.QueueFull}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r.note(p)
		}
	})
}
