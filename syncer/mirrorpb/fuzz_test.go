package mirrorpb_test

import (
	"bytes"
	"testing"

	"github.com/octopay/octopay/idgen"
	"github.com/octopay/octopay/schema"
	"github.com/octopay/octopay/syncer/mirrorpb"
	"google.golang.org/protobuf/proto"
)

// FuzzOrder: bytes that are understood as an order are one whose parts agree, and it
// travels unchanged.
func FuzzOrder(f *testing.F) {
	o := schema.Order{ID: 253150322220879872, UID: 9527, BID: 1001, Status: schema.Created, Ver: 1, ExpiresAt: 1, UpdatedAt: 1, Metadata: "{}", Amount: 1, Currency: "CNY"}
	seed, err := proto.Marshal(mirrorpb.FromOrder(&o))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add(seed[:len(seed)/2])
	f.Add([]byte{})
	f.Add([]byte("\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var wire mirrorpb.Order
		if proto.Unmarshal(data, &wire) != nil {
			return
		}
		row, err := wire.Row()
		if err != nil {
			if row != (schema.Order{}) || repeats(err, data) {
				t.Fatalf("%+v, %v", row, err)
			}
			return
		}
		if row.UID < 1 || row.BID < 1 || row.Ver < 1 || row.OrderID().String() != wire.GetOrderId() || row.Status < schema.Created || row.Status > schema.Closed {
			t.Fatalf("%+v", row)
		}
		if again, err := mirrorpb.FromOrder(&row).Row(); err != nil || again != row {
			t.Fatalf("%+v became %+v, %v", row, again, err)
		}
	})
}

// FuzzEntry is FuzzOrder for entries of journals.
func FuzzEntry(f *testing.F) {
	e := schema.Entry{OrderID: 253150322220879872, Seq: 2, UID: 9527, BID: 1001, Op: "close", Kind: schema.KindClosed, From: schema.Created, To: schema.Closed, RecordedAt: 1}
	seed, err := proto.Marshal(mirrorpb.FromEntry(&e))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add(seed[1:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		var wire mirrorpb.Entry
		if proto.Unmarshal(data, &wire) != nil {
			return
		}
		row, err := wire.Row()
		if err != nil {
			if row != (schema.Entry{}) || repeats(err, data) {
				t.Fatalf("%+v, %v", row, err)
			}
			return
		}
		if id := idgen.Make(row.UID, row.OrderID); row.UID < 1 || row.BID < 1 || row.Seq < 2 || id.String() != wire.GetOrderId() || row.Kind == schema.KindCreated {
			t.Fatalf("%+v", row)
		}
		if again, err := mirrorpb.FromEntry(&row).Row(); err != nil || again != row {
			t.Fatalf("%+v became %+v, %v", row, again, err)
		}
	})
}

// repeats reports whether an error has twelve bytes of the data, which may be anything.
func repeats(err error, data []byte) bool {
	const window = 12
	for i := 0; i+window <= len(data); i++ {
		part := data[i : i+window]
		if bytes.Contains([]byte(err.Error()), part) && !bytes.Contains([]byte(idgen.ErrInvalid.Error()), part) {
			return true
		}
	}
	return false
}
