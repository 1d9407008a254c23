// Package boot is what the programs share before and after their work: settings,
// logs, waiting for what isn't there yet, and leaving in order.
package boot

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/octopay/octopay/shardmap"
	"gopkg.in/yaml.v3"
)

// Prefix begins the name of every variable that is a setting.
const Prefix = "OCTOPAY_"

// Load fills config, a pointer to a struct, from a YAML file ("" is none) and then
// from the environment. A field is named by its yaml tag; its variable is Prefix and
// that name in upper case. A field with an env tag and the yaml tag "-" is a secret:
// it comes from the environment alone. A setting that no field has, in the file or
// with Prefix in environ, is an error that names it; the value is never part of an
// error. Absent settings leave the field as it was.
func Load(config any, file string, environ []string) error {
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("config: %w", err)
		}
		dec := yaml.NewDecoder(bytes.NewReader(text))
		dec.KnownFields(true)
		if err := dec.Decode(config); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("config: %s: %w", file, err)
		}
	}
	fields := variables(reflect.ValueOf(config).Elem())
	var faults []error
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, Prefix) {
			continue
		}
		field, ok := fields[name]
		if !ok {
			faults = append(faults, fmt.Errorf("config: the variable %s is no setting of this program; it has %s", name, strings.Join(names(fields), " ")))
			continue
		}
		if field.Kind() == reflect.String {
			field.SetString(value)
		} else if err := yaml.Unmarshal([]byte(value), field.Addr().Interface()); err != nil {
			faults = append(faults, fmt.Errorf("config: the variable %s is not a %s", name, field.Type()))
		}
	}
	return errors.Join(faults...)
}

// variables returns the fields of a struct, and of the structs embedded in it, by the
// name of their variable.
func variables(v reflect.Value) map[string]reflect.Value {
	out := map[string]reflect.Value{}
	for i := range v.NumField() {
		if v.Type().Field(i).Anonymous {
			maps.Copy(out, variables(v.Field(i)))
			continue
		}
		tag := v.Type().Field(i).Tag
		name := tag.Get("env")
		if name == "" {
			name, _, _ = strings.Cut(tag.Get("yaml"), ",")
			name = strings.ToUpper(name)
		}
		if name != "" && name != "-" {
			out[Prefix+name] = v.Field(i)
		}
	}
	return out
}

// Variables returns the names of the variables that are settings of config, a pointer
// to a struct.
func Variables(config any) []string { return names(variables(reflect.ValueOf(config).Elem())) }

func names(m map[string]reflect.Value) []string { return slices.Sorted(maps.Keys(m)) }

// Shared are the settings that every program understands, so that programs of one
// machine can share an environment. A program ignores what it has no use for.
type Shared struct {
	MapFile    string `yaml:"map_file"` // the shard map; in force while the meta database has no newer one
	DBUser     string `yaml:"db_user"`
	DBPassword string `yaml:"-" env:"DB_PASSWORD"`
	NATSURL    string `yaml:"nats_url"`
	LogLevel   string `yaml:"log_level"` // debug, info, warn, error; info
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
	return shardmap.Parse(text)
}

// Logger returns a logger of JSON lines at the level of the settings.
func (s Shared) Logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if s.LogLevel != "" {
		if err := level.UnmarshalText([]byte(s.LogLevel)); err != nil {
			return nil, errors.New("config: log_level must be debug, info, warn or error")
		}
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})), nil
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
