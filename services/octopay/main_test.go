package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/payconfig"
	"github.com/rogpeppe/go-internal/testscript"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"octopay": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script", RequireExplicitExec: true, RequireUniqueNames: true})
}

// octopay runs the command in this process.
func octopay(t *testing.T, environ []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(t.Context(), args, environ, &out, &err)
	return code, out.String(), err.String()
}

// A call that is wrong, and a setting that is, have one code, which says that nothing was
// done; so has no other failure.
func TestWhatIsWrongBeforeAnythingIsDoneHasItsCode(t *testing.T) {
	dir := t.TempDir()
	noMap := filepath.Join(dir, "map.yaml")
	if err := os.WriteFile(noMap, []byte("epoch: what\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	valid := filepath.Join(dir, "config.json")
	if err := os.WriteFile(valid, payconfig.Default().Document(), 0o600); err != nil {
		t.Fatal(err)
	}
	const id = "15770061062355869671431"
	var calls [][]string
	for _, args := range []string{
		"route 9527", "route --bid 1001", "id " + id, "id --live " + id, "check", "check orders", "check orders --mirror", "migrate", "tail",
		"mirror dead-letters list", "mirror dead-letters retry --all", "mirror dead-letters drop 1:2:3",
		"keys list", "keys audit", "keys create --by me --role app", "keys rotate --by me aaaaaaaaaaaa", "keys revoke --by me aaaaaaaaaaaa", "keys reseal --by me",
		"config get", "config set " + valid,
	} {
		calls = append(calls, append([]string{"--map", noMap}, strings.Fields(args)...), append([]string{"--map", filepath.Join(dir, "none")}, strings.Fields(args)...))
		if !strings.HasPrefix(args, "route") && args != "id "+id {
			calls = append(calls, strings.Fields(args)) // without a map
		}
	}
	for _, args := range []string{
		"", "launch", "--nosuch", "id", "route 0", "route -5", "route -- -5", "route abc", "route 9223372036854775808", "route --bid 01", "route 1 2",
		"check all", "check orders 1", "check orders --from x", "check orders --from 123", "check orders --to 2026-11-30", "check orders --from 2026-11-30T00:00:00Z --to 2026-11-30T00:00:00Z",
		"check orders --from 2026-11-30T00:00:00Z --since 1h", "check orders --since=-1h", "check orders --uid=-1", "check orders --uid 1 --mirror", "check orders --rate=-1", "check orders --findings 0",
		"tail --limit=-1", "tail --order 1", "mirror dead-letters list --limit 0",
		"config", "config check", "config check " + noMap, "config check " + dir, "config check " + filepath.Join(dir, "none"), "config set", "config set " + noMap, "config set --if-version x " + valid, "config get --version x",
	} {
		calls = append(calls, strings.Fields(args))
	}
	for _, args := range calls {
		if code, stdout, stderr := octopay(t, nil, args...); code != 2 || stdout != "" || strings.Count(stderr, "octopay: ") != 1 || !strings.HasPrefix(stderr, "octopay: ") {
			t.Errorf("%q: exit %d\n%s%s", args, code, stdout, stderr)
		}
	}
	for _, environ := range []string{"OCTOPAY_MAP_FILE=" + noMap, "OCTOPAY_MAPFILE=x", "OCTOPAY_NATS_URL=foo"} {
		if code, stdout, stderr := octopay(t, []string{environ}, "route", "9527"); code != 2 || stdout != "" || stderr == "" {
			t.Errorf("%s: exit %d\n%s%s", environ, code, stdout, stderr)
		}
	}
	if code, _, _ := octopay(t, nil, "id", "123"); code != 1 {
		t.Errorf("what is asked about is wrong: exit %d", code)
	}
}

// What is wrong with an id, and what Parse refuses, are the same ids.
func TestEveryFaultOfAnIDIsSaid(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	check := func(t rapid.TB, s string) {
		id, err := idgen.Parse(s)
		wrong := err != nil || id.Time().After(now.Add(time.Minute))
		if faults := faultsOf(s, now); wrong != (len(faults) > 0) {
			t.Fatalf("%q: Parse says %v, the faults are %q", s, err, faults)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		check(t, rapid.StringMatching(`[012][0-9]{22}`).Draw(t, "digits"))
		check(t, rapid.StringMatching(`1[0-6][0-9]0[0-9]{18}`).Draw(t, "likely"))
		check(t, rapid.String().Draw(t, "text"))
		s := idgen.Make(rapid.Int64Range(1, math.MaxInt64).Draw(t, "uid"), rapid.Int64Range(0, math.MaxInt64).Draw(t, "snowflake")).String()
		check(t, s)
		at := rapid.IntRange(0, len(s)).Draw(t, "at")
		check(t, s[:at]+rapid.SampledFrom([]string{" ", "x", "0", "é", "\xff", ""}).Draw(t, "more")+s[at:])
	})
}

func TestTheFutureBeginsAMinuteFromNow(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for ahead, want := range map[time.Duration]bool{0: true, time.Minute: true, time.Minute + time.Millisecond: false} {
		s := idgen.Make(9527, idgen.FirstAt(now.Add(ahead))).String()
		if faults := faultsOf(s, now); (len(faults) == 0) != want {
			t.Errorf("%s ahead: %q", ahead, faults)
		}
	}
}

func TestAPersonSeesABarAndAFileLines(t *testing.T) {
	places := mapOf(t, "a_").Databases("uid")
	for _, watched := range []bool{true, false} {
		var out, err bytes.Buffer
		p := newProgress(console{out: &out, err: &err}, len(places), watched)
		for i, place := range places {
			if i == 5 {
				p.done(place, os.ErrClosed)
			} else {
				p.done(place, nil)
			}
		}
		p.end()
		bar := strings.Contains(err.String(), "migrating") && strings.Contains(err.String(), "(7/8)")
		lines := strings.Count(out.String(), "is up to date\n") == 7 && strings.Contains(out.String(), "a_octopay_uid_06@uid-a failed\n")
		if bar != watched || lines == watched {
			t.Errorf("watched %v: %q and %q", watched, err.String(), out.String())
		}
	}
	if watched(&bytes.Buffer{}) {
		t.Error("a buffer is taken for a terminal")
	}
	if f, err := os.Create(t.TempDir() + "/f"); err != nil || watched(f) {
		t.Errorf("a file is taken for a terminal, %v", err)
	}
}
