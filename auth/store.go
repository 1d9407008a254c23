package auth

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/dberr"
)

var (
	// ErrNoKey reports an id that no key has. Nothing was changed.
	ErrNoKey = errors.New("there is no key of this id")

	// ErrEnding reports a key that is revoked, or will be when its successor has taken
	// over. Nothing was changed.
	ErrEnding = errors.New("the key is revoked or has a successor")

	// ErrNoMaster reports that no master key is set, or not the one that a secret needs.
	// Nothing was changed.
	ErrNoMaster = errors.New("the master key of signing secrets is not set")

	// ErrTooMany reports that KeysMax keys live. Nothing was changed.
	ErrTooMany = fmt.Errorf("%d keys live, and that is the most", KeysMax)

	// ErrNotSigned reports a key that has no signing secret. Nothing was changed.
	ErrNotSigned = errors.New("only a channel's key has a signing secret")

	// ErrUnknown reports a change whose outcome was not learned. What was made by it was
	// shown to nobody; the list of keys says whether it is there.
	ErrUnknown = errors.New("whether the change was made is not known")
)

// A Store is the keys in the meta database. Each change is one transaction, with its row
// of the audit table. It is safe for concurrent use.
type Store struct {
	meta    *cluster.Database
	masters *Masters
	keys    string // names of the tables
	version string
	audits  string
}

// NewStore returns the keys in a migrated meta database. masters may be nil: then no key
// that signs can be made.
func NewStore(meta *cluster.Database, masters *Masters) *Store {
	table := func(name string) string { return "`" + meta.Schema() + "`." + name }
	return &Store{meta, masters, table("api_key"), table("api_key_version"), table("api_key_audit")}
}

// A Spec is a key to be made; see Check.
type Spec struct {
	Role    Role
	BID     int64  // of a merchant's key, 1 or more; otherwise 0
	Refunds bool   // an app's key may refund
	Note    string // for people; at most NoteMax characters
}

const (
	// NoteMax bounds a note, in characters.
	NoteMax = 200
	// WhoMax bounds the name of who changes keys, in bytes of ASCII.
	WhoMax = 128
	// OverlapMax bounds how long a key or a secret outlives its successor's birth.
	OverlapMax = 30 * 24 * time.Hour
)

// Check says what is wrong with a spec.
func (s Spec) Check() error {
	switch {
	case s.Role < App || s.Role > Ops:
		return errors.New("a role is app, merchant, channel or ops")
	case s.Role == Merchant && s.BID < 1:
		return errors.New("a merchant's key needs its bid, 1 or more")
	case s.Role != Merchant && s.BID != 0:
		return errors.New("only a merchant's key has a bid")
	case s.Role != App && s.Refunds:
		return errors.New("only an app's key is made to refund: a merchant's may always, and others never")
	case !validNote(s.Note):
		return fmt.Errorf("a note is at most %d characters, without control characters", NoteMax)
	}
	return nil
}

func validNote(s string) bool {
	n := 0
	for _, r := range s {
		if n++; n > NoteMax || r < ' ' || r >= 0x7f && r < 0xa0 || r == '\uFFFD' || r == '\u2028' || r == '\u2029' ||
			r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069' {
			return false
		}
	}
	return true
}

// CheckWho says what is wrong with the name of who changes keys.
func CheckWho(s string) error {
	ok := s != "" && len(s) <= WhoMax
	for i := range len(s) {
		ok = ok && s[i] > ' ' && s[i] <= '~'
	}
	if !ok {
		return fmt.Errorf("who does it is 1 to %d visible characters of ASCII", WhoMax)
	}
	return nil
}

// A Made is a new key, or a new signing secret of one. Its texts are shown once: nobody
// can read them again. It prints as its id.
type Made struct {
	Record
	Text   string    // the key; "" when only its secret is new
	Secret string    // its signing secret; "" for a key that doesn't sign
	Until  time.Time // when what it replaces ends; zero: it replaces nothing
}

// String returns the role and the id, so that no way to print it shows more.
func (m Made) String() string { return m.Role.String() + " " + m.ID }

// GoString is String.
func (m Made) GoString() string { return m.String() }

// A Record is what people may see of a key.
type Record struct {
	ID        string
	Role      Role
	BID       int64 // of a merchant's key; otherwise 0
	Refunds   bool  // an app's key may refund
	Signed    bool
	Note      string
	CreatedAt time.Time
	CreatedBy string
	RevokedAt time.Time // refused from then on, which may lie ahead; zero: it lives
}

// Create makes a key.
func (s *Store) Create(ctx context.Context, spec Spec, who string) (Made, error) {
	if err := errors.Join(spec.Check(), CheckWho(who)); err != nil {
		return Made{}, err
	}
	var made Made
	err := s.change(ctx, func(t *change) (err error) {
		made, err = t.create(spec, who, "")
		return err
	})
	if err != nil {
		return Made{}, fmt.Errorf("make a key: %w", err)
	}
	return made, nil
}

// Rotate makes a successor of a key, with the same rights. The key itself is good for
// overlap longer, at most OverlapMax; without overlap it ends at once.
func (s *Store) Rotate(ctx context.Context, id string, overlap time.Duration, who string) (Made, error) {
	if err := CheckWho(who); err != nil {
		return Made{}, err
	}
	var made Made
	err := s.change(ctx, func(t *change) error {
		old, _, err := t.living(id)
		if err != nil {
			return err
		}
		if made, err = t.create(Spec{old.Role, old.BID, old.Refunds, old.Note}, who, "successor of "+id); err != nil {
			return err
		}
		made.Until = t.now.Add(within(overlap))
		if err := t.exec("UPDATE "+s.keys+" SET revoked_at = ? WHERE id = ?", made.Until, id); err != nil {
			return err
		}
		return t.audit(id, "rotated", "successor "+made.ID+", ends "+made.Until.Format(time.RFC3339Nano), who)
	})
	if err != nil {
		return Made{}, fmt.Errorf("rotate key %s: %w", id, err)
	}
	return made, nil
}

// RotateSecret makes another signing secret of a channel's key. The one before signs for
// overlap longer; the one before that ends at once.
func (s *Store) RotateSecret(ctx context.Context, id string, overlap time.Duration, who string) (Made, error) {
	if err := CheckWho(who); err != nil {
		return Made{}, err
	}
	var made Made
	err := s.change(ctx, func(t *change) error {
		old, r, err := t.living(id)
		if err != nil {
			return err
		}
		if r.Secret == nil {
			return ErrNotSigned
		}
		text, sealed, err := s.masters.newSecret(id)
		if err != nil {
			return ErrNoMaster
		}
		made = Made{Record: old, Secret: text, Until: t.now.Add(within(overlap))}
		if err := t.exec("UPDATE "+s.keys+" SET secret_before = secret, secret_before_until = ?, secret = ? WHERE id = ?", made.Until, sealed, id); err != nil {
			return err
		}
		return t.audit(id, "secret_rotated", "the one before ends "+made.Until.Format(time.RFC3339Nano), who)
	})
	if err != nil {
		return Made{}, fmt.Errorf("rotate the signing secret of key %s: %w", id, err)
	}
	return made, nil
}

func within(overlap time.Duration) time.Duration {
	return min(max(overlap, 0), OverlapMax).Truncate(time.Millisecond)
}

// Revoke ends a key now. already says that it had ended.
func (s *Store) Revoke(ctx context.Context, id, who string) (already bool, err error) {
	if err := CheckWho(who); err != nil {
		return false, err
	}
	err = s.change(ctx, func(t *change) error {
		r, _, err := t.find(id)
		if err != nil {
			return err
		}
		if already = !r.RevokedAt.IsZero() && !r.RevokedAt.After(t.now); already {
			return nil
		}
		if err := t.exec("UPDATE "+s.keys+" SET revoked_at = ? WHERE id = ?", t.now, id); err != nil {
			return err
		}
		return t.audit(id, "revoked", "", who)
	})
	if err != nil {
		return false, fmt.Errorf("revoke key %s: %w", id, err)
	}
	return already, nil
}

// Reseal encrypts every signing secret of a living key with the first master key, so that
// the second isn't needed any more, and returns of how many keys that changed one.
func (s *Store) Reseal(ctx context.Context, who string) (keys int, err error) {
	if err := CheckWho(who); err != nil {
		return 0, err
	}
	err = s.change(ctx, func(t *change) error {
		all, err := scanKeys(t.query("SELECT " + columns + " FROM " + s.keys + living + " AND secret IS NOT NULL ORDER BY id"))
		if err != nil {
			return dberr.Clean(err)
		}
		for _, k := range all {
			secret, err1 := s.reseal(k.row.Secret, k.row.ID)
			before, err2 := s.reseal(k.row.Before, k.row.ID)
			switch {
			case s.masters.fresh(k.row.Secret) && (k.row.Before == nil || s.masters.fresh(k.row.Before)):
				continue
			case err1 != nil || err2 != nil:
				return fmt.Errorf("key %s: %w", k.row.ID, errors.Join(err1, err2))
			}
			if err := t.exec("UPDATE "+s.keys+" SET secret = ?, secret_before = ? WHERE id = ?", secret, before, k.row.ID); err != nil {
				return err
			}
			if err := t.audit(k.row.ID, "resealed", "", who); err != nil {
				return err
			}
			keys++
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("encrypt signing secrets anew: %w", err)
	}
	return keys, nil
}

func (s *Store) reseal(sealed []byte, id string) (any, error) {
	if sealed == nil {
		return nil, nil
	}
	raw, err := s.masters.open(sealed, id)
	if errors.Is(err, errNoMaster) {
		return nil, ErrNoMaster
	} else if err != nil {
		return nil, err
	}
	return s.masters.seal(raw, id)
}

// List returns the keys, the newest first, at most KeysMax: those that live, or all with
// those that were revoked.
func (s *Store) List(ctx context.Context, all bool) ([]Record, error) {
	where := ""
	if !all {
		where = living
	}
	var out []Record
	err := s.meta.Read(ctx, func(ctx context.Context, c *sql.Conn) error {
		found, err := scanKeys(c.QueryContext(ctx, "SELECT "+columns+" FROM "+s.keys+where+" ORDER BY created_at DESC, id LIMIT ?", KeysMax))
		for _, k := range found {
			out = append(out, k.Record)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	return out, nil
}

// An Audit is something that was done to a key.
type Audit struct {
	At     time.Time
	KeyID  string
	What   string // created, rotated, secret_rotated, revoked, resealed
	Detail string
	Who    string
}

// Audit returns what was done, the newest first, at most limit: to one key, or with id ""
// to all.
func (s *Store) Audit(ctx context.Context, id string, limit int) (out []Audit, err error) {
	err = s.meta.Read(ctx, func(ctx context.Context, c *sql.Conn) (err error) {
		rows, err := c.QueryContext(ctx, "SELECT at, key_id, what, detail, who FROM "+s.audits+" WHERE ? IN ('', key_id) ORDER BY id DESC LIMIT ?", id, limit)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		for rows.Next() {
			var a Audit
			if err := rows.Scan(&a.At, &a.KeyID, &a.What, &a.Detail, &a.Who); err != nil {
				return err
			}
			out = append(out, a)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("read what was done to keys: %w", err)
	}
	return out, nil
}

const (
	columns = "id, role, bid, refunds, hash, secret, secret_before, secret_before_until, note, created_at, created_by, revoked_at"
	living  = " WHERE (revoked_at IS NULL OR revoked_at > UTC_TIMESTAMP(3))"
)

// A key as it is stored, for people and for keyrings.
type storedKey struct {
	Record
	row row
}

func scanKeys(rows *sql.Rows, err error) (out []storedKey, _ error) {
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var k storedKey
		var bid sql.NullInt64
		var beforeUntil, revokedAt sql.NullTime
		var refunds int64 // as a bool, a 2 that somebody wrote would be an error of the whole list
		r := &k.row
		if err := rows.Scan(&r.ID, &r.Role, &bid, &refunds, &r.Hash, &r.Secret, &r.Before, &beforeUntil, &k.Note, &k.CreatedAt, &k.CreatedBy, &revokedAt); err != nil {
			return nil, err
		}
		r.BID, r.Refunds, r.BeforeUntil, r.RevokedAt = bid.Int64, refunds != 0, millis(beforeUntil), millis(revokedAt)
		role, _ := ParseRole(r.Role) // one that this program doesn't know is none
		k.ID, k.Role, k.BID, k.Refunds, k.Signed, k.RevokedAt = r.ID, role, r.BID, r.Refunds, r.Secret != nil, revokedAt.Time
		out = append(out, k)
	}
	return out, rows.Err()
}

func millis(t sql.NullTime) int64 {
	if !t.Valid {
		return 0
	}
	return t.Time.UnixMilli()
}

// A change is a transaction that changes keys.
type change struct {
	*Store
	ctx context.Context
	tx  *sql.Tx
	now time.Time // of the meta database, taken after all changes before
}

// changeMax bounds a change: it is a few statements.
const changeMax = 10 * time.Second

// change runs f in a transaction, after all other changes.
func (s *Store) change(ctx context.Context, f func(*change) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, changeMax)
	defer cancel()
	conn, err := s.meta.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			cluster.Discard(conn) // and with it whatever is open there
			return
		}
		_ = conn.Close()
	}()
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return dberr.Clean(err)
	}
	t := &change{Store: s, ctx: ctx, tx: tx}
	if err = t.begin(); err == nil {
		err = f(t)
	}
	if err != nil {
		_ = tx.Rollback() // where it fails, the end of the connection does it
		return err
	}
	err = dberr.Clean(tx.Commit())
	if dberr.Of(err) == dberr.Unknown {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return err
}

// begin takes the lock of all changes, and the time. A row that somebody deleted comes
// back, with a number that no keyring has seen: they read everything.
func (t *change) begin() error {
	if err := t.exec("INSERT INTO " + t.version + " (id, version) VALUES (1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3))) ON DUPLICATE KEY UPDATE version = version + 1"); err != nil {
		return err
	}
	return dberr.Clean(t.tx.QueryRowContext(t.ctx, "SELECT UTC_TIMESTAMP(3)").Scan(&t.now))
}

func (t *change) exec(text string, args ...any) error {
	_, err := t.tx.ExecContext(t.ctx, text, args...)
	return dberr.Clean(err)
}

func (t *change) query(text string, args ...any) (*sql.Rows, error) {
	rows, err := t.tx.QueryContext(t.ctx, text, args...)
	return rows, dberr.Clean(err)
}

// find returns a key.
func (t *change) find(id string) (Record, row, error) {
	found, err := scanKeys(t.query("SELECT "+columns+" FROM "+t.keys+" WHERE id = ?", id))
	switch {
	case err != nil:
		return Record{}, row{}, dberr.Clean(err)
	case len(found) == 0:
		return Record{}, row{}, ErrNoKey
	}
	return found[0].Record, found[0].row, nil
}

// living returns a key that has no end.
func (t *change) living(id string) (Record, row, error) {
	found, r, err := t.find(id)
	if err == nil && !found.RevokedAt.IsZero() {
		err = ErrEnding
	}
	return found, r, err
}

func (t *change) create(spec Spec, who, detail string) (made Made, err error) {
	if err := spec.Check(); err != nil {
		return Made{}, err // that of a key which an older or newer program made
	}
	var n int
	if err := t.tx.QueryRowContext(t.ctx, "SELECT COUNT(*) FROM "+t.keys+living).Scan(&n); err != nil {
		return Made{}, dberr.Clean(err)
	}
	if n >= KeysMax {
		return Made{}, ErrTooMany
	}
	id, text := newText(spec.Role)
	made = Made{Text: text, Record: Record{ID: id, Role: spec.Role, BID: spec.BID, Refunds: spec.Refunds, Signed: spec.Role == Channel,
		Note: spec.Note, CreatedAt: t.now, CreatedBy: who}}
	var sealed any
	if made.Signed {
		var raw []byte
		if made.Secret, raw, err = t.masters.newSecret(id); err != nil {
			return Made{}, ErrNoMaster
		}
		sealed = raw
	}
	hash := sha256.Sum256([]byte(text))
	bid := sql.NullInt64{Int64: spec.BID, Valid: spec.Role == Merchant}
	if err := t.exec("INSERT INTO "+t.keys+" (id, role, bid, refunds, hash, secret, note, created_at, created_by) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
		id, spec.Role.String(), bid, spec.Refunds, hash[:], sealed, spec.Note, t.now, who); err != nil {
		return Made{}, err
	}
	return made, t.audit(id, "created", detail, who)
}

func (t *change) audit(id, what, detail, who string) error {
	return t.exec("INSERT INTO "+t.audits+" (at, key_id, what, detail, who) VALUES (?, ?, ?, ?, ?)", t.now, id, what, detail, who)
}
