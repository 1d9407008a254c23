package httpapi

import (
	"slices"
	"strings"
	"testing"
)

func TestCurrencies(t *testing.T) {
	all := strings.Fields(currencies)
	if len(all) != 155 || !slices.IsSorted(all) || len(slices.Compact(slices.Clone(all))) != len(all) {
		t.Errorf("%d codes, sorted %t", len(all), slices.IsSorted(all))
	}
	n := 0
	for a := 'A'; a <= 'Z'; a++ {
		for b := 'A'; b <= 'Z'; b++ {
			for c := 'A'; c <= 'Z'; c++ {
				code := string([]rune{a, b, c})
				if active := activeCurrency([]byte(code)); active != slices.Contains(all, code) {
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
		if checkCurrency([]byte(code)).bad() {
			t.Errorf("%s is refused", code)
		}
	}
	// Not money that one can pay with, or no longer.
	for _, code := range strings.Fields("XXX XTS XAU XAG XPT XPD XDR XSU XUA XAD XBA XBB XBC XBD CLF UYW UYI USN BOV CHE CHW COU MXV " +
		"ANG ZWL SLL HRK BGN CUC DEM FRF TRL RUR BTC AAA ZZZ") {
		if !checkCurrency([]byte(code)).bad() {
			t.Errorf("%s is taken", code)
		}
	}
}
