package httpapi

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/syncer/mirror"
)

// rows reads a list to its end, and returns of each row the values of a field, and the
// number of pages.
func (s *service) rows(path, query, field string) (values []string, pages int) {
	s.t.Helper()
	for cursor := ""; ; pages++ {
		o := s.get(strings.TrimSuffix(path+"?"+query+cursor, "?")).is(200, "").object()
		for _, d := range o["data"].([]any) {
			values = append(values, fmt.Sprint(d.(map[string]any)[field]))
		}
		next, more := o["next_cursor"].(string)
		if more != o["has_more"].(bool) {
			s.t.Fatalf("has_more %v with next_cursor %v", o["has_more"], o["next_cursor"])
		}
		if !more {
			return values, pages + 1
		}
		cursor = "&cursor=" + next
	}
}

// unapplied makes an order of a merchant that is paid, and then n payments that can't be
// applied, and returns its id. Their seqs begin at 3.
func (s *service) unapplied(bid, number string, n int) string {
	s.t.Helper()
	id := s.create(body("bid", `"`+bid+`"`, "out_trade_no", `"`+number+`"`)).is(201, "").object()["order_id"].(string)
	s.post(id, "/pay", money("4200-"+number, 19900, "CNY")).is(200, "")
	for i := range n {
		s.post(id, "/pay", money(fmt.Sprintf("%s-%d", number, i+3), 19900, "CNY")).is(409, "order_already_paid")
	}
	return id
}

var entryLists = []string{"/v1/merchants/1001/unapplied-payments", "/v1/admin/unapplied-payments"}

func TestUnappliedPaymentsAreListed(t *testing.T) {
	s := start(t)
	a := s.unapplied("1001", "a", 3)
	b := s.unapplied("1001", "b", 1)
	s.unapplied("1002", "c", 1)
	want := []string{"b-3", "a-5", "a-4", "a-3"}
	for _, path := range entryLists {
		want := want
		if strings.Contains(path, "admin") {
			want = append([]string{"c-3"}, want...)
		}
		for limit, pages := range map[int]int{1: len(want), 3: 2, 100: 1} {
			got, n := s.rows(path, fmt.Sprintf("limit=%d", limit), "channel_trade_no")
			if !slices.Equal(got, want) || n != pages {
				t.Errorf("%s, %d at once: %d pages, %v", path, limit, n, got)
			}
		}
	}
	row := s.get(entryLists[0]+"?limit=1").is(200, "").object()["data"].([]any)[0].(map[string]any)
	if row["order_id"] != b || row["seq"] != 3.0 || row["kind"] != "duplicate" || row["state"] != "open" || row["channel"] != "wechat" || row["amount"] != 19900.0 || row["settled_at"] != nil {
		t.Errorf("the row is %v", row)
	}
	// What becomes of them changes in which lists they are.
	s.post(a, "/unapplied-payments/4/refund", `{"out_refund_no":"R","reason":"twice"}`).is(201, "")
	s.post(a, "/unapplied-payments/5/void", `{"reason":"given back"}`).is(200, "")
	for state, want := range map[string]string{"open": "b-3 a-3", "refunded": "a-4", "voided": "a-5"} {
		if got, _ := s.rows(entryLists[0], "limit=1&state="+state, "channel_trade_no"); strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", state, got, want)
		}
	}
	row = s.get(entryLists[0]+"?state=refunded").is(200, "").object()["data"].([]any)[0].(map[string]any)
	if row["state"] != "refunded" || row["out_refund_no"] != "R" || row["reason"] != "twice" || row["settled_at"] == nil {
		t.Errorf("the row is %v", row)
	}
	if got := s.get("/v1/merchants/7/unapplied-payments").is(200, "").body; got != `{"data":[],"has_more":false,"next_cursor":null}` {
		t.Errorf("an empty list is %s", got)
	}
}

func TestAllRefundsAreListed(t *testing.T) {
	s := start(t)
	a := s.unapplied("1001", "a", 1)
	b := s.unapplied("1002", "b", 0)
	for _, no := range []string{"r1", "r2", "r3"} {
		s.post(a, "/refunds", refund(no, 100)).is(201, "")
	}
	s.post(a, "/unapplied-payments/3/refund", `{"out_refund_no":"u"}`).is(201, "")
	s.post(b, "/refunds", refund("r1", 100)).is(201, "")
	s.post(a, "/refunds/r1/result", `{"result":"failed"}`).is(200, "")
	s.post(a, "/refunds/r1/result", `{"result":"succeeded"}`).is(200, "") // it failed, and was tried again
	s.post(a, "/refunds/r2/result", `{"result":"failed"}`).is(200, "")
	s.post(b, "/refunds/r1/result", `{"result":"failed"}`).is(200, "")
	for status, want := range map[string][]string{
		"":          {b + ".3", a + ".7", a + ".6", a + ".5", a + ".4"},
		"accepted":  {a + ".7", a + ".6"},
		"succeeded": {a + ".4"},
		"failed":    {b + ".3", a + ".5"},
	} {
		query := "limit=1"
		if status != "" {
			query += "&status=" + status
		}
		if got, _ := s.rows("/v1/admin/refunds", query, "refund_id"); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", status, got, want)
		}
	}
	// Failed ones are looked for among those that failed, not among all.
	if got := s.orders.entries.Kinds; !slices.Equal(got, []schema.Kind{schema.KindRefundFailed}) && !slices.Contains(got, schema.KindRefunded) && !slices.Contains(got, schema.KindRefundSucceeded) {
		t.Errorf("the list is made of %v", got)
	}
	s.get("/v1/admin/refunds?status=failed").is(200, "")
	if got := s.orders.entries.Kinds; !slices.Equal(got, []schema.Kind{schema.KindRefundFailed}) {
		t.Errorf("failed refunds are looked for among %v", got)
	}
	row := s.get("/v1/admin/refunds?status=failed&limit=1").is(200, "").object()["data"].([]any)[0].(map[string]any)
	if row["order_id"] != b || row["bid"] != "1002" || row["uid"] != "9527" || row["out_refund_no"] != "r1" || row["status"] != "failed" || row["finished_at"] == nil {
		t.Errorf("the row is %v", row)
	}
}

func TestListsOfEntriesSayHowFarTheMirrorHasCome(t *testing.T) {
	s := start(t)
	s.orders.until = schema.MillisOf(base) + 50
	for _, path := range append([]string{"/v1/admin/refunds"}, entryLists...) {
		if got := s.get(path).is(200, "").header.Get("X-Mirror-Complete-Until"); got != "2026-11-30T16:00:00.050Z" {
			t.Errorf("%s: %s", path, got)
		}
		if q := s.orders.entries; q.Before != mirror.Newest || q.Limit != 20 || q.Match != nil {
			t.Errorf("%s: %+v", path, q)
		}
	}
}

func TestACursorOfEntriesBelongsToItsListAndFilter(t *testing.T) {
	s := start(t)
	s.unapplied("1001", "a", 3)
	cursor := func(path string) string {
		t.Helper()
		return "&cursor=" + s.get(path).is(200, "").object()["next_cursor"].(string)
	}
	one := cursor(entryLists[0] + "?limit=1&state=open")
	all := cursor(entryLists[1] + "?limit=1")
	orders := "&cursor=" + filter{list: listOfMerchant, owner: 1001}.cursor(1)
	for name, path := range map[string]string{
		"another merchant":     "/v1/merchants/1002/unapplied-payments?state=open" + one,
		"another state":        entryLists[0] + "?state=voided" + one,
		"no state":             entryLists[0] + "?limit=1" + one,
		"all merchants'":       entryLists[0] + "?limit=1" + all,
		"one merchant's":       entryLists[1] + "?state=open" + one,
		"of unapplied, not of": "/v1/admin/refunds?limit=1" + all,
		"of orders":            entryLists[0] + "?limit=1" + orders,
		"text":                 "/v1/admin/refunds?cursor=abc",
		"its end cut off":      entryLists[1] + "?limit=1" + all[:len(all)-1],
	} {
		t.Run(name, func(t *testing.T) { s.get(path).is(400, "invalid_cursor") })
	}
	s.get(entryLists[0]+"?limit=5&state=open"+one).is(200, "")
	s.get("/v1/merchants/1001/orders?limit=1"+one).is(400, "invalid_cursor")
}

func TestFaultyParametersOfListsOfEntries(t *testing.T) {
	s := start(t)
	for path, want := range map[string][]string{
		"/v1/merchants/0/unapplied-payments":                        {"bid out_of_range"},
		entryLists[0] + "?state=settled":                            {"state unsupported"},
		entryLists[0] + "?status=open":                              {"status unknown"},
		entryLists[1] + "?state=":                                   {"state too_short"},
		entryLists[1] + "?limit=101&state=Open":                     {"limit out_of_range", "state unsupported"},
		"/v1/admin/refunds?status=owed&limit=x":                     {"limit bad_format", "status unsupported"},
		"/v1/admin/refunds?status=failed&status=failed&state=open":  {"status duplicate", "state unknown"},
		"/v1/admin/refunds?created_from=2026-11-30T00:00:00Z&bid=1": {"created_from unknown", "bid unknown"},
	} {
		got := s.get(path).is(400, "").faulty()
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
	if s.orders.calls > 0 {
		t.Error("it reached the mirror")
	}
}
