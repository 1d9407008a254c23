package binlog

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/octopay/octopay/internal/dberr"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/slot"
	"github.com/octopay/octopay/syncer/source"
)

const (
	// Bounds of a part of a large transaction.
	partRows = 1000
	// readAhead is the number of events held; one is at most 8 KiB, or one row.
	readAhead = 256
	heartbeat = time.Second
	// A server that sends no heartbeat for so long is gone, or frozen.
	silenceDefault = 10 * time.Second
)

// A reader is one connection as a replica.
type reader struct {
	s        *Source
	syncer   *replication.BinlogSyncer
	streamer *replication.BinlogStreamer
	closing  atomic.Bool
	silent   atomic.Bool // nothing came, not even a heartbeat

	position source.Position
	gtid     source.GTID // of the transaction that is being read
	alone    bool        // it is one statement without an end of its own
	handed   bool        // parts of it were handed on
	plans    map[string]*plan
	part     source.Batch
}

func (s *Source) open(after source.Position) (source.Reader, error) {
	host, port, err := net.SplitHostPort(s.server.Address)
	if err != nil {
		return nil, s.wrap("address", err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, s.wrap("address", err)
	}
	start, err := gomysql.ParseMariadbGTIDSet(after.String())
	if err != nil {
		return nil, s.wrap("position", err)
	}
	r := &reader{s: s, position: after, plans: map[string]*plan{}}
	dialer := &net.Dialer{Timeout: dialTimeout}
	r.syncer = replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
		ServerID: 1<<31 | rand.Uint32(),
		Flavor:   gomysql.MariaDBFlavor,
		Host:     host, Port: uint16(number),
		User: s.config.User, Password: s.config.Password,
		TLSConfig:       s.tlsTo(host),
		Localhost:       "octopay-syncer",
		HeartbeatPeriod: heartbeat,
		ReadTimeout:     s.config.Silence,
		ParseTime:       true, // DATETIME as UTC; there is no TIMESTAMP column
		// Where to go on after a break is known to the caller alone.
		DisableRetrySync: true,
		DiscardGTIDSet:   true,
		// Its acknowledgement would be one from memory.
		SemiSyncEnabled:     false,
		VerifyChecksum:      true,
		EventCacheCount:     readAhead,
		Logger:              slog.New(slog.DiscardHandler), // its lines name the account
		RowsEventDecodeFunc: s.decodeEvent,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if r.closing.Load() {
				// Closing, the library dials once more, to kill its connection; the server
				// notices by itself at the next heartbeat.
				return nil, net.ErrClosed
			}
			c, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &listener{Conn: c, silent: &r.silent}, nil
		},
	})
	if r.streamer, err = r.syncer.StartSyncGTID(start); err != nil {
		_ = r.Close()
		return nil, fmt.Errorf("binlog of %s: connect: account %s: %w", s.server.Name, s.config.User, safe(err))
	}
	return r, nil
}

// tlsTo returns the TLS settings of a connection to a host; nil: no TLS.
func (s *Source) tlsTo(host string) *tls.Config {
	if s.config.TLS == nil {
		return nil
	}
	c := s.config.TLS.Clone()
	c.ServerName = host
	return c
}

// A listener is a connection that notes when nothing came in time: the library's error
// for that is the same as for a connection that broke.
type listener struct {
	net.Conn
	silent *atomic.Bool
}

func (l *listener) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		l.silent.Store(true)
	}
	return n, err
}

// Close implements source.Reader.
func (r *reader) Close() error {
	r.closing.Store(true)
	r.syncer.Close()
	return nil
}

// Saved implements source.Reader. The server keeps its log for days, whoever read it.
func (r *reader) Saved(source.Position) {}

// safe keeps a server's number, with words of ours, and drops its text, which may quote a
// statement.
func safe(err error) error {
	var said *gomysql.MyError
	if errors.As(err, &said) {
		return errors.New(dberr.Words(said.Code))
	}
	return err
}

// decodeEvent decodes the rows of our tables and leaves all others alone.
func (s *Source) decodeEvent(e *replication.RowsEvent, data []byte) error {
	pos, err := e.DecodeHeader(data)
	if err != nil {
		return err
	}
	if _, _, ours := s.tableOf(e.Table); !ours {
		return nil
	}
	return e.DecodeData(pos, data)
}

type kind int

const (
	orders kind = iota
	entries
)

// A place is one of our tables.
type place struct {
	database shardmap.Database
	table    int
	kind     kind
}

func (s *Source) tableOf(t *replication.TableMapEvent) (place, string, bool) {
	db, ok := s.databases[string(t.Schema)]
	if !ok {
		return place{}, "", false
	}
	p := place{database: db}
	name := string(t.Table)
	digit, ok := strings.CutPrefix(name, "order_")
	if !ok {
		if digit, ok = strings.CutPrefix(name, "journal_"); !ok {
			return place{}, "", false
		}
		p.kind = entries
	}
	n, err := strconv.Atoi(digit)
	if err != nil || n < 0 || n >= slot.Tables || strconv.Itoa(n) != digit {
		return place{}, "", false
	}
	p.table = n
	return p, db.Schema + "." + name, true
}

// Next implements source.Reader.
func (r *reader) Next(ctx context.Context) (source.Batch, error) {
	for {
		e, err := r.streamer.GetEvent(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return source.Batch{}, ctx.Err()
			}
			if r.silent.Load() {
				err = fmt.Errorf("%w: not even a heartbeat came for %s: %w", source.ErrStalled, r.s.config.Silence, err)
			}
			return source.Batch{}, fmt.Errorf("binlog of %s: read: %w", r.s.server.Name, safe(err))
		}
		done, err := r.event(e)
		if err != nil {
			return source.Batch{}, fmt.Errorf("binlog of %s: behind %s: %w", r.s.server.Name, r.position, err)
		}
		if done || r.part.Rows() >= partRows {
			b := r.part
			r.part = source.Batch{}
			r.handed = !done
			return b, nil
		}
	}
}

// flagPreparedXA marks the first half of an XA transaction: its rows are not
// committed.
const flagPreparedXA = 64

// event takes one event in and reports whether a transaction ended with it.
func (r *reader) event(e *replication.BinlogEvent) (done bool, err error) {
	switch ev := e.Event.(type) {
	case *replication.MariadbGTIDEvent:
		if ev.Flags&flagPreparedXA != 0 {
			// Nothing of ours makes these.
			return false, errors.New("XA transactions are not supported")
		}
		r.gtid = source.GTID{Domain: ev.GTID.DomainID, Server: ev.GTID.ServerID, Seq: ev.GTID.SequenceNumber}
		r.alone, r.handed = ev.IsStandalone(), false
		r.part = source.Batch{}
	case *replication.RowsEvent:
		return false, r.rows(ev)
	case *replication.XIDEvent:
		return true, r.end()
	case *replication.QueryEvent:
		// The one statement of a group without an end, such as DDL; or the end of a
		// transaction over tables without transactions. Other statements, such as
		// BEGIN and SAVEPOINT, end nothing.
		q := string(ev.Query)
		if strings.HasPrefix(q, "ROLLBACK") && !r.alone {
			if err := r.rolledBack(q); err != nil {
				return false, err
			}
		}
		if r.alone || q == "COMMIT" || q == "ROLLBACK" {
			return true, r.end()
		} else if r.s.writesOurs(q) {
			return false, errors.New("a statement on our tables is in the log instead of its rows; some session sets binlog_format")
		}
	case *replication.GenericEvent:
		if e.Header.EventType == replication.INCIDENT_EVENT {
			return false, fmt.Errorf("%w: the log itself says that the server lost events", source.ErrPurged)
		}
	}
	return false, nil
}

// end closes the transaction: only here does the position move.
func (r *reader) end() error {
	if r.gtid == (source.GTID{}) {
		return errors.New("a transaction without a GTID")
	}
	r.position = r.position.With(r.gtid)
	r.part.End = r.position
	r.gtid, r.alone = source.GTID{}, false
	return nil
}

// rolledBack takes back the rows that are in the log though they were rolled back. The
// server logs a transaction that failed when something in it can't fail, such as a
// temporary table that it made. Nothing of ours makes these; an operator may.
func (r *reader) rolledBack(q string) error {
	if r.handed {
		return errors.New("a transaction is in the log as rolled back, and is so large that a part of it was read before that")
	}
	if q != "ROLLBACK" && r.part.Rows() > 0 { // to a savepoint: which of its rows came before that isn't kept
		return errors.New("a transaction is in the log as rolled back in part")
	}
	r.part = source.Batch{}
	return nil
}

// writesOurs reports whether a statement, logged as text, may write to our tables.
// Our own statements always name the schema.
func (s *Source) writesOurs(query string) bool {
	for name := range s.databases {
		if strings.Contains(query, name) {
			return true
		}
	}
	return false
}

// rows adds the rows of an event to the part.
func (r *reader) rows(e *replication.RowsEvent) error {
	at, name, ours := r.s.tableOf(e.Table)
	if !ours {
		return nil
	}
	step := 1
	switch e.Type() {
	case replication.EnumRowsEventTypeInsert:
	case replication.EnumRowsEventTypeUpdate:
		step = 2 // each row before and after
	case replication.EnumRowsEventTypeDelete:
		r.s.deletes.Add(uint64(len(e.Rows)))
		r.s.sayDelete.Do(func() {
			r.s.config.Log.Error("rows of the truth were deleted; the mirror keeps them", "server", r.s.server.Name, "table", name)
		})
		return nil
	default:
		return fmt.Errorf("%s: rows of an unknown kind", name)
	}
	p := r.plans[name]
	if p == nil || !p.fits(e.Table) {
		var err error
		if p, err = newPlan(at.kind, e.Table); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		r.plans[name] = p
	}
	for i := step - 1; i < len(e.Rows); i += step {
		var skipped []int
		if i < len(e.SkippedColumns) {
			skipped = e.SkippedColumns[i]
		}
		r.row(at, name, p, e.Rows[i], skipped)
	}
	return nil
}

// row adds one row, or why it can't be understood.
func (r *reader) row(at place, name string, p *plan, values []any, skipped []int) {
	broken := func(err error) {
		r.part.Broken = append(r.part.Broken, source.Broken{
			Table: name, BID: p.number("bid", values), Reason: err.Error(), Text: p.text(values),
		})
	}
	if len(skipped) > 0 {
		broken(errors.New("the row isn't whole; some session sets binlog_row_image"))
		return
	}
	var uid int64
	var o schema.Order
	var e schema.Entry
	var err error
	if at.kind == orders {
		err = p.fill(o.Fields(), values)
		uid = o.UID
	} else {
		err = p.fill(e.Fields(), values)
		uid = e.UID
	}
	if err == nil {
		err = r.s.placed(uid, at)
	}
	switch {
	case err != nil:
		broken(err)
	case at.kind == orders:
		r.part.Orders = append(r.part.Orders, o)
	default:
		r.part.Entries = append(r.part.Entries, e)
	}
}

// placed checks that a row is in the table of its buyer.
func (s *Source) placed(uid int64, at place) error {
	if uid < 1 {
		return errors.New("uid is below 1")
	}
	if l := s.m.Locate(uid); l.Database != at.database.Number || l.Table != at.table {
		return errors.New("uid belongs to another table")
	}
	return nil
}
