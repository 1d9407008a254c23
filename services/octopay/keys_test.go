package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/octopay/octopay/auth"
	"github.com/octopay/octopay/internal/command"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/localstack"
)

// A locksmith is an operator with a meta database and a master key.
type locksmith struct {
	stack *localstack.Stack
	env   []string
}

func newLocksmith(t *testing.T) *locksmith {
	stack := localstack.Test(t, localstack.Meta)
	path := filepath.Join(t.TempDir(), "map.yaml")
	if err := os.WriteFile(path, stack.Map.Text(), 0o600); err != nil {
		t.Fatal(err)
	}
	return &locksmith{stack, []string{"OCTOPAY_MAP_FILE=" + path, "OCTOPAY_DB_USER=" + stack.User, "OCTOPAY_DB_PASSWORD=" + stack.Password, "OCTOPAY_MASTER_KEY=" + master("1")}}
}

func master(s string) string { return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(s, 32))) }

// does runs octopay keys, which must work, and returns what it says.
func (l *locksmith) does(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := octopay(t, l.env, append([]string{"keys"}, args...)...)
	if code != 0 || stderr != "" {
		t.Fatalf("%q: exit %d\n%s%s", args, code, stdout, stderr)
	}
	return stdout
}

// makes runs octopay keys with --json, and returns what it made.
func (l *locksmith) makes(t *testing.T, args ...string) (out keyJSON) {
	t.Helper()
	text := l.does(t, append(args, "--json", "--by", "tester")...)
	if err := json.Unmarshal([]byte(text), &out); err != nil || strings.Count(text, "\n") != 1 {
		t.Fatal(text, err)
	}
	return out
}

// reads waits until a key is what it must be to a program that starts now.
func (l *locksmith) reads(t *testing.T, key string, want error) (got auth.Key) {
	t.Helper()
	masters, err := auth.ParseMasters(master("1"))
	if err != nil {
		t.Fatal(err)
	}
	k := auth.New(auth.Config{Store: auth.NewStore(l.stack.Cluster(t).Meta(), masters), Masters: masters})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	eventually.True(t, "the keys are read", func() bool { return k.Usable() == nil })
	if got, err = k.Verify(key); !errors.Is(err, want) {
		t.Errorf("a key is %v, %v; want %v", got, err, want)
	}
	return got
}

var anyKey = regexp.MustCompile(`opk_[a-z]+_[a-z2-7]+_[a-z2-7]{52}|whsec_[A-Za-z0-9+/=]{40,}`)

func TestKeysAreMadeAndShownOnce(t *testing.T) {
	l := newLocksmith(t)
	var shown []string
	for _, c := range []struct {
		args string
		want auth.Key
	}{
		{"--role app --note shop", auth.Key{Role: auth.App}},
		{"--role app --refunds", auth.Key{Role: auth.App, Refunds: true}},
		{"--role merchant --bid 9223372036854775807", auth.Key{Role: auth.Merchant, BID: 1<<63 - 1, Refunds: true}},
		{"--role channel", auth.Key{Role: auth.Channel, Signed: true}},
		{"--role ops", auth.Key{Role: auth.Ops}},
	} {
		text := l.does(t, append([]string{"create", "--by", "tester"}, strings.Fields(c.args)...)...)
		keys := anyKey.FindAllString(text, -1)
		want := 1
		if c.want.Signed {
			want = 2
		}
		if len(keys) != want || !strings.Contains(text, "is made. It works within 5 seconds.\nThis is shown once") {
			t.Fatalf("%s:\n%s", c.args, text)
		}
		got := l.reads(t, keys[0], nil)
		if got.Role != c.want.Role || got.BID != c.want.BID || got.Refunds != c.want.Refunds || got.Signed != c.want.Signed || !strings.Contains(text, "Key "+got.ID+" of role "+got.Role.String()) {
			t.Errorf("%s: %#v\n%s", c.args, got, text)
		}
		shown = append(shown, keys...)
	}
	made := l.makes(t, "create", "--role", "merchant", "--bid", "1001", "--note", "from JSON")
	if made.Role != "merchant" || made.BID != "1001" || !made.Refunds || made.State != "living" || made.CreatedBy != "tester" || made.SigningSecret != "" || made.Note != "from JSON" {
		t.Errorf("%+v", made)
	}
	l.reads(t, made.Key, nil)
	shown = append(shown, made.Key)

	// Nothing that is said later holds any of it.
	said := l.does(t, "list") + l.does(t, "list", "--json") + l.does(t, "list", "--all") + l.does(t, "audit") + l.does(t, "audit", "--json") + l.does(t, "audit", made.Key) +
		l.does(t, "reseal", "--by", "tester")
	for _, key := range shown {
		if strings.Contains(said, key) || strings.Contains(said, key[len(key)-40:]) {
			t.Errorf("%s is said again", key)
		}
	}
	if strings.Count(said, made.ID) < 6 || !strings.Contains(said, "from JSON") || !strings.Contains(said, "Keys: 6. Shown: 6.") {
		t.Errorf("said is\n%s", said)
	}
	if text := l.does(t, "list", "--limit", "2"); !strings.Contains(text, "Keys: 6. Shown: 2.") {
		t.Error(text)
	}
}

func TestKeysAreRotatedAndRevoked(t *testing.T) {
	l := newLocksmith(t)
	old := l.makes(t, "create", "--role", "channel", "--note", "wechat")
	next := l.makes(t, "rotate", old.Key)
	if next.Replaces != old.ID || next.Note != "wechat" || next.Role != "channel" || next.SigningSecret == "" || next.SigningSecret == old.SigningSecret ||
		next.ReplacedEndsAt == nil || next.ReplacedEndsAt.Sub(next.CreatedAt) != 24*time.Hour {
		t.Errorf("%+v", next)
	}
	secret := l.makes(t, "rotate", "--signing-secret", "--overlap", "1h", next.ID)
	if secret.ID != next.ID || secret.Key != "" || secret.SigningSecret == next.SigningSecret || secret.Replaces != "" || secret.ReplacedEndsAt == nil {
		t.Errorf("%+v", secret)
	}
	l.reads(t, old.Key, nil)
	l.reads(t, next.Key, nil)

	list := l.does(t, "list")
	if lines := strings.Split(list, "\n"); !slices.ContainsFunc(lines, func(s string) bool { return strings.HasPrefix(s, old.ID) && strings.Contains(s, "ending 20") }) ||
		!slices.ContainsFunc(lines, func(s string) bool { return strings.HasPrefix(s, next.ID) && strings.Contains(s, "living") }) {
		t.Errorf("listed are\n%s", list)
	}

	text := l.does(t, "revoke", "--by", "tester", old.ID, next.Key)
	if !strings.Contains(text, "Key "+old.ID+" is revoked.") || !strings.Contains(text, "Key "+next.ID+" is revoked.") || anyKey.MatchString(text) {
		t.Error(text)
	}
	if text := l.does(t, "revoke", "--by", "tester", old.ID); !strings.Contains(text, "was revoked before") {
		t.Error(text)
	}
	l.reads(t, old.Key, auth.ErrUnauthenticated)
	l.reads(t, next.Key, auth.ErrUnauthenticated)
	if list, all := l.does(t, "list"), l.does(t, "list", "--all"); !strings.Contains(list, "Keys: 0.") || !strings.Contains(all, "Keys: 2.") || strings.Count(all, "revoked 20") != 2 {
		t.Errorf("%s\n%s", list, all)
	}
	audit := l.does(t, "audit")
	var whats []string
	for _, line := range strings.Split(strings.TrimSpace(audit), "\n")[1:] {
		fields := strings.Fields(line) // date, time, UTC, key, what, by
		if fields[5] != "tester" {
			t.Errorf("by whom: %s", line)
		}
		whats = append(whats, fields[4])
	}
	slices.Sort(whats)
	if got := fmt.Sprint(whats); got != "[created created revoked revoked rotated secret_rotated]" {
		t.Errorf("%s\n%s", got, audit)
	}

	// One that isn't there fails, and the others are done.
	third := l.makes(t, "create", "--role", "ops")
	code, stdout, stderr := octopay(t, l.env, "keys", "revoke", "--by", "tester", "aaaaaaaaaaaa", third.ID)
	if code != 1 || !strings.Contains(stdout, third.ID+" is revoked") || !strings.Contains(stderr, "there is no key of this id") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	for _, c := range []struct{ args, want string }{
		{"rotate " + third.ID, "is revoked or has a successor"},
		{"rotate aaaaaaaaaaaa", "there is no key of this id"},
		{"rotate --signing-secret " + l.makes(t, "create", "--role", "app").ID, "only a channel's key has a signing secret"},
	} {
		if code, stdout, stderr := octopay(t, l.env, append([]string{"keys"}, strings.Fields(c.args+" --by tester")...)...); code != 1 || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: exit %d\n%s%s", c.args, code, stdout, stderr)
		}
	}
}

// What is wrong with a call is said with its flag and its rule, and nothing is done.
func TestWrongCallsOfKeys(t *testing.T) {
	l := newLocksmith(t)
	whole := "opk_app_aaaaaaaaaaaa_" + strings.Repeat("a", 52)
	without := slices.DeleteFunc(slices.Clone(l.env), func(s string) bool { return strings.HasPrefix(s, "OCTOPAY_MASTER_KEY") })
	for _, c := range []struct {
		args []string
		env  []string
		want string
	}{
		{args: []string{"create"}, want: "--role"},
		{args: []string{"create", "--role", "root"}, want: "--role: a role is app, merchant, channel or ops"},
		{args: []string{"create", "--role", "merchant"}, want: "--bid must be given for a merchant's key"},
		{args: []string{"create", "--role", "merchant", "--bid", "0"}, want: "--bid must be a whole number from 1"},
		{args: []string{"create", "--role", "merchant", "--bid", "01"}, want: "--bid must be a whole number from 1"},
		{args: []string{"create", "--role", "merchant", "--bid", "9223372036854775808"}, want: "--bid must be a whole number from 1"},
		{args: []string{"create", "--role", "app", "--bid", "1"}, want: "--bid is for a merchant's key alone"},
		{args: []string{"create", "--role", "ops", "--refunds"}, want: "--refunds is for an app's key alone"},
		{args: []string{"create", "--role", "app", "--note", "a\nb"}, want: "--note: a note is at most 200 characters, without control"},
		{args: []string{"create", "--role", "app", "--note", strings.Repeat("x", 201)}, want: "--note: a note is at most 200"},
		{args: []string{"create", "--role", "app", "--by", "a b"}, want: "--by: who does it is 1 to 128 visible characters"},
		{args: []string{"create", "--role", "channel"}, env: without, want: "master_key_file (OCTOPAY_MASTER_KEY_FILE)"},
		{args: []string{"create", "--role", "app"}, env: append(without, "OCTOPAY_MASTER_KEY=s3cret"), want: "master key 1 of 1 must be 32 bytes in base64"},
		{args: []string{"rotate"}, want: `expected "<key>"`},
		{args: []string{"rotate", whole[1:]}, want: "key 1 of 1: an id of a key is 12 characters"},
		{args: []string{"rotate", "aaaaaaaaaaaa", "--overlap", "721h"}, want: "--overlap must be from 0s to 720h"},
		{args: []string{"rotate", "aaaaaaaaaaaa", "--overlap=-1s"}, want: "--overlap must be from 0s to 720h"},
		{args: []string{"revoke"}, want: `expected "<key> ..."`},
		{args: []string{"revoke", "aaaaaaaaaaaa", whole + "a"}, want: "key 2 of 2: an id of a key"},
		{args: []string{"list", whole}, want: "unexpected argument opk_…"},
		{args: []string{whole}, want: "unexpected argument opk_…"},
		{args: []string{"rotate", "--overlap", whole, "aaaaaaaaaaaa"}, want: "opk_…"},
		{args: []string{"create", "--role=app", "--bid", whole}, want: "--bid must be a whole number"},
		{args: []string{"audit", "dev-app"}, want: "key 1 of 1: an id of a key"},
		{args: []string{"audit", "--limit", "0"}, want: "--limit must be from 1 to 100000"},
		{args: []string{"list", "--limit", "100001"}, want: "--limit must be from 1 to 100000"},
	} {
		env := c.env
		if env == nil {
			env = l.env
		}
		args := append([]string{"keys"}, c.args...)
		if !slices.Contains(args, "--by") && slices.Contains([]string{"create", "rotate", "revoke"}, args[1]) {
			args = append(args, "--by", "tester")
		}
		code, stdout, stderr := octopay(t, env, args...)
		if code != 2 || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: exit %d, want %q\n%s%s", c.args, code, c.want, stdout, stderr)
		}
		for _, no := range []string{whole[4:], "s3cret", l.stack.Password} {
			if strings.Contains(stderr, no) {
				t.Errorf("%q: it says %q: %s", c.args, no, stderr)
			}
		}
	}
	if text := l.does(t, "audit"); strings.Count(text, "\n") != 1 {
		t.Errorf("something was done:\n%s", text)
	}
}

// Without --by it is this machine's user, if that has a name.
func TestWhoChangesKeys(t *testing.T) {
	if by, err := (changer{By: "someone@somewhere"}).name(); by != "someone@somewhere" || err != nil {
		t.Error(by, err)
	}
	switch by, err := (changer{}).name(); {
	case err == nil && auth.CheckWho(by) != nil, err != nil && command.Code(err) != command.Wrong:
		t.Error(by, err)
	}
}

// A key that could not be shown is nobody's, and that is said.
func TestAKeyThatCannotBeShownIsNamed(t *testing.T) {
	l := newLocksmith(t)
	var stderr strings.Builder
	code := run(t.Context(), []string{"keys", "create", "--role", "ops", "--by", "tester"}, l.env, brokenPipe{}, &stderr)
	var made keyJSON
	if err := json.Unmarshal([]byte(l.does(t, "list", "--json")), &made); err != nil {
		t.Fatal(err)
	}
	if code != 1 || !strings.Contains(stderr.String(), "key "+made.ID) || !strings.Contains(stderr.String(), "revoke it") || anyKey.MatchString(stderr.String()) {
		t.Errorf("exit %d, made %s\n%s", code, made.ID, stderr.String())
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
