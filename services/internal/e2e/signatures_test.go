package e2e_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/octopay/octopay/auth"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"golang.org/x/sync/errgroup"
)

// signature returns the headers of a signed body, as its sender makes them.
func signature(secret []byte, id, order string, at time.Time, body []byte) http.Header {
	stamp := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s.%s.%s.%s", id, stamp, order, body)
	return http.Header{
		"Webhook-Id": {id}, "Webhook-Timestamp": {stamp}, "Webhook-Signature": {"v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))},
	}
}

// with returns the headers with one changed; no value takes it away.
func with(h http.Header, name string, values ...string) http.Header {
	h = h.Clone()
	h[name] = values
	return h
}

// What a channel signed is good for one order, its own bytes and five minutes, and only by
// a secret that is in force.
func TestSignedPaymentResultsFromEndToEnd(t *testing.T) {
	stack := localstack.Test(t, localstack.UID, localstack.BID, localstack.Meta)
	who := newCast(t, stack)
	base := start(t, "orderd", who.settings(t, stack)).ready(t).api
	one, other := who.born(t, base, "one", 19900, "CNY"), who.born(t, base, "other", 19900, "CNY")
	untouched := who.must(t, http.StatusOK, http.MethodGet, base, "/v1/orders/"+other+"?include=journal", "")
	secret, now := who.channel.secret, time.Now
	body := []byte(payment("4200", 19900, "CNY"))
	pay := func(order string, body []byte, h http.Header) answer {
		t.Helper()
		if h.Get("Authorization") == "" {
			h = with(h, "Authorization", "Bearer "+who.channel.text)
		}
		a, err := who.send(t, http.MethodPost, base, "/v1/orders/"+order+"/pay", string(body), h)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	refused := func(what, code string, a answer) {
		t.Helper()
		var p struct{ Code string }
		if err := json.Unmarshal(a.raw, &p); err != nil || a.status != http.StatusUnauthorized || p.Code != code {
			t.Errorf("%s: %s, want 401 %s", what, a, code)
		}
	}
	signed := signature(secret, "msg_1", one, now(), body)
	valid := signed.Get("Webhook-Signature")

	// Before it is used: whatever is not exactly what was signed is refused.
	refused("moved to another order", "signature_invalid", pay(other, body, signed))
	refused("with another secret", "signature_invalid", pay(one, body, signature(bytes.Repeat([]byte{7}, 32), "msg_1", one, now(), body)))
	refused("with another id", "signature_invalid", pay(one, body, with(signed, "Webhook-Id", "msg_2")))
	refused("with another time", "signature_invalid", pay(one, body, with(signed, "Webhook-Timestamp", strconv.FormatInt(now().Unix()-60, 10))))
	refused("with a time that is none", "signature_invalid", pay(one, body, with(signed, "Webhook-Timestamp", "now")))
	refused("of another version", "signature_invalid", pay(one, body, with(signed, "Webhook-Signature", strings.Replace(valid, "v1,", "v2,", 1))))
	refused("without its version", "signature_invalid", pay(one, body, with(signed, "Webhook-Signature", strings.TrimPrefix(valid, "v1,"))))
	for name := range signed {
		refused("without "+name, "signature_invalid", pay(one, body, with(signed, name)))
		refused(name+" twice, the right one first", "signature_invalid", pay(one, body, with(signed, name, signed.Get(name), "x")))
		refused(name+" twice, the right one last", "signature_invalid", pay(one, body, with(signed, name, "x", signed.Get(name))))
	}
	refused("310 s old", "timestamp_skew", pay(one, body, signature(secret, "msg_1", one, now().Add(-310*time.Second), body)))
	refused("400 s ahead", "timestamp_skew", pay(one, body, signature(secret, "msg_1", one, now().Add(400*time.Second), body)))
	// Every byte of the body, a space more, and a byte less.
	for i := range body {
		altered := bytes.Clone(body)
		altered[i] ^= 1
		refused(fmt.Sprintf("byte %d altered", i), "signature_invalid", pay(one, altered, signed))
	}
	refused("with a space behind", "signature_invalid", pay(one, append(bytes.Clone(body), ' '), signed))
	refused("without its last byte", "signature_invalid", pay(one, body[:len(body)-1], signed))
	if a := who.must(t, http.StatusOK, http.MethodGet, base, "/v1/orders/"+one, ""); a.order(t).Version != 1 {
		t.Fatalf("a refused result did something: %s", a)
	}

	// The right one, and again within the time.
	if a := pay(one, body, signed); a.status != http.StatusOK || a.order(t).Status != "paid" || a.header.Get("Idempotent-Replayed") != "" {
		t.Fatalf("signed: %s", a)
	}
	for _, h := range []http.Header{signed, signature(secret, "msg_1", one, now().Add(-200*time.Second), body), with(signed, "Webhook-Signature", "v1,aGVsbG8= v2,x "+valid)} {
		if a := pay(one, body, h); a.status != http.StatusOK || a.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("again: %s", a)
		}
	}
	refused("again when its time is over", "timestamp_skew", pay(one, body, signature(secret, "msg_1", one, now().Add(-310*time.Second), body)))

	// Two secrets while one takes over.
	id, err := auth.ParseID(who.channel.text)
	if err != nil {
		t.Fatal(err)
	}
	made, err := who.store.RotateSecret(t.Context(), id, time.Hour, "test")
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(made.Secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the new secret is in force", func() bool {
		return pay(one, body, signature(fresh, "msg_3", one, now(), body)).status == http.StatusOK
	})
	if a := pay(one, body, signature(secret, "msg_4", one, now(), body)); a.status != http.StatusOK {
		t.Errorf("by the secret before: %s", a)
	}
	made, err = who.store.RotateSecret(t.Context(), id, 0, "test")
	if err != nil {
		t.Fatal(err)
	}
	newest, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(made.Secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the newest secret is in force", func() bool {
		return pay(one, body, signature(newest, "msg_5", one, now(), body)).status == http.StatusOK
	})
	for _, ended := range [][]byte{secret, fresh} {
		refused("by a secret that ended", "signature_invalid", pay(one, body, signature(ended, "msg_6", one, now(), body)))
	}
	// A result of a refund is signed as well, by the order in its path.
	result := []byte(`{"result":"failed"}`)
	a, err := who.send(t, http.MethodPost, base, "/v1/orders/"+one+"/refunds/r/result", string(result), with(signature(newest, "msg_7", other, now(), result), "Authorization", "Bearer "+who.channel.text))
	if err != nil {
		t.Fatal(err)
	}
	refused("a refund's result moved to another order", "signature_invalid", a)
	if a := who.must(t, http.StatusOK, http.MethodGet, base, "/v1/orders/"+other+"?include=journal", ""); string(a.raw) != string(untouched.raw) {
		t.Errorf("the other order was %s, is %s", untouched, a)
	}
}

// Of fifty refunds of 60 % at once over two processes one is accepted, whatever is done at
// the same time.
func TestFiftyRefundsAtOnceOverTwoProcesses(t *testing.T) {
	stack := localstack.Test(t, localstack.UID, localstack.BID, localstack.Meta)
	who := newCast(t, stack)
	env := who.settings(t, stack)
	api := []string{start(t, "orderd", env).ready(t).api, start(t, "orderd", env).ready(t).api}
	for round := range 10 {
		const amount = 10_000
		id := who.born(t, api[0], fmt.Sprint("R-", round), amount, "CNY")
		who.must(t, http.StatusOK, http.MethodPost, api[1], "/v1/orders/"+id+"/pay", payment(fmt.Sprint(round), amount, "CNY"))
		var statuses [600]atomic.Int64
		begin := make(chan struct{})
		var g errgroup.Group
		for n := range 50 {
			g.Go(func() error {
				<-begin
				// A repeat of one that happened, after an answer that was lost, is 200.
				a, err := who.send(t, http.MethodPost, api[n%2], "/v1/orders/"+id+"/refunds", fmt.Sprintf(`{"out_refund_no":"r-%d","amount":%d}`, n, amount*6/10), nil)
				if err == nil {
					statuses[a.status].Add(1)
				}
				return err
			})
		}
		close(begin)
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		accepted := statuses[http.StatusCreated].Load() + statuses[http.StatusOK].Load()
		if refused := statuses[http.StatusUnprocessableEntity].Load(); accepted != 1 || refused != 49 {
			t.Fatalf("%d accepted, %d refused of 50", accepted, refused)
		}
		a := who.must(t, http.StatusOK, http.MethodGet, api[0], "/v1/orders/"+id, "")
		if !strings.Contains(string(a.raw), `"refunded_amount":6000,`) || !strings.Contains(string(a.raw), `"status":"partially_refunded"`) {
			t.Errorf("%s", a)
		}
	}
}
