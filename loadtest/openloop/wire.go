package openloop

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/octopay/octopay/loadtest/report"
	"github.com/octopay/octopay/loadtest/traffic"
)

// idleMax is how long a connection may lie unused before the generator closes it. When a
// connection becomes free while another is made, net/http leaves the new one unused. To
// a server that is one whose first request doesn't come, and Octopay closes it after 5 s.
// A request that is sent on it just then gets no answer: net/http sends a POST again only
// when nothing of it was written. No buyer would have lost that request; the generator
// made the connection that it didn't need. So it closes what isn't used well before any
// server does. What is still lost is counted, and named.
const idleMax = 2 * time.Second

// A wire sends requests, and remembers why some have no answer: vegeta keeps the text of
// an error alone.
type wire struct {
	base    *http.Transport
	timeout time.Duration // of a request with its answer
	most    int           // bytes of an answer that are looked at

	mu   sync.Mutex
	lost map[string]error // by the number of the request; few are there at once
}

func newWire(c Config, plan *traffic.Plan) *wire {
	return &wire{
		timeout: c.Timeout, most: plan.AnswerMax(), lost: map[string]error{},
		base: &http.Transport{
			MaxIdleConns: c.WorkersMax, MaxIdleConnsPerHost: c.WorkersMax, IdleConnTimeout: idleMax, DisableCompression: true,
		},
	}
}

// RoundTrip sends a request, whose number is its URL's fragment. It returns when all of
// the answer is there that is looked at.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(r.Context(), w.timeout)
	defer cancel()
	answer, err := w.base.RoundTrip(r.WithContext(ctx))
	if err == nil {
		answer.Body, err = whole(answer.Body, w.most)
	}
	if err != nil {
		w.mu.Lock()
		w.lost[r.URL.Fragment] = err
		w.mu.Unlock()
		return nil, err
	}
	return answer, nil
}

// whole reads a body to its end, and returns its beginning.
func whole(body io.ReadCloser, most int) (io.ReadCloser, error) {
	kept, err := io.ReadAll(io.LimitReader(body, int64(most)))
	if err == nil {
		_, err = io.Copy(io.Discard, body)
	}
	return io.NopCloser(bytes.NewReader(kept)), errors.Join(err, body.Close())
}

// why returns why a request has no answer, once: what report.Run.ByAnswer calls it, the
// kind, and the whole text.
func (w *wire) why(number string) (answer, kind, text string) {
	w.mu.Lock()
	err := w.lost[number]
	delete(w.lost, number)
	w.mu.Unlock()
	var op *net.OpError
	switch {
	case err == nil:
		return report.NoAnswer, "not sent", ""
	case errors.Is(err, context.DeadlineExceeded):
		return report.Timeout, "no answer within " + w.timeout.String(), ""
	case errors.As(err, &op) && op.Op == "dial":
		return report.NotConnected, innermost(err), err.Error()
	}
	return report.NoAnswer, innermost(err), err.Error()
}

// innermost returns the text of the error that others wrap: it has no addresses, so that
// the same fault has the same text.
func innermost(err error) string {
	for {
		next := errors.Unwrap(err)
		if all, ok := err.(interface{ Unwrap() []error }); ok && len(all.Unwrap()) > 0 {
			next = all.Unwrap()[0]
		}
		if next == nil {
			return err.Error()
		}
		err = next
	}
}
