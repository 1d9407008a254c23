package apply

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/stream"
)

// Bounds of one transaction.
const (
	rowsMax  = 2000
	bytesMax = 1 << 20
	// gatherFor is how long an applier waits for more messages when more are waiting
	// to be delivered.
	gatherFor = 5 * time.Millisecond
	// markPause is the least time between two transactions that hold nothing but
	// marks: they come every 50 ms from each server, and each transaction is a write
	// to disk.
	markPause = 250 * time.Millisecond
	// silence is how long no message may come before the applier looks whether its
	// reader stalled.
	silence = time.Second
	stalled = 3 * silence
)

// A Report tells what a transaction of an applier did.
type Report struct {
	Orders, Entries int
	Skipped         int // rows of the group's other databases
	Letters         int // open dead letters now
	Marks           []stream.Mark
	Standing        bool // the marks were not taken, because a dead letter is open
}

// An Applier applies the stream to one database.
type Applier struct {
	Map    *shardmap.Map
	Stream *stream.Stream
	Target Target
	// Applied is told after each transaction; nil: nobody.
	Applied func(Report)
}

// Run applies until ctx ends or something is wrong; it always returns an error.
// Running it again begins where the database says. It stops between transactions: one
// that was begun is finished.
//
// ErrNoStream, ErrLost and ErrRefill (wrapped) need somebody else to act. ErrStalled
// comes within 5 s of the message that doesn't, while NATS answers.
func (a *Applier) Run(ctx context.Context) error {
	state, err := a.Target.State(ctx)
	if err != nil {
		return err
	}
	if state.Letters >= LettersMax {
		return fmt.Errorf("%w: %d", ErrTooManyLetters, state.Letters)
	}
	info, err := a.Stream.Info(ctx) // after the progress, which it can't be behind of
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return ErrNoStream
	}
	if err != nil {
		return err
	}
	from, err := Begin(ctx, state.Progress, info, a.Stream.StoredAt)
	if err != nil {
		return err
	}
	r, err := a.Stream.Reader(ctx, Group(a.Target), from)
	if err != nil {
		return err
	}
	defer r.Close()
	// After the reader, which notices when NATS is away from here on.
	if err := a.Stream.Whole(ctx, from, info.Incarnation); errors.Is(err, stream.ErrHole) {
		return fmt.Errorf("%w: %w", ErrLost, err)
	} else if err != nil {
		return err
	}
	a.report(Report{Letters: state.Letters, Marks: values(state.Marks)})

	progress := state.Progress
	last := from - 1
	quiet := time.Duration(0)
	missed := uint64(0) // a message that was there a silence ago
	lastCommit := time.Time{}
	for {
		first, err := r.Next(ctx, silence)
		if errors.Is(err, stream.ErrSilent) {
			if quiet += silence; quiet < stalled {
				continue
			}
			newest, askErr := a.newest(ctx, info.Incarnation)
			switch {
			case askErr != nil:
				err = askErr
			case missed > last:
				err = ErrStalled
			case newest > last: // it may be on its way
				missed, quiet = newest, stalled-silence
				continue
			default: // nobody writes
				quiet = 0
				continue
			}
		}
		if err != nil {
			return err
		}
		quiet = 0
		g, gatherErr := a.gather(ctx, r, first, info.Incarnation, lastCommit)
		// Between here and the commit NATS could lose what was just read, and give its
		// sequences to other messages: a window of milliseconds against a restart that
		// takes longer. StoredAt finds even that, at the next Begin.
		if err := r.Check(); err != nil {
			return err
		}
		if server, ok := g.lacks(state.Marks); ok {
			return fmt.Errorf("%w: of server %s it begins where this database never was", ErrRefill, server)
		}
		c := g.change(progress)
		letters, err := a.Target.Apply(ctx, c)
		if err != nil {
			return err
		}
		progress, last, lastCommit = c.To, c.To.Seq, time.Now()
		rep := Report{Orders: len(c.Orders), Entries: len(c.Entries), Skipped: g.skipped, Letters: letters}
		if letters == 0 {
			for _, m := range c.Marks {
				if m.At >= state.Marks[m.Server].At {
					state.Marks[m.Server] = m
				}
			}
			rep.Marks = c.Marks
		} else {
			rep.Standing = len(c.Marks) > 0
		}
		a.report(rep)
		if letters >= LettersMax {
			return fmt.Errorf("%w: %d", ErrTooManyLetters, letters)
		}
		if gatherErr != nil {
			return gatherErr
		}
		// Either a collector wrote into this stream what it meant for an earlier one,
		// which counts for nothing, or it is this reader that is in another stream than
		// it knows. Then its rows were applied all the same, and come again.
		if g.foreign {
			if err := a.same(ctx, info.Incarnation); err != nil {
				return err
			}
		}
	}
}

func (a *Applier) report(r Report) {
	if a.Applied != nil {
		a.Applied(r)
	}
}

// gather takes more messages into the transaction that first begins, as long as that
// costs no time worth speaking of. On an error it returns what it has.
func (a *Applier) gather(ctx context.Context, r *stream.Reader, first stream.Message, incarnation string, lastCommit time.Time) (*gatherer, error) {
	g := newGatherer(a.Map, a.Target.Place().Number, incarnation)
	g.add(first)
	start := time.Now()
	more := first.More
	for g.rows < rowsMax && g.bytes < bytesMax {
		until := start
		switch {
		case g.empty():
			until = lastCommit.Add(markPause)
		case more:
			until = start.Add(gatherFor)
		}
		wait := time.Until(until)
		if wait <= 0 {
			break
		}
		m, err := r.Next(ctx, wait)
		if errors.Is(err, stream.ErrSilent) {
			break
		}
		if err != nil {
			return g, err
		}
		g.add(m)
		more = m.More
	}
	return g, nil
}

// newest returns the sequence of the newest message that is for this applier, in the
// stream that it reads.
func (a *Applier) newest(ctx context.Context, incarnation string) (uint64, error) {
	seq, now, err := a.Stream.Newest(ctx, Group(a.Target))
	if err == nil && now != incarnation {
		err = errAnew
	}
	return seq, err
}

func (a *Applier) same(ctx context.Context, incarnation string) error {
	info, err := a.Stream.Info(ctx)
	if err == nil && info.Incarnation != incarnation {
		err = errAnew
	}
	return err
}

var errAnew = fmt.Errorf("%w: the stream was made anew", stream.ErrInterrupted)

// Begin says from which sequence a database has to read the stream: behind its
// progress in the same incarnation, else from the first message. ErrLost: the stream
// isn't the one that the progress speaks of, though it has its name and age.
// ErrRefill: that message is gone. Whether a stream that is read from its first message
// begins early enough for a database, its marks tell (Mark.From). The progress must have
// been read before the info.
func Begin(ctx context.Context, p Progress, info stream.Info, storedAt func(context.Context, uint64) (int64, error)) (uint64, error) {
	if p.Incarnation != info.Incarnation {
		if info.First > 1 {
			return 0, ErrRefill
		}
		return 1, nil
	}
	if err := Lost(ctx, p, info, storedAt); err != nil {
		return 0, err
	}
	if info.First > p.Seq+1 {
		return 0, ErrRefill
	}
	return p.Seq + 1, nil
}

// Lost returns ErrLost if the stream no longer has the message that the progress
// speaks of, or another in its place. Other incarnations say nothing. The progress
// must have been read before the info.
func Lost(ctx context.Context, p Progress, info stream.Info, storedAt func(context.Context, uint64) (int64, error)) error {
	if p.Incarnation != info.Incarnation || p.Seq == 0 {
		return nil
	}
	if info.Last < p.Seq {
		return fmt.Errorf("%w: its last sequence is %d, %d was applied", ErrLost, info.Last, p.Seq)
	}
	if p.StoredAt == 0 || p.Seq < info.First {
		return nil
	}
	at, err := storedAt(ctx, p.Seq)
	if err != nil {
		return err
	}
	if at != 0 && at != p.StoredAt {
		return fmt.Errorf("%w: sequence %d is another message now", ErrLost, p.Seq)
	}
	return nil
}

func values(m map[string]stream.Mark) []stream.Mark {
	out := make([]stream.Mark, 0, len(m))
	for _, mark := range m {
		out = append(out, mark)
	}
	return out
}
