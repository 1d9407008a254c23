package stream

import (
	"context"
	"errors"
	"fmt"
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

// Whole returns nil if the stream, in the incarnation given, holds every message from
// sequence from to its last one, and ErrHole if not. It reads their headers. from is not
// below the stream's first sequence. ErrInterrupted: it can't be said of one and the
// same stream.
func (s *Stream) Whole(ctx context.Context, from uint64, incarnation string) error {
	connection := s.connection()
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
	if s.connection() != connection {
		return fmt.Errorf("%w: the connection to NATS was lost", ErrInterrupted)
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
