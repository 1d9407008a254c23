package lease_test

import (
	"testing"
	"time"

	"github.com/octopay/octopay/lease"
	"github.com/octopay/octopay/lease/leasetest"
)

func TestMemory(t *testing.T) {
	leasetest.Run(t, func(*testing.T) leasetest.Made {
		var offset time.Duration
		m := lease.NewMemory(func() time.Time { return time.Now().Add(offset) })
		return leasetest.Made{
			Table: m,
			Shift: func(d time.Duration) { offset += d },
			Close: func(d time.Duration) { m.Close(time.Now().Add(offset + d)) },
		}
	})
}
