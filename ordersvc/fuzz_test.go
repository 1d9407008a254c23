package ordersvc

import (
	"strings"
	"testing"
)

// FuzzParseRef: what a payment is called outside is read as its channel and number.
func FuzzParseRef(f *testing.F) {
	for _, s := range []string{"", ":", "wechat:4200", "wechat", "a:b:c", ":x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, ref string) {
		channel, number := ParseRef(ref)
		if strings.Contains(channel, ":") || strings.Contains(ref, ":") && Ref(channel, number) != ref || !strings.Contains(ref, ":") && (channel != ref || number != "") {
			t.Fatalf("%q is %q and %q", ref, channel, number)
		}
	})
}
