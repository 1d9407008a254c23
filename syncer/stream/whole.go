package stream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// ErrHole reports that the stream lacks a message between others. Nobody deletes there:
// NATS lost it, as it does when its files were damaged. It doesn't say so by itself; a
// reader would get what is behind the hole.
var ErrHole = errors.New("stream: a message is missing")

var errAnew = fmt.Errorf("%w: the stream was made anew", ErrInterrupted)

const (
	// silence is how long Whole waits for a message before it asks whether it exists.
	silence = time.Second
	// silences bounds how often it asks for one that exists and doesn't come.
	silences = 5
)

// A whole is where a Stream was found to lack nothing, from a sequence on. It holds as
// long as the connection: NATS loses what it has when it goes down, not while it runs.
type whole struct {
	incarnation string // "": nothing was looked at
	connection  uint64
	from        uint64
}

// of reports whether w speaks of an incarnation, as it is seen by a connection.
func (w whole) of(incarnation string, connection uint64) bool {
	return w.incarnation == incarnation && w.connection == connection
}

func (w whole) covers(from uint64, incarnation string, connection uint64) bool {
	return w.of(incarnation, connection) && w.from <= from
}

// Whole returns nil if the stream, in the incarnation given, holds every message from
// sequence from on, and ErrHole if not. It reads their headers, each once for each
// connection to NATS, however many ask: one reads, the others wait for what it finds. from
// is not below the stream's first sequence. ErrInterrupted: it can't be said of one and the
// same stream.
func (s *Stream) Whole(ctx context.Context, from uint64, incarnation string) error {
	select {
	case s.looking <- struct{}{}:
		defer func() { <-s.looking }()
	case <-ctx.Done():
		return ctx.Err()
	}
	connection := s.connection()
	if s.whole.covers(from, incarnation, connection) {
		return nil
	}
	below := uint64(math.MaxUint64)
	if s.whole.of(incarnation, connection) {
		below = s.whole.from
	}
	if err := s.readAll(ctx, from, below, incarnation); err != nil {
		return err
	}
	if s.connection() != connection {
		return fmt.Errorf("%w: the connection to NATS was lost", ErrInterrupted)
	}
	s.whole = whole{incarnation, connection, from}
	return nil
}

// readAll reads the headers of all messages from sequence from to the last one there is
// below another.
func (s *Stream) readAll(ctx context.Context, from, below uint64, incarnation string) error {
	info, err := s.Info(ctx)
	if err != nil {
		return err
	}
	if info.Incarnation != incarnation {
		return errAnew
	}
	last := min(info.Last, below-1)
	if from > last {
		return nil
	}
	r, err := s.open(ctx, nil, from, true)
	if err != nil {
		return err
	}
	defer Tail{r}.Close()
	quiet := 0
	for want := from; want <= last; {
		m, err := r.Next(ctx, silence)
		switch {
		case errors.Is(err, ErrSilent):
			at, err := s.StoredAt(ctx, want)
			if err != nil {
				return err
			}
			if at == 0 {
				return s.hole(ctx, want, incarnation)
			}
			if quiet++; quiet == silences {
				return fmt.Errorf("%w: message %d doesn't come", ErrInterrupted, want)
			}
			continue
		case err != nil:
			return err
		case m.Seq > want:
			return s.hole(ctx, want, incarnation)
		}
		quiet = 0
		want++
	}
	return nil
}

// hole tells a message that is missing from one that went meanwhile, alone or with its
// stream.
func (s *Stream) hole(ctx context.Context, seq uint64, incarnation string) error {
	info, err := s.Info(ctx)
	if err != nil {
		return err
	}
	if info.Incarnation != incarnation {
		return errAnew
	}
	if info.First > seq {
		return fmt.Errorf("%w: message %d was purged meanwhile", ErrInterrupted, seq)
	}
	return fmt.Errorf("%w: %d", ErrHole, seq)
}
