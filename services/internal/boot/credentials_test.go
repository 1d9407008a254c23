package boot_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
	"github.com/octopay/octopay/internal/certtest"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/services/internal/boot"
	"github.com/octopay/octopay/services/internal/boottest"
)

func TestCredentialsThatCouldBeMeantInTwoWays(t *testing.T) {
	for name, c := range map[string]struct {
		env  []string
		want string // "": it is right
	}{
		"none":                        {nil, ""},
		"a user with its password":    {[]string{"OCTOPAY_NATS_USER=a", "OCTOPAY_NATS_PASSWORD=s3cret"}, ""},
		"a user without":              {[]string{"OCTOPAY_NATS_USER=a"}, "nats_password (OCTOPAY_NATS_PASSWORD) or nats_password_file must be set with nats_user"},
		"a password without its user": {[]string{"OCTOPAY_NATS_PASSWORD=s3cret"}, "nats_user must be set with nats_password"},
		"a password and a file of it": {[]string{"OCTOPAY_NATS_USER=a", "OCTOPAY_NATS_PASSWORD=s3cret", "OCTOPAY_NATS_PASSWORD_FILE=f"}, "nats_password (OCTOPAY_NATS_PASSWORD) and nats_password_file are both set"},
		"a token and a file of it":    {[]string{"OCTOPAY_NATS_TOKEN=s3cret", "OCTOPAY_NATS_TOKEN_FILE=f"}, "nats_token (OCTOPAY_NATS_TOKEN) and nats_token_file are both set"},
		"a user and a token":          {[]string{"OCTOPAY_NATS_USER=a", "OCTOPAY_NATS_PASSWORD=s3cret", "OCTOPAY_NATS_TOKEN=s3cret"}, "only one of nats_user, nats_token, nats_creds_file and nats_nkey_file must be set"},
		"credentials and an nkey":     {[]string{"OCTOPAY_NATS_CREDS_FILE=a", "OCTOPAY_NATS_NKEY_FILE=b"}, "only one of"},
		"the database's password":     {[]string{"OCTOPAY_DB_PASSWORD=s3cret", "OCTOPAY_DB_PASSWORD_FILE=f"}, "db_password (OCTOPAY_DB_PASSWORD) and db_password_file are both set"},
	} {
		t.Run(name, func(t *testing.T) {
			err := boot.Load(&config{}, "", c.env)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want one about %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("a secret: %v", err)
			}
		})
	}
	if err := boot.Load(&config{}, file(t, "nats_password: s3cret\n"), nil); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("a secret in the file of settings: %v", err)
	}
}

func TestTheDatabasesAccount(t *testing.T) {
	ca := certtest.New(t)
	secret := file(t, " s3cret \n")
	c, err := boot.Shared{DBUser: "a", DBPasswordFile: secret, DBCAFile: ca.File}.Databases()
	if err != nil || c.User != "a" || c.Password != "s3cret" || c.TLS == nil || !c.TLS.RootCAs.Equal(ca.Pool()) || c.TLS.InsecureSkipVerify {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := (boot.Shared{DBUser: "a", DBPassword: "b"}).Databases(); err != nil || c.TLS != nil || c.Password != "b" {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := (boot.Shared{DBTLS: true}).Databases(); err != nil || c.TLS == nil || c.TLS.RootCAs != nil {
		t.Errorf("%+v, %v", c, err)
	}
	for want, s := range map[string]boot.Shared{
		"config: db_password_file: open /nowhere": {DBPasswordFile: "/nowhere/x"},
		"must hold the secret":                    {DBPasswordFile: file(t, " \n")},
		"and no more than 4096 bytes":             {DBPasswordFile: file(t, strings.Repeat("x", 5000))},
		"config: db_ca_file: open /nowhere":       {DBCAFile: "/nowhere/x"},
		"holds no certificate in PEM":             {DBCAFile: secret},
	} {
		if _, err := s.Databases(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("error %v, want one about %s", err, want)
		}
	}
}

// reaches waits until a connection with these settings is there. Before that it has to be
// said that it isn't, with these words, unless there are none; repair then makes it right.
func reaches(t *testing.T, s boot.Shared, repair func(), words ...string) (said string) {
	t.Helper()
	var log lines
	nc, err := s.NATS("test")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Patience)
	defer cancel()
	connected := make(chan error, 1)
	go func() { connected <- s.AwaitNATS(ctx, slog.New(slog.NewJSONHandler(&log, nil)), nc) }()
	if len(words) > 0 {
		eventually.Nil(t, "it is said what it waits for", func() error {
			for _, line := range log.of(t, "waiting") {
				because := line["because"].(string)
				all := true
				for _, w := range words {
					all = all && strings.Contains(because, w)
				}
				if all {
					return nil
				}
			}
			return fmt.Errorf("the log is %s", &log)
		})
	}
	if repair != nil {
		repair()
	} else if len(words) > 0 {
		cancel()
		<-connected
		return log.String()
	}
	if err := <-connected; err != nil {
		t.Fatalf("%v\n%s", err, &log)
	}
	return log.String()
}

func TestAnAccountOfNATSThatIsRefusedIsNamedAndWaitedFor(t *testing.T) {
	right, wrong := rand.Text(), rand.Text()
	users := func(password string) func(*server.Options) {
		return func(o *server.Options) { o.Username, o.Password = "octopay", password }
	}
	b := boottest.StartBroker(t, users(right))
	host := strings.TrimPrefix(b.URL, "nats://")

	reaches(t, boot.Shared{NATSURL: b.URL, NATSUser: "octopay", NATSPassword: right}, nil)
	denied := []string{"NATS at " + host, "access denied: the user, the password, the token or the key is wrong"}
	log := reaches(t, boot.Shared{NATSURL: b.URL}, nil, append(denied, "without an account")...)
	// The server is put right.
	log += reaches(t, boot.Shared{NATSURL: b.URL, NATSUser: "octopay", NATSPassword: wrong}, func() { b.Reload(users(wrong)) }, append(denied, "account octopay")...)
	// The file is put right.
	path := file(t, right)
	log += reaches(t, boot.Shared{NATSURL: b.URL, NATSUser: "octopay", NATSPasswordFile: path}, func() {
		if err := os.WriteFile(path, []byte(wrong+"\n"), 0o600); err != nil {
			t.Error(err)
		}
	}, append(denied, "account octopay")...)
	if strings.Contains(log, right) || strings.Contains(log, wrong) {
		t.Errorf("a password: %s", log)
	}
	// A secret in the address isn't said either.
	log = reaches(t, boot.Shared{NATSURL: "nats://octopay:" + right + "@" + host}, nil, denied...)
	if strings.Contains(log, right) {
		t.Errorf("a password: %s", log)
	}
}

func TestATokenOfNATS(t *testing.T) {
	token := rand.Text()
	b := boottest.StartBroker(t, func(o *server.Options) { o.Authorization = token })
	reaches(t, boot.Shared{NATSURL: b.URL, NATSToken: token}, nil)
	reaches(t, boot.Shared{NATSURL: b.URL, NATSTokenFile: file(t, token+"\n")}, nil)
	reaches(t, boot.Shared{NATSURL: b.URL, NATSToken: "no"}, nil, "access denied", "by token")
}

func TestAnNKeyOfNATS(t *testing.T) {
	user := func() (public, seed string) {
		k, err := nkeys.CreateUser()
		if err != nil {
			t.Fatal(err)
		}
		public, _ = k.PublicKey()
		text, _ := k.Seed()
		return public, string(text)
	}
	public, seed := user()
	_, other := user()
	b := boottest.StartBroker(t, func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: public}} })
	reaches(t, boot.Shared{NATSURL: b.URL, NATSNKeyFile: file(t, seed)}, nil)
	if log := reaches(t, boot.Shared{NATSURL: b.URL, NATSNKeyFile: file(t, other)}, nil, "access denied", "by nats_nkey_file"); strings.Contains(log, other) {
		t.Errorf("a seed: %s", log)
	}
	for _, path := range []string{file(t, "SUsomething"), "/nowhere/seed"} {
		if _, err := (boot.Shared{NATSURL: b.URL, NATSNKeyFile: path}).NATS("test"); err == nil || !strings.Contains(err.Error(), "config: nats_nkey_file: "+path+" must hold the seed of a user") || strings.Contains(err.Error(), "SUsome") {
			t.Errorf("error %v", err)
		}
	}
}

func TestACredentialsFileOfNATS(t *testing.T) {
	pair := func(make func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
		k, err := make()
		if err != nil {
			t.Fatal(err)
		}
		public, err := k.PublicKey()
		if err != nil {
			t.Fatal(err)
		}
		return k, public
	}
	operator, operatorID := pair(nkeys.CreateOperator)
	account, accountID := pair(nkeys.CreateAccount)
	user, userID := pair(nkeys.CreateUser)
	claims := jwt.NewAccountClaims(accountID)
	accountText, err := claims.Encode(operator)
	if err != nil {
		t.Fatal(err)
	}
	userText, err := jwt.NewUserClaims(userID).Encode(account)
	if err != nil {
		t.Fatal(err)
	}
	seed, err := user.Seed()
	if err != nil {
		t.Fatal(err)
	}
	creds, err := jwt.FormatUserConfig(userText, seed)
	if err != nil {
		t.Fatal(err)
	}
	resolver := &server.MemAccResolver{}
	if err := resolver.Store(accountID, accountText); err != nil {
		t.Fatal(err)
	}
	b := boottest.StartBroker(t, func(o *server.Options) {
		o.JetStream = false // it would need an account of the system
		o.TrustedKeys, o.AccountResolver = []string{operatorID}, resolver
	})
	path := filepath.Join(t.TempDir(), "user.creds")
	mustWrite(t, path, string(creds))
	reaches(t, boot.Shared{NATSURL: b.URL, NATSCredsFile: path}, nil)
	reaches(t, boot.Shared{NATSURL: b.URL}, nil, "access denied", "without an account")
	if _, err := (boot.Shared{NATSURL: b.URL, NATSCredsFile: "/nowhere/x"}).NATS("test"); err == nil || !strings.Contains(err.Error(), "config: nats_creds_file: open /nowhere/x") {
		t.Errorf("error %v", err)
	}
}

func TestNATSInTLS(t *testing.T) {
	ca, other := certtest.New(t), certtest.New(t)
	_, cert, key := ca.Issue(time.Now().Add(time.Hour), "127.0.0.1")
	b := boottest.StartBroker(t, boottest.InTLS(t, cert, key))
	reaches(t, boot.Shared{NATSURL: b.URL, NATSCAFile: ca.File}, nil)
	reaches(t, boot.Shared{NATSURL: b.URL, NATSCAFile: other.File}, nil, "its certificate is not trusted: see nats_ca_file")
	plain := boottest.StartBroker(t, func(*server.Options) {})
	reaches(t, boot.Shared{NATSURL: plain.URL, NATSCAFile: ca.File}, nil, "secure connection not available")
	for want, path := range map[string]string{"config: nats_ca_file: open /nowhere/x": "/nowhere/x", "holds no certificate in PEM": file(t, "x")} {
		if _, err := (boot.Shared{NATSURL: b.URL, NATSCAFile: path}).NATS("test"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one about %s", err, want)
		}
	}
}
