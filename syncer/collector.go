package syncer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/syncer/apply"
	"github.com/octopay/octopay/syncer/source"
	"github.com/octopay/octopay/syncer/stream"
	"golang.org/x/sync/errgroup"
)

const (
	// gatherFor is how long rows wait for more to share their message.
	gatherFor = 5 * time.Millisecond
	// markEvery is the time between two marks.
	markEvery = 50 * time.Millisecond
	// staleMin is how long no stamp was fresh when that is said.
	staleMin = 2 * time.Second
	// batchesMax is how many transactions are read ahead of the publishing.
	batchesMax = 64
	// watchEvery is how often a collector looks whether the stream is still the one
	// that it writes to.
	watchEvery = time.Second
	// purgeEvery is how often it reads how far the databases are, to purge what all
	// have applied; more often while the stream is full.
	purgeEvery = 10 * time.Second
)

// A collector publishes what one uid server commits. Its run is one life of it, from
// Start to the first thing that goes wrong.
type collector struct {
	server  string
	source  source.Source
	stream  *stream.Stream
	targets []apply.Target
	log     *slog.Logger
	metrics *collectorMetrics
	readers *readers
	full    once // the stream is full
	stale   once // no fresh stamp
	now     func() time.Time
	note    func(c cause, why string) // why marks stand still, until a life ends; "": they don't

	purgeEvery time.Duration
	begins     uint64        // the stream, before what is tried to be published now; 0: not known
	pressed    atomic.Uint64 // begins, of what the stream was too full for last; 0: it isn't full
}

// A start is where a life begins.
type start struct {
	writer *stream.Writer
	from   source.Position
	at     schema.Millis // of the last mark in the stream
	resume bool          // from is that mark's position
	states []databaseState
}

// promised returns the highest time that a mark of the server promised before: the
// stream's last one, or one of a stream that is gone and that a database has applied.
func (s start) promised(server string) schema.Millis {
	at := s.at
	for _, d := range s.states {
		at = max(at, d.Marks[server].At) // a nil map has none
	}
	return at
}

type databaseState struct {
	apply.State
	schema string
	err    error // nothing is known
}

// run publishes until ctx ends or something goes wrong; it always returns an error.
func (c *collector) run(ctx context.Context) error {
	begin, err := c.start(ctx)
	if err != nil {
		return err
	}
	defer begin.writer.Close()
	c.metrics.marked(begin.at)
	defer func() { c.pressed.Store(0); c.metrics.full.Set(0) }() // nobody waits any more, here
	reader, err := c.source.Open(ctx, begin.from)
	if err != nil {
		return c.explain(err, begin)
	}
	defer func() { _ = reader.Close() }()
	// A first mark at once: from here on a writer of another incarnation, or another
	// collector, can't go on unseen.
	marks := &marker{at: begin.at}
	if err := c.mark(ctx, begin.writer, begin.from, marks); err != nil && !errors.Is(err, stream.ErrFull) {
		return err
	}
	batches := make(chan source.Batch, batchesMax)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return read(ctx, reader, batches) })
	g.Go(func() error { return c.stamp(ctx, begin.promised(c.server), marks) })
	g.Go(func() error { return c.watch(ctx, begin.writer.Incarnation()) })
	g.Go(func() error { return c.publish(ctx, begin, reader, batches, marks) })
	err = g.Wait()
	if errors.Is(err, source.ErrPurged) {
		return c.explain(err, begin)
	}
	return err
}

// start finds where to go on: behind the server's last mark in the stream, else
// behind what every database has applied, else at the beginning of the log. If NATS
// lost messages that a database has applied, the stream is made anew first, before
// anything is published.
func (c *collector) start(ctx context.Context) (start, error) {
	if _, err := c.stream.Ensure(ctx); err != nil {
		return start{}, err
	}
	states := c.states(ctx)
	info, err := c.stream.Info(ctx) // after the states, which it can't be behind of
	if err != nil {
		return start{}, err
	}
	if err := c.lost(ctx, states, info); errors.Is(err, apply.ErrLost) {
		c.log.Error("NATS lost messages; the stream is made anew and all servers rewind", "server", c.server, "error", err)
		c.metrics.remade.Inc()
		if err := c.stream.Delete(ctx, info.Incarnation); err != nil {
			return start{}, err
		}
		if info, err = c.stream.Ensure(ctx); err != nil {
			return start{}, err
		}
	} else if err != nil {
		return start{}, err
	}
	w, err := c.stream.Writer(ctx, c.server, info)
	if err != nil {
		return start{}, err
	}
	if last, ok := w.Last(); ok {
		return start{writer: w, from: last.Position, at: last.At, resume: true, states: states}, nil
	}
	positions := make([]source.Position, len(states))
	for i, s := range states {
		if s.err != nil {
			w.Close()
			// It may be the one that has applied least.
			return start{}, fmt.Errorf("where to begin is only known with every database: %w", s.err)
		}
		positions[i] = s.Marks[c.server].Position
	}
	from := source.Least(positions...)
	w.Begin(from) // a database that is made later can't have what lies before
	return start{writer: w, from: from, states: states}, nil
}

// states asks every database; one that doesn't answer has an err.
func (c *collector) states(ctx context.Context) []databaseState {
	states := make([]databaseState, len(c.targets))
	var g errgroup.Group
	for i, t := range c.targets {
		g.Go(func() error {
			states[i].schema = t.Place().Schema
			states[i].State, states[i].err = t.State(ctx)
			return nil
		})
	}
	_ = g.Wait()
	return states
}

// lost returns apply.ErrLost if the stream lacks what some database has applied of
// this incarnation, or anything behind that. A database that doesn't answer isn't waited
// for: its applier finds the same, whenever it is back, and so does the next look.
func (c *collector) lost(ctx context.Context, states []databaseState, info stream.Info) error {
	for _, s := range states {
		if s.err != nil {
			continue
		}
		if err := apply.Lost(ctx, s.Progress, info, c.stream.StoredAt); err != nil {
			return fmt.Errorf("%s: %w", s.schema, err)
		}
	}
	return c.holes(ctx, states, info)
}

// holes returns apply.ErrLost if a message is missing that some database has yet to
// apply.
func (c *collector) holes(ctx context.Context, states []databaseState, info stream.Info) error {
	from := info.Last + 1
	for _, s := range states {
		switch {
		case s.err != nil:
		case s.Progress.Incarnation == info.Incarnation:
			from = min(from, max(s.Progress.Seq+1, info.First))
		default:
			from = info.First
		}
	}
	err := c.stream.Whole(ctx, from, info.Incarnation)
	if errors.Is(err, stream.ErrHole) {
		return fmt.Errorf("%w: %w", apply.ErrLost, err)
	}
	return err
}

// explain says which databases have to be refilled because the source no longer has
// what they lack.
func (c *collector) explain(err error, begin start) error {
	var purged *source.PurgedError
	if !errors.As(err, &purged) {
		return err
	}
	var names []string
	for _, s := range begin.states {
		if begin.resume || s.err == nil && !s.Marks[c.server].Position.Covers(purged.Oldest) {
			names = append(names, s.schema)
		}
	}
	return fmt.Errorf("%w; these databases must be refilled from the truth: %s", err, strings.Join(names, ", "))
}

// read hands on what the source yields.
func read(ctx context.Context, r source.Reader, batches chan<- source.Batch) error {
	for {
		b, err := r.Next(ctx)
		if err != nil {
			return err
		}
		select {
		case batches <- b:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// stamp renews the clock's stamp. The pause varies, so that several clocks of one
// server don't keep each other from a fresh answer for ever.
func (c *collector) stamp(ctx context.Context, promised schema.Millis, marks *marker) error {
	stamps, err := c.source.Clock(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = stamps.Close() }()
	back := backstep{promised: promised}
	var since time.Time // no stamp was fresh
	for {
		asked := time.Now()
		s, err := stamps.Stamp(ctx)
		pause := source.StampInterval + rand.N(source.StampInterval/3)
		switch {
		case errors.Is(err, source.ErrNotFresh):
			if since.IsZero() {
				since = time.Now()
			}
			// For a moment it is no news: another clock of the same server asked.
			if time.Since(since) > staleMin {
				if c.stale.begins() {
					c.log.Warn("no fresh stamp; marks stand still", "server", c.server, "error", err)
				}
				c.note(noStamp, "no fresh stamp: somebody else reads innodb_trx all the time, or the system's time zone is wrong")
			}
			pause += rand.N(2 * source.StampInterval)
		case err != nil:
			return err
		default:
			since = time.Time{}
			if c.stale.ends() {
				c.log.Info("stamps are fresh again", "server", c.server)
				c.note(noStamp, "")
			}
			if by := back.by(s.Now, asked, time.Now()); by > 0 {
				c.metrics.clockBack.Inc()
				c.log.Error("the server's clock stepped back; what is stamped meanwhile lies before what marks have promised", "server", c.server, "by_ms", by.Milliseconds())
			}
			marks.stamp(s)
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// watch looks whether the stream is still the one that is written to, and purges it.
func (c *collector) watch(ctx context.Context, incarnation string) error {
	next := time.Now().Add(rand.N(c.purgeEvery))
	for {
		if err := sleep(ctx, watchEvery); err != nil {
			return err
		}
		info, err := c.stream.Info(ctx)
		if err != nil {
			return err
		}
		if info.Incarnation != incarnation {
			return fmt.Errorf("%w: the stream was made anew", stream.ErrInterrupted)
		}
		if time.Now().Before(next) && c.pressed.Load() == 0 && !c.stream.Crowded(info) {
			continue
		}
		begun := time.Now()
		done, err := c.purge(ctx)
		if err != nil {
			return err
		}
		if done {
			next = begun.Add(c.purgeEvery)
		}
	}
}

// purge purges what all databases have applied. If another collector of this process is
// at it, which does it for all, it returns false at once.
func (c *collector) purge(ctx context.Context) (done bool, err error) {
	if !c.readers.mu.TryLock() {
		return false, nil
	}
	defer c.readers.mu.Unlock()
	states := c.states(ctx)
	info, err := c.stream.Info(ctx)
	if err != nil {
		return false, err
	}
	if err := c.lost(ctx, states, info); err != nil {
		return false, err // Start acts on it
	}
	applied, silent := c.readers.hear(states, info.Incarnation)
	kept, err := c.stream.Purge(ctx, c.now(), applied, c.pressed.Load())
	if err != nil {
		return false, err
	}
	for i, s := range states {
		gone := applied[i]+1 < kept
		if silent[i] {
			// What it has applied isn't known; what was there for it alone is gone.
			gone = c.readers.dropped[s.schema] || info.First < kept
		}
		c.readers.drop(s.schema, gone)
	}
	return true, nil
}

// publish packs and publishes what is read, and marks.
func (c *collector) publish(ctx context.Context, begin start, reader source.Reader, batches <-chan source.Batch, marks *marker) error {
	packer := stream.NewPacker(c.server, stream.MessageBytes)
	position := begin.from // everything up to here is stored
	pace := newPace(markEvery)
	defer pace.stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-pace.timer.C:
		case b := <-batches:
			end, err := gather(ctx, packer, b, batches)
			if err != nil {
				return err
			}
			if err := c.flush(ctx, begin.writer, packer.Take()); err != nil {
				return err
			}
			if !end.IsZero() {
				position = end
			}
		}
		if !pace.begin() {
			continue
		}
		switch err := c.mark(ctx, begin.writer, position, marks); {
		case errors.Is(err, stream.ErrFull):
			if err := c.waitFull(ctx); err != nil {
				return err
			}
		case err != nil:
			return err
		default:
			c.sayNotFull()
			reader.Saved(position)
		}
		pace.end()
	}
}

// gather packs a batch and those that come within gatherFor, until a message is full.
// It returns the position behind the last transaction that is packed whole, zero if
// there is none. Batches without rows are taken without waiting for more.
func gather(ctx context.Context, packer *stream.Packer, first source.Batch, batches <-chan source.Batch) (end source.Position, err error) {
	var wait <-chan time.Time
	for b := first; ; {
		if err := packer.Add(b); err != nil {
			return end, err
		}
		if !b.End.IsZero() {
			end = b.End
		}
		if b.Rows() > 0 && wait == nil {
			t := time.NewTimer(gatherFor)
			defer t.Stop()
			wait = t.C
		}
		if packer.Full() {
			return end, nil
		}
		if wait == nil {
			select {
			case b = <-batches:
				continue
			default:
				return end, nil
			}
		}
		select {
		case b = <-batches:
		case <-wait:
			return end, nil
		case <-ctx.Done():
			return end, ctx.Err()
		}
	}
}

// flush publishes messages and returns when all are stored. It waits as long as the
// stream is full.
func (c *collector) flush(ctx context.Context, w *stream.Writer, messages []stream.Packed) error {
	for left := messages; len(left) > 0; {
		var err error
		if left, err = w.Rows(ctx, left); errors.Is(err, stream.ErrFull) {
			if err := c.waitFull(ctx); err != nil {
				return err
			}
		} else if err != nil {
			return err
		}
	}
	if len(messages) > 0 {
		c.sayNotFull()
	}
	for _, m := range messages {
		c.metrics.rows.Add(float64(m.Rows))
		c.metrics.messages.Inc()
	}
	return nil
}

func (c *collector) mark(ctx context.Context, w *stream.Writer, position source.Position, marks *marker) error {
	at := marks.reach(position)
	if err := w.Mark(ctx, position, at); err != nil {
		return err
	}
	c.metrics.marked(at)
	return nil
}

// waitFull says that the stream is full, and waits before the next try.
func (c *collector) waitFull(ctx context.Context) (err error) {
	c.sayFull()
	c.begins, err = c.stream.WaitFull(ctx)
	return err
}

func (c *collector) sayFull() {
	if c.full.begins() {
		c.log.Warn("the stream is full; the log is the buffer until there is room", "server", c.server)
	}
	// The log is told once, and these in each life.
	c.pressed.Store(c.begins)
	c.metrics.full.Set(1)
	c.note(noRoom, "the stream is full, since some database doesn't apply it")
}

func (c *collector) sayNotFull() {
	if c.full.ends() {
		c.pressed.Store(0)
		c.metrics.full.Set(0)
		c.log.Info("the stream has room again", "server", c.server)
		c.note(noRoom, "")
	}
}

// once says when a condition begins and when it ends. It is used by one goroutine.
type once struct{ on bool }

func (o *once) begins() bool {
	was := o.on
	o.on = true
	return !was
}

func (o *once) ends() bool {
	was := o.on
	o.on = false
	return was
}

// sleep waits for d, or returns ctx's error when ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
