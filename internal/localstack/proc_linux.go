package localstack

import (
	"fmt"
	"os"
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
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The second field is the program's name in parentheses and may hold anything.
	_, rest, ok := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
	fields := strings.Fields(rest) // from field 3 on: the state
	if !ok || len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return ""
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + ":" + fields[19] // field 22: starttime
}
