package binlog

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/source"
)

func (r *rig) clock() *clock {
	r.t.Helper()
	c, err := r.src.Clock(r.ctx())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c.(*clock)
}

// stamp returns the next fresh stamp.
func (r *rig) stamp(c *clock) source.Stamp {
	r.t.Helper()
	for end := time.Now().Add(eventually.Patience); ; {
		s, err := c.Stamp(r.ctx())
		if err == nil {
			return s
		}
		if !errors.Is(err, source.ErrNotFresh) || time.Now().After(end) {
			r.t.Fatal(err)
		}
		pause(source.StampInterval)
	}
}

// pause keeps the least time between two stamps.
func pause(d time.Duration) { <-time.After(d) }

// A holder writes as a lane does, with waits of its own between the steps.
type holder struct {
	r    *rig
	conn *sql.Conn
	o    schema.Order
	at   schema.Millis
}

func (r *rig) holder(uid int64) *holder {
	r.t.Helper()
	conn, err := r.admin.Conn(r.ctx())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	return &holder{r: r, conn: conn, o: newOrder(uid)}
}

func (h *holder) exec(text string, args ...any) error {
	_, err := h.conn.ExecContext(h.r.ctx(), text, args...)
	return err
}

// begin locks the owner row and takes the time, in this order.
func (h *holder) begin() error {
	db := h.r.stack.Map.Database(shardmap.UID, h.r.stack.Map.Locate(h.o.UID).Database)
	if err := errors.Join(
		h.exec("SET time_zone = '+00:00', tx_isolation = 'READ-COMMITTED'"),
		h.exec("BEGIN"),
		h.exec("SELECT epoch FROM `"+db.Schema+"`.owner WHERE id = 1 LOCK IN SHARE MODE"),
		h.exec("SET @t = UTC_TIMESTAMP(3)"),
	); err != nil {
		return err
	}
	return h.conn.QueryRowContext(h.r.ctx(), "SELECT @t").Scan(&h.at)
}

func (h *holder) insert() error {
	h.o.UpdatedAt = h.at
	return h.exec(insert(h.r.table(h.o.UID, "order"), schema.OrderColumns, 1), h.o.Values()...)
}

func (h *holder) commit() error { return h.exec("COMMIT") }

// A transaction that took its time and isn't committed holds every stamp at or before
// that time, however long that lasts; without the look at innodb_trx they would pass.
func heldOpen(t *testing.T, r *rig) {
	for _, c := range []struct {
		name     string
		inserted bool
	}{{"its rows not written yet", false}, {"its rows written already", true}} {
		t.Run(c.name, func(t *testing.T) {
			r := *r
			r.t = t
			clock := r.clock()
			clock.margin = 0 // the margin must not be what saves it
			start := r.here()
			h := r.holder(21)
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			must(h.begin())
			if c.inserted {
				must(h.insert())
			}
			var last source.Stamp
			for range 12 { // more than a second and a half
				last = r.stamp(clock)
				if last.At > h.at {
					t.Fatalf("a stamp of %d, but a transaction stamped %d is open", last.At, h.at)
				}
				pause(source.StampInterval)
			}
			if last.Now <= h.at+1000 {
				t.Errorf("the transaction was open for %d ms only: the test shows nothing", last.Now-h.at)
			}
			if !c.inserted {
				must(h.insert())
			}
			must(h.commit())
			var after source.Stamp
			eventually.Nil(t, "stamps go on", func() error {
				pause(source.StampInterval)
				if after = r.stamp(clock); after.At <= h.at {
					return errNotYet
				}
				return nil
			})
			for _, b := range r.until(r.open(start), after.Position) {
				for _, o := range b.Orders {
					if o.ID == h.o.ID {
						return
					}
				}
			}
			t.Errorf("a stamp of %d at %s, but the transaction stamped %d is behind it", after.At, after.Position, h.at)
		})
	}
}

// Many writers, held at random, and a clock: every row stamped before a stamp lies
// before its position.
func stampsAreTrue(t *testing.T, r *rig) {
	clock := r.clock()
	clock.margin = 0
	start := r.here()
	var stop atomic.Bool
	var wg sync.WaitGroup
	var commits atomic.Int64
	for i := range 4 {
		h := r.holder(int64(30 + i))
		wg.Go(func() {
			for !stop.Load() {
				h.o = newOrder(int64(30 + i))
				err := h.begin()
				if rand.IntN(2) == 0 {
					pause(rand.N(30 * time.Millisecond))
				}
				err = errors.Join(err, h.insert())
				if rand.IntN(20) == 0 {
					pause(rand.N(700 * time.Millisecond))
				}
				if err = errors.Join(err, h.commit()); err != nil {
					t.Error(err)
					return
				}
				commits.Add(1)
			}
		})
	}
	var stamps []source.Stamp
	eventually.Nil(t, "there are stamps and commits enough", func() error {
		stamps = append(stamps, r.stamp(clock))
		pause(source.StampInterval)
		if len(stamps) < 25 || commits.Load() < 50 {
			return errNotYet
		}
		return nil
	})
	stop.Store(true)
	wg.Wait()
	end := r.here()
	passed, behind := 0, 0
	for _, b := range r.until(r.open(start), end) {
		for _, o := range b.Orders {
			for _, s := range stamps {
				switch covered := s.Position.Covers(b.End); {
				case o.UpdatedAt < s.At && !covered:
					t.Fatalf("a row stamped %d ends at %s, but a stamp of %d is at %s", o.UpdatedAt, b.End, s.At, s.Position)
				case covered:
					passed++
				default:
					behind++
				}
			}
		}
	}
	if passed == 0 || behind == 0 {
		t.Errorf("%d commits, %d before a stamp, %d behind: the test shows nothing", commits.Load(), passed, behind)
	}
	// At rest a stamp is at most the whole second of somebody's start behind.
	eventually.Nil(t, "stamps follow the clock", func() error {
		pause(source.StampInterval)
		if s := r.stamp(clock); s.At < s.Now-1000 {
			return errNotYet
		}
		return nil
	})
}

// When somebody else polls innodb_trx all the time, its copy never gets new. An old
// copy must not be taken for an answer.
func notFresh(t *testing.T, r *rig) {
	clock := r.clock()
	clock.margin = 0
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			rows, err := r.admin.QueryContext(ctx, "SELECT trx_id FROM information_schema.innodb_trx")
			if err == nil {
				_ = rows.Close()
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	defer wg.Wait()
	defer cancel()
	eventually.Nil(t, "the poller is at work", func() error {
		_, err := clock.Stamp(t.Context())
		if errors.Is(err, source.ErrNotFresh) {
			return nil
		}
		return errNotYet
	})
	// A busy machine can hold the poller up for so long that the copy gets new between
	// two of its looks: then another transaction has another try.
	stale, lies := 0, 0
	var h *holder
	for try := 0; try < 20 && (stale == 0 || lies == 0); try++ {
		if h != nil {
			if err := h.commit(); err != nil {
				t.Fatal(err)
			}
		}
		h = r.holder(int64(22 + 640*try))
		if err := h.begin(); err != nil {
			t.Fatal(err)
		}
		var thread int64
		if err := h.conn.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&thread); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			// What a look without the check would have said.
			var listed int
			if err := r.admin.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = ?", thread).Scan(&listed); err != nil {
				t.Fatal(err)
			}
			if listed == 0 {
				lies++
			}
			s, err := clock.Stamp(t.Context())
			switch {
			case errors.Is(err, source.ErrNotFresh):
				stale++
			case err != nil:
				t.Fatal(err)
			case s.At > h.at:
				t.Fatalf("a stamp of %d from an old copy; a transaction stamped %d is open", s.At, h.at)
			}
			pause(source.StampInterval)
		}
	}
	if stale == 0 || lies == 0 {
		t.Errorf("%d answers were old, %d looks didn't show the open transaction: the test shows nothing", stale, lies)
	}
	cancel()
	wg.Wait()
	if s := r.stamp(clock); s.At > h.at {
		t.Errorf("a stamp of %d; a transaction stamped %d is open", s.At, h.at)
	}
	if err := h.commit(); err != nil {
		t.Fatal(err)
	}
}

// A statement has the time of its beginning; a transaction that begins while it is on its
// way to innodb_trx can have the next whole second. That is now. What lies further in the
// future is a time zone.
func justNow(t *testing.T, r *rig) {
	clock := r.clock()
	clock.margin = 0
	h := r.holder(21)
	if err := h.begin(); err != nil {
		t.Fatal(err)
	}
	var started float64
	eventually.Nil(t, "the transaction is listed", func() error {
		pause(source.StampInterval)
		return r.src.db.QueryRowContext(t.Context(), "SELECT UNIX_TIMESTAMP(trx_started) FROM information_schema.innodb_trx "+
			"WHERE trx_mysql_thread_id = ?", thread(t, h.conn)).Scan(&started)
	})
	// The clock's statements now begin when the test says.
	at := func(seconds float64) (source.Stamp, error) {
		t.Helper()
		if _, err := clock.conn.ExecContext(t.Context(), "SET timestamp = ?", seconds); err != nil {
			t.Fatal(err)
		}
		var s source.Stamp
		var err error
		for end := time.Now().Add(eventually.Patience); time.Now().Before(end); pause(source.StampInterval) {
			if s, err = clock.Stamp(t.Context()); err == nil || strings.Contains(err.Error(), "future") {
				return s, err
			}
		}
		t.Fatal(err)
		return s, err
	}
	if s, err := at(started - 0.4); err != nil || s.At != s.Now || s.Now != schema.Millis(started*1000)-400 {
		t.Errorf("it began 0.4 s after the statement: a stamp of %d at %d, %v", s.At, s.Now, err)
	}
	if s, err := at(started + 2); err != nil || s.At != schema.Millis(started*1000) {
		t.Errorf("it began 2 s before the statement: a stamp of %d, want %f, %v", s.At, started*1000, err)
	}
	if s, err := at(started - 900); !errors.Is(err, source.ErrNotFresh) {
		t.Errorf("it began a quarter of an hour after the statement: a stamp of %d, %v", s.At, err)
	}
	if err := h.commit(); err != nil {
		t.Fatal(err)
	}
	// The copy that tests after this one begin with doesn't list it any more.
	if _, err := clock.conn.ExecContext(t.Context(), "SET timestamp = DEFAULT"); err != nil {
		t.Fatal(err)
	}
	eventually.Nil(t, "stamps go on", func() error {
		pause(source.StampInterval)
		if s := r.stamp(clock); s.At != s.Now {
			return errNotYet
		}
		return nil
	})
}

func thread(t *testing.T, c *sql.Conn) (id int64) {
	t.Helper()
	if err := c.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}
