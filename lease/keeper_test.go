package lease_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/octopay/octopay/lease"
)

// bubble runs a test in fake time with a table and two keepers, each on a line of its
// own.
func bubble(t *testing.T, test func(t *testing.T, one, two *lease.Keeper, line1, line2 *line)) {
	synctest.Test(t, func(t *testing.T) {
		settle(t)
		table := lease.NewMemory(nil)
		line1, line2 := &line{Table: table}, &line{Table: table}
		config := lease.Config{Log: newLogs().logger()}
		test(t, lease.NewKeeper(line1, "one", config), lease.NewKeeper(line2, "two", config), line1, line2)
	})
}

// hold holds the name in a goroutine. began tells when f begins; f ends with its
// context, or when end is closed.
func hold(ctx context.Context, k *lease.Keeper) (began chan time.Time, end chan struct{}, result chan error) {
	began, end, result = make(chan time.Time, 1), make(chan struct{}), make(chan error, 1)
	go func() {
		result <- k.Hold(ctx, "name", nil, func(ctx context.Context) error {
			began <- time.Now()
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-end:
				return nil
			}
		})
	}()
	return began, end, result
}

func TestHoldRunsTheFunctionOnceAndReturnsItsError(t *testing.T) {
	bubble(t, func(t *testing.T, one, _ *lease.Keeper, _, _ *line) {
		fault, calls := errors.New("of the function"), 0
		err := one.Hold(t.Context(), "name", nil, func(ctx context.Context) error {
			calls++
			time.Sleep(time.Hour) // renewed all the while
			if ctx.Err() != nil {
				t.Errorf("after an hour: %v", context.Cause(ctx))
			}
			return fault
		})
		if !errors.Is(err, fault) || calls != 1 {
			t.Errorf("%v after %d calls", err, calls)
		}
	})
}

func TestTheNextHolderBeginsWhenTheLastOneGivesTheNameBack(t *testing.T) {
	bubble(t, func(t *testing.T, one, two *lease.Keeper, _, _ *line) {
		began1, end1, result1 := hold(t.Context(), one)
		<-began1
		began2, end2, result2 := hold(t.Context(), two)
		time.Sleep(time.Minute)
		if len(began2) > 0 {
			t.Fatal("two hold the name")
		}
		left := time.Now()
		close(end1)
		if took := (<-began2).Sub(left); took > time.Second {
			t.Errorf("the next holder began after %s", took)
		}
		close(end2)
		if err := errors.Join(<-result1, <-result2); err != nil {
			t.Error(err)
		}
	})
}

func TestTheNextHolderBeginsSoonAfterTheLastOneDied(t *testing.T) {
	bubble(t, func(t *testing.T, one, two *lease.Keeper, line1, _ *line) {
		began1, _, result1 := hold(t.Context(), one)
		<-began1
		began2, end2, result2 := hold(t.Context(), two)
		time.Sleep(10 * time.Second)
		died := time.Now()
		line1.set(0, 0, true, false) // says nothing more, not that it goes either
		if err := <-result1; !errors.Is(err, lease.ErrLost) {
			t.Errorf("the holder whose line died: %v, want ErrLost", err)
		}
		ended := time.Now()
		began := <-began2
		if began.Before(ended) {
			t.Errorf("the next holder began %s before the last one knew", ended.Sub(began))
		}
		if took := began.Sub(died); took > 5*time.Second {
			t.Errorf("the next holder began after %s", took)
		}
		if line1.lostThere() == 0 {
			t.Error("no request was lost")
		}
		close(end2)
		if err := <-result2; err != nil {
			t.Error(err)
		}
	})
}

// The answers arrive, but each so late that the table counts on less than the holder
// would if it counted from the answer.
func TestTheHolderCountsFromTheRequest(t *testing.T) {
	bubble(t, func(t *testing.T, one, _ *lease.Keeper, line1, _ *line) {
		line1.set(0, 900*time.Millisecond, false, false)
		began, _, result := hold(t.Context(), one)
		<-began
		time.Sleep(30 * time.Second)
		if len(result) > 0 {
			t.Fatalf("slow answers lose the lease: %v", <-result)
		}
		line1.set(0, 0, true, false)
		var last time.Time // when the table will say that the lease has ended
		for table := line1.Table; ; time.Sleep(10 * time.Millisecond) {
			taken, now, err := table.Taken(t.Context(), "name")
			if err != nil {
				t.Fatal(err)
			}
			if !taken["name"] {
				last = now
				break
			}
		}
		synctest.Wait()
		if len(result) == 0 {
			t.Fatalf("at %s the lease has ended, and its holder goes on", last)
		}
		if err := <-result; !errors.Is(err, lease.ErrLost) {
			t.Error(err)
		}
	})
}

func TestAnswersThatAreLostAreNoRenewals(t *testing.T) {
	bubble(t, func(t *testing.T, one, _ *lease.Keeper, line1, _ *line) {
		began, _, result := hold(t.Context(), one)
		<-began
		line1.set(0, 0, false, true)
		since := time.Now()
		if err := <-result; !errors.Is(err, lease.ErrLost) {
			t.Errorf("%v, want ErrLost", err)
		}
		if took := time.Since(since); took > 3*time.Second || line1.lostBack() == 0 {
			t.Errorf("the holder went on for %s; %d answers were lost", took, line1.lostBack())
		}
	})
}

func TestALeaseThatSomebodyElseHasIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, one, two *lease.Keeper, line1, line2 *line) {
		began, _, result := hold(t.Context(), one)
		<-began
		// An operator frees the name, or the table's clock jumps: both are a release.
		if err := line2.Table.Release(t.Context(), lease.Lease{Name: "name", Holder: "one", Token: 1}); err != nil {
			t.Fatal(err)
		}
		if _, err := line2.Table.Acquire(t.Context(), "name", "two", time.Minute); err != nil {
			t.Fatal(err)
		}
		if err := <-result; !errors.Is(err, lease.ErrLost) {
			t.Errorf("%v, want ErrLost", err)
		}
	})
}

// Whoever waits hears that somebody holds the name, and doesn't take a table that says
// nothing for that.
func TestWhoeverWaitsHearsThatTheNameIsTaken(t *testing.T) {
	bubble(t, func(t *testing.T, one, two *lease.Keeper, _, line2 *line) {
		began, end, result := hold(t.Context(), one)
		<-began
		var heard atomic.Int64
		second := make(chan error, 1)
		go func() {
			second <- two.Hold(t.Context(), "name", func() { heard.Add(1) }, func(context.Context) error { return nil })
		}()
		waits := func() int64 {
			heard.Store(0)
			time.Sleep(time.Minute)
			return heard.Load()
		}
		if n := waits(); n == 0 {
			t.Error("the name is taken, and it doesn't hear so")
		}
		line2.set(0, 0, true, false)
		if n := waits(); n > 1 { // what was under way
			t.Errorf("of a table that doesn't answer it heard %d times that the name is taken", n)
		}
		line2.set(0, 0, false, false)
		close(end)
		if err := errors.Join(<-result, <-second); err != nil {
			t.Error(err)
		}
	})
}

func TestHoldWhileWaitingEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, one, two *lease.Keeper, _, _ *line) {
		began, end, result := hold(t.Context(), one)
		<-began
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, _, waiting := hold(ctx, two)
		if err := <-waiting; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the context's error", err)
		}
		close(end)
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
}

func TestTheEndOfTheContextEndsTheFunctionAndFreesTheName(t *testing.T) {
	bubble(t, func(t *testing.T, one, two *lease.Keeper, _, _ *line) {
		ctx, cancel := context.WithCancel(t.Context())
		began, _, result := hold(ctx, one)
		<-began
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) || errors.Is(err, lease.ErrLost) {
			t.Errorf("%v, want that the context ended", err)
		}
		before := time.Now()
		began2, end2, result2 := hold(t.Context(), two)
		if took := (<-began2).Sub(before); took != 0 {
			t.Errorf("the next one waited %s", took)
		}
		close(end2)
		<-result2
	})
}

func TestATableThatIsAwayIsWaitedForAndSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, log := &line{Table: lease.NewMemory(nil)}, newLogs()
		l.set(0, 0, true, false)
		k := lease.NewKeeper(l, "one", lease.Config{Log: log.logger()})
		began, end, result := hold(t.Context(), k)
		time.Sleep(time.Hour)
		if n := log.count("waiting"); n != 1 || l.lostThere() < 1000 {
			t.Errorf("it said %d times that it waits, in %d attempts", n, l.lostThere())
		}
		l.set(0, 0, false, false)
		<-began
		close(end)
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
}
