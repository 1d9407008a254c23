package auth

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/octopay/octopay/internal/dberr"
)

const (
	// refreshEvery is how often a keyring asks whether keys have changed.
	refreshEvery = 2 * time.Second
	// wholeEvery is how often it reads all keys though nothing seems to have changed:
	// somebody may have written them without their version.
	wholeEvery = time.Minute
	// saveEvery is how often it writes them to its file though nothing has changed: the
	// file says how old they are.
	saveEvery = time.Minute
	// sayEvery is how often a fault that lasts is logged.
	sayEvery = time.Minute
	// askMax bounds the question whether anything has changed.
	askMax = 1500 * time.Millisecond
	// namedMax bounds how many keys a line of the log names.
	namedMax = 10
)

// A Config says where a keyring's keys come from.
type Config struct {
	Store   *Store       // the meta database
	Masters *Masters     // decrypt signing secrets; nil: requests of keys that sign are refused
	File    string       // keeps the keys' hashes over a restart, this process's alone; "": none does
	Log     *slog.Logger // nil: slog.Default
}

// New returns a keyring that knows no key until Run has read them.
func New(c Config) *Keyring {
	k := &Keyring{masters: c.Masters, file: c.File, schema: c.Store.meta.Schema(), log: c.Log, read: c.Store.read}
	if k.log == nil {
		k.log = slog.Default()
	}
	return k
}

// Run keeps the keys up to date until ctx ends, and returns its error. It asks every two
// seconds: a key that was made works, and one that was revoked is refused, within five as
// long as the meta database answers. While that is away the keys last read are good for an
// hour after they were read, whoever read them: with a file, this process or the one
// before it.
func (k *Keyring) Run(ctx context.Context) error {
	if k.read == nil { // see Development
		<-ctx.Done()
		return ctx.Err()
	}
	var work sync.WaitGroup
	defer work.Wait()
	saves := make(chan *snapshot, 1)
	defer close(saves)
	// Beside, since a disk that stands still must not keep a revoked key alive.
	work.Go(func() { k.save(saves) })

	tick := time.NewTicker(refreshEvery)
	defer tick.Stop()
	var said time.Time // when the fault that lasts was logged last
	var saved *snapshot
	for first := true; ; first = false {
		began := time.Now()
		err := k.refresh(ctx, began)
		k.asked.Store(&began)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			k.failures.Add(1)
			if said.IsZero() || time.Since(said) >= sayEvery {
				said = time.Now()
				k.log.Error("the API keys are not refreshed; those last read are good for an hour", "error", err)
			}
			if first {
				k.load(time.Now())
			}
		case !said.IsZero():
			said = time.Time{}
			k.log.Info("the API keys are refreshed again")
		}
		if s := k.snapshot.Load(); err == nil && k.file != "" && s.due(saved) {
			select {
			case saves <- s:
				saved = s
			default: // the one before is still being written
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// due reports whether s is to be written, when saved was last.
func (s *snapshot) due(saved *snapshot) bool {
	return saved == nil || s.list != saved.list || s.sentAt.Sub(saved.sentAt) >= saveEvery
}

// Usable returns why no key is good now, nil if they are. It asks nobody.
func (k *Keyring) Usable() error {
	if s := k.snapshot.Load(); s == nil || s.tooOld(time.Now()) {
		return ErrUnavailable
	}
	return nil
}

// refresh reads what has changed.
func (k *Keyring) refresh(ctx context.Context, now time.Time) error {
	old := k.snapshot.Load()
	whole := old == nil || old.list.readAt.IsZero() || now.Sub(old.list.readAt) >= wholeEvery
	known := int64(0)
	if !whole {
		known = old.list.version
	}
	r, err := k.read(ctx, known, whole)
	if err != nil {
		return err
	}
	next := &snapshot{readAt: r.readAt, sentAt: r.sentAt}
	if r.whole {
		next.list = k.newList(r.rows, old)
		next.list.version, next.list.readAt = r.version, r.sentAt
	} else {
		next.list = old.list
	}
	k.snapshot.Store(next)
	if old == nil {
		k.log.Info("API keys", "keys", len(next.list.keys))
	}
	return nil
}

// newList returns the list of some rows. What is none of this program's keys is left out,
// and said once.
func (k *Keyring) newList(rows []row, old *snapshot) *list {
	l := &list{keys: make(map[string]*entry, len(rows)), rows: rows}
	var left, sealed []string
	var why, whySealed error
	for i := range rows {
		r := &rows[i]
		e, err := r.entry(k.masters)
		if err != nil {
			left, why = append(left, r.ID), err
			continue
		}
		if e.key.Signed && e.key.signing.err != nil {
			sealed, whySealed = append(sealed, r.ID), e.key.signing.err
		}
		l.keys[r.ID] = e
	}
	l.left, l.sealed = len(left), len(sealed)
	if len(left) > 0 && (old == nil || old.list.left != l.left) {
		k.log.Error("API keys that this program doesn't understand are refused", "keys", len(left), "ids", left[:min(len(left), namedMax)], "error", why)
	}
	if len(sealed) > 0 && (old == nil || old.list.sealed != l.sealed) {
		k.log.Error("signing secrets of API keys can't be decrypted; what these keys send is refused", "keys", len(sealed), "ids", sealed[:min(len(sealed), namedMax)], "error", whySealed)
	}
	return l
}

// load takes the keys from the file.
func (k *Keyring) load(now time.Time) {
	if k.file == "" {
		return
	}
	f, err := readFile(k.file, k.schema, now)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		k.log.Warn("there is no file of API keys from before")
	case err != nil:
		k.log.Error("the file of API keys from before is not used", "error", err)
	default:
		s := &snapshot{list: k.newList(f.Keys, nil), readAt: f.readAt()}
		// Of the clocks that go on, ours alone is known now; so the file's age is by it.
		s.sentAt = now.Add(-max(now.Sub(s.readAt), 0))
		k.snapshot.Store(s)
		k.log.Warn("API keys from before are used until the meta database is there", "keys", len(s.list.keys), "age", now.Sub(s.readAt).Round(time.Second))
	}
}

// save writes snapshots to the file until the channel is closed.
func (k *Keyring) save(saves <-chan *snapshot) {
	failing := false
	for s := range saves {
		err := writeFile(k.file, file{Schema: k.schema, ReadAt: s.readAt.UnixMilli(), Keys: s.list.rows})
		switch {
		case err != nil:
			k.saveFailures.Add(1)
			if !failing {
				k.log.Error("the API keys are not written to their file; a restart will need the meta database", "error", err)
			}
		case failing:
			k.log.Info("the API keys are written to their file again")
		}
		failing = err != nil
	}
}

// A reading is what the meta database said.
type reading struct {
	version int64
	sentAt  time.Time // by our clock, just before it was asked
	readAt  time.Time // by its own
	whole   bool      // rows are all keys; otherwise nothing has changed
	rows    []row
}

// read reads all keys if their version isn't known, or else only that. More than KeysMax
// keys are an error.
func (s *Store) read(ctx context.Context, known int64, whole bool) (r reading, err error) {
	err = s.meta.Read(ctx, func(ctx context.Context, c *sql.Conn) error {
		r = reading{sentAt: time.Now()}
		ask, cancel := context.WithTimeout(ctx, askMax)
		defer cancel()
		// Before the keys: a change in between is then read now, and once more.
		if err := c.QueryRowContext(ask, "SELECT version, UTC_TIMESTAMP(3) FROM "+s.version+" WHERE id = 1").Scan(&r.version, &r.readAt); err != nil {
			if errors.Is(err, sql.ErrNoRows) {
				return dberr.As(dberr.Missing, errors.New("somebody deleted the row of api_key_version; the next change of a key, such as octopay keys reseal, makes it again"))
			}
			return err
		}
		if r.whole = whole || r.version != known; !r.whole {
			return nil
		}
		found, err := scanKeys(c.QueryContext(ctx, "SELECT "+columns+" FROM "+s.keys+living+" ORDER BY id LIMIT ?", KeysMax+1))
		for _, k := range found {
			r.rows = append(r.rows, k.row)
		}
		return err
	})
	if err == nil && len(r.rows) > KeysMax {
		err = ErrTooMany
	}
	if err != nil {
		return reading{}, fmt.Errorf("read the keys: %w", err)
	}
	return r, nil
}
