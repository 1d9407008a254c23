package currency

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCurrencies(t *testing.T) {
	all := strings.Fields(codes)
	if len(all) != 155 || Count != 155 || !slices.IsSorted(all) || len(slices.Compact(slices.Clone(all))) != len(all) {
		t.Errorf("%d codes, Count %d, sorted %t", len(all), Count, slices.IsSorted(all))
	}
	n := 0
	for a := 'A'; a <= 'Z'; a++ {
		for b := 'A'; b <= 'Z'; b++ {
			for c := 'A'; c <= 'Z'; c++ {
				code := string([]rune{a, b, c})
				if active := Active(code); active != slices.Contains(all, code) || active != Active([]byte(code)) {
					t.Errorf("%s: %t", code, active)
				} else if active {
					n++
				}
			}
		}
	}
	if n != len(all) {
		t.Errorf("%d of %d are active", n, len(all))
	}
	// Money, whatever its decimals and however young.
	for _, code := range strings.Fields("CNY USD EUR GBP JPY KRW VND CLP ISK XAF XOF XPF BHD KWD JOD OMR TND IQD LYD XCG ZWG SLE VED SSP") {
		if !Active(code) {
			t.Errorf("%s is refused", code)
		}
	}
	// Not money that one can pay with, or no longer.
	for _, code := range strings.Fields("XXX XTS XAU XAG XPT XPD XDR XSU XUA XAD XBA XBB XBC XBD CLF UYW UYI USN BOV CHE CHW COU MXV " +
		"ANG ZWL SLL HRK BGN CUC DEM FRF TRL RUR BTC AAA ZZZ") {
		if Active(code) {
			t.Errorf("%s is taken", code)
		}
	}
}

func TestAnyTextMayBeAsked(t *testing.T) {
	for _, text := range []string{"", "C", "CN", "CNYY", "cny", "CNy", "[[[", "@@@", "C\x00Y", "\xff\xff\xff", "ÄÖ", "€"} {
		if Active(text) || (Set{}).With(text) != (Set{}) || full().Has(text) {
			t.Errorf("%q is a currency", text)
		}
	}
}

func full() (s Set) {
	for code := range strings.FieldsSeq(codes) {
		s = s.With(code)
	}
	return s
}

// A set holds what was put in, whatever the order, and nothing else.
func TestASetIsWhatWasPutIn(t *testing.T) {
	all := strings.Fields(codes)
	if got := full().Codes(); !slices.Equal(got, all) {
		t.Errorf("all: %v", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOf(rapid.SampledFrom(all)).Draw(t, "in")
		var one, other Set
		for i := range in {
			one, other = one.With(in[i]), other.With(in[len(in)-1-i])
		}
		want := slices.Compact(slices.Sorted(slices.Values(in)))
		if one != other || !slices.Equal(one.Codes(), want) {
			t.Fatalf("%v: %v and %v", in, one.Codes(), other.Codes())
		}
		for _, code := range all {
			if one.Has(code) != slices.Contains(in, code) {
				t.Fatalf("%v: has %s %t", in, code, one.Has(code))
			}
		}
	})
}
