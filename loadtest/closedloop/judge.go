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
		files[t] = &answers{r: bufio.NewReaderSize(f, 1<<20), most: j.plan.AnswerMax()}
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
				j.one(until, a, o)
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

// one judges an answer. That to a batch is counted as an answer for each of its orders.
func (j judge) one(until uint64, a *answers, o *outcome) {
	status := strconv.Itoa(a.Status)
	if j.plan.PerRequest() > 1 && a.IsBatch() {
		o.count(a.second, status, -1)
		for _, f := range j.ledger.SomeBatch(until, a.Success) {
			o.count(a.second, f.Answer, 1)
			if f.Fault != nil {
				o.refuse(a.second, f.Answer, f.Fault)
			}
		}
		return
	}
	fault := (*traffic.Fault)(nil)
	if j.plan.Reads() && !a.Replayed && a.Status == 200 && !j.ledger.Knows(a.Success) {
		fault = traffic.Read(a.Success)
	} else {
		fault = j.ledger.Some(until, a.Success)
	}
	if fault != nil {
		o.refuse(a.second, status, fault)
	}
}

// refuse counts an answer of a second as none.
func (o *outcome) refuse(second int, status string, fault *traffic.Fault) {
	o.failures.Add(report.NotAnOrder, fault.Kind, fault.Text, 1)
	o.count(second, status, -1)
	o.count(second, report.NotAnOrder, 1)
}

// count counts n answers more of a second.
func (o *outcome) count(second int, answer string, n int64) {
	add := func(byAnswer map[string]int64, answer string) {
		if byAnswer[answer] += n; byAnswer[answer] <= 0 {
			delete(byAnswer, answer)
		}
	}
	if _, known := o.ByAnswer[answer]; !known && answer != report.NotAnOrder && len(o.ByAnswer) >= report.AnswersMax {
		answer = report.OtherAnswer
	}
	add(o.ByAnswer, answer)
	if second < len(o.seconds) {
		add(o.seconds[second].ByAnswer, answer)
	}
}

// answers are those that a thread wrote down.
type answers struct {
	r    *bufio.Reader
	most int  // bytes of a body
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
	if length < 0 || length > a.most {
		return fmt.Errorf("closedloop: an answer of %d bytes", length)
	}
	body := make([]byte, length+1) // and a line feed
	if _, err := io.ReadFull(a.r, body); err != nil {
		return fmt.Errorf("closedloop: an answer that wrk wrote down: %w", err)
	}
	a.Replayed, a.Body = replayed == 1, body[:length]
	return nil
}
