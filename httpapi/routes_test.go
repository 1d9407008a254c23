package httpapi

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestPathsThatThereAreNot(t *testing.T) {
	s := start(t)
	for _, path := range []string{
		"/", "/v1", "/v1/", "/v1/orders/", "//v1/orders", "/v1//orders", "/v1/orders//", "/v2/orders", "/V1/orders", "/v1/Orders",
		"/v1/orders/1/", "/v1/orders/1/refund", "/v1/orders/1/refunds/", "/v1/orders/1/refunds/a/b", "/v1/orders/1/refunds/%2E%2E", "/v1/orders/1/refunds/%41", "/v1/orders/batch/x", "/v1/users", "/v1/users/1", "/v1/users//orders",
		"/v1/users/1/orders/", "/v1/merchants//orders", "/v1/merchants/1", "/openapi.yaml/", "/openapi.json", "/healthz", "/metrics",
		"/v1%2Forders", "/v1%2forders", "/v1/orders%2F", "/v1/orders%2F1", "/v1/users/1%2Forders", "/v1/users/1%2F2/orders",
		"/v1/%6Frders", "/v1/./orders", "/v1/x/../orders", "/v1/users/../orders", "/v1/users/./orders", "/v1/merchants/../orders", "/v1/orders/..",
		"/v1/orders/.", "/v1/users/1/..", "/v1/users/1/orders/.", "/v1/users/1/orders/..", "/./v1/orders", "/../v1/orders", "/..", "/.",
		"/v1/users/%2E%2E/orders", "/v1/users/.%2e/orders", "/v1/orders/1/../2", "/v1/orders%3Fuid=1", "/v1/orders;a=b", "/v1/users/%39527/orders",
	} {
		got := s.get(path)
		got.is(404, "not_found")
		if got.header.Get("Location") != "" {
			t.Errorf("%s redirects", path)
		}
		// Where there is no path, there is no method either.
		s.send("DELETE", path, "").is(404, "not_found")
		s.send("BREW", path, "").is(404, "not_found")
	}
}

func TestAMethodThatAPathDoesNotHaveIs405WithThoseItHas(t *testing.T) {
	s := start(t)
	for path, allow := range map[string]string{
		"/v1/orders":                               "GET, HEAD, POST",
		"/v1/orders/1":                             "GET, HEAD",
		"/v1/orders/batch":                         "POST",
		"/v1/orders/1/pay":                         "POST",
		"/v1/orders/1/close":                       "POST",
		"/v1/orders/1/refunds":                     "GET, HEAD, POST",
		"/v1/orders/1/refunds/1":                   "GET, HEAD",
		"/v1/orders/1/refunds/1/result":            "POST",
		"/v1/orders/1/unapplied-payments/2/refund": "POST",
		"/v1/orders/1/unapplied-payments/2/void":   "POST",
		"/v1/users/1/orders":                       "GET, HEAD",
		"/v1/merchants/1/orders":                   "GET, HEAD",
		"/v1/merchants/1/unapplied-payments":       "GET, HEAD",
		"/v1/admin/unapplied-payments":             "GET, HEAD",
		"/v1/admin/refunds":                        "GET, HEAD",
		"/v1/admin/conflicts":                      "GET, HEAD",
		"/openapi.yaml":                            "GET, HEAD",
	} {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW", "get"} {
			if strings.Contains(allow, method) {
				continue
			}
			got := s.send(method, path, "").is(405, "method_not_allowed")
			if got.header.Get("Allow") != allow {
				t.Errorf("%s %s: Allow %q", method, path, got.header.Get("Allow"))
			}
		}
	}
}

func TestDecisionsComeInTheContractsOrder(t *testing.T) {
	s := start(t, func(c *Config) { c.LocalHostsOnly = true })
	long := strings.Repeat("x", uriMax)
	send := func(method, path, host, contentType, body string) answer {
		t.Helper()
		req, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if host != "" {
			req.Host = host
		}
		if contentType != "" {
			req.Header.Set("Content-Type", contentType)
		}
		return s.do(req)
	}
	send("PUT", "/nowhere?"+long, "evil.example", "text/plain", "x").is(421, "misdirected")
	send("PUT", "/nowhere?"+long, "", "text/plain", "x").is(414, "uri_too_long")
	send("PUT", "/nowhere?x=1", "", "text/plain", "x").is(404, "not_found")
	send("PUT", "/v1/orders?x=1", "", "text/plain", "x").is(405, "method_not_allowed")
	s.api.Drain()
	send("PUT", "/v1/orders?x=1", "", "text/plain", "x").is(405, "method_not_allowed")
	send("POST", "/v1/orders?x=1", "", "text/plain", "x").is(503, "draining")
	s.api.draining.Store(false)
	send("POST", "/v1/orders?x=1", "", "text/plain", "x").is(415, "unsupported_media_type")
	send("POST", "/v1/orders?x=1", "", "application/json", "x").is(400, "malformed_json")
	send("POST", "/v1/orders?x=1", "", "application/json", "{}").is(400, "invalid_parameter")
	// What the request alone decides comes before the object in the path.
	send("GET", "/v1/orders/abc?uid=0", "", "", "").is(400, "invalid_parameter")
	if s.orders.calls > 0 {
		t.Errorf("%d of these calls reached the orders", s.orders.calls)
	}
}

func TestQueryParametersThatAreFaulty(t *testing.T) {
	s := start(t)
	list, key := "/v1/users/1/orders?", "uid=1&bid=2&out_trade_no=3"
	for _, tc := range []struct {
		name, path string
		want       []string
	}{
		{"an unknown one", list + "colour=red", []string{"colour unknown"}},
		{"a known one in another case", list + "Limit=5", []string{"Limit unknown"}},
		{"one of another call", list + "out_trade_no=1", []string{"out_trade_no unknown"}},
		{"one twice", list + "limit=5&limit=5", []string{"limit duplicate"}},
		{"one three times", list + "limit=5&limit=5&limit=6", []string{"limit duplicate"}},
		{"one twice, one of them escaped", list + "limit=5&%6Cimit=6", []string{"limit duplicate"}},
		{"an empty one", list + "status=", []string{"status too_short"}},
		{"one without =", list + "status", []string{"status too_short"}},
		{"an unknown name that isn't repeated", list + "%3Cscript%3E=1", []string{"query unknown"}},
		{"a value without a name", list + "=5", []string{"query unknown"}},
		{"nothing between two &", list + "limit=5&&status=paid", []string{"query unknown"}},
		{"a & at the end", list + "limit=5&", []string{"query unknown"}},
		{"a broken escape", list + "status=%zz", []string{"status bad_format"}},
		{"a broken escape in a name", list + "%zz=1", []string{"query unknown"}},
		{"a semicolon for &", list + "limit=5;status=paid", []string{"limit bad_format"}},
		{"several at once", list + "limit=0&status=new&created_from=today&x=1",
			[]string{"x unknown", "limit out_of_range", "status unsupported", "created_from bad_format"}},

		{"a limit of 0", list + "limit=0", []string{"limit out_of_range"}},
		{"a limit of 101", list + "limit=101", []string{"limit out_of_range"}},
		{"a negative limit", list + "limit=-1", []string{"limit bad_format"}},
		{"a limit with a leading zero", list + "limit=05", []string{"limit bad_format"}},
		{"a limit in words", list + "limit=ten", []string{"limit bad_format"}},
		{"a limit that wraps 64 bits", list + "limit=18446744073709551617", []string{"limit out_of_range"}},
		{"a status in another case", list + "status=Paid", []string{"status unsupported"}},
		{"a time without an offset", list + "created_from=2026-11-30T00:00:00", []string{"created_from bad_format"}},
		{"a date", list + "created_from=2026-11-30", []string{"created_from bad_format"}},
		{"a time with an unescaped +", list + "created_to=2026-11-30T00:00:00+08:00", []string{"created_to bad_format"}},
		{"a time with a comma", list + "created_to=2026-11-30T00:00:00,5Z", []string{"created_to bad_format"}},
		{"a time with a short hour", list + "created_to=2026-11-30T1:00:00Z", []string{"created_to bad_format"}},
		{"a time finer than ns", list + "created_to=2026-11-30T00:00:00.0000000001Z", []string{"created_to bad_format"}},
		{"an offset of 24 hours", list + "created_to=2026-11-30T00:00:00%2B24:00", []string{"created_to bad_format"}},
		{"an offset without a colon", list + "created_to=2026-11-30T00:00:00%2B0800", []string{"created_to bad_format"}},
		{"a point without digits", list + "created_to=2026-11-30T00:00:00.Z", []string{"created_to bad_format"}},
		{"a time with small letters", list + "created_to=2026-11-30t00:00:00z", []string{"created_to bad_format"}},
		{"a leap second", list + "created_to=2016-12-31T23:59:60Z", []string{"created_to bad_format"}},
		{"a day that there isn't", list + "created_to=2026-02-30T00:00:00Z", []string{"created_to bad_format"}},
		{"seconds since 1970", list + "created_to=1796054400", []string{"created_to bad_format"}},

		{"a buyer of 0", "/v1/users/0/orders", []string{"uid out_of_range"}},
		{"a negative buyer", "/v1/users/-1/orders", []string{"uid out_of_range"}},
		{"a buyer above int64", "/v1/users/9223372036854775808/orders", []string{"uid out_of_range"}},
		{"a buyer with a leading zero", "/v1/users/01/orders", []string{"uid bad_format"}},
		{"a buyer by name", "/v1/users/max/orders", []string{"uid bad_format"}},
		{"a merchant of 0 and a limit of 0", "/v1/merchants/0/orders?limit=0", []string{"bid out_of_range", "limit out_of_range"}},
		{"a merchant's list with a faulty number", "/v1/merchants/1/orders?out_trade_no=-1", []string{"out_trade_no bad_format"}},

		{"a look-up without anything", "/v1/orders", []string{"uid required", "bid required", "out_trade_no required"}},
		{"a look-up without a buyer", "/v1/orders?bid=2&out_trade_no=3", []string{"uid required"}},
		{"a look-up with an empty buyer", "/v1/orders?uid=&bid=2&out_trade_no=3", []string{"uid too_short"}},
		{"a look-up with a list's parameter", "/v1/orders?limit=5&" + key, []string{"limit unknown"}},
		{"a look-up with all wrong", "/v1/orders?uid=1.0&bid=0&out_trade_no=a%20b", []string{"uid bad_format", "bid out_of_range", "out_trade_no bad_character"}},

		{"an order that includes something else", "/v1/orders/1?include=refunds", []string{"include unsupported"}},
		{"an order of a buyer of 0", "/v1/orders/1?uid=0", []string{"uid out_of_range"}},
		{"the contract with a parameter", "/openapi.yaml?v=2", []string{"v unknown"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := s.get(tc.path).is(400, "invalid_parameter").faulty(); !slices.Equal(got, tc.want) {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
	if s.orders.calls > 0 {
		t.Errorf("%d of these calls reached the orders", s.orders.calls)
	}
}

func TestACreateTakesNoQueryParametersAndTellsAllFaultsAtOnce(t *testing.T) {
	s := start(t)
	got := s.send("POST", "/v1/orders?uid=1", body("amount", "0", "x", "1")).is(400, "invalid_parameter").faulty()
	if want := []string{"uid unknown", "amount out_of_range", "x unknown"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	s.send("POST", "/v1/orders?uid=1", body()).is(400, "invalid_parameter")
	s.send("POST", "/v1/orders", body("x", "1")).is(400, "unknown_field")
	if len(s.orders.orders) > 0 {
		t.Error("something was written")
	}
}

func TestNoValueOfAClientComesBack(t *testing.T) {
	s := start(t)
	const secret = "6222020012345678" // a card's number where it doesn't belong
	for _, a := range []answer{
		s.create(body("uid", `"x`+secret+`"`, "amount", `"`+secret+`"`, "currency", `"`+secret+`"`,
			"subject", `"`+secret+`\u0000"`, "out_trade_no", `"-`+secret+`"`, "expires_in", secret, "metadata", `{"a b`+secret+`":"`+secret+`","c":`+secret+`}`)),
		s.create(body("holder of "+secret, "1")),
		s.create(body() + secret),
		s.create(strings.TrimSuffix(body(), "}") + `,"` + secret + `é":1,"` + secret + `é":2}`),
		s.get("/v1/users/x" + secret + "/orders?limit=x" + secret + "&status=" + secret + "&created_from=" + secret + "&x%20" + secret + "=1"),
		s.get("/v1/users/1/orders?cursor=" + secret),
		s.get("/v1/orders/x" + secret),
		s.get("/v1/" + secret),
		s.get("/v1/orders?uid=x" + secret + "&bid=x" + secret + "&out_trade_no=" + secret + "%20"),
		s.send("GET", "/v1/users/1/orders?limit=0", "", "X-Request-Id", secret+"é"),
	} {
		if a.status < 400 || strings.Contains(a.body, secret) {
			t.Errorf("%d %s", a.status, a.body)
		}
		for name, values := range a.header {
			if strings.Contains(strings.Join(values, ","), secret) {
				t.Errorf("%s: %q", name, values)
			}
		}
	}
	if log := s.log.String(); strings.Contains(log, secret) {
		t.Errorf("the log has it: %s", log)
	}
}

func TestLocalHostsOnly(t *testing.T) {
	s := start(t, func(c *Config) { c.LocalHostsOnly = true })
	for host, local := range map[string]bool{
		"localhost": true, "LOCALHOST:8080": true, "127.0.0.1": true, "127.8.9.1:80": true, "[::1]": true, "[::1]:8080": true,
		"example.com": false, "localhost.example.com": false, "127.0.0.1.nip.io": false, "10.0.0.1": false, "0.0.0.0": false, "[::]:80": false,
	} {
		req, _ := http.NewRequest("GET", s.url+"/v1/users/1/orders", nil)
		req.Host = host
		got := s.do(req)
		if local {
			got.is(200, "")
		} else {
			got.is(421, "misdirected")
		}
	}
	// Elsewhere any Host is served.
	everywhere := start(t)
	req, _ := http.NewRequest("GET", everywhere.url+"/v1/users/1/orders", nil)
	req.Host = "pay.example.com"
	everywhere.do(req).is(200, "")
}
