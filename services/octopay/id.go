package main

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/services/internal/boot"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/slot"
)

type idCmd struct {
	OrderID string `arg:"" name:"order-id" help:"The 23 digits."`
	Live    bool   `name:"live" help:"Look the order up in both clusters and say whether they agree. Exits with 1 if the truth hasn't it, or they differ."`
}

// futureMax is how far the time in an id may lie ahead of this machine's clock: clocks
// differ a little.
const futureMax = time.Minute

// timeLayout is how times are shown.
const timeLayout = "2006-01-02 15:04:05.000 UTC"

// Run explains an id, with the place that it leads to.
func (c idCmd) Run(ctx context.Context, s boot.Shared, to console) error {
	m, err := optionalMap(s)
	if err != nil {
		return err
	}
	if faults := faultsOf(c.OrderID, to.now); len(faults) > 0 {
		fmt.Fprintf(to.out, "%q names no order:\n", c.OrderID)
		for _, f := range faults {
			fmt.Fprintf(to.out, "  - %s\n", f)
		}
		return errSaid
	}
	id, err := idgen.Parse(c.OrderID)
	if err != nil {
		return err // faultsOf knows all faults; a test holds it to that
	}
	if c.Live {
		return live(ctx, s, to, id)
	}
	owner := slot.Slot((id.Info()-1)*slot.Tables + id.Table())
	fmt.Fprintf(to.out, `%s is an order id of version %d.

  shard info  %02d, which is (uid / 10) %% 64 + 1
  table       %d, which is uid %% 10; the buyer's slot, uid %% 640, is %d
  snowflake   %d, the primary key of the order
    time      %s, when the order was created
    worker    %d
    sequence  %d, of 0 to %d in one millisecond

`, id, idgen.Version, id.Info(), id.Table(), owner, id.Snowflake(),
		id.Time().Format(timeLayout), id.Worker(), id.Seq(), idgen.PerMilli-1)
	if m == nil {
		fmt.Fprintf(to.out, "The order, if there is one, is in order_%d of database\n", id.Table())
		everySize(to, owner, shardmap.UID)
		return nil
	}
	loc := m.LocateInfo(id.Info(), id.Table())
	fmt.Fprintf(to.out, "By %s the order, if there is one, is in\n", describe(m))
	place(to, m.Database(shardmap.UID, loc.Database), loc.Table)
	return nil
}

// faultsOf returns everything that is wrong with s as an order id, each as a sentence.
func faultsOf(s string, now time.Time) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if s == "" {
		return []string{"It is empty."}
	}
	digits := true
	for i, r := range []rune(s) {
		if r >= '0' && r <= '9' {
			continue
		}
		digits = false
		what := "not one of 0 to 9"
		switch {
		case unicode.IsSpace(r):
			what = "white space"
		case unicode.IsLetter(r):
			what = "a letter"
		case r == utf8.RuneError:
			what = "not UTF-8"
		}
		if len(faults) < 3 {
			fault("Character %d is %s.", i+1, what)
		} else {
			fault("More characters are no digits.")
			break
		}
	}
	if n := utf8.RuneCountInString(s); n != idgen.Digits {
		hint := ""
		switch trimmed := strings.TrimSpace(s); {
		case trimmed != s && len(trimmed) == idgen.Digits && len(faultsOf(trimmed, now)) == 0:
			hint = " Without the space around it, it is one."
		case digits && n <= 19:
			hint = " A primary key (the snowflake) has at most 19; an id has four digits before it."
		}
		unit := "characters"
		if n == 1 {
			unit = "character"
		}
		fault("It has %d %s; an order id has %d digits.%s", n, unit, idgen.Digits, hint)
	}
	if len(faults) > 0 {
		return faults
	}
	if s[0] != '0'+idgen.Version {
		fault("The version, digit 1, is %c; the only version is %d.", s[0], idgen.Version)
	}
	if info := s[1:3]; info < "01" || info > fmt.Sprint(slot.MaxDatabases) {
		fault("The shard info, digits 2 and 3, is %s; it is 01 to %d.", info, slot.MaxDatabases)
	}
	// What is left can be judged by itself: of digits of one length the greater number
	// is the greater string.
	const maxSnowflake = "9223372036854775807"
	if snowflake := s[4:]; snowflake > maxSnowflake {
		fault("The snowflake, digits 5 to 23, is above %s, so it has more than 63 bits.", maxSnowflake)
	} else if id, err := idgen.Parse("1010" + snowflake); err == nil && id.Time().After(now.Add(futureMax)) {
		fault("Its time, %s, is in the future: this machine's clock says %s.", id.Time().Format(timeLayout), now.UTC().Format(timeLayout))
	}
	return faults
}

// everySize lists the database that owns a slot in clusters of every size.
func everySize(to console, s slot.Slot, c shardmap.Cluster) {
	for _, n := range []int{8, 16, 32, 64} {
		fmt.Fprintf(to.out, "  %2d of %2d: octopay_%s_%02d\n", s.Database(n), n, c, s.Database(n))
	}
}

// place says where the tables of a location are.
func place(to console, db shardmap.Database, table int) {
	fmt.Fprintf(to.out, "  database    %d, schema %s\n  tables      order_%d and journal_%d\n  server      %s, %s\n",
		db.Number, db.Schema, table, table, db.Server.Name, db.Server.Address)
}

func describe(m *shardmap.Map) string {
	return fmt.Sprintf("the map of epoch %d, of %d databases and hash %.12s…,", m.Epoch(), m.Size(), m.Hash())
}
