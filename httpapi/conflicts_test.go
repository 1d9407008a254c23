package httpapi

import (
	"fmt"
	"slices"
	"testing"

	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/syncer/conflict"
	"github.com/octopay/octopay/syncer/mirror"
)

// conflicted adds n conflicts of each kind, in turn.
func (s *service) conflicted(n int) {
	s.t.Helper()
	first := idgen.FirstAt(base)
	for i := range n {
		pairs := []conflict.Pair{
			{Kind: conflict.OutTradeNo, BID: 1001, Number: fmt.Sprintf("n%d", i), Orders: [2]conflict.Order{{ID: first, UID: 9527, BID: 1001}, {ID: first + 1, UID: 9528, BID: 1001}}},
			{Kind: conflict.ChannelTradeNo, Number: fmt.Sprintf("wechat:%d:x", i), Orders: [2]conflict.Order{{ID: first, UID: 9527, BID: 1001, Seq: 2}, {ID: first + 1, UID: 9528, BID: 1002, Seq: 3}}},
		}
		if _, err := s.conflicts.Add(s.t.Context(), pairs); err != nil {
			s.t.Fatal(err)
		}
	}
}

func TestConflictsAreListed(t *testing.T) {
	s := start(t)
	path := "/v1/admin/conflicts"
	if got := s.get(path).is(200, "").body; got != `{"data":[],"has_more":false,"next_cursor":null}` {
		t.Errorf("without conflicts: %s", got)
	}
	s.conflicted(3)
	want := []string{"6", "5", "4", "3", "2", "1"}
	for limit, pages := range map[int]int{1: 6, 4: 2, 6: 1, 100: 1} {
		if got, n := s.rows(path, fmt.Sprintf("limit=%d", limit), "conflict_id"); !slices.Equal(got, want) || n != pages {
			t.Errorf("%d at once: %d pages, %v", limit, n, got)
		}
	}
	if got, _ := s.rows(path, "limit=2&kind=out_trade_no", "out_trade_no"); !slices.Equal(got, []string{"n2", "n1", "n0"}) {
		t.Errorf("numbers of merchants: %v", got)
	}
	if got, _ := s.rows(path, "limit=2&kind=channel_trade_no", "channel_trade_no"); !slices.Equal(got, []string{"2:x", "1:x", "0:x"}) {
		t.Errorf("payments: %v", got)
	}
	page := s.get(path+"?limit=2").is(200, "").object()["data"].([]any)
	payment, number := page[0].(map[string]any), page[1].(map[string]any)
	if payment["channel"] != "wechat" || payment["bid"] != nil || payment["out_trade_no"] != nil || number["bid"] != "1001" || number["channel"] != nil {
		t.Errorf("%v, %v", payment, number)
	}
	first := idgen.FirstAt(base)
	for i, want := range []string{idgen.Make(9527, first).String() + " 9527 1001 2", idgen.Make(9528, first+1).String() + " 9528 1002 3"} {
		o := payment["orders"].([]any)[i].(map[string]any)
		if got := fmt.Sprint(o["order_id"], " ", o["uid"], " ", o["bid"], " ", o["seq"]); got != want {
			t.Errorf("order %d is %s, want %s", i, got, want)
		}
	}
	if seq := number["orders"].([]any)[0].(map[string]any)["seq"]; seq != nil {
		t.Errorf("the number was recorded by entry %v", seq)
	}
}

// Up to when all conflicts are listed is the scans' word, the least of them.
func TestTheListOfConflictsSaysHowFarItIsComplete(t *testing.T) {
	s := start(t)
	reach := func(at schema.Millis) (r mirror.Reach) {
		for i := range r.Orders {
			r.Orders[i].At, r.Entries[i].At = at, at
		}
		return r
	}
	for n := 1; n <= 8; n++ {
		if got := s.get("/v1/admin/conflicts").is(200, "").header.Get("X-Mirror-Complete-Until"); got != "1970-01-01T00:00:00.000Z" {
			t.Errorf("%d of 8 databases were scanned: %s", n-1, got)
		}
		if err := s.conflicts.Save(t.Context(), n, reach(schema.MillisOf(base)+schema.Millis(n))); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.get("/v1/admin/conflicts").is(200, "").header.Get("X-Mirror-Complete-Until"); got != "2026-11-30T16:00:00.001Z" {
		t.Errorf("all were scanned: %s", got)
	}
}

func TestWhatAListOfConflictsRefuses(t *testing.T) {
	s := start(t)
	s.conflicted(2)
	cursor := "&cursor=" + s.get("/v1/admin/conflicts?limit=1&kind=out_trade_no").is(200, "").object()["next_cursor"].(string)
	s.get("/v1/admin/conflicts?limit=5&kind=out_trade_no"+cursor).is(200, "")
	for name, path := range map[string]string{
		"another kind": "/v1/admin/conflicts?kind=channel_trade_no" + cursor,
		"no kind":      "/v1/admin/conflicts?limit=1" + cursor,
		"another list": "/v1/admin/refunds?limit=1" + cursor,
		"of orders":    "/v1/users/1/orders?limit=1" + cursor,
		"text":         "/v1/admin/conflicts?cursor=x",
	} {
		t.Run(name, func(t *testing.T) { s.get(path).is(400, "invalid_cursor") })
	}
	for query, want := range map[string]string{
		"kind=any": "kind unsupported", "kind=": "kind too_short", "limit=0": "limit out_of_range", "state=open": "state unknown", "kind=out_trade_no&kind=out_trade_no": "kind duplicate",
	} {
		if got := s.get("/v1/admin/conflicts?"+query).is(400, "").faulty(); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: %v, want %s", query, got, want)
		}
	}
}
