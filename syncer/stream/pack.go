package stream

import (
	"fmt"
	"strings"

	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/syncer/mirrorpb"
	"github.com/octopay/octopay/syncer/source"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// MessageBytes bounds a message of rows. A single row that is larger goes alone.
const MessageBytes = 256 << 10

// fields of mirrorpb.Rows, which Packer writes piece by piece.
const (
	rowsServer protowire.Number = 1
	rowsRows   protowire.Number = 2
)

// A Packed is one message of rows, ready to be published.
type Packed struct {
	Group int
	Rows  int
	Data  []byte // a mirrorpb.Rows
}

// A Packer packs the rows of one server into messages, one group to a message, in
// the order in which they come. It is used by one goroutine.
type Packer struct {
	head    []byte // the server field, with which every message begins
	max     int
	open    [mirrorpb.Groups]Packed
	full    []Packed
	bytes   int
	scratch []byte
}

// NewPacker returns a Packer of messages of at most max bytes.
func NewPacker(server string, max int) *Packer {
	head := protowire.AppendTag(nil, rowsServer, protowire.BytesType)
	return &Packer{head: protowire.AppendString(head, server), max: max}
}

// Add adds the rows of b.
func (p *Packer) Add(b source.Batch) error {
	for i := range b.Orders {
		if err := p.order(&b.Orders[i]); err != nil {
			return err
		}
	}
	for i := range b.Entries {
		if err := p.entry(&b.Entries[i]); err != nil {
			return err
		}
	}
	for _, r := range b.Broken {
		if err := p.broken(r); err != nil {
			return err
		}
	}
	return nil
}

// An order or entry that has no place in any group, or can't be written, is packed
// as broken: the mirror must not stand still for it, nor lose it.

func (p *Packer) order(o *schema.Order) error {
	if o.BID < 1 || o.UID < 1 {
		return p.broken(source.Broken{BID: o.BID, Reason: "uid or bid is below 1", Text: fmt.Sprintf("order %d", o.ID)})
	}
	err := p.row(mirrorpb.Group(o.BID), &mirrorpb.Row{Row: &mirrorpb.Row_Order{Order: mirrorpb.FromOrder(o)}})
	if err != nil {
		return p.broken(source.Broken{BID: o.BID, Reason: "not writable as a message", Text: fmt.Sprintf("order %d", o.ID)})
	}
	return nil
}

func (p *Packer) entry(e *schema.Entry) error {
	if e.BID < 1 || e.UID < 1 {
		return p.broken(source.Broken{BID: e.BID, Reason: "uid or bid is below 1", Text: fmt.Sprintf("entry %d of order %d", e.Seq, e.OrderID)})
	}
	err := p.row(mirrorpb.Group(e.BID), &mirrorpb.Row{Row: &mirrorpb.Row_Entry{Entry: mirrorpb.FromEntry(e)}})
	if err != nil {
		return p.broken(source.Broken{BID: e.BID, Reason: "not writable as a message", Text: fmt.Sprintf("entry %d of order %d", e.Seq, e.OrderID)})
	}
	return nil
}

func (p *Packer) broken(b source.Broken) error {
	group := 0
	if b.BID > 0 {
		group = mirrorpb.Group(b.BID)
	}
	valid := func(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
	return p.row(group, &mirrorpb.Row{Row: &mirrorpb.Row_Broken{Broken: &mirrorpb.Broken{
		Table: valid(b.Table), Bid: b.BID, Reason: valid(b.Reason), Text: valid(b.Text),
	}}})
}

func (p *Packer) row(group int, row *mirrorpb.Row) (err error) {
	p.scratch, err = proto.MarshalOptions{}.MarshalAppend(p.scratch[:0], row)
	if err != nil {
		return fmt.Errorf("stream: pack: %w", err)
	}
	m := &p.open[group]
	size := protowire.SizeTag(rowsRows) + protowire.SizeBytes(len(p.scratch))
	if m.Rows > 0 && len(m.Data)+size > p.max {
		p.full = append(p.full, *m)
		*m = Packed{}
	}
	if m.Rows == 0 {
		*m = Packed{Group: group, Data: append(make([]byte, 0, len(p.head)+size), p.head...)}
	}
	m.Data = protowire.AppendTag(m.Data, rowsRows, protowire.BytesType)
	m.Data = protowire.AppendBytes(m.Data, p.scratch)
	m.Rows++
	p.bytes += size
	return nil
}

// Full reports whether a message is complete, so that waiting for more rows gains
// nothing.
func (p *Packer) Full() bool { return len(p.full) > 0 || p.bytes >= p.max }

// Take returns the messages of all rows added since the last Take; within a group
// in order.
func (p *Packer) Take() []Packed {
	out := p.full
	for g := range p.open {
		if p.open[g].Rows > 0 {
			out = append(out, p.open[g])
			p.open[g] = Packed{}
		}
	}
	p.full, p.bytes = nil, 0
	return out
}
