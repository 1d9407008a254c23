package auth

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var aMoment = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// aFile is a file of keys that were read at aMoment, and where it is.
func aFile(t *testing.T) (file, string) {
	t.Helper()
	f := file{Schema: "octopay_meta", ReadAt: aMoment.UnixMilli(), Keys: []row{
		{ID: "aaaaaaaaaaaa", Role: "app", Refunds: true, Hash: bytes.Repeat([]byte{7}, 32)},
		{ID: "bbbbbbbbbbbb", Role: "channel", Hash: bytes.Repeat([]byte{8}, 32), Secret: []byte("sealed"), RevokedAt: aMoment.UnixMilli()},
	}}
	path := filepath.Join(t.TempDir(), "keys")
	if err := writeFile(path, f); err != nil {
		t.Fatal(err)
	}
	return f, path
}

func TestAFileIsReadAsItWasWritten(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		want := file{Schema: rapid.String().Draw(t, "schema"), ReadAt: aMoment.UnixMilli()}
		for range rapid.IntRange(0, 5).Draw(t, "keys") {
			sealed := rapid.SliceOfN(rapid.Byte(), 1, 70)
			r := row{
				ID: rapid.StringMatching("[a-z2-7]{12}").Draw(t, "id"), Role: rapid.SampledFrom(roleNames[:]).Draw(t, "role"),
				BID: rapid.Int64().Draw(t, "bid"), Refunds: rapid.Bool().Draw(t, "refunds"), Hash: rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "hash"),
				RevokedAt: rapid.Int64().Draw(t, "revoked"),
			}
			if rapid.Bool().Draw(t, "signs") {
				r.Secret, r.Before, r.BeforeUntil = sealed.Draw(t, "secret"), sealed.Draw(t, "before"), rapid.Int64().Draw(t, "until")
			}
			want.Keys = append(want.Keys, r)
		}
		path := filepath.Join(dir, "keys")
		if err := writeFile(path, want); err != nil {
			t.Fatal(err)
		}
		// JSON has no invalid UTF-8; a schema's name has none either.
		want.Schema = strings.ToValidUTF8(want.Schema, "\ufffd")
		got, err := readFile(path, want.Schema, aMoment)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Fatal(err, diff)
		}
	})
}

// Any byte that is another one, and any cut, is damage.
func TestADamagedFileIsRefused(t *testing.T) {
	_, path := aFile(t)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decode(good); err != nil {
		t.Fatal(err)
	}
	for at := range good {
		for bit := range 8 {
			bad := bytes.Clone(good)
			bad[at] ^= 1 << bit
			if _, err := decode(bad); err == nil {
				t.Errorf("bit %d of byte %d (%q) is another, and nobody notices", bit, at, good[at])
			}
		}
		if _, err := decode(good[:at]); err == nil {
			t.Errorf("cut to %d bytes it is taken", at)
		}
	}
	if _, err := decode(append(bytes.Clone(good), '\n')); err == nil {
		t.Error("with a byte more it is taken")
	}
	if err := os.WriteFile(path, good[:len(good)-1], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readFile(path, "octopay_meta", aMoment); err == nil || !strings.Contains(err.Error(), "damaged") || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v", err)
	}
}

func TestAFileIsGoodForAnHourToItsOwnerAlone(t *testing.T) {
	for name, c := range map[string]struct {
		age    time.Duration
		schema string
		mode   os.FileMode
		folder os.FileMode
		want   string // part of the refusal; "": it is taken
	}{
		"new":                            {},
		"just in time":                   {age: time.Hour - 1},
		"an hour old":                    {age: time.Hour, want: "is 1h0m0s old, and keys are good for 1h0m0s"},
		"a day old":                      {age: 24 * time.Hour, want: "is 24h0m0s old"},
		"by a clock ahead":               {age: -time.Minute},
		"by a clock far ahead":           {age: -time.Minute - time.Second, want: "1m1s in the future by this machine's clock"},
		"of another meta database":       {schema: "other_meta", want: "is of the meta database"},
		"its group may read it":          {mode: 0o640, want: "has mode 0640"},
		"others may read it":             {mode: 0o604, want: "has mode 0604"},
		"its group may write it":         {mode: 0o620, want: "has mode 0620"},
		"its owner may only read it":     {mode: 0o400},
		"others may read the folder":     {folder: 0o755},
		"its group may write the folder": {folder: 0o770, want: "the folder of"},
		"others may write the folder":    {folder: 0o1777, want: "the folder of"},
	} {
		t.Run(name, func(t *testing.T) {
			want, path := aFile(t)
			schema := want.Schema
			if c.schema != "" {
				schema = c.schema
			}
			if c.mode != 0 {
				if err := os.Chmod(path, c.mode); err != nil {
					t.Fatal(err)
				}
			}
			if c.folder != 0 {
				if err := os.Chmod(filepath.Dir(path), c.folder); err != nil {
					t.Fatal(err)
				}
			}
			got, err := readFile(path, schema, aMoment.Add(c.age))
			switch {
			case c.want == "" && (err != nil || !cmp.Equal(got, want)):
				t.Errorf("%+v, %v", got, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestWhatIsNoFileOfKeysIsRefused(t *testing.T) {
	dir := t.TempDir()
	for name, put := range map[string]func(path string) error{
		"a folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"empty":    func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"huge":     func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"too many": func(path string) error {
			return writeFile(path, file{Schema: "octopay_meta", ReadAt: aMoment.UnixMilli(), Keys: make([]row, KeysMax+1)})
		},
		"nobody wrote it": func(string) error { return nil },
	} {
		path := filepath.Join(dir, name)
		err := put(path)
		if name == "huge" && err == nil {
			err = os.Truncate(path, fileMax+1) // with nothing in it
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := readFile(path, "octopay_meta", aMoment); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
}

// A file is written for its owner alone, replaces the one before, and cleans up after a
// process that was killed while it wrote.
func TestAFileReplacesTheOneBefore(t *testing.T) {
	f, path := aFile(t)
	if err := os.WriteFile(path+".new", []byte("half of"), 0o666); err != nil {
		t.Fatal(err)
	}
	f.Keys = f.Keys[:1]
	if err := writeFile(path, f); err != nil {
		t.Fatal(err)
	}
	if got, err := readFile(path, f.Schema, aMoment); err != nil || !cmp.Equal(got, f) {
		t.Errorf("%+v, %v", got, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	if err := os.Chmod(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(path, f); err == nil {
		t.Error("it is written where others may replace it")
	}
}
