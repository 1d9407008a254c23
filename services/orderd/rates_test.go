package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/payconfig"
	"github.com/octopay/octopay/services/internal/boottest"
)

// post sends JSON and returns the answer, whose body is read.
func post(t *testing.T, target, key, text string) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: eventually.Patience}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, body
}

// The rate of the payment config that is in force holds, and the merchant that it is of.
func TestAMerchantIsHeldToTheRateOfThePaymentConfig(t *testing.T) {
	stack := localstack.Test(t, localstack.UID, localstack.BID, localstack.Meta)
	text := `{"unknown_merchants":"accept","channels":[],"merchants":[{"bid":"1001","name":"A","enabled":true,"currencies":["CNY"],"rate":1}]}`
	config, err := payconfig.Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := payconfig.NewStore(stack.Cluster(t).Meta()).Set(t.Context(), 0, config, "test"); err != nil {
		t.Fatal(err)
	}
	key := boottest.Key(t, stack)
	program := boottest.Start(t, run, environ(t, stack, stack.Map))
	ops, api := program.Listening(t), program.Listening(t)
	boottest.Ready(t, ops)
	batch := func(bid string, first int) (made, over int) {
		t.Helper()
		var orders []string
		for i := range 500 {
			orders = append(orders, fmt.Sprintf(`{"uid":"%d","bid":"%s","out_trade_no":"%s-%d","amount":1,"currency":"CNY","subject":"x"}`, 1+i, bid, bid, first+i))
		}
		res, body := post(t, api+"/v1/orders/batch", key, `{"orders":[`+strings.Join(orders, ",")+`]}`)
		var said struct{ Results []struct{ Status int } }
		if err := json.Unmarshal(body, &said); err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v: %.300s", res.Status, err, body)
		}
		for _, r := range said.Results {
			switch r.Status {
			case http.StatusCreated:
				made++
			case http.StatusTooManyRequests:
				over++
			default:
				t.Fatalf("an order of the batch has %d", r.Status)
			}
		}
		return made, over
	}
	if made, _ := batch("1001", 0); made != 500 {
		t.Errorf("of a first batch %d orders are made", made)
	}
	if made, over := batch("1001", 500); made > 100 || made+over != 500 { // one a second since
		t.Errorf("of a second batch %d orders are made, %d are over the rate", made, over)
	}
	if made, _ := batch("1002", 0); made != 500 {
		t.Errorf("of a batch of a merchant without a rate %d orders are made", made)
	}
	if err := program.Stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}
