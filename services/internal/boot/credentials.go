package boot

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/syncer/stream"
)

// secretMax bounds what is read of a file that holds one secret, in bytes.
const secretMax = 4096

// Databases returns the account on the map's servers, and how to reach them. What is wrong
// with a file is an error that names its setting, and never what is in it.
func (s Shared) Databases() (cluster.Config, error) {
	password, err := secret("db_password", s.DBPassword, s.DBPasswordFile)
	if err != nil {
		return cluster.Config{}, err
	}
	c := cluster.Config{User: s.DBUser, Password: password}
	if s.DBTLS || s.DBCAFile != "" {
		if c.TLS, err = trusting("db_ca_file", s.DBCAFile); err != nil {
			return cluster.Config{}, err
		}
	}
	return c, nil
}

// trusting returns the TLS settings of a client that trusts the authorities of a file; ""
// are those of this machine.
func trusting(setting, file string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tlsLeast}
	if file == "" {
		return c, nil
	}
	text, err := readPEM(setting, file)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("config: %s: %s holds no certificate in PEM", setting, file)
	}
	return c, nil
}

// secret returns a secret that is a variable or in a file, without white space around it;
// "" if it is neither.
func secret(setting, text, file string) (string, error) {
	if file == "" {
		return text, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("config: %s_file: %w", setting, err)
	}
	raw, err := io.ReadAll(io.LimitReader(f, secretMax+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("config: %s_file: %w", setting, err)
	}
	text = strings.TrimSpace(string(raw))
	if text == "" || len(raw) > secretMax {
		return "", fmt.Errorf("config: %s_file: %s must hold the secret, and no more than %d bytes", setting, file, secretMax)
	}
	return text, nil
}

// checkCredentials refuses what could be meant in two ways.
func (s Shared) checkCredentials() error {
	var faults []error
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf("config: "+format, args...))
		}
	}
	const both = "%s (" + Prefix + "%s) and %s are both set; one must be"
	fault(s.DBPassword != "" && s.DBPasswordFile != "", both, "db_password", "DB_PASSWORD", "db_password_file")
	fault(s.NATSPassword != "" && s.NATSPasswordFile != "", both, "nats_password", "NATS_PASSWORD", "nats_password_file")
	fault(s.NATSToken != "" && s.NATSTokenFile != "", both, "nats_token", "NATS_TOKEN", "nats_token_file")
	password := s.NATSPassword != "" || s.NATSPasswordFile != ""
	fault(password && s.NATSUser == "", "nats_user must be set with nats_password")
	fault(!password && s.NATSUser != "", "nats_password (%sNATS_PASSWORD) or nats_password_file must be set with nats_user", Prefix)
	ways := 0
	for _, set := range []bool{s.NATSUser != "", s.NATSToken != "" || s.NATSTokenFile != "", s.NATSCredsFile != "", s.NATSNKeyFile != ""} {
		if set {
			ways++
		}
	}
	fault(ways > 1, "only one of nats_user, nats_token, nats_creds_file and nats_nkey_file must be set")
	return errors.Join(faults...)
}

// NATS connects to NATS, as stream.Connect does. Secrets in files are read for each
// connection, so that a changed one needs no restart; that they can be read is made sure of
// here.
func (s Shared) NATS(name string, opts ...nats.Option) (*nats.Conn, error) {
	more, err := s.natsOptions()
	if err != nil {
		return nil, err
	}
	nc, err := stream.Connect(s.NATSURL, name, append(more, opts...)...)
	if err != nil {
		return nil, s.natsFault(err)
	}
	return nc, nil
}

func (s Shared) natsOptions() (opts []nats.Option, err error) {
	switch {
	case s.NATSUser != "":
		if _, err := secret("nats_password", s.NATSPassword, s.NATSPasswordFile); err != nil {
			return nil, err
		}
		opts = append(opts, nats.UserInfoHandler(func() (string, string) {
			// What can't be read any more is refused by the server, and so said.
			password, _ := secret("nats_password", s.NATSPassword, s.NATSPasswordFile)
			return s.NATSUser, password
		}))
	case s.NATSToken != "" || s.NATSTokenFile != "":
		if _, err := secret("nats_token", s.NATSToken, s.NATSTokenFile); err != nil {
			return nil, err
		}
		opts = append(opts, nats.TokenHandler(func() string {
			token, _ := secret("nats_token", s.NATSToken, s.NATSTokenFile)
			return token
		}))
	case s.NATSCredsFile != "":
		if _, err := readPEM("nats_creds_file", s.NATSCredsFile); err != nil {
			return nil, fmt.Errorf("config: %w", err)
		}
		opts = append(opts, nats.UserCredentials(s.NATSCredsFile))
	case s.NATSNKeyFile != "":
		opt, err := nats.NkeyOptionFromSeed(s.NATSNKeyFile)
		if err != nil {
			return nil, fmt.Errorf("config: nats_nkey_file: %s must hold the seed of a user: %w", s.NATSNKeyFile, err)
		}
		opts = append(opts, opt)
	}
	if s.NATSCAFile != "" {
		config, err := trusting("nats_ca_file", s.NATSCAFile)
		if err != nil {
			return nil, err
		}
		opts = append(opts, nats.Secure(config))
	}
	return opts, nil
}

// AwaitNATS waits until nc is connected. It says what it waits for, and why: which servers,
// and which account.
func (s Shared) AwaitNATS(ctx context.Context, log *slog.Logger, nc *nats.Conn) error {
	return Until(ctx, log, "NATS", func(context.Context) error {
		if nc.IsConnected() {
			return nil
		}
		return s.natsFault(nc.LastError())
	})
}

// natsFault says where NATS is, who asked, and what the matter is. It holds no secret: of
// an address only its host is said.
func (s Shared) natsFault(err error) error {
	var cert *tls.CertificateVerificationError
	why := errors.New("not connected")
	switch {
	case err == nil:
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked), errors.Is(err, nats.ErrAccountAuthExpired):
		why = fmt.Errorf("access denied: the user, the password, the token or the key is wrong: %w", err)
	case errors.As(err, &cert):
		why = fmt.Errorf("its certificate is not trusted: see nats_ca_file: %w", err)
	default:
		why = fmt.Errorf("not connected: %w", err)
	}
	return fmt.Errorf("NATS at %s, %s: %w", strings.Join(s.natsHosts(), ", "), s.natsAccount(), why)
}

func (s Shared) natsHosts() (hosts []string) {
	for one := range strings.SplitSeq(s.NATSURL, ",") {
		if u, err := url.Parse(strings.TrimSpace(one)); err == nil {
			hosts = append(hosts, u.Host)
		}
	}
	return hosts
}

func (s Shared) natsAccount() string {
	switch {
	case s.NATSUser != "":
		return "account " + s.NATSUser
	case s.NATSToken != "" || s.NATSTokenFile != "":
		return "by token"
	case s.NATSCredsFile != "":
		return "by nats_creds_file"
	case s.NATSNKeyFile != "":
		return "by nats_nkey_file"
	}
	return "without an account"
}
