package stream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A Message is one message of the stream.
type Message struct {
	Seq      uint64
	StoredAt int64 // ns since 1970, see Stream.StoredAt
	Subject  string
	Data     []byte
	// More reports whether more messages were waiting when this one was delivered.
	More bool

	// Mark is the mark that the message is, nil if it is one of rows. A mark that
	// can't be read is a Mark without a server: it promises nothing.
	Mark *Mark
	// Incarnation is the stream's as the mark says.
	Incarnation string
}

const (
	// readAheadBytes bounds what one Reader holds; it is above the largest message
	// that NATS takes (1 MiB).
	readAheadBytes = 2 << 20
	pullExpiry     = 10 * time.Second
	pullHeartbeat  = 2 * time.Second
	// A reader that went away leaves nothing in NATS after this.
	inactiveThreshold = 30 * time.Second
)

// A Reader reads the rows of one group, and all marks, in the order of the stream.
// It is used by one goroutine, and is over after its first error.
type Reader struct {
	s          *Stream
	consumer   jetstream.Consumer
	messages   jetstream.MessagesContext
	connection uint64
	last       uint64
}

// Reader returns a Reader that begins at sequence from.
func (s *Stream) Reader(ctx context.Context, group int, from uint64) (*Reader, error) {
	return s.open(ctx, s.read(group), from, false)
}

// open returns a Reader of some subjects, of all if there are none; of headers alone,
// without what the messages hold, if it is told so.
func (s *Stream) open(ctx context.Context, subjects []string, from uint64, headers bool) (_ *Reader, err error) {
	r := &Reader{s: s, connection: s.connection(), last: from - 1}
	r.consumer, err = s.js.OrderedConsumer(ctx, s.Name(), jetstream.OrderedConsumerConfig{
		FilterSubjects:    subjects,
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       from,
		HeadersOnly:       headers,
		InactiveThreshold: inactiveThreshold,
		MaxResetAttempts:  1, // it would try for ever, without a look at ctx
	})
	if err != nil {
		return nil, fmt.Errorf("stream %s: read: %w", s.Name(), err)
	}
	r.messages, err = r.consumer.Messages(jetstream.PullMaxBytes(readAheadBytes),
		jetstream.PullExpiry(pullExpiry), jetstream.PullHeartbeat(pullHeartbeat))
	if err != nil {
		return nil, fmt.Errorf("stream %s: read: %w", s.Name(), err)
	}
	return r, nil
}

// ErrSilent reports that no message came for the time given. The Reader can be used
// further.
var ErrSilent = errors.New("stream: no message")

// Next waits for the next message, at most for wait: then it is ErrSilent.
// ErrInterrupted: NATS was away, and may have lost messages, so that the Reader's
// place in the stream has to be found anew.
func (r *Reader) Next(ctx context.Context, wait time.Duration) (Message, error) {
	limit, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	m, err := r.messages.Next(jetstream.NextContext(limit))
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return Message{}, ctx.Err()
	case r.s.connection() != r.connection:
		return Message{}, interrupted("read", err)
	case errors.Is(err, context.DeadlineExceeded) && limit.Err() != nil, errors.Is(err, nats.ErrTimeout):
		return Message{}, ErrSilent
	default:
		return Message{}, interrupted("read", err)
	}
	meta, err := m.Metadata()
	if err != nil {
		return Message{}, interrupted("read", err)
	}
	// The library makes a new consumer after a reconnect and goes on by sequence. But
	// sequences that NATS lost are given to other messages.
	if err := r.Check(); err != nil {
		return Message{}, err
	}
	if meta.Sequence.Stream <= r.last {
		return Message{}, fmt.Errorf("%w: message %d came after %d", ErrInterrupted, meta.Sequence.Stream, r.last)
	}
	r.last = meta.Sequence.Stream
	out := Message{
		Seq:      meta.Sequence.Stream,
		StoredAt: meta.Timestamp.UnixNano(),
		Subject:  m.Subject(),
		Data:     m.Data(),
		More:     meta.NumPending > 0,
	}
	if strings.HasPrefix(out.Subject, r.s.markSubject("")) {
		mark, incarnation, err := decodeMark(out.Data)
		if err != nil || r.s.markSubject(mark.Server) != out.Subject {
			mark, incarnation = Mark{}, ""
		}
		out.Mark, out.Incarnation = &mark, incarnation
	}
	return out, nil
}

// Check returns ErrInterrupted if the connection to NATS was lost since the Reader
// was made.
func (r *Reader) Check() error {
	if r.s.connection() != r.connection {
		return fmt.Errorf("%w: the connection to NATS was lost", ErrInterrupted)
	}
	return nil
}

// Close ends the reading.
func (r *Reader) Close() { r.messages.Stop() }
