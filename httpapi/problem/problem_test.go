package problem

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/lane"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/schema"
)

// The codes are the contract: this file changes only by additions.
func TestCodesKeepTheirStatus(t *testing.T) {
	want, err := os.ReadFile("testdata/codes.golden")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for c := Code(1); c < Codes; c++ {
		fmt.Fprintf(&got, "%d %s retryable=%t\n", c.Status(), c, c.Retryable())
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Error(diff)
	}
}

func TestEveryCodeIsWholeAndUnlikeTheOthers(t *testing.T) {
	seen := map[string]bool{}
	for c := Code(1); c < Codes; c++ {
		row := table[c]
		if row.name == "" || row.title == "" || row.detail == "" || row.status < 400 || seen[row.name] {
			t.Errorf("%d %+v", c, row)
		}
		seen[row.name] = true
		least, most := c.RetryAfter()
		if has := row.status == 429 || row.status == 503; has != (least >= 1 && most > least) {
			t.Errorf("%s: Retry-After %d … %d", c, least, most)
		}
	}
}

func TestAProblemReadsAsTheContractSays(t *testing.T) {
	p := &Problem{
		Code: InvalidParameter, Cause: errors.New("inside"),
		Errors: []FieldError{{"amount", OutOfRange, `must be "1"`}, {"subject", Required, "is required"}},
	}
	want := `{"type":"urn:octopay:error:invalid_parameter","title":"The request has faulty fields","status":400,` +
		`"code":"invalid_parameter","detail":"errors lists each faulty field and what is wrong with it. Nothing was written.",` +
		`"request_id":"r-1","retryable":false,"errors":[{"field":"amount","code":"out_of_range","message":"must be \"1\""},` +
		`{"field":"subject","code":"required","message":"is required"}]}`
	if diff := cmp.Diff(want, string(p.Append(nil, "r-1"))); diff != "" {
		t.Error(diff)
	}
	id := idgen.Make(9527, 253150322220879872)
	reused := string((&Problem{Code: OutTradeNoReused, OrderID: id, Current: "paid"}).Append(nil, "r-1"))
	if !strings.HasSuffix(reused, `"retryable":false,"order_id":"15770253150322220879872","current_status":"paid"}`) {
		t.Error(reused)
	}
}

func TestEveryProblemIsJSON(t *testing.T) {
	for c := Code(1); c < Codes; c++ {
		var v map[string]any
		if err := json.Unmarshal((&Problem{Code: c}).Append(nil, "r-1"), &v); err != nil {
			t.Errorf("%s: %v", c, err)
		}
		refusal := c.Status() == 429 || c.Status() == 503
		if _, named := v["request_id"]; named == refusal || v["code"] != c.String() || v["type"] != "urn:octopay:error:"+c.String() {
			t.Errorf("%s: %v", c, v)
		}
	}
}

func TestFrom(t *testing.T) {
	id := idgen.Make(1, 2)
	other := errors.New("something else")
	known := &Problem{Code: InvalidCursor}
	for _, tc := range []struct {
		name        string
		err         error
		write, read Code
	}{
		{"a problem is itself", fmt.Errorf("wrapped: %w", known), InvalidCursor, InvalidCursor},
		{"a reused number", &ordersvc.ReusedError{OrderID: id, Status: schema.Paid}, OutTradeNoReused, OutTradeNoReused},
		{"nothing found", fmt.Errorf("wrapped: %w", ordersvc.ErrNotFound), OrderNotFound, OrderNotFound},
		{"busy", cluster.ErrBusy, Overloaded, Overloaded},
		{"unknown wins over away", errors.Join(cluster.ErrUnavailable, lane.ErrUnknown), OutcomeUnknown, ShardUnavailable},
		{"unknown wins over closed", errors.Join(lane.ErrClosed, lane.ErrUnknown), OutcomeUnknown, Draining},
		{"something else", other, Internal, Internal},
	} {
		if got := From(tc.err, true); got.Code != tc.write {
			t.Errorf("%s: a write is %s", tc.name, got.Code)
		}
		if got := From(tc.err, false); got.Code != tc.read {
			t.Errorf("%s: a read is %s", tc.name, got.Code)
		}
	}
	if p := From(other, true); !errors.Is(p, other) || strings.Contains(string(p.Append(nil, "r")), other.Error()) {
		t.Error("the cause is kept for the log, and only there")
	}
	if p := From(&ordersvc.ReusedError{OrderID: id, Status: schema.Paid}, true); p.OrderID != id || p.Current != "paid" {
		t.Errorf("%+v", p)
	}
}

func BenchmarkRefusal(b *testing.B) {
	p := &Problem{Code: Overloaded, Shed: QueueFull}
	buf := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		buf = p.Append(buf[:0], "r-1")
	}
}
