package schema_test

import (
	"strings"
	"testing"

	"github.com/octopay/octopay/schema"
)

// FuzzMillis: a DATETIME(3) that is read is written as the same text.
func FuzzMillis(f *testing.F) {
	for _, s := range []string{"", "2026-11-30 13:29:00.123", "1970-01-01 00:00:00.000", "9999-12-31 23:59:59.999", "0000-00-00 00:00:00.000", "2026-11-30 13:29:00", "2026-02-29 00:00:00.000", "2026-11-30T13:29:00.123", " 2026-11-30 13:29:00.123", "2026-11-30 13:29:00,123"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, err := schema.ParseMillis(s)
		if err != nil {
			if m != 0 || len(s) > 8 && strings.Contains(err.Error(), s) {
				t.Fatalf("%q: %d, %v", s, m, err)
			}
			return
		}
		again, err := schema.ParseMillis(m.SQL())
		if err != nil || again != m {
			t.Fatalf("%q is %s, and that is %d, %v", s, m.SQL(), again, err)
		}
	})
}

// FuzzNames: a name of a state, a reason or a kind is read as what has that name.
func FuzzNames(f *testing.F) {
	for _, s := range []string{"", "created", "paid", "closed", "merchant", "expired", "unapplied_voided", "unknown(9)", "Paid", "paid "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if v, err := schema.ParseStatus(s); err == nil && (v.String() != s || v == 0) || err != nil && v != 0 {
			t.Fatalf("%q: %v, %v", s, v, err)
		}
		if v, err := schema.ParseCloseReason(s); err == nil && (v.String() != s || v == 0) || err != nil && v != 0 {
			t.Fatalf("%q: %v, %v", s, v, err)
		}
		if v, err := schema.ParseKind(s); err == nil && (v.String() != s || v == schema.KindCreated) || err != nil && v != 0 {
			t.Fatalf("%q: %v, %v", s, v, err)
		}
	})
}
