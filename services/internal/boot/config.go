// Package boot is what the programs share before and after their work: settings,
// logs, waiting for what isn't there yet, and leaving in order.
package boot

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/octopay/octopay/shardmap"
	"gopkg.in/yaml.v3"
)

// Prefix begins the name of every variable that is a setting.
const Prefix = "OCTOPAY_"

// Settings are the settings of a program: a pointer to a struct. A field is named by its
// yaml tag; its variable is Prefix and that name in upper case. A field with an env tag
// and the yaml tag "-" is a secret: it comes from the environment alone. The help tag
// says what it is.
type Settings interface {
	// Check says all that is wrong with the values, naming each setting and its rule, and
	// never a value.
	Check() error
}

// Load fills config, which holds the defaults, from a YAML file ("" is none) and then
// from the environment, and checks it. An absent setting, or a variable without a
// value, leaves the default. A setting that config doesn't have is an error that names
// it, unless it is a variable of another program: those of one machine may share an
// environment. The value of a variable is never part of an error.
func Load(config Settings, file string, environ []string) error {
	if file != "" {
		if err := loadFile(config, file); err != nil {
			return fmt.Errorf("config: %w", err)
		}
	}
	own := map[string]field{}
	for _, f := range fieldsOf(config) {
		own[f.variable] = f
	}
	var faults []error
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, Prefix) {
			continue
		}
		f, ok := own[name]
		switch {
		case !ok && known(name):
		case !ok:
			faults = append(faults, fmt.Errorf("config: the variable %s is no setting of any program; this one has %s", name, strings.Join(slices.Sorted(maps.Keys(own)), " ")))
		case value == "":
		case f.value.Kind() == reflect.String:
			f.value.SetString(value)
		default:
			if err := yaml.Unmarshal([]byte(value), f.value.Addr().Interface()); err != nil {
				faults = append(faults, fmt.Errorf("config: the variable %s must be %s", name, kind(f.value)))
			}
		}
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	return config.Check()
}

func loadFile(config Settings, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(config); errors.Is(err, io.EOF) {
		return nil // it sets nothing
	} else if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: there is something after the first YAML document; settings are one document", file)
	}
	return nil
}

func kind(v reflect.Value) string {
	switch v.Interface().(type) {
	case time.Duration:
		return "a time with its unit, such as 11s"
	case int, int64:
		return "a whole number"
	case bool:
		return "true or false"
	case Networks:
		return "networks such as 10.0.0.0/8, with commas between"
	}
	return "a " + v.Type().String()
}

// A field is one setting.
type field struct {
	variable string
	help     string
	secret   bool // only a variable
	value    reflect.Value
}

// fieldsOf returns the settings of config by the names of their variables.
func fieldsOf(config Settings) []field {
	out := appendFields(nil, reflect.ValueOf(config).Elem())
	slices.SortFunc(out, func(a, b field) int { return strings.Compare(a.variable, b.variable) })
	return out
}

// appendFields adds the fields of a struct, and of the structs embedded in it.
func appendFields(out []field, v reflect.Value) []field {
	for i := range v.NumField() {
		if v.Type().Field(i).Anonymous {
			out = appendFields(out, v.Field(i))
			continue
		}
		tag := v.Type().Field(i).Tag
		name, secret := tag.Get("env"), true
		if name == "" {
			name, _, _ = strings.Cut(tag.Get("yaml"), ",")
			name, secret = strings.ToUpper(name), false
		}
		out = append(out, field{Prefix + name, tag.Get("help"), secret, v.Field(i)})
	}
	return out
}

// describe writes each setting of config, what it means, and the value that it has now.
func describe(w io.Writer, config Settings) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range fieldsOf(config) {
		help := f.help
		if f.secret {
			help += "; only as a variable"
		}
		if !f.value.IsZero() {
			help += fmt.Sprintf(" [%v]", f.value.Interface())
		}
		fmt.Fprintf(table, "  %s\t%s\n", f.variable, help)
	}
	_ = table.Flush()
}

// Between returns an error that names the setting when v is not in least … most.
func Between[T cmp.Ordered](setting string, v, least, most T) error {
	if v < least || v > most {
		return fmt.Errorf("config: %s must be from %v to %v", setting, least, most)
	}
	return nil
}

// Shared are the settings that every program has. One that has no use for a setting
// ignores it.
type Shared struct {
	MapFile          string `yaml:"map_file" help:"file of the shard map; in force while the meta database has no newer one"`
	DBUser           string `yaml:"db_user" help:"user on every database server"`
	DBPassword       string `yaml:"-" env:"DB_PASSWORD" help:"the user's password"`
	DBPasswordFile   string `yaml:"db_password_file" help:"file of the password, instead of the variable"`
	DBTLS            bool   `yaml:"db_tls" help:"true: database servers are reached in TLS alone, and show a certificate for the name that the map has of them, of an authority that this machine trusts"`
	DBCAFile         string `yaml:"db_ca_file" help:"file of the authorities that sign those certificates, PEM, instead; sets db_tls"`
	MasterKeyFile    string `yaml:"master_key_file" help:"file of the master key that signing secrets of API keys are encrypted with: 32 bytes in base64; while it is changed two, the new one first"`
	MasterKey        string `yaml:"-" env:"MASTER_KEY" help:"the same, instead of a file"`
	NATSURL          string `yaml:"nats_url" help:"where NATS with JetStream is; several with commas between"`
	NATSUser         string `yaml:"nats_user" help:"user at NATS"`
	NATSPassword     string `yaml:"-" env:"NATS_PASSWORD" help:"the password of nats_user"`
	NATSPasswordFile string `yaml:"nats_password_file" help:"file of that password, instead of the variable"`
	NATSToken        string `yaml:"-" env:"NATS_TOKEN" help:"token at NATS, instead of a user"`
	NATSTokenFile    string `yaml:"nats_token_file" help:"file of the token, instead of the variable"`
	NATSCredsFile    string `yaml:"nats_creds_file" help:"file of credentials at NATS, as nsc makes them, instead of a user"`
	NATSNKeyFile     string `yaml:"nats_nkey_file" help:"file of an nkey's seed at NATS, instead of a user"`
	NATSCAFile       string `yaml:"nats_ca_file" help:"file of the authorities that sign NATS's certificates, PEM; with it NATS is reached in TLS alone"`
	LogLevel         string `yaml:"log_level" help:"debug, info, warn or error; without it info"`
	Pprof            bool   `yaml:"pprof" help:"true: Go's profiles at /debug/pprof/ of the ops port, for peers of this machine"`
}

// Check implements Settings.
func (s Shared) Check() error {
	_, err := s.level()
	return errors.Join(err, s.checkNATS(), s.checkCredentials())
}

func (s Shared) checkNATS() error {
	if s.NATSURL == "" {
		return nil
	}
	for one := range strings.SplitSeq(s.NATSURL, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		if err != nil || u.Hostname() == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) {
			return errors.New("config: nats_url must be nats://host:port or tls://host:port, or several with commas between")
		}
	}
	return nil
}

// Map reads the map file.
func (s Shared) Map() (*shardmap.Map, error) {
	if s.MapFile == "" {
		return nil, fmt.Errorf("config: map_file (%sMAP_FILE) names no file", Prefix)
	}
	text, err := os.ReadFile(s.MapFile)
	if err != nil {
		return nil, fmt.Errorf("config: map_file: %w", err)
	}
	m, err := shardmap.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("config: map_file: %s: %w", s.MapFile, err)
	}
	return m, nil
}

// Logger returns a logger of JSON lines at the level of the settings.
func (s Shared) Logger(w io.Writer) (*slog.Logger, error) {
	level, err := s.level()
	if err != nil {
		return nil, err
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})), nil
}

func (s Shared) level() (level slog.Level, err error) {
	if s.LogLevel != "" && level.UnmarshalText([]byte(s.LogLevel)) != nil {
		return level, errors.New("config: log_level must be debug, info, warn or error")
	}
	return level, nil
}

// Loopback reports whether addr, host:port, is reachable from this machine alone.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
