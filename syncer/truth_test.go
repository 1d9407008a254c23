package syncer_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/stream"
)

// Fault 16: an offset saved before its rows are stored loses them. Here NATS stores
// marks and refuses rows: no mark passes the row that is refused.
func TestFault16NoMarkPassesARowThatIsNotStored(t *testing.T) {
	t.Parallel()
	r := newRig(t, localstack.Test(t, all...))
	r.seed()
	r.run(r.service(stream.Config{}))
	first := r.put(newOrder(9527, 1001))
	complete := func(at schema.Millis) func() bool {
		return func() bool { _, until := r.list(1001); return until > at }
	}
	eventually.True(t, "the list is complete", complete(first[0].UpdatedAt))

	js, err := jetstream.New(r.nc, jetstream.WithDefaultTimeout(eventually.Patience))
	if err != nil {
		t.Fatal(err)
	}
	limit := func(bytes int32) {
		t.Helper()
		st, err := js.Stream(t.Context(), r.stream().Name())
		if err != nil {
			t.Fatal(err)
		}
		c := st.CachedInfo().Config
		c.MaxMsgSize = bytes
		if _, err := js.UpdateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	limit(600) // a mark has less
	big := newOrder(9527, 1001)
	big.Metadata = `{"k":"` + strings.Repeat("x", 1000) + `"}`
	refused := r.put(big)
	eventually.True(t, "the row is refused", func() bool { return r.lines.has("publish rows") })
	// Marks are stored still, of every life of the collector.
	s := r.stream()
	before, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "marks are stored", func() bool {
		info, err := s.Info(t.Context())
		return err == nil && info.Last > before.Last+3
	})
	list, until := r.list(1001)
	if len(list) != 1 || until > refused[0].UpdatedAt {
		t.Errorf("%d orders, complete until %d, but an order of %d is stored nowhere", len(list), until, refused[0].UpdatedAt)
	}
	limit(-1)
	eventually.True(t, "the list is complete", complete(refused[0].UpdatedAt))
	r.equal()
}

// A server, or a lane, that freezes between a transaction's stamp and its commit
// holds the promise at that stamp, however long.
func TestCompleteUntilWaitsForATransactionHeldOpen(t *testing.T) {
	t.Parallel()
	r := newRig(t, localstack.Test(t, all...))
	r.seed()
	r.run(r.service(stream.Config{}))
	first := r.put(newOrder(9527, 1001))
	eventually.True(t, "the list is complete", func() bool { _, until := r.list(1001); return until > first[0].UpdatedAt })

	// No connection of ours can be idle in a transaction for so long.
	place := r.c.Map().Database(shardmap.UID, r.c.Map().Locate(9527).Database)
	conn, err := r.stack.Admin(t, place.Server.Name).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	w := &writer{t: t, conn: conn, db: r.c.Database(shardmap.UID, place.Number), m: r.c.Map()}
	w.exec("SET time_zone = '+00:00'")
	for _, text := range []string{"BEGIN", "SELECT epoch FROM `" + place.Schema + "`.owner WHERE id = 1 LOCK IN SHARE MODE", "SET @t = UTC_TIMESTAMP(3)"} {
		w.exec(text)
	}
	held := newOrder(9527, 1001)
	if err := conn.QueryRowContext(context.Background(), "SELECT @t").Scan(&held.UpdatedAt); err != nil {
		t.Fatal(err)
	}
	w.create(held)
	// Long beyond the second that stamps lie back anyway.
	eventually.True(t, "time passes", func() bool {
		if _, until := r.list(1001); until > held.UpdatedAt {
			t.Fatalf("complete until %d, but a transaction stamped %d is open", until, held.UpdatedAt)
		}
		return schema.MillisOf(time.Now()) > held.UpdatedAt+3000
	})
	w.commit()
	eventually.True(t, "the list is complete", func() bool {
		list, until := r.list(1001)
		if until > held.UpdatedAt && len(list) != 2 {
			t.Fatalf("complete until %d, but the order of %d isn't there", until, held.UpdatedAt)
		}
		return until > held.UpdatedAt
	})
}
