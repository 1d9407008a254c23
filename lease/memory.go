package lease

import (
	"context"
	"strings"
	"sync"
	"time"
)

// Memory is a Table in this process's memory.
type Memory struct {
	clock  func() time.Time
	mu     sync.Mutex
	rows   map[string]*row
	closed time.Time // no worker number is given out before this
}

type row struct {
	holder string
	token  int64
	until  time.Time
}

// NewMemory returns an empty table whose clock is clock, time.Now if it is nil. Ids that
// were made before it must be gone: it gives out worker numbers at once.
func NewMemory(clock func() time.Time) *Memory {
	if clock == nil {
		clock = time.Now
	}
	return &Memory{clock: clock, rows: map[string]*row{}}
}

// now returns the table's time, as a database would: whole ms and no monotonic part.
func (m *Memory) now() time.Time { return m.clock().UTC().Truncate(time.Millisecond) }

// Acquire implements Table.
func (m *Memory) Acquire(ctx context.Context, name, holder string, term time.Duration) (Lease, error) {
	if err := ctx.Err(); err != nil {
		return Lease{}, err
	}
	sent := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	now, r := m.now(), m.rows[name]
	if strings.HasPrefix(name, workerNames) && m.closed.After(now) {
		return Lease{}, ErrClosed
	}
	if r == nil {
		r = &row{until: now}
		m.rows[name] = r
	}
	if r.until.After(now) {
		return Lease{}, ErrTaken
	}
	*r = row{holder: holder, token: r.token + 1, until: now.Add(term)}
	return Lease{Name: name, Holder: holder, Token: r.token, Until: r.until, Now: now, SentAt: sent}, nil
}

// Renew implements Table.
func (m *Memory) Renew(ctx context.Context, l Lease, term time.Duration) (Lease, error) {
	if err := ctx.Err(); err != nil {
		return Lease{}, err
	}
	sent := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	now, r := m.now(), m.held(l)
	if r == nil {
		return Lease{}, ErrLost
	}
	if end := now.Add(term); end.After(r.until) {
		r.until = end
	}
	l.Until, l.Now, l.SentAt = r.until, now, sent
	return l, nil
}

// Release implements Table.
func (m *Memory) Release(ctx context.Context, l Lease) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if now, r := m.now(), m.held(l); r != nil {
		r.holder = ""
		if r.until.After(now) {
			r.until = now
		}
	}
	return nil
}

// Taken implements Table.
func (m *Memory) Taken(ctx context.Context, prefix string) (map[string]bool, time.Time, error) {
	if err := ctx.Err(); err != nil {
		return nil, time.Time{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now, taken := m.now(), map[string]bool{}
	for name, r := range m.rows {
		if strings.HasPrefix(name, prefix) && r.until.After(now) {
			taken[name] = true
		}
	}
	return taken, now, nil
}

func (m *Memory) held(l Lease) *row {
	if r := m.rows[l.Name]; r != nil && r.holder == l.Holder && r.token == l.Token {
		return r
	}
	return nil
}
