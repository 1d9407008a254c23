package idgen_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/octopay/octopay/idgen"
	"pgregory.net/rapid"
)

const ms = time.Millisecond

// noon is what the leasing clock says at the beginning of a test.
var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// granted returns a generator that has worker number 5 for five minutes, and the
// moment on this process's clock at which the leasing clock says noon.
func granted(t testing.TB) (*idgen.Generator, time.Time) {
	t.Helper()
	g, start := new(idgen.Generator), time.Now()
	if err := g.GrantAt(start, grant(start)); err != nil {
		t.Fatal(err)
	}
	return g, start
}

func grant(start time.Time) idgen.Grant {
	return idgen.Grant{Worker: 5, Token: 1, Now: noon, Until: noon.Add(5 * time.Minute), SentAt: start}
}

func must(t testing.TB, g *idgen.Generator, at time.Time) idgen.ID {
	t.Helper()
	id, err := g.NextAt(at, 9527)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func wantErr(t testing.TB, g *idgen.Generator, at time.Time, want error) {
	t.Helper()
	if id, err := g.NextAt(at, 9527); !errors.Is(err, want) || id != (idgen.ID{}) {
		t.Fatalf("%s, %v; want %v", id, err, want)
	}
}

func TestWithoutAGrantNothingIsIssued(t *testing.T) {
	g := new(idgen.Generator)
	wantErr(t, g, time.Now(), idgen.ErrLeaseEnded)
	if _, left := g.Worker(); left != 0 {
		t.Errorf("it has a number for %s", left)
	}
	if _, err := g.Next(9527); !errors.Is(err, idgen.ErrLeaseEnded) {
		t.Errorf("Next: %v", err)
	}
}

func TestTheTimeIsTheLeasingClocksPlusTheMonotonicTimeSinceTheRequest(t *testing.T) {
	g, start := granted(t)
	id := must(t, g, start.Add(1234*ms))
	if want := noon.Add(1234 * ms); !id.Time().Equal(want) || id.Worker() != 5 || id.Seq() != 0 {
		t.Errorf("id of %s, worker %d, sequence %d; want %s, 5, 0", id.Time(), id.Worker(), id.Seq(), want)
	}
	if must(t, g, start.Add(1234*ms)).Seq() != 1 {
		t.Error("the second id of a ms has not sequence 1")
	}
	if !id.Of(9527) {
		t.Error("the id is not of its buyer")
	}
}

func TestNothingIsIssuedAtOrBeyondTheEndOfTheLease(t *testing.T) {
	g, start := granted(t)
	end := start.Add(5 * time.Minute)
	id := must(t, g, end.Add(-1))
	if !id.Time().Before(noon.Add(5 * time.Minute)) {
		t.Errorf("an id of %s", id.Time())
	}
	wantErr(t, g, end, idgen.ErrLeaseEnded)
	wantErr(t, g, end.Add(time.Hour), idgen.ErrLeaseEnded)
	wantErr(t, g, end.Add(1<<62), idgen.ErrLeaseEnded)
	// A late look at a clock that was read before the end still is before the end.
	must(t, g, end.Add(-1))
}

func TestARenewalExtendsTheLease(t *testing.T) {
	g, start := granted(t)
	renewal := grant(start.Add(4 * time.Minute))
	renewal.Now, renewal.Until = noon.Add(4*time.Minute), noon.Add(9*time.Minute)
	if err := g.GrantAt(renewal.SentAt.Add(ms), renewal); err != nil {
		t.Fatal(err)
	}
	must(t, g, start.Add(9*time.Minute-1))
	wantErr(t, g, start.Add(9*time.Minute), idgen.ErrLeaseEnded)
}

func TestAMillisecondHasRoomFor4096(t *testing.T) {
	g, start := granted(t)
	for i := range idgen.PerMilli {
		if id := must(t, g, start); id.Seq() != i {
			t.Fatalf("id %d has sequence %d", i, id.Seq())
		}
	}
	wantErr(t, g, start, idgen.ErrFull)
	wantErr(t, g, start.Add(ms-1), idgen.ErrFull)
	if id := must(t, g, start.Add(ms)); id.Seq() != 0 || !id.Time().Equal(noon.Add(ms)) {
		t.Errorf("the next id is of %s, sequence %d", id.Time(), id.Seq())
	}
}

func TestNextWaitsForTheNextMillisecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, start := granted(t)
		for range 3 * idgen.PerMilli {
			if _, err := g.Next(9527); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took != 2*ms {
			t.Errorf("3 × 4,096 ids took %s of the clock, want 2 ms", took)
		}
	})
}

// A goroutine can read its clock, stand still, and go on after the grant came. Its
// time must not lead before the grant: that time belongs to the number's last holder.
func TestATimeReadBeforeTheGrantCountsAsTheGrants(t *testing.T) {
	g, start := granted(t)
	if id := must(t, g, start.Add(-time.Hour)); id.Time().Before(noon) {
		t.Errorf("an id of %s, before the number was acquired", id.Time())
	}
}

func TestASlowAnswerDoesNotMakeTheNextRenewalFail(t *testing.T) {
	g, start := granted(t)
	// The answer took 3 s, and ids were made all the time.
	must(t, g, start.Add(13*time.Second))
	renewal := grant(start.Add(10 * time.Second))
	renewal.Now = noon.Add(10 * time.Second)
	renewal.Until = renewal.Now.Add(5 * time.Minute)
	if err := g.GrantAt(start.Add(13*time.Second), renewal); err != nil {
		t.Errorf("a renewal by the same clock, told late: %v", err)
	}
}

func TestAClockThatStepsBack(t *testing.T) {
	for name, c := range map[string]struct {
		back time.Duration
		want error
	}{
		"a little: ids go on in the newest ms": {time.Second, nil},
		"more: the number is given up":         {time.Second + ms, idgen.ErrBehind},
		"an hour: the number is given up":      {time.Hour, idgen.ErrBehind},
	} {
		t.Run(name, func(t *testing.T) {
			g, start := granted(t)
			newest := must(t, g, start.Add(10*time.Second))
			renewal := grant(start.Add(10 * time.Second))
			renewal.Now = noon.Add(10*time.Second - c.back)
			if err := g.GrantAt(renewal.SentAt, renewal); !errors.Is(err, c.want) {
				t.Fatalf("the grant: %v, want %v", err, c.want)
			}
			if c.want != nil {
				wantErr(t, g, renewal.SentAt, idgen.ErrLeaseEnded)
				if err := g.GrantAt(renewal.SentAt, renewal); !errors.Is(err, idgen.ErrRevoked) {
					t.Errorf("the number is granted again under its token: %v", err)
				}
				return
			}
			for i := range idgen.PerMilli - 1 {
				if id := must(t, g, renewal.SentAt); id.Seq() != i+1 || !id.Time().Equal(newest.Time()) {
					t.Fatalf("an id of %s, sequence %d", id.Time(), id.Seq())
				}
			}
			wantErr(t, g, renewal.SentAt.Add(c.back), idgen.ErrFull)
			must(t, g, renewal.SentAt.Add(c.back+ms))
		})
	}
}

// A renewal that tells an end before ids already made leaves nothing to issue, also where
// they lie ahead of the clock.
func TestARenewalThatEndsBeforeTheIDsIssuesNothing(t *testing.T) {
	g, start := granted(t)
	must(t, g, start.Add(time.Second))
	renewal := grant(start)
	renewal.Until = noon.Add(time.Second)
	if err := g.GrantAt(start.Add(500*ms), renewal); err != nil {
		t.Fatal(err)
	}
	wantErr(t, g, start.Add(500*ms), idgen.ErrLeaseEnded)
}

// The holder before could have used the time before the number was acquired.
func TestAClockThatStepsBackDoesNotLeadBeforeTheAcquisition(t *testing.T) {
	g, start := granted(t)
	renewal := grant(start)
	renewal.Now = noon.Add(-100 * ms)
	if err := g.GrantAt(start, renewal); err != nil {
		t.Fatal(err)
	}
	wantErr(t, g, start.Add(99*ms), idgen.ErrFull)
	if id := must(t, g, start.Add(100*ms)); id.Time().Before(noon) {
		t.Errorf("an id of %s", id.Time())
	}
	renewal.Now = noon.Add(-time.Hour)
	if err := g.GrantAt(start, renewal); !errors.Is(err, idgen.ErrBehind) {
		t.Errorf("%v, want ErrBehind", err)
	}
}

func TestANumberThatComesBackGoesOnAboveItsIDs(t *testing.T) {
	g, start := granted(t)
	newest := must(t, g, start.Add(100*ms))
	other := grant(start)
	other.Worker, other.Token = 6, 3
	if err := g.GrantAt(start, other); err != nil {
		t.Fatal(err)
	}
	if id := must(t, g, start); id.Worker() != 6 || !id.Time().Equal(noon) {
		t.Errorf("worker %d at %s", id.Worker(), id.Time())
	}
	again := grant(start)
	again.Token = 2 // as no clock and no table would grant it: before its ids
	if err := g.GrantAt(start, again); err != nil {
		t.Fatal(err)
	}
	if id := must(t, g, start); id.Snowflake() <= newest.Snowflake() {
		t.Errorf("snowflake %d, though %d was issued", id.Snowflake(), newest.Snowflake())
	}
}

func TestRevokeEndsANumberUntilAnotherTokenGrantsIt(t *testing.T) {
	g, start := granted(t)
	if g.Revoke(6) {
		t.Error("a number that isn't in use was revoked")
	}
	must(t, g, start)
	if !g.Revoke(5) || g.Revoke(5) {
		t.Error("revoking twice must work once")
	}
	wantErr(t, g, start, idgen.ErrLeaseEnded)
	if err := g.GrantAt(start, grant(start)); !errors.Is(err, idgen.ErrRevoked) {
		t.Errorf("a renewal under way when it was revoked: %v", err)
	}
	wantErr(t, g, start, idgen.ErrLeaseEnded)
	next := grant(start)
	next.Token = 2
	if err := g.GrantAt(start, next); err != nil {
		t.Errorf("another token: %v", err)
	}
	must(t, g, start)
}

func TestGrantsThatMakeNoSense(t *testing.T) {
	for name, spoil := range map[string]func(*idgen.Grant){
		"worker -1":                    func(g *idgen.Grant) { g.Worker = -1 },
		"worker 1024":                  func(g *idgen.Grant) { g.Worker = idgen.Workers },
		"no token":                     func(g *idgen.Grant) { g.Token = 0 },
		"a clock before the epoch":     func(g *idgen.Grant) { g.Now = idgen.Epoch.Add(-1) },
		"a lease to the layout's end":  func(g *idgen.Grant) { g.Until = idgen.End },
		"a lease to after that":        func(g *idgen.Grant) { g.Until = idgen.End.Add(time.Hour) },
		"a lease that has ended ahead": func(g *idgen.Grant) { g.Until = g.Now },
	} {
		t.Run(name, func(t *testing.T) {
			g, bad := new(idgen.Generator), grant(time.Now())
			spoil(&bad)
			err := g.Grant(bad)
			if err == nil && bad.Until.After(bad.Now) {
				t.Error("it was accepted")
			}
			if id, err := g.Next(9527); !errors.Is(err, idgen.ErrLeaseEnded) {
				t.Errorf("%s, %v; want ErrLeaseEnded", id, err)
			}
		})
	}
}

// Fault 11: the time field ran out.
// At the end of the layout the generator stops; it never wraps.
func TestTheLastDayOfTheLayout(t *testing.T) {
	g, start := new(idgen.Generator), time.Now()
	last := idgen.Grant{Worker: idgen.Workers - 1, Token: 1, Now: idgen.End.Add(-5 * time.Minute), Until: idgen.End.Add(-ms), SentAt: start}
	if err := g.GrantAt(start, last); err != nil {
		t.Fatal(err)
	}
	if id := must(t, g, start.Add(5*time.Minute-2*ms)); id.Snowflake() < 0 || id.Worker() != idgen.Workers-1 {
		t.Errorf("snowflake %d", id.Snowflake())
	}
	wantErr(t, g, start.Add(5*time.Minute-ms), idgen.ErrLeaseEnded)
}

func TestWorkerSaysForHowLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := granted(t)
		time.Sleep(time.Minute)
		if n, left := g.Worker(); n != 5 || left != 4*time.Minute {
			t.Errorf("number %d for %s", n, left)
		}
		time.Sleep(time.Hour)
		if _, left := g.Worker(); left != 0 {
			t.Errorf("a number for %s more after its end", left)
		}
	})
}

// The law, for any sequence of times, grants and steps of the leasing clock.
func TestSnowflakesOfANumberRiseWhateverTheTimesAndGrants(t *testing.T) {
	const lease = 20 * time.Second // short, so that numbers change hands often
	rapid.Check(t, func(t *rapid.T) {
		var (
			g       idgen.Generator
			zero    = time.Now()
			mono    time.Duration // since zero, this process's clock
			offset  time.Duration // of the leasing clock
			newest  [2]int64      // of each number
			current idgen.Grant
			using   bool      // whether the last grant was accepted and not revoked
			begin   time.Time // when the current number was acquired, on the leasing clock
			shown   time.Time // the latest time that the generator could have known
			token   = [2]int64{}
			until   [2]time.Time // as the lease table has it
		)
		newest = [2]int64{-1, -1}
		clock := func() time.Time { return noon.Add(mono + offset).Truncate(ms) }
		t.Repeat(map[string]func(*rapid.T){
			"time passes": func(t *rapid.T) {
				mono += time.Duration(rapid.Int64Range(0, int64(lease)).Draw(t, "by"))
			},
			"a moment passes": func(t *rapid.T) {
				mono += time.Duration(rapid.Int64Range(0, int64(3*ms)).Draw(t, "by"))
			},
			"the leasing clock steps": func(t *rapid.T) {
				offset += time.Duration(rapid.Int64Range(-int64(lease), int64(lease)).Draw(t, "by"))
			},
			"the leasing clock steps a little": func(t *rapid.T) {
				offset += time.Duration(rapid.Int64Range(-int64(1500*ms), int64(1500*ms)).Draw(t, "by"))
			},
			"acquire": func(t *rapid.T) {
				w := rapid.IntRange(0, 1).Draw(t, "worker")
				sent := mono
				mono += time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "way there"))
				now := clock()
				if until[w].After(now) {
					return
				}
				mono += time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "way back"))
				token[w]++
				until[w] = now.Add(lease)
				current = idgen.Grant{Worker: w, Token: token[w], Now: now, Until: until[w], SentAt: zero.Add(sent)}
				begin = now
				shown = now.Add(mono - sent)
				if err := g.GrantAt(zero.Add(mono), current); err != nil {
					t.Fatalf("acquired: %v", err)
				}
				using = true
			},
			"renew": func(t *rapid.T) {
				if current.Token == 0 || current.Token != token[current.Worker] {
					return
				}
				sent := mono
				mono += time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "way there"))
				now := clock()
				if end := now.Add(lease); end.After(until[current.Worker]) {
					until[current.Worker] = end
				}
				mono += time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "way back"))
				renewed := idgen.Grant{Worker: current.Worker, Token: current.Token, Now: now, Until: until[current.Worker], SentAt: zero.Add(sent)}
				err := g.GrantAt(zero.Add(mono), renewed)
				switch {
				case !using && !errors.Is(err, idgen.ErrRevoked):
					t.Fatalf("a number that was given up is renewed: %v", err)
				case using && err != nil && !errors.Is(err, idgen.ErrBehind):
					t.Fatalf("renewed: %v", err)
				}
				using = err == nil
				current = renewed
				if at := now.Add(mono - sent); at.After(shown) {
					shown = at
				}
			},
			"revoke": func(t *rapid.T) {
				if g.Revoke(current.Worker) != using {
					t.Fatal("Revoke says otherwise")
				}
				using = false
			},
			"issue": func(t *rapid.T) {
				back := time.Duration(rapid.Int64Range(0, int64(10*time.Second)).Draw(t, "read before"))
				if rapid.Bool().Draw(t, "now") {
					back = 0
				}
				for range rapid.SampledFrom([]int{1, 10, 5000}).Draw(t, "ids") {
					id, err := g.NextAt(zero.Add(mono-back), 9527)
					if err != nil {
						if id != (idgen.ID{}) {
							t.Fatalf("%s and %v", id, err)
						}
						return
					}
					if at := current.Now.Add(zero.Add(mono - back).Sub(current.SentAt)); at.After(shown) {
						shown = at
					}
					switch w := id.Worker(); {
					case !using || w != current.Worker:
						t.Fatalf("an id of number %d, which isn't ours now", w)
					case id.Snowflake() <= newest[w]:
						t.Fatalf("snowflake %d after %d", id.Snowflake(), newest[w])
					case id.Time().Before(begin):
						t.Fatalf("an id of %s, before the number was acquired at %s", id.Time(), begin)
					case !id.Time().Before(current.Until):
						t.Fatalf("an id of %s in a lease until %s", id.Time(), current.Until)
					case id.Time().After(shown):
						t.Fatalf("an id of %s, when the clock has shown no more than %s", id.Time(), shown)
					default:
						newest[w] = id.Snowflake()
					}
				}
			},
		})
	})
}

func TestConcurrentUseIssuesNothingTwice(t *testing.T) {
	g := new(idgen.Generator)
	renewal := grant(time.Now())
	if err := g.Grant(renewal); err != nil {
		t.Fatal(err)
	}
	const goroutines, each = 8, 5000
	ids := make([][]int64, goroutines)
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			for range each {
				id, err := g.Next(9527)
				if err != nil {
					t.Error(err)
					return
				}
				ids[i] = append(ids[i], id.Snowflake())
			}
		})
	}
	wg.Go(func() { // and renewals meanwhile, by the same clock
		for range 100 {
			sent := time.Now()
			next := renewal
			next.Now, next.SentAt = noon.Add(sent.Sub(renewal.SentAt)).Truncate(ms), sent
			if err := g.Grant(next); err != nil {
				t.Error(err)
			}
			g.Worker()
		}
	})
	wg.Wait()
	var all []int64
	for _, s := range ids {
		if !slices.IsSorted(s) {
			t.Error("the ids of one goroutine don't rise")
		}
		all = append(all, s...)
	}
	slices.Sort(all)
	if n := len(slices.Compact(all)); n != goroutines*each {
		t.Errorf("%d different ids of %d", n, goroutines*each)
	}
}

// Next is bound by its 4,096 ids a ms, 244 ns each; this is what it costs when it
// doesn't wait: every id has a ms of its own.
func BenchmarkNext(b *testing.B) {
	g, start := granted(b)
	b.ReportAllocs()
	var at time.Duration
	for b.Loop() {
		if at += ms; at >= 5*time.Minute {
			b.StopTimer()
			g, start = granted(b)
			at = 0
			b.StartTimer()
		}
		if _, err := g.NextAt(start.Add(at), 9527); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNextParallel(b *testing.B) {
	g := new(idgen.Generator)
	forever := grant(time.Now())
	forever.Until = noon.Add(24 * time.Hour)
	if err := g.Grant(forever); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := g.Next(9527); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
