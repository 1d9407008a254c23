package auth

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/faultproxy"
	"github.com/octopay/octopay/internal/localstack"
)

// A desk is a meta database, and who changes its keys.
type desk struct {
	*Store
	stack *localstack.Stack
}

func newDesk(t *testing.T, m *Masters) *desk {
	t.Helper()
	stack := localstack.Test(t, localstack.Meta)
	return &desk{NewStore(stack.Cluster(t).Meta(), m), stack}
}

func (d *desk) create(t *testing.T, spec Spec) Made {
	t.Helper()
	made, err := d.Create(t.Context(), spec, "tester")
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func (d *desk) exec(t *testing.T, format string, args ...any) {
	t.Helper()
	if _, err := d.stack.Admin(t, "uid-a").ExecContext(t.Context(), strings.ReplaceAll(format, "META", "`"+d.meta.Schema()+"`"), args...); err != nil {
		t.Fatal(err)
	}
}

// fresh returns a keyring that has just read.
func (d *desk) fresh(t *testing.T) *Keyring {
	t.Helper()
	k := New(Config{Store: d.Store, Masters: d.masters, Log: slog.New(slog.DiscardHandler)})
	// Asked again, since the question has a deadline, and the machine may stand still.
	eventually.Nil(t, "the keys are read", func() error { return k.refresh(t.Context(), time.Now()) })
	return k
}

// audited returns what was done to a key, the oldest first.
func (d *desk) audited(t *testing.T, id string) (out []string) {
	t.Helper()
	all, err := d.Audit(t.Context(), id, 100)
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		a := all[len(all)-1-i]
		if a.Who != "tester" || a.KeyID != id || a.At.IsZero() {
			t.Errorf("%+v", a)
		}
		out = append(out, a.What)
	}
	return out
}

func TestAKeyIsMadeListedAndRevoked(t *testing.T) {
	d := newDesk(t, masters(t, 1))
	for _, spec := range []Spec{
		{Role: App, Note: "front end, 前端 🐙"}, {Role: App, Refunds: true}, {Role: Merchant, BID: 1<<63 - 1}, {Role: Channel}, {Role: Ops},
	} {
		made := d.create(t, spec)
		if made.Role != spec.Role || made.BID != spec.BID || made.Refunds != spec.Refunds || made.Note != spec.Note || made.CreatedBy != "tester" ||
			made.Signed != (spec.Role == Channel) || (made.Secret != "") != made.Signed || !made.Until.IsZero() ||
			!strings.HasPrefix(made.Text, "opk_"+spec.Role.String()+"_"+made.ID+"_") {
			t.Fatalf("%+v of %+v", made.Record, spec)
		}
		key, err := d.fresh(t).Verify(made.Text)
		want := Key{ID: made.ID, Role: spec.Role, BID: spec.BID, Refunds: spec.Refunds || spec.Role == Merchant, Signed: made.Signed, signing: key.signing}
		if err != nil || key != want {
			t.Errorf("%+v is %#v, %v", spec, key, err)
		}
		if made.Signed {
			h := Signature{anID, aTime, "v1," + string(sign(mustSecret(t, made.Secret), anID, aTime, anOrder, []byte(aBody)))}
			if err := new(Keyring).VerifySignature(key, h, anOrder, []byte(aBody), signedAt); err != nil {
				t.Errorf("its signature: %v", err)
			}
		}
		if list, err := d.List(t.Context(), false); err != nil || len(list) != 1 || list[0] != made.Record {
			t.Errorf("listed is %+v, %v; made was %+v", list, err, made.Record)
		}
		if already, err := d.Revoke(t.Context(), made.ID, "tester"); already || err != nil {
			t.Errorf("revoke: %v, %v", already, err)
		}
		if already, err := d.Revoke(t.Context(), made.ID, "tester"); !already || err != nil {
			t.Errorf("revoke again: %v, %v", already, err)
		}
		if _, err := d.fresh(t).Verify(made.Text); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("after that: %v", err)
		}
		if got := fmt.Sprint(d.audited(t, made.ID)); got != "[created revoked]" {
			t.Error(got)
		}
		if list, err := d.List(t.Context(), false); err != nil || len(list) != 0 {
			t.Errorf("living: %+v, %v", list, err)
		}
	}
	list, err := d.List(t.Context(), true)
	if err != nil || len(list) != 5 {
		t.Errorf("%d keys of all times, %v", len(list), err)
	}
	for _, r := range list {
		if r.RevokedAt.Before(r.CreatedAt) {
			t.Errorf("%+v", r)
		}
	}
}

func TestASuccessorHasTheRightsOfItsKey(t *testing.T) {
	d := newDesk(t, masters(t, 1))
	for _, spec := range []Spec{{Role: App, Refunds: true, Note: "a"}, {Role: Merchant, BID: 1001}, {Role: Channel}, {Role: Ops}} {
		old := d.create(t, spec)
		made, err := d.Rotate(t.Context(), old.ID, 30*time.Minute, "tester")
		if err != nil || made.ID == old.ID || made.Text == old.Text || made.Role != old.Role || made.BID != old.BID || made.Refunds != old.Refunds || made.Note != old.Note ||
			made.Signed != old.Signed || old.Signed && (made.Secret == "" || made.Secret == old.Secret) || !made.Until.Equal(made.CreatedAt.Add(30*time.Minute)) {
			t.Fatalf("%+v of %+v until %s, %v", made.Record, old.Record, made.Until, err)
		}
		k := d.fresh(t)
		s := k.snapshot.Load()
		end := s.sentAt.Add(made.Until.Sub(s.readAt)) // by our clock
		for _, c := range []struct {
			at   time.Time
			text string
			want error
		}{{end.Add(-1), old.Text, nil}, {end, old.Text, ErrUnauthenticated}, {end, made.Text, nil}} {
			if _, err := k.VerifyAt(c.at, c.text); !errors.Is(err, c.want) {
				t.Errorf("%s from the end: %v, want %v", c.at.Sub(end), err, c.want)
			}
		}
		if _, err := d.Rotate(t.Context(), old.ID, time.Hour, "tester"); !errors.Is(err, ErrEnding) {
			t.Errorf("a second successor: %v", err)
		}
		// One that leaks is ended before its time.
		if already, err := d.Revoke(t.Context(), old.ID, "tester"); already || err != nil {
			t.Errorf("revoke within the overlap: %v, %v", already, err)
		}
		k = d.fresh(t)
		if _, err := k.Verify(old.Text); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("revoked within the overlap: %v", err)
		}
		if _, err := k.Verify(made.Text); err != nil {
			t.Errorf("its successor: %v", err)
		}
		if got, next := fmt.Sprint(d.audited(t, old.ID)), fmt.Sprint(d.audited(t, made.ID)); got != "[created rotated revoked]" || next != "[created]" {
			t.Error(got, next)
		}
	}
	old := d.create(t, Spec{Role: Ops})
	made, err := d.Rotate(t.Context(), old.ID, 0, "tester")
	if _, refused := d.fresh(t).Verify(old.Text); err != nil || !errors.Is(refused, ErrUnauthenticated) || !made.Until.Equal(made.CreatedAt) {
		t.Errorf("without overlap: %v, %v", err, refused)
	}
}

func TestASigningSecretIsChanged(t *testing.T) {
	d := newDesk(t, masters(t, 1))
	key := d.create(t, Spec{Role: Channel})
	first, err1 := d.RotateSecret(t.Context(), key.ID, time.Hour, "tester")
	second, err2 := d.RotateSecret(t.Context(), key.ID, time.Hour, "tester")
	if err := errors.Join(err1, err2); err != nil || first.Text != "" || first.ID != key.ID || first.Secret == second.Secret {
		t.Fatal(first, second, err)
	}
	k := d.fresh(t)
	got, err := k.Verify(key.Text)
	if err != nil {
		t.Fatal(err)
	}
	for secret, want := range map[string]error{key.Secret: ErrSignature, first.Secret: nil, second.Secret: nil} {
		now := second.Until.Add(-time.Minute)
		ts := fmt.Sprint(now.Unix())
		h := Signature{anID, ts, "v1," + string(sign(mustSecret(t, secret), anID, ts, anOrder, nil))}
		if err := k.VerifySignature(got, h, anOrder, nil, now); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
		ended := ErrSignature
		if secret == second.Secret {
			ended = nil
		}
		if err := k.VerifySignature(got, h, anOrder, nil, second.Until); !errors.Is(err, ended) {
			t.Errorf("at the end of the one before: %v, want %v", err, ended)
		}
	}
	if audited := fmt.Sprint(d.audited(t, key.ID)); audited != "[created secret_rotated secret_rotated]" {
		t.Error(audited)
	}
	app := d.create(t, Spec{Role: App})
	if _, err := d.RotateSecret(t.Context(), app.ID, 0, "tester"); !errors.Is(err, ErrNotSigned) {
		t.Errorf("of an app: %v", err)
	}
}

// The master key is changed in three steps: the new one before the old one, everything
// sealed anew, the old one away.
func TestTheMasterKeyIsChanged(t *testing.T) {
	d := newDesk(t, masters(t, 1))
	keys := []Made{d.create(t, Spec{Role: Channel}), d.create(t, Spec{Role: Channel}), d.create(t, Spec{Role: App}), d.create(t, Spec{Role: Channel})}
	if _, err := d.RotateSecret(t.Context(), keys[0].ID, time.Hour, "tester"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Revoke(t.Context(), keys[3].ID, "tester"); err != nil {
		t.Fatal(err)
	}
	both := NewStore(d.meta, masters(t, 2, 1))
	later, err := both.Create(t.Context(), Spec{Role: Channel}, "tester")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := NewStore(d.meta, masters(t, 3)).Reseal(t.Context(), "tester"); n != 0 || !errors.Is(err, ErrNoMaster) {
		t.Errorf("with a master key of none: %d, %v", n, err)
	}
	for _, want := range []int{2, 0} {
		if n, err := both.Reseal(t.Context(), "tester"); n != want || err != nil {
			t.Errorf("sealed %d anew, %v; want %d", n, err, want)
		}
	}
	d.masters = masters(t, 2)
	k := d.fresh(t)
	for i, made := range []Made{keys[0], keys[1], later} {
		key, err := k.Verify(made.Text)
		if err != nil {
			t.Fatal(err)
		}
		h := Signature{anID, aTime, "v1," + string(sign(mustSecret(t, made.Secret), anID, aTime, anOrder, nil))}
		if err := k.VerifySignature(key, h, anOrder, nil, signedAt); err != nil {
			t.Errorf("key %d: %v", i, err)
		}
	}
	if got := fmt.Sprint(d.audited(t, keys[1].ID), d.audited(t, later.ID), d.audited(t, keys[3].ID)); got != "[created resealed] [created] [created revoked]" {
		t.Error(got)
	}
}

func TestWhatCannotBeDoneChangesNothing(t *testing.T) {
	d := newDesk(t, nil)
	app := d.create(t, Spec{Role: App})
	var version int64
	look := func() (v int64, keys, audits int) {
		if err := d.stack.Admin(t, "uid-a").QueryRow("SELECT version, (SELECT COUNT(*) FROM "+d.keys+"), (SELECT COUNT(*) FROM "+d.audits+") FROM "+d.version).Scan(&v, &keys, &audits); err != nil {
			t.Fatal(err)
		}
		return v, keys, audits
	}
	version, _, _ = look()
	for name, c := range map[string]struct {
		do   func(ctx context.Context) error
		want error // nil: any
	}{
		"a channel without a master key": {func(ctx context.Context) error { _, err := d.Create(ctx, Spec{Role: Channel}, "tester"); return err }, ErrNoMaster},
		"a successor of nobody":          {func(ctx context.Context) error { _, err := d.Rotate(ctx, "aaaaaaaaaaaa", 0, "tester"); return err }, ErrNoKey},
		"the end of nobody":              {func(ctx context.Context) error { _, err := d.Revoke(ctx, "aaaaaaaaaaaa", "tester"); return err }, ErrNoKey},
		"the secret of nobody":           {func(ctx context.Context) error { _, err := d.RotateSecret(ctx, "", 0, "tester"); return err }, ErrNoKey},
		"the secret of an app":           {func(ctx context.Context) error { _, err := d.RotateSecret(ctx, app.ID, 0, "tester"); return err }, ErrNotSigned},
		"no role":                        {func(ctx context.Context) error { _, err := d.Create(ctx, Spec{}, "tester"); return err }, nil},
		"a merchant without a bid":       {func(ctx context.Context) error { _, err := d.Create(ctx, Spec{Role: Merchant}, "tester"); return err }, nil},
		"a negative bid": {func(ctx context.Context) error {
			_, err := d.Create(ctx, Spec{Role: Merchant, BID: -1}, "tester")
			return err
		}, nil},
		"an app with a bid": {func(ctx context.Context) error {
			_, err := d.Create(ctx, Spec{Role: App, BID: 1}, "tester")
			return err
		}, nil},
		"ops that refunds": {func(ctx context.Context) error {
			_, err := d.Create(ctx, Spec{Role: Ops, Refunds: true}, "tester")
			return err
		}, nil},
		"a note of two lines": {func(ctx context.Context) error {
			_, err := d.Create(ctx, Spec{Role: Ops, Note: "a\nb"}, "tester")
			return err
		}, nil},
		"a note that is too long": {func(ctx context.Context) error {
			_, err := d.Create(ctx, Spec{Role: Ops, Note: strings.Repeat("é", NoteMax+1)}, "tester")
			return err
		}, nil},
		"by nobody":          {func(ctx context.Context) error { _, err := d.Create(ctx, Spec{Role: Ops}, ""); return err }, nil},
		"by a name of two":   {func(ctx context.Context) error { _, err := d.Revoke(ctx, app.ID, "a b"); return err }, nil},
		"rotated by nobody":  {func(ctx context.Context) error { _, err := d.Rotate(ctx, app.ID, 0, ""); return err }, nil},
		"a secret by nobody": {func(ctx context.Context) error { _, err := d.RotateSecret(ctx, app.ID, 0, ""); return err }, nil},
		"sealed by nobody":   {func(ctx context.Context) error { _, err := d.Reseal(ctx, ""); return err }, nil},
	} {
		if err := c.do(t.Context()); err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if v, keys, audits := look(); v != version || keys != 1 || audits != 1 {
			t.Errorf("%s: version %d after %d, %d keys, %d audit rows", name, v, version, keys, audits)
		}
	}
	if d.create(t, Spec{Role: Ops, Note: strings.Repeat("é", NoteMax)}).ID == "" {
		t.Error("the longest note")
	}
}

// Changes made at the same moment come one after the other, each with its audit row, and
// the version of the keys counts them.
func TestChangesAtTheSameMoment(t *testing.T) {
	d := newDesk(t, nil)
	old := d.create(t, Spec{Role: Ops})
	var wait sync.WaitGroup
	var mu sync.Mutex
	rotated, made := 0, map[string]bool{}
	for range 4 { // a database lends a few connections to writers
		wait.Go(func() {
			for range 5 {
				next, err := d.Create(t.Context(), Spec{Role: App}, "tester")
				if err != nil {
					t.Error(err)
				}
				_, err = d.Rotate(t.Context(), old.ID, 0, "tester")
				mu.Lock()
				made[next.ID] = true
				switch {
				case err == nil:
					rotated++
				case !errors.Is(err, ErrEnding):
					t.Error(err)
				}
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	k := d.fresh(t)
	s := k.snapshot.Load()
	if rotated != 1 || len(made) != 20 || len(s.keys) != 21 || s.version != 22 {
		t.Errorf("%d successors, %d keys made, %d live, version %d", rotated, len(made), len(s.keys), s.version)
	}
	if all, err := d.Audit(t.Context(), "", 100); err != nil || len(all) != 1+20+2 {
		t.Errorf("%d audit rows, %v", len(all), err)
	}
}

// A change whose COMMIT is not answered is neither done nor not done, and its key was
// shown to nobody.
func TestAChangeWithoutAnAnswerIsUnknown(t *testing.T) {
	d := newDesk(t, nil)
	for _, c := range []struct {
		point faultproxy.Point
		there bool
	}{{faultproxy.BeforePacket, false}, {faultproxy.AfterReply, true}} {
		before, err := d.List(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		proxy := faultproxy.New(t, d.stack.Server("uid-a").Address())
		via := NewStore(d.stack.Via(t, "uid-a", proxy.Addr()).Cluster(t).Meta(), nil)
		proxy.Arm(c.point, func(packet []byte) bool { return string(packet[1:]) == "COMMIT" })
		made, err := via.Create(t.Context(), Spec{Role: App}, "tester")
		if !errors.Is(err, ErrUnknown) || made != (Made{}) || proxy.Fired(c.point) != 1 {
			t.Errorf("%s: %#v, %v, fired %d", c.point, made, err, proxy.Fired(c.point))
		}
		// Whatever becomes of it has become by the time of the next change.
		d.create(t, Spec{Role: Ops})
		after, err := d.List(t.Context(), true)
		if there := len(after) == len(before)+2; err != nil || there != c.there {
			t.Errorf("%s: %d keys after %d, %v", c.point, len(after), len(before), err)
		}
	}
	proxy := faultproxy.New(t, d.stack.Server("uid-a").Address())
	via := NewStore(d.stack.Via(t, "uid-a", proxy.Addr()).Cluster(t).Meta(), nil)
	proxy.Arm(faultproxy.AfterReply, faultproxy.Query("INSERT INTO"))
	if _, err := via.Create(t.Context(), Spec{Role: App}, "tester"); err == nil || errors.Is(err, ErrUnknown) || proxy.Fired(faultproxy.AfterReply) != 1 {
		t.Errorf("cut before the COMMIT: %v", err)
	}
}

// Without the row of their version keys aren't read, and the next change mends it.
func TestAVersionThatIsGoneComesBack(t *testing.T) {
	d := newDesk(t, nil)
	made := d.create(t, Spec{Role: App})
	k := d.fresh(t)
	d.exec(t, "DELETE FROM META.api_key_version")
	// Asked again, since the machine may stand still for longer than the question may take.
	eventually.True(t, "it is said", func() bool {
		err := k.refresh(t.Context(), time.Now())
		return err != nil && strings.Contains(err.Error(), "api_key_version")
	})
	if _, err := k.Verify(made.Text); err != nil {
		t.Errorf("those read before: %v", err)
	}
	next := d.create(t, Spec{Role: Ops})
	eventually.Nil(t, "the keys are read", func() error { return k.refresh(t.Context(), time.Now()) })
	for _, text := range []string{made.Text, next.Text} {
		if _, err := k.Verify(text); err != nil {
			t.Error(err)
		}
	}
}

// With more keys than a keyring holds it goes on with those it read before, and says so.
func TestMoreKeysThanAKeyringHolds(t *testing.T) {
	d := newDesk(t, nil)
	made := d.create(t, Spec{Role: App})
	k := d.fresh(t)
	d.exec(t, `INSERT INTO META.api_key (id, role, refunds, hash, note, created_at, created_by)
		SELECT LPAD(CONV(seq, 10, 24), 12, 'x'), 'ops', 0, UNHEX(SHA2(seq, 256)), '', '2026-11-30', 'tester' FROM META.seq_1_to_100000`)
	// Asked again, as above; not what is refused, but an answer.
	var err error
	eventually.True(t, "the database answers", func() bool {
		err = k.refresh(t.Context(), time.Now().Add(time.Hour))
		return !errors.Is(err, cluster.ErrUnavailable)
	})
	if !errors.Is(err, ErrTooMany) {
		t.Fatalf("error %v", err)
	}
	if _, err := k.Verify(made.Text); err != nil {
		t.Error(err)
	}
	if _, err := d.Create(t.Context(), Spec{Role: App}, "tester"); !errors.Is(err, ErrTooMany) {
		t.Errorf("one more: %v", err)
	}
	d.exec(t, "DELETE FROM META.api_key WHERE id <> ? LIMIT 1", made.ID)
	// Half the ids have digits that no id has.
	k.read = func(ctx context.Context, known int64, whole bool) (reading, error) {
		r, err := d.read(ctx, known, whole)
		if err == nil && len(r.rows) != KeysMax {
			t.Errorf("%d rows", len(r.rows))
		}
		return r, err
	}
	eventually.Nil(t, "the most keys are read", func() error { return k.refresh(t.Context(), time.Now().Add(time.Hour)) })
}

// Fault 21, of keys: a meta database that goes away, or stands still, is noticed, the keys
// go on, and what changed meanwhile is in force when it is back. Nothing of a key is in
// the log.
func TestAMetaDatabaseThatGoesAway(t *testing.T) {
	d := newDesk(t, masters(t, 1))
	proxy := faultproxy.New(t, d.stack.Server("uid-a").Address())
	via := d.stack.Via(t, "uid-a", proxy.Addr())
	handles := cluster.Open(via.Map, cluster.Config{User: via.User, Password: via.Password})
	t.Cleanup(func() {
		if err := handles.Close(); err != nil {
			t.Error(err)
		}
	})
	kept, ended := d.create(t, Spec{Role: Channel}), d.create(t, Spec{Role: App})

	var log syncBuffer
	path := filepath.Join(t.TempDir(), "keys")
	start := func() (*Keyring, func()) {
		k := New(Config{Store: NewStore(handles.Meta(), d.masters), Masters: d.masters, File: path, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
		return k, begin(t, k)
	}
	knows := func(k *Keyring, text string) bool { _, err := k.Verify(text); return err == nil }
	k, stop := start()
	eventually.True(t, "the keys are read", func() bool { return knows(k, kept.Text) && knows(k, ended.Text) })
	eventually.Nil(t, "they are written to the file", func() error { _, err := readFile(path, handles.Meta().Schema(), time.Now()); return err })

	for name, fault := range map[string]struct{ on, off func() }{
		"away":         {func() { proxy.Refuse(true); proxy.CutAll() }, func() { proxy.Refuse(false) }},
		"stands still": {func() { proxy.Freeze(true) }, func() { proxy.Freeze(false) }},
	} {
		fault.on()
		failures := k.failures.Load()
		eventually.True(t, name+": it is noticed", func() bool { return k.failures.Load() > failures })
		made := d.create(t, Spec{Role: Ops})
		if !knows(k, kept.Text) {
			t.Errorf("%s: the keys don't go on", name)
		}
		// A process that starts now has the file.
		second, stop := start()
		eventually.True(t, name+": one that starts has the keys of the file", func() bool { return knows(second, kept.Text) })
		key, err := second.Verify(kept.Text)
		h := Signature{anID, aTime, "v1," + string(sign(mustSecret(t, kept.Secret), anID, aTime, anOrder, nil))}
		if err := errors.Join(err, second.VerifySignature(key, h, anOrder, nil, signedAt)); err != nil {
			t.Errorf("%s: a signature, with the file: %v", name, err)
		}
		if knows(second, made.Text) || knows(k, made.Text) {
			t.Errorf("%s: a key is known that nobody could read", name)
		}
		if name == "away" {
			if _, err := d.Revoke(t.Context(), ended.ID, "tester"); err != nil {
				t.Fatal(err)
			}
		}
		fault.off()
		for _, k := range []*Keyring{k, second} {
			eventually.True(t, name+": when it is back, the new key works", func() bool { return knows(k, made.Text) })
			if knows(k, ended.Text) && name == "away" {
				t.Errorf("%s: the revoked one works too", name)
			}
		}
		stop()
	}
	stop()
	if proxy.Frozen() == 0 {
		t.Error("nothing was frozen")
	}
	text := log.String()
	for _, no := range []string{kept.Text, ended.Text, kept.Secret, strings.TrimPrefix(kept.Secret, "whsec_"), kept.Text[len("opk_channel_"):], aMaster(1), d.stack.Password} {
		if strings.Contains(text, no) {
			t.Errorf("the log holds %q:\n%s", no, text)
		}
	}
	if !strings.Contains(text, "not refreshed") || !strings.Contains(text, "refreshed again") {
		t.Errorf("the log doesn't say what happened:\n%s", text)
	}
}

// What is stored and kept of a key is not the key.
func TestNothingThatIsStoredCanBeUsedAsAKey(t *testing.T) {
	d := newDesk(t, masters(t, 1))
	key := d.create(t, Spec{Role: Channel, Note: "the note"})
	next, err := d.Rotate(t.Context(), key.ID, time.Hour, "tester")
	if err != nil {
		t.Fatal(err)
	}
	var stored bytes.Buffer
	admin := d.stack.Admin(t, "uid-a")
	for _, table := range []string{d.keys, d.audits, d.version} {
		rows, err := admin.Query("SELECT * FROM " + table)
		if err != nil {
			t.Fatal(err)
		}
		columns, err := rows.Columns()
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			values, to := make([]sql.RawBytes, len(columns)), make([]any, len(columns))
			for i := range values {
				to[i] = &values[i]
			}
			if err := rows.Scan(to...); err != nil {
				t.Fatal(err)
			}
			for _, v := range values {
				stored.Write(v)
				stored.WriteByte(' ')
			}
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := file{Keys: d.fresh(t).snapshot.Load().rows}.encode()
	if err != nil {
		t.Fatal(err)
	}
	list, err := d.List(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	shown := fmt.Sprintf("%v %+v %#v %v %+v %#v %+v", key, key, key, next, next, next, list)
	hash := sha256.Sum256([]byte(key.Text))
	if !bytes.Contains(stored.Bytes(), hash[:]) || !strings.Contains(shown, key.ID) || !strings.Contains(stored.String(), "the note") {
		t.Fatal("this looks in the wrong place")
	}
	for _, made := range []Made{key, next} {
		for _, no := range []string{made.Text, made.Text[len(made.Text)-secretLen:], made.Secret, string(mustSecret(t, made.Secret))} {
			for where, text := range map[string]string{"stored": stored.String(), "kept in the file": string(kept), "shown": shown} {
				if strings.Contains(text, no) {
					t.Errorf("%s: %q", where, no)
				}
			}
		}
	}
}

// A syncBuffer is a log that is read while it is written.
type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
