package rig

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/shardmap"
)

// An Engine is a MariaDB server as it says that it is set.
type Engine struct {
	Name       string
	Version    string
	BufferPool int64             // bytes
	Durable    map[string]string // the settings that make it durable
}

func (e Engine) String() string {
	var all []string
	for name, value := range e.Durable {
		all = append(all, name+"="+value)
	}
	slices.Sort(all)
	return fmt.Sprintf("%s: MariaDB %s, buffer pool %d MiB, %s", e.Name, e.Version, e.BufferPool>>20, strings.Join(all, " "))
}

// durable are the settings with which an acknowledged order outlives a power loss, and
// its binlog, which the mirror is made of. Figures of a server without them would be
// figures of something else.
var durable = []struct{ name, value string }{
	{"log_bin", "1"},
	{"sync_binlog", "1"},
	{"innodb_flush_log_at_trx_commit", "1"},
	{"innodb_doublewrite", "1"},
	{"binlog_format", "ROW"},
	{"binlog_row_image", "FULL"},
	{"binlog_row_metadata", "FULL"},
	{"binlog_annotate_row_events", "0"},
	{"gtid_strict_mode", "1"},
	{"log_slave_updates", "1"},
}

// engines asks every MariaDB server of a map for its settings. One that isn't durable is
// an error that names what is missing.
func engines(ctx context.Context, m *shardmap.Map, c cluster.Config) (all []Engine, err error) {
	seen := map[string]bool{}
	for _, cl := range []shardmap.Cluster{shardmap.UID, shardmap.BID} {
		for _, s := range m.Servers(cl) {
			if seen[s.Name] {
				continue
			}
			seen[s.Name] = true
			db := cluster.OpenServer(s, c)
			e, faults := engine(ctx, db, s.Name)
			err = errors.Join(err, faults, db.Close())
			all = append(all, e)
		}
	}
	return all, err
}

func engine(ctx context.Context, db *sql.DB, name string) (Engine, error) {
	e := Engine{Name: name, Durable: map[string]string{}}
	columns := []string{"@@version", "@@innodb_buffer_pool_size"}
	values := make([]string, len(durable))
	into := []any{&e.Version, &e.BufferPool}
	for i, setting := range durable {
		columns = append(columns, "@@GLOBAL."+setting.name)
		into = append(into, &values[i])
	}
	if err := db.QueryRowContext(ctx, "SELECT "+strings.Join(columns, ",")).Scan(into...); err != nil {
		return e, fmt.Errorf("rig: settings of %s: %w", name, err)
	}
	var faults []error
	for i, setting := range durable {
		e.Durable[setting.name] = values[i]
		if !strings.EqualFold(values[i], setting.value) {
			faults = append(faults, fmt.Errorf("rig: %s isn't durable: %s is %s, must be %s", name, setting.name, values[i], setting.value))
		}
	}
	return e, errors.Join(faults...)
}
