package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/services/internal/boottest"
	"github.com/octopay/octopay/shardmap"
)

// Both orders' buyer and merchant: uid 9527 is in database 1, table 7; bid 1001 in
// database 5, table 1.
const liveUID, liveBID = 9527, 1001

func TestLive(t *testing.T) {
	e := newEstate(t, localstack.UID, localstack.BID, localstack.Meta)
	truth, copies := e.c.Database(shardmap.UID, 1), e.c.Database(shardmap.BID, 5)
	// The mirror has everything that changed in the first hour of this layout's time.
	until := schema.MillisOf(idgen.Epoch.Add(time.Hour))
	e.exec(t, copies, "INSERT INTO %s.mark (server, gtid, at) VALUES ('uid-a', '1-1-1', ?)", until)

	changed := func(o schema.Order, change func(*schema.Order)) *schema.Order {
		change(&o)
		return &o
	}
	paid := func(o *schema.Order) {
		o.Status, o.Ver, o.PaidAmount, o.Channel, o.ChannelTradeNo, o.PaidAt = schema.Paid, 2, o.Amount, "wechat", "4200", o.UpdatedAt
	}
	first, inTime, late := idgen.FirstAt(idgen.Epoch.Add(time.Minute)), idgen.Epoch.Add(time.Minute), idgen.Epoch.Add(2*time.Hour)
	for i, c := range []struct {
		name          string
		made          time.Time
		truth, mirror func(schema.Order) *schema.Order
		code          int
		want          []string // in the output
	}{
		{"both have it", inTime, as, as, 0, []string{
			"octopay_uid_01.order_7 on uid-a, ", "octopay_bid_05.order_1 on bid-a, ", "version 1, created, last changed at 2025-01-01 00:01:00.000 UTC",
			"every change before 2025-01-01 01:00:00.000 UTC", "They agree, in all 22 columns."}},
		{"the mirror doesn't have it yet", late, as, none, 0, []string{"it is not there", "The mirror does not have it yet: it is behind."}},
		{"the mirror should have it", inTime, as, none, 1, []string{"it is not there", "The mirror does not have it, though it says that it is complete"}},
		{"the mirror is behind", late, func(o schema.Order) *schema.Order { return changed(o, paid) }, as, 0, []string{"version 2, paid", "version 1, created", "The mirror is behind: it has version 1, and the truth version 2."}},
		{"the mirror lacks a change", inTime, func(o schema.Order) *schema.Order { return changed(o, paid) }, as, 1, []string{
			"They differ in 6 of 22 columns", "status            paid                         created\n", "paid_amount       19900                        0\n",
			"paid_at           2025-01-01 00:01:00.000 UTC  null\n", "channel_trade_no  (text)                       (text)\n", "The mirror lacks a change"}},
		{"one version is two things", late, as, func(o schema.Order) *schema.Order {
			return changed(o, func(o *schema.Order) { o.Amount, o.Subject, o.CloseReason = 1, "secret", schema.ByBuyer })
		}, 1, []string{"They differ in 3 of 22 columns", "amount        19900", "  1\n", "subject       (text)", "close_reason  null", "buyer\n", "One version is two things."}},
		{"the mirror is ahead", late, as, func(o schema.Order) *schema.Order { return changed(o, paid) }, 1, []string{"The mirror is ahead of the truth."}},
		{"only the mirror has it", inTime, none, as, 1, []string{"octopay_bid_05.order_1", "The truth does not have it, and the mirror does."}},
		{"nobody has it", inTime, none, none, 1, []string{"octopay_uid_01.order_7", "it is in no database of the mirror", "There is no such order."}},
		{"it is another buyer's", inTime, func(o schema.Order) *schema.Order { return changed(o, func(o *schema.Order) { o.UID += 80 }) }, none, 1, []string{
			"The id names no order: that row is of buyer 9607"}},
	} {
		key := first + int64(i)
		if c.made.Equal(late) {
			key = idgen.FirstAt(late) + int64(i)
		}
		o := orderOf(liveUID, liveBID, key)
		if row := c.truth(o); row != nil {
			e.insert(t, truth, 7, *row)
		}
		if row := c.mirror(o); row != nil {
			e.insert(t, copies, 1, *row)
		}
		code, stdout, stderr := octopay(t, e.env, "id", o.OrderID().String(), "--live")
		if code != c.code || stderr != "" || strings.Contains(stdout, "secret") {
			t.Errorf("%s: exit %d, want %d: %s\n%s", c.name, code, c.code, stderr, stdout)
		}
		for _, want := range c.want {
			if !strings.Contains(strings.ReplaceAll(stdout, e.stack.Map.Prefix(), ""), want) {
				t.Errorf("%s: it doesn't say %q:\n%s", c.name, want, stdout)
			}
		}
	}

	// One that somebody put where it doesn't belong is there nonetheless.
	for i, at := range []struct {
		database, table int
	}{{1, 8}, {6, 7}} {
		o := orderOf(liveUID, liveBID, first+int64(100+i))
		e.insert(t, e.c.Database(shardmap.UID, at.database), at.table, o)
		code, stdout, _ := octopay(t, e.env, "id", "--live", o.OrderID().String())
		stdout = strings.ReplaceAll(stdout, e.stack.Map.Prefix(), "")
		if code != 1 || !strings.Contains(stdout, fmt.Sprintf("octopay_uid_%02d.order_%d on uid-a, ", at.database, at.table)) ||
			!strings.Contains(stdout, "octopay_uid_01.order_7 on uid-a, ") || !strings.Contains(stdout, "in another place than its id leads to") {
			t.Errorf("in table %d of database %d: exit %d\n%s", at.table, at.database, code, stdout)
		}
	}

	if code, stdout, _ := octopay(t, e.env, "id", "123", "--live"); code != 1 || !strings.Contains(stdout, "names no order") {
		t.Errorf("no id: exit %d, %s", code, stdout)
	}
}

func as(o schema.Order) *schema.Order { return &o }
func none(schema.Order) *schema.Order { return nil }

// Whoever looks must not put a map in force, and learns which database is away.
func TestLiveChangesNothing(t *testing.T) {
	s := localstack.Test(t, localstack.Meta)
	e := &estate{stack: s, c: s.Cluster(t), env: boottest.Environ(t, s, s.Map)}
	code, stdout, stderr := octopay(t, e.env, "id", idgen.Make(liveUID, 7).String(), "--live")
	if code != 1 || stderr != "" || !strings.Contains(stdout, "octopay_uid_01.order_7 on uid-a") || !strings.Contains(stdout, "it could not be asked: ") ||
		!strings.Contains(stdout, "The truth could not be asked, so nobody can say") {
		t.Errorf("exit %d, %s\n%s", code, stderr, stdout)
	}
	if m, err := cluster.MapInForce(t.Context(), e.c, s.Map); m != nil || err != nil {
		t.Errorf("there is a map in force now, %v", err)
	}
}

// What is away is named, and what isn't is shown, whichever it is.
func TestLiveShowsWhatItCan(t *testing.T) {
	s := localstack.Private(t, localstack.Options{Need: []localstack.Need{localstack.UID, localstack.BID, localstack.Meta}})
	e := &estate{stack: s, c: s.Cluster(t), env: boottest.Environ(t, s, s.Map)}
	if _, err := cluster.ResolveMap(t.Context(), e.c, s.Map); err != nil {
		t.Fatal(err)
	}
	both, truthAlone := orderOf(liveUID, liveBID, idgen.FirstAt(idgen.Epoch.Add(time.Minute))), orderOf(liveUID, liveBID, idgen.FirstAt(idgen.Epoch.Add(time.Hour)))
	e.insert(t, e.c.Database(shardmap.UID, 1), 7, both, truthAlone)
	e.insert(t, e.c.Database(shardmap.BID, 5), 1, both)
	look := func(what, id string, want ...string) {
		t.Helper()
		began := time.Now()
		code, stdout, stderr := octopay(t, e.env, "id", "--live", id)
		if code != 1 || stderr != "" || time.Since(began) > 3*time.Minute {
			t.Errorf("%s: exit %d after %s, %s\n%s", what, code, time.Since(began), stderr, stdout)
		}
		for _, w := range want {
			if !strings.Contains(stdout, w) {
				t.Errorf("%s: it doesn't say %q:\n%s", what, w, stdout)
			}
		}
	}
	none := idgen.Make(liveUID, both.ID+1).String()

	mirror := s.Server("bid-a")
	if err := mirror.Pause(); err != nil {
		t.Fatal(err)
	}
	look("the mirror is frozen", both.OrderID().String(), "version 1, created", "octopay_bid_05.order_1 on bid-a", "it could not be asked: ", "The truth has it; the mirror could not be asked.")
	if err := mirror.Kill(); err != nil {
		t.Fatal(err)
	}
	look("the mirror is away", none, "octopay_bid_01 on bid-a", "octopay_bid_08 on bid-a", "The truth does not have it, so there is no such order. Not all of the mirror could be asked.")
	if err := mirror.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Server("uid-a").Kill(); err != nil {
		t.Fatal(err)
	}
	look("the truth and the map are away", both.OrderID().String(), "The map in force could not be read: ", "What follows is by the file.", "octopay_uid_01.order_7 on uid-a", "octopay_bid_05.order_1 on bid-a", "The mirror has it; the truth could not be asked.")
	look("the truth is away, and the mirror lacks it", truthAlone.OrderID().String(), "The truth could not be asked, so nobody can say whether there is such an order.")
}

// What is shown of texts is that they differ.
func TestNoTextIsShown(t *testing.T) {
	o := schema.Order{Channel: "c", ChannelTradeNo: "n"} // "" is NULL
	for i, name := range schema.OrderColumns {
		_, text := o.Values()[i].(string)
		if text != slices.Contains(textColumns, name) && name != "currency" {
			t.Errorf("%s is a text: %v", name, text)
		}
	}
}
