// Package lane is the group commit of operations.
package lane

import "errors"

var (
	// ErrUnknown reports a write whose outcome was not learned. Running the same
	// operation again is safe and settles it.
	ErrUnknown = errors.New("outcome unknown")
	// ErrFull reports a lane without room. Nothing was written.
	ErrFull = errors.New("lane: queue is full")
	// ErrWait reports an operation that was withdrawn because it waited too long
	// before its transaction began. Nothing was written.
	ErrWait = errors.New("lane: waited too long")
	// ErrClosed reports a lane that no longer takes operations. Nothing was written.
	ErrClosed = errors.New("lane: closed")
)
