package lane

import (
	"context"
	"testing"
)

// BenchmarkLane is what the lane itself costs an operation: no I/O, every caller
// waits for its own result.
func BenchmarkLane(b *testing.B) {
	l := New(Config{}, func(_ context.Context, ops []int) []int { return ops })
	ctx, cancel := context.WithCancel(background)
	done := make(chan error)
	go func() { done <- l.Run(ctx) }()
	b.ReportAllocs()
	b.SetParallelism(256)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := through(background, l, 1, 100); err != nil {
				b.Error(err)
				return
			}
		}
	})
	cancel()
	if err := <-done; err != nil {
		b.Error(err)
	}
}
