package syncer

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/octopay/octopay/shardmap"
)

// What a loop does that doesn't stand still.
const (
	running = "running"
	waiting = "waiting for its lease" // another process may do its work
	doubled = "another process does the same"
	stopped = "stopped"
)

// markAgeMax is the age of a server's newest mark above which its collector stands still
// though it runs. At rest it is 1 to 2 s.
const markAgeMax = 15 * time.Second

// States returns what each collector and applier is doing: "running", or why not, by
// lease name.
func (s *Service) States() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]string, len(s.loops))
	for name, what := range s.loops {
		out[name] = what
	}
	return out
}

// Standing names each collector and applier of this process that stands still, and why,
// in words for an operator, sorted; also those that run while their marks stand still. One
// that waits for its lease isn't among them: another process may do its work. working
// reports whether any part goes on.
func (s *Service) Standing() (standing []string, working bool) {
	ages := map[string]time.Duration{}
	for _, server := range s.c.Map.Servers(shardmap.UID) {
		if age, ok := s.metrics.markAge(server.Name); ok {
			ages["collector/"+server.Name] = age
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, what := range s.loops {
		switch what {
		case waiting, doubled, stopped:
			working = true
			continue
		case running:
			working = true
			what = ""
			for c := range causes {
				what = cmp.Or(what, s.notes[noteKey{name, c}])
			}
			if age := ages[name]; what == "" && age > markAgeMax {
				what = fmt.Sprintf("its newest mark is %d s old: a transaction is open on the server for so long, or its log is behind", int(age.Seconds()))
			}
			if what == "" {
				continue
			}
		}
		standing = append(standing, name+": "+what)
	}
	slices.Sort(standing)
	return standing, working || len(s.loops) == 0
}

// A cause is what can make the marks of a part stand still while it runs.
type cause int

const (
	noRoom      cause = iota // the stream is full
	noStamp                  // no stamp is fresh
	deadLetters              // some are open

	causes
)

type noteKey struct {
	name string
	cause
}

// note says why the marks of a part stand still though it runs; "" is that they don't.
func (s *Service) note(name string, c cause, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if why == "" {
		delete(s.notes, noteKey{name, c})
	} else {
		s.notes[noteKey{name, c}] = why
	}
}

// unnote takes all back: the part doesn't run any more.
func (s *Service) unnote(name string) {
	for c := range causes {
		s.note(name, c, "")
	}
}

// later says what a loop does unless over is called within d.
func (s *Service) later(d time.Duration, name, what string) (over func()) {
	var mu sync.Mutex
	ended := false
	timer := time.AfterFunc(d, func() {
		mu.Lock()
		defer mu.Unlock()
		if !ended {
			s.say(name, what, nil)
		}
	})
	return func() {
		timer.Stop()
		mu.Lock()
		defer mu.Unlock()
		ended = true
	}
}
