package httpapi

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/octopay/octopay/httpapi/openapitest"
	"github.com/octopay/octopay/httpapi/problem"
	"github.com/octopay/octopay/idgen"
)

func TestTheContractHasExactlyTheCallsThatAreServed(t *testing.T) {
	doc := openapitest.Document(t)
	var described, served []string
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			described = append(described, method+" "+path)
		}
	}
	for _, r := range routes() {
		for _, method := range strings.Split(r.allow, ", ") {
			if method != "HEAD" { // described once, in words
				served = append(served, method+" "+r.pattern)
			}
		}
	}
	slices.Sort(described)
	slices.Sort(served)
	if !slices.Equal(described, served) {
		t.Errorf("described %v\n served %v", described, served)
	}
}

// codesIn gathers the codes that a schema allows.
func codesIn(ref *openapi3.SchemaRef, add func(string)) {
	for _, part := range ref.Value.AllOf {
		codesIn(part, add)
	}
	if code := ref.Value.Properties["code"]; code != nil {
		for _, v := range code.Value.Enum {
			add(v.(string))
		}
	}
}

func TestTheContractHasEveryCodeAtItsStatus(t *testing.T) {
	described := map[string]map[string]bool{}
	for _, item := range openapitest.Document(t).Paths.Map() {
		for _, op := range item.Operations() {
			for status, res := range op.Responses.Map() {
				if media := res.Value.Content.Get(problem.ContentType); media != nil && status >= "4" {
					codesIn(media.Schema, func(code string) {
						if described[code] == nil {
							described[code] = map[string]bool{}
						}
						described[code][status] = true
					})
				}
			}
		}
	}
	for c := problem.Code(1); c < problem.Codes; c++ {
		if c == problem.NotFound || c == problem.MethodNotAllowed {
			continue // of no call: there is no path, or no method
		}
		want := map[string]bool{itoa(c.Status()): true}
		if !maps.Equal(described[c.String()], want) {
			t.Errorf("%s: %v, want %v", c, described[c.String()], want)
		}
		delete(described, c.String())
	}
	if len(described) > 0 {
		t.Errorf("nothing answers %v", described)
	}
}

func itoa(n int) string {
	return string([]byte{'0' + byte(n/100), '0' + byte(n/10%10), '0' + byte(n%10)})
}

// Every code that can be answered is answered in some test: as `"code"` in a call of is.
func TestEveryCodeIsProducedBySomeTest(t *testing.T) {
	files := []string{"body_test.go", "errors_test.go", "faults_test.go", "lists_test.go", "orders_test.go", "routes_test.go", "server_test.go"}
	var all strings.Builder
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
	}
	for c := problem.Code(1); c < problem.Codes; c++ {
		if !regexp.MustCompile(`\.is\(` + itoa(c.Status()) + `, "` + c.String() + `"\)`).MatchString(all.String()) {
			t.Errorf("no test has %s answered", c)
		}
	}
}

// The schemas and the decoder are two writings of one rule.
func TestTheContractAndTheDecoderAgreeOnOrders(t *testing.T) {
	schemaOf := openapitest.Document(t).Components.Schemas["NewOrder"].Value
	for _, tc := range []struct {
		name, field string
		value       any
		text        string
	}{
		{"all that is required", "subject", "x", `"x"`},
		{"an amount that is the most", "amount", float64(amountMax), "9007199254740991"},
		{"an amount above it", "amount", float64(amountMax + 1), "9007199254740992"},
		{"an amount of 0", "amount", 0.0, "0"},
		{"an amount as text", "amount", "5", `"5"`},
		{"a uid as text", "uid", "5", `"5"`},
		{"a uid as a number", "uid", 5.0, "5"},
		{"a uid of 0", "uid", 0.0, "0"},
		{"a uid with a leading zero", "uid", "05", `"05"`},
		{"a number that begins with -", "out_trade_no", "-5", `"-5"`},
		{"a number that ends with -", "out_trade_no", "5-", `"5-"`},
		{"a number of 64 characters", "out_trade_no", strings.Repeat("a", 64), `"` + strings.Repeat("a", 64) + `"`},
		{"a number of 65 characters", "out_trade_no", strings.Repeat("a", 65), `"` + strings.Repeat("a", 65) + `"`},
		{"an empty subject", "subject", "", `""`},
		{"a subject of 256 emoji", "subject", strings.Repeat("😀", 256), `"` + strings.Repeat("😀", 256) + `"`},
		{"a subject of 257 emoji", "subject", strings.Repeat("😀", 257), `"` + strings.Repeat("😀", 257) + `"`},
		{"a subject with U+2027", "subject", "\u2027", `"\u2027"`},
		{"a subject with U+2028", "subject", "\u2028", `"\u2028"`},
		{"a subject with U+202E", "subject", "\u202e", `"\u202e"`},
		{"a subject with U+202F", "subject", "\u202f", `"\u202f"`},
		{"a subject with U+2069", "subject", "\u2069", `"\u2069"`},
		{"a subject with U+0085", "subject", "\u0085", `"\u0085"`},
		{"a subject with a line end", "subject", "\n", `"\n"`},
		{"an expires_in of 60", "expires_in", 60.0, "60"},
		{"an expires_in of 59", "expires_in", 59.0, "59"},
		{"a currency in lower case", "currency", "cny", `"cny"`},
		{"metadata with a number", "metadata", map[string]any{"a": 1.0}, `{"a":1}`},
		{"metadata with a name that has a space", "metadata", map[string]any{"a b": "c"}, `{"a b":"c"}`},
		{"metadata with an empty text", "metadata", map[string]any{"a": ""}, `{"a":""}`},
		{"metadata that is null", "metadata", nil, `null`},
		{"an unknown field", "note", "x", `"x"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			value := map[string]any{"uid": "9527", "bid": "1001", "out_trade_no": "A-1", "amount": 1.0, "currency": "CNY", "subject": "s"}
			value[tc.field] = tc.value
			_, code, faulty := decode(body("out_trade_no", `"A-1"`, tc.field, tc.text))
			if err := schemaOf.VisitJSON(value, openapi3.EnableJSONSchema2020()); (err == nil) != (code == "") {
				t.Errorf("the decoder says %q %v, the contract %v", code, faulty, err)
			}
		})
	}
}

// An example is the first thing that is copied.
func TestExamplesAreTrue(t *testing.T) {
	doc := openapitest.Document(t)
	if err := doc.Validate(context.Background()); err != nil {
		t.Error(err)
	}
	for name, example := range doc.Components.Examples {
		o := example.Value.Value.(map[string]any)
		id, err := idgen.Parse(o["order_id"].(string))
		if err != nil || !id.Of(9527) || o["uid"] != "9527" || o["created_at"] != id.Time().Format(timeLayout) {
			t.Errorf("%s: %v, made %v", name, err, id.Time())
		}
	}
	s := start(t)
	for _, example := range doc.Paths.Value("/v1/orders").Post.RequestBody.Value.Content["application/json"].Examples {
		text, err := json.Marshal(example.Value.Value)
		if err != nil {
			t.Fatal(err)
		}
		s.create(string(text)).is(201, "")
	}
}
