package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/octopay/octopay/internal/command"
	"github.com/octopay/octopay/loadtest/report"
)

func quiet() (console, *bytes.Buffer) {
	var out bytes.Buffer
	return console{out: &out, err: &bytes.Buffer{}, args: []string{"compare", "--rounds", "3"}}, &out
}

func short3(t *testing.T) campaign {
	return campaign{Duration: time.Second, Warmup: time.Second, Rounds: 3, Out: t.TempDir()}
}

// contend returns contenders that note the order in which they ran.
func contend(ran *[]string, names ...string) (all []contender) {
	for i, name := range names {
		all = append(all, contender{name, func(context.Context) (report.Run, error) {
			*ran = append(*ran, name)
			return report.Run{PerSecond: float64(100 * (i + 1)), ByAnswer: map[string]int64{"201": 1}, Sent: 1, Offered: 1, DurationSec: 1}, nil
		}})
	}
	return all
}

func TestTargetsAlternate(t *testing.T) {
	out, _ := quiet()
	var ran []string
	var d report.Document
	if err := short3(t).rounds(t.Context(), out, &d, "x", []string{"b"}, contend(&ran, "a", "b", "c")...); err != nil {
		t.Fatal(err)
	}
	if want := []string{"a", "b", "c", "b", "c", "a", "c", "a", "b"}; !slices.Equal(ran, want) {
		t.Errorf("%v, want %v", ran, want)
	}
	rows := d.Sets[0].Compare()
	if len(rows) != 3 || rows[2].Target != "c" || rows[2].Ratio["b"].Median != 1.5 || rows[2].Runs != 3 {
		t.Errorf("%+v", rows)
	}
}

// In n rounds each contender has each place once; of an even number of them each also
// follows each other once, so that nobody always inherits from the same one.
func TestTurnsAreFair(t *testing.T) {
	for n := 1; n <= 8; n++ {
		places, pairs := map[[2]int]int{}, map[[2]int]int{}
		for round := range n {
			order := turn(n, round)
			if round == 0 && order[0] != 0 {
				t.Errorf("%d: the first isn't first: %v", n, order)
			}
			for at, who := range order {
				places[[2]int{who, at}]++
				if at > 0 {
					pairs[[2]int{order[at-1], who}]++
				}
			}
		}
		if len(places) != n*n {
			t.Errorf("%d: places %v", n, places)
		}
		if n%2 == 0 && len(pairs) != n*(n-1) {
			t.Errorf("%d: %d of %d follow each other", n, len(pairs), n*(n-1))
		}
	}
}

// What was measured before something went wrong is written.
func TestWhatWasMeasuredIsWrittenWhateverHappensThen(t *testing.T) {
	broken := errors.New("a wire came loose")
	for name, c := range map[string]struct {
		then func(ctx context.Context) error
		most time.Duration
		want error
	}{
		"nothing goes wrong":   {func(context.Context) error { return nil }, time.Hour, nil},
		"something goes wrong": {func(context.Context) error { return broken }, time.Hour, broken},
		"it takes too long":    {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, 2 * time.Second, errMost},
	} {
		t.Run(name, func(t *testing.T) {
			out, text := quiet()
			m := short3(t)
			err := m.conduct(t.Context(), out, "load", "A test", c.most, func(ctx context.Context, d *report.Document) error {
				var ran []string
				if err := m.rounds(ctx, out, d, "some set", []string{"a"}, contend(&ran, "a", "b")...); err != nil {
					return err
				}
				return c.then(ctx)
			})
			if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			for _, ending := range []string{"md", "json", "html"} {
				files, _ := filepath.Glob(filepath.Join(m.Out, "????-??-??-load."+ending))
				if len(files) != 1 {
					t.Fatalf("%v", files)
				}
				written, err := os.ReadFile(files[0])
				if err != nil {
					t.Fatal(err)
				}
				for _, want := range []string{"some set", "go run ./loadtest compare --rounds 3"} {
					if !bytes.Contains(written, []byte(want)) {
						t.Errorf("%s doesn't say %q", files[0], want)
					}
				}
				if said := bytes.Contains(written, []byte("come to its end")); said != (c.want != nil) {
					t.Errorf("%s says that it didn't come to its end: %t", files[0], said)
				}
			}
			if !strings.Contains(text.String(), "some set") {
				t.Errorf("printed is\n%s", text)
			}
		})
	}
}

func TestWhatIsFoundDecidesHowItEnds(t *testing.T) {
	out, _ := quiet()
	err := short3(t).conduct(t.Context(), out, "soak", "A test", time.Hour, func(_ context.Context, d *report.Document) error {
		d.Findings = append(d.Findings, report.Sentence{Bad: true, Text: "it GROWS"})
		return nil
	})
	if !errors.Is(err, errFound) {
		t.Errorf("error %v", err)
	}
}

func TestFlagsThatMakeNoSenseAreRefusedBeforeAnythingStarts(t *testing.T) {
	for _, args := range [][]string{
		{"compare", "--duration", "1500ms"}, {"compare", "--warmup", "0s"}, {"compare", "--rounds", "0"},
		{"compare", "--rate", "0"}, {"compare", "--reading", "0s"}, {"compare", "--connections", "x"}, {"big", "--waiting", "0"}, {"big", "--rounds", "101"},
		{"compare", "--connections", "4"}, {"compare", "--connections", "64,64"}, {"compare", "--known", "0"}, {"compare", "--readers", "0"}, {"compare", "--pool", "0"},
		{"compare", "--raw-at-once", "0"}, {"compare", "--steady", "0s"}, {"compare", "--most", "0s"}, {"compare", "--buffer-pool", "x"},
		{"big", "--databases", "7"}, {"big", "--databases", "8,9"}, {"big", "--rows", "0"}, {"big", "--connections", "0"}, {"big", "--buffer-pool", "0"}, {"big", "--most=-1s"},
		{"soak", "--buffer-pool", "x"}, {"soak", "--every", "1ms"}, {"soak", "--duration", "10s", "--every", "5s"}, {"soak", "--rate", "0"},
		{"soak", "--duration", "1s"}, {"soak", "--rate", "-1"}, {"profile", "--duration", "1s"}, {"profile", "--top", "0"}, {"serve", "orderd"},
	} {
		var out, err bytes.Buffer
		if code := run(t.Context(), args, nil, &out, &err); code != command.Wrong {
			t.Errorf("%v: exit code %d, %s", args, code, err.String())
		}
	}
}
