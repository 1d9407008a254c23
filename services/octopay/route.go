package main

import (
	"fmt"
	"strconv"

	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/internal/command"
	"github.com/octopay/octopay/services/internal/boot"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/slot"
	"github.com/octopay/octopay/syncer/mirrorpb"
)

type routeCmd struct {
	Key string `arg:"" name:"uid" help:"A buyer's uid, or with --bid a merchant's bid."`
	BID bool   `name:"bid" help:"It is a bid: say where the merchant's copies in the mirror are."`
}

// Run says where the rows of a key are.
func (c routeCmd) Run(s boot.Shared, to console) error {
	m, err := optionalMap(s)
	if err != nil {
		return err
	}
	name, cluster := "uid", shardmap.UID
	if c.BID {
		name, cluster = "bid", shardmap.BID
	}
	key, err := strconv.ParseInt(c.Key, 10, 64)
	if err != nil || key < 1 || strconv.FormatInt(key, 10) != c.Key {
		return command.Usage("%q is no %s: it is a whole number from 1 to 9223372036854775807, of digits alone, the first not 0", c.Key, name)
	}
	owner := slot.Of(key)
	fmt.Fprintf(to.out, "The slot of %s %d is %d, which is %s %% 640.\n\n", name, key, owner, name)
	if c.BID {
		fmt.Fprintf(to.out, "  group       %d, which is (bid / 10) %% 8, of the subjects that carry the copies\n", mirrorpb.Group(key))
	} else {
		id := idgen.Make(key, 0).String()
		fmt.Fprintf(to.out, "  shard info  %02d, which is (uid / 10) %% 64 + 1\n  order ids   begin with %s\n", owner.Info(), id[:4])
	}
	if m == nil {
		fmt.Fprintf(to.out, "  tables      order_%d and journal_%d\n\nThe database is\n", owner.Table(), owner.Table())
		everySize(to, owner, cluster)
		return nil
	}
	place(to, m.Database(cluster, m.Locate(key).Database), owner.Table())
	fmt.Fprintf(to.out, "\nThis is so by %s which may not be the one in force.\n", describe(m))
	return nil
}
