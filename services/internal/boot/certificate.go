package boot

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// certificateEvery is how often the files are looked at.
	certificateEvery = time.Second
	// pemMax bounds what is read of a file, in bytes.
	pemMax = 1 << 20
)

// A Certificate is that of a listener: what its files held when they were last good. It
// is safe for concurrent use.
type Certificate struct {
	certFile, keyFile string
	log               *slog.Logger
	force             atomic.Pointer[tls.Certificate]

	mu    sync.Mutex // one look at a time
	taken [sha256.Size]byte
	last  string // what the last look found wrong
	said  string
}

// LoadCertificate reads the certificate of two files, PEM. What is wrong with them is an
// error that names the setting.
func LoadCertificate(certFile, keyFile string, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile, log: log}
	if _, err := c.read(); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return c, nil
}

// Config returns the TLS settings of a listener that shows the certificate in force.
func (c *Certificate) Config() *tls.Config {
	return &tls.Config{
		MinVersion:     tlsLeast,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.force.Load(), nil },
	}
}

// Run looks at the files every second until ctx ends. What is new and good is shown to
// the connections that begin from then on. What isn't good is said once, and the last good
// one stays.
func (c *Certificate) Run(ctx context.Context) error {
	tick := time.NewTicker(certificateEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			c.look()
		}
	}
}

// look takes over what is new. Two files can't be replaced at one moment, so what is
// wrong is said only when it was so at the last look too.
func (c *Certificate) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	fresh, err := c.read()
	now := ""
	if err != nil {
		now = err.Error()
	}
	switch {
	case fresh:
		c.log.Info("a new certificate is in use", "ends", c.force.Load().Leaf.NotAfter)
	case now != "" && now == c.last && now != c.said:
		c.log.Warn("the new certificate is not used, the one before stays", "because", now, "ends", c.force.Load().Leaf.NotAfter)
	}
	if now == "" || now == c.last {
		c.said = now
	}
	c.last = now
}

// read reads the files, and takes over what they hold if it is good. It reports whether
// that is new.
func (c *Certificate) read() (fresh bool, err error) {
	chain, err := readPEM("tls_cert_file", c.certFile)
	if err != nil {
		return false, err
	}
	key, err := readPEM("tls_key_file", c.keyFile)
	if err != nil {
		return false, err
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%d ", len(chain))
	sum.Write(chain)
	sum.Write(key)
	digest := [sha256.Size]byte(sum.Sum(nil))
	if c.force.Load() != nil && digest == c.taken {
		return false, nil
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return false, fmt.Errorf("tls_cert_file and tls_key_file are no pair of a certificate and its key: %w", err)
	}
	if old := c.force.Load(); old != nil && time.Now().After(pair.Leaf.NotAfter) && pair.Leaf.NotAfter.Before(old.Leaf.NotAfter) {
		return false, errors.New("tls_cert_file has a certificate that has ended, before the one in use")
	}
	c.taken = digest
	c.force.Store(&pair)
	return true, nil
}

func readPEM(setting, file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	text, err := io.ReadAll(io.LimitReader(f, pemMax+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	if len(text) > pemMax {
		return nil, fmt.Errorf("%s: the file is larger than %d bytes", setting, pemMax)
	}
	return text, nil
}

var certificateEnd = prometheus.NewDesc("octopay_tls_certificate_end_timestamp_seconds", "When the certificate in use ends.", nil, nil)

// Describe implements prometheus.Collector.
func (c *Certificate) Describe(ch chan<- *prometheus.Desc) { ch <- certificateEnd }

// Collect implements prometheus.Collector.
func (c *Certificate) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(certificateEnd, prometheus.GaugeValue, float64(c.force.Load().Leaf.NotAfter.Unix()))
}
