package syncer_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer"
	"github.com/octopay/octopay/syncer/source"
	"github.com/octopay/octopay/syncer/stream"
	"github.com/prometheus/client_golang/prometheus"
)

// A stream made anew begins where all databases were then. A database that is made anew
// later lacks what lies before: it must not read that stream and call itself complete.
func TestADatabaseMadeAnewIsNotComplete(t *testing.T) {
	t.Parallel()
	r := newRig(t, localstack.Test(t, all...))
	r.seed()
	stop := r.run(r.service(stream.Config{}))
	const bid = 1001
	old := r.put(newOrder(9527, bid))
	eventually.True(t, "it is complete", func() bool { _, until := r.list(bid); return until > old[0].UpdatedAt })
	stop()
	s := r.stream()
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), info.Incarnation); err != nil {
		t.Fatal(err)
	}
	stop = r.run(r.service(stream.Config{}))
	young := r.put(newOrder(9527, bid))
	goesOn := func(bid int64) {
		t.Helper()
		now := schema.MillisOf(time.Now())
		eventually.True(t, "marks go on", func() bool { _, until := r.list(bid); return until > now })
	}
	goesOn(bid) // those that were there before have nothing to be refilled
	stop()

	place := r.c.Map().Database(shardmap.BID, r.c.Map().Locate(bid).Database)
	admin := r.stack.Admin(t, place.Server.Name)
	var marked string
	if err := admin.QueryRow("SELECT gtid FROM `" + place.Schema + "`.mark").Scan(&marked); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"DELETE FROM `%s`.mark", "UPDATE `%s`.progress SET incarnation = '', stream_seq = 0, stored_at = 0",
		fmt.Sprintf("DELETE FROM `%%s`.order_%d", r.c.Map().Locate(bid).Table),
	} {
		if _, err := admin.Exec(fmt.Sprintf(text, place.Schema)); err != nil {
			t.Fatal(err)
		}
	}
	if info, err = s.Info(t.Context()); err != nil || info.First != 1 {
		t.Fatalf("the stream begins at %d, %v: the test shows nothing", info.First, err)
	}
	stop = r.run(r.service(stream.Config{}))
	eventually.True(t, "it is said", func() bool { return r.lines.has("must be refilled from the truth") })
	goesOn(bid + 10)
	if list, until := r.list(bid); until != 0 || len(list) > 1 {
		t.Errorf("%d orders, complete until %d, of a database that lacks one", len(list), until)
	}
	if n := strings.Count(r.lines.String(), "must be refilled"); n != 1 || !r.lines.has("part=applier/"+place.Schema) {
		t.Errorf("it was said %d times", n)
	}
	stop()
	// Refilled, it goes on.
	for _, o := range append(old, young...) {
		if _, err := admin.Exec(insert(fmt.Sprintf("`%s`.order_%d", place.Schema, r.c.Map().Locate(bid).Table), schema.OrderColumns)+" ON DUPLICATE KEY UPDATE id=id", o.Values()...); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := admin.Exec("INSERT INTO `"+place.Schema+"`.mark (server, gtid, at) VALUES ('uid-a', ?, '1970-01-01')", marked); err != nil {
		t.Fatal(err)
	}
	r.run(r.service(stream.Config{}))
	goesOn(bid)
	r.equal()
}

// A server whose clock is behind what was promised before: it was started again with
// another time. Each life says it once, whether the promise is in the stream or in a
// database alone.
func TestAServerThatComesBackBehindItsPromiseIsAnAlarm(t *testing.T) {
	t.Parallel()
	r := newRig(t, localstack.Test(t, all...))
	r.seed()
	parts := r.parts(stream.Config{})
	behind := &shifted{Source: parts.Sources["uid-a"]}
	parts.Sources["uid-a"] = behind
	alarms := func(s *syncer.Service) float64 {
		t.Helper()
		reg := prometheus.NewPedanticRegistry()
		reg.MustRegister(s)
		return metric(t, reg, "octopay_mirror_clock_back_total")["uid-a"]
	}
	promised := func() schema.Millis { _, until := r.list(1); return until }
	first := r.of(parts)
	stop := r.run(first)
	begin := schema.MillisOf(time.Now())
	eventually.True(t, "something is promised", func() bool { return promised() > begin })
	stop()
	if n := alarms(first); n != 0 || r.lines.has("stepped back") {
		t.Fatalf("%f alarms though nothing happened", n)
	}
	before := promised()
	behind.by = schema.Millis(10 * time.Minute / time.Millisecond)
	for i, life := range []string{"with the mark in the stream", "with a stream made anew"} {
		t.Run(life, func(t *testing.T) {
			if i == 1 {
				s := r.stream()
				info, err := s.Info(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Delete(t.Context(), info.Incarnation); err != nil {
					t.Fatal(err)
				}
			}
			service := r.of(parts)
			stop := r.run(service)
			eventually.True(t, "it is an alarm", func() bool { return alarms(service) == 1 })
			stored := r.put(newOrder(9527, 1001))
			eventually.True(t, "orders go on", func() bool { list, _ := r.list(1001); return len(list) > i && list[0] == stored[0] })
			stop()
			if n := strings.Count(r.lines.String(), "stepped back"); n != 1+i {
				t.Errorf("it was said %d times", n)
			}
			if n := alarms(service); n != 1 {
				t.Errorf("%f alarms", n)
			}
			if promised() < before {
				t.Errorf("the promise fell from %d to %d", before, promised())
			}
		})
	}
}

// shifted is a source whose server's clock is behind.
type shifted struct {
	source.Source
	by schema.Millis
}

func (s *shifted) Clock(ctx context.Context) (source.Clock, error) {
	c, err := s.Source.Clock(ctx)
	return shiftedClock{c, s.by}, err
}

type shiftedClock struct {
	source.Clock
	by schema.Millis
}

func (c shiftedClock) Stamp(ctx context.Context) (source.Stamp, error) {
	s, err := c.Clock.Stamp(ctx)
	s.At -= c.by
	s.Now -= c.by
	return s, err
}
