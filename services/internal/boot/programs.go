package boot

import (
	"reflect"
	"slices"
)

// programs are the variables of each program, without Prefix, beside those of Shared. So
// every program knows those of the others, and an error is what none knows. Start makes
// sure that the row of a program is what its settings are.
var programs = map[string][]string{
	"octopay": {},
	"orderd":  {"ADDR", "KEYS_FILE", "OPS_ADDR", "PLAINTEXT", "READ_PERMITS", "SHUTDOWN_WAIT", "TLS_CERT_FILE", "TLS_KEY_FILE", "TRANSACTIONS_AT_ONCE", "TRUSTED_PROXIES"},
	"syncerd": {"OPS_ADDR", "STREAM_BYTES_MAX"},
}

// variablesOf returns the sorted names of the variables of a program; of one that isn't
// listed, those that all have.
func variablesOf(program string) (names []string) {
	for _, name := range programs[program] {
		names = append(names, Prefix+name)
	}
	for _, f := range appendFields(nil, reflect.ValueOf(Shared{})) {
		names = append(names, f.variable)
	}
	slices.Sort(names)
	return names
}

// known reports whether some program has this variable.
func known(variable string) bool {
	for program := range programs {
		if slices.Contains(variablesOf(program), variable) {
			return true
		}
	}
	return false
}

// listed reports whether the list has exactly the settings of config for a program.
func listed(program string, config Settings) bool {
	_, ok := programs[program]
	var names []string
	for _, f := range fieldsOf(config) {
		names = append(names, f.variable)
	}
	return ok && slices.Equal(names, variablesOf(program))
}
