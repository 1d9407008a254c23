package faultproxy

import (
	"fmt"
	"syscall"
	"testing"
)

// Nobody returns the address of a server that is away: connections to it are refused, and
// until t's end nobody else can come to listen there, as at a port that was free a moment
// ago.
func Nobody(t testing.TB) string {
	t.Helper()
	// Bound, and not listening.
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
}
