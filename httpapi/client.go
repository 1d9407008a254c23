package httpapi

import (
	"net/netip"
	"strings"
)

// Bounds of what is read of X-Forwarded-For, from its right end on. A longer way than
// that leads to nobody whom we would have to tell from others.
const (
	forwardedMax = 1024 // bytes
	hopsMax      = 16
)

// clientAddr returns the address of the client whose request came from peer, with these
// lines of X-Forwarded-For.
//
// What a client writes into that header stands left of what proxies add. So it is read
// from the right: as long as the one who speaks is a trusted proxy, what it added is
// believed, and the first address that is no trusted proxy is the client, whatever stands
// left of it. A peer that is no trusted proxy is the client itself. Where an entry is no
// address, or the bounds end, the last trusted proxy is all that is known.
func clientAddr(peer netip.Addr, forwarded []string, trusted []netip.Prefix) netip.Addr {
	client := peer
	read, hops := 0, 0
	for line := len(forwarded) - 1; line >= 0 && inAny(trusted, client); line-- {
		for rest, more := forwarded[line], true; more && inAny(trusted, client); hops++ {
			entry := rest
			at := strings.LastIndexByte(rest, ',')
			if more = at >= 0; more {
				entry, rest = rest[at+1:], rest[:at]
			}
			if read += len(entry) + 1; read > forwardedMax || hops >= hopsMax {
				return client
			}
			addr, ok := parseHop(strings.Trim(entry, " \t"))
			if !ok {
				return client
			}
			client = addr
		}
	}
	return client
}

// parseHop reads an entry: an address, to which some proxies add a port.
func parseHop(s string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
	if err != nil {
		with, err := netip.ParseAddrPort(s)
		if err != nil {
			return netip.Addr{}, false
		}
		addr = with.Addr()
	}
	if addr.Zone() != "" {
		return netip.Addr{}, false // a name of an interface of somebody else's machine
	}
	return addr.Unmap(), true
}

func inAny(networks []netip.Prefix, addr netip.Addr) bool {
	for _, n := range networks {
		if n.Contains(addr) {
			return true
		}
	}
	return false
}

// parsePeer reads the address that net/http has of a connection; the zero Addr, which is
// in no network, where there is none.
func parsePeer(remote string) netip.Addr {
	with, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	return with.Addr().Unmap().WithZone("")
}

// Of a client's address the log has its network: enough to see where a flood comes from,
// and no person.
const (
	clientBits4 = 24
	clientBits6 = 48
)

// clientNetwork returns the network of a call's client as text, "" if it isn't known.
func (c *call) clientNetwork() string {
	addr := clientAddr(parsePeer(c.r.RemoteAddr), c.r.Header["X-Forwarded-For"], c.api.config.TrustedProxies)
	bits := clientBits6
	switch {
	case !addr.IsValid():
		return ""
	case addr.Is4():
		bits = clientBits4
	}
	network, err := addr.Prefix(bits)
	if err != nil {
		return ""
	}
	return network.String()
}
