package binlog

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/source"
)

func TestMain(m *testing.M) { eventually.Main(m) }

// A rig is a uid server, a user who may do everything there, and its source.
type rig struct {
	t     testing.TB
	stack *localstack.Stack
	admin *sql.DB
	src   *Source
	log   *bytes.Buffer
}

func newRig(t testing.TB, s *localstack.Stack) *rig {
	t.Helper()
	r := &rig{t: t, stack: s, admin: s.Admin(t, "uid-a"), log: &bytes.Buffer{}}
	src, err := New(s.Map, s.Map.Servers(shardmap.UID)[0], Config{User: s.User, Password: s.Password, Log: slog.New(slog.NewTextHandler(r.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := src.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	r.src = src
	return r
}

func shared(t testing.TB) *rig {
	t.Helper()
	return newRig(t, localstack.Test(t, localstack.UID))
}

// private has a server of its own, to be misconfigured, and in another time zone.
func private(t testing.TB) *rig {
	t.Helper()
	return newRig(t, localstack.Private(t, localstack.Options{
		Need: []localstack.Need{localstack.UID}, Env: []string{"TZ=Asia/Shanghai"},
		Args: []string{"--rpl-semi-sync-master-wait-point=AFTER_SYNC"},
	}))
}

func (r *rig) ctx() context.Context { return context.Background() }

func (r *rig) exec(text string, args ...any) {
	r.t.Helper()
	if _, err := r.admin.ExecContext(r.ctx(), text, args...); err != nil {
		r.t.Fatalf("%s: %v", text, err)
	}
}

// here returns the server's newest position.
func (r *rig) here() source.Position {
	r.t.Helper()
	var text string
	if err := r.admin.QueryRowContext(r.ctx(), "SELECT @@GLOBAL.gtid_binlog_pos").Scan(&text); err != nil {
		r.t.Fatal(err)
	}
	p, err := source.ParsePosition(text)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

func (r *rig) open(after source.Position) source.Reader {
	r.t.Helper()
	reader, err := r.src.Open(r.ctx(), after)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = reader.Close() })
	return reader
}

// next returns the next batch.
func (r *rig) next(reader source.Reader) source.Batch {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.ctx(), eventually.Patience)
	defer cancel()
	b, err := reader.Next(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

// until reads until a position is covered and returns all batches.
func (r *rig) until(reader source.Reader, end source.Position) (batches []source.Batch) {
	r.t.Helper()
	for {
		b := r.next(reader)
		batches = append(batches, b)
		if !b.End.IsZero() && b.End.Covers(end) {
			return batches
		}
	}
}

func rowsOf(batches []source.Batch) (all source.Batch) {
	for _, b := range batches {
		all.Orders = append(all.Orders, b.Orders...)
		all.Entries = append(all.Entries, b.Entries...)
		all.Broken = append(all.Broken, b.Broken...)
	}
	return all
}

func (r *rig) table(uid int64, name string) string {
	l := r.stack.Map.Locate(uid)
	return fmt.Sprintf("`%s`.%s_%d", r.stack.Map.Database(shardmap.UID, l.Database).Schema, name, l.Table)
}

func insert(table string, columns []string, rows int) string {
	tuple := "(?" + strings.Repeat(",?", len(columns)-1) + ")"
	return "INSERT INTO " + table + " (" + schema.List(columns) + ") VALUES " + tuple + strings.Repeat(","+tuple, rows-1)
}

func (r *rig) insertOrder(o schema.Order) {
	r.t.Helper()
	r.exec(insert(r.table(o.UID, "order"), schema.OrderColumns, 1), o.Values()...)
}

var ids = struct {
	mu   sync.Mutex
	next int64
}{next: idgen.FirstAt(time.Now())}

func newOrder(uid int64) schema.Order {
	ids.mu.Lock()
	defer ids.mu.Unlock()
	ids.next++
	return schema.Order{
		ID: ids.next, UID: uid, BID: 1001, OutTradeNo: fmt.Sprint("n", ids.next), Amount: 1, Currency: "CNY", Subject: "s", Metadata: "{}",
		Status: schema.Created, Ver: 1, CreatedBy: "app", RequestID: "r", ExpiresAt: 1000, UpdatedAt: 1000,
	}
}

var errNotYet = errors.New("not yet")
