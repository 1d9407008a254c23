package stock

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/octopay/octopay/loadtest/traffic"
)

func newPlan(t *testing.T, c traffic.Config) *traffic.Plan {
	t.Helper()
	c.Run = "k1"
	p, err := traffic.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Each order of the plan is made, and known under the id that it was answered with;
// what was refused for now is sent again.
func TestTheOrdersOfAPlanAreMade(t *testing.T) {
	var mu sync.Mutex
	made, refused := map[string]string{}, 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var o struct {
			OutTradeNo string `json:"out_trade_no"`
		}
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil || r.Header.Get("Authorization") != "Bearer k" {
			t.Errorf("%v, %v", err, r.Header)
		}
		mu.Lock()
		defer mu.Unlock()
		if refused < 3 {
			refused++
			w.WriteHeader([]int{503, 504, 429}[refused-1])
			return
		}
		made[o.OutTradeNo] = fmt.Sprintf("1577%019d", len(made))
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"order_id":"%s"}`, made[o.OutTradeNo])
	}))
	defer srv.Close()
	plan := newPlan(t, traffic.Config{})
	var most atomic.Int64
	known, err := Make(t.Context(), Service{URL: srv.URL, Key: "k"}, plan, 200, func(done int) {
		for old := most.Load(); int64(done) > old && !most.CompareAndSwap(old, int64(done)); old = most.Load() {
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(known) != 200 || len(made) != 200 || refused != 3 || most.Load() != 200 {
		t.Fatalf("%d known, %d made, %d refused, progress to %d", len(known), len(made), refused, most.Load())
	}
	for i, k := range known {
		if o := plan.Order(uint64(i)); k != (traffic.Known{ID: made[o.OutTradeNo], UID: o.UID, BID: o.BID, OutTradeNo: o.OutTradeNo}) {
			t.Errorf("order %d is known as %+v", i, k)
		}
	}
}

func TestWhatCannotBeMadeIsAnError(t *testing.T) {
	answer := func(status int, body string) string {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(srv.Close)
		return srv.URL
	}
	known := []traffic.Known{{ID: "1", UID: 1, BID: 1, OutTradeNo: "x"}}
	for want, c := range map[string]struct {
		url  string
		plan traffic.Config
	}{
		"creates alone":       {"http://a", traffic.Config{Mix: []traffic.Share{{Kind: traffic.Get, Weight: 1}}, Known: known}},
		"422 not for you":     {answer(422, "not for you"), traffic.Config{}},
		"without an order id": {answer(201, "{}"), traffic.Config{}},
	} {
		if _, err := Make(t.Context(), Service{URL: c.url}, newPlan(t, c.plan), 3, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// The mirror is waited for, of each merchant.
func TestTheMirrorIsWaitedFor(t *testing.T) {
	asked := map[string]int{}
	var mu sync.Mutex
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked[r.URL.Path]++
		until := time.Now().Add(-time.Minute)
		if asked[r.URL.Path] > 2 {
			until = time.Now().Add(time.Second)
		}
		w.Header().Set("X-Mirror-Complete-Until", until.UTC().Format("2006-01-02T15:04:05.000Z"))
	}))
	defer srv.Close()
	known := []traffic.Known{{BID: 1001}, {BID: 1002}, {BID: 1001}}
	if err := AwaitMirror(t.Context(), Service{URL: srv.URL}, known); err != nil {
		t.Fatal(err)
	}
	if asked["/v1/merchants/1001/orders"] != 3 || asked["/v1/merchants/1002/orders"] != 3 {
		t.Errorf("asked %v", asked)
	}
}
