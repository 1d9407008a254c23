// Package proc starts processes that don't outlive this one, and reads what processes use
// of this machine, from Linux's /proc. When a process is ended, and what the figures mean,
// is left to its callers.
//
// A process that has ended is not there, os.ErrNotExist, also where nobody has waited for
// it yet.
//
// CPU time is of all threads of a process, those that have ended included, and of none
// of its children. The kernel tells it in hundredths of a second.
package proc

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tick is the unit of CPU times in /proc: USER_HZ, which is 100 on every platform that
// Go has.
const tick = time.Second / 100

// A Usage is what one process uses.
type Usage struct {
	CPU      time.Duration // since its start
	Children time.Duration // CPU of its children that have ended and were waited for
	RSSBytes int           // memory that is in RAM
	Threads  int
	FDs      int // open file descriptors
}

// Of returns what process pid uses now.
func Of(pid int) (Usage, error) {
	u, err := stat(pid)
	if err != nil {
		return Usage{}, err
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("proc: %w", err)
	}
	u.FDs = len(fds)
	if pid == os.Getpid() {
		u.FDs-- // the one that reads the list
	}
	return u, nil
}

// CPU returns the CPU time that processes have used since their start, together.
func CPU(pids ...int) (time.Duration, error) {
	var sum time.Duration
	for _, pid := range pids {
		u, err := stat(pid)
		if err != nil {
			return 0, err
		}
		sum += u.CPU
	}
	return sum, nil
}

func stat(pid int) (Usage, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, syscall.ESRCH) { // it ended after the file was opened
		err = os.ErrNotExist
	}
	if err != nil {
		return Usage{}, fmt.Errorf("proc: %w", err)
	}
	u, err := parse(string(text))
	if err != nil {
		return Usage{}, fmt.Errorf("proc: process %d: %w", pid, err)
	}
	return u, nil
}

// Fields of /proc/PID/stat, counted from 1 as proc(5) does.
const (
	fieldState    = 3
	fieldUTime    = 14
	fieldSTime    = 15
	fieldCUTime   = 16
	fieldCSTime   = 17
	fieldThreads  = 20
	fieldRSSPages = 24
)

// parse reads a line of /proc/PID/stat.
func parse(line string) (u Usage, err error) {
	// The second field is the program's name in parentheses, and may hold anything.
	end := strings.LastIndexByte(line, ')')
	fields := strings.Fields(line[end+1:])
	if end < 0 || len(fields) <= fieldRSSPages-fieldState {
		return Usage{}, errors.New("not a line of stat")
	}
	if state := fields[0]; state == "Z" || state == "X" {
		return Usage{}, os.ErrNotExist
	}
	number := func(field int) int64 {
		n, e := strconv.ParseInt(fields[field-fieldState], 10, 64)
		if e != nil {
			err = fmt.Errorf("field %d of stat: %w", field, e)
		}
		return n
	}
	u = Usage{
		CPU:      time.Duration(number(fieldUTime)+number(fieldSTime)) * tick,
		Children: time.Duration(number(fieldCUTime)+number(fieldCSTime)) * tick,
		RSSBytes: int(number(fieldRSSPages)) * os.Getpagesize(),
		Threads:  int(number(fieldThreads)),
	}
	return u, err
}
