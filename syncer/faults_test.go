package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer"
	"github.com/octopay/octopay/syncer/apply"
	"github.com/octopay/octopay/syncer/binlog"
	"github.com/octopay/octopay/syncer/mirrorpb"
	"github.com/octopay/octopay/syncer/source"
	"github.com/octopay/octopay/syncer/stream"
	"google.golang.org/protobuf/proto"
)

// parts returns what a service is made of, to be changed by a test.
func (r *rig) parts(c stream.Config) syncer.Config {
	r.t.Helper()
	st, err := stream.New(r.nc, r.stack.Map.Prefix(), c)
	if err != nil {
		r.t.Fatal(err)
	}
	parts := syncer.Config{Map: r.stack.Map, Sources: map[string]source.Source{}, Stream: st, Log: r.log}
	for _, server := range r.stack.Map.Servers(shardmap.UID) {
		s, err := binlog.New(r.stack.Map, server, binlog.Config{User: r.stack.User, Password: r.stack.Password, Log: r.log})
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(func() { _ = s.Close() })
		parts.Sources[server.Name] = s
	}
	for n := range r.stack.Map.Size() {
		t := apply.NewSQL(r.c.Database(shardmap.BID, n+1), r.stack.Map.Epoch())
		r.t.Cleanup(func() { _ = t.Close() })
		parts.Targets = append(parts.Targets, t)
	}
	return parts
}

func (r *rig) of(parts syncer.Config) *syncer.Service {
	r.t.Helper()
	s, err := syncer.New(parts)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// Each kind of poison stands in the way of the marks alone, until an operator has
// settled it.
func TestPoisonHoldsTheMarksUntilItIsSettled(t *testing.T) {
	t.Parallel()
	r := newRig(t, localstack.Test(t, all...))
	r.seed()
	parts := r.parts(stream.Config{})
	r.run(r.of(parts))
	const bid = 1001
	database := r.c.Map().Locate(bid).Database
	target := parts.Targets[database-1]
	r.put(newOrder(9527, bid))
	r.equal()

	js, err := jetstream.New(r.nc, jetstream.WithDefaultTimeout(eventually.Patience))
	if err != nil {
		t.Fatal(err)
	}
	publish := func(data []byte) {
		t.Helper()
		if _, err := js.Publish(t.Context(), fmt.Sprintf("%smirror.row.%d", r.stack.Map.Prefix(), mirrorpb.Group(bid)), data); err != nil {
			t.Fatal(err)
		}
	}
	row := func(o schema.Order, change func(*mirrorpb.Order)) []byte {
		t.Helper()
		w := mirrorpb.FromOrder(&o)
		change(w)
		data, err := proto.Marshal(&mirrorpb.Rows{Rows: []*mirrorpb.Row{{Row: &mirrorpb.Row_Order{Order: w}}}})
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	long := newOrder(9527, bid)
	long.UpdatedAt, long.Subject = 1000, strings.Repeat("x", 300)
	o := newOrder(9527, bid)
	o.UpdatedAt = 1000
	kinds := []struct {
		name string
		data []byte
	}{
		{"an undecodable message", []byte("\xff\xff\xff")},
		{"a bid of another group", row(o, func(w *mirrorpb.Order) { w.Bid += 10 })},
		{"an id that disagrees with its uid", row(o, func(w *mirrorpb.Order) { w.Uid++ })},
		{"a row that the database refuses", row(long, func(*mirrorpb.Order) {})},
	}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			publish(k.data)
			var letters []apply.Letter
			eventually.True(t, "it is a dead letter", func() bool {
				letters, err = target.Letters(t.Context(), 10)
				return err == nil && len(letters) == 1
			})
			_, stands := r.list(bid)
			// Rows behind it are applied, and marks of other databases go on.
			stored := r.put(newOrder(9527, bid))
			eventually.True(t, "an order behind it is there", func() bool {
				list, _ := r.list(bid)
				return len(list) > 0 && list[0] == stored[0]
			})
			eventually.True(t, "marks go on elsewhere", func() bool {
				_, until := r.list(bid + 10)
				return until > stored[0].UpdatedAt
			})
			if _, until := r.list(bid); until != stands {
				t.Errorf("the marks went from %d to %d while a dead letter is open", stands, until)
			}
			if err := apply.Retry(t.Context(), target, r.c.Map(), letters[0]); err == nil {
				t.Error("poison was applied at the second try")
			}
			if err := apply.Drop(t.Context(), target, letters[0].LetterKey); err != nil {
				t.Fatal(err)
			}
			eventually.True(t, "the marks go on", func() bool {
				_, until := r.list(bid)
				return until > stored[0].UpdatedAt
			})
		})
	}
	t.Run("retried after the database was mended", func(t *testing.T) {
		db := r.c.Map().Database(shardmap.BID, database)
		admin := r.stack.Admin(t, db.Server.Name)
		table := fmt.Sprintf("`%s`.order_%d", db.Schema, r.c.Map().Locate(bid).Table)
		if _, err := admin.Exec("ALTER TABLE " + table + " MODIFY COLUMN subject VARCHAR(1) NOT NULL"); err == nil {
			t.Fatal("the column is too narrow for what is there")
		}
		if _, err := admin.Exec("ALTER TABLE " + table + " ADD CONSTRAINT narrow CHECK (amount < 5000000)"); err != nil {
			t.Fatal(err)
		}
		dear := newOrder(9527, bid)
		dear.Amount = 5_000_000
		stored := r.put(dear)
		var letters []apply.Letter
		eventually.True(t, "it is a dead letter", func() bool {
			letters, err = target.Letters(t.Context(), 10)
			return err == nil && len(letters) == 1
		})
		if _, err := admin.Exec("ALTER TABLE " + table + " DROP CONSTRAINT narrow"); err != nil {
			t.Fatal(err)
		}
		if err := apply.Retry(t.Context(), target, r.c.Map(), letters[0]); err != nil {
			t.Fatal(err)
		}
		eventually.True(t, "the marks go on", func() bool {
			_, until := r.list(bid)
			return until > stored[0].UpdatedAt
		})
		r.equal()
	})
}

// A gate keeps a target from applying until open is closed.
type gate struct {
	apply.Target
	mu   sync.Mutex
	open <-chan struct{}
}

// opened is closed: nothing is kept.
var opened = func() <-chan struct{} { c := make(chan struct{}); close(c); return c }()

func (g *gate) set(open <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = open
}

func (g *gate) Apply(ctx context.Context, c *apply.Change) (int, error) {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	select {
	case <-open:
		return g.Target.Apply(ctx, c)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// The stream is deleted while everything runs: it is made anew and every server
// rewinds to what all databases have applied.
func TestAStreamThatIsDeletedIsMadeAnew(t *testing.T) {
	t.Parallel()
	r := newRig(t, localstack.Test(t, all...))
	r.seed()
	r.run(r.service(stream.Config{}))
	defer r.audit()()
	load := r.load()
	s := r.stream()
	for range 3 {
		load.wait(60)
		info, err := s.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(t.Context(), info.Incarnation); err != nil {
			t.Fatal(err)
		}
		eventually.True(t, "there is another stream", func() bool {
			now, err := s.Info(t.Context())
			return err == nil && now.Incarnation != info.Incarnation
		})
	}
	load.wait(60)
	load.stop(true)
	r.equal()
	now := schema.MillisOf(time.Now())
	eventually.True(t, "marks go on", func() bool { _, until := r.list(1); return until > now })
}

// Fault 20: JetStream lost acknowledged messages. What NATS does when its machine dies: it
// is away, comes back with a part of what it had acknowledged, or with nothing.
func TestFault20NATSDies(t *testing.T) {
	t.Parallel()
	r := newRig(t, localstack.Private(t, localstack.Options{Need: all}))
	server := r.stack.Server("nats")
	data := filepath.Join(r.stack.Dir, "nats")
	start := func(t *testing.T) {
		t.Helper()
		if err := server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	kill := func(t *testing.T) {
		t.Helper()
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	goesOn := func(t *testing.T) {
		t.Helper()
		now := schema.MillisOf(time.Now())
		eventually.True(t, "marks go on", func() bool { _, until := r.list(1); return until > now })
	}
	stop := r.run(r.service(stream.Config{}))
	defer r.audit()()
	load := r.load()
	load.wait(50)
	goesOn(t)

	t.Run("killed and started", func(t *testing.T) {
		for range 3 {
			kill(t)
			load.wait(20)
			start(t)
			load.wait(20)
		}
		goesOn(t)
	})
	t.Run("frozen", func(t *testing.T) {
		if err := server.Pause(); err != nil {
			t.Fatal(err)
		}
		load.wait(50)
		if err := server.Continue(); err != nil {
			t.Fatal(err)
		}
		goesOn(t)
	})
	backup := filepath.Join(t.TempDir(), "nats")
	t.Run("back with less than it acknowledged", func(t *testing.T) {
		kill(t)
		copyDir(t, data, backup)
		start(t)
		load.wait(50)
		goesOn(t) // applied beyond the copy
		kill(t)
		replaceDir(t, backup, data)
		start(t)
		goesOn(t)
		eventually.True(t, "the loss is noticed", func() bool { return r.lines.has("NATS lost messages") })
	})
	t.Run("back with less, and its sequences used again", func(t *testing.T) {
		stop()
		s := r.stream()
		kill(t)
		replaceDir(t, data, backup) // as it is now
		start(t)
		var copied stream.Info
		eventually.True(t, "NATS answers", func() (ok bool) { var err error; copied, err = s.Info(t.Context()); return err == nil })
		stop = r.run(r.service(stream.Config{}))
		load.wait(50)
		goesOn(t)
		stop()
		applied := r.progress()
		kill(t)
		replaceDir(t, backup, data)
		start(t)
		// Somebody writes on before anybody looks: the last sequence is above every
		// progress again, but other messages have those sequences.
		var w *stream.Writer
		eventually.True(t, "NATS answers", func() bool {
			info, err := s.Info(t.Context())
			if err != nil || info.Last != copied.Last {
				return false
			}
			w, err = s.Writer(t.Context(), "uid-z", info)
			return err == nil
		})
		defer w.Close()
		for last := uint64(0); last <= applied; {
			if err := w.Mark(t.Context(), source.Position{}, 0); err != nil {
				t.Fatal(err)
			}
			info, err := s.Info(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			last = info.Last
		}
		stop = r.run(r.service(stream.Config{}))
		goesOn(t)
		if n := strings.Count(r.lines.String(), "another message now"); n == 0 {
			t.Error("the loss wasn't noticed")
		}
	})
	t.Run("back with nothing", func(t *testing.T) {
		kill(t)
		if err := os.RemoveAll(filepath.Join(data, "jetstream")); err != nil {
			t.Fatal(err)
		}
		start(t)
		goesOn(t)
	})
	load.stop(true)
	r.equal()
}

// progress returns the highest sequence that any database has applied.
func (r *rig) progress() (seq uint64) {
	r.t.Helper()
	for _, t := range r.parts(stream.Config{}).Targets {
		s, err := t.State(context.Background())
		if err != nil {
			r.t.Fatal(err)
		}
		seq = max(seq, s.Progress.Seq)
	}
	return seq
}

func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	// JetStream's files are found by what is in them; a copy without one is no copy.
	n := 0
	_ = filepath.WalkDir(to, func(path string, _ fs.DirEntry, _ error) error {
		if strings.HasSuffix(path, ".blk") {
			n++
		}
		return nil
	})
	if n == 0 {
		t.Fatal("the copy holds no messages")
	}
}

func replaceDir(t *testing.T, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	copyDir(t, from, to)
}

// One merchant database is away: the others notice nothing, and it catches up.
func TestADatabaseThatIsAwayHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, localstack.Test(t, all...))
	r.seed()
	parts := r.parts(stream.Config{})
	away := &absent{Target: parts.Targets[2]}
	parts.Targets[2] = away
	kill := r.run(r.of(parts))
	load := r.load()
	load.wait(30)
	away.set(true)
	load.wait(60)
	kill() // with a mark in the stream, a start doesn't need it either
	r.run(r.of(parts))
	load.wait(60)
	load.stop(true)
	now := schema.MillisOf(time.Now())
	eventually.True(t, "the next database is complete", func() bool {
		s, err := parts.Targets[3].State(t.Context())
		return err == nil && s.Marks["uid-a"].At > now
	})
	if s, err := away.Target.State(t.Context()); err != nil || s.Marks["uid-a"].At > now {
		t.Errorf("the database that is away says %+v, %v", s, err)
	}
	if n := strings.Count(r.lines.String(), errAway.Error()); n == 0 || n > 10 {
		t.Errorf("that it is away was said %d times", n)
	}
	away.set(false)
	r.equal()
}

var errAway = errors.New("the database is away")

type absent struct {
	apply.Target
	mu    sync.Mutex
	on    bool
	asked int // while it was away
}

func (a *absent) set(on bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.on = on
}

func (a *absent) away() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.on {
		a.asked++
		return errAway
	}
	return nil
}

func (a *absent) State(ctx context.Context) (apply.State, error) {
	if err := a.away(); err != nil {
		return apply.State{}, err
	}
	return a.Target.State(ctx)
}

func (a *absent) Apply(ctx context.Context, c *apply.Change) (int, error) {
	if err := a.away(); err != nil {
		return 0, err
	}
	return a.Target.Apply(ctx, c)
}
