package stream

import (
	"errors"
	"testing"

	"github.com/octopay/octopay/syncer/mirrorpb"
	"google.golang.org/protobuf/proto"
)

// FuzzMark: a mark that is read is within what a database stores, and travels unchanged.
func FuzzMark(f *testing.F) {
	for _, wire := range []*mirrorpb.Mark{
		{Server: "uid-a", Position: "0-1-5", AtMs: 5, Incarnation: "now"}, {Server: "uid-a", Position: "x"}, {AtMs: -1}, {AtMs: 1 << 60}, {From: "0-1-1,0-2-2"}, {},
	} {
		data, err := proto.Marshal(wire)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, incarnation, err := decodeMark(data)
		if err != nil {
			if m.Server != "" || incarnation != "" || errors.Is(err, ErrFull) {
				t.Fatalf("%+v, %v", m, err)
			}
			return
		}
		if m.At < 0 || m.At.Time().Year() > 9999 || len(m.Position.String()) > 512 {
			t.Fatalf("%+v", m)
		}
		again, err := proto.Marshal(&mirrorpb.Mark{Server: m.Server, Position: m.Position.String(), AtMs: int64(m.At), Incarnation: incarnation, From: m.From.String()})
		if err != nil {
			t.Fatal(err)
		}
		n, other, err := decodeMark(again)
		if err != nil || other != incarnation || n.Server != m.Server || n.At != m.At || n.Position.String() != m.Position.String() || n.From.String() != m.From.String() {
			t.Fatalf("%+v became %+v, %v", m, n, err)
		}
	})
}
