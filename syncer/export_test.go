package syncer

import "time"

// SetPurgeEvery sets how often the stream is purged. It is called before Run.
func (s *Service) SetPurgeEvery(d time.Duration) { s.purgeEvery = d }
