package boottest

import (
	"crypto/tls"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/octopay/octopay/internal/eventually"
)

// A Broker is a NATS server with JetStream of a test's own, for what the shared one isn't:
// with accounts and TLS.
type Broker struct {
	URL string

	t       testing.TB
	server  *server.Server
	options server.Options
}

// StartBroker starts a broker, which ends with t; change changes its options.
func StartBroker(t testing.TB, change func(*server.Options)) *Broker {
	t.Helper()
	b := &Broker{t: t, options: server.Options{
		ServerName: "test", Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: t.TempDir(), SyncAlways: true,
	}}
	change(&b.options)
	options := b.options
	s, err := server.NewServer(&options)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(eventually.Patience) {
		t.Fatal("the broker is not ready")
	}
	b.server, b.URL = s, s.ClientURL()
	return b
}

// Reload changes its options while it runs.
func (b *Broker) Reload(change func(*server.Options)) {
	b.t.Helper()
	change(&b.options)
	options := b.options
	if err := b.server.ReloadOptions(&options); err != nil {
		b.t.Fatal(err)
	}
}

// InTLS is a change of options: clients must speak TLS, and see the certificate of these
// files.
func InTLS(t testing.TB, certFile, keyFile string) func(*server.Options) {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	return func(o *server.Options) {
		o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
		o.TLSTimeout = eventually.Patience.Seconds()
	}
}
