package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/services/internal/boot"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/stream"
)

const (
	// natsWithin bounds all that is asked of NATS at a time.
	natsWithin = 10 * time.Second
	// markMost is how old a server's newest mark may be, and how far a database of the
	// mirror may be behind it. At rest both are below three seconds.
	markMost = 10 * time.Second
	// fullMost is the share of the stream that may be full: a reader that stands still
	// fills the rest.
	fullMost = 0.8
	// The least version of NATS, of which a reader can read some of the subjects.
	natsMajor, natsMinor = 2, 10
)

// A broker is NATS as a check sees it.
type broker struct {
	nc *nats.Conn
	st *stream.Stream
	// State is the stream's before any database was asked, at a time of this machine.
	stream.State
	at time.Time
}

func (b *broker) close() {
	if b != nil {
		b.nc.Close()
	}
}

// broker looks at NATS and at the stream. It returns nil if there is nothing to compare
// with the databases, and has said why.
func (r *report) broker(ctx context.Context, s boot.Shared, m *shardmap.Map) *broker {
	const where = "NATS"
	if s.NATSURL == "" {
		r.note("NATS: nats_url (%sNATS_URL) is not set: the stream, and how far the mirror is, were not looked at.", boot.Prefix)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, natsWithin)
	defer cancel()
	nc, err := s.NATS("octopay check", nats.RetryOnFailedConnect(false))
	if err != nil {
		r.differs(where, "could not be checked: %v", err)
		return nil
	}
	r.natsServer(where, nc.ConnectedServerVersion(), nc.MaxPayload())
	b := &broker{nc: nc}
	if b.st, err = stream.New(nc, m.Prefix(), stream.Config{}); err == nil {
		b.State, err = b.st.Inspect(ctx, names(m.Servers(shardmap.UID)))
		b.at = time.Now()
	}
	switch {
	case err == nil:
		return b
	case errors.Is(err, jetstream.ErrStreamNotFound):
		r.differs(where, "there is no stream %s: the first syncerd makes it", b.st.Name())
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount), errors.Is(err, nats.ErrNoResponders):
		r.differs(where, "JetStream is not enabled there: %v", err)
	default:
		r.differs(where, "could not be checked: %v", err)
	}
	b.close()
	return nil
}

func names(servers []shardmap.Server) (out []string) {
	for _, s := range servers {
		out = append(out, s.Name)
	}
	return out
}

// natsServer judges what a server of NATS says of itself.
func (r *report) natsServer(where, version string, maxPayload int64) {
	r.note("NATS: version %s.", version)
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, err1 := strconv.Atoi(major)
	b, err2 := strconv.Atoi(minor)
	if err := errors.Join(err1, err2); err != nil || a < natsMajor || a == natsMajor && b < natsMinor {
		r.differs(where, "its version is %s; should be at least %d.%d", version, natsMajor, natsMinor)
	}
	if maxPayload < stream.MessageBytes {
		r.differs(where, "max_payload is %d; should be at least %d: so large are messages of rows", maxPayload, stream.MessageBytes)
	}
}

// A copied is how far a database of the mirror is.
type copied struct {
	place       shardmap.Database
	incarnation string // "" is none yet
	seq         uint64
	marks       map[string]schema.Millis // by server
	letters     int                      // dead ones that are open
}

// readCopied reads how far a database of the mirror is; nil if its tables aren't there,
// which is said already.
func readCopied(ctx context.Context, db *sql.DB, place shardmap.Database) (*copied, error) {
	c := &copied{place: place, marks: map[string]schema.Millis{}}
	err := c.read(ctx, db)
	if isMissingTable(err) || errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return c, err
}

func (c *copied) read(ctx context.Context, db *sql.DB) (err error) {
	if err := db.QueryRowContext(ctx, "SELECT incarnation, stream_seq, (SELECT COUNT(*) FROM `"+c.place.Schema+"`.dead_letter WHERE state = 'open') FROM `"+
		c.place.Schema+"`.progress WHERE id = 1").Scan(&c.incarnation, &c.seq, &c.letters); err != nil {
		return err
	}
	rows, err := db.QueryContext(ctx, "SELECT server, at FROM `"+c.place.Schema+"`.mark")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var server string
		var at schema.Millis
		if err := rows.Scan(&server, &at); err != nil {
			return err
		}
		c.marks[server] = at
	}
	return rows.Err()
}

// A flow is the mirror on its way: the stream before and after the databases were asked.
type flow struct {
	name    string
	before  stream.State
	after   stream.Info
	at      time.Time                // of before, by this machine's clock
	ahead   map[string]time.Duration // the clock of each uid server that answered, against it
	servers []string                 // the uid servers
}

// mirror looks at the stream again and judges how far the mirror is.
func (r *report) mirror(ctx context.Context, b *broker, m *shardmap.Map, clocks []clock, copies []*copied) {
	r.letters(copies)
	if b == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, natsWithin)
	defer cancel()
	after, err := b.st.Info(ctx)
	if err != nil {
		r.differs("NATS", "could not be checked to the end: %v", err)
		return
	}
	f := flow{name: b.st.Name(), before: b.State, after: after, at: b.at, ahead: map[string]time.Duration{}, servers: names(m.Servers(shardmap.UID))}
	for _, c := range clocks {
		if c.server != "" {
			f.ahead[c.server] = c.ahead
		}
	}
	r.stream(f)
	for _, c := range copies {
		if c != nil {
			r.copy(f, *c)
		}
	}
}

// letters counts the dead ones.
func (r *report) letters(copies []*copied) {
	for _, c := range copies {
		if c != nil && c.letters > 0 {
			r.differs(c.place.String(), "dead letters that are open: %d; until they are settled its marks stand still: see octopay mirror dead-letters list", c.letters)
		}
	}
}

// stream judges the stream by itself.
func (r *report) stream(f flow) {
	where := "stream " + f.name
	for _, w := range f.before.Wrong {
		r.differs(where, "%s", w)
	}
	line := fmt.Sprintf("Stream: %s, messages %d to %d", f.name, f.after.First, f.after.Last)
	if f.before.MaxBytes > 0 {
		share := float64(f.after.Bytes) / float64(f.before.MaxBytes)
		line += fmt.Sprintf(", %d of %d bytes, %.0f %%", f.after.Bytes, f.before.MaxBytes, 100*share)
		if share >= fullMost {
			r.warn(where, "it is full to %.0f %%; when there is no room left the mirror stands still", 100*share)
		}
	}
	var ages []string
	for _, server := range f.servers {
		mark, ok := f.before.Marks[server]
		ahead, known := f.ahead[server]
		age := f.at.Add(ahead).Sub(mark.At.Time())
		switch {
		case !ok:
			r.differs(where, "there is no mark of server %s in it: its collector has not begun", server)
			continue
		case !known:
			continue
		case age > markMost:
			r.differs(where, "the newest mark of server %s is %.1f s old: its collector stands still, or a transaction is open there for so long", server, age.Seconds())
		case age < -clockMost:
			r.differs(where, "the newest mark of server %s is %.1f s ahead of that server's clock, which was set back", server, -age.Seconds())
		}
		ages = append(ages, fmt.Sprintf("%s %.1f s", server, age.Seconds()))
	}
	if len(ages) > 0 {
		line += "; age of the newest marks: " + strings.Join(ages, ", ")
	}
	r.note("%s.", line)
}

// copy judges a database of the mirror against the stream.
func (r *report) copy(f flow, c copied) {
	where := c.place.String()
	switch {
	case f.before.Incarnation != f.after.Incarnation:
		return // it was made anew meanwhile; the databases follow
	case c.incarnation == "":
		r.differs(where, "it has applied nothing of the stream yet")
		return
	case c.incarnation != f.before.Incarnation:
		r.differs(where, "it has a position in stream %s; the stream is %s", c.incarnation, f.before.Incarnation)
		return
	case c.seq+1 < f.before.First:
		r.differs(where, "it has applied the stream up to message %d, and the first that is kept is %d: it must be refilled", c.seq, f.before.First)
		return
	case c.seq > f.after.Last:
		r.differs(where, "it has applied the stream up to message %d, and the last is %d: NATS has lost messages", c.seq, f.after.Last)
		return
	case c.letters > 0:
		return // said already
	}
	for _, server := range f.servers {
		newest, ok := f.before.Marks[server]
		applied, has := c.marks[server]
		behind := newest.At.Time().Sub(applied.Time())
		switch {
		case !ok: // said already
		case !has:
			r.differs(where, "it has applied no mark of server %s", server)
		case behind > markMost:
			r.differs(where, "it is %.1f s behind the stream with what comes from server %s", behind.Seconds(), server)
		}
	}
}
