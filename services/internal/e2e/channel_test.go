package e2e_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/octopay/octopay/auth"
	"github.com/octopay/octopay/internal/localstack"
)

// masterKey encrypts the signing secrets of this test's channels.
var masterKey = base64.StdEncoding.EncodeToString([]byte("0123456789abcdef0123456789abcdef"))

// A channelKey signs what it sends.
type channelKey struct {
	text   string
	secret []byte
	ids    atomic.Int64
}

func newChannel(t *testing.T, stack *localstack.Stack) *channelKey {
	t.Helper()
	masters, err := auth.ParseMasters(masterKey)
	if err != nil {
		t.Fatal(err)
	}
	made, err := auth.NewStore(stack.Cluster(t).Meta(), masters).Create(t.Context(), auth.Spec{Role: auth.Channel}, "test")
	if err != nil {
		t.Fatal(err)
	}
	secret, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(made.Secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	return &channelKey{text: made.Text, secret: secret}
}

// sign returns what signs a request about an order.
func (c *channelKey) sign(orderID string) func(*http.Request, []byte) {
	return func(r *http.Request, body []byte) {
		id, now := fmt.Sprint("msg_", c.ids.Add(1)), strconv.FormatInt(time.Now().Unix(), 10)
		mac := hmac.New(sha256.New, c.secret)
		_, _ = fmt.Fprintf(mac, "%s.%s.%s.%s", id, now, orderID, body)
		r.Header.Set("webhook-id", id)
		r.Header.Set("webhook-timestamp", now)
		r.Header.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
}
