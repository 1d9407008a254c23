package faultproxy_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/faultproxy"
)

// An echo is a server that says everything back, and knows who has ended.
type echo struct {
	addr string

	mu    sync.Mutex
	ended int
}

func newEcho(t *testing.T) *echo {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &echo{addr: l.Addr().String()}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				_, _ = io.Copy(c, c)
				e.mu.Lock()
				e.ended++
				e.mu.Unlock()
				_ = c.Close()
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); work.Wait() })
	return e
}

func (e *echo) ends() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ended
}

func dial(t *testing.T, p *faultproxy.Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func say(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, c net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if err := c.SetReadDeadline(time.Now().Add(eventually.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("heard %q, %v; want %q", got, err, want)
	}
}

// silent reads for a moment and finds nothing, not even an end.
func silent(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v", n, err)
	}
}

// By how much is the line's law, which is tested without a clock.
func TestADelayedPacketComesLater(t *testing.T) {
	p := faultproxy.NewBytes(t, newEcho(t).addr)
	c := dial(t, p)
	for _, k := range []struct {
		ways    []faultproxy.Way
		to, fro int // packets delayed
	}{
		{ways: []faultproxy.Way{faultproxy.ToServer}, to: 1},
		{ways: []faultproxy.Way{faultproxy.ToClient}, fro: 1},
		{to: 1, fro: 1},
	} {
		to, fro := p.Traffic(faultproxy.ToServer), p.Traffic(faultproxy.ToClient)
		p.Delay(time.Hour, k.ways...)
		say(t, c, "x")
		for _, w := range []struct {
			way          faultproxy.Way
			delayed, was int
		}{{faultproxy.ToServer, k.to, to.Delayed}, {faultproxy.ToClient, k.fro, fro.Delayed}} {
			if w.delayed == 0 {
				continue
			}
			eventually.True(t, "the packet waits", func() bool { return p.Traffic(w.way).Delayed == w.was+w.delayed })
			silent(t, c)
			p.Delay(0, w.way)
		}
		hear(t, c, "x")
		say(t, c, "y")
		hear(t, c, "y")
		to2, fro2 := p.Traffic(faultproxy.ToServer), p.Traffic(faultproxy.ToClient)
		if to2.Delayed-to.Delayed != k.to || fro2.Delayed-fro.Delayed != k.fro {
			t.Errorf("%v: %+v and %+v, before %+v and %+v", k.ways, to2, fro2, to, fro)
		}
		if to2.Bytes-to.Bytes != 2 || to2.Packets-to.Packets != 2 {
			t.Errorf("2 packets of a byte were counted from %+v to %+v", to, to2)
		}
	}
}

func TestAFrozenProxyPassesNothingAndClosesNothing(t *testing.T) {
	server := newEcho(t)
	p := faultproxy.NewBytes(t, server.addr)
	first, leaver := dial(t, p), dial(t, p)
	for _, c := range []net.Conn{first, leaver} {
		say(t, c, "before")
		hear(t, c, "before")
	}
	p.Freeze(true)
	say(t, first, "within")
	silent(t, first)
	if err := leaver.Close(); err != nil {
		t.Fatal(err)
	}
	newcomer := dial(t, p)
	say(t, newcomer, "hello")
	silent(t, newcomer)
	eventually.True(t, "three connections meet the freeze", func() bool { return p.Frozen() == 3 })
	eventually.True(t, "a packet, an end and a beginning wait", func() bool { return p.Traffic(faultproxy.ToServer).Held == 3 })
	if server.ends() != 0 || p.Accepted() != 2 || p.Traffic(faultproxy.ToServer).Bytes != 12 {
		t.Errorf("%d ends, %d connections, %+v", server.ends(), p.Accepted(), p.Traffic(faultproxy.ToServer))
	}
	p.Freeze(false)
	hear(t, first, "within")
	hear(t, newcomer, "hello")
	eventually.True(t, "the end comes", func() bool { return server.ends() == 1 })
	if p.Accepted() != 3 || p.Frozen() != 3 {
		t.Errorf("%d connections, %d frozen", p.Accepted(), p.Frozen())
	}
}

// What the server hears, the client doesn't learn.
func TestOneWayFrozen(t *testing.T) {
	p := faultproxy.NewBytes(t, newEcho(t).addr)
	c := dial(t, p)
	p.Freeze(true, faultproxy.ToClient)
	say(t, c, "x")
	eventually.True(t, "the answer waits", func() bool { return p.Traffic(faultproxy.ToClient).Held == 1 })
	silent(t, c)
	if n := p.Traffic(faultproxy.ToServer).Bytes; n != 1 {
		t.Errorf("%d bytes reached the server", n)
	}
	p.Freeze(false, faultproxy.ToClient)
	hear(t, c, "x")
}

// Of a group those connections are frozen that are there and have said what it is about.
func TestAGroupFrozen(t *testing.T) {
	server := newEcho(t)
	p := faultproxy.NewBytes(t, server.addr)
	before := dial(t, p)
	say(t, before, "log")
	hear(t, before, "log")
	group := p.Group(func(packet []byte) bool { return bytes.Contains(packet, []byte("log")) })
	if n := group.Freeze(true); n != 0 {
		t.Errorf("%d connections have said it since, want 0", n)
	}
	group.Freeze(false)
	one, other := dial(t, p), dial(t, p)
	say(t, one, "the log")
	hear(t, one, "the log")
	say(t, other, "data")
	hear(t, other, "data")
	if n := group.Freeze(true); n != 1 || p.Frozen() != 1 {
		t.Errorf("%d connections are frozen, %d by the proxy, want 1", n, p.Frozen())
	}
	later := dial(t, p)
	for _, c := range []net.Conn{before, other, later} {
		say(t, c, "log again")
		hear(t, c, "log again")
	}
	if n := group.Held(); n != 0 {
		t.Errorf("%d packets were held of one that said nothing", n)
	}
	say(t, one, "within")
	silent(t, one)
	eventually.True(t, "its packet waits", func() bool { return group.Held() == 1 })
	if n := p.Traffic(faultproxy.ToServer).Held + p.Traffic(faultproxy.ToClient).Held; n != 0 {
		t.Errorf("%d packets of all are held", n)
	}
	if n := group.Freeze(false); n != 4 {
		t.Errorf("%d connections have said it, want 4", n)
	}
	hear(t, one, "within")
	// One that is gone is counted with what was held of it, and frozen no more.
	group.Freeze(true)
	say(t, one, "last")
	eventually.True(t, "its packet waits", func() bool { return group.Held() == 2 })
	p.CutAll()
	eventually.True(t, "nobody is left", func() bool { return group.Freeze(false) == 0 })
	if n := group.Held(); n < 2 {
		t.Errorf("%d packets were held, want 2", n)
	}
}

func TestAFrozenStatementRunsWhenItIsThawed(t *testing.T) {
	b := newBench(t)
	conn, _ := b.conn(t)
	b.proxy.Freeze(true)
	answer := make(chan error, 1)
	go func() {
		_, err := conn.ExecContext(t.Context(), "INSERT INTO "+b.table+" VALUES (1)")
		answer <- err
	}()
	eventually.True(t, "the statement waits", func() bool { return b.proxy.Traffic(faultproxy.ToServer).Held == 1 })
	if n := b.count(t, b.table); n != 0 {
		t.Error("it ran")
	}
	b.proxy.Freeze(false)
	if err := <-answer; err != nil {
		t.Fatal(err)
	}
	if n := b.count(t, b.table); n != 1 {
		t.Errorf("%d rows", n)
	}
}

// How long it takes is the line's law, which is tested without a clock.
func TestAThrottledProxyPassesEverythingInOrder(t *testing.T) {
	p := faultproxy.NewBytes(t, newEcho(t).addr)
	c := dial(t, p)
	const rate, size = 1 << 20, 256 << 10
	sent := make([]byte, size)
	for i := range sent {
		sent[i] = byte(i * i >> 8)
	}
	p.Throttle(1, faultproxy.ToServer)
	go func() { _, _ = c.Write(sent) }()
	eventually.True(t, "it waits", func() bool { return p.Traffic(faultproxy.ToServer).Slowed > 0 })
	p.Throttle(rate, faultproxy.ToServer)
	got := make([]byte, size)
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("came back changed, %v", err)
	}
	if n := p.Traffic(faultproxy.ToServer); n.Slowed == 0 || n.Bytes != size {
		t.Errorf("%+v", n)
	}
	if n := p.Traffic(faultproxy.ToClient); n.Slowed != 0 || n.Bytes != size {
		t.Errorf("the other way: %+v", n)
	}
}

// A proxy ends with its test, whatever it holds.
func TestAProxyEndsWhateverIsWrong(t *testing.T) {
	server := newEcho(t)
	for name, spoil := range map[string]func(*faultproxy.Proxy){
		"frozen":    func(p *faultproxy.Proxy) { p.Freeze(true) },
		"throttled": func(p *faultproxy.Proxy) { p.Throttle(1) },
		"delayed":   func(p *faultproxy.Proxy) { p.Delay(time.Hour) },
	} {
		var over []net.Conn
		t.Run(name, func(t *testing.T) {
			p := faultproxy.NewBytes(t, server.addr)
			for range 3 {
				c, err := net.Dial("tcp", p.Addr())
				if err != nil {
					t.Fatal(err)
				}
				over = append(over, c)
				say(t, c, "before")
				hear(t, c, "before")
			}
			spoil(p)
			for _, c := range over {
				say(t, c, "within")
			}
			eventually.True(t, "they wait", func() bool {
				n := p.Traffic(faultproxy.ToServer)
				return n.Held+n.Slowed+n.Delayed >= len(over)
			})
		})
		for _, c := range over {
			if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: a connection lives on", name)
			}
			_ = c.Close()
		}
	}
}

func TestACutGoesThroughAFreeze(t *testing.T) {
	p := faultproxy.NewBytes(t, newEcho(t).addr)
	first := dial(t, p)
	say(t, first, "x")
	hear(t, first, "x")
	p.Freeze(true)
	newcomer := dial(t, p)
	eventually.True(t, "both are frozen", func() bool { return p.Frozen() == 2 })
	if n := p.CutAll(); n != 2 {
		t.Errorf("%d connections cut, want 2", n)
	}
	for _, c := range []net.Conn{first, newcomer} {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("a cut connection says something")
		}
	}
	if p.Accepted() != 1 {
		t.Errorf("%d connections reached the server", p.Accepted())
	}
}

func TestAnyProtocolIsCut(t *testing.T) {
	p := faultproxy.NewBytes(t, newEcho(t).addr)
	for _, k := range []struct {
		point faultproxy.Point
		heard string
	}{
		{faultproxy.BeforePacket, ""},
		{faultproxy.BeforeReply, ""},
		{faultproxy.InReply, "0123456"},
	} {
		c := dial(t, p)
		f := p.Arm(k.point, func(packet []byte) bool { return bytes.HasPrefix(packet, []byte("0")) })
		say(t, c, "1")
		hear(t, c, "1")
		say(t, c, "0123456789")
		heard, _ := io.ReadAll(c)
		select {
		case <-f.Done():
		default:
			t.Errorf("%s: the client noticed a cut that is not reported", k.point)
		}
		if string(heard) != k.heard || p.Fired(k.point) != 1 {
			t.Errorf("%s: heard %q, want %q; %d faults", k.point, heard, k.heard, p.Fired(k.point))
		}
	}
}
