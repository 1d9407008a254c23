package faultproxy

import (
	"bufio"
	"iter"
	"net"
	"sync"
	"time"
)

// placesMax bounds what of one connection is on its way in one direction: each packet
// takes a place for every chunkMax bytes that it has or begins. So it is at most 32 MiB in
// 1024 packets; more waits in the kernel's buffers.
const placesMax = 1024

// A link is one client's connection and the server's that belongs to it.
type link struct {
	proxy   *Proxy
	client  net.Conn
	server  *net.TCPConn  // nil until it is carried; written under proxy.mu
	gone    chan struct{} // closed by cut
	once    sync.Once
	drained chan struct{} // closed when the server says nothing more
	own     *line         // both ways of this link alone, see Group

	mu       sync.Mutex
	fault    *Fault // one of the replies'; from then on nothing is passed on by itself
	answered bool   // the server began to reply to fault's packet; read after drained
}

// cut closes both ends at once.
func (l *link) cut() {
	l.once.Do(func() { close(l.gone) })
	_ = l.client.Close()
	if l.server != nil {
		_ = l.server.Close()
	}
}

func (l *link) isGone() bool {
	select {
	case <-l.gone:
		return true
	default:
		return false
	}
}

// run carries what both say, until both have ended.
func (l *link) run() {
	var work sync.WaitGroup
	commands, replies := newQueue(), newQueue()
	work.Go(func() { l.read(l.client, commands) })
	work.Go(func() { l.read(l.server, replies) })
	work.Go(func() { l.replies(replies) })
	l.commands(commands)
	<-l.drained
	l.cut()
	work.Wait()
}

// An arrival is a packet and when it came.
type arrival struct {
	packet []byte
	came   time.Time
}

// places returns how many places of a queue a takes: of one that is empty, no more than
// there are.
func (a arrival) places() int {
	return min(max((len(a.packet)+chunkMax-1)/chunkMax, 1), placesMax)
}

// A queue is what is on its way in one direction of a link. One puts into it, and one
// takes out of it.
type queue struct {
	arrivals chan arrival // has room for all that have a place
	places   chan struct{}
}

func newQueue() *queue {
	return &queue{make(chan arrival, placesMax), make(chan struct{}, placesMax)}
}

// put waits for room; false: the link is gone before.
func (q *queue) put(gone <-chan struct{}, a arrival) bool {
	for range a.places() {
		select {
		case q.places <- struct{}{}:
		case <-gone:
			return false
		}
	}
	q.arrivals <- a
	return true
}

// all yields what is put, until the queue ends.
func (q *queue) all() iter.Seq[arrival] {
	return func(yield func(arrival) bool) {
		for a := range q.arrivals {
			for range a.places() {
				<-q.places
			}
			if !yield(a) {
				return
			}
		}
	}
}

// end says that nothing more is put.
func (q *queue) end() { close(q.arrivals) }

// read hands on what one side says, and ends out at its end.
func (l *link) read(from net.Conn, out *queue) {
	defer out.end()
	in := bufio.NewReaderSize(from, chunkMax)
	for {
		packet, err := l.proxy.read(in)
		if err != nil || !out.put(l.gone, arrival{packet, time.Now()}) {
			return
		}
	}
}

// ready waits until what came at a time may pass one way; false: the link is gone before.
func (l *link) ready(w Way, came time.Time) bool {
	return l.proxy.ways[w].ready(l.gone, came) && l.own.ready(l.gone, time.Time{})
}

func (l *link) toServer(packet []byte) error {
	return l.proxy.ways[ToServer].pass(l.gone, l.server, packet)
}

func (l *link) toClient(packet []byte) error {
	return l.proxy.ways[ToClient].pass(l.gone, l.client, packet)
}

// commands carries what the client sends, until either end is closed or a fault
// happens.
func (l *link) commands(in *queue) {
	for a := range in.all() {
		if !l.ready(ToServer, a.came) {
			return
		}
		var f *Fault
		if c := l.proxy.command(a.packet); c != nil {
			f = l.proxy.take(l, c)
		}
		switch {
		case f == nil:
			if l.toServer(a.packet) != nil {
				l.cut()
				return
			}
		case f.point == BeforePacket:
			l.proxy.report(f)
			l.cut()
			return
		case f.point == InPacket:
			_ = l.toServer(half(a.packet))
			l.proxy.report(f)
			l.cut()
			return
		default:
			l.lose(f, a.packet)
			return
		}
	}
	// The client's end, passed on as such: the server reads what was sent before it,
	// which a full close could throw away with a reset.
	if l.ready(ToServer, time.Time{}) {
		_ = l.server.CloseWrite()
	}
}

// lose sends the packet and lets the answer be lost.
func (l *link) lose(f *Fault, packet []byte) {
	l.mu.Lock()
	l.fault = f
	l.mu.Unlock()
	if l.toServer(packet) != nil {
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
func (l *link) replies(in *queue) {
	defer close(l.drained)
	for a := range in.all() {
		if !l.ready(ToClient, a.came) {
			return
		}
		l.mu.Lock()
		f := l.fault
		l.mu.Unlock()
		if f == nil {
			if l.toClient(a.packet) != nil {
				l.cut()
				return
			}
			continue
		}
		l.answered = true
		if f.point == InReply {
			_ = l.toClient(half(a.packet))
			l.proxy.report(f)
			_ = l.client.Close()
			_ = l.server.CloseWrite()
		}
		for range in.all() { // until the server is done
		}
		return
	}
	if l.ready(ToClient, time.Time{}) {
		_ = l.client.Close() // wakes commands, which end the server's side
	}
}
