package boot

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"

	"gopkg.in/yaml.v3"
)

// An Edge is the settings of a listener that more than this machine may reach.
type Edge struct {
	Addr           string   `yaml:"addr" help:"where the API listens, host:port; without TLS and without plaintext that of this machine alone"`
	CertFile       string   `yaml:"tls_cert_file" help:"file of the certificate, PEM, its chain behind it; read again when it changes"`
	KeyFile        string   `yaml:"tls_key_file" help:"file of the certificate's key, PEM"`
	Plaintext      bool     `yaml:"plaintext" help:"true: addr may be any without TLS, since something before it does TLS"`
	TrustedProxies Networks `yaml:"trusted_proxies" help:"networks of the proxies whose X-Forwarded-For says who the client is, such as 10.0.0.0/8, with commas between"`
}

// Check implements Settings.
func (e Edge) Check() error {
	var faults []error
	secure := e.CertFile != "" || e.KeyFile != ""
	switch {
	case (e.CertFile == "") != (e.KeyFile == ""):
		faults = append(faults, errors.New("config: tls_cert_file and tls_key_file must both be set, or neither"))
	case secure && e.Plaintext:
		faults = append(faults, errors.New("config: plaintext must not be true where tls_cert_file is set: one of them is meant"))
	case !secure && !e.Plaintext && !Loopback(e.Addr):
		faults = append(faults, errors.New("config: addr must be host:port of a loopback address, such as 127.0.0.1:8080, unless tls_cert_file and tls_key_file are set, "+
			"or plaintext is true because something before it does TLS: keys and orders would cross the network for everybody to read"))
	}
	return errors.Join(append(faults, e.TrustedProxies.check())...)
}

// Certificate reads the certificate of the settings; nil when none is set.
func (e Edge) Certificate(log *slog.Logger) (*Certificate, error) {
	if e.CertFile == "" {
		return nil, nil
	}
	return LoadCertificate(e.CertFile, e.KeyFile, log)
}

// Networks are IP networks. In a file they are a list, or as in a variable one text with
// commas between. An address alone is the network of only it.
type Networks []netip.Prefix

// networksMax bounds what is compared for each request.
const networksMax = 256

// UnmarshalYAML implements yaml.Unmarshaler.
func (n *Networks) UnmarshalYAML(node *yaml.Node) error {
	var texts []string
	if node.Kind == yaml.ScalarNode {
		texts = strings.Split(node.Value, ",")
	} else if err := node.Decode(&texts); err != nil {
		return errNetworks
	}
	*n = nil
	for _, text := range texts {
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		network, err := netip.ParsePrefix(text)
		if addr, bad := netip.ParseAddr(text); bad == nil && addr.Zone() == "" {
			network, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return errNetworks
		}
		*n = append(*n, network.Masked())
	}
	return nil
}

var errNetworks = errors.New("networks must be like 10.0.0.0/8 or 2001:db8::/32, in a list or with commas between")

// check refuses networks that would make everybody a proxy, or that contain nobody.
func (n Networks) check() error {
	if len(n) > networksMax {
		return fmt.Errorf("config: trusted_proxies must be at most %d networks", networksMax)
	}
	for _, network := range n {
		switch {
		case network.Bits() == 0:
			return fmt.Errorf("config: trusted_proxies must not be %s: everybody could say that he is anybody", network)
		case network.Addr().Is4In6():
			return errors.New("config: trusted_proxies must have IPv4 networks in the form of IPv4, such as 10.0.0.0/8")
		}
	}
	return nil
}

// tlsLeast is the oldest version of TLS that is spoken.
const tlsLeast = tls.VersionTLS12
