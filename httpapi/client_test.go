package httpapi

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// proxies are those that tests trust.
var proxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:1::/48"), netip.MustParsePrefix("127.0.0.1/32")}

func TestClientAddr(t *testing.T) {
	long := strings.Repeat("10.0.0.9,", forwardedMax/len("10.0.0.9,"))
	for _, c := range []struct {
		name, peer string
		forwarded  []string
		want       string
	}{
		{"nobody is between", "203.0.113.7", nil, "203.0.113.7"},
		{"a client writes the header itself", "203.0.113.7", []string{"198.51.100.1"}, "203.0.113.7"},
		{"a client says that it is a proxy", "203.0.113.7", []string{"198.51.100.1, 10.0.0.1"}, "203.0.113.7"},
		{"one proxy", "10.0.0.1", []string{"203.0.113.7"}, "203.0.113.7"},
		{"a proxy that says nothing", "10.0.0.1", nil, "10.0.0.1"},
		{"a proxy with an empty header", "10.0.0.1", []string{""}, "10.0.0.1"},
		{"two proxies", "10.0.0.1", []string{"203.0.113.7, 10.0.0.2"}, "203.0.113.7"},
		{"two proxies with a line each", "10.0.0.1", []string{"203.0.113.7", "10.0.0.2"}, "203.0.113.7"},
		{"a spoofed entry behind one proxy", "10.0.0.1", []string{"198.51.100.1, 203.0.113.7"}, "203.0.113.7"},
		{"a spoofed line behind one proxy", "10.0.0.1", []string{"198.51.100.1", "203.0.113.7"}, "203.0.113.7"},
		{"a spoofed proxy behind one proxy", "10.0.0.1", []string{"198.51.100.1, 10.0.0.5, 203.0.113.7"}, "203.0.113.7"},
		{"a client within a trusted network", "10.0.0.1", []string{"10.3.4.5"}, "10.3.4.5"},
		{"a client there, and what it wrote", "10.0.0.1", []string{"198.51.100.1,10.3.4.5"}, "198.51.100.1"},
		{"all are proxies", "10.0.0.1", []string{"10.0.0.3,10.0.0.2"}, "10.0.0.3"},
		{"IPv6", "2001:db8:1::1", []string{"2001:db8:2::7"}, "2001:db8:2::7"},
		{"IPv6 with brackets", "10.0.0.1", []string{"[2001:db8:2::7]"}, "2001:db8:2::7"},
		{"IPv6 with a port", "10.0.0.1", []string{"[2001:db8:2::7]:55"}, "2001:db8:2::7"},
		{"IPv4 with a port", "10.0.0.1", []string{"203.0.113.7:5555"}, "203.0.113.7"},
		{"IPv4 in IPv6", "::ffff:10.0.0.1", []string{"::ffff:203.0.113.7"}, "203.0.113.7"},
		{"a proxy in IPv6's writing", "10.0.0.1", []string{"203.0.113.7, ::ffff:10.0.0.2"}, "203.0.113.7"},
		{"spaces and tabs", "10.0.0.1", []string{"\t203.0.113.7 \t,\t 10.0.0.2 "}, "203.0.113.7"},
		{"a name", "10.0.0.1", []string{"203.0.113.7, unknown"}, "10.0.0.1"},
		{"a name behind a proxy", "10.0.0.1", []string{"_hidden, 10.0.0.2"}, "10.0.0.2"},
		{"an empty entry", "10.0.0.1", []string{"203.0.113.7,"}, "10.0.0.1"},
		{"a zone", "10.0.0.1", []string{"fe80::1%eth0"}, "10.0.0.1"},
		{"a leading zero", "10.0.0.1", []string{"203.0.113.07"}, "10.0.0.1"},
		{"more hops than are followed", "10.0.0.1", []string{"203.0.113.7" + strings.Repeat(",10.0.0.2", hopsMax)}, "10.0.0.2"},
		{"as many as are followed", "10.0.0.1", []string{"203.0.113.7" + strings.Repeat(",10.0.0.2", hopsMax-1)}, "203.0.113.7"},
		{"a long lie left of a client", "10.0.0.1", []string{long + "203.0.113.7"}, "203.0.113.7"},
		{"an entry longer than is read", "10.0.0.1", []string{strings.Repeat(" ", forwardedMax) + "203.0.113.7"}, "10.0.0.1"},
		{"many empty lines", "10.0.0.1", slices.Repeat([]string{""}, 100), "10.0.0.1"},
	} {
		if got := clientAddr(parsePeer(netip.AddrPortFrom(netip.MustParseAddr(c.peer), 1).String()), c.forwarded, proxies); got != netip.MustParseAddr(c.want) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	if got := clientAddr(parsePeer("@"), []string{"203.0.113.7"}, proxies); got.IsValid() {
		t.Errorf("without a peer it is %s", got)
	}
	if got := clientAddr(netip.MustParseAddr("10.0.0.1"), []string{"203.0.113.7"}, nil); got != netip.MustParseAddr("10.0.0.1") {
		t.Errorf("without trusted proxies it is %s", got)
	}
}

// Whatever stands left of what a trusted proxy added changes nothing, and what is found is
// the peer or an entry.
func FuzzClientAddr(f *testing.F) {
	f.Add("10.0.0.1", "203.0.113.7, 10.0.0.2", "198.51.100.1")
	f.Add("10.0.0.1", "", "unknown,, 10.0.0.1")
	f.Add("2001:db8:1::1", "[::1]:80, 2001:db8:1::2", "::ffff:10.1.1.1")
	f.Add("203.0.113.7", "10.0.0.1", "10.0.0.1")
	f.Fuzz(func(t *testing.T, peerText, header, spoofed string) {
		peer := parsePeer(netip.AddrPortFrom(func() netip.Addr { a, _ := netip.ParseAddr(peerText); return a }(), 1).String())
		got := clientAddr(peer, []string{header}, proxies)
		entries := strings.Split(header, ",")
		known := got == peer
		for _, e := range entries {
			if a, ok := parseHop(strings.Trim(e, " \t")); ok && a == got {
				known = true
			}
		}
		if !known {
			t.Fatalf("%s is neither the peer %s nor in %q", got, peer, header)
		}
		if !inAny(proxies, peer) && got != peer {
			t.Fatalf("%s isn't trusted, and the client is %s", peer, got)
		}
		// A client behind a proxy: the proxy adds its address, whatever came before.
		const client = "203.0.113.99"
		at := netip.MustParseAddr("10.0.0.1")
		for _, sent := range [][]string{{spoofed + "," + client}, {spoofed, client}, {header, spoofed + ", " + client + ", 10.0.0.2"}} {
			if got := clientAddr(at, sent, proxies); got != netip.MustParseAddr(client) {
				t.Fatalf("%q makes it %s", sent, got)
			}
		}
		// Cut at commas or not, it says the same.
		if lines := clientAddr(peer, entries, proxies); len(entries) < hopsMax && len(header) < forwardedMax/2 && lines != got {
			t.Fatalf("in lines of their own the entries of %q say %s, not %s", header, lines, got)
		}
	})
}

// The log has the client's network, and who isn't trusted can't choose it.
func TestTheLogHasTheNetworkOfTheClient(t *testing.T) {
	for _, c := range []struct {
		name    string
		trusted []netip.Prefix
		header  string
		want    string
	}{
		{"a peer that nobody trusts", nil, "203.0.113.7", "127.0.0.0/24"},
		{"behind a proxy", proxies, "198.51.100.1, 203.0.113.7", "203.0.113.0/24"},
		{"IPv6 behind a proxy", proxies, "2001:db8:2:3:4:5:6:7", "2001:db8:2::/48"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := start(t, func(config *Config) { config.TrustedProxies = c.trusted })
			s.get("/v1/users/1/orders", "X-Forwarded-For", c.header).is(http.StatusOK, "")
			if got := s.settled("request", 1)[0]["client"]; got != c.want {
				t.Errorf("the log has %v, want %s", got, c.want)
			}
			if log := s.log.String(); strings.Contains(log, "203.0.113.7") || strings.Contains(log, "198.51") || strings.Contains(log, "4:5:6") {
				t.Errorf("an address: %s", log)
			}
		})
	}
}
