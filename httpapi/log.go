package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/octopay/octopay/httpapi/problem"
	"github.com/octopay/octopay/idgen"
)

// end finishes a call: a panic becomes 500, and the call is counted and logged. It is
// deferred.
func (c *call) end() {
	v := recover()
	thrown, _ := v.(error)
	if v != nil && !errors.Is(thrown, http.ErrAbortHandler) {
		c.logPanic(v)
		if !c.answered {
			c.refuse(&problem.Problem{Code: problem.Internal, Cause: errPanic})
			v = nil
		}
	}
	took := time.Since(c.arrived)
	c.api.metrics.observe(c, took.Seconds())
	c.logAccess(took)
	if v != nil {
		panic(http.ErrAbortHandler) // half an answer is sent: break the connection
	}
}

var errPanic = errors.New("panic")

// refusal reports whether an answer with this status turns away work for which there
// was no room or no place, whatever the request was.
func refusal(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}

// logAccess writes the line of a call. Refusals have theirs only at debug level: under
// a flood, a line for each would be the load. What refusals says of them is enough.
func (c *call) logAccess(took time.Duration) {
	_, status, code := c.outcome()
	level := slog.LevelInfo
	switch {
	case refusal(status):
		level = slog.LevelDebug
	case status >= 500:
		level = slog.LevelError
	}
	ctx := context.Background()
	if !c.api.log.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, 10)
	attrs = append(attrs,
		slog.String("route", c.route.pattern),
		slog.String("method", methodNames[methodOf(c.r.Method)]),
		slog.Int("status", status),
		slog.String("code", code),
		slog.String("request_id", c.id),
		slog.Int("bytes", c.bytes),
		slog.Float64("duration_ms", float64(took.Microseconds())/1000),
	)
	if client := c.clientNetwork(); client != "" {
		attrs = append(attrs, slog.String("client", client))
	}
	if c.key.ID != "" {
		attrs = append(attrs, slog.String("key_id", c.key.ID))
	}
	if c.orderID != (idgen.ID{}) {
		attrs = append(attrs, slog.String("order_id", c.orderID.String()))
	}
	c.api.log.LogAttrs(ctx, level, "request", attrs...)
}

// logFault writes what a 500 doesn't say. A panic has its own line already.
func (c *call) logFault(err error) {
	if errors.Is(err, errPanic) {
		return
	}
	c.api.log.LogAttrs(context.Background(), slog.LevelError, "internal error",
		slog.String("request_id", c.id), slog.String("route", c.route.pattern), slog.String("error", unquoted(err)))
}

// logPanic writes where a panic happened. What was thrown may hold values, and so do
// the arguments in a stack trace: only the runtime's own texts and the names of
// functions are written.
func (c *call) logPanic(v any) {
	text := fmt.Sprintf("%T", v)
	if r, ok := v.(runtime.Error); ok {
		text = unquoted(r)
	}
	c.api.log.LogAttrs(context.Background(), slog.LevelError, "panic",
		slog.String("request_id", c.id), slog.String("route", c.route.pattern),
		slog.String("panic", text), slog.String("stack", stack()))
}

// stack returns the functions and lines of the goroutine, innermost first.
func stack() string {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	var b strings.Builder
	for {
		f, more := frames.Next()
		fmt.Fprintf(&b, "%s:%d\n", f.Function, f.Line)
		if !more {
			return b.String()
		}
	}
}

// unquoted returns the error's text without what it quotes: drivers and parsers quote
// the values that they choke on. It cuts from the first quotation mark to the last,
// since a value may hold marks itself.
func unquoted(err error) string {
	const marks = "'\"`"
	text := err.Error()
	first, last := strings.IndexAny(text, marks), strings.LastIndexAny(text, marks)
	if first == last {
		if first < 0 {
			return text
		}
		return text[:first] + "…"
	}
	return text[:first] + "…" + text[last+1:]
}
