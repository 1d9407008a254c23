package boot_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/octopay/octopay/httpapi"
	"github.com/octopay/octopay/internal/certtest"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/services/internal/boot"
	"gopkg.in/yaml.v3"
)

type edge struct {
	boot.Edge `yaml:",inline"`
}

func TestWhatTheWorldReachesIsInTLSUnlessSaidOtherwise(t *testing.T) {
	both := []string{"OCTOPAY_TLS_CERT_FILE=c", "OCTOPAY_TLS_KEY_FILE=k"}
	for name, c := range map[string]struct {
		env  []string
		want string // "": it is right
	}{
		"loopback":                         {[]string{"OCTOPAY_ADDR=127.0.0.1:1"}, ""},
		"loopback in IPv6":                 {[]string{"OCTOPAY_ADDR=[::1]:1"}, ""},
		"the world":                        {[]string{"OCTOPAY_ADDR=0.0.0.0:1"}, "config: addr must be host:port of a loopback address, such as 127.0.0.1:8080, unless tls_cert_file and tls_key_file are set, or plaintext is true"},
		"no host":                          {[]string{"OCTOPAY_ADDR=:1"}, "addr must be"},
		"a name":                           {[]string{"OCTOPAY_ADDR=shop.example:1"}, "addr must be"},
		"the world in plain text":          {[]string{"OCTOPAY_ADDR=:1", "OCTOPAY_PLAINTEXT=true"}, ""},
		"the world in TLS":                 {append(both, "OCTOPAY_ADDR=:1"), ""},
		"plain text that isn't":            {[]string{"OCTOPAY_ADDR=:1", "OCTOPAY_PLAINTEXT=false"}, "addr must be"},
		"no word":                          {[]string{"OCTOPAY_ADDR=:1", "OCTOPAY_PLAINTEXT=yes please"}, "OCTOPAY_PLAINTEXT must be true or false"},
		"a certificate alone":              {both[:1], "tls_cert_file and tls_key_file must both be set"},
		"a key alone":                      {both[1:], "tls_cert_file and tls_key_file must both be set"},
		"TLS and plain text":               {append(both, "OCTOPAY_PLAINTEXT=true"), "plaintext must not be true where tls_cert_file is set"},
		"proxies":                          {[]string{"OCTOPAY_TRUSTED_PROXIES=10.0.0.0/8, 2001:db8::/32,192.0.2.1"}, ""},
		"proxies as a list":                {[]string{"OCTOPAY_TRUSTED_PROXIES=[10.0.0.0/8]"}, ""},
		"a proxy with a name":              {[]string{"OCTOPAY_TRUSTED_PROXIES=proxy"}, "OCTOPAY_TRUSTED_PROXIES must be networks such as 10.0.0.0/8, with commas between"},
		"a proxy with a wrong mask":        {[]string{"OCTOPAY_TRUSTED_PROXIES=10.0.0.0/33"}, "OCTOPAY_TRUSTED_PROXIES must be networks"},
		"everybody is a proxy":             {[]string{"OCTOPAY_TRUSTED_PROXIES=0.0.0.0/0"}, "trusted_proxies must not be 0.0.0.0/0"},
		"everybody in IPv6":                {[]string{"OCTOPAY_TRUSTED_PROXIES=10.0.0.0/8,::/0"}, "trusted_proxies must not be ::/0"},
		"IPv4 in IPv6, which nobody is in": {[]string{"OCTOPAY_TRUSTED_PROXIES=::ffff:10.0.0.0/104"}, "trusted_proxies must have IPv4 networks in the form of IPv4"},
		"too many proxies":                 {[]string{"OCTOPAY_TRUSTED_PROXIES=" + strings.Repeat("10.0.0.1,", 257)}, "trusted_proxies must be at most 256"},
	} {
		t.Run(name, func(t *testing.T) {
			err := boot.Load(&edge{boot.Edge{Addr: "127.0.0.1:8080"}}, "", c.env)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want one about %q", err, c.want)
			}
		})
	}
}

func TestNetworksInAFile(t *testing.T) {
	want := boot.Networks{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.1/32")}
	for _, text := range []string{"trusted_proxies: [10.1.2.3/8, 192.0.2.1]\n", "trusted_proxies:\n- 10.1.2.3/8\n- 192.0.2.1\n", "trusted_proxies: 10.1.2.3/8, 192.0.2.1\n"} {
		var e edge
		if err := boot.Load(&e, file(t, "addr: 127.0.0.1:1\n"+text), nil); err != nil || !slices.Equal(e.TrustedProxies, want) {
			t.Errorf("%q: %v, %v", text, e.TrustedProxies, err)
		}
	}
	if err := boot.Load(&edge{}, file(t, "trusted_proxies: {a: b}\n"), nil); err == nil || !strings.Contains(err.Error(), "networks must be like 10.0.0.0/8") {
		t.Errorf("error %v", err)
	}
}

// A lines is a log.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// of returns the lines with this msg.
func (l *lines) of(t *testing.T, msg string) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(l.String()) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatal(err)
		}
		if v["msg"] == msg {
			all = append(all, v)
		}
	}
	return all
}

// tlsServer serves h with the certificate of two files, and returns its address and what
// stops it.
func tlsServer(t *testing.T, log io.Writer, certFile, keyFile string, h http.Handler) (addr string, stop func() error) {
	t.Helper()
	logger := slog.New(slog.NewJSONHandler(log, nil))
	c, err := boot.LoadCertificate(certFile, keyFile, logger)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := httpapi.NewServer(h, logger)
	s.TLSConfig = c.Config()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- boot.Run(ctx, boot.Part{Name: "certificate", Run: c.Run}, boot.HTTP("api", l, s, eventually.Patience, nil))
		close(ended)
	}()
	stop = func() error { cancel(); return <-ended }
	t.Cleanup(func() { _ = stop() })
	return l.Addr().String(), stop
}

// shown returns the serial number of the certificate that a server shows to a new client.
func shown(t *testing.T, addr string, config *tls.Config) string {
	t.Helper()
	conn, err := tls.Dial("tcp", addr, config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

func put(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(to+".new", to); err != nil {
		t.Fatal(err)
	}
}

func TestACertificateIsRenewedWithoutARestartAndABrokenOneIsNot(t *testing.T) {
	ca := certtest.New(t)
	later := time.Now().Add(time.Hour)
	first, cert, key := ca.Issue(later, "127.0.0.1")
	var log lines
	addr, _ := tlsServer(t, &log, cert, key, http.NotFoundHandler())
	client := &tls.Config{RootCAs: ca.Pool()}
	if got := shown(t, addr, client); got != first {
		t.Fatalf("it shows %s, want %s", got, first)
	}
	open, err := tls.Dial("tcp", addr, client)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()

	second, cert2, key2 := ca.Issue(later.Add(time.Hour), "127.0.0.1")
	put(t, cert2, cert)
	eventually.True(t, "half a renewal is said", func() bool { return len(log.of(t, "the new certificate is not used, the one before stays")) == 1 })
	if got := shown(t, addr, client); got != first {
		t.Errorf("with a key of another certificate it shows %s", got)
	}
	put(t, key2, key)
	eventually.True(t, "the new one is shown", func() bool { return shown(t, addr, client) == second })
	if got := log.of(t, "a new certificate is in use"); len(got) != 1 {
		t.Errorf("%v", got)
	}
	// A connection that was there goes on.
	if _, err := io.WriteString(open, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(open); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 404") {
		t.Errorf("%v, %q", err, answer)
	}

	_, ended, endedKey := ca.Issue(time.Now().Add(-time.Minute), "127.0.0.1")
	for name, broken := range map[string]func(){
		"no PEM":         func() { mustWrite(t, cert, "x") },
		"gone":           func() { _ = os.Remove(cert) },
		"one that ended": func() { put(t, ended, cert); put(t, endedKey, key) },
		"a key that isnt": func() {
			put(t, cert2, cert)
			mustWrite(t, key, "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(log.of(t, "the new certificate is not used, the one before stays"))
			broken()
			eventually.True(t, "it is said", func() bool {
				return len(log.of(t, "the new certificate is not used, the one before stays")) > before
			})
			if got := shown(t, addr, client); got != second {
				t.Errorf("it shows %s", got)
			}
		})
	}
	if strings.Contains(log.String(), "c2VjcmV0") {
		t.Error("the log holds a key")
	}
}

func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestACertificateThatIsWrongAtTheStartIsNamed(t *testing.T) {
	ca := certtest.New(t)
	_, cert, key := ca.Issue(time.Now().Add(time.Hour), "127.0.0.1")
	_, _, other := ca.Issue(time.Now().Add(time.Hour), "127.0.0.1")
	for want, files := range map[string][2]string{
		"tls_cert_file: open /nowhere/c.pem":    {"/nowhere/c.pem", key},
		"tls_key_file: open /nowhere/k.pem":     {cert, "/nowhere/k.pem"},
		"tls_cert_file and tls_key_file are no": {cert, other},
	} {
		if _, err := boot.LoadCertificate(files[0], files[1], slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "config: "+want) {
			t.Errorf("error %v, want one about %s", err, want)
		}
	}
}

func TestTheOldestTLSIs12(t *testing.T) {
	ca := certtest.New(t)
	number, cert, key := ca.Issue(time.Now().Add(time.Hour), "127.0.0.1")
	addr, _ := tlsServer(t, io.Discard, cert, key, http.NotFoundHandler())
	if conn, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}); err == nil {
		conn.Close()
		t.Error("TLS 1.1 is spoken")
	}
	if got := shown(t, addr, &tls.Config{RootCAs: ca.Pool(), MaxVersion: tls.VersionTLS12}); got != number {
		t.Errorf("in TLS 1.2 it shows %s", got)
	}
}

// A request under way over HTTP/2 finishes, and the process doesn't end before.
func TestAStoppedServerFinishesTheRequestUnderWayInHTTP2(t *testing.T) {
	ca := certtest.New(t)
	_, cert, key := ca.Issue(time.Now().Add(time.Hour), "127.0.0.1")
	began, finish := make(chan struct{}), make(chan struct{})
	addr, stop := tlsServer(t, io.Discard, cert, key, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(began)
		<-finish
		_, _ = io.WriteString(w, "done")
	}))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	got := make(chan string, 1)
	go func() {
		res, err := client.Get("https://" + addr)
		if err != nil {
			got <- err.Error()
			return
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		got <- errors.Join(err, errors.New(res.Proto+" "+string(text))).Error()
	}()
	<-began
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	eventually.True(t, "nobody listens any more", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	select {
	case err := <-ended:
		t.Fatalf("it ended with %v, with a request under way", err)
	default:
	}
	close(finish)
	if text := <-got; text != "HTTP/2.0 done" {
		t.Errorf("the request under way got %q", text)
	}
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// FuzzNetworks: what is read are networks, and their own text is read as the same.
func FuzzNetworks(f *testing.F) {
	for _, text := range []string{"", "10.0.0.0/8, 2001:db8::/32,192.0.2.1", "[10.1.2.3/8]", "- ::1\n- 10.0.0.1\n", "::ffff:10.0.0.0/104", "fe80::1%eth0", "a: b", "10.0.0.0/33", ",,", "[[1]]", "&a [*a]"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var n boot.Networks
		if yaml.Unmarshal([]byte(text), &n) != nil {
			return
		}
		var own []string
		for _, network := range n {
			if !network.IsValid() || network != network.Masked() {
				t.Fatalf("%q has %s", text, network)
			}
			own = append(own, network.String())
		}
		var again boot.Networks
		if err := yaml.Unmarshal([]byte(strings.Join(own, ", ")), &again); err != nil || !slices.Equal(n, again) {
			t.Fatalf("%q is %v, and its own text %v, %v", text, n, again, err)
		}
	})
}
