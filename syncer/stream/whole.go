package stream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrHole reports that the stream lacks a message between others. Nobody deletes there:
// NATS lost it, as it does when its files were damaged. It doesn't say so by itself; a
// reader would get what is behind the hole.
var ErrHole = errors.New("stream: a message is missing")

const (
	// silence is how long Whole waits for a message before it asks whether it exists.
	silence = time.Second
	// silences bounds how often it asks for one that exists and doesn't come.
	silences = 5
)

// A whole is where a Stream was found to lack nothing, from a sequence on. It holds as
// long as the connection: NATS loses what it has when it goes down, not while it runs.
type whole struct {
	mu          sync.Mutex
	known       bool
	incarnation string
	connection  uint64
	from        uint64
}

func (w *whole) covers(from uint64, incarnation string, connection uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.known && w.incarnation == incarnation && w.connection == connection && w.from <= from
}

func (w *whole) found(from uint64, incarnation string, connection uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known, w.from, w.incarnation, w.connection = true, from, incarnation, connection
}

// Whole returns nil if the stream, in the incarnation given, holds every message from
// sequence from on, and ErrHole if not. It reads their headers, once for each connection
// to NATS unless from is lower than before. from is not below the stream's first
// sequence. ErrInterrupted: it can't be said of one and the same stream.
func (s *Stream) Whole(ctx context.Context, from uint64, incarnation string) error {
	connection := s.connection()
	if s.whole.covers(from, incarnation, connection) {
		return nil
	}
	if err := s.readAll(ctx, from, incarnation); err != nil {
		return err
	}
	if s.connection() != connection {
		return fmt.Errorf("%w: the connection to NATS was lost", ErrInterrupted)
	}
	s.whole.found(from, incarnation, connection)
	return nil
}

// readAll reads the headers of all messages from sequence from to the last one there is.
func (s *Stream) readAll(ctx context.Context, from uint64, incarnation string) error {
	info, err := s.Info(ctx)
	if err != nil {
		return err
	}
	if info.Incarnation != incarnation {
		return fmt.Errorf("%w: the stream was made anew", ErrInterrupted)
	}
	if from > info.Last {
		return nil
	}
	r, err := s.open(ctx, nil, from, true)
	if err != nil {
		return err
	}
	defer Tail{r}.Close()
	quiet := 0
	for want := from; want <= info.Last; {
		m, err := r.Next(ctx, silence)
		switch {
		case errors.Is(err, ErrSilent):
			at, err := s.StoredAt(ctx, want)
			if err != nil {
				return err
			}
			if at == 0 {
				return s.hole(ctx, want)
			}
			if quiet++; quiet == silences {
				return fmt.Errorf("%w: message %d doesn't come", ErrInterrupted, want)
			}
			continue
		case err != nil:
			return err
		case m.Seq > want:
			return s.hole(ctx, want)
		}
		quiet = 0
		want++
	}
	return nil
}

// hole tells a message that is missing from one that was purged meanwhile.
func (s *Stream) hole(ctx context.Context, seq uint64) error {
	info, err := s.Info(ctx)
	if err != nil {
		return err
	}
	if info.First > seq {
		return fmt.Errorf("%w: message %d was purged meanwhile", ErrInterrupted, seq)
	}
	return fmt.Errorf("%w: %d", ErrHole, seq)
}
