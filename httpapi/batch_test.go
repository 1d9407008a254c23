package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/octopay/octopay/ordersvc"
)

func (s *service) batch(orders ...string) answer {
	s.t.Helper()
	return s.send(http.MethodPost, "/v1/orders/batch", `{"orders":[`+strings.Join(orders, ",")+`]}`)
}

// Each item has the answer that it would have had alone.
func TestABatchHasAResultForEachOrder(t *testing.T) {
	s := start(t)
	got := s.batch(
		body("out_trade_no", `"a"`), body("out_trade_no", `"b"`), body("out_trade_no", `"a"`), body("out_trade_no", `"a"`, "amount", "1"),
		body("amount", "0", "more", "1"), "5", body("out_trade_no", `"c"`, "more", "1"),
	).is(200, "").object()["results"].([]any)
	want := []string{"201 false", "201 false", "200 true", "409 out_trade_no_reused", "400 invalid_parameter", "400 invalid_parameter", "400 unknown_field"}
	if len(got) != len(want) {
		t.Fatalf("%d results", len(got))
	}
	id := func(i int) any { return got[i].(map[string]any)["order"].(map[string]any)["order_id"] }
	for i, r := range got {
		r := r.(map[string]any)
		var is string
		if e, ok := r["error"].(map[string]any); ok {
			is = fmt.Sprint(r["status"], " ", e["code"])
			if e["status"] != r["status"] {
				t.Errorf("item %d: %v", i, r)
			}
		} else {
			is = fmt.Sprint(r["status"], " ", r["replayed"])
		}
		if is != want[i] {
			t.Errorf("item %d is %s, want %s", i, is, want[i])
		}
	}
	if id(0) != id(2) || id(0) == id(1) {
		t.Errorf("%v, %v, %v", id(0), id(1), id(2))
	}
	if e := got[3].(map[string]any)["error"].(map[string]any); e["order_id"] != id(0) || e["current_status"] != "created" {
		t.Errorf("%v", e)
	}
	fields := func(i int) (out []string) {
		for _, e := range got[i].(map[string]any)["error"].(map[string]any)["errors"].([]any) {
			e := e.(map[string]any)
			out = append(out, e["field"].(string)+" "+e["code"].(string))
		}
		return out
	}
	for i, want := range map[int][]string{4: {"orders[4].amount out_of_range", "orders[4].more unknown"}, 5: {"orders[5] wrong_type"}, 6: {"orders[6].more unknown"}} {
		if got := fields(i); !slices.Equal(got, want) {
			t.Errorf("item %d: %v, want %v", i, got, want)
		}
	}
	// Alone they are answered the same.
	s.create(body("out_trade_no", `"b"`)).is(200, "").replayed(true)
	s.send("GET", "/v1/orders?uid=9527&bid=1001&out_trade_no=c", "").is(404, "order_not_found")
}

func TestABatchThatIsNone(t *testing.T) {
	s := start(t)
	many := slices.Repeat([]string{body()}, 501)
	for sent, want := range map[string]string{
		``: "malformed_json", `[]`: "malformed_json", `{"orders":[` + body() + `]`: "malformed_json", `{"orders":[` + body() + `]}x`: "malformed_json",
		`{"orders":[{"uid":1,"uid":2}]}`: "malformed_json", `{"orders":[],"orders":[]}`: "malformed_json",
		`{"orders":[{"metadata":{"a":[[[[[[[[1]]]]]]]]}}]}`: "malformed_json",
		`{}`: "invalid_parameter", `{"orders":[]}`: "invalid_parameter", `{"orders":{}}`: "invalid_parameter", `{"orders":null}`: "invalid_parameter",
		`{"orders":[` + strings.Join(many, ",") + `]}`: "invalid_parameter",
		`{"orders":[` + body() + `],"more":1}`:         "unknown_field",
	} {
		s.send("POST", "/v1/orders/batch", sent).is(400, want)
	}
	if s.orders.calls != 0 {
		t.Errorf("%d calls", s.orders.calls)
	}
	s.batch(many[:500]...).is(200, "")
	s.send("GET", "/v1/orders/batch", "").is(405, "method_not_allowed")
	s.send("POST", "/v1/orders/batch", `{"orders":["`+strings.Repeat("x", batchMax)+`"]}`).is(413, "body_too_large")
}

// A batch is bounded in time: what is open then is of unknown outcome, item by item.
func TestABatchWhoseOutcomeIsUnknown(t *testing.T) {
	s := start(t)
	s.orders.err = fmt.Errorf("lost: %w", ordersvc.ErrUnknown)
	for _, r := range s.batch(body(), body("uid", "1")).is(200, "").object()["results"].([]any) {
		r := r.(map[string]any)
		if r["status"] != 504.0 || r["error"].(map[string]any)["code"] != "outcome_unknown" {
			t.Errorf("%v", r)
		}
	}
}

// Bodies of all batches together have a bound.
func TestBatchesHaveABound(t *testing.T) {
	s := start(t)
	if !s.api.batches.TryAcquire(batchBytes) {
		t.Fatal("they are used already")
	}
	got := s.batch(body()).is(503, "overloaded")
	if got.header.Get("X-Shed-Reason") != "bytes" || got.header.Get("Retry-After") == "" {
		t.Errorf("%v", got.header)
	}
	s.api.batches.Release(batchBytes)
	s.batch(body()).is(200, "")
}

// 64 MiB of batches are read at one time, so what one takes is known beforehand: growing to
// its length would take five times as much.
func TestABatchTakesTheMemoryOfItsLengthOnce(t *testing.T) {
	body := []byte(`{"orders":["` + strings.Repeat("x", batchMax-100) + `"]}`)
	got := newReader(t).ask(t, "POST", "/v1/orders/batch", body, nil)
	if got.status != 200 || len(got.results) != 1 || got.results[0].status != 400 {
		t.Fatalf("%+v", got)
	}
	if most := uint64(len(body) + 1<<20); got.taken > most {
		t.Errorf("it took %d bytes, more than %d", got.taken, most)
	}
}
