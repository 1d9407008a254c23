package source

import "testing"

// FuzzParsePosition: a position that is read is written as a text that is read as the same,
// and covers itself.
func FuzzParsePosition(f *testing.F) {
	for _, s := range []string{"", "0-1-5", "0-1-5,1-2-3", "1-2-3,0-1-5", "0-1-5,0-2-6", "0-1", "0-1-2-3", "-1-1-1", "0-1-18446744073709551615", "4294967296-1-1", "+0-1-1", " 0-1-1", "0-1-1,", "a-b-c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePosition(s)
		if err != nil {
			if !p.IsZero() {
				t.Fatalf("%q: %v and %v", s, p, err)
			}
			return
		}
		again, err := ParsePosition(p.String())
		if err != nil || again.String() != p.String() || !p.Covers(again) || !again.Covers(p) || len(p.String()) > 512 {
			t.Fatalf("%q is %q, and that is %q, %v", s, p, again, err)
		}
	})
}
