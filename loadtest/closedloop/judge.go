package closedloop

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"github.com/octopay/octopay/loadtest/report"
	"github.com/octopay/octopay/loadtest/traffic"
)

// A judge says which answers of success acknowledge a create. wrk doesn't tell which
// request an answer is of, and has better to do than to read them: so that is done when it
// has ended, and a create is known by its out_trade_no. That two creates have each other's
// answers is for package openloop to see.
type judge struct {
	plan   *traffic.Plan
	ledger *traffic.Ledger
}

// take judges the answers that threads wrote down in dir, in the order of their seconds,
// of requests with numbers below until. An answer that isn't what was asked for is counted
// as that, and not any more as its status.
func (j judge) take(dir string, threads int, until uint64, o *outcome) (err error) {
	files := make([]*answers, threads)
	for t := range files {
		f, err := os.Open(filepath.Join(dir, "answers."+strconv.Itoa(t+1)))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		files[t] = &answers{r: bufio.NewReaderSize(f, 1<<20)}
		if err := files[t].read(); err != nil {
			return err
		}
	}
	taken := int64(0)
	for {
		// Of one second the threads' answers come in no order; a repeat may be in the file
		// of another thread than its create.
		second := math.MaxInt
		for _, a := range files {
			if a.more {
				second = min(second, a.second)
			}
		}
		if second == math.MaxInt {
			break
		}
		for _, a := range files {
			for a.more && a.second <= second {
				taken++
				if fault := j.one(until, a.Success); fault != nil {
					o.refuse(a.second, strconv.Itoa(a.Status), fault)
				}
				if err := a.read(); err != nil {
					return err
				}
			}
		}
	}
	if taken != o.Kept {
		return fmt.Errorf("closedloop: wrk wrote down %d of %d answers: is the disk full?", taken, o.Kept)
	}
	return nil
}

// one says what is wrong with an answer.
func (j judge) one(until uint64, s traffic.Success) *traffic.Fault {
	if j.plan.Reads() && !s.Replayed && s.Status == 200 && !j.ledger.Knows(s) {
		return traffic.Read(s)
	}
	return j.ledger.Some(until, s)
}

// refuse counts an answer of a second as none.
func (o *outcome) refuse(second int, status string, fault *traffic.Fault) {
	o.failures.Add(report.NotAnOrder, fault.Kind, fault.Text, 1)
	move := func(byAnswer map[string]int64) {
		if byAnswer[status]--; byAnswer[status] <= 0 {
			delete(byAnswer, status)
		}
		byAnswer[report.NotAnOrder]++
	}
	move(o.ByAnswer)
	if second < len(o.seconds) {
		move(o.seconds[second].ByAnswer)
	}
}

// answers are those that a thread wrote down.
type answers struct {
	r    *bufio.Reader
	more bool // there is one:
	traffic.Success
	second int
}

// read reads the next one.
func (a *answers) read() error {
	head, err := a.r.ReadString('\n')
	if a.more = err == nil; !a.more {
		if errors.Is(err, io.EOF) && head == "" {
			return nil
		}
		return fmt.Errorf("closedloop: an answer that wrk wrote down: %w", err)
	}
	var replayed, length int
	if _, err := fmt.Sscanf(head, "%d %d %d %d", &a.second, &a.Status, &replayed, &length); err != nil {
		return fmt.Errorf("closedloop: %q is no head of an answer: %w", head, err)
	}
	if length < 0 || length > traffic.AnswerMax {
		return fmt.Errorf("closedloop: an answer of %d bytes", length)
	}
	body := make([]byte, length+1) // and a line feed
	if _, err := io.ReadFull(a.r, body); err != nil {
		return fmt.Errorf("closedloop: an answer that wrk wrote down: %w", err)
	}
	a.Replayed, a.Body = replayed == 1, body[:length]
	return nil
}
