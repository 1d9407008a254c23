package httpapi

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/schema"
)

func TestACreateIsAnswered201WithTheOrderAndItsPlace(t *testing.T) {
	s := start(t)
	got := s.create(body("metadata", `{"sku":"lm2-64"}`)).is(201, "")
	id := idgen.Make(9527, s.orders.orders[0].ID).String()
	if got.header.Get("Location") != "/v1/orders/"+id || got.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("headers %v", got.header)
	}
	want := `{"order_id":"` + id + `","uid":"9527","bid":"1001","out_trade_no":"20261130-000017","amount":19900,` +
		`"currency":"CNY","subject":"Le Max 2","status":"created","version":1,"paid_amount":0,"refunded_amount":0,` +
		`"channel":null,"channel_trade_no":null,"metadata":{"sku":"lm2-64"},"unapplied_payments":0,"close_reason":null,` +
		`"created_at":"2026-11-30T16:00:00.000Z","updated_at":"2026-11-30T16:00:00.002Z","expires_at":"2026-11-30T16:30:00.000Z",` +
		`"paid_at":null,"closed_at":null}`
	if diff := cmp.Diff(want, got.body); diff != "" {
		t.Error(diff)
	}
	if at := s.get(got.header.Get("Location")).is(200, ""); at.body != got.body {
		t.Errorf("the place has %s", at.body)
	}
}

func TestTheSameCreateAgainIsAnswered200WithTheOrderAsItIsNow(t *testing.T) {
	s := start(t)
	s.create(body()).is(201, "")
	s.orders.orders[0].Status, s.orders.orders[0].Ver = schema.Closed, 2
	s.orders.orders[0].CloseReason, s.orders.orders[0].ClosedAt = schema.ByBuyer, s.orders.orders[0].UpdatedAt+5
	// expires_in and metadata aren't compared, and a uid is the same as text or integer.
	got := s.create(body("uid", "9527", "expires_in", "60", "metadata", `{"a":"b"}`)).is(200, "")
	if got.header.Get("Idempotent-Replayed") != "true" || got.header.Get("Location") != "" {
		t.Errorf("headers %v", got.header)
	}
	o := got.object()
	if o["status"] != "closed" || o["version"] != 2.0 || o["close_reason"] != "buyer" || o["closed_at"] != "2026-11-30T16:00:00.007Z" {
		t.Errorf("%v", o)
	}
}

func TestAnOutTradeNoOfAnotherOrderIs409WithThatOrder(t *testing.T) {
	for _, tc := range []struct{ name, field, value string }{
		{"another amount", "amount", "19901"},
		{"another currency", "currency", `"USD"`},
		{"another subject", "subject", `"Le Max 3"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := start(t)
			id := s.create(body()).is(201, "").object()["order_id"]
			got := s.create(body(tc.field, tc.value)).is(409, "out_trade_no_reused").object()
			if got["order_id"] != id || got["current_status"] != "created" || got["retryable"] != false {
				t.Errorf("%v", got)
			}
		})
	}
}

func TestAnOrderSaysWhoMadeIt(t *testing.T) {
	s := start(t)
	for _, role := range []string{"app", "merchant"} {
		key := map[string]string{"app": "dev-app", "merchant": "dev-merchant-1001"}[role]
		s.send("POST", "/v1/orders", body("out_trade_no", `"`+role+`"`), "Authorization", "Bearer "+key).is(201, "")
		if o := s.orders.orders[len(s.orders.orders)-1]; o.CreatedBy != role {
			t.Errorf("%+v", o)
		}
	}
}

func TestAnOrderKeepsTheRequestIdOfItsCreate(t *testing.T) {
	s := start(t)
	s.send("POST", "/v1/orders", body(), "X-Request-Id", "first.1").is(201, "")
	s.send("POST", "/v1/orders", body(), "X-Request-Id", "second.2").is(200, "")
	if o := s.orders.orders[0]; o.RequestID != "first.1" {
		t.Errorf("%+v", o)
	}
}

func TestAnOrderIsFoundByItsKey(t *testing.T) {
	s := start(t)
	made := s.create(body()).is(201, "")
	for _, tc := range []struct {
		name, query string
		status      int
	}{
		{"its own key", "uid=9527&bid=1001&out_trade_no=20261130-000017", 200},
		{"the names in another order", "out_trade_no=20261130-000017&bid=1001&uid=9527", 200},
		{"an escaped value", "uid=%39527&bid=1001&out_trade_no=20261130%2D000017", 200},
		{"another buyer", "uid=9528&bid=1001&out_trade_no=20261130-000017", 404},
		{"another merchant", "uid=9527&bid=1002&out_trade_no=20261130-000017", 404},
		{"another number", "uid=9527&bid=1001&out_trade_no=20261130-000018", 404},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := s.get("/v1/orders?" + tc.query)
			if tc.status == 404 {
				got.is(404, "order_not_found")
			} else if got.is(200, "").body != made.body {
				t.Errorf("found %s", got.body)
			}
		})
	}
}

func TestAnOrderIsFoundByItsId(t *testing.T) {
	s := start(t)
	made := s.create(body()).is(201, "")
	id := made.object()["order_id"].(string)
	other := idgen.Make(8, s.orders.orders[0].ID).String() // the same snowflake, of a buyer elsewhere
	for _, tc := range []struct {
		name, path string
		status     int
	}{
		{"its id", id, 200},
		{"its id and its buyer", id + "?uid=9527", 200},
		{"its id and another buyer", id + "?uid=9528", 404},
		{"its id and a buyer who shares its place", id + "?uid=10167", 404}, // 9527 + 640
		{"an id whose parts disagree with the order", other, 404},
		{"an id of another version", "2" + id[1:], 404},
		{"an id with shard info 00", id[:1] + "00" + id[3:], 404},
		{"an id with shard info 65", id[:1] + "65" + id[3:], 404},
		{"an id with another table digit", id[:3] + "8" + id[4:], 404},
		{"the next id", id[:22] + "8", 404},
		{"an id that is too short", id[:22], 404},
		{"an id that is too long", id + "0", 404},
		{"the snowflake alone", id[4:], 404},
		{"a word", "abc", 404},
		{"a negative number", "-1", 404},
		{"three dots", "...", 404},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := s.get("/v1/orders/" + tc.path)
			if tc.status == 404 {
				got.is(404, "order_not_found")
			} else if got.is(200, "").body != made.body {
				t.Errorf("found %s", got.body)
			}
		})
	}
}

func TestABuyerThatTheIdRulesOutIsNotLookedUp(t *testing.T) {
	s := start(t)
	s.get("/v1/orders/15770253150322220879872?uid=9528").is(404, "order_not_found")
	if s.orders.calls > 0 {
		t.Error("it was")
	}
}

func TestTheJournalBeginsWithTheCreation(t *testing.T) {
	s := start(t)
	s.create(body()).is(201, "")
	o := &s.orders.orders[0]
	path := "/v1/orders/" + o.OrderID().String() + "?include=journal"

	created := `{"seq":1,"kind":"created","amount":19900,"currency":"CNY","from":null,"to":"created","ref":null,"recorded_at":"2026-11-30T16:00:00.000Z","actor":"app"}`
	if got := s.get(path).is(200, "").body; !strings.HasSuffix(got, `,"closed_at":null,"journal":[`+created+`]}`) {
		t.Error(got)
	}

	o.Ver, o.Status, o.CloseReason = 3, schema.Closed, schema.Expired
	s.orders.journal[o.ID] = []schema.Entry{
		{OrderID: o.ID, Seq: 2, Op: "unapplied:wechat:42:19901CNY", Kind: schema.KindUnappliedPayment, Amount: 19901, Currency: "CNY",
			From: schema.Created, To: schema.Created, Ref: "wechat:42", Actor: "channel", KeyID: "k-secret", RequestID: "r-secret",
			RecordedAt: o.UpdatedAt + 1000},
		{OrderID: o.ID, Seq: 3, Op: "expire", Kind: schema.KindClosed, From: schema.Created, To: schema.Closed, Reason: "expired",
			Actor: "expirer", RecordedAt: o.UpdatedAt + 2000},
	}
	got := s.get(path).is(200, "").body
	want := `"journal":[` + created +
		`,{"seq":2,"kind":"unapplied_payment","amount":19901,"currency":"CNY","from":"created","to":"created","ref":"wechat:42","recorded_at":"2026-11-30T16:00:01.002Z","actor":"channel"}` +
		`,{"seq":3,"kind":"closed","amount":null,"currency":null,"from":"created","to":"closed","ref":null,"recorded_at":"2026-11-30T16:00:02.002Z","actor":"expirer"}]}`
	if !strings.HasSuffix(got, want) {
		t.Errorf("got  %s\nwant …%s", got, want)
	}
	if strings.Contains(got, "secret") {
		t.Errorf("key id and request id are for operators only: %s", got)
	}
}

func TestHEADAnswersAsGETWithoutABody(t *testing.T) {
	s := start(t)
	id := s.create(body()).object()["order_id"].(string)
	for _, path := range []string{
		"/v1/orders/" + id, "/v1/orders/" + id + "?include=journal", "/v1/orders?uid=9527&bid=1001&out_trade_no=20261130-000017",
		"/v1/users/9527/orders", "/v1/merchants/1001/orders", "/openapi.yaml",
		"/v1/orders/abc", "/v1/orders", "/v1/users/0/orders", "/nowhere",
	} {
		get, head := s.get(path), s.send(http.MethodHead, path, "")
		if head.status != get.status || head.body != "" {
			t.Errorf("%s: HEAD %d %q, GET %d", path, head.status, head.body, get.status)
		}
		for _, h := range []http.Header{get.header, head.header} {
			h.Del("Date")
			h.Set("X-Request-Id", "") // each has its own
		}
		if diff := cmp.Diff(get.header, head.header); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
}

func TestTheContractIsServed(t *testing.T) {
	s := start(t)
	got := s.get("/openapi.yaml").is(200, "")
	if got.header.Get("Content-Type") != "application/yaml" || !strings.HasPrefix(got.body, "openapi: 3.1") {
		t.Errorf("%v %.80s", got.header, got.body)
	}
}

func TestEveryAnswerHasARequestIdAndIsNotStored(t *testing.T) {
	s := start(t)
	made := regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	for _, tc := range []struct{ method, path string }{
		{"GET", "/v1/users/1/orders"}, {"GET", "/v1/orders"}, {"GET", "/v1/nowhere"}, {"PUT", "/v1/orders"},
		{"GET", "/v1/orders/"}, {"POST", "/v1/orders"}, {"GET", "/v1/orders/1"}, {"GET", "/v1/users/1/orders?limit=0"},
	} {
		a, b := s.send(tc.method, tc.path, ""), s.send(tc.method, tc.path, "")
		if cc := a.header["Cache-Control"]; len(cc) != 1 || cc[0] != "no-store" {
			t.Errorf("%s %s: Cache-Control %q", tc.method, tc.path, cc)
		}
		id, next := a.header.Get("X-Request-Id"), b.header.Get("X-Request-Id")
		if !made.MatchString(id) || id == next {
			t.Errorf("%s %s: X-Request-Id %q, then %q", tc.method, tc.path, id, next)
		}
		if a.status >= 400 && a.object()["request_id"] != id {
			t.Errorf("%s %s: %s", tc.method, tc.path, a.body)
		}
	}
}

func TestARequestIdIsKeptIfItHasTheFormOfOne(t *testing.T) {
	s := start(t)
	for _, tc := range []struct {
		sent string
		kept bool
	}{
		{"a", true}, {"A-b_c.9", true}, {strings.Repeat("x", 64), true},
		{strings.Repeat("x", 65), false}, {"a b", false}, {"a/b", false}, {"ä", false}, {"", false}, {`"a"`, false},
	} {
		got := s.get("/v1/users/1/orders", "X-Request-Id", tc.sent).header.Get("X-Request-Id")
		if (got == tc.sent) != tc.kept || got == "" {
			t.Errorf("%q became %q", tc.sent, got)
		}
	}
	req, _ := http.NewRequest("GET", s.url+"/v1/users/1/orders", nil)
	req.Header["X-Request-Id"] = []string{"one", "two"}
	if got := s.do(req).header["X-Request-Id"]; len(got) != 1 || got[0] == "one" || got[0] == "two" {
		t.Errorf("of two ids came %q", got)
	}
}
