package lane

import (
	"fmt"
	"runtime"
	"strings"
)

// crash ends the process when a commit panics, as a panic does: nobody knows what its
// transaction did, or which locks it holds, so nothing may go on. But what was thrown may
// hold a row, and the runtime writes it out. So another goroutine panics in its place, with
// what may be said: the type, the functions and the lines. It is deferred around commit.
func crash() {
	v := recover()
	if v == nil {
		return
	}
	text := fmt.Sprintf("%T", v)
	if r, ok := v.(runtime.Error); ok { // the runtime's own words hold no row
		text = r.Error()
	}
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	var at strings.Builder
	for {
		f, more := frames.Next()
		fmt.Fprintf(&at, "\n\t%s:%d", f.Function, f.Line)
		if !more {
			break
		}
	}
	go panic("lane: a commit panicked: " + text + at.String())
	select {} // the process ends
}
