package mysqlstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/internal/eventually"
	"github.com/octopay/octopay/internal/faultproxy"
	"github.com/octopay/octopay/ordersvc"
	"github.com/octopay/octopay/ordersvc/storetest"
	"github.com/octopay/octopay/shardmap"
)

// Wherever the connection is cut around a packet: one order, made, and no answer that
// says it wasn't. The lane sends the packet a second time, with the same ids; nothing
// below it does.
func cuts(t *testing.T, w *world) {
	for point := faultproxy.BeforePacket; point <= faultproxy.AfterReply; point++ {
		t.Run(point.String(), func(t *testing.T) {
			w := newWorld(t, w.stack)
			all := orders(3, 1, "cut")
			packets := w.packets()
			w.proxy.Arm(point, isPacket)
			results := w.insert(all...)
			if n := w.proxy.Fired(point); n != 1 {
				t.Fatalf("the fault happened %d times", n)
			}
			for i, o := range all {
				w.made(t, o, results[i])
			}
			if sent := packets.all(); len(sent) != 2 || sent[0] != sent[1] {
				t.Errorf("%d packets were sent; want one and the same twice", len(sent))
			}
		})
	}
}

func away(t *testing.T, w *world) {
	first := storetest.Order(storetest.Buyer(5, 1), "first")
	w.made(t, first, w.insert(first)[0]) // there is a connection now
	packets := w.packets()
	w.proxy.Refuse(true)
	if n := w.proxy.CutAll(); n == 0 {
		t.Fatal("nothing was cut")
	}
	eventually.True(t, "the system knows that the connections are over", func() bool { return connected(t, w.proxy.Addr()) == 0 })
	full := w.budget
	w.budget.Settle = time.Second
	o := storetest.Order(storetest.Buyer(5, 1), "away")
	if r := w.insert(o)[0]; !errors.Is(r.Err, cluster.ErrUnavailable) {
		t.Errorf("got %+v, want unavailable", r)
	}
	if n := len(packets.all()); n != 0 {
		t.Errorf("%d packets were sent over a connection that was known to be dead", n)
	}
	w.absent(t, o)
	w.budget = full
	w.proxy.Refuse(false)
	w.made(t, o, w.insert(o)[0])
}

// connected returns to how many connections to an address the other side may still say
// something, as far as this system knows.
func connected(t *testing.T, address string) (n int) {
	t.Helper()
	at := netip.MustParseAddrPort(address)
	ip := at.Addr().As4()
	remote := fmt.Sprintf("%08X:%04X", binary.LittleEndian.Uint32(ip[:]), at.Port())
	text, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	const established = "01"
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); f[2] == remote && f[3] == established {
			n++
		}
	}
	return n
}

// After an attempt of unknown outcome a refused connection doesn't mean "not written".
func awayInFlight(t *testing.T, w *world) {
	w.budget.Settle = 300 * time.Millisecond
	first := storetest.Order(storetest.Buyer(5, 2), "first")
	w.made(t, first, w.insert(first)[0])
	cut := w.proxy.Arm(faultproxy.AfterReply, isPacket)
	w.proxy.Refuse(true) // new connections
	o := storetest.Order(storetest.Buyer(5, 2), "away-in-flight")
	if r := w.insert(o)[0]; !errors.Is(r.Err, ordersvc.ErrUnknown) || errors.Is(r.Err, cluster.ErrUnavailable) {
		t.Errorf("got %+v, want unknown", r)
	}
	<-cut.Done()
	if n := w.count(t, o); n != 1 {
		t.Errorf("the order is stored %d times: the fault did not happen", n)
	}
	w.proxy.Refuse(false)
	eventually.True(t, "one may try again", func() bool { return w.cluster.Database(shardmap.UID, 5).Writable() == nil })
	w.made(t, o, w.insert(o)[0])
}

func killedIdle(t *testing.T, w *world) {
	first := storetest.Order(storetest.Buyer(5, 3), "first")
	w.made(t, first, w.insert(first)[0])
	var id int
	if err := w.creates[4].conn.QueryRowContext(background, "SELECT CONNECTION_ID()").Scan(&id); err != nil {
		t.Fatal(err)
	}
	w.exec(t, fmt.Sprintf("KILL %d", id))
	eventually.True(t, "the connection is gone", func() bool {
		return w.number(t, "SELECT COUNT(*) FROM information_schema.processlist WHERE id = ?", id) == 0
	})
	o := storetest.Order(storetest.Buyer(5, 3), "killed")
	w.made(t, o, w.insert(o)[0])
}

// The packet's answer says that some rows were there, and the connection is cut while
// they are read: it is committed, so only a rerun may answer.
func readBackCut(t *testing.T, w *world) {
	taken := storetest.Order(storetest.Buyer(3, 2), "read-back")
	r := w.insert(taken)
	w.made(t, taken, r[0])
	first := r[0].Order
	packets := w.packets()
	cut := w.proxy.Arm(faultproxy.BeforeReply, faultproxy.Query("FORCE INDEX (place)"))
	again, fresh := storetest.Order(taken.UID, taken.OutTradeNo), storetest.Order(taken.UID, "read-back-fresh")
	r = w.insert(again, fresh)
	<-cut.Done()
	if r[0].Err != nil || !r[0].Taken || r[0].Order != first {
		t.Errorf("got %+v, want %+v taken", r[0], first)
	}
	w.made(t, fresh, r[1])
	if n := len(packets.all()); n != 2 {
		t.Errorf("%d packets, want 2", n)
	}
}
