// Package traffictest is an order service for the tests of what sends requests. It
// answers as the contract says, or as its test wants, and remembers what it saw and what
// it answered. It stores nothing and checks nothing of an order.
package traffictest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/loadtest/traffic"
)

// Plan returns the plan of c, whose run is "r1" where it has no name.
func Plan(t testing.TB, c traffic.Config) *traffic.Plan {
	t.Helper()
	if c.Run == "" {
		c.Run = "r1"
	}
	p, err := traffic.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A Target is the service. Its methods may be called while it serves.
type Target struct {
	*httptest.Server

	mu      sync.Mutex
	saw     []string
	answers map[string]int64
	made    map[string]idgen.ID
	acks    []traffic.Ack
}

// A Call is one request, which is answered by its methods, or by W.
type Call struct {
	N          int // since the beginning, from 0, in the order of arrival
	OutTradeNo string
	UID        int64
	Batch      []Asked // of a batch: its orders; OutTradeNo and UID are the first's
	R          *http.Request
	W          http.ResponseWriter

	s *Target
}

// An Asked is what one order of a batch is asked for by.
type Asked struct {
	UID        int64  `json:"uid,string"`
	OutTradeNo string `json:"out_trade_no"`
}

// New starts a target that answers as its test says, and ends with the test.
func New(t testing.TB, answer func(Call)) *Target {
	s := &Target{answers: map[string]int64{}, made: map[string]idgen.ID{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := Call{R: r, W: w, s: s}
		body, err := io.ReadAll(r.Body)
		what := r.URL.String()
		if err == nil && r.Method == http.MethodPost {
			var order struct {
				Asked
				Orders []Asked `json:"orders"`
			}
			if err = json.Unmarshal(body, &order); len(order.Orders) > 0 {
				c.Batch, order.Asked = order.Orders, order.Orders[0]
			}
			c.UID, c.OutTradeNo, what = order.UID, order.OutTradeNo, order.OutTradeNo
		}
		if err != nil || (r.Method == http.MethodPost) != (r.Header.Get("Content-Type") == "application/json") {
			t.Errorf("%s %s: %s, %v", r.Method, r.URL, body, err)
		}
		s.mu.Lock()
		c.N = len(s.saw)
		s.saw = append(s.saw, what)
		s.mu.Unlock()
		answer(c)
	}))
	t.Cleanup(s.Close)
	return s
}

// Serve answers as a service does: it makes an order, or shows the one that there is; a
// read finds an order of nobody.
func (c Call) Serve() {
	if c.R.Method == http.MethodGet {
		c.Say(http.StatusOK, `{"order_id":"15770253150322220879872","uid":"9527","out_trade_no":"20261130-000017"}`)
		return
	}
	if c.Batch != nil {
		var results []string
		for i, one := range c.Batch {
			results = append(results, c.Result(i, one))
		}
		c.Results(results...)
		return
	}
	id, replayed := c.make(0, Asked{c.UID, c.OutTradeNo})
	status := http.StatusCreated
	if replayed {
		c.W.Header().Set("Idempotent-Replayed", "true")
		status = http.StatusOK
	}
	c.Say(status, Order(id, c.UID, c.OutTradeNo))
}

// make makes order i of a request, or finds the one that there is.
func (c Call) make(i int, one Asked) (id idgen.ID, replayed bool) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if id, replayed = c.s.made[one.OutTradeNo]; !replayed {
		id = idgen.Make(one.UID, int64(c.N)<<20+int64(i)+1)
		c.s.made[one.OutTradeNo] = id
	}
	c.s.acks = append(c.s.acks, traffic.Ack{ID: id, OutTradeNo: one.OutTradeNo})
	return id, replayed
}

// Result makes order i of a batch, and returns its part of the answer.
func (c Call) Result(i int, one Asked) string {
	id, replayed := c.make(i, one)
	status := http.StatusCreated
	if replayed {
		status = http.StatusOK
	}
	c.count(strconv.Itoa(status))
	return fmt.Sprintf(`{"status":%d,"replayed":%t,"order":%s}`, status, replayed, Order(id, one.UID, one.OutTradeNo))
}

// Refusal is the part of a batch's answer of an order that is refused.
func (c Call) Refusal(status int, code string) string {
	c.count(fmt.Sprintf("%s%d %s", traffic.ItemAnswer, status, code))
	return fmt.Sprintf(`{"status":%d,"error":{"status":%[1]d,"code":"%s"}}`, status, code)
}

// Results answers a batch.
func (c Call) Results(results ...string) {
	c.W.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(c.W, `{"results":[`+strings.Join(results, ",")+"]}")
}

func (c Call) count(answer string) {
	c.s.mu.Lock()
	c.s.answers[answer]++
	c.s.mu.Unlock()
}

// Order returns an order as it is answered.
func Order(id idgen.ID, uid int64, outTradeNo string) string {
	return fmt.Sprintf(`{"order_id":"%s","uid":"%d","bid":"1001","out_trade_no":"%s","amount":1,"status":"created"}`, id, uid, outTradeNo)
}

// Say answers with a status and a body, and counts the status.
func (c Call) Say(status int, body string) { c.say(status, strconv.Itoa(status), body) }

// Refuse answers with a problem, and counts its status and code.
func (c Call) Refuse(status int, code string) {
	c.W.Header().Set("Content-Type", "application/problem+json")
	c.say(status, fmt.Sprintf("%d %s", status, code), fmt.Sprintf(`{"type":"urn:octopay:error:%s","title":"…","status":%d,"code":"%[1]s"}`, code, status))
}

func (c Call) say(status int, name, body string) {
	c.count(name)
	if c.W.Header().Get("Content-Type") == "" {
		c.W.Header().Set("Content-Type", "application/json")
	}
	c.W.WriteHeader(status)
	_, _ = io.WriteString(c.W, body)
}

// Break breaks the connection, without an answer.
func (c Call) Break() { panic(http.ErrAbortHandler) }

// Saw returns what was asked for, in the order of arrival: out_trade_no of writes, paths
// of reads.
func (s *Target) Saw() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.saw)
}

// Answers returns how often it answered what, as a report.Run names it.
func (s *Target) Answers() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.answers)
}

// Made returns how many orders were made.
func (s *Target) Made() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.made)
}

// Acks returns the creates that were answered with their orders, sorted.
func (s *Target) Acks() []traffic.Ack {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Sorted(s.acks)
}

// Sorted returns acknowledgements in an order that depends on nothing else, so that two
// lists can be compared.
func Sorted(acks []traffic.Ack) []traffic.Ack {
	return slices.SortedFunc(slices.Values(acks), func(a, b traffic.Ack) int {
		if d := a.ID.Snowflake() - b.ID.Snowflake(); d != 0 {
			return int(max(-1, min(1, d)))
		}
		return 0
	})
}
