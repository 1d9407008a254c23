//go:build !linux

package rig

import "syscall"

// dieWithParent does nothing: this system can't.
func dieWithParent(*syscall.SysProcAttr) {}
