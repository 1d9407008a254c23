package httpapi

import (
	"math"
	"strings"
	"testing"

	"github.com/octopay/octopay/syncer/mirror"
	"pgregory.net/rapid"
)

func someFilter(t *rapid.T) filter {
	return filter{
		list:       rapid.SampledFrom([]list{listOfUser, listOfMerchant, listOfUnapplied, listOfAllUnapplied, listOfAllRefunds}).Draw(t, "list"),
		owner:      rapid.Int64Range(1, math.MaxInt64).Draw(t, "owner"),
		status:     byte(rapid.IntRange(0, 5).Draw(t, "status")),
		min:        rapid.Int64Range(0, math.MaxInt64).Draw(t, "min"),
		before:     rapid.Int64Range(0, math.MaxInt64).Draw(t, "before"),
		outTradeNo: rapid.StringMatching(`[0-9A-Za-z_.:|*-]{0,64}`).Draw(t, "number"),
	}
}

func TestACursorIsReadAsItWasWrittenAndByNoOtherFilter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, other := someFilter(t), someFilter(t)
		id := rapid.Int64Range(1, math.MaxInt64).Draw(t, "id")
		c := f.cursor(id)
		if got, ok := f.next(c); !ok || got != id {
			t.Fatalf("%d %t", got, ok)
		}
		if _, ok := other.next(c); ok && other != f {
			t.Fatalf("%+v reads the cursor of %+v", other, f)
		}
	})
}

func TestACursorOfEntriesIsReadAsItWasWrittenAndByNoOtherFilter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, other := someFilter(t), someFilter(t)
		at := mirror.Position{Order: rapid.Int64Range(1, math.MaxInt64).Draw(t, "order"), Seq: rapid.Int64Range(1, math.MaxInt64).Draw(t, "seq")}
		c := f.cursor(at.Order, at.Seq)
		if got, ok := f.nextEntry(c); !ok || got != at {
			t.Fatalf("%+v %t", got, ok)
		}
		if _, ok := other.nextEntry(c); ok && other != f {
			t.Fatalf("%+v reads the cursor of %+v", other, f)
		}
		if _, ok := f.next(c); ok {
			t.Fatal("it is taken for one of orders")
		}
		if _, ok := f.nextEntry(f.cursor(at.Order)); ok {
			t.Fatal("one of orders is taken for one of entries")
		}
	})
}

// A list goes on below an order, so 0 and less are no places.
func TestACursorLeadsSomewhere(t *testing.T) {
	var f filter
	for _, id := range []int64{0, -1, math.MinInt64} {
		if _, ok := f.next(f.cursor(id)); ok {
			t.Errorf("%d is taken", id)
		}
		for _, at := range [][2]int64{{id, 1}, {1, id}} {
			if _, ok := f.nextEntry(f.cursor(at[0], at[1])); ok {
				t.Errorf("%v is taken", at)
			}
		}
	}
}

// Part of the format: cursors outlive a restart into another version of the program.
func TestTheFormatOfACursor(t *testing.T) {
	f := filter{list: listOfMerchant, owner: 1001, status: 2, min: 5, before: math.MaxInt64, outTradeNo: "A-1"}
	if got := f.cursor(253150322220879872); got != "AQJ9oGqiC-M2ywODXuB2wFAApVBS2Q" {
		t.Error(got)
	}
	f = filter{list: listOfUnapplied, owner: 1001, status: 1}
	if got := f.cursor(253150322220879872, 3); got != "AQODP7Irldj4_QODXuB2wFAAAAAAAAAAAAOElp9Z" {
		t.Error(got)
	}
}

// FuzzCursor: whatever text is read as a cursor is the very text that was written.
func FuzzCursor(f *testing.F) {
	flt := filter{list: listOfUser, owner: 9527, before: math.MaxInt64}
	good := flt.cursor(253150322220879872)
	f.Add(good)
	f.Add(strings.ToLower(good))
	f.Add(good[:len(good)-1] + "B")
	f.Add(good + "=")
	f.Add(good + "\n")
	f.Add("")
	f.Fuzz(func(t *testing.T, sent string) {
		if id, ok := flt.next(sent); ok && flt.cursor(id) != sent {
			t.Fatalf("%q is taken for %d", sent, id)
		}
		// One bit of a good one turned over.
		for i := range len(sent) {
			bad := []byte(good)
			bad[i%len(bad)] ^= sent[i]
			if text := string(bad); text != good {
				if _, ok := flt.next(text); ok {
					t.Fatalf("%q is taken", text)
				}
			}
		}
	})
}
