//go:build !linux

package proc

import "syscall"

// dieWithParent does nothing: this system can't.
func dieWithParent(*syscall.SysProcAttr) {}
