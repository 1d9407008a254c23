package syncer

import "time"

// SetNow sets the clock by which the stream's messages grow old. It is called before Run.
func (s *Service) SetNow(now func() time.Time) { s.now = now }

// SetPurgeEvery sets how often the stream is purged. It is called before Run.
func (s *Service) SetPurgeEvery(d time.Duration) { s.purgeEvery = d }
