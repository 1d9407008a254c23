package httpapi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/octopay/octopay/httpapi/hostiletest"
	"github.com/octopay/octopay/httpapi/openapitest"
)

// judgement is what an answer says of one field: its fault, "" if it is right.
func judgement(t *testing.T, got answer, field string) string {
	t.Helper()
	type fieldError struct{ Field, Code string }
	var p struct {
		Code    string
		Errors  []fieldError
		Results []struct {
			Status int
			Error  struct{ Errors []fieldError }
		}
	}
	if err := json.Unmarshal([]byte(got.body), &p); err != nil {
		t.Fatalf("%v in %s", err, got.body)
	}
	errs := p.Errors
	switch {
	case p.Code == hostiletest.Malformed:
		return hostiletest.Malformed
	case len(p.Results) > 0:
		if errs = p.Results[0].Error.Errors; len(errs) == 0 && p.Results[0].Status == 400 {
			t.Fatalf("a faulty item without its fields: %s", got.body)
		}
	case got.status == 400 && len(errs) == 0:
		t.Fatalf("a fault without its field: %s", got.body)
	}
	if len(errs) == 0 {
		return ""
	}
	if len(errs) != 1 || errs[0].Field != field {
		t.Fatalf("of %s it is said: %s", field, got.body)
	}
	return errs[0].Code
}

// Every amount and currency that a call of the contract takes, in every spelling: there is
// one rule, and it is everywhere.
func TestAmountsAndCurrenciesInEverySpellingInEveryCall(t *testing.T) {
	s := start(t)
	var seen []string
	for _, c := range openapitest.Calls(t) {
		for _, field := range c.Fields {
			before, id := "", ""
			for i, spelling := range hostiletest.Spellings[field.Schema] {
				if i == 0 {
					seen = append(seen, c.String()+" "+field.Path)
				}
				if before == "" {
					id = s.paid(fmt.Sprint(len(seen), "-", i))
					before = s.get("/v1/orders/" + id).body
				}
				got := s.send(c.Method, c.Target("order_id", id), c.With(t, field.Path, spelling.JSON))
				if fault := judgement(t, got, field.Path); fault != spelling.Fault {
					t.Errorf("%s, %s %s (%s): %q, want %q: %s", c, field.Path, spelling.Name, spelling.JSON, fault, spelling.Fault, got.body)
				}
				after := s.get("/v1/orders/" + id).body
				if spelling.Fault != "" && after != before {
					t.Errorf("%s, %s %s: the order was %s, is %s", c, field.Path, spelling.Name, before, after)
				}
				if after != before {
					before = "" // the next one needs another
				}
			}
		}
	}
	slices.Sort(seen)
	for _, known := range []string{
		"POST /v1/orders amount", "POST /v1/orders currency", "POST /v1/orders/batch orders[0].amount", "POST /v1/orders/batch orders[0].currency",
		"POST /v1/orders/{order_id}/pay amount", "POST /v1/orders/{order_id}/pay currency", "POST /v1/orders/{order_id}/refunds amount",
	} {
		if !slices.Contains(seen, known) {
			t.Errorf("%s is not among %v", known, seen)
		}
	}
}

// What is right is answered as it was sent, to the last unit.
func TestAmountsComeBackAsTheyWereSent(t *testing.T) {
	s := start(t)
	for i, a := range hostiletest.Amounts {
		if a.Fault != "" {
			continue
		}
		for j, c := range hostiletest.Currencies {
			if c.Fault != "" {
				continue
			}
			got := s.create(body("out_trade_no", fmt.Sprintf(`"%d-%d"`, i, j), "amount", a.JSON, "currency", c.JSON)).is(201, "")
			var currency string
			if err := json.Unmarshal([]byte(c.JSON), &currency); err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprintf(`"amount":%s,"currency":"%s"`, strings.TrimSpace(a.JSON), currency); !strings.Contains(got.body, want) {
				t.Errorf("%s of %s: %s", a.Name, c.Name, got.body)
			}
		}
	}
}
