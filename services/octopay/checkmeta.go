package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/octopay/octopay/auth"
	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/dberr"
	"github.com/octopay/octopay/payconfig"
	"github.com/octopay/octopay/services/internal/boot"
	"github.com/octopay/octopay/shardmap"
)

// keysNamed bounds how many keys one finding names.
const keysNamed = 10

// keysAndConfig looks at what programs read of the meta database before they are ready:
// the keys of the API and the payment config. masters may be nil. A table that isn't there
// is said by the check of its schema.
func (r *report) keysAndConfig(ctx context.Context, m *shardmap.Map, config cluster.Config, masters *auth.Masters) {
	c := cluster.Open(m, config)
	defer func() { _ = c.Close() }()
	where := m.Meta().String()
	survey, err := auth.NewStore(c.Meta(), masters).Survey(ctx)
	switch {
	case err == nil:
		r.keys(where, survey, masters != nil)
	case !isMissingTable(err):
		r.differs(where, "keys: %v", dberr.Clean(err))
	}
	stored, err := payconfig.NewStore(c.Meta()).Newest(ctx)
	var damaged *payconfig.DamagedError
	switch {
	case err == nil:
		r.config(stored)
	case errors.As(err, &damaged):
		r.differs(where, "payment config: version %d, the newest, is in force nowhere: %v; octopay config set --if-version %d sets one on top of it", damaged.Version, damaged.Cause, damaged.Version)
	case !isMissingTable(err):
		r.differs(where, "payment config: %v", dberr.Clean(err))
	}
}

// keys judges the keys of the API.
func (r *report) keys(where string, s auth.Survey, opened bool) {
	var roles []string
	for role := auth.App; role <= auth.Ops; role++ {
		roles = append(roles, fmt.Sprintf("%d %s", s.Living[role], role))
	}
	r.note("Keys: %s; %d of them sign, %d end later. Revoked: %d.", strings.Join(roles, ", "), s.Signing, s.Ending, s.Revoked)
	if len(s.Strange) > 0 {
		r.differs(where, "keys: %d are none for this program, and refused: %s", len(s.Strange), named(s.Strange))
	}
	switch {
	case opened && len(s.Sealed) > 0:
		r.differs(where, "keys: the signing secrets of %d are decrypted by no master key that is set here, and programs with these master keys refuse them: %s", len(s.Sealed), named(s.Sealed))
	case !opened && s.Signing > 0:
		r.note("Keys: master_key_file (%sMASTER_KEY_FILE) is not set: whether the signing secrets of %d can be decrypted was not looked at.", boot.Prefix, s.Signing)
	}
}

// named names the first of some keys.
func named(flaws []auth.Flaw) string {
	var parts []string
	for _, f := range flaws[:min(len(flaws), keysNamed)] {
		parts = append(parts, fmt.Sprintf("%q (%v)", f.ID, f.Why))
	}
	if more := len(flaws) - keysNamed; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, ", ")
}

// config says which payment config is in force.
func (r *report) config(stored payconfig.Stored) {
	if stored.Version() == 0 {
		r.note("Payment config: none was ever set; every merchant may take orders.")
		return
	}
	enabled := 0
	for _, m := range stored.Merchants() {
		if m.Enabled {
			enabled++
		}
	}
	r.note("Payment config: version %d, set by %s at %s, with %s (%d enabled) and %s; unknown merchants: %s. Its hash is %s.",
		stored.Version(), stored.By, stored.At.UTC().Format(timeLayout), counted(len(stored.Merchants()), "merchant"), enabled,
		counted(len(stored.Channels()), "channel"), policy(stored.Snapshot), stored.Hash())
}

// isMissingTable reports whether a table, or its database, isn't there: not that the account
// may not read it.
func isMissingTable(err error) bool {
	var said *mysql.MySQLError
	return dberr.Of(err) == dberr.Missing && errors.As(err, &said) && !dberr.Denied(err)
}
