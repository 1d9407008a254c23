package source

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A GTID names one transaction of a server's history, as MariaDB does.
type GTID struct {
	Domain uint32
	Server uint32
	Seq    uint64
}

func (g GTID) String() string { return fmt.Sprintf("%d-%d-%d", g.Domain, g.Server, g.Seq) }

// A Position is a point between two transactions of a server's history: the newest
// transaction of each domain that lies before it. The zero Position is the
// beginning. Positions are immutable values.
type Position struct {
	gtids []GTID // by domain, each domain once
}

// domainsMax bounds the text of a position: a mark stores at most 512 characters,
// and a GTID has at most 43 with its comma.
const domainsMax = 11

// ParsePosition reads the text of a position, GTIDs joined by commas; "" is the
// beginning.
func ParsePosition(s string) (Position, error) {
	var p Position
	if s == "" {
		return p, nil
	}
	for _, text := range strings.Split(s, ",") {
		parts := strings.Split(text, "-")
		if len(parts) != 3 {
			return Position{}, fmt.Errorf("source: a GTID is domain-server-sequence")
		}
		domain, err1 := strconv.ParseUint(parts[0], 10, 32)
		server, err2 := strconv.ParseUint(parts[1], 10, 32)
		seq, err3 := strconv.ParseUint(parts[2], 10, 64)
		if err := cmp.Or(err1, err2, err3); err != nil {
			return Position{}, fmt.Errorf("source: a GTID is three numbers: %w", err)
		}
		p = p.With(GTID{uint32(domain), uint32(server), seq})
	}
	if len(p.gtids) > domainsMax {
		return Position{}, fmt.Errorf("source: the position has %d domains; at most %d are supported", len(p.gtids), domainsMax)
	}
	return p, nil
}

// String returns the text that ParsePosition reads.
func (p Position) String() string {
	texts := make([]string, len(p.gtids))
	for i, g := range p.gtids {
		texts[i] = g.String()
	}
	return strings.Join(texts, ",")
}

// IsZero reports whether p is the beginning.
func (p Position) IsZero() bool { return len(p.gtids) == 0 }

// With returns p with g as the newest transaction of its domain.
func (p Position) With(g GTID) Position {
	i, found := slices.BinarySearchFunc(p.gtids, g.Domain, func(g GTID, domain uint32) int { return cmp.Compare(g.Domain, domain) })
	if found {
		gtids := slices.Clone(p.gtids)
		gtids[i] = g
		return Position{gtids}
	}
	return Position{slices.Insert(slices.Clone(p.gtids), i, g)}
}

// Covers reports whether everything before q lies before p. Server numbers are not
// compared: after a failover another server goes on counting in the same domain.
func (p Position) Covers(q Position) bool {
	for _, g := range q.gtids {
		if p.seq(g.Domain) < g.Seq {
			return false
		}
	}
	return true
}

func (p Position) seq(domain uint32) uint64 {
	for _, g := range p.gtids {
		if g.Domain == domain {
			return g.Seq
		}
	}
	return 0
}

// Least returns the newest position that all of ps cover; of none it is the
// beginning.
func Least(ps ...Position) Position {
	if len(ps) == 0 {
		return Position{}
	}
	least := ps[0]
	for _, p := range ps[1:] {
		var gtids []GTID
		for _, g := range least.gtids {
			i := slices.IndexFunc(p.gtids, func(o GTID) bool { return o.Domain == g.Domain })
			if i < 0 {
				continue
			}
			if p.gtids[i].Seq < g.Seq {
				g = p.gtids[i]
			}
			gtids = append(gtids, g)
		}
		least = Position{gtids}
	}
	return least
}
