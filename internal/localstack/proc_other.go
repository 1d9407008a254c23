//go:build !linux

package localstack

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// dieWithParent: other systems have nothing of the kind. Children are ended by
// Close, and by the supervisor at SIGTERM.
func dieWithParent(*syscall.SysProcAttr) {}

// identity tells process pid from every other one that ever had this number, by the
// second at which it began. It is "" when there is no such process.
func identity(pid int) string {
	out, err := exec.Command("ps", "-o", "lstart=,stat=", "-p", strconv.Itoa(pid)).Output()
	fields := strings.Fields(string(out))
	if err != nil || len(fields) < 2 || strings.HasPrefix(fields[len(fields)-1], "Z") {
		return ""
	}
	return strings.Join(fields[:len(fields)-1], " ")
}

// frozen reports whether process pid is stopped.
func frozen(pid int) bool {
	out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err != nil || strings.HasPrefix(strings.TrimSpace(string(out)), "T")
}
