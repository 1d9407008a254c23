package auth

import (
	"context"
	"database/sql"
	"fmt"
)

// A Survey is what an operator looks at in the keys as a whole.
type Survey struct {
	Living  map[Role]int // by role, of keys that this program understands; also those that end later
	Ending  int          // of them those that end later, such as at the end of an overlap
	Signing int          // of them those that sign
	Revoked int
	// Strange are the ids of rows that are no keys for this program, and Sealed those of
	// keys whose signing secrets no master key here decrypts. Requests of both are refused.
	// Each says why, without a secret.
	Strange, Sealed []Flaw
}

// A Flaw is why a key is refused.
type Flaw struct {
	ID  string
	Why error
}

// Survey looks at all keys as a keyring with the store's master keys would. Without master
// keys Sealed holds every key that signs. More than KeysMax keys that live are ErrTooMany:
// no keyring reads so many; a row of versions that is missing is an error too.
func (s *Store) Survey(ctx context.Context) (Survey, error) {
	r, err := s.read(ctx, 0, true)
	if err != nil {
		return Survey{}, err
	}
	out := Survey{Living: map[Role]int{}}
	for i := range r.rows {
		k := &r.rows[i]
		e, err := k.entry(s.masters)
		if err != nil {
			out.Strange = append(out.Strange, Flaw{k.ID, err})
			continue
		}
		out.Living[e.key.Role]++
		if k.RevokedAt != 0 {
			out.Ending++
		}
		if e.key.Signed {
			out.Signing++
			if e.key.signing.err != nil {
				out.Sealed = append(out.Sealed, Flaw{k.ID, e.key.signing.err})
			}
		}
	}
	err = s.meta.Read(ctx, func(ctx context.Context, c *sql.Conn) error {
		return c.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+s.keys+" WHERE revoked_at <= UTC_TIMESTAMP(3)").Scan(&out.Revoked)
	})
	if err != nil {
		return Survey{}, fmt.Errorf("count the keys: %w", err)
	}
	return out, nil
}
