package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/syncer/mirrorpb"
	"github.com/octopay/octopay/syncer/source"
	"google.golang.org/protobuf/proto"
)

// A Mark is a point in the history of one uid server. See mirrorpb.Mark.
type Mark struct {
	Server   string
	Position source.Position
	At       schema.Millis // 0: nothing is promised
	// From is, in a server's first mark of a stream, where the stream begins in that
	// server's history: what lies before it came in an earlier stream. Zero otherwise.
	From source.Position
}

// A Writer publishes what comes from one server into one incarnation of the stream,
// over a connection of its own that is never made again: NATS can lose what it has
// acknowledged when it restarts, and a mark that went to the server after such a
// restart would speak of rows that went to the one before.
//
// It is used by one goroutine, and closed by it. After any error but ErrFull it is
// over: what was sent last may or may not be stored, and only a new Writer knows where
// to go on.
//
// A cluster of NATS servers can restart the one that keeps the stream without this
// connection noticing; the stream has one replica, so that losing acknowledged messages
// then takes the loss of that server's disk.
type Writer struct {
	s           *Stream
	nc          *nats.Conn
	js          jetstream.JetStream
	server      string
	incarnation string
	last        uint64 // sequence of the server's last mark, 0 if there is none
	from        source.Position
	mark        Mark
	marked      bool
}

// Writer returns a Writer for a server. The stream must be in the state that info
// says, apart from messages that came since.
func (s *Stream) Writer(ctx context.Context, server string, info Info) (_ *Writer, err error) {
	w := &Writer{s: s, server: server, incarnation: info.Incarnation}
	options := s.nc.Opts
	options.AllowReconnect, options.RetryOnFailedConnect = false, false
	if w.nc, err = options.Connect(); err != nil {
		return nil, fmt.Errorf("stream: connect: %w", err)
	}
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	if w.js, err = jetstream.New(w.nc, jetstream.WithPublishAsyncTimeout(s.config.AckTimeout)); err != nil {
		return nil, fmt.Errorf("stream: %w", err)
	}
	st, err := w.js.Stream(ctx, s.Name())
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", s.Name(), err)
	}
	if s.info(st.CachedInfo()).Incarnation != info.Incarnation {
		return nil, ErrInterrupted
	}
	m, err := st.GetLastMsgForSubject(ctx, s.markSubject(server))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return w, nil
	}
	if err != nil {
		return nil, fmt.Errorf("stream: last mark of %s: %w", server, err)
	}
	w.last = m.Sequence
	// A mark that can't be read, or that was meant for another incarnation, is none;
	// the next one has to follow it all the same.
	if mark, incarnation, err := decodeMark(m.Data); err == nil && incarnation == info.Incarnation && mark.Server == server {
		w.mark, w.marked = mark, true
	}
	return w, nil
}

// Close gives up the writer's connection.
func (w *Writer) Close() { w.nc.Close() }

// Last returns the server's last mark in this incarnation, if there is one.
func (w *Writer) Last() (Mark, bool) { return w.mark, w.marked }

// Incarnation returns the incarnation written into.
func (w *Writer) Incarnation() string { return w.incarnation }

// Begin says where the server's rows in this incarnation begin. It is called before
// anything is published when Last has none; the first mark says it to the readers.
func (w *Writer) Begin(from source.Position) { w.from = from }

// Rows publishes messages of rows, and returns when each is stored. ErrFull: those
// left over have to be published again, or all of them, which is harmless. When ctx
// ends meanwhile it returns at once, and what was stored isn't known.
func (w *Writer) Rows(ctx context.Context, messages []Packed) (left []Packed, err error) {
	futures := make([]jetstream.PubAckFuture, 0, len(messages))
	for _, m := range messages {
		f, err := w.js.PublishAsync(w.s.rowSubject(m.Group), m.Data, jetstream.WithRetryAttempts(0))
		if err != nil {
			return messages, interrupted("publish rows", err)
		}
		futures = append(futures, f)
	}
	for i, f := range futures {
		select {
		case <-f.Ok():
		case err := <-f.Err(): // at the latest after AckTimeout
			if !isFull(err) {
				return messages, interrupted("publish rows", err)
			}
			left = append(left, messages[i])
		case <-ctx.Done():
			return messages, ctx.Err()
		}
	}
	if len(left) > 0 {
		return left, ErrFull
	}
	return nil, nil
}

// Mark publishes a mark. ErrFull: it is not stored and may be published again.
// ErrSuperseded: somebody else publishes marks of this server.
func (w *Writer) Mark(ctx context.Context, position source.Position, at schema.Millis) error {
	m := Mark{Server: w.server, Position: position, At: at}
	if !w.marked {
		m.From = w.from
	}
	data, err := proto.Marshal(&mirrorpb.Mark{
		Server: m.Server, Position: position.String(), AtMs: int64(at), Incarnation: w.incarnation, From: m.From.String(),
	})
	if err != nil {
		return fmt.Errorf("stream: mark: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, w.s.config.AckTimeout)
	defer cancel()
	ack, err := w.js.Publish(ctx, w.s.markSubject(w.server), data,
		jetstream.WithExpectLastSequencePerSubject(w.last), jetstream.WithRetryAttempts(0))
	var said *jetstream.APIError
	switch {
	case err == nil:
	case isFull(err):
		return ErrFull
	case errors.As(err, &said) && said.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence:
		return ErrSuperseded
	default:
		return interrupted("publish mark", err)
	}
	w.last, w.mark, w.marked = ack.Sequence, m, true
	return nil
}

func interrupted(step string, err error) error {
	return fmt.Errorf("%w: %s: %w", ErrInterrupted, step, err)
}

// JetStream's numbers for a message that it could not store.
const (
	storeFailed           jetstream.ErrorCode = 10077 // MaxBytes, a full disk
	insufficientResources jetstream.ErrorCode = 10023
	storageExceeded       jetstream.ErrorCode = 10047
)

// isFull reports whether the message was refused because there is no room for it.
func isFull(err error) bool {
	var said *jetstream.APIError
	if !errors.As(err, &said) {
		return false
	}
	switch said.ErrorCode {
	case storeFailed, insufficientResources, storageExceeded:
		return true
	}
	return false
}

// decodeMark reads the data of a mark message; a mark of another incarnation than
// the stream's promises nothing.
func decodeMark(data []byte) (m Mark, incarnation string, err error) {
	var wire mirrorpb.Mark
	if err := proto.Unmarshal(data, &wire); err != nil {
		return Mark{}, "", fmt.Errorf("stream: mark: %w", err)
	}
	position, err := source.ParsePosition(wire.GetPosition())
	if err != nil {
		return Mark{}, "", err
	}
	from, err := source.ParsePosition(wire.GetFrom())
	if err != nil {
		return Mark{}, "", err
	}
	at := schema.Millis(wire.GetAtMs())
	if at < 0 || at.Time().Year() > 9999 {
		return Mark{}, "", errors.New("stream: mark: its time is out of range")
	}
	return Mark{Server: wire.GetServer(), Position: position, At: at, From: from}, wire.GetIncarnation(), nil
}

// pauseFull is how long a writer waits before it tries a full stream again.
const pauseFull = 100 * time.Millisecond

// WaitFull waits before the next try at a full stream, and returns the stream's first
// sequence before that try: if the try finds it full too, Purge is told. It returns ctx's
// error when ctx ends first.
func (s *Stream) WaitFull(ctx context.Context) (first uint64, err error) {
	t := time.NewTimer(pauseFull)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	info, err := s.Info(ctx)
	return info.First, err
}
