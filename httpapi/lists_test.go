package httpapi

import (
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/schema"
	"pgregory.net/rapid"
)

// fill makes n orders of buyer 9527 at merchant 1001, one ms apart from base on.
func (s *service) fill(n int) {
	s.t.Helper()
	for i := range n {
		s.create(body("out_trade_no", fmt.Sprintf(`"n%d"`, i))).is(201, "")
	}
}

// walk reads a list to its end, and returns its out_trade_nos and its number of pages.
func (s *service) walk(path, query string) (numbers []string, pages int) {
	s.t.Helper()
	for cursor := ""; ; pages++ {
		q := query
		if cursor != "" {
			q = strings.TrimPrefix(q+"&cursor="+cursor, "&")
		}
		o := s.get(strings.TrimSuffix(path+"?"+q, "?")).is(200, "").object()
		for _, d := range o["data"].([]any) {
			numbers = append(numbers, d.(map[string]any)["out_trade_no"].(string))
		}
		next, more := o["next_cursor"].(string)
		if more != o["has_more"].(bool) {
			s.t.Fatalf("has_more %v with next_cursor %v", o["has_more"], o["next_cursor"])
		}
		if !more {
			return numbers, pages + 1
		}
		cursor = next
	}
}

func newestFirst(n int) (numbers []string) {
	for i := n - 1; i >= 0; i-- {
		numbers = append(numbers, fmt.Sprintf("n%d", i))
	}
	return numbers
}

var lists = []string{"/v1/users/9527/orders", "/v1/merchants/1001/orders"}

func TestAWalkFindsEveryOrderOnceNewestFirst(t *testing.T) {
	s := start(t)
	s.fill(45)
	for _, path := range lists {
		for _, tc := range []struct {
			query string
			pages int
		}{{"", 3}, {"limit=1", 45}, {"limit=44", 2}, {"limit=45", 1}, {"limit=100", 1}} {
			if got, pages := s.walk(path, tc.query); !slices.Equal(got, newestFirst(45)) || pages != tc.pages {
				t.Errorf("%s?%s: %d pages, %v", path, tc.query, pages, got)
			}
		}
	}
}

func TestTheLimitMayChangeBetweenPages(t *testing.T) {
	s := start(t)
	s.fill(10)
	for _, path := range lists {
		first := s.get(path+"?limit=3").is(200, "").object()
		rest, _ := s.walk(path, "limit=7&cursor="+first["next_cursor"].(string))
		if !slices.Equal(rest, newestFirst(7)) {
			t.Errorf("%s: %v", path, rest)
		}
	}
}

// A page examines a bounded number of rows, so it may hold fewer than asked for.
func TestAPageMayBeShortAndHaveMoreBehindIt(t *testing.T) {
	s := start(t)
	s.fill(5)
	s.orders.page = 2
	for _, path := range lists {
		if got, pages := s.walk(path, "limit=100"); !slices.Equal(got, newestFirst(5)) || pages != 3 {
			t.Errorf("%s: %d pages, %v", path, pages, got)
		}
	}
}

func TestAnEmptyListIsAnEmptyArray(t *testing.T) {
	s := start(t)
	for _, path := range []string{"/v1/users/1/orders", "/v1/merchants/1/orders"} {
		if got := s.get(path).is(200, "").body; got != `{"data":[],"has_more":false,"next_cursor":null}` {
			t.Errorf("%s: %s", path, got)
		}
	}
}

func TestListsAreFiltered(t *testing.T) {
	s := start(t)
	s.fill(6)
	s.orders.orders[1].Status, s.orders.orders[4].Status = schema.Paid, schema.Closed
	at := func(ms float64) string {
		return url.QueryEscape(base.Add(time.Duration(ms * float64(time.Millisecond))).Format(time.RFC3339Nano))
	}
	shanghai := url.QueryEscape(base.Add(2 * time.Millisecond).In(time.FixedZone("", 8*3600)).Format(time.RFC3339Nano))
	for _, tc := range []struct{ name, query, want string }{
		{"by state", "status=paid", "n1"},
		{"by a state that none has", "status=refunded", ""},
		{"from a time on, which is included", "created_from=" + at(4), "n5 n4"},
		{"to a time, which is excluded", "created_to=" + at(2), "n1 n0"},
		{"between two times", "created_from=" + at(1) + "&created_to=" + at(3), "n2 n1"},
		{"from a time between two ms", "created_from=" + at(3.5), "n5 n4"},
		{"from a time just before a ms", "created_from=" + at(3.9999), "n5 n4"},
		{"to a time between two ms", "created_to=" + at(1.5), "n1 n0"},
		{"to a time just after a ms", "created_to=" + at(1.0001), "n1 n0"},
		{"in another zone", "created_from=" + shanghai, "n5 n4 n3 n2"},
		{"from before all time", "created_from=0001-01-01T00:00:00Z", "n5 n4 n3 n2 n1 n0"},
		{"to after all time", "created_to=9999-12-31T23:59:59Z", "n5 n4 n3 n2 n1 n0"},
		{"from after all time", "created_from=9999-12-31T23:59:59Z", ""},
		{"to before all time", "created_to=0001-01-01T00:00:00Z", ""},
		{"from later than to", "created_from=" + at(3) + "&created_to=" + at(1), ""},
		{"by state and time", "status=created&created_from=" + at(1) + "&limit=2", "n5 n3 n2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, path := range lists {
				if got, _ := s.walk(path, tc.query); strings.Join(got, " ") != tc.want {
					t.Errorf("%s?%s: %v", path, tc.query, got)
				}
			}
		})
	}
	if got, _ := s.walk("/v1/merchants/1001/orders", "out_trade_no=n3"); !slices.Equal(got, []string{"n3"}) {
		t.Errorf("by number: %v", got)
	}
}

func TestWithoutFiltersAListAsksForEverything(t *testing.T) {
	s := start(t)
	for _, path := range lists {
		s.get(path).is(200, "")
		if q := s.orders.query; q.Min != 0 || q.Before != math.MaxInt64 || q.Limit != 20 || q.Status != 0 || q.OutTradeNo != "" {
			t.Errorf("%s: %+v", path, q)
		}
	}
}

// created_at has whole ms. A bound of any fineness selects as it would select times.
func TestABoundSelectsCreatedAtExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		created := base.Add(time.Duration(rapid.Int64Range(-3, 3).Draw(t, "created")) * time.Millisecond)
		bound := base.Add(time.Duration(rapid.Int64Range(-3_000_000, 3_000_000).Draw(t, "bound")))
		zone := time.FixedZone("", 60*rapid.IntRange(-14*60, 14*60).Draw(t, "zone"))
		cut, w := parseBound(bound.In(zone).Format(time.RFC3339Nano))
		if w.bad() {
			t.Fatal(w)
		}
		snowflake := idgen.FirstAt(created) + rapid.Int64Range(0, 1<<22-1).Draw(t, "rest")
		if (snowflake >= idgen.FirstAt(cut)) != !created.Before(bound) {
			t.Fatalf("created %v, bound %v, cut %v", created, bound, cut)
		}
	})
}

func TestAMerchantsListSaysHowFarTheMirrorHasCome(t *testing.T) {
	s := start(t)
	path := "/v1/merchants/1001/orders"
	if got := s.get(path).header.Get("X-Mirror-Complete-Until"); got != "1970-01-01T00:00:00.000Z" {
		t.Errorf("before the first mark: %s", got)
	}
	s.orders.until = schema.MillisOf(base) + 50
	if got := s.get(path).header.Get("X-Mirror-Complete-Until"); got != "2026-11-30T16:00:00.050Z" {
		t.Errorf("after one: %s", got)
	}
	if got := s.get("/v1/users/1/orders").header.Get("X-Mirror-Complete-Until"); got != "" {
		t.Errorf("the truth has no need to say so: %s", got)
	}
}

func TestACursorBelongsToItsListAndFilters(t *testing.T) {
	s := start(t)
	s.fill(5)
	const filters = "&status=created&created_from=2026-01-01T00:00:00Z&created_to=2027-01-01T00:00:00Z"
	cursor := func(path string) string {
		t.Helper()
		return "&cursor=" + s.get(path).is(200, "").object()["next_cursor"].(string)
	}
	user := cursor("/v1/users/9527/orders?limit=2" + filters)
	merchant := cursor("/v1/merchants/1001/orders?limit=2" + filters)
	for _, tc := range []struct{ name, path string }{
		{"another buyer", "/v1/users/9528/orders?limit=2" + filters + user},
		{"another list", "/v1/merchants/9527/orders?limit=2" + filters + user},
		{"a merchant's at a buyer", "/v1/users/1001/orders?limit=2" + filters + merchant},
		{"another state", "/v1/users/9527/orders?limit=2" + strings.Replace(filters, "created&", "paid&", 1) + user},
		{"no filters", "/v1/users/9527/orders?limit=2" + user},
		{"another beginning", "/v1/users/9527/orders?limit=2" + strings.Replace(filters, "2026", "2025", 1) + user},
		{"another end", "/v1/users/9527/orders?limit=2" + strings.Replace(filters, "2027", "2028", 1) + user},
		{"one filter more", "/v1/merchants/1001/orders?limit=2&out_trade_no=n1" + filters + merchant},
		{"text", "/v1/users/9527/orders?cursor=abc"},
		{"padding", "/v1/users/9527/orders?limit=2" + filters + user + "="},
		{"its end cut off", "/v1/users/9527/orders?limit=2" + filters + user[:len(user)-1]},
		{"a very long one", "/v1/users/9527/orders?cursor=" + strings.Repeat("A", 4000)},
	} {
		t.Run(tc.name, func(t *testing.T) { s.get(tc.path).is(400, "invalid_cursor") })
	}
	// The same filters, written otherwise, are the same.
	same := "&created_to=2027-01-01T08:00:00%2B08:00&created_from=2025-12-31T23:00:00-01:00&status=created"
	s.get("/v1/users/9527/orders?limit=5"+same+user).is(200, "")
	s.get("/v1/merchants/1001/orders?limit=5"+same+merchant).is(200, "")
	// A faulty parameter is told first: with it, nobody knows which list is meant.
	s.get("/v1/users/9527/orders?limit=0&cursor=abc").is(400, "invalid_parameter")
}
