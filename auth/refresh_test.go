package auth

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"
)

// A metaDB is what a meta database says to a keyring, in fake time; see Store.read.
type metaDB struct {
	mu      sync.Mutex
	ahead   time.Duration // of our clock
	version int64
	rows    []row
	away    bool
	still   time.Duration // before it answers: of what it knew when it was asked
	wholes  int           // reads of all keys
	asked   int
}

var errAway = errors.New("it is away")

func (m *metaDB) read(_ context.Context, known int64, whole bool) (reading, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	if m.away {
		return reading{}, errAway
	}
	now := time.Now()
	r := reading{version: m.version, sentAt: now, readAt: now.Add(m.ahead)}
	if r.whole = whole || known != m.version; r.whole {
		m.wholes++
		for _, row := range m.rows {
			if row.RevokedAt == 0 || row.RevokedAt > r.readAt.UnixMilli() {
				r.rows = append(r.rows, row)
			}
		}
	}
	still := m.still
	m.still = 0
	m.mu.Unlock()
	time.Sleep(still)
	m.mu.Lock()
	return r, nil
}

// change changes keys as Store does, or with bump false as somebody who writes rows by hand.
func (m *metaDB) change(bump bool, f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
	if bump {
		m.version++
	}
}

func (m *metaDB) counts() (asked, wholes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked, m.wholes
}

// aRow is a new key of a role, and its text.
func aRow(r Role) (row, string) {
	id, text := newText(r)
	hash := sha256.Sum256([]byte(text))
	out := row{ID: id, Role: r.String(), Hash: hash[:]}
	if r == Merchant {
		out.BID = 1001
	}
	return out, text
}

// begin runs a keyring until stop is called, at the latest at the end of the test.
func begin(t *testing.T, k *Keyring) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// newKeyring returns a keyring that asks m, and its log.
func newKeyring(m *metaDB, file string) (*Keyring, *bytes.Buffer) {
	log := &bytes.Buffer{}
	return &Keyring{read: m.read, file: file, schema: "octopay_meta", log: slog.New(slog.NewTextHandler(log, nil))}, log
}

// A process that was stopped, in the middle of its question, obeys no key when it goes on
// until it has asked what was revoked meanwhile. A meta database that is away is no reason.
func TestAProcessThatStoodStillAsksBeforeItObeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &metaDB{}
		k, _ := newKeyring(m, "")
		begin(t, k)
		r, text := aRow(App)
		m.change(true, func() { m.rows = append(m.rows, r) })
		time.Sleep(3 * time.Second)
		m.change(false, func() { m.away = true })
		time.Sleep(time.Minute)
		if _, err := k.Verify(text); err != nil {
			t.Fatalf("while the meta database is away: %v", err)
		}
		m.change(false, func() { m.away, m.still = false, 20*time.Second })
		time.Sleep(3 * time.Second) // it asks, and gets the answer when it goes on
		m.change(true, func() { m.rows[0].RevokedAt = time.Now().UnixMilli() })
		if _, err := k.Verify(text); err != nil {
			t.Fatalf("stopped for a moment: %v", err)
		}
		time.Sleep(15 * time.Second)
		if _, err := k.Verify(text); !errors.Is(err, ErrUnavailable) {
			t.Fatalf("stopped: %v, want %v", err, ErrUnavailable)
		}
		for range 100 {
			time.Sleep(50 * time.Millisecond)
			if _, err := k.Verify(text); err == nil {
				t.Fatal("a revoked key was obeyed after the process had stood still")
			}
		}
		if _, err := k.Verify(text); !errors.Is(err, ErrUnauthenticated) {
			t.Fatalf("when it has asked: %v", err)
		}
	})
}

// A key that is made works, and one that is revoked is refused, within five seconds of
// whatever moment, and so is one whose end was set, at that end.
func TestChangesAreInForceWithinFiveSeconds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		made := time.Duration(rapid.Int64Range(0, int64(10*time.Second)).Draw(rt, "made after"))
		lived := time.Duration(rapid.Int64Range(int64(5*time.Second), int64(20*time.Second)).Draw(rt, "lived"))
		ahead := time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(rt, "clock ahead"))
		inTime := rapid.Bool().Draw(rt, "its end was set before")
		synctest.Test(t, func(t *testing.T) {
			m := &metaDB{ahead: ahead}
			k, _ := newKeyring(m, "")
			begin(t, k)
			r, text := aRow(App)
			time.Sleep(made)
			m.change(true, func() {
				if inTime {
					r.RevokedAt = time.Now().Add(ahead + lived).UnixMilli()
				}
				m.rows = append(m.rows, r)
			})
			time.Sleep(5*time.Second - time.Nanosecond)
			if inTime && lived < 5*time.Second+time.Millisecond {
				return // stored ends have whole milliseconds
			}
			if _, err := k.Verify(text); err != nil {
				rt.Fatalf("5 s after it was made: %v", err)
			}
			time.Sleep(lived - 5*time.Second + time.Nanosecond)
			if !inTime {
				m.change(true, func() { m.rows[0].RevokedAt = time.Now().Add(ahead).UnixMilli() })
				time.Sleep(5 * time.Second)
			}
			if _, err := k.Verify(text); !errors.Is(err, ErrUnauthenticated) {
				rt.Fatalf("5 s after its end: %v", err)
			}
		})
	})
}

// What a keyring asks, and how often.
func TestAKeyringAsksEveryTwoSecondsAndReadsWhatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, text := aRow(Ops)
		m := &metaDB{rows: []row{r}}
		k, _ := newKeyring(m, "")
		stop := begin(t, k)
		time.Sleep(59*time.Second + 1)
		if asked, wholes := m.counts(); asked != 30 || wholes != 1 {
			t.Errorf("in 59 s it asked %d times and read all keys %d times", asked, wholes)
		}
		m.change(true, func() {})
		time.Sleep(2 * time.Second) // the 61st second: a minute is over, and there is a change, which is read at the same time
		if asked, wholes := m.counts(); asked != 31 || wholes != 2 {
			t.Errorf("after a change it asked %d times and read all keys %d times", asked, wholes)
		}
		// Somebody deletes a row and tells nobody.
		m.change(false, func() { m.rows = nil })
		time.Sleep(57 * time.Second)
		if _, err := k.Verify(text); err != nil {
			t.Errorf("before a minute is over: %v", err)
		}
		time.Sleep(3 * time.Second)
		if _, err := k.Verify(text); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("a minute after its row was deleted by hand: %v", err)
		}
		stop()
		asked, _ := m.counts()
		time.Sleep(time.Minute)
		if after, _ := m.counts(); after != asked {
			t.Errorf("it asked %d times after its end", after-asked)
		}
	})
}

// Without the meta database keys are good for an hour after they were read, and not a
// moment longer; then it is said that nobody knows, and not that they are none.
func TestKeysOutliveTheMetaDatabaseForAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, text := aRow(Merchant)
		m := &metaDB{rows: []row{r}}
		k, log := newKeyring(m, "")
		if err := k.Usable(); !errors.Is(err, ErrUnavailable) {
			t.Errorf("before it has read anything: %v", err)
		}
		begin(t, k)
		time.Sleep(time.Second)
		m.change(false, func() { m.away = true })
		time.Sleep(time.Hour - time.Second - 1)
		if key, err := k.Verify(text); err != nil || key.BID != 1001 || k.Usable() != nil {
			t.Errorf("after nearly an hour: %v, %v, %v", key, err, k.Usable())
		}
		time.Sleep(1 * time.Nanosecond)
		for what, text := range map[string]string{"a key": text, "one that nobody knows": text[:len(text)-1] + "2"} {
			if _, err := k.Verify(text); !errors.Is(err, ErrUnavailable) {
				t.Errorf("after an hour, %s: %v", what, err)
			}
		}
		if _, err := k.Verify("nonsense"); !errors.Is(err, ErrUnauthenticated) || !errors.Is(k.Usable(), ErrUnavailable) {
			t.Errorf("after an hour, what can't be a key: %v; usable: %v", err, k.Usable())
		}
		synctest.Wait()
		if n := strings.Count(log.String(), "not refreshed"); n < 59 || n > 61 {
			t.Errorf("in an hour the fault is said %d times", n)
		}
		m.change(false, func() { m.away = false })
		time.Sleep(2*time.Second + 1)
		if _, err := k.Verify(text); err != nil {
			t.Errorf("when it is back: %v", err)
		}
		synctest.Wait()
		if n := strings.Count(log.String(), "refreshed again"); n != 1 {
			t.Errorf("that it is back is said %d times:\n%s", n, log)
		}
		if n := k.failures.Load(); n < 1799 || n > 1800 {
			t.Errorf("%d failures counted in an hour", n)
		}
	})
}

// Over a restart keys are as old as they are, and not as old as the process.
func TestKeysOutliveTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	synctest.Test(t, func(t *testing.T) {
		r, text := aRow(App)
		old, oldText := aRow(App)
		m := &metaDB{rows: []row{r, old}}
		first, _ := newKeyring(m, path)
		stop := begin(t, first)
		time.Sleep(time.Second)
		m.change(true, func() { m.rows[1].RevokedAt = time.Now().UnixMilli() })
		time.Sleep(2 * time.Second)
		m.change(false, func() { m.away = true }) // three seconds after the start, one after the file
		stop()
		time.Sleep(30 * time.Minute)

		second, log := newKeyring(m, path)
		begin(t, second)
		synctest.Wait()
		if _, err := second.Verify(text); err != nil {
			t.Errorf("after half an hour: %v\n%s", err, log)
		}
		if _, err := second.Verify(oldText); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("one that was revoked before: %v", err)
		}
		time.Sleep(29*time.Minute + 58*time.Second) // an hour less a second since the keys were read
		if _, err := second.Verify(text); err != nil {
			t.Errorf("after nearly an hour: %v", err)
		}
		time.Sleep(time.Second)
		if _, err := second.Verify(text); !errors.Is(err, ErrUnavailable) {
			t.Errorf("after an hour: %v", err)
		}
		third, log := newKeyring(m, path)
		begin(t, third)
		synctest.Wait()
		if _, err := third.Verify(text); !errors.Is(err, ErrUnavailable) || !strings.Contains(log.String(), "keys are good for 1h0m0s") {
			t.Errorf("a third process, after an hour: %v\n%s", err, log)
		}
		m.change(false, func() { m.away = false })
		time.Sleep(2*time.Second + 1)
		for _, k := range []*Keyring{second, third} {
			if _, err := k.Verify(text); err != nil {
				t.Errorf("when the meta database is back: %v", err)
			}
		}
	})
}

// The file is written when keys change, and once a minute, so that it is never much older
// than what is in memory.
func TestTheFileIsNeverMuchOlderThanTheKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	synctest.Test(t, func(t *testing.T) {
		m := &metaDB{}
		k, log := newKeyring(m, path)
		begin(t, k)
		read := func() file {
			synctest.Wait()
			f, err := readFile(path, "octopay_meta", time.Now())
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		at := read().readAt()
		time.Sleep(59 * time.Second)
		if f := read(); !f.readAt().Equal(at) {
			t.Errorf("within a minute, without a change, it was written again")
		}
		time.Sleep(2 * time.Second)
		if f := read(); f.readAt().Sub(at) < time.Minute {
			t.Errorf("after a minute it is %s newer", f.readAt().Sub(at))
		}
		r, _ := aRow(App)
		m.change(true, func() { m.rows = append(m.rows, r) })
		time.Sleep(2 * time.Second)
		if f := read(); len(f.Keys) != 1 {
			t.Errorf("after a change it has %d keys", len(f.Keys))
		}
		// It can't be written: that is said once, and harms nobody.
		if err := os.Chmod(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if n := strings.Count(log.String(), "not written to their file"); n != 1 || k.saveFailures.Load() < 4 || k.Usable() != nil {
			t.Errorf("said %d times, counted %d, usable: %v", n, k.saveFailures.Load(), k.Usable())
		}
	})
}

// A file that must not be used isn't, and the reason is in the log.
func TestAFileThatIsRefusedSaysWhy(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, path string)
		want  string
	}{
		"damaged": {func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte("octopay keys 1 "), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "is damaged"},
		"open to the group": {func(t *testing.T, path string) {
			if err := os.Chmod(path, 0o640); err != nil {
				t.Fatal(err)
			}
		}, "has mode 0640"},
		"not there": {func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}, "there is no file"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "keys")
			synctest.Test(t, func(t *testing.T) {
				r, text := aRow(App)
				m := &metaDB{rows: []row{r}}
				first, _ := newKeyring(m, path)
				stop := begin(t, first)
				synctest.Wait()
				stop()
				c.spoil(t, path)
				m.change(false, func() { m.away = true })
				second, log := newKeyring(m, path)
				begin(t, second)
				synctest.Wait()
				if _, err := second.Verify(text); !errors.Is(err, ErrUnavailable) || !strings.Contains(log.String(), c.want) {
					t.Errorf("%v\n%s", err, log)
				}
			})
		})
	}
}

// A row that this program doesn't understand is no key, and the others are.
func TestWhatIsNotUnderstoodIsNoKey(t *testing.T) {
	m := &metaDB{}
	good, text := aRow(App)
	m.rows = append(m.rows, good)
	var texts []string
	for _, spoil := range []func(*row){
		func(r *row) { r.Role = "auditor" }, // a newer program's
		func(r *row) { r.Hash = r.Hash[:31] },
		func(r *row) { r.BID = 7 },
		func(r *row) { r.Role = "merchant" },
		func(r *row) { r.Role, r.Refunds = "ops", true },
		func(r *row) { r.Secret = []byte("x") },
		func(r *row) { r.Role, r.Before = "channel", []byte("x") },
		func(r *row) { r.ID = "short" },
	} {
		r, text := aRow(App)
		spoil(&r)
		m.rows, texts = append(m.rows, r), append(texts, text)
	}
	k, log := newKeyring(m, "")
	for range 3 {
		if err := k.refresh(t.Context(), time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := k.Verify(text); err != nil {
		t.Error(err)
	}
	for i, text := range texts {
		if _, err := k.Verify(text); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("row %d: %v", i, err)
		}
	}
	if n := strings.Count(log.String(), "doesn't understand"); n != 1 {
		t.Errorf("it is said %d times:\n%s", n, log)
	}
	if err := testutil.CollectAndCompare(k, strings.NewReader(`# HELP octopay_auth_keys_not_understood Stored API keys that this program refuses since it doesn't understand them; stays 0.
# TYPE octopay_auth_keys_not_understood gauge
octopay_auth_keys_not_understood 8
# HELP octopay_auth_keys API keys in memory.
# TYPE octopay_auth_keys gauge
octopay_auth_keys 1
`), "octopay_auth_keys", "octopay_auth_keys_not_understood"); err != nil {
		t.Error(err)
	}
}

// Labels come from a list and not from callers.
func TestRefusalsAreCountedByAFixedListOfReasons(t *testing.T) {
	r, text := aRow(App)
	ended, endedText := aRow(App)
	ended.RevokedAt = time.Now().Add(time.Hour).UnixMilli()
	k, _ := newKeyring(&metaDB{rows: []row{r, ended}}, "")
	_, _ = k.Verify(text) // unavailable
	if err := k.refresh(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	other, _ := aRow(App)
	wrong := text[:len(text)-1] + "2"
	if wrong == text {
		wrong = text[:len(text)-1] + "3"
	}
	_, _ = k.Verify("x")
	_, _ = k.Verify(strings.Replace(text, r.ID, other.ID, 1))
	_, _ = k.Verify(wrong)
	_, _ = k.VerifyAt(time.Now().Add(59*time.Minute), endedText)
	_, _ = k.Verify(endedText)
	signs := Key{Role: Channel, Signed: true, signing: &signing{secrets: [][]byte{{1}}}}
	_ = k.VerifySignature(signs, Signature{}, "1", nil, signedAt)
	_ = k.VerifySignature(signs, Signature{anID, "1", ""}, "1", nil, signedAt)
	for reason, name := range reasonNames {
		want := int64(1)
		if name == "revoked" {
			want = 0
		}
		if got := k.refused[reason].Load(); got != want {
			t.Errorf("%s: %d", name, got)
		}
	}
	k.snapshot.Load().list.keys[ended.ID].until = time.Now().Add(-time.Second)
	_, _ = k.Verify(endedText)
	if k.refused[revoked].Load() != 1 {
		t.Error("a key after its end isn't counted as revoked")
	}
	if n := testutil.CollectAndCount(k); n != 6+int(reasons) {
		t.Errorf("%d series", n)
	}
}

// A channel's key whose secrets can't be read is refused where it must be signed, and is a
// key everywhere else.
func TestSecretsThatNoMasterKeyOpens(t *testing.T) {
	r, text := aRow(Channel)
	secret, sealed, err := masters(t, 1).newSecret(r.ID)
	if err != nil {
		t.Fatal(err)
	}
	r.Secret = sealed
	raw := mustSecret(t, secret)
	header := Signature{anID, aTime, "v1," + string(sign(raw, anID, aTime, anOrder, []byte(aBody)))}
	for name, c := range map[string]struct {
		m    *Masters
		want error
	}{"the right one": {masters(t, 1), nil}, "the second of two": {masters(t, 2, 1), nil}, "another one": {masters(t, 2), ErrUnavailable}, "none": {nil, ErrUnavailable}} {
		k, log := newKeyring(&metaDB{rows: []row{r}}, "")
		k.masters = c.m
		if err := k.refresh(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		key, err := k.Verify(text)
		if err != nil || !key.Signed {
			t.Fatalf("%s: %v, %v", name, key, err)
		}
		if err := k.VerifySignature(key, header, anOrder, []byte(aBody), signedAt); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if said := strings.Contains(log.String(), "can't be decrypted"); said != (c.want != nil) {
			t.Errorf("%s: the log says\n%s", name, log)
		}
	}
}

// A development keyring has nothing to read.
func TestADevelopmentKeyringRunsUntilItIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, texts := Development(true)
		stop := begin(t, k)
		time.Sleep(2 * time.Hour)
		if _, err := k.Verify(texts[0]); err != nil || k.Usable() != nil {
			t.Error(err, k.Usable())
		}
		stop()
	})
}
