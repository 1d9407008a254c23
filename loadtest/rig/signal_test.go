package rig_test

import (
	"context"
	"os/signal"
	"syscall"
)

func signalled() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), syscall.SIGTERM)
}
