package faultproxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
)

// A Point says where a connection is cut.
type Point int

const (
	// BeforePacket cuts when the server has nothing of the packet. It does not run.
	BeforePacket Point = iota
	// InPacket cuts when the server has the first half of the packet. It does not run; of
	// bytes, what is whole in that half may.
	InPacket
	// BeforeReply cuts the client off as soon as the server has been sent the packet,
	// while it may be at work, or waiting for a lock. It runs.
	BeforeReply
	// InReply cuts when the client has the first half of the reply's first packet. It
	// runs; of several statements in the packet perhaps only the first has by then.
	InReply
	// AfterReply cuts when the server has run all of the packet and answered; the
	// client gets nothing of the answer. It is for MySQL, whose server answers a client
	// that has said its last.
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

// Query returns a match for the statements whose text holds part.
func Query(part string) func([]byte) bool {
	return func(packet []byte) bool {
		return packet[0] == comQuery && bytes.Contains(packet[1:], []byte(part))
	}
}

// A Fault is one cut that will happen once.
type Fault struct {
	point Point
	match func([]byte) bool
	done  chan struct{}
}

// Done is closed when the connection is being cut: before the client can notice.
func (f *Fault) Done() <-chan struct{} { return f.done }

// Arm sets a fault for the first packet, on any connection, that match accepts. It
// happens once. Of MySQL, match sees a command as the client sent it, the command's byte
// first, and nothing of the logging in; otherwise it sees all that clients say. It must
// not call the proxy. A packet meets the faults in the order in which they were armed. A
// fault that finds its server gone does not happen and isn't counted. A point that there
// isn't fails the test, and nobody need wait for its fault.
func (p *Proxy) Arm(point Point, match func(packet []byte) bool) *Fault {
	p.t.Helper()
	f := &Fault{point: point, match: match, done: make(chan struct{})}
	if point < 0 || point >= points {
		p.t.Errorf("faultproxy: there is no %s", point)
		close(f.done)
		return f
	}
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

// take returns the armed fault that a command of l meets, and disarms it. A group that
// the command belongs to takes l in.
func (p *Proxy) take(l *link, command []byte) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.groups {
		if g.match(command) {
			g.links[l] = true
		}
	}
	for i, f := range p.armed {
		if f.match(command) {
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

const (
	headerSize = 4 // of MySQL's packets: three bytes of length, one of sequence
	comQuery   = 3
	chunkMax   = 32 << 10
)

// readPacket reads one packet of MySQL, header included: at most 16 MiB.
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

// command returns the command in a packet of MySQL, nil if it is none: commands begin a
// new count; what belongs to logging in goes on counting.
func command(packet []byte) []byte {
	if packet[3] != 0 || len(packet) == headerSize {
		return nil
	}
	return packet[headerSize:]
}

// readChunk reads what has come.
func readChunk(in *bufio.Reader) ([]byte, error) {
	if _, err := in.Peek(1); err != nil {
		return nil, err
	}
	chunk := make([]byte, in.Buffered())
	_, err := io.ReadFull(in, chunk)
	return chunk, err
}

// half returns the first half of a packet: the header and half of the rest, if it is one
// of MySQL.
func half(packet []byte) []byte {
	return packet[:(len(packet)+min(len(packet), headerSize))/2]
}
