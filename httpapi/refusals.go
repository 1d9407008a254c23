package httpapi

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/octopay/octopay/httpapi/problem"
)

// refusalsEvery is the least time between two lines about one code.
const refusalsEvery = 10 * time.Second

// causeMax is how many bytes of a cause are logged.
const causeMax = 512

// refusals write what was refused for want of room (429, 503), and why: the first of a
// code at once, the others of it as a number, every refusalsEvery until there are none.
// A process in trouble so says what troubles it, and a flood makes no flood of lines.
type refusals struct {
	log   *slog.Logger
	codes [problem.Codes]struct {
		count   atomic.Int64                    // since the last line
		last    atomic.Pointer[problem.Problem] // the newest of these
		waiting atomic.Bool                     // for the time of the next line
	}
}

// note counts a refusal.
func (r *refusals) note(p *problem.Problem) {
	c := &r.codes[p.Code]
	c.last.Store(p)
	c.count.Add(1)
	if !c.waiting.Load() {
		r.begin(p.Code)
	}
}

// begin writes the line of what was counted, unless another goroutine does, and sees
// to the next.
func (r *refusals) begin(code problem.Code) {
	if r.codes[code].waiting.CompareAndSwap(false, true) {
		r.next(code)
	}
}

// next writes the line of what was counted, and comes again; after a time without
// refusals it writes nothing, and the next refusal has its line at once.
func (r *refusals) next(code problem.Code) {
	c := &r.codes[code]
	n := c.count.Swap(0)
	if n > 0 {
		r.write(c.last.Load(), n)
		time.AfterFunc(refusalsEvery, func() { r.next(code) })
		return
	}
	c.waiting.Store(false)
	if c.count.Load() > 0 { // it came in between, and relied on us
		r.begin(code)
	}
}

func (r *refusals) write(p *problem.Problem, n int64) {
	level := slog.LevelWarn
	if p.Code == problem.Draining {
		level = slog.LevelInfo // that is how a process ends
	}
	attrs := []slog.Attr{slog.String("code", p.Code.String()), slog.Int64("count", n)}
	if p.Shed != "" {
		attrs = append(attrs, slog.String("reason", string(p.Shed)))
	}
	if p.Cause != nil {
		cause := unquoted(p.Cause)
		attrs = append(attrs, slog.String("error", cause[:min(len(cause), causeMax)]))
	}
	r.log.LogAttrs(context.Background(), level, "refused", attrs...)
}
