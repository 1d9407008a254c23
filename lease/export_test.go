package lease

import "time"

// SetNow is what takes the table's time.
const SetNow = setNow

// SetUntil breaks the rule that the end of a lease never falls.
func (m *Memory) SetUntil(name string, until time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows[name].until = until
}

// Close sets from when on worker numbers are given out, to the ms.
func (m *Memory) Close(until time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = until.Truncate(time.Millisecond)
}
