package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
)

// setConfig puts a payment config in force.
func setConfig(t *testing.T, env []string, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.json")
	must(t, os.WriteFile(file, []byte(text), 0o600))
	now, err := operate(t, env, "config", "get")
	var c struct{ Version json.Number }
	must(t, errors.Join(err, json.Unmarshal(now, &c)))
	if out, err := operate(t, env, "config", "set", file, "--if-version", c.Version.String(), "--by", "test"); err != nil {
		t.Fatalf("octopay config set: %v\n%s", err, out)
	}
}

// What a merchant may do is decided when an order is new. A create that happened is
// answered again, and its order lives on, when the merchant is disabled, when its currency
// isn't taken any more, and when nobody knows the merchant.
func TestACreateIsRepeatedWhateverTheConfigSaysNow(t *testing.T) {
	stack := localstack.Test(t)
	env := environment(t, stack)
	const merchant = `{"unknown_merchants":"refuse","channels":[],"merchants":[{"bid":"1001","name":"Shop","enabled":ENABLED,"currencies":["CURRENCY"],"timezone":"UTC"}]}`
	config := func(enabled, currency string) string {
		return strings.NewReplacer("ENABLED", enabled, "CURRENCY", currency).Replace(merchant)
	}
	setConfig(t, env, config("true", "CNY"))
	api := start(t, "orderd", env).ready(t).api
	create := func(number string) answer {
		a, err := settle(t, each(api), request{UID: "9527", BID: "1001", OutTradeNo: number, Amount: 100, Currency: "CNY", Subject: "x"})
		must(t, err)
		return a.answer
	}
	first := create("policy-1")
	if first.status != http.StatusCreated {
		t.Fatal(first)
	}
	id := first.order(t).OrderID
	for i, c := range []struct{ name, config, code string }{
		{"disabled", config("false", "CNY"), "merchant_disabled"},
		{"another currency", config("true", "USD"), "currency_unsupported"},
		{"unknown", `{"unknown_merchants":"refuse","channels":[],"merchants":[]}`, "merchant_not_found"},
	} {
		setConfig(t, env, c.config)
		n := 0
		eventually.True(t, c.name+": a new order is refused", func() bool {
			n++
			a := create(fmt.Sprintf("policy-%d-%d", i, n))
			return a.status >= 400 && strings.Contains(string(a.raw), `"`+c.code+`"`)
		})
		again := create("policy-1")
		if again.status != http.StatusOK || again.header.Get("Idempotent-Replayed") != "true" || string(again.raw) != string(first.raw) {
			t.Errorf("%s: the repeat: %s, first was %s", c.name, again, first)
		}
	}
	a, err := call(t, t.Context(), http.MethodPost, api+"/v1/orders/"+id+"/close", nil)
	if err != nil || a.status != http.StatusOK {
		t.Errorf("the close: %v, %v", a, err)
	}
}
