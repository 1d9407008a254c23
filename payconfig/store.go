package payconfig

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/dberr"
)

var (
	// ErrVersionConflict reports a Set that expected another version than the newest:
	// somebody else set one. Nothing was stored. Whoever wants his change still reads the
	// newest, and makes it again.
	ErrVersionConflict = errors.New("payconfig: another version is the newest")
	// ErrUnknown reports a Set whose outcome was not learned. The same call again settles
	// it.
	ErrUnknown = errors.New("payconfig: outcome unknown")
	// ErrNoVersion reports that there is no stored config of a version.
	ErrNoVersion = errors.New("payconfig: no such version")
)

// A DamagedError reports a stored config that is not the text of its hash, or isn't
// valid, for this program: one that is newer may know more. It is not in force.
type DamagedError struct {
	Version int64
	Cause   error
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("payconfig: stored version %d is not usable: %v", e.Version, e.Cause)
}

// Unwrap returns the cause.
func (e *DamagedError) Unwrap() error { return e.Cause }

// A Stored is a config as it is kept.
type Stored struct {
	*Snapshot
	By string    // who set it
	At time.Time // when, by the meta database's clock
}

// ByMax is the most characters that the name of who sets a config may have.
const ByMax = nameMax

const (
	setTries = 4               // of the same Set
	setMax   = 3 * time.Second // for one of them
	setPause = 50 * time.Millisecond
)

// A Store keeps every version in the meta database. It is safe for concurrent use.
type Store struct {
	meta  *cluster.Database
	table string
	turn  chan struct{} // one Set at a time: leases are renewed over the same connections
}

// NewStore returns the store in a migrated meta database.
func NewStore(meta *cluster.Database) *Store {
	return &Store{meta: meta, table: "`" + meta.Schema() + "`.payment_config", turn: make(chan struct{}, 1)}
}

// Newest returns the newest config, Default where none is stored. A *DamagedError is
// that of the newest; the ones before it can be asked for by Version.
//
// Errors of the database are cluster.ErrUnavailable or cluster.ErrBusy, here and below,
// and may be gone at the next try.
func (s *Store) Newest(ctx context.Context) (Stored, error) {
	stored, err := s.one(ctx, "ORDER BY version DESC LIMIT 1")
	if errors.Is(err, sql.ErrNoRows) {
		return Stored{Snapshot: Default()}, nil
	}
	return stored, err
}

// Version returns the config of a version; ErrNoVersion if there is none.
func (s *Store) Version(ctx context.Context, version int64) (Stored, error) {
	stored, err := s.one(ctx, "WHERE version = ?", version)
	if errors.Is(err, sql.ErrNoRows) {
		return Stored{}, ErrNoVersion
	}
	return stored, err
}

// before returns the newest of those that are older than a version; sql.ErrNoRows if
// there is none.
func (s *Store) before(ctx context.Context, version int64) (Stored, error) {
	return s.one(ctx, "WHERE version < ? ORDER BY version DESC LIMIT 1", version)
}

// newest returns version and hash of the newest, 0 and "" if there is none.
func (s *Store) newest(ctx context.Context) (version int64, hash string, err error) {
	err = s.meta.Read(ctx, func(ctx context.Context, c *sql.Conn) error {
		return c.QueryRowContext(ctx, "SELECT version, hash FROM "+s.table+" ORDER BY version DESC LIMIT 1").Scan(&version, &hash)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return 0, "", nil
	}
	return version, hash, wrap(err)
}

func (s *Store) one(ctx context.Context, where string, args ...any) (Stored, error) {
	var version int64
	var hash, text string
	var stored Stored
	err := s.meta.Read(ctx, func(ctx context.Context, c *sql.Conn) error {
		return c.QueryRowContext(ctx, "SELECT version, hash, text, set_by, set_at FROM "+s.table+" "+where, args...).
			Scan(&version, &hash, &text, &stored.By, &stored.At)
	})
	if err != nil {
		return Stored{}, wrap(err)
	}
	read, err := Decode([]byte(text))
	switch {
	case err != nil:
	case version < 1:
		err = errors.New("versions begin with 1")
	case read.text != text || read.hash != hash:
		err = errors.New("it is not the text of its hash")
	}
	if err != nil {
		return Stored{}, &DamagedError{Version: version, Cause: err}
	}
	stored.Snapshot = read.at(version)
	return stored, nil
}

func wrap(err error) error {
	if err == nil || errors.Is(err, sql.ErrNoRows) {
		return err
	}
	return fmt.Errorf("payment config: %w", err)
}

// Set stores a config as the version after expected, if expected is the newest (0: if
// there is none), and returns it as it is stored. c's own version doesn't matter. by says
// who sets it: 1 … ByMax characters, checked like a merchant's name.
//
// Of many who expect one version, one wins; the others get ErrVersionConflict. Whoever
// sets again what he has set, the same config on the same version, gets what he got; so
// a call whose answer was lost is settled by repeating it.
func (s *Store) Set(ctx context.Context, expected int64, c *Snapshot, by string) (Stored, error) {
	if w := checkName([]byte(by)); w != fine {
		return Stored{}, &InvalidError{Faults: []Fault{{Path: "by", Rule: w.rule, Text: w.text}}}
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return Stored{}, wrap(dberr.As(dberr.NotSent, ctx.Err()))
	}
	unknown := false
	for try := 1; ; try++ {
		stored, err := s.set(ctx, expected, c, by)
		class := dberr.Of(err)
		if err == nil || errors.Is(err, ErrVersionConflict) {
			return stored, err
		}
		unknown = unknown || class == dberr.Unknown
		again := try < setTries && (unknown || class == dberr.Retryable)
		if again && pause(ctx) {
			continue
		}
		switch {
		case unknown:
			return Stored{}, fmt.Errorf("%w: %w", ErrUnknown, err)
		case class == dberr.TooBig:
			return Stored{}, fmt.Errorf("payment config: its text is larger than max_allowed_packet of the meta database's server: %w", err)
		case class == dberr.Refused || errors.Is(err, cluster.ErrUnavailable):
			return Stored{}, wrap(err)
		}
		return Stored{}, fmt.Errorf("payment config: %w: %w", cluster.ErrUnavailable, err)
	}
}

// pause waits a little; it is false when ctx ended.
func pause(ctx context.Context) bool {
	timer := time.NewTimer(setPause + rand.N(setPause))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// set sends the packet once. Its first statement is the transaction: it adds the row if
// the newest is the expected one, and nothing if somebody added that version meanwhile,
// behind whom the primary key lets it wait. The second says whose the version is.
func (s *Store) set(ctx context.Context, expected int64, c *Snapshot, by string) (stored Stored, err error) {
	ctx, cancel := context.WithTimeout(ctx, setMax)
	defer cancel()
	conn, err := s.meta.Conn(ctx)
	if err != nil {
		return Stored{}, dberr.As(dberr.NotSent, err)
	}
	defer func() {
		if err != nil && !errors.Is(err, ErrVersionConflict) {
			err = dberr.Clean(err)
			cluster.Discard(conn)
			return
		}
		_ = conn.Close()
	}()
	rows, err := conn.QueryContext(ctx, "INSERT INTO "+s.table+" (version, hash, text, set_by, set_at)"+
		" SELECT ?, ?, ?, ?, UTC_TIMESTAMP(3) FROM DUAL WHERE (SELECT COALESCE(MAX(version), 0) FROM "+s.table+" AS kept) = ?"+
		" ON DUPLICATE KEY UPDATE version = VALUES(version);"+
		"SELECT hash, set_by, set_at FROM "+s.table+" WHERE version = ?",
		expected+1, c.hash, c.text, by, expected, expected+1)
	if err != nil {
		return Stored{}, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var hash string
	for {
		for rows.Next() {
			if err := rows.Scan(&hash, &stored.By, &stored.At); err != nil {
				return Stored{}, err
			}
		}
		if !rows.NextResultSet() {
			break
		}
	}
	if err := rows.Err(); err != nil {
		return Stored{}, err
	}
	if hash != c.hash || stored.By != by {
		return Stored{}, ErrVersionConflict
	}
	stored.Snapshot = c.at(expected + 1)
	return stored, nil
}
