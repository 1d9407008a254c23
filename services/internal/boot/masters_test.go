package boot_test

import (
	"encoding/base64"
	"path/filepath"
	"strings"
	"testing"

	"github.com/octopay/octopay/services/internal/boot"
)

func TestMasterKeysComeFromAFileOrAVariable(t *testing.T) {
	one := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("1", 32)))
	two := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("2", 32)))
	load := func(env ...string) (string, error) {
		c := config{}
		if err := boot.Load(&c, "", env); err != nil {
			t.Fatal(err)
		}
		m, err := c.Masters()
		return m.String(), err
	}
	none, err := load()
	if err != nil || none != "no master key" {
		t.Errorf("without a setting: %s, %v", none, err)
	}
	variable, err1 := load("OCTOPAY_MASTER_KEY=" + one + " " + two)
	inFile, err2 := load("OCTOPAY_MASTER_KEY_FILE=" + file(t, one+"\n"+two+"\n"))
	if err1 != nil || err2 != nil || variable != inFile || strings.Count(variable, "master key ") != 2 {
		t.Errorf("%s, %v; %s, %v", variable, err1, inFile, err2)
	}
	for name, c := range map[string]struct {
		env  []string
		want string
	}{
		"both":                   {[]string{"OCTOPAY_MASTER_KEY=" + one, "OCTOPAY_MASTER_KEY_FILE=x"}, "both set"},
		"a file that isn't":      {[]string{"OCTOPAY_MASTER_KEY_FILE=" + filepath.Join(t.TempDir(), "none")}, "master_key_file: "},
		"a folder":               {[]string{"OCTOPAY_MASTER_KEY_FILE=" + t.TempDir()}, "master_key_file: "},
		"nonsense":               {[]string{"OCTOPAY_MASTER_KEY=s3cret"}, "OCTOPAY_MASTER_KEY): master key 1 of 1 must be 32 bytes"},
		"nonsense in a file":     {[]string{"OCTOPAY_MASTER_KEY_FILE=" + file(t, one+" s3cret")}, "master_key_file: master key 2 of 2 must be"},
		"a file without any key": {[]string{"OCTOPAY_MASTER_KEY_FILE=" + file(t, "")}, "one master key, or two"},
	} {
		if m, err := load(c.env...); err == nil || m != "no master key" || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), one) {
			t.Errorf("%s: %s, %v", name, m, err)
		}
	}
}
