package stock

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/octopay/octopay/idgen"
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
			UID        int64  `json:"uid,string"`
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
		made[o.OutTradeNo] = idgen.Make(o.UID, int64(len(made))).String()
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"order_id":"%s","out_trade_no":"%s"}`, made[o.OutTradeNo], o.OutTradeNo)
	}))
	defer srv.Close()
	plan := newPlan(t, traffic.Config{})
	known, err := Make(t.Context(), Service{URL: srv.URL, Key: "k"}, plan, 200, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(known) != 200 || len(made) != 200 || refused != 3 {
		t.Fatalf("%d known, %d made, %d refused", len(known), len(made), refused)
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
		"creates alone":   {"http://a", traffic.Config{Mix: []traffic.Share{{Kind: traffic.Get, Weight: 1}}, Known: known}},
		"422 not for you": {answer(422, "not for you"), traffic.Config{}},
		"no order id":     {answer(201, "{}"), traffic.Config{}},
		"no JSON":         {answer(200, "<html>"), traffic.Config{}},
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
	if err := AwaitMirror(t.Context(), Service{URL: srv.URL}, known, nil); err != nil {
		t.Fatal(err)
	}
	if asked["/v1/merchants/1001/orders"] != 3 || asked["/v1/merchants/1002/orders"] != 3 {
		t.Errorf("asked %v", asked)
	}
}

// Who waits for long is told how far it is, and by what it is kept.
func TestALongWaitSaysWhatKeepsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		var w watcher
		end := w.every(func(text string) { said = append(said, text) }, func() string { return "3 of 7" })
		err := errors.New("503 overloaded")
		w.last.Store(&err)
		time.Sleep(2*sayEvery + time.Millisecond) // in the bubble's time
		end()
		if len(said) != 2 || said[0] != "3 of 7; the last answer that kept it: 503 overloaded" {
			t.Errorf("%q", said)
		}
	})
}

// What isn't there, refuses the key or is something else is told from Octopay, whatever
// Octopay answers just now.
func TestAServiceIsReached(t *testing.T) {
	answer := func(status int, kind string) string {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer k" {
				t.Errorf("%v", r.Header)
			}
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
		}))
		t.Cleanup(srv.Close)
		return srv.URL
	}
	hangs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(hangs.Close)
	gone := httptest.NewServer(nil)
	gone.Close()
	for _, c := range []struct{ url, want string }{
		{answer(200, "application/json"), ""},
		{answer(404, "application/problem+json"), ""},
		{answer(503, "application/problem+json"), ""},
		{answer(429, "text/plain"), ""},
		{hangs.URL, ""},
		{gone.URL, "nobody answers at " + gone.URL},
		{answer(401, "application/problem+json"), "refuses the key"},
		{answer(403, "application/problem+json"), "refuses the key"},
		{answer(404, "text/plain; charset=utf-8"), "is not Octopay: it answers 404"},
		{answer(200, "text/html"), "is not Octopay"},
		{answer(302, "text/html"), "is not Octopay"},
	} {
		err := Service{URL: c.url, Key: "k"}.Reach(t.Context())
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
