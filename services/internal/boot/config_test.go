package boot_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
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

func (c config) Check() error {
	return errors.Join(c.Shared.Check(), boot.Between("wait", c.Wait, 0, time.Minute), boot.Between("max_ops", c.MaxOps, 0, 9))
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

func TestVariablesOfOtherProgramsAreLeftAlone(t *testing.T) {
	c := config{Addr: "default"}
	env := []string{"OCTOPAY_READ_PERMITS=nonsense", "OCTOPAY_STREAM_BYTES_MAX=-1", "OCTOPAY_OPS_ADDR=0"}
	if err := boot.Load(&c, "", env); err != nil || c != (config{Addr: "default"}) {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestAVariableWithoutAValueIsAbsent(t *testing.T) {
	c := config{Addr: "default", MaxOps: 1, Wait: time.Second}
	want := c
	if err := boot.Load(&c, file(t, "wait:\n"), []string{"OCTOPAY_ADDR=", "OCTOPAY_MAX_OPS=", "OCTOPAY_WAIT=", "OCTOPAY_NATS_URL="}); err != nil || c != want {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestBrokersThatCanBeNamed(t *testing.T) {
	for _, u := range []string{"nats://127.0.0.1:4222", "nats://a", "tls://u:p@a:1, nats://[::1]:2", "wss://a:443"} {
		if err := boot.Load(&config{}, "", []string{"OCTOPAY_NATS_URL=" + u}); err != nil {
			t.Errorf("%s: %v", u, err)
		}
	}
}

// The list of settings has a row for each program, and no other. That a row is what its
// program has is made sure of by Start, and so by each program's tests.
func TestEveryProgramIsInTheList(t *testing.T) {
	mains, err := filepath.Glob("../../*/main.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range mains {
		if name := filepath.Base(filepath.Dir(m)); name != "quickstart" { // it has flags alone
			names = append(names, name)
		}
	}
	if got := boot.Programs(); !slices.Equal(got, names) {
		t.Errorf("listed are %v, and there are %v", got, names)
	}
	for _, name := range names {
		if _, err := boot.Start(name, &config{}, &boot.Shared{}, nil, nil, io.Discard); err == nil || !strings.Contains(err.Error(), "list of settings") {
			t.Errorf("%s starts with settings that aren't in its row: %v", name, err)
		}
	}
}

func TestUnknownAndSenselessSettingsAreErrorsThatNameThem(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		env  []string
		want string
	}{
		"in the file":                {file: "adr: x\n", want: "adr"},
		"in a second document":       {file: "addr: x\n---\nadr: x\n", want: "one document"},
		"a second document":          {file: "addr: x\n---\naddr: y\n", want: "one document"},
		"in the environment":         {env: []string{"OCTOPAY_ADR=x"}, want: "OCTOPAY_ADR is no setting of any program"},
		"in the file, of another":    {file: "read_permits: 1\n", want: "read_permits"},
		"a password in the file":     {file: "db_password: x\n", want: "db_password"},
		"a number that isn't one":    {env: []string{"OCTOPAY_MAX_OPS=s3cret"}, want: "OCTOPAY_MAX_OPS must be a whole number"},
		"a time without a unit":      {env: []string{"OCTOPAY_WAIT=11"}, want: "OCTOPAY_WAIT must be a time with its unit, such as 11s"},
		"a time that makes no sense": {env: []string{"OCTOPAY_WAIT=-5s"}, want: "wait must be from 0s to 1m0s"},
		"the same in the file":       {file: "wait: -5s\n", want: "wait must be from 0s to 1m0s"},
		"two that make no sense":     {env: []string{"OCTOPAY_WAIT=1h", "OCTOPAY_MAX_OPS=10"}, want: "max_ops must be from 0 to 9"},
		"neither true nor false":     {env: []string{"OCTOPAY_PPROF=s3cret"}, want: "OCTOPAY_PPROF must be true or false"},
		"a level that there isn't":   {env: []string{"OCTOPAY_LOG_LEVEL=s3cret"}, want: "log_level must be"},
		"a broker without a scheme":  {env: []string{"OCTOPAY_NATS_URL=s3cret"}, want: "nats_url must be"},
		"of another scheme":          {env: []string{"OCTOPAY_NATS_URL=http://s3cret:4222"}, want: "nats_url must be"},
		"one of two brokers":         {env: []string{"OCTOPAY_NATS_URL=nats://a:4222,nats://:4222"}, want: "nats_url must be"},
		"a port of letters":          {env: []string{"OCTOPAY_NATS_URL=nats://u:s3cret@a:port"}, want: "nats_url must be"},
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
