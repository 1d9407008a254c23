// Package certtest makes certificates for tests: an authority of the test's own, and
// servers' certificates by it.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// An Authority signs certificates.
type Authority struct {
	File string // its own certificate, PEM

	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New returns an authority whose files are gone after t.
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, File: filepath.Join(t.TempDir(), "ca.pem"), key: newKey(t)}
	a.cert = &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: "octopay test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	raw := sign(t, a.cert, a.cert, &a.key.PublicKey, a.key)
	var err error
	if a.cert, err = x509.ParseCertificate(raw); err != nil {
		t.Fatal(err)
	}
	writePEM(t, a.File, "CERTIFICATE", raw)
	return a
}

// Pool returns the authority as one that a client trusts.
func (a *Authority) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// Issue makes a server's certificate for hosts, names or addresses, that ends at until,
// and returns its serial number and the files of it and of its key, PEM.
func (a *Authority) Issue(until time.Time, hosts ...string) (number, certFile, keyFile string) {
	a.t.Helper()
	key := newKey(a.t)
	cert := &x509.Certificate{
		SerialNumber: serial(a.t), Subject: pkix.Name{CommonName: "octopay test"},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			cert.IPAddresses = append(cert.IPAddresses, ip)
		} else {
			cert.DNSNames = append(cert.DNSNames, h)
		}
	}
	dir := a.t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writePEM(a.t, certFile, "CERTIFICATE", sign(a.t, cert, a.cert, &key.PublicKey, a.key))
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	writePEM(a.t, keyFile, "PRIVATE KEY", raw)
	return cert.SerialNumber.String(), certFile, keyFile
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func serial(t testing.TB) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func sign(t testing.TB, cert, by *x509.Certificate, public *ecdsa.PublicKey, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	raw, err := x509.CreateCertificate(rand.Reader, cert, by, public, key)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func writePEM(t testing.TB, file, kind string, raw []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600); err != nil {
		t.Fatal(err)
	}
}
