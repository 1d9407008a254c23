package closedloop

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/octopay/octopay/loadtest/report"
)

// A series is the answers of a run by second, as the threads write them down while it
// goes on.
type series struct {
	dir    string
	files  []threadSeconds
	empty  bool // a thread has no more requests
	passed int  // seconds that progress has passed on
}

// threadSeconds is what one thread wrote.
type threadSeconds struct {
	read   int64                    // bytes
	totals map[int]map[string]int64 // by the second at whose end they were written
	last   int                      // the newest of them; -1: none
}

func newSeries(dir string, threads int) *series {
	s := &series{dir: dir, files: make([]threadSeconds, threads)}
	for i := range s.files {
		s.files[i] = threadSeconds{totals: map[int]map[string]int64{}, last: -1}
	}
	return s
}

// read takes in what was written since it was called last.
func (s *series) read() error {
	for i := range s.files {
		if err := s.readFile(&s.files[i], filepath.Join(s.dir, "seconds."+strconv.Itoa(i+1))); err != nil {
			return err
		}
	}
	return nil
}

func (s *series) readFile(t *threadSeconds, path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // wrk is just beginning
	} else if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(io.NewSectionReader(f, t.read, 1<<40))
	if err != nil {
		return err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1] // the rest is being written
	t.read += int64(len(text))
	for line := range bytes.Lines(text) {
		fields := bytes.SplitN(bytes.TrimSpace(line), []byte{' '}, 3)
		if string(fields[0]) == "end" {
			s.empty = true
			continue
		}
		if len(fields) != 3 {
			return fmt.Errorf("closedloop: %q is no count", line)
		}
		second, err1 := strconv.Atoi(string(fields[0]))
		total, err2 := strconv.ParseInt(string(fields[1]), 10, 64)
		if err := errors.Join(err1, err2); err != nil {
			return fmt.Errorf("closedloop: %q is no count: %w", line, err)
		}
		if t.totals[second] == nil {
			t.totals[second] = map[string]int64{}
		}
		t.totals[second][string(fields[2])] = total
		t.last = max(t.last, second)
	}
	return nil
}

// ended returns how many seconds have ended in every thread.
func (s *series) ended() int {
	n := s.files[0].last
	for _, t := range s.files {
		n = min(n, t.last)
	}
	return n // the newest may be half read
}

// pass passes on the seconds before until that it hasn't yet.
func (s *series) pass(until int, progress func(report.Second)) {
	for ; s.passed < until; s.passed++ {
		if progress != nil {
			progress(s.second(s.passed))
		}
	}
}

// second returns the answers of one second.
func (s *series) second(at int) report.Second {
	out := report.Second{At: at, ByAnswer: map[string]int64{}}
	for _, t := range s.files {
		for answer, n := range t.totals[at] {
			if n -= t.before(at)[answer]; n > 0 {
				out.ByAnswer[answer] += n
			}
		}
	}
	return out
}

// before returns a thread's totals before a second. A second in which it had no answer
// wrote none.
func (t *threadSeconds) before(at int) map[string]int64 {
	for at--; at >= 0; at-- {
		if m := t.totals[at]; m != nil {
			return m
		}
	}
	return nil
}
