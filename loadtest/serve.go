package main

import (
	"context"
	"os"

	"github.com/octopay/octopay/loadtest/baseline"
)

// serveCmd is a baseline, as a process of its own; package rig starts it.
type serveCmd struct {
	Kind string `arg:"" enum:"direct,echo,raw"`
}

// Run does it.
func (s serveCmd) Run(ctx context.Context, c console) error {
	return baseline.Serve(ctx, s.Kind, c.environ, os.Stdin, c.out, c.err)
}
