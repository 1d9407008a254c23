package binlog

import "testing"

// A server's clock that is set back by less than a second makes no mark a lie.
func TestAStampLiesASecondBack(t *testing.T) {
	r := shared(t)
	if s := r.stamp(r.clock()); s.Now-s.At < 1000 {
		t.Errorf("a stamp lies %d ms back, want 1000 ms at least", s.Now-s.At)
	}
}
