package idgen_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/bwmarrin/snowflake"

	"github.com/octopay/octopay/idgen"
)

// BenchmarkBeside makes ids side by side with bwmarrin/snowflake, the generator that Go
// programs use most. Both have 10 bits of worker and 12 of sequence, so that neither
// makes more than one id in 244 ns on a clock that is real; how much CPU each burns to
// get there is cpu-ns/op. "unbound" is what a call costs where no millisecond fills up.
//
// An id here is more than a snowflake: it carries the buyer's shard and table, and its
// worker number is checked against its lease each time.
func BenchmarkBeside(b *testing.B) {
	forever := func(b *testing.B) *idgen.Generator {
		g := new(idgen.Generator)
		lease := grant(time.Now())
		lease.Until = noon.AddDate(10, 0, 0)
		if err := g.Grant(lease); err != nil {
			b.Fatal(err)
		}
		return g
	}
	node := func(b *testing.B) *snowflake.Node {
		n, err := snowflake.NewNode(5)
		if err != nil {
			b.Fatal(err)
		}
		return n
	}
	b.Run("serial/octopay", func(b *testing.B) {
		g := forever(b)
		measured(b, func() {
			for b.Loop() {
				if _, err := g.Next(9527); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
	b.Run("serial/snowflake", func(b *testing.B) {
		n := node(b)
		measured(b, func() {
			for b.Loop() {
				n.Generate()
			}
		})
	})
	b.Run("parallel/octopay", func(b *testing.B) {
		g := forever(b)
		measured(b, func() {
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := g.Next(9527); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	})
	b.Run("parallel/snowflake", func(b *testing.B) {
		n := node(b)
		measured(b, func() {
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					n.Generate()
				}
			})
		})
	})
	b.Run("unbound/octopay", func(b *testing.B) {
		g := forever(b)
		measured(b, func() {
			for ahead := ms; b.Loop(); ahead += ms {
				// The clock is read as Next does, and each id has a ms of its own.
				if _, err := g.NextAt(time.Now().Add(ahead), 9527); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
	b.Run("unbound/snowflake", func(b *testing.B) {
		nodeBits, stepBits := snowflake.NodeBits, snowflake.StepBits
		snowflake.NodeBits, snowflake.StepBits = 3, 19 // 524,288 ids in a ms
		n := node(b)
		snowflake.NodeBits, snowflake.StepBits = nodeBits, stepBits
		measured(b, func() {
			for b.Loop() {
				n.Generate()
			}
		})
	})
}

// measured reports the CPU that run uses, on all cores, beside the time that passes.
func measured(b *testing.B, run func()) {
	b.ReportAllocs()
	before := cpu(b)
	run()
	b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/op")
}

func cpu(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
