package traffic

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/octopay/octopay/idgen"
)

// body is the answer to a create of o under an id.
func body(id, no string) []byte {
	return fmt.Appendf(nil, `{"order_id":"%s","uid":"1","out_trade_no":"%s","amount":1,"metadata":{"order_id":"x"}}`, id, no)
}

// What acknowledges a create, and each way in which an answer of success may be none.
func TestWhatAcknowledgesACreate(t *testing.T) {
	p := plan(t, Config{Run: "r1"})
	o := p.Order(7)
	id := idgen.Make(o.UID, 1<<40)
	text := id.String()
	good := string(body(text, o.OutTradeNo))
	changed := func(old, new string) []byte {
		t.Helper()
		s := strings.Replace(good, old, new, 1)
		if s == good {
			t.Fatalf("%s has no %s", good, old)
		}
		return []byte(s)
	}
	for name, c := range map[string]struct {
		s    Success
		want string // the kind of fault
	}{
		"made":                  {Success{201, false, []byte(good)}, ""},
		"replayed":              {Success{200, true, []byte(good)}, ""},
		"blanks":                {Success{201, false, []byte(" {\n \"out_trade_no\" : \"" + o.OutTradeNo + "\",\r\n\t\"order_id\" : \"" + text + "\" }\n")}, ""},
		"200 without a replay":  {Success{200, false, []byte(good)}, wrongStatus},
		"accepted":              {Success{202, false, []byte(good)}, wrongStatus},
		"a page":                {Success{200, false, []byte("<html>welcome</html>")}, noJSON},
		"a page that is 201":    {Success{201, false, []byte("<html>" + good)}, noJSON},
		"nothing":               {Success{201, false, nil}, noJSON},
		"cut off":               {Success{201, false, []byte(good[:len(good)-1])}, noJSON},
		"more than one":         {Success{201, false, []byte(good + good)}, noJSON},
		"two ids":               {Success{201, false, changed(`"uid":"1"`, `"order_id":"`+text+`"`)}, noJSON},
		"a number":              {Success{201, false, changed(`"`+text+`"`, text)}, noJSON},
		"an array":              {Success{201, false, []byte("[" + good + "]")}, noJSON},
		"no id":                 {Success{201, false, changed("order_id", "id")}, noOrderID},
		"only an inner id":      {Success{201, false, changed(`"order_id":"`+text+`",`, "")}, noOrderID},
		"an empty id":           {Success{201, false, changed(text, "")}, noOrderID},
		"a short id":            {Success{201, false, changed(text, text[1:])}, noOrderID},
		"a long id":             {Success{201, false, changed(text, text+"0")}, noOrderID},
		"32 digits":             {Success{201, false, changed(text, text+"000000000")}, noOrderID},
		"no digits":             {Success{201, false, changed(text, strings.Repeat("x", len(text)))}, noOrderID},
		"another version":       {Success{201, false, changed(text, "2"+text[1:])}, noOrderID},
		"no shard":              {Success{201, false, changed(text, text[:1]+"00"+text[3:])}, noOrderID},
		"more than 63 bits":     {Success{201, false, changed(text, text[:4]+"9999999999999999999")}, noOrderID},
		"another buyer's id":    {Success{201, false, changed(text, idgen.Make(o.UID+1, 1<<40).String())}, otherBuyer},
		"another shard's id":    {Success{201, false, changed(text, idgen.Make(o.UID+10, 1<<40).String())}, otherBuyer},
		"no out_trade_no":       {Success{201, false, changed("out_trade_no", "no")}, otherCreate},
		"another out_trade_no":  {Success{201, false, changed(o.OutTradeNo, "r1-8")}, otherCreate},
		"out_trade_no and more": {Success{201, false, changed(o.OutTradeNo, o.OutTradeNo+"0")}, otherCreate},
	} {
		got, fault := o.Accepts(c.s)
		l := NewLedger(p)
		again := l.Create(7, c.s)
		if c.want == "" {
			if fault != nil || got != id || again != nil || !slices.Equal(l.Acks(), []Ack{{id, o.OutTradeNo}}) {
				t.Errorf("%s: %v, %+v, %+v, %v", name, got, fault, again, l.Acks())
			}
			continue
		}
		if fault == nil || fault.Kind != c.want || again == nil || again.Kind != c.want || len(l.Acks()) > 0 {
			t.Errorf("%s: %+v, %+v, want %q", name, fault, again, c.want)
		} else if !strings.Contains(fault.Text, fmt.Sprint(c.s.Status)) {
			t.Errorf("%s: the text is %q", name, fault.Text)
		}
	}
}

// All answers to one create are one order, that is made once, whichever came first.
func TestARepeatIsAnsweredWithTheFirstsOrder(t *testing.T) {
	p := plan(t, Config{Run: "r1", Mix: []Share{{Create, 1}, {Repeat, 1}}})
	o := p.Order(0)
	id, other := idgen.Make(o.UID, 5), idgen.Make(o.UID, 6)
	answer := func(status int, id idgen.ID) Success {
		return Success{status, status == http.StatusOK, body(id.String(), o.OutTradeNo)}
	}
	for name, take := range map[string]func(*Ledger, Success) *Fault{
		"by number": func(l *Ledger, s Success) *Fault { return l.Create(0, s) },
		"some":      func(l *Ledger, s Success) *Fault { return l.Some(1, s) },
	} {
		l := NewLedger(p)
		for i, step := range []struct {
			s    Success
			want string
		}{
			{answer(200, id), ""}, {answer(200, other), otherOrder}, {answer(201, id), ""}, {answer(200, id), ""},
			{answer(201, id), madeAgain}, {answer(201, other), otherOrder}, {answer(200, id), ""},
		} {
			if fault := take(l, step.s); (fault == nil) != (step.want == "") || fault != nil && fault.Kind != step.want {
				t.Errorf("%s, answer %d: %+v, want %q", name, i, fault, step.want)
			}
		}
		if want := slices.Repeat([]Ack{{id, o.OutTradeNo}}, 4); !slices.Equal(l.Acks(), want) {
			t.Errorf("%s: acknowledged: %v", name, l.Acks())
		}
	}
}

// Where nobody knows which create an answer is of, it must be one that was sent.
func TestSomeAnswerIsOfACreateThatWasSent(t *testing.T) {
	p := plan(t, Config{Run: "r1"})
	answer := func(n uint64, no string) Success {
		return Success{Status: 201, Body: body(idgen.Make(p.Order(n).UID, 1<<30+int64(n)).String(), no)}
	}
	l := NewLedger(p)
	if fault := l.Some(10, answer(9, "r1-9")); fault != nil {
		t.Errorf("%+v", fault)
	}
	for no, n := range map[string]uint64{"r1-10": 10, "r1-08": 8, "r2-8": 8, "": 8} {
		if fault := l.Some(10, answer(n, no)); fault == nil || fault.Kind != neverSent {
			t.Errorf("%q: %+v", no, fault)
		}
	}
	if !l.Knows(answer(9, "r1-9")) || l.Knows(answer(9, "r2-9")) || l.Knows(Success{Body: []byte("<html>")}) {
		t.Error("it knows other orders than its plan's")
	}
}

// What is remembered to be compared with is bounded, and goes back far enough.
func TestALedgerIsBounded(t *testing.T) {
	p := plan(t, Config{Run: "r1", Mix: []Share{{Create, 1}, {Repeat, 1}}})
	l := NewLedger(p)
	if l.keep < 20*repeatWithin {
		t.Errorf("%d answers are remembered, and a create may be repeated after %d requests", l.keep, repeatWithin)
	}
	const keep = 500
	l.keep = keep
	answer := func(n uint64, snowflake int64) Success {
		o := p.Order(n)
		return Success{Status: 201, Body: body(idgen.Make(o.UID, snowflake).String(), o.OutTradeNo)}
	}
	for n := range uint64(3*keep + 10) {
		if fault := l.Create(n, answer(n, int64(n))); fault != nil {
			t.Fatal(fault)
		}
		if len(l.recent) > keep || len(l.older) > keep {
			t.Fatalf("%d and %d are remembered", len(l.recent), len(l.older))
		}
	}
	for _, back := range []uint64{1, 10, 11, keep} {
		n := 3*keep + 10 - back
		if fault := l.Create(n, answer(n, 0)); fault == nil || fault.Kind != otherOrder {
			t.Errorf("%d before: %+v", back, fault)
		}
	}
}

func TestWhatAReadIsAnsweredWith(t *testing.T) {
	for name, c := range map[string]struct {
		s    Success
		want string
	}{
		"an order":              {Success{Status: 200, Body: []byte(`{"order_id":"1"}`)}, ""},
		"the beginning of many": {Success{Status: 200, Body: []byte("\r\n {\"data\":[")}, ""},
		"with more":             {Success{Status: 200, Body: []byte(`{"a":{"b":[1]},"data":[],"has_more":false}`)}, ""},
		"a page":                {Success{Status: 200, Body: []byte("<html>")}, noObject},
		"no figures":            {Success{Status: 200, Body: []byte(`{}`)}, noObject},
		"an inner order":        {Success{Status: 200, Body: []byte(`{"a":{"order_id":"1"}}`)}, noObject},
		"cut before it":         {Success{Status: 200, Body: []byte(`{"a":[1,2`)}, noObject},
		"an array":              {Success{Status: 200, Body: []byte(`["data"]`)}, noObject},
		"nothing":               {Success{Status: 200}, noObject},
		"made":                  {Success{Status: 201, Body: []byte(`{}`)}, noReadStatus},
	} {
		if fault := Read(c.s); (fault == nil) != (c.want == "") || fault != nil && fault.Kind != c.want {
			t.Errorf("%s: %+v, want %q", name, fault, c.want)
		}
	}
}

// Each order of a batch is judged as if it had been sent alone; an answer that isn't one to
// this batch is none.
func TestWhatAcknowledgesABatch(t *testing.T) {
	p := plan(t, Config{Run: "r1", Mix: []Share{{Batch, 1}}, BatchSize: 3})
	const request = 5 // orders 15, 16, 17
	id := func(n uint64) idgen.ID { return idgen.Make(p.Order(n).UID, 1<<40+int64(n)) }
	item := func(status int, replayed bool, n uint64) string {
		return fmt.Sprintf(`{"status":%d,"replayed":%t,"order":%s}`, status, replayed, body(id(n).String(), p.Order(n).OutTradeNo))
	}
	refused := func(status int, code string) string {
		return fmt.Sprintf(`{"status":%d,"error":{"status":%[1]d,"code":"%s"}}`, status, code)
	}
	fine := item(201, false, 15)
	for name, c := range map[string]struct {
		status int
		text   string
		want   []string // what each order is counted as, or its fault
		acks   []uint64
	}{
		"all are made":           {200, `{"results":[` + fine + "," + item(201, false, 16) + "," + item(201, false, 17) + "]}", []string{"201", "201", "201"}, []uint64{15, 16, 17}},
		"some were there":        {200, `{"results":[` + fine + "," + item(200, true, 16) + "," + item(201, false, 17) + "]}", []string{"201", "200", "201"}, []uint64{15, 16, 17}},
		"some are refused":       {200, ` {"results":[` + refused(503, "overloaded") + "," + item(201, false, 16) + "," + refused(504, "outcome_unknown") + "]}", []string{"item 503 overloaded", "201", "item 504 outcome_unknown"}, []uint64{16}},
		"all are refused":        {200, `{"results":[` + refused(503, "overloaded") + "," + refused(409, "Out Of") + "," + refused(422, "") + "]}", []string{"item 503 overloaded", "item 409", "item 422"}, nil},
		"one isn't an order":     {200, `{"results":[` + fine + `,{"status":201,"replayed":false,"order":{}},` + item(201, false, 17) + "]}", []string{"201", noOrderID, "201"}, []uint64{15, 17}},
		"the first isn't":        {200, `{"results":[{"status":201,"replayed":false},` + item(201, false, 16) + "," + item(201, false, 17) + "]}", []string{noJSON, "201", "201"}, []uint64{16, 17}},
		"200 that is no replay":  {200, `{"results":[` + fine + "," + item(200, false, 16) + "," + item(201, false, 17) + "]}", []string{"201", wrongStatus, "201"}, []uint64{15, 17}},
		"another's answer":       {200, `{"results":[` + fine + "," + item(201, false, 17) + "," + item(201, false, 17) + "]}", []string{"201", otherBuyer, "201"}, []uint64{15, 17}},
		"one is missing":         {200, `{"results":[` + fine + "," + item(201, false, 16) + "]}", []string{noBatch}, nil},
		"one is too many":        {200, `{"results":[` + strings.Repeat(fine+",", 3) + fine + "]}", []string{noBatch}, nil},
		"none":                   {200, `{"results":[]}`, []string{noBatch}, nil},
		"cut off":                {200, `{"results":[` + fine, []string{noBatch}, nil},
		"201 for the whole":      {201, `{"results":[` + fine + "," + item(201, false, 16) + "," + item(201, false, 17) + "]}", []string{noBatch}, nil},
		"the answer to a create": {201, string(body(id(15).String(), p.Order(15).OutTradeNo)), []string{noBatch}, nil},
	} {
		for who, take := range map[string]func(*Ledger, Success) []Fate{
			"by number": func(l *Ledger, s Success) []Fate { return l.Batch(request, s) },
			"some":      func(l *Ledger, s Success) []Fate { return l.SomeBatch(request+1, s) },
		} {
			l := NewLedger(p)
			s := Success{Status: c.status, Body: []byte(c.text)}
			var got []string
			for _, f := range take(l, s) {
				if f.Fault != nil {
					f.Answer = f.Fault.Kind
				}
				got = append(got, f.Answer)
			}
			var acks []Ack
			for _, n := range c.acks {
				acks = append(acks, Ack{id(n), p.Order(n).OutTradeNo})
			}
			if !slices.Equal(got, c.want) || !slices.Equal(l.Acks(), acks) || s.IsBatch() != strings.Contains(c.text, "results") {
				t.Errorf("%s, %s: %q, want %q; acknowledged: %v", name, who, got, c.want, l.Acks())
			}
		}
	}
	// Where nobody knows which batch it is, it is one that was sent, and in its order.
	for name, c := range map[string]struct {
		until uint64
		text  string
	}{
		"not sent":        {request, fine + "," + item(201, false, 16) + "," + item(201, false, 17)},
		"another order":   {request + 1, item(201, false, 16) + "," + fine + "," + item(201, false, 17)},
		"another run's":   {request + 1, strings.ReplaceAll(fine+","+item(201, false, 16)+","+item(201, false, 17), "r1-", "r2-")},
		"two batches'":    {request + 1, item(201, false, 12) + "," + item(201, false, 16) + "," + item(201, false, 17)},
		"no order at all": {request + 1, `{"status":201},{"status":201},{"status":201}`},
	} {
		l := NewLedger(p)
		fates := l.SomeBatch(c.until, Success{Status: 200, Body: []byte(`{"results":[` + c.text + "]}")})
		if !slices.ContainsFunc(fates, func(f Fate) bool { return f.Fault != nil }) {
			t.Errorf("%s: %+v, %v", name, fates, l.Acks())
		}
	}
}

// Which requests write, and what, is the same for who sends and for who judges.
func TestWhatARequestWrites(t *testing.T) {
	p := plan(t, Config{Run: "r1", Mix: []Share{{Create, 2}, {Repeat, 2}, {Get, 1}}, Known: known})
	for n := range uint64(2000) {
		r := p.Request(n)
		if first, orders := p.Writes(n); (orders == 1) != r.Kind.Writes() || orders > 0 && first != r.Order {
			t.Errorf("request %d, a %s of %d, writes %d from %d on", n, r.Kind, r.Order, orders, first)
		}
	}
	if !p.Reads() || plan(t, Config{Run: "r1", Mix: []Share{{Create, 2}, {Repeat, 2}}}).Reads() {
		t.Error("what reads is not what has reads")
	}
}

func BenchmarkLedger(b *testing.B) {
	p, err := New(Config{Run: "r1"})
	if err != nil {
		b.Fatal(err)
	}
	l := NewLedger(p)
	o := p.Order(0)
	s := Success{Status: 201, Body: fmt.Appendf(nil, `{"order_id":"%s","uid":"9527","bid":"1001","out_trade_no":"r1-0","amount":19900,"currency":"CNY",`+
		`"subject":"Le Max 2","status":"created","version":1,"paid_amount":0,"refunded_amount":0,"channel":null,"channel_trade_no":null,`+
		`"metadata":{"sku":"lm2-64"},"unapplied_payments":0,"close_reason":null,"created_at":"2026-11-30T00:00:00.000Z",`+
		`"updated_at":"2026-11-30T00:00:00.000Z","expires_at":"2026-11-30T00:30:00.000Z","paid_at":null,"closed_at":null}`, idgen.Make(o.UID, 1))}
	b.ReportAllocs()
	for b.Loop() {
		l.recent, l.acks = map[uint64]first{}, l.acks[:0]
		if fault := l.Create(0, s); fault != nil {
			b.Fatal(fault)
		}
	}
}
