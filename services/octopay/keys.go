package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/octopay/octopay/auth"
	"github.com/octopay/octopay/internal/command"
	"github.com/octopay/octopay/services/internal/boot"
)

type keysCmd struct {
	Create createKey `cmd:"" name:"create" help:"Make a key. It is shown once, and works within 5 seconds."`
	List   listKeys  `cmd:"" name:"list" help:"List the keys that live, the newest first."`
	Rotate rotateKey `cmd:"" name:"rotate" help:"Make a successor of a key, with the same rights; the key itself lives for --overlap longer."`
	Revoke revokeKey `cmd:"" name:"revoke" help:"End keys. They are refused within 5 seconds."`
	Reseal resealKey `cmd:"" name:"reseal" help:"Encrypt all signing secrets with the first master key, so that the second isn't needed any more."`
	Audit  auditKeys `cmd:"" name:"audit" help:"Show what was done to keys, by whom, the newest first."`
}

// A changer is who changes keys.
type changer struct {
	By string `name:"by" placeholder:"NAME" help:"Who does it, for the audit; without it this machine's user."`
}

// name returns who it is.
func (c changer) name() (string, error) {
	name := c.By
	if name == "" {
		host, err := os.Hostname()
		if u, err2 := user.Current(); err == nil && err2 == nil {
			name = u.Username + "@" + host
		}
		if auth.CheckWho(name) != nil {
			return "", command.Usage("--by must say who does it: this machine's user has no name for that")
		}
	}
	if err := auth.CheckWho(name); err != nil {
		return "", command.Usage("--by: %w", err)
	}
	return name, nil
}

// inKeys calls f with the keys of the map in force.
func inKeys(ctx context.Context, s boot.Shared, f func(*auth.Store) error) error {
	masters, err := s.Masters()
	if err != nil {
		return command.Usage("%w", err)
	}
	c, err := inForce(ctx, s)
	if err != nil {
		return err
	}
	return errors.Join(advised(f(auth.NewStore(c.Meta(), masters))), c.Close())
}

// advised adds what to do about an error.
func advised(err error) error {
	switch {
	case errors.Is(err, auth.ErrNoMaster):
		return command.Usage("%w: master_key_file (OCTOPAY_MASTER_KEY_FILE) or OCTOPAY_MASTER_KEY", err)
	case errors.Is(err, auth.ErrUnknown):
		return fmt.Errorf("%w; octopay keys audit says it. A key that was made so was shown to nobody: revoke it", err)
	}
	return err
}

// idsOf reads ids of keys. What isn't one may be a key with a slip in it, so it is not
// repeated.
func idsOf(args ...string) (ids []string, err error) {
	for i, arg := range args {
		id, err := auth.ParseID(arg)
		if err != nil {
			return nil, command.Usage("key %d of %d: %w", i+1, len(args), err)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// A keyJSON is a key in JSON. What is shown once is in it when it is made.
type keyJSON struct {
	ID        string     `json:"id"`
	Role      string     `json:"role"`
	BID       string     `json:"bid,omitempty"`
	Refunds   bool       `json:"refunds"`
	Signed    bool       `json:"signed"`
	State     string     `json:"state"` // living, ending, revoked
	Note      string     `json:"note"`
	CreatedAt time.Time  `json:"created_at"`
	CreatedBy string     `json:"created_by"`
	EndsAt    *time.Time `json:"ends_at,omitempty"`

	Key            string     `json:"key,omitempty"`
	SigningSecret  string     `json:"signing_secret,omitempty"`
	Replaces       string     `json:"replaces,omitempty"` // the key whose successor it is
	ReplacedEndsAt *time.Time `json:"replaced_ends_at,omitempty"`
}

func jsonOf(r auth.Record, now time.Time) keyJSON {
	out := keyJSON{ID: r.ID, Role: roleOf(r), Refunds: refunds(r), Signed: r.Signed, State: stateOf(r, now),
		Note: r.Note, CreatedAt: r.CreatedAt, CreatedBy: r.CreatedBy, EndsAt: optional(r.RevokedAt)}
	if r.Role == auth.Merchant {
		out.BID = strconv.FormatInt(r.BID, 10)
	}
	return out
}

func roleOf(r auth.Record) string {
	if r.Role == 0 {
		return "unknown" // a newer program's
	}
	return r.Role.String()
}

func refunds(r auth.Record) bool { return r.Refunds || r.Role == auth.Merchant }

func stateOf(r auth.Record, now time.Time) string {
	switch {
	case r.RevokedAt.IsZero():
		return "living"
	case r.RevokedAt.After(now):
		return "ending"
	}
	return "revoked"
}

func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// showOnce shows what is shown once.
func showOnce(to console, made auth.Made, replaces string, asJSON bool) error {
	var err error
	if asJSON {
		out := jsonOf(made.Record, to.now)
		out.Key, out.SigningSecret, out.Replaces, out.ReplacedEndsAt = made.Text, made.Secret, replaces, optional(made.Until)
		err = json.NewEncoder(to.out).Encode(out)
	} else {
		_, err = to.out.Write([]byte(textOf(made, replaces)))
	}
	if err != nil {
		return fmt.Errorf("key %s was changed and could not be shown; what is new of it nobody has: revoke it: %w", made.ID, err)
	}
	return nil
}

func textOf(made auth.Made, replaces string) string {
	of := ""
	if made.Role == auth.Merchant {
		of = fmt.Sprintf(" of bid %d", made.BID)
	}
	out := fmt.Sprintf("Key %s of role %s%s is made.", made.ID, made.Role, of)
	if made.Text == "" {
		out = fmt.Sprintf("Key %s has a new signing secret; the one before is good until %s.", made.ID, made.Until.Format(timeLayout))
	} else if replaces != "" {
		out += fmt.Sprintf(" It replaces %s, which is good until %s.", replaces, made.Until.Format(timeLayout))
	}
	out += " It works within 5 seconds.\nThis is shown once, and nobody can read it again:\n\n"
	if made.Text != "" {
		out += "  key             " + made.Text + "\n"
	}
	if made.Secret != "" {
		out += "  signing secret  " + made.Secret + "\n"
	}
	return out
}

type createKey struct {
	changer `embed:""`
	Role    string `name:"role" required:"" placeholder:"ROLE" help:"app, merchant, channel or ops. A channel's key gets a signing secret as well."`
	BID     string `name:"bid" placeholder:"BID" help:"The merchant of a merchant's key."`
	Refunds bool   `name:"refunds" help:"An app's key that may refund."`
	Note    string `name:"note" placeholder:"TEXT" help:"For people: what it is for."`
	JSON    bool   `name:"json" help:"One JSON object."`
}

// spec reads the flags.
func (c createKey) spec() (s auth.Spec, err error) {
	if s.Role, err = auth.ParseRole(c.Role); err != nil {
		return s, fmt.Errorf("--role: %w", err)
	}
	if c.BID != "" {
		s.BID, err = strconv.ParseInt(c.BID, 10, 64)
		if err != nil || s.BID < 1 || strconv.FormatInt(s.BID, 10) != c.BID {
			return s, errors.New("--bid must be a whole number from 1 to 9223372036854775807, of digits alone, the first not 0")
		}
	}
	s.Refunds, s.Note = c.Refunds, c.Note
	switch {
	case s.Role == auth.Merchant && s.BID == 0:
		return s, errors.New("--bid must be given for a merchant's key")
	case s.Role != auth.Merchant && s.BID != 0:
		return s, errors.New("--bid is for a merchant's key alone")
	case s.Refunds && s.Role != auth.App:
		return s, errors.New("--refunds is for an app's key alone: a merchant's may always refund, and others never")
	}
	if err := s.Check(); err != nil {
		return s, fmt.Errorf("--note: %w", err) // all else was looked at
	}
	return s, nil
}

// Validate implements kong's: what it returns is an error of the command line.
func (c createKey) Validate() error {
	_, err := c.spec()
	return err
}

// Run makes a key.
func (c createKey) Run(ctx context.Context, s boot.Shared, to console) error {
	spec, err := c.spec()
	if err != nil {
		return command.Usage("%w", err)
	}
	by, err := c.name()
	if err != nil {
		return err
	}
	return inKeys(ctx, s, func(store *auth.Store) error {
		made, err := store.Create(ctx, spec, by)
		if err != nil {
			return err
		}
		return showOnce(to, made, "", c.JSON)
	})
}

type rotateKey struct {
	changer `embed:""`
	Key     string        `arg:"" name:"key" help:"Its id, or the whole key."`
	Overlap time.Duration `name:"overlap" default:"24h" placeholder:"TIME" help:"How long what is replaced lives on: 0s to 720h; a day unless it is given. 0s where it leaked."`
	Secret  bool          `name:"signing-secret" help:"Replace only the signing secret of a channel's key."`
	JSON    bool          `name:"json" help:"One JSON object."`
}

// Validate implements kong's: what it returns is an error of the command line.
func (c rotateKey) Validate() error {
	if c.Overlap < 0 || c.Overlap > auth.OverlapMax {
		return fmt.Errorf("--overlap must be from 0s to %.0fh", auth.OverlapMax.Hours())
	}
	return nil
}

// Run makes a successor.
func (c rotateKey) Run(ctx context.Context, s boot.Shared, to console) error {
	ids, err := idsOf(c.Key)
	if err != nil {
		return err
	}
	by, err := c.name()
	if err != nil {
		return err
	}
	return inKeys(ctx, s, func(store *auth.Store) error {
		rotate, replaces := store.Rotate, ids[0]
		if c.Secret {
			rotate, replaces = store.RotateSecret, ""
		}
		made, err := rotate(ctx, ids[0], c.Overlap, by)
		if err != nil {
			return err
		}
		return showOnce(to, made, replaces, c.JSON)
	})
}

type revokeKey struct {
	changer `embed:""`
	Keys    []string `arg:"" name:"key" help:"Its id, or the whole key. May be given again."`
}

// Run revokes keys: all that it can, whatever becomes of the others.
func (c revokeKey) Run(ctx context.Context, s boot.Shared, to console) error {
	ids, err := idsOf(c.Keys...)
	if err != nil {
		return err
	}
	by, err := c.name()
	if err != nil {
		return err
	}
	return inKeys(ctx, s, func(store *auth.Store) (errs error) {
		for _, id := range ids {
			already, err := store.Revoke(ctx, id, by)
			switch {
			case err != nil:
				errs = errors.Join(errs, err)
			case already:
				fmt.Fprintf(to.out, "Key %s was revoked before.\n", id)
			default:
				fmt.Fprintf(to.out, "Key %s is revoked. It is refused within 5 seconds where the meta database is reached, and elsewhere within an hour.\n", id)
			}
		}
		return errs
	})
}

type resealKey struct {
	changer `embed:""`
}

// Run encrypts signing secrets anew.
func (c resealKey) Run(ctx context.Context, s boot.Shared, to console) error {
	by, err := c.name()
	if err != nil {
		return err
	}
	return inKeys(ctx, s, func(store *auth.Store) error {
		n, err := store.Reseal(ctx, by)
		if err == nil {
			fmt.Fprintf(to.out, "Keys whose signing secrets were encrypted anew: %d. All are under the first master key.\n", n)
		}
		return err
	})
}

type listKeys struct {
	All   bool `name:"all" help:"With those that were revoked."`
	Limit int  `name:"limit" default:"1000" help:"Show at most so many."`
	JSON  bool `name:"json" help:"One JSON object a line."`
}

// Validate implements kong's: what it returns is an error of the command line.
func (c listKeys) Validate() error { return limited(c.Limit) }

func limited(limit int) error {
	if limit < 1 || limit > auth.KeysMax {
		return fmt.Errorf("--limit must be from 1 to %d", auth.KeysMax)
	}
	return nil
}

// Run lists keys.
func (c listKeys) Run(ctx context.Context, s boot.Shared, to console) error {
	return inKeys(ctx, s, func(store *auth.Store) error {
		keys, err := store.List(ctx, c.All)
		if err != nil {
			return err
		}
		shown := keys[:min(len(keys), c.Limit)]
		if c.JSON {
			out := json.NewEncoder(to.out)
			for _, k := range shown {
				if err := out.Encode(jsonOf(k, to.now)); err != nil {
					return err
				}
			}
			return nil
		}
		table := tabwriter.NewWriter(to.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "KEY\tROLE\tBID\tREFUNDS\tSIGNED\tMADE\tBY\tSTATE\tNOTE")
		for _, k := range shown {
			j, state := jsonOf(k, to.now), stateOf(k, to.now)
			if !k.RevokedAt.IsZero() {
				state += " " + k.RevokedAt.Format(timeLayout)
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", j.ID, j.Role, j.BID, yes(j.Refunds), yes(j.Signed), j.CreatedAt.Format(timeLayout), j.CreatedBy, state, j.Note)
		}
		if err := table.Flush(); err != nil {
			return err
		}
		_, err = fmt.Fprintf(to.out, "\nKeys: %d. Shown: %d.\n", len(keys), len(shown))
		return err
	})
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

type auditKeys struct {
	Key   string `arg:"" optional:"" name:"key" help:"Only of this one: its id, or the whole key."`
	Limit int    `name:"limit" default:"100" help:"Show at most so many."`
	JSON  bool   `name:"json" help:"One JSON object a line."`
}

// Validate implements kong's: what it returns is an error of the command line.
func (c auditKeys) Validate() error { return limited(c.Limit) }

// Run shows what was done to keys.
func (c auditKeys) Run(ctx context.Context, s boot.Shared, to console) error {
	id := ""
	if c.Key != "" {
		ids, err := idsOf(c.Key)
		if err != nil {
			return err
		}
		id = ids[0]
	}
	return inKeys(ctx, s, func(store *auth.Store) error {
		all, err := store.Audit(ctx, id, c.Limit)
		if err != nil {
			return err
		}
		if c.JSON {
			out := json.NewEncoder(to.out)
			for _, a := range all {
				if err := out.Encode(struct {
					At     time.Time `json:"at"`
					Key    string    `json:"key_id"`
					What   string    `json:"what"`
					Detail string    `json:"detail,omitempty"`
					Who    string    `json:"who"`
				}{a.At, a.KeyID, a.What, a.Detail, a.Who}); err != nil {
					return err
				}
			}
			return nil
		}
		table := tabwriter.NewWriter(to.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "AT\tKEY\tWHAT\tBY\tDETAIL")
		for _, a := range all {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", a.At.Format(timeLayout), a.KeyID, a.What, a.Who, a.Detail)
		}
		return table.Flush()
	})
}
