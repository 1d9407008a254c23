package httpapi

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// post sends a body, or none, to a call below an order's path.
func (s *service) post(order, call, body string, headers ...string) answer {
	s.t.Helper()
	return s.send("POST", "/v1/orders/"+order+call, body, headers...)
}

// made creates an order of 199.00 and returns its id.
func (s *service) made(number string) string {
	s.t.Helper()
	return s.create(body("out_trade_no", `"`+number+`"`)).is(201, "").object()["order_id"].(string)
}

// paid is made and paid.
func (s *service) paid(number string) string {
	s.t.Helper()
	id := s.made(number)
	s.post(id, "/pay", money("4200-"+number, 19900, "CNY")).is(200, "")
	return id
}

func money(number string, amount int, currency string) string {
	return fmt.Sprintf(`{"channel":"wechat","channel_trade_no":%q,"amount":%d,"currency":%q,"paid_at":"2026-12-01T00:00:01.2345+08:00"}`, number, amount, currency)
}

func refund(number string, amount int) string {
	return fmt.Sprintf(`{"out_refund_no":%q,"amount":%d}`, number, amount)
}

// has fails unless the object at a path of names has these values: "order.status", "paid".
func (a answer) has(pairs ...any) answer {
	a.t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		var v any = a.object()
		for name := range strings.SplitSeq(pairs[i].(string), ".") {
			v = v.(map[string]any)[name]
		}
		if n, ok := pairs[i+1].(int); ok {
			pairs[i+1] = float64(n)
		}
		if v != pairs[i+1] {
			a.t.Errorf("%s is %v, want %v: %s", pairs[i], v, pairs[i+1], a.body)
		}
	}
	return a
}

// replayed fails unless the answer says that it is a repeat.
func (a answer) replayed(want bool) answer {
	a.t.Helper()
	if got := a.header.Get("Idempotent-Replayed"); (got == "true") != want {
		a.t.Errorf("Idempotent-Replayed is %q: %d %s", got, a.status, a.body)
	}
	return a
}

func TestAPayment(t *testing.T) {
	s := start(t)
	id := s.made("1")
	first := s.post(id, "/pay", money("4200", 19900, "CNY")).is(200, "").replayed(false)
	first.has("status", "paid", "version", 2, "paid_amount", 19900, "channel", "wechat", "channel_trade_no", "4200", "paid_at", "2026-11-30T16:00:01.234Z", "unapplied_payments", 0)
	again := s.post(id, "/pay", money("4200", 19900, "CNY")).is(200, "").replayed(true)
	if again.body != first.body {
		t.Errorf("the repeat is %s, was %s", again.body, first.body)
	}
	s.post(id, "/pay", money("4200", 19901, "CNY")).is(409, "channel_trade_no_reused").has("current_status", "paid", "recorded", nil)
	s.post(id, "/pay", money("4200", 19900, "USD")).is(409, "channel_trade_no_reused")
	for range 2 { // and again, the first answer
		s.post(id, "/pay", money("4201", 19900, "CNY")).is(409, "order_already_paid").has("current_status", "paid", "recorded", true)
	}
	s.get("/v1/orders/"+id).has("unapplied_payments", 1, "version", 3)
	// After a refund the payment is still that payment.
	s.post(id, "/refunds", refund("r", 19900)).is(201, "")
	s.post(id, "/pay", money("4200", 19900, "CNY")).is(200, "").replayed(true).has("status", "refunded")
	s.post(id, "/close", "").is(409, "order_already_paid").has("current_status", "refunded")
}

func TestAPaymentThatIsNotOfThisOrder(t *testing.T) {
	s := start(t)
	id := s.made("1")
	for range 2 {
		s.post(id, "/pay", money("4200", 19901, "CNY")).is(422, "amount_mismatch").has("recorded", true)
		s.post(id, "/pay", money("4200", 19900, "JPY")).is(422, "currency_mismatch").has("recorded", true)
	}
	s.get("/v1/orders/"+id).is(200, "").has("status", "created", "unapplied_payments", 2, "version", 3)
	s.post(id, "/pay", money("4200", 19900, "CNY")).is(200, "").has("status", "paid")
	s.post(id, "/pay", money("4200", 19901, "CNY")).is(422, "amount_mismatch").has("recorded", true)
}

func TestALatePayment(t *testing.T) {
	s := start(t)
	id := s.made("1")
	s.post(id, "/close", `{"reason":"buyer"}`).is(200, "").has("status", "closed", "close_reason", "buyer")
	for _, again := range []bool{false, true} {
		got := s.post(id, "/pay", money("4200", 19900, "CNY")).is(200, "").replayed(again).has("status", "closed", "unapplied_payments", 1, "paid_amount", 0)
		if got.header.Get("X-Late-Payment") != "true" {
			t.Error("it doesn't say that it came late")
		}
	}
	s.post(id, "/refunds", refund("r", 1)).is(409, "order_closed").has("current_status", "closed")
}

func TestAClose(t *testing.T) {
	s := start(t)
	id := s.made("1")
	first := s.post(id, "/close", "").is(200, "").replayed(false).has("status", "closed", "close_reason", "merchant", "version", 2)
	if first.object()["closed_at"] == nil {
		t.Error("it has no closed_at")
	}
	s.post(id, "/close", `{"reason":"buyer"}`).is(200, "").replayed(true).has("close_reason", "merchant", "version", 2)
	if got := s.post(id, "/close", `{"reason":"expired"}`).is(400, "invalid_parameter").faulty(); !slices.Equal(got, []string{"reason unsupported"}) {
		t.Errorf("%v", got)
	}
}

func TestRefunds(t *testing.T) {
	s := start(t)
	id := s.made("1")
	s.post(id, "/refunds", refund("r", 1)).is(409, "order_not_paid").has("current_status", "created")
	s.post(id, "/pay", money("4200", 19900, "CNY")).is(200, "")
	const number = "R|1:*"
	path := "/v1/orders/" + id + "/refunds/" + url.PathEscape(number)
	first := s.post(id, "/refunds", `{"out_refund_no":"`+number+`","amount":9900,"reason":"scratched ✂"}`).is(201, "").replayed(false)
	first.has("refund.status", "accepted", "refund.amount", 9900, "refund.reason", "scratched ✂", "refund.refund_id", id+".3",
		"order.status", "partially_refunded", "order.refunded_amount", 9900, "order.version", 3)
	if got := first.header.Get("Location"); got != path {
		t.Errorf("Location %s, want %s", got, path)
	}
	again := s.post(id, "/refunds", refund(number, 9900)).is(200, "").replayed(true)
	if again.body != first.body {
		t.Errorf("the repeat is %s, was %s", again.body, first.body)
	}
	s.post(id, "/refunds", refund(number, 9901)).is(409, "out_refund_no_reused")
	s.post(id, "/refunds", refund("r2", 10001)).is(422, "refund_exceeds_paid")
	s.get(path).is(200, "").has("out_refund_no", number, "status", "accepted", "finished_at", nil)
	s.send("POST", path+"/result", `{"result":"failed"}`).is(200, "").replayed(false).has("refund.status", "failed", "order.version", 4, "order.refunded_amount", 9900)
	s.send("POST", path+"/result", `{"result":"succeeded","channel_refund_no":"5000","out_refund_no":"`+number+`"}`).is(200, "").has("refund.status", "succeeded", "refund.channel_refund_no", "5000")
	s.send("POST", path+"/result", `{"result":"failed"}`).is(200, "").replayed(true).has("refund.status", "succeeded")
	s.send("POST", path+"/result", `{"result":"failed","out_refund_no":"another"}`).is(400, "invalid_parameter")
	s.post(id, "/refunds", refund("r2", 10000)).is(201, "").has("order.status", "refunded")
	s.send("POST", "/v1/orders/"+id+"/refunds/r2/result", `{"result":"succeeded"}`).is(200, "")
	s.send("POST", "/v1/orders/"+id+"/refunds/r2/result", `{"result":"failed"}`).is(409, "refund_already_succeeded")
	s.post(id, "/refunds", refund("r3", 1)).is(409, "order_fully_refunded")
	list := s.get("/v1/orders/"+id+"/refunds").is(200, "").object()["data"].([]any)
	if len(list) != 2 || list[0].(map[string]any)["out_refund_no"] != "r2" {
		t.Errorf("%v", list)
	}
	s.get("/v1/orders/"+id+"/refunds/r3").is(404, "refund_not_found")
	s.send("POST", "/v1/orders/"+id+"/refunds/r3/result", `{"result":"failed"}`).is(404, "refund_not_found")
	for _, dots := range []string{".", ".."} {
		s.post(id, "/refunds", refund(dots, 1)).is(400, "invalid_parameter")
	}
	s.get("/v1/orders/"+id+"?include=journal").is(200, "")
}

func TestAnOrderHasAtMost50Refunds(t *testing.T) {
	s := start(t)
	id := s.paid("1")
	for n := range 50 {
		s.post(id, "/refunds", refund(fmt.Sprint(n), 1)).is(201, "")
	}
	s.post(id, "/refunds", refund("50", 1)).is(409, "too_many_refunds")
	s.post(id, "/refunds", refund("49", 1)).is(200, "").replayed(true)
}

func TestAnUnappliedPaymentIsSettledOnce(t *testing.T) {
	s := start(t)
	id := s.paid("1")
	s.post(id, "/pay", money("4201", 19900, "CNY")).is(409, "order_already_paid") // seq 3
	s.post(id, "/pay", money("4202", 500, "USD")).is(409, "order_already_paid")   // seq 4
	s.post(id, "/refunds", refund("r", 1)).is(201, "")
	s.post(id, "/unapplied-payments/3/refund", `{"out_refund_no":"r"}`).is(409, "out_refund_no_reused")
	first := s.post(id, "/unapplied-payments/3/refund", `{"out_refund_no":"u","reason":"paid twice"}`).is(201, "").replayed(false)
	first.has("refund.amount", 19900, "refund.unapplied_payment", 3, "unapplied_payment.state", "refunded", "unapplied_payment.kind", "duplicate",
		"unapplied_payment.out_refund_no", "u", "order.status", "partially_refunded", "order.refunded_amount", 1)
	s.post(id, "/unapplied-payments/3/refund", `{"out_refund_no":"u"}`).is(200, "").replayed(true)
	s.post(id, "/unapplied-payments/3/refund", `{"out_refund_no":"v"}`).is(409, "unapplied_payment_settled").has("current_status", "refunded")
	s.post(id, "/unapplied-payments/3/void", `{"reason":"x"}`).is(409, "unapplied_payment_settled").has("current_status", "refunded")
	s.send("POST", "/v1/orders/"+id+"/refunds/u/result", `{"result":"succeeded"}`).is(200, "").has("refund.status", "succeeded", "refund.unapplied_payment", 3)
	s.post(id, "/unapplied-payments/4/void", `{"reason":"by hand"}`).is(200, "").replayed(false).has("unapplied_payment.state", "voided", "unapplied_payment.currency", "USD")
	s.post(id, "/unapplied-payments/4/void", `{"reason":"again"}`).is(200, "").replayed(true).has("unapplied_payment.reason", "by hand")
	s.post(id, "/unapplied-payments/4/refund", `{"out_refund_no":"w"}`).is(409, "unapplied_payment_settled").has("current_status", "voided")
	s.post(id, "/unapplied-payments/4/void", "").is(400, "malformed_json")
	// One payment, told with two sums, is given back once.
	s.post(id, "/pay", money("4203", 7, "CNY")).is(409, "order_already_paid") // seq 9
	s.post(id, "/pay", money("4203", 8, "CNY")).is(409, "order_already_paid") // seq 10
	s.post(id, "/unapplied-payments/10/refund", `{"out_refund_no":"ten"}`).is(201, "")
	s.post(id, "/unapplied-payments/9/refund", `{"out_refund_no":"nine"}`).is(409, "channel_trade_no_reused")
	s.post(id, "/pay", money("4203", 9, "CNY")).is(409, "channel_trade_no_reused").has("recorded", nil)
	s.post(id, "/pay", money("4203", 7, "CNY")).is(409, "order_already_paid").has("recorded", true) // as the first time
	s.post(id, "/unapplied-payments/9/void", `{"reason":"told wrongly"}`).is(200, "")
	for _, seq := range []string{"1", "2", "5", "9223372036854775807"} {
		s.post(id, "/unapplied-payments/"+seq+"/refund", `{"out_refund_no":"w"}`).is(404, "unapplied_payment_not_found")
		s.post(id, "/unapplied-payments/"+seq+"/void", `{"reason":"w"}`).is(404, "unapplied_payment_not_found")
	}
}

// Every change of an order that isn't there, or is another buyer's, is 404, after all
// that can be said of the request alone.
func TestChangesOfAnOrderThatIsNotThere(t *testing.T) {
	s := start(t)
	id := s.paid("1")
	for call, body := range map[string]string{
		"/pay": money("1", 19900, "CNY"), "/close": "", "/refunds": refund("r", 1), "/refunds/r/result": `{"result":"failed"}`,
		"/unapplied-payments/2/refund": `{"out_refund_no":"r"}`, "/unapplied-payments/2/void": `{"reason":"r"}`,
	} {
		s.post("15770253150322220879872", call, body).is(404, "order_not_found")
		s.post(id, call+"?uid=9528", body).is(404, "order_not_found")
		s.post(id, call+"?uid=10167", body).is(404, "order_not_found") // of the same slot
		s.post(id, call+"?uid=x", body).is(400, "invalid_parameter")
		s.post(id, call+"?bid=1001", body).is(400, "invalid_parameter")
		s.post(id, call, `{"nonsense":1}`).is(400, "")
		s.post(id, call, `{`).is(400, "malformed_json")
	}
	for _, call := range []string{"/refunds", "/refunds/r"} {
		s.get("/v1/orders/15770253150322220879872"+call).is(404, "order_not_found")
		s.get("/v1/orders/"+id+call+"?uid=10167").is(404, "order_not_found")
	}
}

// All faulty fields of each body are named at once.
func TestFaultyFieldsOfChanges(t *testing.T) {
	s := start(t)
	id := s.paid("1")
	for _, tc := range []struct {
		call, body string
		want       []string
	}{
		{"/pay", `{}`, []string{"channel required", "channel_trade_no required", "amount required", "currency required"}},
		{"/pay", `{"channel":"WeChat","channel_trade_no":"-1","amount":"100","currency":"cny","paid_at":"today"}`,
			[]string{"channel bad_character", "channel_trade_no bad_format", "amount wrong_type", "currency bad_format", "paid_at bad_format"}},
		{"/pay", `{"channel":"` + strings.Repeat("c", 33) + `","channel_trade_no":"","amount":0,"currency":"XXX","paid_at":"1969-12-31T23:59:59Z"}`,
			[]string{"channel too_long", "channel_trade_no too_short", "amount out_of_range", "currency unsupported", "paid_at out_of_range"}},
		{"/pay", `{"channel":"","channel_trade_no":5,"amount":1e2,"currency":"CNY","paid_at":1}`,
			[]string{"channel too_short", "channel_trade_no wrong_type", "amount bad_format", "paid_at wrong_type"}},
		{"/refunds", `{}`, []string{"out_refund_no required", "amount required"}},
		{"/refunds", `{"out_refund_no":"a b","amount":9007199254740992,"reason":""}`, []string{"out_refund_no bad_character", "amount out_of_range", "reason too_short"}},
		{"/refunds", `{"out_refund_no":"a","amount":100.0,"reason":"` + strings.Repeat("é", 257) + `"}`, []string{"amount bad_format", "reason too_long"}},
		{"/refunds", `{"out_refund_no":"a","amount":-1,"reason":"a\u0000"}`, []string{"amount out_of_range", "reason bad_character"}},
		{"/refunds/r/result", `{"result":"lost","channel_refund_no":"-"}`, []string{"result unsupported", "channel_refund_no bad_format"}},
		{"/refunds/r/result", `{"result":"failed","out_refund_no":"R"}`, []string{"out_refund_no unsupported"}},
		{"/unapplied-payments/2/refund", `{"reason":5}`, []string{"reason wrong_type", "out_refund_no required"}},
		{"/unapplied-payments/2/void", `{}`, []string{"reason required"}},
		{"/close", `{"reason":null}`, []string{"reason wrong_type"}},
	} {
		got := s.post(id, tc.call, tc.body).is(400, "invalid_parameter").faulty()
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s %s: %v, want %v", tc.call, tc.body, got, tc.want)
		}
	}
	s.post(id, "/close", `{"Reason":"buyer"}`).is(400, "unknown_field")
	s.post(id, "/close", `{"reason":"buyer","reason":"buyer"}`).is(400, "malformed_json")
	s.get("/v1/orders/"+id).has("version", 2)
}
