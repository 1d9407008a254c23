// Package faultproxy stands between a client and its server and spoils their
// connections: it delays, throttles or freezes what they say, and cuts them at a chosen
// packet, before the server has it, in its middle, or when the server has it and the
// answer is on its way. It decides only that, and counts what it did, so that a test can
// show that its fault happened.
//
//	client --- packet ---> proxy --- packet ---> server     BeforePacket, InPacket
//	client <--- reply ---- proxy <--- reply ---- server     BeforeReply, InReply, AfterReply
//
// Without a fault it passes everything on. New reads the headers of MySQL's packets, so
// it works only where packets are plain: no TLS, no compression. NewBytes knows nothing
// of what it carries, and works for every protocol.
package faultproxy

import (
	"bufio"
	"net"
	"sync"
	"testing"
	"time"
)

const dialTimeout = 5 * time.Second

// A Proxy accepts connections and carries each to its server. Its methods are safe
// for concurrent use.
type Proxy struct {
	t        testing.TB
	target   string
	listener net.Listener
	read     func(*bufio.Reader) ([]byte, error) // one packet
	command  func(packet []byte) []byte          // of a client's packet what faults match, nil: nothing
	ways     [ways]*line
	work     sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	refusing bool
	armed    []*Fault
	groups   []*Group
	fired    [points]int
	accepted int
	frozen   int
	links    map[*link]bool
}

// New starts a proxy to the MySQL server at target on a free loopback port. It is
// closed at t's end.
func New(t testing.TB, target string) *Proxy {
	t.Helper()
	return start(t, &Proxy{target: target, read: readPacket, command: command})
}

// NewBytes is New for a server of any protocol. A packet is then what one read from a
// connection returns, at most 32 KiB: often what the other side wrote at once, but a
// part of it or more than that as well.
func NewBytes(t testing.TB, target string) *Proxy {
	t.Helper()
	return start(t, &Proxy{target: target, read: readChunk, command: func(chunk []byte) []byte { return chunk }})
}

func start(t testing.TB, p *Proxy) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.t, p.listener, p.links = t, l, map[*link]bool{}
	for w := range p.ways {
		p.ways[w] = &line{changed: make(chan struct{})}
	}
	p.work.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Addr returns the proxy's host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Accepted returns how many connections were accepted and carried to the server.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Refuse makes the proxy close new connections at once, as if the server were away,
// until it is called with false.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = on
}

// Freeze makes the proxy pass nothing and close nothing, as when the network is parted
// or the other side stands still, until it is called with false: then everything that
// was said meanwhile passes. New connections are accepted, and get nothing. Without ways
// it is both. What is being written when it is called may still arrive.
func (p *Proxy) Freeze(on bool, ways ...Way) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.isFrozen()
	p.set(ways, func(l *line) { l.frozen = on })
	if !was && p.isFrozen() {
		p.frozen += len(p.links)
	}
}

// Delay makes every packet arrive that much later than it would, until it is called
// with 0. Packets wait beside each other: it costs time, not bandwidth. Without ways it
// is both.
func (p *Proxy) Delay(by time.Duration, ways ...Way) { p.set(ways, func(l *line) { l.delay = by }) }

// Throttle passes at most so many bytes per second each way, of all connections
// together, until it is called with 0. Without ways it is both.
func (p *Proxy) Throttle(bytesPerSecond int, ways ...Way) {
	p.set(ways, func(l *line) { l.rate, l.free = bytesPerSecond, time.Time{} })
}

func (p *Proxy) set(ways []Way, change func(*line)) {
	if len(ways) == 0 {
		ways = []Way{ToServer, ToClient}
	}
	for _, w := range ways {
		p.ways[w].set(change)
	}
}

// isFrozen reports whether anything is frozen. p.mu is held.
func (p *Proxy) isFrozen() bool { return p.ways[ToServer].isFrozen() || p.ways[ToClient].isFrozen() }

// Frozen returns how many connections met a freeze: they were there when it began, or
// came before it ended, or were frozen as a Group.
func (p *Proxy) Frozen() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.frozen
}

// Traffic returns what was carried one way.
func (p *Proxy) Traffic(w Way) Traffic {
	l := p.ways[w]
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.traffic
}

// CutAll cuts every connection now, frozen or not, and returns how many there were.
func (p *Proxy) CutAll() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.cut()
	}
	return len(p.links)
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.CutAll()
	p.work.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.work.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	l := &link{
		proxy: p, client: client, own: &line{changed: make(chan struct{})},
		gone: make(chan struct{}), drained: make(chan struct{}),
	}
	defer l.cut()
	if !p.add(l) {
		return
	}
	defer p.remove(l)
	if !l.ready(ToServer, time.Time{}) {
		return
	}
	server, err := net.DialTimeout("tcp", p.target, dialTimeout)
	if err != nil {
		return
	}
	if !p.carry(l, server.(*net.TCPConn)) {
		_ = server.Close()
		return
	}
	l.run()
}

// add takes a new connection in.
func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.refusing {
		return false
	}
	if p.isFrozen() {
		p.frozen++
	}
	p.links[l] = true
	return true
}

// carry gives a link its server, unless it was cut or refused meanwhile.
func (p *Proxy) carry(l *link, server *net.TCPConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.refusing || l.isGone() {
		return false
	}
	l.server = server
	p.accepted++
	return true
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
	for _, g := range p.groups {
		g.remove(l)
	}
}
