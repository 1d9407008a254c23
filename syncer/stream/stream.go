// Package stream is the mirror's stream in NATS JetStream: how it is configured, how
// rows and marks get into it, and how they are read from it.
//
// It decides what an incarnation of the stream is, and that nothing written into one
// counts in another. It leaves to package syncer which rows are published and when a
// mark is true, and to package apply how far a database has read.
//
// The stream is bounded and refuses what is new when it is full, so that a writer
// waits instead of a reader losing. There are no message ids: JetStream would swallow
// a repair that repeats one.
package stream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/octopay/octopay/syncer/mirrorpb"
)

var (
	// ErrFull reports that the stream has no room. Nothing of the message was stored;
	// later it may be.
	ErrFull = errors.New("stream: full")
	// ErrSuperseded reports that somebody else published a mark of the same server.
	ErrSuperseded = errors.New("stream: another mark of this server is in the stream")
	// ErrInterrupted reports that the connection to NATS broke, or that the stream is
	// another incarnation than before. What was sent last may or may not be stored.
	ErrInterrupted = errors.New("stream: interrupted")
)

// A Config bounds the stream. Zero values are the defaults.
type Config struct {
	MaxBytes   int64         // 8 GiB; it should hold KeepFor at the highest rate
	KeepFor    time.Duration // messages that everybody has applied are kept this long, while there is room; 10 min
	DropAfter  time.Duration // a reader that didn't move for this long isn't waited for; 24 h
	AckTimeout time.Duration // 5 s
}

func (c Config) withDefaults() Config {
	if c.MaxBytes <= 0 {
		c.MaxBytes = 8 << 30
	}
	if c.KeepFor <= 0 {
		c.KeepFor = 10 * time.Minute
	}
	if c.DropAfter <= 0 {
		c.DropAfter = 24 * time.Hour
	}
	if c.AckTimeout <= 0 {
		c.AckTimeout = 5 * time.Second
	}
	return c
}

// Connect connects to NATS as a Stream needs it: for ever, and without a buffer that
// sends old messages after a reconnect. It doesn't wait for the server.
func Connect(url, name string, opts ...nats.Option) (*nats.Conn, error) {
	nc, err := nats.Connect(url, append([]nats.Option{
		nats.Name(name),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		// An account that is refused twice may be let in when somebody has mended it.
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(100*time.Millisecond, 100*time.Millisecond),
		nats.ReconnectBufSize(-1),
		nats.Timeout(2 * time.Second),
		nats.PingInterval(5 * time.Second),
		nats.MaxPingsOutstanding(2),
		// A slow reader is seen by its lag; the text on stderr helps nobody.
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("stream: connect: %w", err)
	}
	return nc, nil
}

// A Stream is the mirror's stream. It is safe for concurrent use.
type Stream struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	prefix string
	config Config
	bytes  atomic.Uint64

	looking chan struct{} // a lock that a ctx ends the wait for, of what follows
	whole   whole
}

// New returns the stream whose name and subjects begin with prefix. It asks NATS
// nothing. nc is one that Connect would make, without a buffer for reconnects; how to
// reach NATS is learnt from it.
func New(nc *nats.Conn, prefix string, c Config) (*Stream, error) {
	if nc.Opts.ReconnectBufSize >= 0 {
		return nil, errors.New("stream: the connection keeps messages over a reconnect; see Connect")
	}
	c = c.withDefaults()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncTimeout(c.AckTimeout))
	if err != nil {
		return nil, fmt.Errorf("stream: %w", err)
	}
	return &Stream{nc: nc, js: js, prefix: prefix, config: c, looking: make(chan struct{}, 1)}, nil
}

// Name returns the stream's name.
func (s *Stream) Name() string { return s.prefix + "MIRROR" }

func (s *Stream) rowSubject(group int) string {
	return fmt.Sprintf("%smirror.row.%d", s.prefix, group)
}

func (s *Stream) markSubject(server string) string { return s.prefix + "mirror.mark." + server }

// An Info is the state of the stream.
type Info struct {
	// Incarnation tells one stream from a later one of the same name.
	Incarnation string
	// First and Last are sequences; an empty stream has First = Last + 1.
	First, Last uint64
	Bytes       uint64
}

func (s *Stream) info(i *jetstream.StreamInfo) Info {
	s.bytes.Store(i.State.Bytes)
	return Info{
		Incarnation: i.Config.Name + "@" + i.Created.UTC().Format(time.RFC3339Nano),
		First:       max(i.State.FirstSeq, 1),
		Last:        i.State.LastSeq,
		Bytes:       i.State.Bytes,
	}
}

// Bytes returns the size of the stream when it was last asked for.
func (s *Stream) Bytes() uint64 { return s.bytes.Load() }

func (s *Stream) handle(ctx context.Context) (jetstream.Stream, error) {
	st, err := s.js.Stream(ctx, s.Name())
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", s.Name(), err)
	}
	return st, nil
}

// Info asks for the state of the stream.
func (s *Stream) Info(ctx context.Context) (Info, error) {
	st, err := s.handle(ctx)
	if err != nil {
		return Info{}, err
	}
	return s.info(st.CachedInfo()), nil
}

// Ensure makes the stream if there is none, and returns its state. What of a stream's
// configuration decides about losing rows is set back when somebody changed it; what
// can't be is an error that names it. All else, such as more replicas, is the operator's.
func (s *Stream) Ensure(ctx context.Context) (Info, error) {
	want := s.wanted()
	st, err := s.js.Stream(ctx, s.Name())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		st, err = s.js.CreateStream(ctx, want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			st, err = s.js.Stream(ctx, s.Name()) // somebody was quicker
		}
	}
	if err != nil {
		return Info{}, fmt.Errorf("stream %s: %w", s.Name(), err)
	}
	have := st.CachedInfo().Config
	want, wrong := setBack(have, want)
	if len(wrong) > 0 {
		if st, err = s.js.UpdateStream(ctx, want); err != nil {
			return Info{}, fmt.Errorf("stream %s: %s, and can't be set back: %w", s.Name(), strings.Join(wrong, ", "), err)
		}
	}
	return s.info(st.CachedInfo()), nil
}

func (s *Stream) wanted() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        s.Name(),
		Description: "rows and marks of the uid servers, for the mirror",
		Subjects:    []string{s.prefix + "mirror.>"},
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardNew,
		MaxBytes:    s.config.MaxBytes,
		Storage:     jetstream.FileStorage,
		Replicas:    1,
		// No other limits: the first two drop rows that nobody has read.
		MaxMsgs:           -1,
		MaxMsgsPerSubject: -1,
		MaxMsgSize:        -1,
		MaxConsumers:      -1,
	}
}

// setBack returns have with what we rely on as in want, and what of it was different.
// A limit that only refuses, such as max_msg_size, is left: nothing gets lost by it, and
// whoever is refused says so.
func setBack(have, want jetstream.StreamConfig) (set jetstream.StreamConfig, wrong []string) {
	set = have
	note := func(name string, have, want any) {
		if have != want {
			wrong = append(wrong, fmt.Sprintf("%s is %v instead of %v", name, have, want))
		}
	}
	note("subjects", fmt.Sprint(have.Subjects), fmt.Sprint(want.Subjects))
	note("retention", have.Retention, want.Retention)
	note("discard", have.Discard, want.Discard)
	note("discard_new_per_subject", have.DiscardNewPerSubject, want.DiscardNewPerSubject)
	note("max_bytes", have.MaxBytes, want.MaxBytes)
	note("max_age", have.MaxAge, want.MaxAge)
	note("max_msgs", have.MaxMsgs, want.MaxMsgs)
	note("max_msgs_per_subject", have.MaxMsgsPerSubject, want.MaxMsgsPerSubject)
	note("max_consumers", have.MaxConsumers, want.MaxConsumers)
	note("storage", have.Storage, want.Storage)
	note("no_ack", have.NoAck, want.NoAck)
	note("sealed", have.Sealed, want.Sealed)
	note("deny_purge", have.DenyPurge, want.DenyPurge)
	note("being a mirror", have.Mirror != nil, false)
	note("having sources", len(have.Sources) > 0, false)
	note("a subject transform", have.SubjectTransform != nil, false)
	set.Subjects, set.Retention, set.Discard, set.DiscardNewPerSubject = want.Subjects, want.Retention, want.Discard, want.DiscardNewPerSubject
	set.MaxBytes, set.MaxAge, set.MaxMsgs, set.MaxMsgsPerSubject = want.MaxBytes, want.MaxAge, want.MaxMsgs, want.MaxMsgsPerSubject
	set.MaxConsumers, set.Storage = want.MaxConsumers, want.Storage
	set.NoAck, set.Sealed, set.DenyPurge = want.NoAck, want.Sealed, want.DenyPurge
	set.Mirror, set.Sources, set.SubjectTransform = nil, nil, nil
	return set, wrong
}

// Delete deletes the stream if it still is this incarnation.
func (s *Stream) Delete(ctx context.Context, incarnation string) error {
	switch i, err := s.Info(ctx); {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil
	case err != nil:
		return err
	case i.Incarnation != incarnation:
		return nil
	}
	if err := s.js.DeleteStream(ctx, s.Name()); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("stream %s: delete: %w", s.Name(), err)
	}
	return nil
}

// StoredAt returns when the message was stored, by the clock of NATS, in ns since
// 1970; 0 if there is no such message. In one incarnation two messages that had the
// same sequence, one of which NATS lost, differ in it.
func (s *Stream) StoredAt(ctx context.Context, seq uint64) (int64, error) {
	if seq == 0 {
		return 0, nil
	}
	st, err := s.handle(ctx)
	if err != nil {
		return 0, err
	}
	m, err := st.GetMsg(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("stream: message %d: %w", seq, err)
	}
	return m.Time.UnixNano(), nil
}

// Newest returns the sequence of the newest message that a Reader of a group would get,
// 0 if there is none, and the stream's incarnation. What other groups have behind it
// isn't counted.
func (s *Stream) Newest(ctx context.Context, group int) (seq uint64, incarnation string, err error) {
	st, err := s.handle(ctx)
	if err != nil {
		return 0, "", err
	}
	for _, subject := range s.read(group) {
		m, err := st.GetLastMsgForSubject(ctx, subject)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return 0, "", fmt.Errorf("stream: newest message of group %d: %w", group, err)
		}
		seq = max(seq, m.Sequence)
	}
	return seq, s.info(st.CachedInfo()).Incarnation, nil
}

// read returns the subjects that a Reader of a group reads.
func (s *Stream) read(group int) []string {
	return []string{s.rowSubject(group), s.markSubject("*")}
}

// Purge deletes messages from the beginning of the stream: what all readers have
// applied, but what was stored in the last KeepFor, and also what a reader has not
// applied in DropAfter. applied are the readers' last applied sequences; now is the
// time, of any clock near that of NATS. It returns the first sequence of which it is
// sure that nobody had to lose it; a reader that has applied less than that minus one
// was dropped.
//
// Keeping what all have applied is a favour, and taking what is new is not: while the
// stream is full or nearly so, of that the older half goes however young it is. full is
// where it began when a writer was about to find it full (see WaitFull), 0 if none did: if
// it begins elsewhere now, somebody has made room since. So of many who purge for one and
// the same lack of room one takes the half.
func (s *Stream) Purge(ctx context.Context, now time.Time, applied []uint64, full uint64) (dropped uint64, err error) {
	st, err := s.handle(ctx)
	if err != nil {
		return 0, err
	}
	state := st.CachedInfo().State
	if state.Msgs == 0 {
		return 0, nil
	}
	below, err := firstSince(ctx, st, state, now.Add(-s.config.KeepFor))
	if err != nil {
		return 0, err
	}
	dropped, err = firstSince(ctx, st, state, now.Add(-s.config.DropAfter))
	if err != nil {
		return 0, err
	}
	if info := s.info(st.CachedInfo()); full == info.First || s.Crowded(info) {
		// Half, and not all: the last mark of every server that is alive is in the newer
		// half, and a collector without one has to ask every database where to begin.
		below = max(below, state.FirstSeq+(state.LastSeq+1-state.FirstSeq)/2)
	}
	for _, seq := range applied {
		below = min(below, max(seq+1, dropped))
	}
	if below <= state.FirstSeq {
		return dropped, nil
	}
	if err := st.Purge(ctx, jetstream.WithPurgeSequence(below)); err != nil {
		return dropped, fmt.Errorf("stream %s: purge: %w", s.Name(), err)
	}
	return dropped, nil
}

// Crowded reports whether so little room is left that Purge makes some.
func (s *Stream) Crowded(i Info) bool { return i.Bytes > uint64(s.config.MaxBytes)/4*3 }

// firstSince returns the sequence of the first message stored at t or later, that
// of the next message to come if there is none.
func firstSince(ctx context.Context, st jetstream.Stream, state jetstream.StreamState, t time.Time) (uint64, error) {
	lo, hi := state.FirstSeq, state.LastSeq+1
	for lo < hi {
		mid := lo + (hi-lo)/2
		// That one or the next behind it: it may have been purged meanwhile, or be missing.
		m, err := st.GetMsg(ctx, mid, jetstream.WithGetMsgSubject(">"))
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			hi = mid
		case err != nil:
			return 0, fmt.Errorf("stream: message %d: %w", mid, err)
		case m.Time.Before(t):
			lo = m.Sequence + 1
		default:
			hi = mid
		}
	}
	return lo, nil
}

// connection returns a number that changes whenever the connection to NATS was lost.
func (s *Stream) connection() uint64 { return s.nc.Stats().Reconnects }

// Groups is mirrorpb.Groups.
const Groups = mirrorpb.Groups
