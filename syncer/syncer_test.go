package syncer_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/syncer/stream"
)

func TestAnOrderArrivesInTheMirror(t *testing.T) {
	r := newRig(t, localstack.Test(t, localstack.UID, localstack.BID, localstack.NATS))
	stored := r.put(newOrder(9527, 1001))
	r.run(r.service(stream.Config{}))
	var got []schema.Order
	eventually(t, "the order is in the merchant's list", func() bool {
		got, _ = r.list(1001)
		return len(got) > 0
	})
	if diff := cmp.Diff(stored, got); diff != "" {
		t.Errorf("the mirror's order differs:\n%s", diff)
	}
	eventually(t, "the list is complete past the order's time", func() bool {
		_, until := r.list(1001)
		return until > stored[0].UpdatedAt
	})
}
