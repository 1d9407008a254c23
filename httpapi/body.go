package httpapi

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/octopay/octopay/httpapi/problem"
)

const (
	bodyMax  = 64 << 10 // bytes
	batchMax = 4 << 20  // bytes of a batch
	uriMax   = 8 << 10  // bytes

	// lingerMax is how many bytes of a refused body are taken and thrown away. It is
	// far above what is sent by mistake; the time is what holds an attacker.
	lingerMax  = 32 << 20
	lingerTime = time.Second
)

// read calls f with the whole body, of at most so many bytes. f keeps nothing of it.
func (c *call) read(most int64, f func(body []byte) error) error {
	buf := buffers.Get().(*[]byte)
	defer putBuffer(buf)
	body, err := c.body(*buf, most)
	if err != nil {
		return err
	}
	*buf = body
	return f(body)
}

// body reads the whole body into buf, and returns it. It waits for it no longer than
// BodyTimeout.
func (c *call) body(buf []byte, most int64) ([]byte, error) {
	if c.r.ContentLength == 0 {
		return buf[:0], nil
	}
	if !isJSON(c.r.Header["Content-Type"]) {
		return nil, &problem.Problem{Code: problem.UnsupportedMediaType}
	}
	if c.r.ContentLength > most {
		return nil, &problem.Problem{Code: problem.BodyTooLarge}
	}
	// net/http takes the deadline away when the body has come to its end and the watch
	// for the client's hang-up begins, so it isn't the call's. Writers that have no
	// deadlines, in tests, wait as long as they like.
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Now().Add(c.api.config.BodyTimeout))
	// A large one, for which batchBytes has room, gets its memory at once: growing to it
	// would take several times as much. A small one is only announced, by anybody.
	if said := c.r.ContentLength; said > bodyMax && said >= int64(cap(buf)) {
		buf = make([]byte, 0, said+1) // the end is found by reading on
	}
	buf, err := readAll(http.MaxBytesReader(c.w, c.r.Body, most), buf[:0])
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		c.bodyRead = true
		return buf, nil
	case errors.As(err, &tooLarge):
		return nil, &problem.Problem{Code: problem.BodyTooLarge}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &problem.Problem{Code: problem.RequestTimeout}
	}
	// It ended early, or its chunks are malformed: what came isn't what was meant.
	return nil, &problem.Problem{Code: problem.MalformedJSON, Cause: err}
}

// readAll is io.ReadAll into a buffer that is there.
func readAll(r io.Reader, b []byte) ([]byte, error) {
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return b, err
		}
	}
}

// abandonsBody reports whether the request has a body that nobody read to its end.
// Its connection is closed: net/http would otherwise wait for the rest of the body
// before it sends the answer, and what came later would be read as a request.
func (c *call) abandonsBody() bool { return c.r.ContentLength != 0 && !c.bodyRead }

// linger ends an answered request whose body nobody read to its end, and whose
// connection is closed after it. It takes the rest of the body, for at most this long:
// many clients send all they have before they read, and a connection that is closed
// under them loses the answer. Without a deadline net/http would wait for up to 256 KiB
// of the rest for ever, and a shutdown with it.
//
// In HTTP/2 the answer and the body don't meet, and the stream ends with its handler.
func linger(w http.ResponseWriter, r *http.Request, atMost time.Duration) {
	answer := http.NewResponseController(w)
	if r.ProtoMajor != 1 || answer.SetReadDeadline(time.Now().Add(atMost)) != nil {
		return
	}
	if r.ContentLength > lingerMax || answer.Flush() != nil {
		return // its end would not be reached
	}
	_, _ = io.CopyN(io.Discard, r.Body, lingerMax)
}

// isJSON reports whether a Content-Type is JSON in UTF-8. Parameters other than the
// charset mean nothing for JSON and are passed over.
func isJSON(contentType []string) bool {
	if len(contentType) != 1 {
		return false
	}
	if contentType[0] == "application/json" {
		return true
	}
	media, params, err := mime.ParseMediaType(contentType[0])
	if err != nil || media != "application/json" {
		return false
	}
	charset, given := params["charset"]
	return !given || strings.EqualFold(charset, "utf-8")
}
