package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/octopay/octopay/httpapi/openapitest"
	"github.com/octopay/octopay/httpapi/problem"
	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/syncer/conflict"
	"github.com/octopay/octopay/syncer/mirror"
)

// understood is orders that only note what they were asked.
type understood struct{ asked any }

func (u *understood) note(v any) error {
	u.asked = v
	return ordersvc.ErrNotFound
}

func (u *understood) Create(_ context.Context, n ordersvc.New) (ordersvc.Created, error) {
	n.RequestID = ""
	return ordersvc.Created{}, u.note(n)
}

func (u *understood) CreateAll(_ context.Context, all []ordersvc.New) []ordersvc.Outcome {
	out := make([]ordersvc.Outcome, len(all))
	for i := range all {
		all[i].RequestID, out[i].Err = "", ordersvc.ErrNotFound
	}
	u.asked = all
	return out
}

func (u *understood) Change(_ context.Context, c ordersvc.Change) (ordersvc.Changed, error) {
	c.By.RequestID = ""
	return ordersvc.Changed{}, u.note(c)
}

func (u *understood) Life(_ context.Context, id idgen.ID) (ordersvc.Life, error) {
	return ordersvc.Life{}, u.note(id)
}

func (u *understood) Get(_ context.Context, id idgen.ID) (schema.Order, error) {
	return schema.Order{}, u.note(id)
}

func (u *understood) Journal(context.Context, schema.Order) ([]schema.Entry, error) { return nil, nil }

func (u *understood) Find(_ context.Context, k ordersvc.Key) (schema.Order, error) {
	return schema.Order{}, u.note(k)
}

func (u *understood) List(_ context.Context, q ordersvc.Query) (ordersvc.Page, error) {
	return ordersvc.Page{}, u.note(q)
}

// understoodMirror is understood as a mirror.
type understoodMirror struct{ *understood }

func (u understoodMirror) List(_ context.Context, q mirror.Query) (mirror.Page, error) {
	return mirror.Page{}, u.note(q)
}

// askedEntries is a mirror.EntryQuery that can be compared.
type askedEntries struct {
	bid    int64
	kinds  string
	sifted bool
	before mirror.Position
	limit  int
}

func (u understoodMirror) Entries(_ context.Context, q mirror.EntryQuery) (mirror.EntryPage, error) {
	return mirror.EntryPage{}, u.note(askedEntries{q.BID, string(q.Kinds), q.Match != nil, q.Before, q.Limit})
}

// understoodConflicts is understood as a list of conflicts.
type understoodConflicts struct{ *understood }

func (u understoodConflicts) List(_ context.Context, q conflict.Query) (conflict.Page, error) {
	return conflict.Page{}, u.note(q)
}

// A reader is an API over understood.
type reader struct {
	api    *API
	orders *understood
}

func newReader(t testing.TB) *reader {
	t.Helper()
	u := &understood{}
	api, err := New(Config{Orders: u, Mirror: understoodMirror{u}, Conflicts: understoodConflicts{u}, Keys: devKeys(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return &reader{api, u}
}

// A reply is what a request was understood as, or why it was not.
type reply struct {
	status  int
	asked   any // nil: nothing was
	code    string
	fields  map[string]bool // without what is behind metadata
	results []reply         // of a batch: those that were refused have no asked
	taken   uint64          // bytes of memory
}

// allowance is how much memory a request of n bytes may take, for all that is made of it
// and of its answer: some kilobytes for each of 500 faulty orders of three bytes.
func allowance(n int) uint64 { return 24<<20 + 64*uint64(n) }

// ask sends a request as the first role that may.
func (r *reader) ask(t *testing.T, method, target string, body []byte, headers http.Header) (got reply) {
	t.Helper()
	req := httptest.NewRequest(method, "/", bytes.NewReader(body))
	u, err := url.ParseRequestURI(target)
	if err != nil {
		t.Skip("no such target comes through net/http")
	}
	req.URL, req.RequestURI = u, target
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Authorization", "Bearer dev-app")
	for _, c := range []struct{ end, key string }{{"/pay", "dev-channel"}, {"/result", "dev-channel"}, {"/void", "dev-ops"}} {
		if strings.HasSuffix(u.Path, c.end) {
			req.Header.Set("Authorization", "Bearer "+c.key)
		}
	}
	if strings.HasPrefix(u.Path, "/v1/admin/") {
		req.Header.Set("Authorization", "Bearer dev-ops")
	}
	maps.Copy(req.Header, headers)
	w := httptest.NewRecorder()
	r.orders.asked = nil
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r.api.ServeHTTP(w, req)
	runtime.ReadMemStats(&after)
	got = reply{status: w.Code, asked: r.orders.asked, taken: after.TotalAlloc - before.TotalAlloc}
	if got.taken > allowance(len(body)+len(target)) {
		t.Fatalf("%s of %d bytes took %d bytes of memory", target, len(body), got.taken)
	}
	if got.status >= 500 {
		t.Fatalf("%s %q %q was answered %d: %s", method, target, body, got.status, w.Body)
	}
	if got.status < 400 && w.Body.Len() == 0 {
		t.Fatalf("%s %q: %d without a body", method, target, got.status)
	}
	var p wireProblem
	if w.Header().Get("Content-Type") == "application/yaml" || method == http.MethodHead {
		return got
	}
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("%s %q: %v in %s", method, target, err, w.Body)
	}
	got.code, got.fields = p.Code, p.fields("")
	for i, one := range p.Results {
		got.results = append(got.results, reply{status: one.Status, code: one.Error.Code, fields: one.Error.fields(fmt.Sprintf("orders[%d]", i))})
	}
	return got
}

// A wireProblem is a problem, or the answer to a batch.
type wireProblem struct {
	Code    string
	Errors  []struct{ Field, Code, Message string }
	Results []struct {
		Status int
		Error  *wireProblem
	}
}

// fields returns the faulty fields below at.
func (p *wireProblem) fields(at string) map[string]bool {
	all := map[string]bool{}
	for _, e := range p.Errors {
		name := strings.TrimPrefix(strings.TrimPrefix(e.Field, at), ".")
		if strings.HasPrefix(name, "metadata.") {
			name = "metadata"
		}
		all[name] = true
	}
	return all
}

// anyOrder is the order in the paths of fuzz tests.
const anyOrder = "15770253150322220879872"

func targetOf(call string) (method, target string) {
	method, path, _ := strings.Cut(call, " ")
	return method, strings.NewReplacer("{order_id}", anyOrder, "{out_refund_no}", "r", "{seq}", "2", "{uid}", "9527", "{bid}", "1001").Replace(path)
}

// encodeAsked writes a body whose decoding must give the same again.
func encodeAsked(t *testing.T, asked any) []byte {
	t.Helper()
	object := map[string]any{}
	put := func(name, value string) {
		if value != "" {
			object[name] = value
		}
	}
	switch v := asked.(type) {
	case ordersvc.New:
		return encodeNew(v)
	case []ordersvc.New:
		var all [][]byte
		for _, n := range v {
			all = append(all, encodeNew(n))
		}
		return slices.Concat([]byte(`{"orders":[`), bytes.Join(all, []byte(",")), []byte("]}"))
	case ordersvc.Change:
		switch do := v.Do.(type) {
		case ordersvc.Pay:
			object["channel"], object["channel_trade_no"], object["amount"], object["currency"] = do.Channel, do.TradeNo, do.Amount, do.Currency
			if do.PaidAt != 0 {
				object["paid_at"] = do.PaidAt.Time().Format(timeLayout)
			}
		case ordersvc.Close:
			object["reason"] = do.Reason.String()
		case ordersvc.Return:
			object["out_refund_no"], object["amount"] = do.No, do.Amount
			put("reason", do.Reason)
		case ordersvc.ReturnResult:
			object["result"] = "failed"
			if do.Succeeded {
				object["result"] = "succeeded"
			}
			put("channel_refund_no", do.ChannelRefundNo)
		case ordersvc.ReturnUnapplied:
			object["out_refund_no"] = do.No
			put("reason", do.Reason)
		case ordersvc.VoidUnapplied:
			put("reason", do.Reason)
		default:
			t.Fatalf("nobody can write a %T", do)
		}
	default:
		t.Fatalf("nobody can write a %T", asked)
	}
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// fuzzBody states the law of a call's body: what the contract allows, and nothing else, is
// understood; written again it is understood as the same. What is refused is refused with
// the contract's code and every faulty field by its name. Nothing panics, and memory is
// bounded.
func fuzzBody(f *testing.F, call string) {
	described, ok := describedBodies[call]
	if !ok {
		f.Fatalf("nobody describes the body of %s", call)
	}
	for _, c := range openapitest.Calls(f) {
		if c.String() != call {
			continue
		}
		f.Add([]byte(c.Body()))
		for _, field := range c.Fields {
			for _, raw := range []string{"", "null", `""`, "1e2", "-0", "9007199254740992", `"\ud83d\ude00"`, `"\u202e"`, `[[[[[[[[1]]]]]]]]`, `{"a":"1","a":"2"}`, `"9"`} {
				f.Add([]byte(c.With(f, field.Path, raw)))
			}
		}
	}
	for _, seed := range []string{"", "{}", "null", "[]", "{}{}", `{"x":1}`, `{"":1}`, `{"6222020012345678":1}`, "[[[[", `{"a`, "\xff", "{\"a\":\"\xff\"}", "\ufeff{}"} {
		f.Add([]byte(seed))
	}
	r := newReader(f)
	method, target := targetOf(call)
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > bodyMax {
			t.Skip("that is 413")
		}
		got := r.ask(t, method, target, body, nil)
		tree, isObject := readJSON(body)
		faulty, known := described.faulty(tree)
		switch {
		case len(body) == 0 && described.required == "":
			faulty = nil // there may be none
		case !isObject:
			if got.status != 400 || got.code != "malformed_json" || got.asked != nil {
				t.Fatalf("%q is no object of JSON: %+v", body, got)
			}
			return
		}
		if len(faulty) > 0 {
			code := "unknown_field"
			if known {
				code = "invalid_parameter"
			}
			// Of very many unknown fields some are told.
			few := len(tree.names) <= unknownMax
			if got.status != 400 || got.code != code || got.asked != nil || few && !maps.Equal(got.fields, faulty) {
				t.Fatalf("%q: %+v, want %s of %v", body, got, code, faulty)
			}
			return
		}
		if got.status != 404 || got.code != "order_not_found" || got.asked == nil {
			t.Fatalf("%q was not understood: %+v", body, got)
		}
		again := r.ask(t, method, target, encodeAsked(t, got.asked), nil)
		if again.asked != got.asked {
			t.Fatalf("%q is %+v, and written again %+v", body, got.asked, again.asked)
		}
	})
}

func FuzzCreate(f *testing.F) { fuzzBody(f, "POST /v1/orders") }
func FuzzPay(f *testing.F)    { fuzzBody(f, "POST /v1/orders/{order_id}/pay") }
func FuzzClose(f *testing.F)  { fuzzBody(f, "POST /v1/orders/{order_id}/close") }
func FuzzRefund(f *testing.F) { fuzzBody(f, "POST /v1/orders/{order_id}/refunds") }
func FuzzRefundResult(f *testing.F) {
	fuzzBody(f, "POST /v1/orders/{order_id}/refunds/{out_refund_no}/result")
}
func FuzzUnappliedRefund(f *testing.F) {
	fuzzBody(f, "POST /v1/orders/{order_id}/unapplied-payments/{seq}/refund")
}
func FuzzVoid(f *testing.F) { fuzzBody(f, "POST /v1/orders/{order_id}/unapplied-payments/{seq}/void") }

// FuzzBatch: each item of a batch is what it would have been alone.
func FuzzBatch(f *testing.F) {
	const call = "POST /v1/orders/batch"
	for _, c := range openapitest.Calls(f) {
		if c.String() != call {
			continue
		}
		f.Add([]byte(c.Body()))
		for _, field := range c.Fields {
			for _, raw := range []string{"", "null", "{}", "[]", "[{}]", `[1,"a",null,{}]`, "1e2", `"\ud83d\ude00"`, `[[[[[[[[1]]]]]]]]`, `{"a":"1","a":"2"}`} {
				f.Add([]byte(c.With(f, field.Path, raw)))
			}
		}
	}
	f.Add([]byte(`{"orders":[` + strings.Repeat("{},", 499) + `{}]}`))
	f.Add([]byte(`{"orders":[` + strings.Repeat("0,", 500) + `0]}`))
	f.Add([]byte(`{"orders":[` + body() + "," + body("uid", "0") + "," + body("x", "1") + `],"x":1}`))
	r := newReader(f)
	f.Fuzz(func(t *testing.T, sent []byte) {
		got := r.ask(t, "POST", "/v1/orders/batch", sent, nil)
		tree, isObject := readJSON(sent)
		if !isObject {
			if got.status != 400 || got.code != "malformed_json" || got.asked != nil {
				t.Fatalf("%q is no object of JSON: %+v", sent, got)
			}
			return
		}
		var items []node
		list := func(n node) bool {
			items = n.items
			return n.kind == '[' && len(n.items) >= 1 && len(n.items) <= 500
		}
		faulty, known := described{map[string]rule{"orders": list}, "orders"}.faulty(tree)
		if len(faulty) > 0 {
			code := "unknown_field"
			if known {
				code = "invalid_parameter"
			}
			if got.status != 400 || got.code != code || got.asked != nil || len(tree.names) <= unknownMax && !maps.Equal(got.fields, faulty) {
				t.Fatalf("%q: %+v, want %s of %v", sent, got, code, faulty)
			}
			return
		}
		if got.status != 200 || len(got.results) != len(items) {
			t.Fatalf("%d items: %+v", len(items), got)
		}
		right := 0
		for i, item := range items {
			faulty, known := describedOrder.faulty(item)
			if item.kind != '{' {
				faulty, known = map[string]bool{"": true}, true
			}
			code, status := "order_not_found", 404
			switch {
			case known:
				code, status = "invalid_parameter", 400
			case len(faulty) > 0:
				code, status = "unknown_field", 400
			default:
				right++
			}
			one := got.results[i]
			if one.status != status || one.code != code || len(item.names) <= unknownMax && !maps.Equal(one.fields, faulty) {
				t.Fatalf("item %d of %q: %+v, want %s of %v", i, sent, one, code, faulty)
			}
		}
		all, _ := got.asked.([]ordersvc.New)
		if len(all) != right {
			t.Fatalf("%d of %d right orders of %q were understood", len(all), right, sent)
		}
		if right == 0 {
			return
		}
		all = slices.Clone(all)
		again, _ := r.ask(t, "POST", "/v1/orders/batch", encodeAsked(t, all), nil).asked.([]ordersvc.New)
		if !slices.Equal(again, all) {
			t.Fatalf("%q is %+v, and written again %+v", sent, all, again)
		}
	})
}

// Every body of the contract has a fuzz test.
func TestEveryBodyIsFuzzed(t *testing.T) {
	source, err := os.ReadFile("fuzz_test.go")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, c := range openapitest.Calls(t) {
		if len(c.Fields) == 0 {
			continue
		}
		n++
		if !regexp.MustCompile(`(?m)^func Fuzz\w+\(f \*testing\.F\) +\{\s*(fuzzBody\(f, |const call = )"` + regexp.QuoteMeta(c.String()) + `"`).Match(source) {
			t.Errorf("nobody fuzzes the body of %s", c)
		}
		var names []string
		if rules, ok := describedBodies[c.String()]; ok {
			names = slices.Sorted(maps.Keys(rules.rules))
			var given []string
			for _, field := range c.Fields {
				if !strings.ContainsAny(field.Path, ".[") {
					given = append(given, field.Path)
				}
			}
			if !slices.Equal(names, given) {
				t.Errorf("%s: the reference has %v, the contract %v", c, names, given)
			}
		}
	}
	if n < 8 {
		t.Errorf("only %d calls with a body", n)
	}
}

// The reference is held to the same tables as the decoder.
func TestTheReferenceReadsJSON(t *testing.T) {
	for text, want := range map[string]bool{
		`{}`: true, ` { } `: true, `{"a":[1,-0.5e+3,true,false,null,"\u00e9\n"]}`: true, `{"a":{"a":1}}`: true, `{"a":"\ud83d\ude00"}`: true,
		`[]`: false, ``: false, `{`: false, `{"a"}`: false, `{"a":1,}`: false, `{"a":1}x`: false, `{"a":01}`: false, `{"a":+1}`: false, `{"a":"\x41"}`: false,
		`{"a":1,"\u0061":2}`: false, `{"a":"\ud83d"}`: false, `{"a":"\ude00\ud83d"}`: false, "{\"a\":\"\t\"}": false, "{\"a\":\"\xff\"}": false,
		`{"a":[[[[[[[1]]]]]]]}`: true, `{"a":[[[[[[[[1]]]]]]]]}`: false, `{"a":NaN}`: false, `{"a":1 2}`: false, `{"a":tru}`: false,
	} {
		if _, ok := readJSON([]byte(text)); ok != want {
			t.Errorf("%s: %t", text, ok)
		}
	}
}

// FuzzQuery: whatever stands behind the question mark, a call with GET understands it, and
// then the same when it is written in the one simple way, or names what is faulty.
func FuzzQuery(f *testing.F) {
	var calls []openapitest.Call
	for _, c := range openapitest.Calls(f) {
		if c.Method == http.MethodGet {
			calls = append(calls, c)
		}
	}
	cursor := filter{list: listOfUser, owner: 9527, before: math.MaxInt64}.cursor(253150322220879872)
	for i, c := range calls {
		f.Add(uint8(i), "")
		for _, name := range c.Query {
			for _, value := range []string{"", "1", "0", "100", "101", "01", "%31", "%zz", "+", "2026-11-30T00%3A00%3A00Z", "2026-11-30T00:00:00+08:00", "journal", "paid", "A-1", cursor, "9223372036854775808", "1&" + name + "=1"} {
				f.Add(uint8(i), name+"="+value)
			}
		}
		f.Add(uint8(i), "uid=9527&bid=1001&out_trade_no=A-1")
		f.Add(uint8(i), "x=1&limit=1&;&=&&a%00=1")
	}
	r := newReader(f)
	f.Fuzz(func(t *testing.T, n uint8, query string) {
		c := calls[int(n)%len(calls)]
		if len(query) > uriMax/2 {
			t.Skip("that may be 414")
		}
		_, target := targetOf(c.String())
		got := r.ask(t, "GET", target+"?"+query, nil, nil)
		u, err := url.ParseRequestURI(target + "?" + query)
		if err != nil {
			t.Fatal(err)
		}
		pairs := map[string]string{}
		readable := true
		for pair := range strings.SplitSeq(u.RawQuery, "&") {
			if u.RawQuery == "" {
				break
			}
			rawName, rawValue, _ := strings.Cut(pair, "=")
			name, err1 := url.QueryUnescape(rawName)
			value, err2 := url.QueryUnescape(rawValue)
			_, twice := pairs[name]
			pairs[name] = value
			readable = readable && err1 == nil && err2 == nil && !twice && value != "" && slices.Contains(c.Query, name)
		}
		understood := got.asked != nil
		switch {
		case !readable && (understood || got.status != 400 || len(got.fields) == 0):
			t.Fatalf("%s?%s: %+v", target, query, got)
		case !understood && got.status != 400 && (got.status != 404 || pairs["uid"] == "" || pairs["uid"] == "9527"):
			t.Fatalf("%s?%s: %+v", target, query, got)
		case !understood:
			for name := range got.fields {
				if _, sent := pairs[name]; !sent && name != "query" && !slices.Contains(c.Query, name) {
					t.Fatalf("%s?%s: nobody sent %s", target, query, name)
				}
			}
			if got.status == 400 && got.code != "invalid_cursor" && len(got.fields) == 0 {
				t.Fatalf("%s?%s names nothing: %+v", target, query, got)
			}
			return
		}
		if limit, given := pairs["limit"]; given && !regexp.MustCompile(`^([1-9][0-9]?|100)$`).MatchString(limit) {
			t.Fatalf("a limit of %q", limit)
		}
		for _, key := range []string{"uid", "bid"} {
			if v, given := pairs[key]; given && !ruleKey(node{kind: '"', text: v}) {
				t.Fatalf("a %s of %q", key, v)
			}
		}
		if v, given := pairs["out_trade_no"]; given && !ruleForm(numberForm)(node{kind: '"', text: v}) {
			t.Fatalf("an out_trade_no of %q", v)
		}
		plain := url.Values{}
		for name, value := range pairs {
			plain.Set(name, value)
		}
		if again := r.ask(t, "GET", target+"?"+plain.Encode(), nil, nil); len(pairs) > 0 && again.asked != got.asked {
			t.Fatalf("%s?%s is %+v, and ?%s is %+v", target, query, got.asked, plain.Encode(), again.asked)
		}
	})
}

// FuzzPath: whatever path is asked for, an order is looked for only if its id stands there
// as it is written.
func FuzzPath(f *testing.F) {
	for _, c := range openapitest.Calls(f) {
		_, target := targetOf(c.String())
		f.Add(c.Method, target)
		f.Add(c.Method, target+"/")
		f.Add(c.Method, strings.Replace(target, "/v1", "//v1", 1))
		f.Add(c.Method, strings.Replace(target, "orders", "%6frders", 1))
	}
	for _, path := range []string{"/", "/v1/orders/..", "/v1/orders/%2e%2e/x", "/v1/orders/" + anyOrder + "/refunds/a%3Ab%7C%2a", "/v1/orders/" + anyOrder + "%00", "/v1/orders/１", "*", "/openapi.yaml",
		"/v1/orders/" + anyOrder + "/unapplied-payments/02/void", "/v1/users/09527/orders", "/v1/users/9223372036854775808/orders", "/v1/orders/" + anyOrder + "/refunds/../close"} {
		f.Add("GET", path)
		f.Add("POST", path)
	}
	r := newReader(f)
	ordersForm := form(`/v1/orders/1[0-9]{22}(/refunds(/[^/%]+)?)?`)
	f.Fuzz(func(t *testing.T, method, target string) {
		if method != "GET" && method != "POST" || len(target) > uriMax || strings.ContainsAny(target, "?#") {
			t.Skip("a query is another test's")
		}
		var body []byte
		if method == "POST" {
			body = []byte("{}") // right for a close alone
		}
		got := r.ask(t, method, target, body, nil)
		u, err := url.ParseRequestURI(target)
		if err != nil {
			t.Fatal(err)
		}
		asked := numberEscapes.Replace(u.EscapedPath())
		if got.asked == nil {
			if id, err := idgen.Parse(strings.TrimPrefix(asked, "/v1/orders/")); method == "GET" && err == nil {
				t.Fatalf("%s was not looked for: %+v", id, got)
			}
			return
		}
		parts := strings.Split(asked, "/")
		switch v := got.asked.(type) {
		case idgen.ID:
			if !ordersForm.MatchString(asked) || parts[3] != v.String() {
				t.Fatalf("%q was understood as %s", target, v)
			}
		case ordersvc.Change:
			if asked != "/v1/orders/"+v.Order.String()+"/close" {
				t.Fatalf("%q was understood as %+v", target, v)
			}
		case ordersvc.Query:
			if asked != fmt.Sprintf("/v1/users/%d/orders", v.UID) {
				t.Fatalf("%q was understood as %+v", target, v)
			}
		case mirror.Query:
			if asked != fmt.Sprintf("/v1/merchants/%d/orders", v.BID) {
				t.Fatalf("%q was understood as %+v", target, v)
			}
		case askedEntries:
			if v.bid != 0 && asked != fmt.Sprintf("/v1/merchants/%d/unapplied-payments", v.bid) || v.bid == 0 && !strings.HasPrefix(asked, "/v1/admin/") {
				t.Fatalf("%q was understood as %+v", target, v)
			}
		case conflict.Query:
			if asked != "/v1/admin/conflicts" {
				t.Fatalf("%q was understood as %+v", target, v)
			}
		default:
			t.Fatalf("%q was understood as %+v", target, v)
		}
	})
}

// FuzzHeaders: a request id comes back exactly if it has the form, only the one key is a
// key, and only JSON is JSON.
func FuzzHeaders(f *testing.F) {
	for _, s := range [][3]string{
		{"r-1", "Bearer dev-app", "application/json"}, {"", "", ""}, {"a b", "bearer dev-app", "application/json; charset=utf-8"}, {strings.Repeat("a", 65), "Bearer  dev-app", "APPLICATION/JSON"},
		{"é", "Bearer dev-app ", "application/json;charset=latin1"}, {"r\x00", "Basic x", "application/jsonx"}, {".", "Bearer", "text/json"}, {"r", "Bearer dev-app", ` application/json ; x="y;z"`},
	} {
		f.Add(s[0], s[1], s[2])
	}
	r := newReader(f)
	idForm := form(`[A-Za-z0-9._-]{1,64}`)
	f.Fuzz(func(t *testing.T, id, key, media string) {
		if got := requestID(http.Header{"X-Request-Id": {id}}); (got == id) != idForm.MatchString(id) || !idForm.MatchString(got) {
			t.Fatalf("the request id %q became %q", id, got)
		}
		if got := requestID(http.Header{"X-Request-Id": {id, id}}); got == id && id != "" {
			t.Fatalf("of two request ids one was taken")
		}
		got := r.ask(t, "GET", "/v1/users/9527/orders", nil, http.Header{"Authorization": {key}, "X-Request-Id": {id}})
		fine := regexp.MustCompile(`^(?i:bearer) +dev-(app|ops)$`).MatchString(key)
		denied := regexp.MustCompile(`^(?i:bearer) +dev-(channel|merchant-1001)$`).MatchString(key)
		switch {
		case fine != (got.asked != nil), denied != (got.status == 403), !fine && !denied && (got.status != 401 || got.code != "unauthenticated"):
			t.Fatalf("with %q: %+v", key, got)
		}
		got = r.ask(t, "POST", "/v1/orders", []byte(body()), http.Header{"Content-Type": {media}})
		kind, params, err := mime.ParseMediaType(media)
		charset, given := params["charset"]
		want := err == nil && kind == "application/json" && (!given || strings.EqualFold(charset, "utf-8"))
		if want != (got.asked != nil) || !want && (got.status != 415 || got.code != "unsupported_media_type") {
			t.Fatalf("as %q: %+v", media, got)
		}
	})
}

// FuzzFieldName: what is repeated reads like a name, and repeats nothing else.
func FuzzFieldName(f *testing.F) {
	for _, s := range []string{"", "a", "Currency", "6222020012345678", "x1234", "x123", "opk_app_", strings.Repeat("a", 33), "é", "a b", "-a", "a\x00", "<a>"} {
		f.Add(s)
	}
	nameForm := form(`[A-Za-z_][A-Za-z0-9_.-]{0,31}`)
	f.Fuzz(func(t *testing.T, name string) {
		got := problem.FieldName(name, "body")
		plain := nameForm.MatchString(name) && len(regexp.MustCompile(`[0-9]`).FindAllString(name, -1)) <= 3
		if plain && got != name || !plain && got != "body" {
			t.Fatalf("%q became %q", name, got)
		}
		p := problem.Problem{Code: problem.InvalidParameter, Errors: []problem.FieldError{{Field: got, Fault: problem.Unknown, Message: "m"}}}
		var wire wireProblem
		if err := json.Unmarshal(p.Append(nil, "r"), &wire); err != nil || wire.Errors[0].Field != got {
			t.Fatalf("%v, %+v", errors.Join(err), wire)
		}
	})
}
