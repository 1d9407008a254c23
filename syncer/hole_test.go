package syncer_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/syncer/stream"
)

// Fault 20. NATS lost a message between others, of rows that no database has applied
// yet. Whoever read on would take the marks behind it for complete.
func TestAStreamWithAHoleIsMadeAnew(t *testing.T) {
	r := newRig(t, localstack.Test(t, all...))
	r.seed()
	parts := r.parts(stream.Config{})
	closed := make(chan struct{})
	for i := range parts.Targets {
		parts.Targets[i] = &gate{Target: parts.Targets[i], open: closed}
	}
	stop := r.run(r.of(parts))
	js, err := jetstream.New(r.nc, jetstream.WithDefaultTimeout(eventually.Patience))
	if err != nil {
		t.Fatal(err)
	}
	s := r.stream()
	// found returns the sequences of the messages of rows, and the last sequence.
	found := func() (rows []uint64, last uint64) {
		info, err := s.Info(t.Context())
		if err != nil {
			return nil, 0
		}
		st, err := js.Stream(t.Context(), s.Name())
		if err != nil {
			return nil, 0
		}
		for seq := info.First; seq <= info.Last; seq++ {
			if m, err := st.GetMsg(t.Context(), seq); err == nil && strings.Contains(m.Subject, "mirror.row.") {
				rows = append(rows, seq)
			}
		}
		return rows, info.Last
	}
	var stored []schema.Order
	var rows []uint64
	for n := range 2 { // in a message each
		stored = append(stored, r.put(newOrder(9527, 1001))...)
		eventually.True(t, "the row is in the stream, and marks behind it", func() bool {
			var last uint64
			rows, last = found()
			return len(rows) > n && last > rows[n]+2
		})
	}
	stop()
	st, err := js.Stream(t.Context(), s.Name())
	if err == nil {
		err = st.DeleteMsg(t.Context(), rows[0])
	}
	if err != nil {
		t.Fatal(err)
	}
	r.run(r.service(stream.Config{}))
	newest := stored[len(stored)-1].UpdatedAt
	eventually.True(t, "it is complete", func() bool { _, until := r.list(1001); return until > newest })
	if list, _ := r.list(1001); len(list) != len(stored) {
		t.Fatalf("it is complete with %d of %d orders", len(list), len(stored))
	}
	r.equal()
	if !r.lines.has("NATS lost messages") {
		t.Error("the loss isn't said")
	}
}
