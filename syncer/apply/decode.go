package apply

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/mirrorpb"
	"github.com/octopay/octopay/syncer/source"
	"github.com/octopay/octopay/syncer/stream"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// reasonMax bounds the reason of a dead letter; the column has 256 characters.
const reasonMax = 256

// A gatherer makes a Change of messages. It is pure.
type gatherer struct {
	m           *shardmap.Map
	database    int
	incarnation string
	servers     map[string]bool // whose marks count: the map's

	orders  map[rowKey]Order
	entries map[rowKey]Entry
	letters []Letter
	marks   map[string]stream.Mark
	to      Progress
	rows    int // rows seen, for bounding
	bytes   int
	skipped int                        // rows of the group's other databases
	foreign bool                       // there was a mark of another incarnation
	from    map[string]source.Position // where the stream begins in a server's history
}

// A rowKey tells rows apart: those of one order from those of another that has its id.
type rowKey struct{ order, seq, uid, bid int64 }

func (k rowKey) compare(o rowKey) int {
	return cmp.Or(cmp.Compare(k.order, o.order), cmp.Compare(k.seq, o.seq), cmp.Compare(k.uid, o.uid), cmp.Compare(k.bid, o.bid))
}

func newGatherer(m *shardmap.Map, database int, incarnation string) *gatherer {
	servers := map[string]bool{}
	for _, s := range m.Servers(shardmap.UID) {
		servers[s.Name] = true
	}
	return &gatherer{
		m: m, database: database, incarnation: incarnation, servers: servers,
		orders: map[rowKey]Order{}, entries: map[rowKey]Entry{}, marks: map[string]stream.Mark{},
		from: map[string]source.Position{},
	}
}

// empty reports whether only marks were gathered.
func (g *gatherer) empty() bool { return g.rows == 0 && len(g.letters) == 0 }

// add takes one message in.
func (g *gatherer) add(m stream.Message) {
	switch {
	case m.Mark == nil:
		g.bytes += len(m.Data)
		g.message(Origin{Seq: m.Seq, Item: -1, Subject: m.Subject, Payload: m.Data})
	case m.Incarnation == g.incarnation:
		if g.servers[m.Mark.Server] {
			g.marks[m.Mark.Server] = *m.Mark
			if !m.Mark.From.IsZero() {
				g.from[m.Mark.Server] = m.Mark.From
			}
		}
	default:
		g.foreign = true
	}
	g.to = Progress{Incarnation: g.incarnation, Seq: m.Seq, StoredAt: m.StoredAt}
}

// lacks returns a server whose rows begin, in the stream, behind what a database with
// these marks has: what lies between is neither there nor will it come.
func (g *gatherer) lacks(marks map[string]stream.Mark) (server string, ok bool) {
	for server, from := range g.from {
		if !marks[server].Position.Covers(from) {
			return server, true
		}
	}
	return "", false
}

func (g *gatherer) letter(o Origin, reason string) {
	g.letters = append(g.letters, letter(g.incarnation, o, reason))
}

func letter(incarnation string, o Origin, reason string) Letter {
	if r := []rune(reason); len(r) > reasonMax {
		reason = string(r[:reasonMax])
	}
	return Letter{
		LetterKey: LetterKey{Incarnation: incarnation, Seq: o.Seq, Item: o.Item},
		Subject:   o.Subject, Reason: reason, Payload: o.Payload,
	}
}

// message takes in a message of rows. One row that is poison doesn't spoil its
// neighbours; framing that is broken spoils the message.
func (g *gatherer) message(o Origin) {
	rows, err := split(o.Payload)
	if err != nil {
		g.letter(o, err.Error())
		return
	}
	for i, raw := range rows {
		g.rows++
		g.row(Origin{Seq: o.Seq, Item: i, Subject: o.Subject, Payload: raw})
	}
}

func (g *gatherer) row(o Origin) {
	r, err := decodeRow(o.Payload)
	if err != nil {
		g.letter(o, err.Error())
		return
	}
	switch ours, err := g.owns(r.bid); {
	case err != nil:
		g.letter(o, err.Error())
	case !ours:
		g.skipped++
	case r.broken != "":
		g.letter(o, r.broken)
	case r.order != nil:
		key := rowKey{r.order.ID, 0, r.order.UID, r.order.BID}
		if old, ok := g.orders[key]; !ok || r.order.Ver > old.Ver {
			g.orders[key] = Order{*r.order, o}
		}
	default:
		g.entries[rowKey{r.entry.OrderID, r.entry.Seq, r.entry.UID, r.entry.BID}] = Entry{*r.entry, o}
	}
}

// owns reports whether the rows of bid are this database's; that they are of another
// group is an error. bid 0, of a row in which even that is unreadable, is everybody's.
func (g *gatherer) owns(bid int64) (bool, error) {
	if bid == 0 {
		return true, nil
	}
	if mirrorpb.Group(bid) != mirrorpb.GroupOfDatabase(g.database) {
		return false, errors.New("bid belongs to another group")
	}
	return g.m.Locate(bid).Database == g.database, nil
}

// change returns what was gathered as one transaction that begins at from.
func (g *gatherer) change(from Progress) *Change {
	c := &Change{From: from, To: g.to, Letters: g.letters}
	for _, o := range g.orders {
		c.Orders = append(c.Orders, o)
	}
	for _, e := range g.entries {
		c.Entries = append(c.Entries, e)
	}
	for _, m := range g.marks {
		c.Marks = append(c.Marks, m)
	}
	// Whoever locks rows of several keys locks them in one order.
	slices.SortFunc(c.Orders, func(a, b Order) int {
		return rowKey{a.ID, 0, a.UID, a.BID}.compare(rowKey{b.ID, 0, b.UID, b.BID})
	})
	slices.SortFunc(c.Entries, func(a, b Entry) int {
		return rowKey{a.OrderID, a.Seq, a.UID, a.BID}.compare(rowKey{b.OrderID, b.Seq, b.UID, b.BID})
	})
	slices.SortFunc(c.Marks, func(a, b stream.Mark) int { return cmp.Compare(a.Server, b.Server) })
	return c
}

// A decoded row is an order, an entry, or broken (then that is why).
type decoded struct {
	bid    int64 // 0 only if broken
	order  *schema.Order
	entry  *schema.Entry
	broken string
}

// split cuts a mirrorpb.Rows message into the wire forms of its rows.
func split(data []byte) ([][]byte, error) {
	const rowsField = 2
	var rows [][]byte
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return nil, errors.New("undecodable message")
		}
		data = data[n:]
		if number == rowsField && kind == protowire.BytesType {
			row, n := protowire.ConsumeBytes(data)
			if n < 0 {
				return nil, errors.New("undecodable message")
			}
			rows = append(rows, row)
			data = data[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(number, kind, data); n < 0 {
			return nil, errors.New("undecodable message")
		}
		data = data[n:]
	}
	if len(rows) == 0 {
		return nil, errors.New("message without rows")
	}
	return rows, nil
}

func decodeRow(raw []byte) (decoded, error) {
	var row mirrorpb.Row
	if err := proto.Unmarshal(raw, &row); err != nil {
		return decoded{}, errors.New("undecodable row")
	}
	switch r := row.GetRow().(type) {
	case *mirrorpb.Row_Order:
		o, err := r.Order.Row()
		if err != nil {
			return decoded{}, fmt.Errorf("order: %w", err)
		}
		return decoded{bid: o.BID, order: &o}, nil
	case *mirrorpb.Row_Entry:
		e, err := r.Entry.Row()
		if err != nil {
			return decoded{}, fmt.Errorf("entry: %w", err)
		}
		return decoded{bid: e.BID, entry: &e}, nil
	case *mirrorpb.Row_Broken:
		b := r.Broken
		return decoded{bid: max(b.GetBid(), 0), broken: fmt.Sprintf("row of %s: %s", b.GetTable(), b.GetReason())}, nil
	}
	return decoded{}, errors.New("row of an unknown kind")
}
