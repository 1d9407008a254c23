package stream

import (
	"context"
	"time"
)

// FirstSince returns the sequence of the first message that was stored at t or later, by
// the clock of NATS; that of the next message to come if there is none.
func (s *Stream) FirstSince(ctx context.Context, t time.Time) (uint64, error) {
	st, err := s.handle(ctx)
	if err != nil {
		return 0, err
	}
	return firstSince(ctx, st, st.CachedInfo().State, t)
}

// A Tail is a Reader for somebody who looks on: of all groups, or of one.
type Tail struct{ *Reader }

// Tail returns a Tail that begins at sequence from, at least 1, with the rows of all
// groups.
func (s *Stream) Tail(ctx context.Context, from uint64) (Tail, error) {
	r, err := s.open(ctx, []string{s.prefix + "mirror.>"}, from, false)
	return Tail{r}, err
}

// TailGroup is Tail with the rows of one group.
func (s *Stream) TailGroup(ctx context.Context, group int, from uint64) (Tail, error) {
	r, err := s.Reader(ctx, group, from)
	return Tail{r}, err
}

// Empty reports whether there was nothing to read when the Tail was made.
func (t Tail) Empty() bool {
	i := t.consumer.CachedInfo()
	return i != nil && i.NumPending == 0
}

// leaveWithin bounds the wait for NATS when a Tail ends; what is left there then goes by
// itself, see inactiveThreshold.
const leaveWithin = 2 * time.Second

// Close ends the reading and removes what NATS keeps for it.
func (t Tail) Close() {
	t.Reader.Close()
	if i := t.consumer.CachedInfo(); i != nil {
		ctx, cancel := context.WithTimeout(context.Background(), leaveWithin)
		defer cancel()
		_ = t.s.js.DeleteConsumer(ctx, t.s.Name(), i.Name)
	}
}
