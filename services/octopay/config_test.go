package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/octopay/octopay/internal/localstack"
	"github.com/octopay/octopay/payconfig"
)

// A desk is a meta database with an operator before it, and his files.
type desk struct {
	stack *localstack.Stack
	env   []string
	dir   string
}

func newDesk(t *testing.T) *desk {
	s := localstack.Test(t, localstack.Meta)
	d := &desk{stack: s, dir: t.TempDir()}
	d.env = []string{"OCTOPAY_MAP_FILE=" + d.file(t, "map.yaml", string(s.Map.Text())), "OCTOPAY_DB_USER=" + s.User, "OCTOPAY_DB_PASSWORD=" + s.Password}
	return d
}

func (d *desk) file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(d.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// config runs octopay config.
func (d *desk) config(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return octopay(t, d.env, append([]string{"config"}, args...)...)
}

// works runs octopay config, which must work.
func (d *desk) works(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := d.config(t, args...)
	if code != 0 || stderr != "" {
		t.Fatalf("config %q: exit %d\n%s%s", args, code, stdout, stderr)
	}
	return stdout
}

const (
	shops = `{"unknown_merchants":"refuse","merchants":[
{"bid":"1001","name":"Shop","enabled":true,"currencies":["CNY"],"timezone":"UTC"},
{"bid":"1002","name":"Other","enabled":true,"currencies":["CNY","USD"],"rate":50,"timezone":"UTC"}
],"channels":[
{"channel":"wechat","name":"WeChat Pay","enabled":true}
]}`
	fewer = `{"unknown_merchants":"refuse","merchants":[
{"bid":"1001","name":"Shop","enabled":false,"currencies":["CNY"],"timezone":"UTC"},
{"bid":"1003","name":"Third","enabled":true,"currencies":["EUR"],"timezone":"Europe/Berlin"}
],"channels":[
{"channel":"wechat","name":"WeChat","enabled":true}
]}`
)

func hashOf(t *testing.T, text string) string {
	t.Helper()
	c, err := payconfig.Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c.Hash()
}

func TestAConfigIsGotEditedAndSet(t *testing.T) {
	d := newDesk(t)
	if got, want := d.works(t, "get"), fmt.Sprintf("{\"version\":0,\"hash\":%q,\"unknown_merchants\":\"accept\",\"merchants\":[],\"channels\":[]}\n", payconfig.Default().Hash()); got != want {
		t.Fatalf("before there is one: %s", got)
	}
	file := d.file(t, "shops.json", shops)
	says := d.works(t, "set", "--dry-run", file)
	const changes = `Version 0 becomes 1:
  unknown merchants: refuse, and until now accept
  2 merchants added:
    1001 "Shop"
    1002 "Other"
  1 channel added:
    wechat "WeChat Pay"
`
	if says != changes+"Nothing was set.\n" || !strings.HasPrefix(d.works(t, "get"), `{"version":0,`) {
		t.Fatal(says)
	}
	if says = d.works(t, "set", file, "--by", "juergen"); !strings.HasPrefix(says, changes+"Version 1 is set; its hash is "+hashOf(t, shops)+".") {
		t.Fatal(says)
	}
	got := d.works(t, "get")
	if want := fmt.Sprintf("{\"version\":1,\"hash\":%q,", hashOf(t, shops)) + shops[1:] + "\n"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}

	// Said again, it was set; as it was got, it changes nothing.
	if says = d.works(t, "set", file, "--if-version", "0"); !strings.HasPrefix(says, "It is set already, as version 1, by juergen at ") {
		t.Error(says)
	}
	if says = d.works(t, "set", d.file(t, "got.json", got)); says != "It says what version 1 says; nothing was set.\n" {
		t.Error(says)
	}

	// The version that the file says is the one that it follows.
	edited := d.file(t, "edited.json", `{"version":1,`+fewer[1:])
	says = d.works(t, "set", edited)
	for _, want := range []string{"Version 1 becomes 2:\n  1 merchant added:\n    1003 \"Third\"\n  1 merchant removed:\n    1002 \"Other\"\n  1 merchant disabled:\n    1001 \"Shop\"\n  1 channel changed otherwise:\n    wechat \"WeChat\"\n", "Version 2 is set"} {
		if !strings.Contains(says, want) {
			t.Errorf("%s\nlacks %s", says, want)
		}
	}
	me, err := changer{}.name()
	if err != nil {
		t.Fatal(err)
	}
	var by string
	if err := d.stack.Admin(t, d.stack.Map.Meta().Server.Name).QueryRow("SELECT set_by FROM `" + d.stack.Map.Meta().Schema + "`.payment_config WHERE version = 2").Scan(&by); err != nil || by != me {
		t.Errorf("set by %q, %v", by, err)
	}

	// An old one is got and set again.
	old := d.file(t, "old.json", d.works(t, "get", "--version", "1"))
	if code, stdout, stderr := d.config(t, "set", old); code != 1 || stdout != "" || !strings.Contains(stderr, "octopay: version 2 is the newest, set by "+me) || !strings.Contains(stderr, "and not 1; nothing was set") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	d.works(t, "set", old, "--if-version", "2")
	if got := d.works(t, "get"); !strings.HasPrefix(got, fmt.Sprintf("{\"version\":3,\"hash\":%q,", hashOf(t, shops))) {
		t.Error(got)
	}
	for _, bad := range []struct {
		args string
		code int
		want string
	}{
		{"get --version 4", 1, "there is no version 4"},
		{"set --if-version 7 " + file, 1, "version 3 is the newest"},
		{"set --if-version 3 --by a\u2028b " + edited, 2, "--by: who does it is"},
	} {
		args := strings.Split(bad.args, " ")
		if code, stdout, stderr := d.config(t, args...); code != bad.code || !strings.Contains(stderr, bad.want) || strings.Contains(stdout, "is set") {
			t.Errorf("%q: exit %d\n%s%s", args, code, stdout, stderr)
		}
	}
}

func TestAFileThatIsNoConfigIsNamedByPathAndRule(t *testing.T) {
	d := newDesk(t)
	many := strings.Repeat(`{},`, 200) + `{}`
	for _, tc := range []struct{ name, text, want string }{
		{"two faults", `{"unknown_merchants":"no","merchants":[{"bid":0,"name":"Max Mustermann","enabled":true,"currencies":["cny"]}],"channels":[]}`,
			" is no valid payment config:\n  unknown_merchants must be refuse or accept (unsupported)\n  merchants[0].bid must be 1 to 9223372036854775807 (out_of_range)\n  merchants[0].currencies[0] must be three capital letters (bad_format)\n"},
		{"many", `{"unknown_merchants":"refuse","merchants":[` + many + `],"channels":[]}`, "\n  and 704 more\n"},
		{"no JSON", "{\n\n\"unknown_merchants\": refuse}", " is no payment config: line 3: it is not valid JSON\n"},
		{"a name twice", "{\"channels\":[],\n\"channels\":[]}", " is no payment config: line 2: channels is there more than once\n"},
		{"nothing", "", " is no payment config: line 1: it ends too early\n"},
		{"too much", strings.Repeat(" ", payconfig.TextMax+1), " is no payment config: it is larger than 8 MiB\n"},
	} {
		file := d.file(t, "bad.json", tc.text)
		for _, args := range [][]string{{"check", file}, {"set", file}} {
			if code, stdout, stderr := d.config(t, args...); code != 2 || stdout != "" || !strings.HasPrefix(stderr, "octopay: "+file) || !strings.Contains(stderr, tc.want) || strings.Contains(stderr, "Mustermann") {
				t.Errorf("%s, %s: exit %d\n%s%s", tc.name, args[0], code, stdout, stderr)
			}
		}
	}
	// A good one needs no server, and no map.
	file := d.file(t, "shops.json", shops)
	code, stdout, stderr := octopay(t, nil, "config", "check", file)
	if want := file + " is valid: 2 merchants, 1 channel; unknown merchants: refuse. Its hash is " + hashOf(t, shops) + ".\n"; code != 0 || stdout != want || stderr != "" {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
}

// What is damaged is said, and can be replaced by whoever knows its version.
func TestADamagedConfigIsReplaced(t *testing.T) {
	d := newDesk(t)
	file := d.file(t, "shops.json", shops)
	d.works(t, "set", file)
	if _, err := d.stack.Admin(t, d.stack.Map.Meta().Server.Name).Exec("UPDATE `" + d.stack.Map.Meta().Schema + "`.payment_config SET text = 'x'"); err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := d.config(t, "get"); code != 1 || stdout != "" || !strings.Contains(stderr, "stored version 1 is not usable") {
		t.Errorf("get: exit %d\n%s%s", code, stdout, stderr)
	}
	if code, stdout, stderr := d.config(t, "set", file, "--if-version", "5"); code != 1 || !strings.Contains(stderr, "version 1 is the newest") {
		t.Errorf("set: exit %d\n%s%s", code, stdout, stderr)
	}
	if says := d.works(t, "set", file, "--if-version", "1"); !strings.Contains(says, "Version 1 can't be read") || !strings.Contains(says, "Version 2 is set") {
		t.Error(says)
	}
	d.works(t, "get")
}

func TestALongListOfChangesIsCut(t *testing.T) {
	d := newDesk(t)
	var all []string
	for i := range 30 {
		all = append(all, fmt.Sprintf(`{"bid":%d,"name":"Shop","enabled":true,"currencies":["CNY"]}`, i+1))
	}
	says := d.works(t, "set", "--dry-run", d.file(t, "many.json", `{"unknown_merchants":"accept","merchants":[`+strings.Join(all, ",")+`],"channels":[]}`))
	if !strings.Contains(says, "  30 merchants added:\n    1 \"Shop\"\n") || !strings.Contains(says, "    20 \"Shop\"\n    and 10 more\nNothing was set.\n") {
		t.Error(says)
	}
	// The first that is stored may say what was so before.
	says = d.works(t, "set", d.file(t, "default.json", string(payconfig.Default().Document())))
	if !strings.Contains(says, "nothing changes; it is the first that is stored") || !strings.Contains(says, "Version 1 is set") {
		t.Error(says)
	}
}
