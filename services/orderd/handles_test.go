package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/services/internal/boottest"
	"github.com/octopay/octopay/shardmap"
)

// A state is what /readyz says.
type state struct {
	code        int
	Status      string
	Unavailable []string
	ReadOnly    []string `json:"read_only"`
}

func readyz(t *testing.T, ops string) (s state) {
	t.Helper()
	code, body := boottest.Get(t, ops+"/readyz")
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	s.code = code
	return s
}

// create makes an order and returns the status and the code of the answer.
func create(t *testing.T, api, key string, uid int64, number string) (int, string) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: eventually.Patience}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, api+"/v1/orders", strings.NewReader(fmt.Sprintf(
		`{"uid":"%d","bid":"1001","out_trade_no":"%s","amount":1,"currency":"CNY","subject":"x"}`, uid, number)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var said struct{ Code string }
	if err := json.Unmarshal(body, &said); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return resp.StatusCode, said.Code
}

// Fault 28 and 31. Of two servers one freezes, and one crashes: the keys of its databases
// are answered with shard_unavailable, soon at once, all others notice nothing, readiness
// names what is away and ends only when nothing is left.
func TestOneServerAway(t *testing.T) {
	stack := localstack.Private(t, localstack.Options{Need: []localstack.Need{localstack.UID, localstack.BID, localstack.Meta}, UIDServers: 2})
	key := boottest.Key(t, stack)
	program := boottest.Start(t, run, environ(t, stack, stack.Map))
	ops, api := program.Listening(t), program.Listening(t)
	boottest.Ready(t, ops)
	var theirs []string
	uids := map[string][]int64{} // by server, one of each database
	for _, p := range stack.Map.Databases(shardmap.UID) {
		uids[p.Server.Name] = append(uids[p.Server.Name], int64(10*(p.Number-1)+5))
		if p.Server.Name == "uid-b" {
			theirs = append(theirs, p.String())
		}
	}
	orders := 0
	all := func(server string, status int, code string) {
		t.Helper()
		for _, uid := range uids[server] {
			orders++
			if s, c := create(t, api, key, uid, fmt.Sprint("A-", orders)); s != status || c != code {
				t.Errorf("an order of uid %d on %s was answered %d %s, want %d %s", uid, server, s, c, status, code)
			}
			want := http.StatusOK
			if status != http.StatusCreated {
				want = status
			}
			if s, body := boottest.Get(t, fmt.Sprint(api, "/v1/users/", uid, "/orders"), key); s != want || !strings.Contains(body, code) {
				t.Errorf("the list of uid %d on %s was answered %d %s, want %d %s", uid, server, s, body, want, code)
			}
		}
	}
	ready := func() bool { s := readyz(t, ops); return s.code == 200 && s.Unavailable == nil && s.ReadOnly == nil }
	eventually.True(t, "all serve", ready)
	all("uid-a", 201, "")
	all("uid-b", 201, "")

	server := stack.Server("uid-b")
	for name, f := range map[string]struct{ begin, end func() error }{
		"frozen": {server.Pause, server.Continue},
		"killed": {server.Kill, func() error { return server.Start(t.Context()) }},
	} {
		t.Run(name, func(t *testing.T) {
			if err := f.begin(); err != nil {
				t.Fatal(err)
			}
			// The first that comes, in bounded time: it may be in flight.
			start := time.Now()
			orders++
			status, code := create(t, api, key, uids["uid-b"][0], fmt.Sprint("A-", orders))
			if status != 504 && code != "shard_unavailable" {
				t.Errorf("the first order was answered %d %s", status, code)
			}
			t.Logf("the first was answered after %s: %d %s", time.Since(start), status, code)
			eventually.True(t, "readiness names its databases", func() bool {
				s := readyz(t, ops)
				return s.code == 200 && s.Status == "ready" && slices.Equal(s.Unavailable, theirs)
			})
			start = time.Now()
			all("uid-b", 503, "shard_unavailable")
			t.Logf("%d refusals took %s", 2*len(theirs), time.Since(start))
			all("uid-a", 201, "")
			if err := f.end(); err != nil {
				t.Fatal(err)
			}
			t.Logf("all serve again after %s", eventually.True(t, "all serve again", ready))
			all("uid-b", 201, "")
		})
	}
	t.Run("both killed", func(t *testing.T) {
		for _, name := range []string{"uid-a", "uid-b"} {
			if err := stack.Server(name).Kill(); err != nil {
				t.Fatal(err)
			}
		}
		eventually.True(t, "it isn't ready", func() bool { s := readyz(t, ops); return s.code == 503 && s.Status == "unavailable" })
		all("uid-b", 503, "shard_unavailable")
		for _, name := range []string{"uid-a", "uid-b"} {
			if err := stack.Server(name).Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		eventually.True(t, "all serve again", ready)
		all("uid-a", 201, "")
		all("uid-b", 201, "")
	})
	if err := program.Stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}
