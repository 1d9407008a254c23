package proc

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// used is what getrusage says, which is exact.
func used(t testing.TB) time.Duration {
	t.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		t.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func TestCPUIsThatOfAllThreads(t *testing.T) {
	const burn = 400 * time.Millisecond
	before, err := CPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	from := used(t)
	var wait sync.WaitGroup
	for range 2 {
		wait.Go(func() {
			runtime.LockOSThread() // a thread that ends with its goroutine
			for used(t)-from < burn {
			}
		})
	}
	wait.Wait()
	after, err := CPU(os.Getpid())
	exact := used(t) - from
	if err != nil {
		t.Fatal(err)
	}
	// utime and stime are each cut to 10 ms, at both ends.
	if got := after - before; got < exact-40*time.Millisecond || got > exact+40*time.Millisecond {
		t.Errorf("%s of CPU, getrusage says %s", got, exact)
	}
}

func TestCPUOfManyIsTheirSum(t *testing.T) {
	me, err := CPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if both, err := CPU(os.Getpid(), os.Getpid()); err != nil || both < 2*me || both > 2*me+100*time.Millisecond {
		t.Errorf("twice %s is %s, %v", me, both, err)
	}
}

func TestChildrenCountWhenTheyHaveEnded(t *testing.T) {
	before, err := Of(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	exact := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	after, err := Of(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if got := after.Children - before.Children; got < exact-40*time.Millisecond || got > exact+40*time.Millisecond {
		t.Errorf("%s of CPU by children, it took %s", got, exact)
	}
}

func TestMemoryThreadsAndDescriptorsAreCounted(t *testing.T) {
	before, err := Of(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	const files, threads, bytes = 7, 50, 64 << 20
	block := make([]byte, bytes)
	for i := 0; i < len(block); i += 4096 {
		block[i] = 1
	}
	stop := make(chan struct{})
	var up, down sync.WaitGroup
	for range threads {
		up.Add(1)
		down.Go(func() {
			runtime.LockOSThread()
			up.Done()
			// In the kernel, so that it keeps its thread.
			<-stop
		})
	}
	up.Wait()
	for range files {
		f, err := os.Open("/dev/null")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
	after, err := Of(os.Getpid())
	close(stop)
	down.Wait()
	runtime.KeepAlive(block)
	if err != nil {
		t.Fatal(err)
	}
	if n := after.FDs - before.FDs; n < files || n > files+2 { // the poller's may be new
		t.Errorf("%d files more, %d were opened", n, files)
	}
	if after.Threads < threads || after.Threads > threads+before.Threads { // some were idle before
		t.Errorf("%d threads, of %d before, and %d are needed", after.Threads, before.Threads, threads)
	}
	if n := after.RSSBytes - before.RSSBytes; n < bytes*9/10 {
		t.Errorf("%d bytes more, %d were touched", n, bytes)
	}
}

func TestAProgramsNameMayHoldAnything(t *testing.T) {
	line := "42 (a) b (c) 1 2) R" + strings.Repeat(" 0", 10) + " 150 50 30 20" + strings.Repeat(" 0", 2) + " 9" + strings.Repeat(" 0", 3) + " 3" + strings.Repeat(" 0", 20)
	u, err := parse(line)
	want := Usage{CPU: 2 * time.Second, Children: 500 * time.Millisecond, RSSBytes: 3 * os.Getpagesize(), Threads: 9}
	if err != nil || u != want {
		t.Errorf("%+v, %v; want %+v", u, err, want)
	}
}

func TestWhatCannotBeReadIsAnError(t *testing.T) {
	for _, line := range []string{"", "1 (x", "1 (x) R 1 2", "1 (x) R" + strings.Repeat(" x", 30)} {
		if u, err := parse(line); err == nil {
			t.Errorf("%q is %+v", line, u)
		}
	}
	if _, err := Of(1 << 30); err == nil {
		t.Error("a process that there isn't uses something")
	}
	if _, err := CPU(os.Getpid(), 1<<30); err == nil {
		t.Error("a process that there isn't uses CPU")
	}
}
