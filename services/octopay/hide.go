package main

import (
	"io"
	"regexp"
)

// secretText is what is shown once, and never said again: whoever writes a key behind the
// wrong command would find it in an error, and so in a log.
var secretText = regexp.MustCompile(`(opk|whsec)_[^\s"]*`)

// hiding is a writer that leaves keys out of what is written to it at once.
type hiding struct{ io.Writer }

func (h hiding) Write(p []byte) (int, error) {
	if _, err := h.Writer.Write(secretText.ReplaceAll(p, []byte("${1}_…"))); err != nil {
		return 0, err
	}
	return len(p), nil
}
