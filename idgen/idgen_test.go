package idgen_test

import (
	"errors"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/slot"
	"pgregory.net/rapid"
)

// maxSnowflake is the largest that 63 bits hold.
const maxSnowflake = math.MaxInt64

func TestTheIDOfUID9527(t *testing.T) {
	at := time.Date(2026, 11, 30, 9, 30, 0, 123e6, time.UTC)
	snowflake := idgen.FirstAt(at) | 5<<idgen.SeqBits | 6
	id := idgen.Make(9527, snowflake)
	s := id.String()
	if len(s) != idgen.Digits || s[:4] != "1577" {
		t.Errorf("id %s, want 23 digits that begin with 1577", s)
	}
	if id.Info() != 57 || id.Table() != 7 || id.Worker() != 5 || id.Seq() != 6 || !id.Time().Equal(at) || id.Snowflake() != snowflake {
		t.Errorf("parts %d %d %d %d %s", id.Info(), id.Table(), id.Worker(), id.Seq(), id.Time())
	}
	if got := slot.DatabaseOfInfo(id.Info(), 8); got != 1 {
		t.Errorf("database %d of 8, want 1", got)
	}
	if !id.Of(9527) || id.Of(9528) || id.Of(0) || id.Of(-9527) {
		t.Error("the id belongs to another buyer")
	}
}

func TestTheLayoutEndsInTheYear2094(t *testing.T) {
	if got := idgen.End.Format(time.DateOnly); got != "2094-09-07" {
		t.Errorf("the layout ends on %s", got)
	}
	last := idgen.SnowflakeTime(maxSnowflake)
	if want := idgen.End.Add(-time.Millisecond); !last.Equal(want) {
		t.Errorf("the largest snowflake is of %s, want %s", last, want)
	}
}

func TestFirstAt(t *testing.T) {
	for _, c := range []struct {
		t    time.Time
		want int64
	}{
		{time.Time{}, 0},
		{idgen.Epoch, 0},
		{idgen.Epoch.Add(999 * time.Microsecond), 0},
		{idgen.Epoch.Add(time.Millisecond), 1 << 22},
		{idgen.End.Add(-time.Millisecond), (1<<41 - 1) << 22},
		{idgen.End, maxSnowflake},
		{time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), maxSnowflake},
	} {
		if got := idgen.FirstAt(c.t); got != c.want {
			t.Errorf("FirstAt(%s) = %d, want %d", c.t, got, c.want)
		}
	}
}

func TestParseReadsWhatStringWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		uid := rapid.Int64Range(1, math.MaxInt64).Draw(t, "uid")
		id := idgen.Make(uid, rapid.Int64Range(0, maxSnowflake).Draw(t, "snowflake"))
		got, err := idgen.Parse(id.String())
		if err != nil || got != id {
			t.Fatalf("%s reads as %s, %v", id, got, err)
		}
		if string(id.AppendTo([]byte("id "))) != "id "+id.String() {
			t.Fatal("AppendTo and String differ")
		}
	})
}

func TestAnIDLeadsToItsBuyersPlaceAtEverySize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		uid := rapid.Int64Range(1, math.MaxInt64).Draw(t, "uid")
		id := idgen.Make(uid, rapid.Int64Range(0, maxSnowflake).Draw(t, "snowflake"))
		for _, n := range []int{8, 16, 32, 64} {
			if got, want := slot.DatabaseOfInfo(id.Info(), n), slot.Of(uid).Database(n); got != want {
				t.Fatalf("of %d: database %d by id, %d by uid", n, got, want)
			}
		}
		if id.Table() != slot.Table(uid) {
			t.Fatalf("table %d by id, %d by uid", id.Table(), slot.Table(uid))
		}
		other := rapid.Int64Range(1, math.MaxInt64).Draw(t, "other")
		if id.Of(other) != (slot.Of(uid) == slot.Of(other)) {
			t.Fatalf("Of(%d) = %v, though the slots are %d and %d", other, id.Of(other), slot.Of(uid), slot.Of(other))
		}
	})
}

// refusals names, for every kind of badness, a word that its message must have.
var refusals = map[string]struct{ s, want string }{
	"empty":                    {"", "0 characters"},
	"22 digits":                {"1577025315032222087987", "22 characters"},
	"24 digits":                {"157702531503222208798720", "24 characters"},
	"a space before":           {" 5770253150322220879872", "character 1 is not a digit"},
	"a space after":            {"1577025315032222087987 ", "character 23 is not a digit"},
	"a sign":                   {"1577-253150322220879872", "character 5 is not a digit"},
	"letters":                  {"15770253150322220879abc", "character 21 is not a digit"},
	"other digits":             {"１577025315032222087987２", "character 1 is not a digit"},
	"23 bytes, not characters": {"１77025315032222087２", "character 1 is not a digit"}, // the ends have 3 bytes each
	"broken UTF-8":             {"\xff5770253150322220879872", "character 1 is not a digit"},
	"version 0":                {"05770253150322220879872", "version"},
	"version 2":                {"25770253150322220879872", "version"},
	"info 00":                  {"10070253150322220879872", "shard info"},
	"info 65":                  {"16570253150322220879872", "shard info"},
	"info 99":                  {"19970253150322220879872", "shard info"},
	"2^63":                     {"15779223372036854775808", "63 bits"},
	"all nines":                {"15779999999999999999999", "63 bits"},
}

func TestParseSaysWhatIsWrong(t *testing.T) {
	for name, c := range refusals {
		t.Run(name, func(t *testing.T) {
			id, err := idgen.Parse(c.s)
			if !errors.Is(err, idgen.ErrInvalid) || !strings.Contains(err.Error(), c.want) || id != (idgen.ID{}) {
				t.Errorf("%v, %v; want ErrInvalid about %q", id, err, c.want)
			}
		})
	}
	for _, s := range []string{"10100000000000000000000", "16499223372036854775807"} {
		if _, err := idgen.Parse(s); err != nil {
			t.Errorf("%s, at the edge of what is right: %v", s, err)
		}
	}
}

// right is the rule for an id, written another way than Parse.
func right(s string) bool {
	n, ok := new(big.Int).SetString(s, 10)
	if !ok || len(s) != 23 || s[0] != '1' {
		return false
	}
	info, _ := strconv.Atoi(s[1:3])
	snowflake := new(big.Int).Mod(n, new(big.Int).Exp(big.NewInt(10), big.NewInt(19), nil))
	return info >= 1 && info <= 64 && snowflake.IsInt64()
}

// checkParse holds for every string.
func checkParse(t rapid.TB, s string) {
	t.Helper()
	id, err := idgen.Parse(s)
	switch {
	case err == nil && id.String() != s:
		t.Fatalf("%q reads as %s", s, id)
	case err != nil && (!errors.Is(err, idgen.ErrInvalid) || id != (idgen.ID{})):
		t.Fatalf("%q: %v, %v", s, id, err)
	case err != nil && len(s) > 3 && strings.Contains(err.Error(), s):
		t.Fatalf("%q: the message echoes the input: %v", s, err)
	}
}

func TestTwentyThreeDigitsAreAnIDOrRefused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching(`[012][0-9]{22}`).Draw(t, "digits")
		checkParse(t, s)
		if _, err := idgen.Parse(s); (err == nil) != right(s) {
			t.Fatalf("%s: %v, though by the rule it is an id: %v", s, err, right(s))
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, c := range refusals {
		f.Add(c.s)
	}
	f.Add(idgen.Make(9527, 0).String())
	f.Add(idgen.Make(1, maxSnowflake).String())
	f.Fuzz(func(t *testing.T, s string) { checkParse(t, s) })
}

func TestWritingAndReadingAllocateNothing(t *testing.T) {
	id := idgen.Make(9527, 1<<60)
	s := id.String()
	buf := make([]byte, 0, idgen.Digits)
	if n := testing.AllocsPerRun(100, func() { buf = id.AppendTo(buf[:0]) }); n != 0 {
		t.Errorf("AppendTo allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = idgen.Parse(s) }); n != 0 {
		t.Errorf("Parse allocates %v times", n)
	}
}

func BenchmarkParse(b *testing.B) {
	s := idgen.Make(9527, 1<<60|12345).String()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := idgen.Parse(s); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFormat(b *testing.B) {
	id := idgen.Make(9527, 1<<60|12345)
	buf := make([]byte, 0, idgen.Digits)
	b.ReportAllocs()
	for b.Loop() {
		buf = id.AppendTo(buf[:0])
	}
}
