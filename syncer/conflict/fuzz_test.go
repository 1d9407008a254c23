package conflict_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/octopay/octopay/syncer/conflict"
)

// FuzzParseKind: a kind is read from its own name, and an error repeats nothing.
func FuzzParseKind(f *testing.F) {
	f.Add("")
	f.Add("unknown(9)")
	for _, k := range conflict.Kinds {
		f.Add(k.String())
		f.Add(strings.ToUpper(k.String()))
		f.Add(k.String() + " ")
	}
	f.Fuzz(func(t *testing.T, s string) {
		k, err := conflict.ParseKind(s)
		switch {
		case err == nil && (k.String() != s || !slices.Contains(conflict.Kinds[:], k)):
			t.Fatalf("%q: %v", s, k)
		case err != nil && (k != 0 || len(s) > 20 && strings.Contains(err.Error(), s)):
			t.Fatalf("%q: %v, %v", s, k, err)
		case err != nil && slices.ContainsFunc(conflict.Kinds[:], func(k conflict.Kind) bool { return k.String() == s }):
			t.Fatalf("%q isn't read", s)
		}
	})
}
