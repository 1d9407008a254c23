package main

import (
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/octopay/octopay/internal/certtest"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/services/internal/boottest"
)

// The API in TLS, behind a proxy that is trusted, held to the rates of the payment config.
func TestItServesInTLS(t *testing.T) {
	ca := certtest.New(t)
	number, cert, key := ca.Issue(time.Now().Add(time.Hour), "127.0.0.1")
	stack := localstack.Test(t, localstack.UID, localstack.BID, localstack.Meta)
	program := boottest.Start(t, run, append(environ(t, stack, stack.Map),
		"OCTOPAY_ADDR=0.0.0.0:0", "OCTOPAY_TLS_CERT_FILE="+cert, "OCTOPAY_TLS_KEY_FILE="+key, "OCTOPAY_TRUSTED_PROXIES=127.0.0.0/8"))
	ops := program.Listening(t)
	listening := program.Await(t, "listening")
	if listening["tls"] != true {
		t.Errorf("%v", listening)
	}
	addr := listening["addr"].(string)
	port := addr[strings.LastIndexByte(addr, ':'):]
	boottest.Ready(t, ops)

	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: eventually.Patience}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1"+port+"/v1/users/9527/orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+boottest.Key(t, stack))
	req.Header.Set("X-Forwarded-For", "198.51.100.1, 203.0.113.7")
	var res *http.Response
	eventually.True(t, "the key is known", func() bool {
		if res, err = client.Do(req); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		return res.StatusCode != http.StatusUnauthorized
	})
	if res.StatusCode != http.StatusOK || res.Proto != "HTTP/2.0" || res.TLS.PeerCertificates[0].SerialNumber.String() != number {
		t.Errorf("%s %s", res.Status, res.Proto)
	}
	eventually.True(t, "the log has the client's network", func() bool { return strings.Contains(program.Log(), `"client":"203.0.113.0/24"`) })
	if _, body := boottest.Get(t, ops+"/metrics"); !strings.Contains(body, "octopay_tls_certificate_end_timestamp_seconds 1") {
		t.Error("the metrics don't say when the certificate ends")
	}
	// Who speaks plain text is told so, and not served.
	if status, body := boottest.Get(t, "http://127.0.0.1"+port+"/v1/users/9527/orders"); status != http.StatusBadRequest || !strings.Contains(body, "HTTPS") {
		t.Errorf("plain text is answered %d %s", status, body)
	}
	if err := program.Stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if log := program.Log(); strings.Contains(log, "203.0.113.7") || strings.Contains(log, "198.51.100") {
		t.Error("the log holds an address")
	}
}

func TestACertificateThatIsNoneEndsItAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.pem")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := run(t.Context(), nil, []string{"OCTOPAY_ADDR=:0", "OCTOPAY_TLS_CERT_FILE=" + path, "OCTOPAY_TLS_KEY_FILE=" + path}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "tls_cert_file and tls_key_file are no pair") {
		t.Errorf("error %v", err)
	}
}

// A server whose certificate is of nobody that we trust is none of ours, and one that
// wants TLS gets no password without. Both are said, and waited for.
func TestTheDatabaseServerInTLS(t *testing.T) {
	ca, other := certtest.New(t), certtest.New(t)
	_, cert, key := ca.Issue(time.Now().Add(time.Hour), "127.0.0.1")
	stack := localstack.Private(t, localstack.Options{
		Need: []localstack.Need{localstack.UID, localstack.BID, localstack.Meta},
		Args: []string{"--ssl-ca=" + ca.File, "--ssl-cert=" + cert, "--ssl-key=" + key},
	})
	apiKey := boottest.Key(t, stack)
	for _, server := range []string{"uid-a", "bid-a"} {
		if _, err := stack.Admin(t, server).Exec("SET GLOBAL require_secure_transport = ON"); err != nil {
			t.Fatal(err)
		}
	}
	meta := stack.Map.Meta().String()
	for name, c := range map[string]struct{ env, want string }{
		"of another authority":    {"OCTOPAY_DB_CA_FILE=" + other.File, "certificate signed by unknown authority"},
		"of none that is known":   {"OCTOPAY_DB_TLS=true", "certificate signed by unknown authority"},
		"without TLS on our side": {"OCTOPAY_DB_TLS=false", "account " + stack.User + ", without TLS: not sent: access denied"},
	} {
		t.Run(name, func(t *testing.T) {
			program := boottest.Start(t, run, append(environ(t, stack, stack.Map), c.env))
			because, _ := program.Await(t, "waiting")["because"].(string)
			if !strings.Contains(because, meta) || !strings.Contains(because, c.want) {
				t.Errorf("it waits because %q", because)
			}
			if err := program.Stop(); err != nil {
				t.Errorf("it ended with %v", err)
			}
			if strings.Contains(program.Log(), stack.Password) {
				t.Error("the log holds the password")
			}
		})
	}
	program := boottest.Start(t, run, append(environ(t, stack, stack.Map), "OCTOPAY_DB_CA_FILE="+ca.File))
	ops, api := program.Listening(t), program.Listening(t)
	boottest.Ready(t, ops)
	if status, code := create(t, api, apiKey, 9527, "A-1"); status != http.StatusCreated {
		t.Errorf("in TLS an order is answered %d %s", status, code)
	}
	if err := program.Stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}
