package httpapi

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"

	"github.com/octopay/octopay/syncer/mirror"
)

// A cursor says where a list goes on:
//
//	byte  0      version, 1
//	byte  1      list
//	bytes 2-9    hash of the filters, the list's owner among them
//	bytes 10-17  snowflake: the next page begins below it
//	bytes 18-21  CRC-32C of the bytes before
//
// In a list of entries of journals the seq of an entry of that order comes before the
// sum, so that it begins at byte 26: the next page begins below both.
//
// as base64url without padding. It grants nothing and holds no secret: whoever may
// read the list may make one. The hash keeps a client from carrying it to another
// list, the checksum from sending a damaged one; both would otherwise be answered
// with a wrong page.
const (
	cursorVersion = 1
	cursorSize    = 22
	cursorSum     = 18
	seqSize       = 8
)

// A list is a kind of list. The numbers are part of the cursor's format.
type list byte

const (
	listOfUser         list = 1
	listOfMerchant     list = 2
	listOfUnapplied    list = 3 // one merchant's unapplied payments
	listOfAllUnapplied list = 4
	listOfAllRefunds   list = 5
	listOfConflicts    list = 6 // the snowflake is the id of a conflict
)

// A filter is what selects the rows of a list; limit isn't part of it.
type filter struct {
	list        list
	owner       int64 // uid or bid; 0: of all
	status      byte  // of orders, unapplied payments or refunds; 0: any
	min, before int64 // snowflakes
	outTradeNo  string
}

func (f filter) hash() []byte {
	b := make([]byte, 0, 2+3*8+numberMax)
	b = append(b, byte(f.list), f.status)
	b = binary.BigEndian.AppendUint64(b, uint64(f.owner))
	b = binary.BigEndian.AppendUint64(b, uint64(f.min))
	b = binary.BigEndian.AppendUint64(b, uint64(f.before))
	b = append(b, f.outTradeNo...)
	sum := sha256.Sum256(b)
	return sum[:8]
}

// cursorText is URL-safe, and refuses what isn't the one text of its bytes.
var (
	cursorText = base64.RawURLEncoding.Strict()
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// cursor returns where f goes on: below the snowflake next; in a list of entries below
// next and, of that order, below a seq.
func (f filter) cursor(next int64, seq ...int64) string {
	b := make([]byte, 0, cursorSize+seqSize)
	b = append(b, cursorVersion, byte(f.list))
	b = append(b, f.hash()...)
	b = binary.BigEndian.AppendUint64(b, uint64(next))
	for _, n := range seq {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return cursorText.EncodeToString(b)
}

// next reads a cursor of f. It is false for every text that f.cursor doesn't make.
func (f filter) next(cursor string) (next int64, ok bool) {
	b, ok := readCursor(cursor, cursorSize)
	if !ok {
		return 0, false
	}
	next = int64(binary.BigEndian.Uint64(b[10:cursorSum]))
	return next, next > 0 && f.cursor(next) == cursor
}

// nextEntry reads a cursor of f, a list of entries.
func (f filter) nextEntry(cursor string) (next mirror.Position, ok bool) {
	b, ok := readCursor(cursor, cursorSize+seqSize)
	if !ok {
		return next, false
	}
	next.Order = int64(binary.BigEndian.Uint64(b[10:cursorSum]))
	next.Seq = int64(binary.BigEndian.Uint64(b[cursorSum : cursorSum+seqSize]))
	return next, next.Order > 0 && next.Seq > 0 && f.cursor(next.Order, next.Seq) == cursor
}

func readCursor(cursor string, size int) (b []byte, ok bool) {
	if len(cursor) != cursorText.EncodedLen(size) {
		return nil, false
	}
	b, err := cursorText.DecodeString(cursor)
	return b, err == nil && len(b) == size
}
