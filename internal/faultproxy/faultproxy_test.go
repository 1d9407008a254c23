package faultproxy_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/faultproxy"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/shardmap"
)

func TestMain(m *testing.M) { eventually.Main(m) }

// A bench is a table on a real server, reached directly and through a proxy.
type bench struct {
	proxy  *faultproxy.Proxy
	direct *sql.DB
	via    *sql.DB
	table  string
}

func newBench(t *testing.T) *bench {
	s := localstack.Test(t, localstack.UID)
	b := &bench{
		proxy:  faultproxy.New(t, s.Server("uid-a").Address()),
		direct: s.Admin(t, "uid-a"),
		table:  "`" + s.Map.Database(shardmap.UID, 1).Schema + "`.probe",
	}
	if _, err := b.direct.Exec("CREATE TABLE " + b.table + " (id INT PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User, c.Passwd = "tcp", b.proxy.Addr(), s.User, s.Password
	c.InterpolateParams, c.MultiStatements = true, true
	c.Logger = quiet{}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		t.Fatal(err)
	}
	b.via = sql.OpenDB(connector)
	t.Cleanup(func() { _ = b.via.Close() })
	return b
}

type quiet struct{}

func (quiet) Print(...any) {}

// conn returns one connection through the proxy, and its number at the server.
func (b *bench) conn(t *testing.T) (*sql.Conn, int64) {
	t.Helper()
	c, err := b.via.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	var id int64
	if err := c.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id); err != nil {
		t.Fatal(err)
	}
	return c, id
}

// gone waits until the server has ended its connection id: then nothing of it can
// happen any more.
func (b *bench) gone(t *testing.T, id int64) {
	t.Helper()
	eventually.True(t, "the server ends the connection", func() bool {
		return b.count(t, "information_schema.processlist WHERE id = ?", id) == 0
	})
}

func (b *bench) count(t *testing.T, from string, args ...any) (n int) {
	t.Helper()
	if err := b.direct.QueryRow("SELECT COUNT(*) FROM "+from, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

var points = []faultproxy.Point{
	faultproxy.BeforePacket, faultproxy.InPacket,
	faultproxy.BeforeReply, faultproxy.InReply, faultproxy.AfterReply,
}

func (b *bench) fired() (out [5]int) {
	for i, p := range points {
		out[i] = b.proxy.Fired(p)
	}
	return out
}

func TestACutLosesTheStatementOrItsAnswer(t *testing.T) {
	b := newBench(t)
	for i, c := range []struct {
		point faultproxy.Point
		ran   int
	}{
		{faultproxy.BeforePacket, 0},
		{faultproxy.InPacket, 0},
		{faultproxy.BeforeReply, 1},
		{faultproxy.InReply, 1},
		{faultproxy.AfterReply, 1},
	} {
		t.Run(c.point.String(), func(t *testing.T) {
			conn, id := b.conn(t)
			fault := b.proxy.Arm(c.point, faultproxy.Query("INSERT INTO"))
			before := b.fired()
			if _, err := conn.ExecContext(t.Context(), "DO 1"); err != nil {
				t.Fatalf("another statement met the fault: %v", err)
			}
			_, err := conn.ExecContext(t.Context(), "INSERT INTO "+b.table+" VALUES (?)", i)
			var answer *mysql.MySQLError
			if err == nil || errors.As(err, &answer) {
				t.Fatalf("the client got an answer: %v", err)
			}
			select {
			case <-fault.Done():
			default:
				t.Error("the client noticed a cut that is not reported")
			}
			before[c.point]++
			if got := b.fired(); got != before {
				t.Errorf("counters %v, want %v", got, before)
			}
			b.gone(t, id)
			if got := b.count(t, b.table+" WHERE id = ?", i); got != c.ran {
				t.Errorf("%d rows, want %d", got, c.ran)
			}
			// Once is once.
			again, _ := b.conn(t)
			if _, err := again.ExecContext(t.Context(), "INSERT INTO "+b.table+" VALUES (?)", 100+i); err != nil {
				t.Errorf("it happened a second time: %v", err)
			}
		})
	}
}

func TestAPacketOfSeveralStatementsRunsToItsEnd(t *testing.T) {
	b := newBench(t)
	for i, point := range []faultproxy.Point{faultproxy.BeforeReply, faultproxy.InReply, faultproxy.AfterReply} {
		conn, id := b.conn(t)
		b.proxy.Arm(point, faultproxy.Query("COMMIT"))
		_, err := conn.ExecContext(t.Context(), fmt.Sprintf("BEGIN; INSERT INTO %[1]s VALUES (%[2]d); SELECT ROW_COUNT(); INSERT INTO %[1]s VALUES (%[3]d); COMMIT", b.table, i, 10+i))
		if err == nil {
			t.Fatalf("%s: the client got an answer", point)
		}
		if point == faultproxy.AfterReply {
			// No waiting: when the client is cut, the server has done everything.
			if n := b.count(t, b.table+" WHERE id IN (?, ?)", i, 10+i); n != 2 {
				t.Errorf("%s: %d of 2 rows when the client noticed", point, n)
			}
		}
		b.gone(t, id)
		if n := b.count(t, b.table+" WHERE id IN (?, ?)", i, 10+i); n != 2 {
			t.Errorf("%s: %d of 2 rows", point, n)
		}
		if b.proxy.Fired(point) != 1 {
			t.Errorf("%s did not happen", point)
		}
	}
}

func TestACutTransactionIsRolledBack(t *testing.T) {
	b := newBench(t)
	conn, id := b.conn(t)
	if _, err := conn.ExecContext(t.Context(), "BEGIN; INSERT INTO "+b.table+" VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	b.proxy.Arm(faultproxy.BeforePacket, faultproxy.Query("COMMIT"))
	if _, err := conn.ExecContext(t.Context(), "COMMIT"); err == nil {
		t.Fatal("committed")
	}
	b.gone(t, id)
	if n := b.count(t, b.table); n != 0 || b.proxy.Fired(faultproxy.BeforePacket) != 1 {
		t.Errorf("%d rows, %d faults", n, b.proxy.Fired(faultproxy.BeforePacket))
	}
}

// The client is cut while its statement waits for a lock; the statement goes on and
// runs when it gets it.
func TestAStatementThatWaitsForALockOutlivesItsClient(t *testing.T) {
	b := newBench(t)
	holder, err := b.direct.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback() }()
	if _, err := holder.Exec("INSERT INTO " + b.table + " VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	conn, id := b.conn(t)
	if _, err := conn.ExecContext(t.Context(), "SET innodb_lock_wait_timeout = 50"); err != nil {
		t.Fatal(err)
	}
	fault := b.proxy.Arm(faultproxy.BeforeReply, faultproxy.Query("INSERT INTO"))
	if _, err := conn.ExecContext(t.Context(), "INSERT INTO "+b.table+" VALUES (1), (2)"); err == nil {
		t.Fatal("the client got an answer")
	}
	<-fault.Done()
	if n := b.count(t, "information_schema.processlist WHERE id = ?", id); n != 1 {
		t.Fatal("the server gave up before it had the lock")
	}
	if err := holder.Rollback(); err != nil {
		t.Fatal(err)
	}
	b.gone(t, id)
	if n := b.count(t, b.table); n != 2 {
		t.Errorf("%d of 2 rows", n)
	}
}

func TestFaultsHappenInOrderAndOnlyToWhatMatches(t *testing.T) {
	b := newBench(t)
	first := b.proxy.Arm(faultproxy.AfterReply, faultproxy.Query("INSERT INTO"))
	second := b.proxy.Arm(faultproxy.BeforePacket, faultproxy.Query("INSERT INTO"))
	other := b.proxy.Arm(faultproxy.BeforePacket, faultproxy.Query("never said"))
	for i, f := range []*faultproxy.Fault{first, second} {
		conn, id := b.conn(t)
		if _, err := conn.ExecContext(t.Context(), "INSERT INTO "+b.table+" VALUES (?)", i); err == nil {
			t.Fatalf("statement %d was not cut", i)
		}
		<-f.Done()
		b.gone(t, id)
	}
	if n := b.count(t, b.table); n != 1 {
		t.Errorf("%d rows, want that of the first fault", n)
	}
	select {
	case <-other.Done():
		t.Error("a fault happened to a statement that doesn't match")
	default:
	}
}

func TestPassesEverythingOnWhenNothingIsArmed(t *testing.T) {
	b := newBench(t)
	conn, _ := b.conn(t)
	long := strings.Repeat("x", 3<<20)
	for range 3 {
		var back string
		if err := conn.QueryRowContext(t.Context(), "SELECT ?", long).Scan(&back); err != nil || back != long {
			t.Fatalf("%d bytes came back, %v", len(back), err)
		}
	}
	if got := b.fired(); got != [5]int{} || b.proxy.Accepted() != 1 {
		t.Errorf("faults %v, %d connections", got, b.proxy.Accepted())
	}
}

// The largest packet has a length of three bytes of 0xff and is followed by another.
// No server is needed to see that both arrive as they were: it sends all of it back.
func TestPassesTheLargestPackets(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	var echo sync.WaitGroup
	defer echo.Wait()
	echo.Go(func() {
		if c, err := l.Accept(); err == nil {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}
	})
	p := faultproxy.New(t, l.Addr().String())
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	sent := append([]byte{0xff, 0xff, 0xff, 0}, bytes.Repeat([]byte("0123456789abcde"), 0xffffff/15)...)
	sent = append(sent, 3, 0, 0, 1, 'e', 'n', 'd')
	echo.Go(func() { _, _ = c.Write(sent) })
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("came back changed, %v", err)
	}
}

func TestRefuseAndCutAll(t *testing.T) {
	b := newBench(t)
	conn, id := b.conn(t)
	b.proxy.Refuse(true)
	if err := conn.PingContext(t.Context()); err != nil {
		t.Fatalf("a connection that was there is refused: %v", err)
	}
	if n := b.proxy.CutAll(); n != 1 {
		t.Errorf("%d connections cut, want 1", n)
	}
	b.gone(t, id)
	if _, err := conn.ExecContext(t.Context(), "DO 1"); err == nil {
		t.Error("a cut connection answers")
	}
	if err := b.via.PingContext(t.Context()); err == nil {
		t.Error("a new connection is accepted")
	}
	b.proxy.Refuse(false)
	if err := b.via.PingContext(t.Context()); err != nil {
		t.Errorf("refused for ever: %v", err)
	}
}

func TestAServerThatIsAwayIsNotAFault(t *testing.T) {
	p := faultproxy.New(t, faultproxy.Nobody(t))
	p.Arm(faultproxy.AfterReply, func([]byte) bool { return true })
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("somebody answers for a server that is away")
	}
	if p.Fired(faultproxy.AfterReply) != 0 || p.Accepted() != 0 {
		t.Error("counted what did not happen")
	}
}

func TestTheClusterWorksThroughAProxy(t *testing.T) {
	s := localstack.Test(t, localstack.UID)
	p := faultproxy.New(t, s.Server("uid-a").Address())
	via := s.Via(t, "uid-a", p.Addr())
	c := via.Cluster(t)
	err := c.Database(shardmap.UID, 3).Read(t.Context(), func(ctx context.Context, c *sql.Conn) error {
		return c.PingContext(ctx)
	})
	if err != nil || p.Accepted() != 1 {
		t.Fatalf("%v; %d connections", err, p.Accepted())
	}
	p.Arm(faultproxy.BeforePacket, faultproxy.Query("owner"))
	_, err = c.Database(shardmap.UID, 4).Conn(t.Context())
	if !errors.Is(err, cluster.ErrUnavailable) || p.Fired(faultproxy.BeforePacket) != 1 {
		t.Errorf("%v; %d faults", err, p.Fired(faultproxy.BeforePacket))
	}
}
