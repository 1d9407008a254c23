package source

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func positions() *rapid.Generator[Position] {
	return rapid.Custom(func(t *rapid.T) Position {
		var p Position
		for range rapid.IntRange(0, 4).Draw(t, "gtids") {
			p = p.With(GTID{
				Domain: rapid.Uint32Range(0, 3).Draw(t, "domain"),
				Server: rapid.Uint32().Draw(t, "server"),
				Seq:    rapid.Uint64Range(1, 5).Draw(t, "seq"),
			})
		}
		return p
	})
}

func TestPositionTextReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := positions().Draw(t, "p")
		back, err := ParsePosition(p.String())
		if err != nil || back.String() != p.String() {
			t.Fatalf("%q reads as %q, %v", p, back, err)
		}
	})
}

func TestPositionCovers(t *testing.T) {
	for _, c := range []struct {
		name, p, q string
		want       bool
	}{
		{"the beginning is before all", "0-1-5", "", true},
		{"nothing but the beginning is before the beginning", "", "0-1-5", false},
		{"the same", "0-1-5", "0-1-5", true},
		{"further", "0-1-6", "0-1-5", true},
		{"not as far", "0-1-4", "0-1-5", false},
		{"another server counts on in the same domain", "0-2-6", "0-1-5", true},
		{"one domain further, another not as far", "0-1-9,1-1-1", "0-1-5,1-1-2", false},
		{"a domain more", "0-1-5,7-1-1", "0-1-5", true},
		{"numbers, not texts", "0-1-10", "0-1-9", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err1 := ParsePosition(c.p)
			q, err2 := ParsePosition(c.q)
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			if got := p.Covers(q); got != c.want {
				t.Errorf("%q covers %q: %v", p, q, got)
			}
		})
	}
}

// Least is the greatest lower bound: all cover it, and whatever all cover it covers.
func TestLeastIsTheGreatestLowerBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ps := rapid.SliceOfN(positions(), 1, 4).Draw(t, "ps")
		least := Least(ps...)
		for _, p := range ps {
			if !p.Covers(least) {
				t.Fatalf("%q doesn't cover the least, %q", p, least)
			}
		}
		other := positions().Draw(t, "other")
		for _, p := range ps {
			if !p.Covers(other) {
				return
			}
		}
		if !least.Covers(other) {
			t.Fatalf("all cover %q, the least is %q", other, least)
		}
	})
	if !Least().IsZero() || !Least(Position{}, Position{}.With(GTID{1, 1, 1})).IsZero() {
		t.Error("the least of none, or of the beginning and another, is the beginning")
	}
}

func TestPositionsAreValues(t *testing.T) {
	p := Position{}.With(GTID{0, 1, 5}).With(GTID{2, 1, 5})
	before := p.String()
	_ = p.With(GTID{0, 1, 9})
	_ = p.With(GTID{1, 1, 9})
	if p.String() != before {
		t.Errorf("%q became %q", before, p)
	}
}

func TestParsePositionRefuses(t *testing.T) {
	for _, text := range []string{",", "0-1", "0-1-2-3", "0-1-x", "-1-1-1", "0-1-18446744073709551616", "4294967296-1-1", "0-1-5,"} {
		if p, err := ParsePosition(text); err == nil {
			t.Errorf("%q reads as %q", text, p)
		}
	}
	many := make([]string, 12)
	for i := range many {
		many[i] = GTID{uint32(i), 4294967295, 18446744073709551615}.String()
	}
	if _, err := ParsePosition(strings.Join(many, ",")); err == nil {
		t.Error("more domains than a mark's column can hold are taken")
	}
	if p, err := ParsePosition(strings.Join(many[:11], ",")); err != nil || len(p.String()) > 512 {
		t.Errorf("%d characters, %v", len(p.String()), err)
	}
}
