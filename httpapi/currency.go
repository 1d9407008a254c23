package httpapi

import "strings"

// currencies are the active codes of ISO 4217, list one as of 2026-01-01: with XCG for
// ANG, ZWG for ZWL, SLE for SLL, and without HRK and BGN, which the euro replaced.
//
// Only money that a buyer can pay with is taken. Left out are the funds codes (BOV CHE
// CHW CLF COU MXV USN UYI UYW), metals and units of account (XAG XAU XPD XPT XBA XBB
// XBC XBD XAD XDR XSU XUA), the code for tests (XTS) and the one for no currency (XXX).
//
// The list doesn't say how many decimals a currency has, and nothing in the code does:
// amounts are minor units from the client to the channel, so nobody can multiply by a
// wrong factor.
const currencies = "" +
	"AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD " +
	"CAD CDF CHF CLP CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF " +
	"GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT " +
	"LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD " +
	"OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC " +
	"SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VED VES VND VUV WST XAF XCD XCG XOF XPF " +
	"YER ZAR ZMW ZWG"

// currencyTable has one bit for each code of three capital letters.
var currencyTable = func() (t [26][26]uint32) {
	for code := range strings.FieldsSeq(currencies) {
		t[code[0]-'A'][code[1]-'A'] |= 1 << (code[2] - 'A')
	}
	return t
}()

// activeCurrency reports whether three capital letters are a currency's code.
func activeCurrency(code []byte) bool {
	return currencyTable[code[0]-'A'][code[1]-'A']&(1<<(code[2]-'A')) != 0
}
