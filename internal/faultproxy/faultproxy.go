// Package faultproxy stands between a MySQL client and its server and cuts their
// connection at a chosen packet: before the server has it, in its middle, or when the
// server has it and the answer is on its way. It decides only where a connection is
// cut, and counts what it did, so that a test can show that its fault happened.
//
//	client --- packet ---> proxy --- packet ---> server     BeforePacket, InPacket
//	client <--- reply ---- proxy <--- reply ---- server     BeforeReply, InReply, AfterReply
//
// Without a fault it passes everything on. It reads the headers of packets, so it
// works only where packets are plain: no TLS, no compression.
package faultproxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// A Point says where a connection is cut.
type Point int

const (
	// BeforePacket cuts when the server has nothing of the packet. It does not run.
	BeforePacket Point = iota
	// InPacket cuts when the server has the first half of the packet. It does not run.
	InPacket
	// BeforeReply cuts the client off as soon as the server has been sent the packet,
	// while it may be at work, or waiting for a lock. It runs.
	BeforeReply
	// InReply cuts when the client has the first half of the reply's first packet. It
	// runs; of several statements in the packet perhaps only the first has by then.
	InReply
	// AfterReply cuts when the server has run all of the packet and answered; the
	// client gets nothing of the answer.
	AfterReply

	points
)

var pointNames = [points]string{"before the packet", "in the packet", "before the reply", "in the reply", "after the reply"}

func (p Point) String() string {
	if p < 0 || p >= points {
		return fmt.Sprintf("Point(%d)", int(p))
	}
	return pointNames[p]
}

const (
	headerSize  = 4 // three bytes of length, one of sequence
	comQuery    = 3
	dialTimeout = 5 * time.Second
)

// Query returns a match for the statements whose text holds part.
func Query(part string) func([]byte) bool {
	return func(packet []byte) bool {
		return packet[0] == comQuery && bytes.Contains(packet[1:], []byte(part))
	}
}

// A Proxy accepts connections and carries each to its server. Its methods are safe
// for concurrent use.
type Proxy struct {
	target   string
	listener net.Listener
	work     sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	refusing bool
	armed    []*Fault
	fired    [points]int
	accepted int
	links    map[*link]bool
}

// A Fault is one cut that will happen once.
type Fault struct {
	point Point
	match func([]byte) bool
	done  chan struct{}
}

// Done is closed when the connection is being cut: before the client can notice.
func (f *Fault) Done() <-chan struct{} { return f.done }

// New starts a proxy to the server at target on a free loopback port. It is closed
// at t's end.
func New(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{target: target, listener: l, links: map[*link]bool{}}
	p.work.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Addr returns the proxy's host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Arm sets a fault for the first packet, on any connection, that match accepts. It
// happens once. match sees a command as the client sent it, the command's byte first,
// and nothing of the logging in; it must not call the proxy. A packet meets the faults
// in the order in which they were armed. A fault that finds its server gone does not
// happen and isn't counted.
func (p *Proxy) Arm(point Point, match func(packet []byte) bool) *Fault {
	if point < 0 || point >= points {
		panic("faultproxy: no such point")
	}
	f := &Fault{point: point, match: match, done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = append(p.armed, f)
	return f
}

// Fired returns how many faults of this point have happened.
func (p *Proxy) Fired(point Point) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fired[point]
}

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

// CutAll cuts every connection now, and returns how many there were.
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

// take returns the armed fault that a command meets, and disarms it.
func (p *Proxy) take(packet []byte) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, f := range p.armed {
		if f.match(packet) {
			p.armed = append(p.armed[:i:i], p.armed[i+1:]...)
			return f
		}
	}
	return nil
}

// report counts f as done.
func (p *Proxy) report(f *Fault) {
	p.mu.Lock()
	p.fired[f.point]++
	p.mu.Unlock()
	close(f.done)
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
	defer func() { _ = client.Close() }()
	p.mu.Lock()
	refuse := p.refusing || p.closed
	p.mu.Unlock()
	if refuse {
		return
	}
	server, err := net.DialTimeout("tcp", p.target, dialTimeout)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	l := &link{proxy: p, client: client, server: server.(*net.TCPConn), drained: make(chan struct{})}
	if !p.add(l) {
		return
	}
	defer p.remove(l)
	go l.replies()
	l.commands()
	<-l.drained
}

func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.refusing {
		return false
	}
	p.accepted++
	p.links[l] = true
	return true
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// A link is one client's connection and the server's that belongs to it.
type link struct {
	proxy   *Proxy
	client  net.Conn
	server  *net.TCPConn
	drained chan struct{} // closed when the server says nothing more

	mu       sync.Mutex
	fault    *Fault // one of the replies'; from then on nothing is passed on by itself
	answered bool   // the server began to reply to fault's packet; read after drained
}

// cut closes both ends at once.
func (l *link) cut() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// commands carries what the client sends, until either end is closed or a fault
// happens.
func (l *link) commands() {
	in := bufio.NewReader(l.client)
	for {
		packet, err := readPacket(in)
		if err != nil {
			// The client's end, passed on as such: the server reads what was sent before
			// it, which a full close could throw away with a reset.
			_ = l.server.CloseWrite()
			return
		}
		// Commands begin a new count; what belongs to logging in goes on counting.
		var f *Fault
		if packet[3] == 0 && len(packet) > headerSize {
			f = l.proxy.take(packet[headerSize:])
		}
		switch {
		case f == nil:
			if _, err := l.server.Write(packet); err != nil {
				l.cut()
				return
			}
		case f.point == BeforePacket:
			l.proxy.report(f)
			l.cut()
			return
		case f.point == InPacket:
			_, _ = l.server.Write(packet[:headerSize+(len(packet)-headerSize)/2])
			l.proxy.report(f)
			l.cut()
			return
		default:
			l.lose(f, packet)
			return
		}
	}
}

// lose sends the packet and lets the answer be lost.
func (l *link) lose(f *Fault, packet []byte) {
	l.mu.Lock()
	l.fault = f
	l.mu.Unlock()
	if _, err := l.server.Write(packet); err != nil {
		l.cut() // not what was asked for, so it isn't counted
		return
	}
	if f.point == BeforeReply {
		l.proxy.report(f)
		_ = l.client.Close()
	}
	if f.point != InReply {
		// The server closes when it is done with the packet.
		_ = l.server.CloseWrite()
	}
	if f.point == AfterReply {
		<-l.drained
		if l.answered {
			l.proxy.report(f)
		}
		_ = l.client.Close()
	}
}

// replies carries what the server sends.
func (l *link) replies() {
	defer close(l.drained)
	in := bufio.NewReader(l.server)
	var header [headerSize]byte
	for {
		if _, err := io.ReadFull(in, header[:]); err != nil {
			_ = l.client.Close() // wakes commands, which end the server's side
			return
		}
		size := int64(header[0]) | int64(header[1])<<8 | int64(header[2])<<16
		l.mu.Lock()
		f := l.fault
		l.mu.Unlock()
		if f == nil {
			_, err := l.client.Write(header[:])
			if err == nil {
				_, err = io.CopyN(l.client, in, size)
			}
			if err != nil {
				l.cut()
				return
			}
			continue
		}
		l.answered = true
		if f.point == InReply {
			_, _ = l.client.Write(header[:])
			_, _ = io.CopyN(l.client, in, size/2)
			l.proxy.report(f)
			_ = l.client.Close()
			_ = l.server.CloseWrite()
		}
		_, _ = io.Copy(io.Discard, in) // until the server is done
		return
	}
}

// readPacket reads one packet, header included: at most 16 MiB.
func readPacket(in *bufio.Reader) ([]byte, error) {
	header, err := in.Peek(headerSize)
	if err != nil {
		return nil, err
	}
	size := headerSize + int(header[0]) + int(header[1])<<8 + int(header[2])<<16
	packet := make([]byte, size)
	if _, err := io.ReadFull(in, packet); err != nil {
		return nil, err
	}
	return packet, nil
}
