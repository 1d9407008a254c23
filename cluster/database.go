package cluster

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/octopay/octopay/internal/dberr"
	"github.com/octopay/octopay/shardmap"
	"github.com/sony/gobreaker/v2"
)

// A Database is the handle of one database, whatever server it is on. It is safe for
// concurrent use.
type Database struct {
	config  Config
	permits chan struct{}
	watched *atomic.Bool // Run looks after it
	link    atomic.Pointer[link]
}

// Place returns which database this is, and where it is now.
func (d *Database) Place() shardmap.Database { return d.link.Load().place }

// Schema returns the name that qualifies every table. It never changes.
func (d *Database) Schema() string { return d.link.Load().place.Schema }

// Epoch returns the epoch of the map in use. A transaction that writes makes sure that
// the owner row has it. Whoever asks before Conn has at worst one that is too low.
func (d *Database) Epoch() shardmap.Epoch { return d.link.Load().epoch }

// Readable returns why reads are refused now, nil if they aren't. It asks nobody.
func (d *Database) Readable() error { return d.unavailable(d.readable(d.link.Load())) }

// Writable returns why writes are refused now, nil if they aren't. It asks nobody.
func (d *Database) Writable() error { return d.unavailable(d.writable(d.link.Load())) }

var (
	errSilent   = dberr.As(dberr.NotSent, errors.New("it has not answered lately"))
	errMute     = dberr.As(dberr.NotSent, errors.New("its last writes were not answered, or not taken"))
	errReadOnly = dberr.As(dberr.ReadOnly, errors.New("the server is read-only"))
	// errMoved reports that a newer map took over before anything was asked.
	errMoved = errors.New("the map changed")
)

// readable looks at what is known. While Run runs, its probe finds out whether a
// database is back, and no request has to. Without it, one request may try.
func (d *Database) readable(l *link) error {
	watched := d.watched.Load()
	switch l.answers.State() {
	case gobreaker.StateOpen:
		return errSilent
	case gobreaker.StateHalfOpen:
		if watched {
			return errSilent
		}
	}
	if w := l.word.Load(); watched && w != nil {
		return w.err
	}
	return nil
}

func (d *Database) writable(l *link) error {
	if err := d.readable(l); err != nil {
		return err
	}
	if w := l.word.Load(); d.watched.Load() && w != nil && w.readOnly {
		return errReadOnly
	}
	if l.writes.State() == gobreaker.StateOpen {
		return errMute
	}
	return nil
}

// Read calls f with a connection for reading, under a permit and a deadline of its
// own: the end of ctx stops the wait for a permit, not a statement, since a
// cancelled statement costs a connection. Without a permit it returns ErrBusy. An
// error of f that means the database is away is wrapped in ErrUnavailable. f returns
// errors of the database alone; sql.ErrNoRows is passed on.
//
// When f begins, the database has said less than two seconds before that it is the one
// of the map, under its epoch.
func (d *Database) Read(ctx context.Context, f func(ctx context.Context, c *sql.Conn) error) error {
	for {
		l := d.link.Load()
		if err := d.readable(l); err != nil {
			return d.unavailable(err)
		}
		err := guard(l.answers, func() error { return d.read(ctx, l, f) })
		switch {
		case errors.Is(err, errMoved): // nothing was asked; at most once for each map
			continue
		case err == nil, errors.Is(err, sql.ErrNoRows), errors.Is(err, ErrBusy):
			return err
		}
		switch dberr.Of(err) {
		case dberr.NotSent, dberr.Unknown, dberr.ReadOnly, dberr.Stale, dberr.Missing:
			return d.unavailable(err)
		}
		return dberr.Clean(err)
	}
}

func (d *Database) read(ctx context.Context, l *link, f func(ctx context.Context, c *sql.Conn) error) error {
	select {
	case d.permits <- struct{}{}:
	default:
		wait := time.NewTimer(d.config.PermitWait)
		defer wait.Stop()
		select {
		case d.permits <- struct{}{}:
		case <-wait.C:
			return fmt.Errorf("%w: %s", ErrBusy, l.place.Schema)
		case <-ctx.Done():
			return fmt.Errorf("%w: %s: %w", ErrBusy, l.place.Schema, ctx.Err())
		}
	}
	defer func() { <-d.permits }()

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.config.ReadTimeout)
	defer cancel()
	c, err := l.readers.Conn(ctx)
	if err == nil {
		defer c.Close()
		err = l.prove(ctx, c)
	}
	if err != nil && d.link.Load() != l {
		return errMoved
	}
	if err != nil {
		return err
	}
	return f(ctx, c)
}

// Conn returns a dedicated connection for a writer, which may send many statements
// in one packet. The caller closes it, or discards it (see Discard) when it is not
// sure that no transaction is open on it. Every error is wrapped in ErrUnavailable.
//
// It is a connection of the epoch that there was or of a newer one; see Epoch.
func (d *Database) Conn(ctx context.Context) (*sql.Conn, error) {
	for {
		l := d.link.Load()
		if err := d.writable(l); err != nil {
			return nil, d.unavailable(err)
		}
		var c *sql.Conn
		err := guard(l.answers, func() (err error) {
			c, err = l.writers.Conn(ctx)
			return err
		})
		if err == nil {
			return c, nil
		}
		if d.link.Load() == l {
			return nil, d.unavailable(err)
		}
	}
}

// Wrote tells the handle how a write went that was sent over a connection of Conn: nil
// or the error. Writes that aren't answered, or answered by a server that takes none,
// are refused for a while after some in a row.
func (d *Database) Wrote(err error) {
	l := d.link.Load()
	if dberr.Of(err) == dberr.Stale {
		l.word.Store(nil) // what it said before isn't true any more
	}
	report(l.writes, err)
	if !silent(err) {
		report(l.answers, nil)
	}
}

// Clean returns an error of Read, Conn or a write over it for a log, without what a driver's
// text quotes. ErrBusy and ErrUnavailable quote nothing, and stay as they are.
func Clean(err error) error {
	if errors.Is(err, ErrBusy) || errors.Is(err, ErrUnavailable) {
		return err
	}
	return dberr.Clean(err)
}

// named returns err for a log: without the server's text, and with the account if it is
// that one, or what it has no right to, that the server refuses. MariaDB says of an account
// that has to come in TLS and doesn't that its password is wrong.
func (c Config) named(err error) error {
	if dberr.Denied(err) {
		how := "in TLS"
		if c.TLS == nil {
			how = "without TLS"
		}
		return fmt.Errorf("account %s, %s: %w", c.User, how, dberr.Clean(err))
	}
	return dberr.Clean(err)
}

// unavailable wraps err, which may be nil.
func (d *Database) unavailable(err error) error {
	if err == nil || errors.Is(err, ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, d.Place(), d.config.named(err))
}
