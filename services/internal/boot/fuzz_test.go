package boot_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/octopay/octopay/services/internal/boot"
	"gopkg.in/yaml.v3"
)

// FuzzLoad: settings that are read are within their ranges, and are read from their own
// text as the same; what is wrong says that it is a setting, and nothing of a variable's
// value.
func FuzzLoad(f *testing.F) {
	for _, s := range []struct{ text, wait string }{
		{"", ""}, {"addr: a\nwait: 5s\nmax_ops: 3\n", "7s"}, {"wait: 61s\n", ""}, {"max_ops: 10\n", ""}, {"nats_url: http://a\n", ""}, {"log_level: loud\n", ""},
		{"x: 1\n", ""}, {"addr: [1]\n", ""}, {"a: &a [*a]\n", ""}, {"addr: a\n---\naddr: b\n", ""}, {"\xff", ""}, {"addr:\n", "s3cret-value"}, {"wait: 1\n", "1"}, {"pprof: maybe\n", "-1s"}, {"addr: &a b\nnats_url: *a\n", ""},
	} {
		f.Add([]byte(s.text), s.wait)
	}
	dir, err := os.MkdirTemp("", "octopay-fuzz-")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "c.yaml")
	write := func(t *testing.T, text []byte) {
		t.Helper()
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, wait string) {
		write(t, text)
		var c config
		environ := []string{"OCTOPAY_WAIT=" + wait, "OCTOPAY_DB_PASSWORD=pass"}
		if err := boot.Load(&c, path, environ); err != nil {
			if !strings.HasPrefix(err.Error(), "config: ") {
				t.Fatalf("%v doesn't say what it is about", err)
			}
			if len(wait) > 12 && !strings.Contains(string(text), wait) && strings.Contains(err.Error(), wait) {
				t.Fatalf("%v repeats %q", err, wait)
			}
			return
		}
		if c.Wait < 0 || c.Wait > time.Minute || c.MaxOps < 0 || c.MaxOps > 9 || c.DBPassword != "pass" {
			t.Fatalf("%q: %+v", text, c)
		}
		own, err := yaml.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		write(t, own)
		var again config
		if err := boot.Load(&again, path, []string{"OCTOPAY_DB_PASSWORD=pass"}); err != nil || again != c {
			t.Fatalf("%q is %+v, and its own text %q is %+v, %v", text, c, own, again, err)
		}
	})
}
