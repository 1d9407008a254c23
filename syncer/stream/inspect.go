package stream

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// A State is what a stream is, for somebody who looks whether all is well.
type State struct {
	Info
	MaxBytes int64
	// Wrong says what of its configuration isn't as Ensure makes it, in words. How large
	// the stream may be is its maker's to say, but it must be bounded.
	Wrong []string
	// Marks are the newest marks of the servers asked about; of one that has none in this
	// incarnation, or none that can be read, there is none.
	Marks map[string]Mark
}

// Inspect returns the state of the stream. It changes nothing.
func (s *Stream) Inspect(ctx context.Context, servers []string) (State, error) {
	st, err := s.handle(ctx)
	if err != nil {
		return State{}, err
	}
	have, want := st.CachedInfo().Config, s.wanted()
	out := State{Info: s.info(st.CachedInfo()), MaxBytes: have.MaxBytes, Marks: map[string]Mark{}}
	want.MaxBytes = have.MaxBytes
	_, out.Wrong = setBack(have, want)
	if have.MaxBytes <= 0 {
		out.Wrong = append(out.Wrong, "max_bytes is not set, so it fills the disk")
	}
	if have.MaxMsgSize > 0 && have.MaxMsgSize < MessageBytes {
		out.Wrong = append(out.Wrong, fmt.Sprintf("max_msg_size is %d, below %d: so large are messages of rows", have.MaxMsgSize, MessageBytes))
	}
	for _, server := range servers {
		m, err := st.GetLastMsgForSubject(ctx, s.markSubject(server))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return State{}, fmt.Errorf("stream: last mark of %s: %w", server, err)
		}
		if mark, incarnation, err := decodeMark(m.Data); err == nil && incarnation == out.Incarnation && mark.Server == server {
			out.Marks[server] = mark
		}
	}
	return out, nil
}
