package hostiletest

// A Spelling is a value of a field as a client writes it, and what the contract says of it.
type Spelling struct {
	Name string
	// JSON is the value's text; "" leaves the field out. It need not be JSON.
	JSON string
	// Fault is the code of the field's fault; Malformed where the whole body can't be read,
	// "" where the value is right.
	Fault string
}

// Malformed is the fault of a text that is no JSON.
const Malformed = "malformed_json"

// AmountMax is the most that an amount may be.
const AmountMax = 9007199254740991

// Amounts are amounts in every spelling that somebody's library may write.
var Amounts = []Spelling{
	{"the least", "1", ""},
	{"the most", "9007199254740991", ""},
	{"the most but one", "9007199254740990", ""},
	{"white space before and after", " \t1\n", ""},
	{"one more than the most", "9007199254740992", "out_of_range"},
	{"two more, which a float can't tell from one", "9007199254740993", "out_of_range"},
	{"0", "0", "out_of_range"},
	{"-0", "-0", "out_of_range"},
	{"-1", "-1", "out_of_range"},
	{"the negative of the most", "-9007199254740991", "out_of_range"},
	{"2^63 - 1", "9223372036854775807", "out_of_range"},
	{"2^63", "9223372036854775808", "out_of_range"},
	{"-2^63", "-9223372036854775808", "out_of_range"},
	{"2^64 + 1, which wraps to 1", "18446744073709551617", "out_of_range"},
	{"2^128 + 1", "340282366920938463463374607431768211457", "out_of_range"},
	{"30 digits", "100000000000000000000000000000", "out_of_range"},
	{"a fraction of nothing", "1.0", "bad_format"},
	{"a fraction", "1.5", "bad_format"},
	{"-0.0", "-0.0", "bad_format"},
	{"an exponent", "1e2", "bad_format"},
	{"a capital exponent", "1E0", "bad_format"},
	{"a negative exponent", "100e-2", "bad_format"},
	{"a big exponent", "1e400", "bad_format"},
	{"a text", `"100"`, "wrong_type"},
	{"an empty text", `""`, "wrong_type"},
	{"a text with a space", `" 100"`, "wrong_type"},
	{"null", "null", "wrong_type"},
	{"true", "true", "wrong_type"},
	{"an array", "[]", "wrong_type"},
	{"an array of one", "[100]", "wrong_type"},
	{"an object", "{}", "wrong_type"},
	{"nothing", "", "required"},
	{"hexadecimal", "0x10", Malformed},
	{"octal", "0o17", Malformed},
	{"a leading zero", "01", Malformed},
	{"two zeros", "00", Malformed},
	{"a plus", "+1", Malformed},
	{"an underscore", "1_000", Malformed},
	{"a comma", "1,000", Malformed},
	{"a point at the end", "1.", Malformed},
	{"a point at the start", ".5", Malformed},
	{"an exponent without digits", "1e", Malformed},
	{"NaN", "NaN", Malformed},
	{"Infinity", "Infinity", Malformed},
	{"-Infinity", "-Infinity", Malformed},
	{"a sign alone", "-", Malformed},
	{"two signs", "--1", Malformed},
	{"a big integer of JavaScript", "1n", Malformed},
	{"digits of full width", "１００", Malformed},
	{"Arabic digits", "١٠٠", Malformed},
}

// Currencies are currencies that there are, one of each number of decimals that is used
// for payments, and others. The codes with four decimals are units of account.
var Currencies = []Spelling{
	{"no decimals", `"JPY"`, ""},
	{"no decimals either", `"VND"`, ""},
	{"two decimals", `"CNY"`, ""},
	{"three decimals", `"KWD"`, ""},
	{"three decimals, in escapes", `"\u0042\u0048\u0044"`, ""},
	{"four decimals: a unit of account", `"CLF"`, "unsupported"},
	{"four decimals: another", `"UYW"`, "unsupported"},
	{"a fund", `"CHE"`, "unsupported"},
	{"withdrawn in 2002", `"DEM"`, "unsupported"},
	{"withdrawn in 2023", `"HRK"`, "unsupported"},
	{"withdrawn in 2025", `"ANG"`, "unsupported"},
	{"no currency", `"XXX"`, "unsupported"},
	{"for tests", `"XTS"`, "unsupported"},
	{"gold", `"XAU"`, "unsupported"},
	{"drawing rights", `"XDR"`, "unsupported"},
	{"a code that there never was", `"ABC"`, "unsupported"},
	{"a coin's", `"BTC"`, "unsupported"},
	{"lower case", `"cny"`, "bad_format"},
	{"mixed case", `"Cny"`, "bad_format"},
	{"a space after it", `"CNY "`, "bad_format"},
	{"a space before it", `" CNY"`, "bad_format"},
	{"a NUL after it", `"CNY\u0000"`, "bad_format"},
	{"two letters", `"CN"`, "bad_format"},
	{"four letters", `"CNYY"`, "bad_format"},
	{"three digits", `"156"`, "bad_format"},
	{"letters of full width", `"ＣＮＹ"`, "bad_format"},
	{"a sign", `"¥"`, "bad_format"},
	{"empty", `""`, "bad_format"},
	{"a number", "156", "wrong_type"},
	{"null", "null", "wrong_type"},
	{"true", "true", "wrong_type"},
	{"an array", `["CNY"]`, "wrong_type"},
	{"an object", `{"code":"CNY"}`, "wrong_type"},
	{"nothing", "", "required"},
	{"without quotes", "CNY", Malformed},
	{"in single quotes", "'CNY'", Malformed},
}

// Spellings are the tables by the name of the contract's schema of a field.
var Spellings = map[string][]Spelling{"Amount": Amounts, "Currency": Currencies}
