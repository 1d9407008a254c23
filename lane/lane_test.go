package lane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/octopay/octopay/internal/eventually"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { eventually.Main(m) }

// background is a context that never ends and has no deadline.
var background = context.Background()

// through brings an operation through a lane, as programs do.
func through[O, R any](ctx context.Context, l *Lane[O, R], op O, bytes int) (R, error) {
	ticket, err := l.Enter(op, bytes)
	if err != nil {
		var none R
		return none, err
	}
	return ticket.Wait(ctx, background)
}

func TestIdleLaneAddsNoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took = 3 * time.Millisecond
		var seen []Batch
		l := New(Config{Observe: func(b Batch) { seen = append(seen, b) }}, func(_ context.Context, ops []int) []int {
			time.Sleep(took)
			return ops
		})
		stop := run(t, l)
		start := time.Now()
		got, err := through(background, l, 7, 100)
		if got != 7 || err != nil {
			t.Fatalf("got %d, %v", got, err)
		}
		if d := time.Since(start); d != took {
			t.Errorf("took %v, the transaction alone takes %v", d, took)
		}
		stop()
		if want := (Batch{Ops: 1, Bytes: 100, Took: took}); len(seen) != 1 || seen[0] != want {
			t.Errorf("observed %+v, want %+v once", seen, want)
		}
	})
}

// While a transaction is in flight arrivals gather, and the next takes all of them,
// in their order.
func TestArrivalsGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var batches [][]int
		l := New(Config{}, func(_ context.Context, ops []int) []int {
			batches = append(batches, ops)
			time.Sleep(time.Second)
			return ops
		})
		stop := run(t, l)
		var all sync.WaitGroup
		for i := range 5 {
			all.Go(func() { _, _ = through(background, l, i, 1) })
			synctest.Wait()
		}
		if ops, bytes := l.Depth(); ops != 4 || bytes != 4 {
			t.Errorf("depth is %d operations, %d bytes; want 4, 4", ops, bytes)
		}
		all.Wait()
		stop()
		if want := "[[0] [1 2 3 4]]"; fmt.Sprint(batches) != want {
			t.Errorf("batches %v, want %s", batches, want)
		}
	})
}

func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ran []string
		l := New(Config{}, func(_ context.Context, ops []string) []string {
			ran = append(ran, ops...)
			time.Sleep(2 * time.Second)
			return ops
		})
		stop := run(t, l)
		var all sync.WaitGroup
		short := func(op string, want error) {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(background, time.Second)
				defer cancel()
				got, err := through(ctx, l, op, 1)
				if !errors.Is(err, want) || err == nil && got != op {
					t.Errorf("%s: got %q, %v; want %v", op, got, err, want)
				}
			})
			synctest.Wait()
		}
		short("begun", nil) // its context ends while it is in flight
		short("withdrawn", ErrWait)
		over, cancel := context.WithCancel(background)
		cancel()
		if _, err := through(over, l, "ended before", 1); !errors.Is(err, ErrWait) {
			t.Errorf("a context that has ended: %v, want ErrWait", err)
		}
		all.Wait()
		stop()
		if fmt.Sprint(ran) != "[begun]" {
			t.Errorf("ran %v; the withdrawn one must not", ran)
		}
	})
}

// An outcome that doesn't come is unknown, and the lane goes on when it does.
func TestOutcomeThatTakesTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Config{OutcomeMax: 7 * time.Second}, func(_ context.Context, ops []time.Duration) []time.Duration {
			time.Sleep(ops[0])
			return ops
		})
		stop := run(t, l)
		start := time.Now()
		if _, err := through(background, l, time.Minute, 1); !errors.Is(err, ErrUnknown) {
			t.Errorf("got %v, want ErrUnknown", err)
		}
		if d := time.Since(start); d != 7*time.Second {
			t.Errorf("waited %v", d)
		}
		if got, err := through(background, l, time.Second, 1); got != time.Second || err != nil {
			t.Errorf("afterwards: %v, %v", got, err)
		}
		if d := time.Since(start); d != time.Minute+time.Second {
			t.Errorf("the next transaction ended after %v: two were in flight, or none", d)
		}
		stop()
	})
}

func TestBoundedQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Config{QueueOps: 3, QueueBytes: 100}, func(_ context.Context, ops []int) []int {
			time.Sleep(time.Second)
			return ops
		})
		stop := run(t, l)
		var all sync.WaitGroup
		do := func(bytes int, want error) {
			t.Helper()
			all.Go(func() {
				if _, err := through(background, l, 0, bytes); !errors.Is(err, want) {
					t.Errorf("%d bytes: %v, want %v", bytes, err, want)
				}
			})
			synctest.Wait()
		}
		do(1, nil) // in flight
		do(1000, nil)
		do(1, ErrFull) // by bytes
		all.Wait()
		do(1, nil)
		for range 3 {
			do(1, nil)
		}
		do(1, ErrFull) // by number
		all.Wait()
		stop()
		if _, err := through(background, l, 0, 1); !errors.Is(err, ErrClosed) {
			t.Errorf("after Run: %v, want ErrClosed", err)
		}
		if err := l.Run(background); err == nil {
			t.Error("Run could be called twice")
		}
	})
}

// The lane that waits for its gate goes on gathering.
func TestGateIsTakenBeforeTheBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := NewGate(1)
		leave := gate.acquire(background)
		var sizes []int
		l := New(Config{Gate: gate}, func(_ context.Context, ops []int) []int {
			sizes = append(sizes, len(ops))
			return ops
		})
		stop := run(t, l)
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() { _, _ = through(background, l, i, 1) })
			synctest.Wait()
		}
		leave()
		all.Wait()
		stop()
		if fmt.Sprint(sizes) != "[4]" {
			t.Errorf("batches of %v, want one of 4", sizes)
		}
	})
}

// Two databases whose every transaction hangs don't keep a third of their server
// waiting: it gets a place again and again.
func TestALaneThatHangsGivesItsPlaceUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if longest, done := besideHangingLanes(t); longest > placeMax+10*time.Millisecond || done < 4000 {
			t.Errorf("%d transactions in a minute, the longest took %v", done, longest)
		}
	})
}

// besideHangingLanes runs a lane for a minute beside two of its server whose
// transactions take 6 s.
func besideHangingLanes(t *testing.T) (longest time.Duration, done int) {
	gate := NewGate(2)
	lane := func(takes time.Duration) *Lane[int, int] {
		return New(Config{Gate: gate}, func(_ context.Context, ops []int) []int {
			time.Sleep(takes)
			return ops
		})
	}
	healthy := lane(10 * time.Millisecond)
	stops := []func(){run(t, healthy)}
	until := time.Now().Add(time.Minute)
	var all sync.WaitGroup
	for range 2 {
		locked := lane(6 * time.Second)
		stops = append(stops, run(t, locked))
		all.Go(func() {
			for time.Now().Before(until) {
				_, _ = through(background, locked, 1, 1)
			}
		})
	}
	synctest.Wait() // both are in flight
	for time.Now().Before(until) {
		start := time.Now()
		if _, err := through(background, healthy, 1, 1); err != nil {
			t.Fatal(err)
		}
		longest = max(longest, time.Since(start))
		done++
	}
	all.Wait()
	for _, stop := range stops {
		stop()
	}
	return longest, done
}

// run starts l and returns how to stop it: that waits until all is answered.
func run[O, R any](t *testing.T, l *Lane[O, R]) (stop func()) {
	ctx, cancel := context.WithCancel(background)
	done := make(chan error)
	go func() { done <- l.Run(ctx) }()
	synctest.Wait()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

// A call is one Do of the property test.
type call struct {
	Lane     int
	At       time.Duration
	Bytes    int
	Patience time.Duration
}

// whole checks a lane's laws for one scenario. It returns the first broken one.
type whole struct {
	config Config
	places int
	lanes  int
	took   []time.Duration // of one batch after another
	end    time.Duration
	calls  []call // in order of At, no two equal
}

func drawWhole(t *rapid.T) whole {
	ms := func(lo, hi int, name string) time.Duration {
		return time.Duration(rapid.IntRange(lo, hi).Draw(t, name)) * time.Millisecond
	}
	w := whole{
		config: Config{
			OpsMax:     rapid.IntRange(1, 5).Draw(t, "OpsMax"),
			BytesMax:   rapid.IntRange(1, 40).Draw(t, "BytesMax"),
			QueueOps:   rapid.IntRange(1, 12).Draw(t, "QueueOps"),
			QueueBytes: rapid.IntRange(1, 120).Draw(t, "QueueBytes"),
			OutcomeMax: 40 * time.Millisecond,
		},
		places: rapid.IntRange(1, 2).Draw(t, "places"),
		lanes:  rapid.IntRange(1, 3).Draw(t, "lanes"),
		end:    ms(0, 300, "end"),
	}
	for range 8 {
		w.took = append(w.took, ms(0, 60, "took"))
	}
	at := time.Duration(0)
	for range rapid.IntRange(1, 40).Draw(t, "calls") {
		at += ms(1, 20, "gap")
		w.calls = append(w.calls, call{rapid.IntRange(0, w.lanes-1).Draw(t, "lane"), at,
			rapid.IntRange(0, 50).Draw(t, "bytes"), ms(0, 100, "patience")})
	}
	return w
}

func (w whole) check() error {
	var mu sync.Mutex // of all below
	var broken []error
	law := func(ok bool, format string, args ...any) {
		if !ok {
			broken = append(broken, fmt.Errorf(format, args...))
		}
	}
	start := time.Now()
	flying, batches := 0, 0
	ran := map[int]time.Duration{} // call -> how long its batch took
	var withdrawn []int
	order := make([][]int, w.lanes)
	began := map[int]time.Duration{}

	lanes := make([]*Lane[int, int], w.lanes)
	ctx, cancel := context.WithTimeout(background, w.end)
	defer cancel()
	var runs, dos sync.WaitGroup
	gate := NewGate(w.places)
	for i := range lanes {
		c := w.config
		c.Gate = gate
		alone := 0
		lanes[i] = New(c, func(_ context.Context, ops []int) []int {
			mu.Lock()
			took := w.took[batches%len(w.took)]
			batches++
			flying++
			alone++
			law(alone == 1, "lane %d has %d transactions in flight", i, alone)
			law(flying <= w.places, "%d transactions in flight, the gate has %d places", flying, w.places)
			bytes := 0
			for _, op := range ops {
				_, twice := ran[op]
				law(!twice, "call %d ran twice", op)
				ran[op], began[op] = took, time.Since(start)
				bytes += w.calls[op].Bytes
			}
			law(len(ops) > 0 && len(ops) <= c.OpsMax, "a batch of %d", len(ops))
			law(len(ops) == 1 || bytes <= c.BytesMax, "a batch of %d bytes", bytes)
			order[i] = append(order[i], ops...)
			mu.Unlock()
			time.Sleep(took)
			mu.Lock()
			flying--
			alone--
			mu.Unlock()
			out := make([]int, len(ops))
			for j, op := range ops {
				out[j] = -op
			}
			return out
		})
		runs.Go(func() {
			err := lanes[i].Run(ctx)
			mu.Lock()
			defer mu.Unlock()
			law(err == nil, "Run: %v", err)
			ops, bytes := lanes[i].Depth()
			law(ops == 0 && bytes == 0, "Run left %d operations, %d bytes", ops, bytes)
		})
	}
	for n, c := range w.calls {
		dos.Go(func() {
			time.Sleep(c.At)
			ctx, cancel := context.WithTimeout(background, c.Patience)
			defer cancel()
			got, err := through(ctx, lanes[c.Lane], n, c.Bytes)
			waited := time.Since(start) - c.At
			mu.Lock()
			defer mu.Unlock()
			took, did := ran[n]
			ops, bytes := lanes[c.Lane].Depth()
			law(ops <= w.config.QueueOps, "%d operations in the queue", ops)
			law(ops <= 1 || bytes <= w.config.QueueBytes, "%d bytes in the queue", bytes)
			law(c.At <= w.end || c.Patience == 0 || errors.Is(err, ErrClosed), "call %d came after the end: %v", n, err)
			switch {
			case err == nil:
				law(did && got == -n, "call %d was answered %d, ran: %v", n, got, did)
				law(took <= w.config.OutcomeMax, "call %d got an outcome after %v", n, took)
			case errors.Is(err, ErrUnknown):
				law(did && took >= w.config.OutcomeMax, "call %d is unknown, its batch took %v, ran: %v", n, took, did)
				law(waited == began[n]-c.At+w.config.OutcomeMax, "call %d waited %v", n, waited)
			case errors.Is(err, ErrWait):
				law(!did && waited == c.Patience, "call %d withdrew after %v, ran: %v", n, waited, did)
				withdrawn = append(withdrawn, n)
			case errors.Is(err, ErrFull):
				law(!did && waited == 0, "call %d found the lane full after %v, ran: %v", n, waited, did)
			case errors.Is(err, ErrClosed):
				law(!did && waited == 0 && c.At >= w.end, "call %d found the lane closed at %v, ran: %v", n, c.At, did)
			default:
				law(false, "call %d: %v", n, err)
			}
		})
	}
	dos.Wait()
	runs.Wait()
	for _, n := range withdrawn {
		_, did := ran[n]
		law(!did, "call %d withdrew and ran", n)
	}
	for _, o := range order {
		law(slices.IsSorted(o), "the order of arrival was lost: %v", o)
	}
	return errors.Join(broken...)
}

// Whatever arrives and however long transactions take: no operation is lost, none
// runs twice, each is answered once and truthfully, in the order of arrival, within
// all bounds.
func TestLaneLaws(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := drawWhole(r)
		var broken error
		synctest.Test(t, func(*testing.T) { broken = w.check() })
		if broken != nil {
			r.Fatal(broken)
		}
	})
}
