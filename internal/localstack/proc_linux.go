package localstack

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// dieWithParent makes the kernel kill the child when the thread that started it
// ends. run keeps that thread.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// identity tells process pid from every other one that ever had this number: the
// boot, and the time since it at which the process began. It is "" when there is no
// such process, or only what its parent has not collected yet.
func identity(pid int) string {
	fields := fieldsOf(fmt.Sprintf("/proc/%d/stat", pid))
	if fields == nil || fields[0] == "Z" || fields[0] == "X" {
		return ""
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + ":" + fields[19] // field 22: starttime
}

// fieldsOf returns what a stat file says, from field 3, the state, on; nil when it can't
// be read.
func fieldsOf(file string) []string {
	stat, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	// The second field is the program's name in parentheses and may hold anything.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 {
		return nil
	}
	return fields
}

// frozen reports whether every thread of process pid is stopped.
func frozen(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, file := range threads {
		if fields := fieldsOf(file); fields != nil && fields[0] != "T" {
			return false
		}
	}
	return err == nil
}
