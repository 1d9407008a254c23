package conflict_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/syncer/conflict"
)

func pairOf(number string, other int64) conflict.Pair {
	return conflict.Pair{Kind: conflict.OutTradeNo, BID: 1, Number: number, Orders: [2]conflict.Order{{ID: 1, UID: 1, BID: 1}, {ID: other, UID: other, BID: 1}}}
}

// A rival is somebody else's session on the meta database, which nothing of ours ends.
type rival struct {
	t    *testing.T
	conn *sql.Conn
	name string // of the schema
}

func newRival(t *testing.T, s *localstack.Stack, c *cluster.Cluster) rival {
	t.Helper()
	conn, err := s.Admin(t, c.Meta().Place().Server.Name).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	r := rival{t, conn, c.Meta().Schema()}
	r.do("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED") // it locks rows, and no gaps
	return r
}

// do runs statements, in which @ is the schema.
func (r rival) do(statements ...string) {
	r.t.Helper()
	for _, text := range statements {
		if _, err := r.conn.ExecContext(context.Background(), strings.ReplaceAll(text, "@", "`"+r.name+"`.")); err != nil {
			r.t.Fatalf("%s: %v", text, err)
		}
	}
}

// waiting returns the transactions that wait for a lock on a table of conflicts.
func (r rival) waiting() (ids []string) {
	r.t.Helper()
	r.do("DO SLEEP(0.15)") // the server renews that table only when nobody has read it for 0.1 s
	rows, err := r.conn.QueryContext(r.t.Context(), "SELECT trx_id FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT' AND trx_query LIKE CONCAT('%', ?, '%conflict%')", r.name)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			r.t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		r.t.Fatal(err)
	}
	return ids
}

// A moment is a context whose deadline is near, and never comes. It tells when somebody
// begins to wait for its end.
type moment struct {
	context.Context
	waits func()
}

func (m moment) Deadline() (time.Time, bool) { return time.Now().Add(time.Second), true }
func (m moment) Done() <-chan struct{}       { m.waits(); return m.Context.Done() }

// Leases are renewed over the meta database's connections, and writes that aren't answered
// in time count against it. So the time of a transaction is its own: neither what others
// needed before it nor what its caller has left.
func TestATransactionsTimeBeginsWithItsTurn(t *testing.T) {
	s := localstack.Test(t, localstack.BID, localstack.Meta)
	c := s.Cluster(t)
	table := conflict.NewSQL(c)
	release := table.Turn()
	waits := make(chan struct{})
	var once sync.Once
	ctx := moment{t.Context(), func() { once.Do(func() { close(waits) }) }}
	deadline := make(chan time.Time, 1)
	done := make(chan error, 1)
	go func() {
		done <- table.Write(ctx, c.Meta(), func(ctx context.Context, c *sql.Conn) error {
			d, _ := ctx.Deadline()
			deadline <- d
			return nil
		})
	}()
	<-waits
	turn := time.Now()
	release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if d := <-deadline; d.Before(turn.Add(conflict.WriteMax)) {
		t.Errorf("its time ends %v after its turn came, and is %v: it began before its turn", d.Sub(turn), conflict.WriteMax)
	}

	// Who waits for a turn stops when its caller does, and no write has failed.
	release = table.Turn()
	defer release()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := table.Write(ended, c.Meta(), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("who waits for a turn: %v", err)
	}
	added, err := table.Add(ended, []conflict.Pair{pairOf("N", 2)})
	if !errors.Is(err, context.Canceled) || added != (conflict.Added{}) {
		t.Errorf("%+v, %v", added, err)
	}
	if err := c.Meta().Writable(); err != nil {
		t.Error(err)
	}
}

// Another scan has a conflict locked for longer than a statement waits for it.
func TestWhoFindsAConflictLockedTriesAgain(t *testing.T) {
	s := localstack.Test(t, localstack.BID, localstack.Meta)
	c := s.Cluster(t)
	table := conflict.NewSQL(c)
	if _, err := table.Add(t.Context(), []conflict.Pair{pairOf("N", 2)}); err != nil {
		t.Fatal(err)
	}
	other, eyes := newRival(t, s, c), newRival(t, s, c)
	other.do("BEGIN", "SELECT id FROM @conflict FOR UPDATE")
	done := make(chan error, 1)
	go func() {
		_, err := table.Add(t.Context(), []conflict.Pair{pairOf("N", 3)})
		done <- err
	}()
	seen := map[string]bool{}
	eventually.True(t, "it waits a second time", func() bool {
		select {
		case err := <-done:
			t.Fatalf("while the conflict is locked: %v", err)
		default:
		}
		for _, id := range eyes.waiting() {
			seen[id] = true
		}
		return len(seen) > 1
	})
	other.do("ROLLBACK")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	page, err := table.List(t.Context(), conflict.Query{Before: 1<<63 - 1, Limit: 1})
	if err != nil || len(page.Conflicts) != 1 || len(page.Conflicts[0].Orders) != 3 {
		t.Errorf("%+v, %v", page.Conflicts, err)
	}
}

// While all conflicts are locked by somebody else, one who adds what is listed already,
// and orders of which there are too many, waits for nobody: nothing is written.
func TestWhatIsListedIsNotWrittenAgain(t *testing.T) {
	s := localstack.Test(t, localstack.BID, localstack.Meta)
	c := s.Cluster(t)
	table := conflict.NewSQL(c)
	var pairs []conflict.Pair
	for i := range 2 * conflict.AtOnce {
		pairs = append(pairs, pairOf(fmt.Sprint("n", i), 2))
	}
	for i := range conflict.OrdersMax - 1 {
		pairs = append(pairs, pairOf("full", int64(2+i)))
	}
	if added, err := table.Add(t.Context(), pairs); err != nil || added.New[conflict.OutTradeNo] != 2*conflict.AtOnce+1 {
		t.Fatalf("%+v, %v", added, err)
	}
	other := newRival(t, s, c)
	other.do("BEGIN", "SELECT id FROM @conflict FOR UPDATE")
	added, err := table.Add(t.Context(), append(pairs, pairOf("full", 1<<40)))
	if err != nil || added != (conflict.Added{}) {
		t.Errorf("added again: %+v, %v", added, err)
	}
	other.do("ROLLBACK")
}

// What comes first is done and counted though the rest fails, so that one who tries again
// and again comes to the end.
func TestWhatWasWrittenBeforeAFailureIsDone(t *testing.T) {
	s := localstack.Test(t, localstack.BID, localstack.Meta)
	c := s.Cluster(t)
	table := conflict.NewSQL(c)
	if _, err := table.Add(t.Context(), []conflict.Pair{pairOf("z", 2)}); err != nil {
		t.Fatal(err)
	}
	other := newRival(t, s, c)
	other.do("BEGIN", "SELECT id FROM @conflict WHERE kind = 'out_trade_no' AND bid = 1 AND number = 'z' FOR UPDATE")
	var pairs []conflict.Pair
	for i := range conflict.AtOnce + 10 {
		pairs = append(pairs, pairOf(fmt.Sprint("n", i), 2))
	}
	pairs = append(pairs, pairOf("z", 3))
	added, err := table.Add(t.Context(), pairs)
	if err == nil || added.New[conflict.OutTradeNo] != conflict.AtOnce {
		t.Errorf("while one is locked: %+v, %v", added, err)
	}
	other.do("ROLLBACK")
	added, err = table.Add(t.Context(), pairs)
	if err != nil || added.New[conflict.OutTradeNo] != 10 {
		t.Errorf("then: %+v, %v", added, err)
	}
}

// A program that is older than what it reads says so, and the meta database stays what it
// is: one that answers.
func TestAKindOfANewerProgramIsNoFaultOfTheDatabase(t *testing.T) {
	s := localstack.Test(t, localstack.BID, localstack.Meta)
	c := s.Cluster(t)
	table := conflict.NewSQL(c)
	newRival(t, s, c).do("ALTER TABLE @conflict MODIFY kind ENUM('out_trade_no','channel_trade_no','later') NOT NULL",
		"INSERT INTO @conflict (kind, bid, number, orders, found_at) VALUES ('later', 0, 'x', 0, UTC_TIMESTAMP(3))")
	for range 10 {
		_, err := table.List(t.Context(), conflict.Query{Before: 1<<63 - 1, Limit: 1})
		if err == nil || errors.Is(err, cluster.ErrUnavailable) || !strings.Contains(err.Error(), "unknown kind") {
			t.Fatalf("the list: %v", err)
		}
	}
	if err := c.Meta().Readable(); err != nil {
		t.Error(err)
	}
}
