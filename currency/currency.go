// Package currency knows which currencies there are, by their codes. Which of them a
// merchant takes is decided by payconfig; how many decimals one has is known nowhere:
// amounts are minor units from the client to the channel, so nobody can multiply by a
// wrong factor.
package currency

import (
	"math/bits"
	"strings"
)

// codes are the active codes of ISO 4217, list one as of 2026-01-01: with XCG for ANG,
// ZWG for ZWL, SLE for SLL, and without HRK and BGN, which the euro replaced.
//
// Only money that a buyer can pay with is taken. Left out are the funds codes (BOV CHE
// CHW CLF COU MXV USN UYI UYW), metals and units of account (XAG XAU XPD XPT XBA XBB
// XBC XBD XAD XDR XSU XUA), the code for tests (XTS) and the one for no currency (XXX).
const codes = "" +
	"AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD " +
	"CAD CDF CHF CLP CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF " +
	"GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT " +
	"LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD " +
	"OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC " +
	"SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VED VES VND VUV WST XAF XCD XCG XOF XPF " +
	"YER ZAR ZMW ZWG"

// Count is how many currencies there are.
const Count = (len(codes) + 1) / len("AED ")

// numbers holds the number of each code, 1 … Count in the order of the alphabet, and 0
// for letters that are no code. A number means something in this process only.
var numbers = func() (t [26][26][26]uint8) {
	n := uint8(0)
	for code := range strings.FieldsSeq(codes) {
		n++
		t[code[0]-'A'][code[1]-'A'][code[2]-'A'] = n
	}
	return t
}()

func number[T ~string | ~[]byte](code T) uint8 {
	if len(code) != 3 {
		return 0
	}
	a, b, c := code[0]-'A', code[1]-'A', code[2]-'A'
	if a >= 26 || b >= 26 || c >= 26 {
		return 0
	}
	return numbers[a][b][c]
}

// Active reports whether code is a currency's.
func Active[T ~string | ~[]byte](code T) bool { return number(code) != 0 }

// A Set holds currencies. It is a value: a copy is another set, and == compares two. The
// zero value is the empty set.
type Set struct{ bits [(Count + 64) / 64]uint64 }

// Has reports whether the set holds a currency. It allocates nothing.
func (s Set) Has(code string) bool {
	n := number(code)
	return n != 0 && s.bits[n/64]&(1<<(n%64)) != 0
}

// With returns the set with one currency more. A code that is none changes nothing.
func (s Set) With(code string) Set {
	if n := number(code); n != 0 {
		s.bits[n/64] |= 1 << (n % 64)
	}
	return s
}

// Codes returns the codes of the set in the order of the alphabet.
func (s Set) Codes() (all []string) {
	for i, word := range s.bits {
		for ; word != 0; word &= word - 1 {
			at := (i*64 + bits.TrailingZeros64(word) - 1) * len("AED ")
			all = append(all, codes[at:at+len("AED")])
		}
	}
	return all
}
