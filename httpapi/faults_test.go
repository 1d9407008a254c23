package httpapi

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/octopay/octopay/schema"
)

// Faults that services like this have had in public, and what is right here.

// Yen were charged a hundredfold, dinars a tenth: somebody multiplied by a factor.
// Here the integer that a client sends is the integer that is kept and answered, in a
// currency without decimals, with two, and with three.
func TestFaultYenChargedAHundredfoldAndDinarsATenth(t *testing.T) {
	s := start(t)
	for i, currency := range []string{"JPY", "KRW", "VND", "CNY", "USD", "EUR", "KWD", "BHD", "TND"} {
		got := s.create(body("currency", `"`+currency+`"`, "amount", "1234567", "out_trade_no", fmt.Sprintf(`"n%d"`, i))).is(201, "")
		if kept := s.orders.orders[i]; kept.Amount != 1234567 || kept.Currency != currency || !strings.Contains(got.body, `"amount":1234567,"currency":"`+currency+`"`) {
			t.Errorf("%s: kept %d %s, answered %s", currency, kept.Amount, kept.Currency, got.body)
		}
	}
	for _, inMajorUnits := range []string{"1234.56", "12345.0", "1.2e3", `"1234.56"`, `"1234"`} {
		s.create(body("amount", inMajorUnits, "out_trade_no", `"major"`)).is(400, "invalid_parameter")
	}
}

// Nothing here computes with an amount: there is no place for a factor.
func TestFaultYenChargedAHundredfoldNoArithmeticOnAmounts(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, src, 0)
		if err != nil {
			t.Fatal(err)
		}
		amount := func(e ast.Expr) bool {
			sel, ok := e.(*ast.SelectorExpr)
			return ok && slices.Contains([]string{"Amount", "PaidAmount", "RefundedAmount"}, sel.Sel.Name)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if amount(n) {
					seen++
				}
			case *ast.BinaryExpr:
				if amount(n.X) || amount(n.Y) {
					t.Errorf("%s computes with an amount", name)
				}
			case *ast.AssignStmt:
				if n.Tok != token.ASSIGN && amount(n.Lhs[0]) {
					t.Errorf("%s computes with an amount", name)
				}
			}
			return true
		})
	}
	if seen == 0 {
		t.Error("no amount was found at all")
	}
}

// An amount wrapped at 32 bits, or lost its last digits in a float.
func TestFaultAmountsThatWrap(t *testing.T) {
	s := start(t)
	for i, amount := range []int64{math.MaxInt32, math.MaxInt32 + 1, math.MaxUint32, math.MaxUint32 + 1, amountMax - 1, amountMax} {
		got := s.create(body("amount", fmt.Sprint(amount), "out_trade_no", fmt.Sprintf(`"n%d"`, i))).is(201, "")
		if s.orders.orders[i].Amount != amount || !strings.Contains(got.body, fmt.Sprintf(`"amount":%d,`, amount)) {
			t.Errorf("%d: kept %d, answered %s", amount, s.orders.orders[i].Amount, got.body)
		}
	}
	for _, amount := range []string{"0", "-1", "-9007199254740991", "9007199254740992", "9007199254740993", "9223372036854775807",
		"9223372036854775808", "18446744073709551615", "18446744073709551617", "4294967296000000000000", strings.Repeat("9", 1000)} {
		got := s.create(body("amount", amount, "out_trade_no", `"wraps"`)).is(400, "invalid_parameter").faulty()
		if !slices.Equal(got, []string{"amount out_of_range"}) {
			t.Errorf("%.30s: %v", amount, got)
		}
	}
}

// A 64-bit id lost its last digits in JavaScript, whose numbers are float64.
func TestFaultIdsThatLoseDigitsInJavaScript(t *testing.T) {
	s := start(t)
	const largest = "9223372036854775807"
	s.create(body("uid", largest, "bid", `"`+largest+`"`)).is(201, "")
	id := s.orders.orders[0].OrderID().String()
	for _, path := range []string{"/v1/orders/" + id, "/v1/orders?uid=" + largest + "&bid=" + largest + "&out_trade_no=20261130-000017"} {
		// encoding/json into any makes float64 of numbers, as JavaScript does.
		if o := s.get(path).is(200, "").object(); o["uid"] != largest || o["bid"] != largest || o["order_id"] != id {
			t.Errorf("%v %v %v", o["uid"], o["bid"], o["order_id"])
		}
	}
	for _, path := range []string{"/v1/users/" + largest + "/orders", "/v1/merchants/" + largest + "/orders"} {
		o := s.get(path).is(200, "").object()["data"].([]any)[0].(map[string]any)
		if o["uid"] != largest || o["bid"] != largest || o["order_id"] != id {
			t.Errorf("%v", o)
		}
	}
	// And every number that does go out as a number is one that JavaScript keeps.
	o := schema.Order{UID: 1, BID: 1, Metadata: "{}", Status: schema.Created, Amount: amountMax, PaidAmount: amountMax, RefundedAmount: amountMax}
	var back map[string]any
	if err := json.Unmarshal(appendOrder(nil, &o), &back); err != nil || back["amount"].(float64) != amountMax || back["amount"].(float64)+1 == back["amount"].(float64) {
		t.Errorf("%v %v", err, back["amount"])
	}
}

// One key as a number and as text went to two shards; a negative key to a negative one.
func TestFaultKeysThatRouteByTheirSpelling(t *testing.T) {
	s := start(t)
	s.create(body("uid", "9527", "bid", "1001")).is(201, "")
	for _, spelling := range []struct{ uid, bid string }{{`"9527"`, `"1001"`}, {`9527`, `"1001"`}, {`"9527"`, `1001`}, {`"95\u00327"`, `1001`}} {
		s.create(body("uid", spelling.uid, "bid", spelling.bid)).is(200, "")
	}
	for _, uid := range []string{"-1", "-9527", "0", "-0", "-9223372036854775808", "9223372036854775808", "1.5", "9527.0", "9.527e3", "09527", "+9527", "0x2537", " 9527", "9527 ", "9_527", "９５２７", "NaN", "nil"} {
		quoted := `"` + uid + `"`
		if got := s.create(body("uid", quoted)).is(400, "invalid_parameter").faulty(); len(got) != 1 || !strings.HasPrefix(got[0], "uid ") {
			t.Errorf("%s: %v", quoted, got)
		}
		if json.Valid([]byte(uid)) && uid == strings.TrimSpace(uid) {
			s.create(body("uid", uid)).is(400, "invalid_parameter")
		}
	}
	for _, uid := range []string{"-1", "0", "-9223372036854775808", "9223372036854775808", "1.5", "09527", "max"} {
		s.get("/v1/users/"+uid+"/orders").is(400, "invalid_parameter")
		s.get("/v1/merchants/"+uid+"/orders").is(400, "invalid_parameter")
		s.get("/v1/orders?uid="+uid+"&bid=1&out_trade_no=1").is(400, "invalid_parameter")
		s.get("/v1/orders/15770253150322220879872?uid="+uid).is(400, "invalid_parameter")
	}
	if len(s.orders.orders) != 1 {
		t.Errorf("%d orders", len(s.orders.orders))
	}
}

// Emoji were cut or refused; two numbers that differed only in case were one.
func TestFaultEmojiCutAndCaseFolded(t *testing.T) {
	s := start(t)
	texts := []string{
		"😀", "👩‍👩‍👧‍👦 a family in seven code points", "🇨🇳 flag", "e\u0301 and \u00e9 stay apart", "Le Max 2 手机", "ﷺ", "𝄞𝄞",
		strings.Repeat("😀", 256), "\"quoted\" \\ <b>&amp;</b>", "العربية עברית", "\u200b zero width", "\U0010FFFF\uFFFD",
	}
	for i, text := range texts {
		quoted, _ := json.Marshal(text)
		got := s.create(body("subject", string(quoted), "metadata", `{"t":`+string(quoted)+`}`, "out_trade_no", fmt.Sprintf(`"n%d"`, i))).is(201, "").object()
		if s.orders.orders[i].Subject != text || got["subject"] != text || got["metadata"].(map[string]any)["t"] != text {
			t.Errorf("%q: kept %q, answered %q and %v", text, s.orders.orders[i].Subject, got["subject"], got["metadata"])
		}
	}
	s.create(body("subject", `"`+strings.Repeat("😀", 257)+`"`)).is(400, "invalid_parameter")

	s.create(body("out_trade_no", `"abc"`)).is(201, "")
	s.create(body("out_trade_no", `"ABC"`, "amount", "5")).is(201, "")
	for number, amount := range map[string]float64{"abc": 19900, "ABC": 5} {
		if o := s.get("/v1/orders?uid=9527&bid=1001&out_trade_no="+number).is(200, "").object(); o["amount"] != amount {
			t.Errorf("%s: %v", number, o["amount"])
		}
	}
	s.get("/v1/orders?uid=9527&bid=1001&out_trade_no=Abc").is(404, "order_not_found")
}

// Two layers read two amounts of one body: the last of duplicate names, or one that
// differs only in case.
func TestFaultTwoAmountsInOneBody(t *testing.T) {
	s := start(t)
	open := strings.TrimSuffix(body(), "}")
	s.create(open+`,"amount":1}`).is(400, "malformed_json")
	s.create(open+`,"Amount":1}`).is(400, "unknown_field")
	s.create(open+`,"AMOUNT":1}`).is(400, "unknown_field")
	s.create(open+`,"\u0061mount":1}`).is(400, "malformed_json")
	if len(s.orders.orders) > 0 {
		t.Error("something was written")
	}
}
