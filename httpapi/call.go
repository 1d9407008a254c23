package httpapi

import (
	"context"
	"crypto/rand"
	mathrand "math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/octopay/octopay/auth"
	"github.com/octopay/octopay/httpapi/problem"
	"github.com/octopay/octopay/idgen"
)

// A call is one request and its answer.
type call struct {
	api     *API
	w       http.ResponseWriter
	r       *http.Request
	arrived time.Time
	id      string // request id
	route   *route
	key     auth.Key          // who calls
	params  [paramsMax]string // of the path
	orderID idgen.ID          // after it parsed; for the log

	bodyRead bool // to its end
	answered bool
	gone     bool // the client left before there was an answer
	status   int
	code     problem.Code
	bytes    int
}

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{api: a, w: w, r: r, arrived: time.Now(), route: a.nowhere}
	c.run()
	if c.abandonsBody() {
		linger(w, r, a.lingerTime)
	}
}

// run answers the request. When it returns, the call is counted and logged.
func (c *call) run() {
	c.id = requestID(c.r.Header)
	h := c.w.Header()
	h["X-Request-Id"] = []string{c.id}
	h["Cache-Control"] = noStore
	h["X-Content-Type-Options"] = noSniff
	c.api.metrics.inFlight.Inc()
	defer c.api.metrics.inFlight.Dec()
	defer c.end()
	if err := c.api.serve(c); err != nil {
		c.refuse(err)
	}
}

// Header values that never change; net/http only reads them.
var (
	noStore     = []string{"no-store"}
	noSniff     = []string{"nosniff"}
	typeJSON    = []string{"application/json"}
	typeProblem = []string{problem.ContentType}
	typeYAML    = []string{"application/yaml"}
	closing     = []string{"close"}
	yes         = []string{"true"}
)

// requestID returns the client's request id if it reads like one, else a new one.
func requestID(h http.Header) string {
	if sent := h["X-Request-Id"]; len(sent) == 1 && isRequestID(sent[0]) {
		return sent[0]
	}
	return rand.Text()
}

// requestIDMax is the longest request id of a client, in characters.
const requestIDMax = 64

func isRequestID(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '.', c == '-':
		default:
			return false
		}
	}
	return s != "" && len(s) <= requestIDMax
}

// context returns the context of the call's work: it ends with the time of the call,
// which its body has used up a part of, or when the client leaves.
func (c *call) context() (context.Context, context.CancelFunc) {
	return context.WithDeadline(c.r.Context(), c.arrived.Add(c.api.config.CallTimeout))
}

// write says whether the call may have written something.
func (c *call) write() bool { return c.r.Method == http.MethodPost }

// refuse answers with an error. What went wrong inside is logged, once, here.
func (c *call) refuse(err error) {
	p := problem.From(err, c.write())
	c.code = p.Code
	// Nobody would be right to call that a failure of ours. But a client that has only
	// closed its sending side looks the same, so it is answered all the same.
	c.gone = p.Code.Status() >= 500 && c.r.Context().Err() != nil
	c.note(p)
	h := c.w.Header()
	if p.Shed != "" {
		h["X-Shed-Reason"] = []string{string(p.Shed)}
	}
	if least, most := p.Code.RetryAfter(); most > 0 {
		h["Retry-After"] = []string{strconv.Itoa(least + mathrand.IntN(most-least+1))}
	}
	buf := buffers.Get().(*[]byte)
	defer putBuffer(buf)
	*buf = p.Append((*buf)[:0], c.id)
	c.send(p.Code.Status(), typeProblem, *buf)
}

// note logs what the operator should know of a refusal.
func (c *call) note(p *problem.Problem) {
	switch {
	case p.Code == problem.Internal:
		c.logFault(p.Cause)
	case refusal(p.Code.Status()) && !c.gone:
		c.api.refusals.note(p)
	}
}

// answer sends what fill appends, as JSON.
func (c *call) answer(status int, fill func([]byte) []byte) {
	buf := buffers.Get().(*[]byte)
	defer putBuffer(buf)
	*buf = fill((*buf)[:0])
	c.send(status, typeJSON, *buf)
}

// sendTime is how long a client may take to receive its answer. A process that ends
// waits for it, so it is shorter than the time that programs give to that.
const sendTime = 8 * time.Second

// send sends the answer. It is whole already, so its length is known, a HEAD has it
// too, and no error can come in its middle.
func (c *call) send(status int, contentType []string, body []byte) {
	h := c.w.Header()
	h["Content-Type"] = contentType
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	// In HTTP/2 that ends the connection of others too, so an unread body is no reason.
	if c.api.Draining() || c.r.ProtoMajor == 1 && c.abandonsBody() {
		h["Connection"] = closing
	}
	c.answered, c.status = true, status
	_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(sendTime)) // tests have writers without
	c.w.WriteHeader(status)
	if c.r.Method != http.MethodHead {
		c.bytes, _ = c.w.Write(body) // an error is a client that left
	}
}

// buffers are bodies on their way in and out.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 2<<10); return &b }}

// bufferKeep is the largest buffer that is kept for the next call.
const bufferKeep = 256 << 10

func putBuffer(b *[]byte) {
	if cap(*b) <= bufferKeep {
		buffers.Put(b)
	}
}
