package cluster

import (
	"math"
	"time"
)

// WithoutProof returns c without the guard that a read asks the owner row from time to
// time.
func (c Config) WithoutProof() Config {
	c.proofMax = time.Hour
	return c
}

// WithoutBreaker returns c without the guard that a silent database is left alone.
func (c Config) WithoutBreaker() Config {
	c.failuresMax = math.MaxUint32
	return c
}
