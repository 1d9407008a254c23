package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/octopay/octopay/httpapi/hostiletest"
	"github.com/octopay/octopay/httpapi/openapitest"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
)

// faultOf is what an answer says of the one faulty field of a request, or of the first item
// of a batch; "" if nothing is wrong with it.
func faultOf(t *testing.T, a answer, field string) string {
	t.Helper()
	type fieldError struct{ Field, Code string }
	var p struct {
		Code    string
		Errors  []fieldError
		Results []struct {
			Error struct{ Errors []fieldError }
		}
	}
	if err := json.Unmarshal(a.raw, &p); err != nil {
		t.Fatalf("%v in %s", err, a)
	}
	if p.Code == hostiletest.Malformed {
		return p.Code
	}
	errs := p.Errors
	if len(p.Results) > 0 {
		errs = p.Results[0].Error.Errors
	}
	if len(errs) == 0 {
		return ""
	}
	if len(errs) != 1 || errs[0].Field != field {
		t.Fatalf("of %s it is said: %s", field, a)
	}
	return errs[0].Code
}

// Amounts and currencies in every spelling, in every call that takes one: what is refused
// leaves no trace in any database, and what is accepted is the same number in the answer, in
// both databases, in both lists and in the journal, up to the most that there is.
func TestAmountsAreTheSameEverywhere(t *testing.T) {
	stack := localstack.Test(t)
	who := newCast(t, stack)
	env := who.settings(t, stack)
	base := start(t, "orderd", env).ready(t).api
	start(t, "syncerd", env)

	spelled := 0
	for _, c := range openapitest.Calls(t) {
		for _, field := range c.Fields {
			for i, s := range hostiletest.Spellings[field.Schema] {
				if s.Fault == "" {
					continue
				}
				spelled++
				// An order of its own, on which every call would do something.
				id := who.born(t, base, fmt.Sprint("S-", spelled, "-", i), 19900, "CNY")
				if c.Path != "/v1/orders/{order_id}/pay" {
					who.must(t, http.StatusOK, http.MethodPost, base, "/v1/orders/"+id+"/pay", payment("1", 19900, "CNY"))
				}
				before := who.must(t, http.StatusOK, http.MethodGet, base, "/v1/orders/"+id+"?include=journal", "")
				a, err := who.send(t, c.Method, base, c.Target("order_id", id), c.With(t, field.Path, s.JSON), nil)
				if err != nil {
					t.Fatal(err)
				}
				if fault := faultOf(t, a, field.Path); fault != s.Fault {
					t.Errorf("%s, %s %s (%s): %q, want %q: %s", c, field.Path, s.Name, s.JSON, fault, s.Fault, a)
				}
				if after := who.must(t, http.StatusOK, http.MethodGet, base, "/v1/orders/"+id+"?include=journal", ""); string(after.raw) != string(before.raw) {
					t.Errorf("%s, %s %s: the order was %s, is %s", c, field.Path, s.Name, before, after)
				}
			}
		}
	}
	c := stack.Cluster(t)
	for _, o := range rows(t, c, shardmap.UID) {
		// Of the batch's two orders the second is right.
		if !strings.HasPrefix(o.OutTradeNo, "S-") && o.OutTradeNo != "A-1" {
			t.Errorf("a refused create is stored: %+v", o)
		}
	}

	// The lives of orders with the least and the most, in currencies of 0, 2 and 3 decimals.
	const most = hostiletest.AmountMax
	type life struct {
		id       string
		currency string
		paid     int64
		refunds  []int64
	}
	var lives []life
	for _, s := range hostiletest.Currencies {
		if s.Fault != "" {
			continue
		}
		var currency string
		if err := json.Unmarshal([]byte(s.JSON), &currency); err != nil {
			t.Fatal(err)
		}
		for _, refunds := range [][]int64{{1}, {most}, {1, most - 1}, {most - 2, 1, 1}, {most / 2, most - most/2}} {
			l := life{currency: currency, refunds: refunds}
			for _, r := range refunds {
				l.paid += r
			}
			l.id = who.born(t, base, fmt.Sprint("L-", len(lives)), l.paid, currency)
			path := "/v1/orders/" + l.id
			another := l.paid - 1
			if another == 0 {
				another = 2
			}
			who.must(t, http.StatusUnprocessableEntity, http.MethodPost, base, path+"/pay", payment("wrong", another, currency))
			who.must(t, http.StatusOK, http.MethodPost, base, path+"/pay", payment("right", l.paid, currency))
			for i, r := range refunds {
				left := l.paid
				for _, before := range refunds[:i] {
					left -= before
				}
				if left < most {
					who.must(t, http.StatusUnprocessableEntity, http.MethodPost, base, path+"/refunds", fmt.Sprintf(`{"out_refund_no":"over-%d","amount":%d}`, i, left+1))
				}
				who.must(t, http.StatusCreated, http.MethodPost, base, path+"/refunds", fmt.Sprintf(`{"out_refund_no":"r-%d","amount":%d}`, i, r))
			}
			who.must(t, http.StatusConflict, http.MethodPost, base, path+"/refunds", fmt.Sprintf(`{"out_refund_no":"more","amount":%d}`, int64(most)))
			lives = append(lives, l)
		}
	}

	acked := map[string]acknowledged{}
	for _, l := range lives {
		a := who.must(t, http.StatusOK, http.MethodGet, base, "/v1/orders/"+l.id, "")
		acked[l.id] = acknowledged{raw: string(a.raw)}
	}
	awaitMirror(t, base, acked)
	byBuyer, byMerchant := walk(t, base+"/v1/users/9527/orders", 100), walk(t, base+"/v1/merchants/1001/orders", 100)
	truth, copies := rows(t, c, shardmap.UID), rows(t, c, shardmap.BID)
	journals, copied := entries(t, c, shardmap.UID), entries(t, c, shardmap.BID)
	for _, l := range lives {
		parsed, err := idgen.Parse(l.id)
		if err != nil {
			t.Fatal(err)
		}
		id, raw := parsed.Snowflake(), acked[l.id].raw
		var o struct {
			Amount           json.Number `json:"amount"`
			Paid             json.Number `json:"paid_amount"`
			Refunded         json.Number `json:"refunded_amount"`
			Currency, Status string
		}
		if err := json.Unmarshal([]byte(raw), &o); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprint(l.paid)
		if o.Amount.String() != want || o.Paid.String() != want || o.Refunded.String() != want || o.Currency != l.currency || o.Status != "refunded" {
			t.Errorf("%d %s in %v: %s", l.paid, l.currency, l.refunds, raw)
		}
		if byBuyer[l.id] != raw || byMerchant[l.id] != raw {
			t.Errorf("the order is\n%s\nby its buyer\n%s\nby its merchant\n%s", raw, byBuyer[l.id], byMerchant[l.id])
		}
		row := truth[id]
		if row.Amount != l.paid || row.PaidAmount != l.paid || row.RefundedAmount != l.paid || row.Currency != l.currency || copies[id] != row {
			t.Errorf("stored is %+v, in the mirror %+v", row, copies[id])
		}
		if folded, err := ordersvc.Fold(ordersvc.Born(row), journals[id]); err != nil || folded != row {
			t.Errorf("the journal makes %+v (%v) of %+v", folded, err, row)
		}
		if fmt.Sprint(journals[id]) != fmt.Sprint(copied[id]) {
			t.Errorf("the journal is %+v, in the mirror %+v", journals[id], copied[id])
		}
		var refunded, unapplied int64
		for _, e := range journals[id] {
			switch e.Kind {
			case schema.KindPaid:
				if e.Amount != l.paid || e.Currency != l.currency {
					t.Errorf("%+v", e)
				}
			case schema.KindRefunded:
				refunded += e.Amount
			case schema.KindUnappliedPayment:
				unapplied++
			}
		}
		if refunded != l.paid || unapplied != 1 || len(journals[id]) != 2+len(l.refunds) {
			t.Errorf("refunded %d of %d: %+v", refunded, l.paid, journals[id])
		}
		a := who.must(t, http.StatusOK, http.MethodGet, base, "/v1/orders/"+l.id+"?include=journal", "")
		for i, r := range l.refunds {
			if !strings.Contains(string(a.raw), fmt.Sprintf(`"kind":"refunded","amount":%d,"currency":"%s"`, r, l.currency)) {
				t.Errorf("refund %d of %d is not in %s", i, r, a)
			}
		}
	}
	t.Logf("%d refused spellings, %d lives", spelled, len(lives))
	eventually.Within(t, time.Minute, "both clusters have the same", func() bool { return fmt.Sprint(rows(t, c, shardmap.BID)) == fmt.Sprint(truth) })
}
