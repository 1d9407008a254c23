package boot_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/octopay/octopay/services/internal/boot"
)

type config struct {
	boot.Shared `yaml:",inline"`
	Addr        string        `yaml:"addr"`
	Wait        time.Duration `yaml:"wait"`
	MaxOps      int           `yaml:"max_ops"`
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheEnvironmentWinsOverTheFileAndTheFileOverTheDefault(t *testing.T) {
	c := config{Addr: "default", MaxOps: 1}
	path := file(t, "addr: file\nwait: 3s\nnats_url: nats://a\n")
	if err := boot.Load(&c, path, []string{"HOME=/", "OCTOPAY_ADDR=env: a", "OCTOPAY_DB_PASSWORD=s3cret", "OCTOPAY_WAIT=5s"}); err != nil {
		t.Fatal(err)
	}
	want := config{Addr: "env: a", MaxOps: 1, Wait: 5 * time.Second, Shared: boot.Shared{DBPassword: "s3cret", NATSURL: "nats://a"}}
	if c != want {
		t.Errorf("%+v, want %+v", c, want)
	}
}

func TestAnEmptyFileIsNoSettings(t *testing.T) {
	c := config{}
	if err := boot.Load(&c, file(t, ""), nil); err != nil || c != (config{}) {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestUnknownSettingsAreErrorsThatNameThem(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		env  []string
		want string
	}{
		"in the file":                {file: "adr: x\n", want: "adr"},
		"in the environment":         {env: []string{"OCTOPAY_ADR=x"}, want: "OCTOPAY_ADR"},
		"a password in the file":     {file: "db_password: x\n", want: "db_password"},
		"a number that isn't one":    {env: []string{"OCTOPAY_MAX_OPS=s3cret"}, want: "OCTOPAY_MAX_OPS"},
		"a time without a unit":      {env: []string{"OCTOPAY_WAIT=soon"}, want: "OCTOPAY_WAIT"},
		"two faults, the second too": {env: []string{"OCTOPAY_A=x", "OCTOPAY_B=y"}, want: "OCTOPAY_B"},
	} {
		t.Run(name, func(t *testing.T) {
			path := ""
			if c.file != "" {
				path = file(t, c.file)
			}
			err := boot.Load(&config{}, path, c.env)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one that names %s", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error quotes the value: %v", err)
			}
		})
	}
}

func TestLoopback(t *testing.T) {
	for addr, want := range map[string]bool{
		"127.0.0.1:80": true, "[::1]:80": true, "localhost:80": true,
		":80": false, "0.0.0.0:80": false, "10.0.0.1:80": false, "127.0.0.1": false, "example.com:80": false,
	} {
		if boot.Loopback(addr) != want {
			t.Errorf("Loopback(%q) = %v", addr, !want)
		}
	}
}
