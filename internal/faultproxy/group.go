package faultproxy

// A Group is those connections of a Proxy whose client has said something.
type Group struct {
	proxy *Proxy
	match func([]byte) bool
	// Under proxy.mu.
	links map[*link]bool // that are open
	held  int            // of those that were
}

// Group returns the connections of which the client says, from now on, what match
// accepts; match is as in Arm.
func (p *Proxy) Group(match func(packet []byte) bool) *Group {
	g := &Group{proxy: p, match: match, links: map[*link]bool{}}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.groups = append(p.groups, g)
	return g
}

// Freeze is Proxy.Freeze, both ways, of the connections of the group that are open now,
// and returns how many they are. Those that come later are not frozen.
func (g *Group) Freeze(on bool) int {
	g.proxy.mu.Lock()
	defer g.proxy.mu.Unlock()
	for l := range g.links {
		l.own.set(func(own *line) { own.frozen = on })
	}
	if on {
		g.proxy.frozen += len(g.links)
	}
	return len(g.links)
}

// Held returns how many packets and ends of its connections waited for the end of a
// Freeze of the group.
func (g *Group) Held() int {
	g.proxy.mu.Lock()
	defer g.proxy.mu.Unlock()
	n := g.held
	for l := range g.links {
		n += l.own.held()
	}
	return n
}

// remove is called under proxy.mu when a link is gone.
func (g *Group) remove(l *link) {
	if g.links[l] {
		g.held += l.own.held()
		delete(g.links, l)
	}
}
