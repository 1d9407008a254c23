// Package slot says where a key lives: the arithmetic of placement, and nothing
// else. It is pure and has no state.
//
//	slot          = key % 640                   the finest piece of data that ever moves
//	database of N = (key / 10) % N + 1          N is 8, 16, 32 or 64
//	table         = key % 10
//	info          = (key / 10) % 64 + 1         stored in every order id, two digits
//
// The info is the number that the key's database would have in the largest
// cluster. Every N divides 64, so the database at any smaller size follows from
// the info alone, and an order id stays right when the cluster is doubled.
//
// A key is a uid or a bid: an int64 from 1. Whoever takes keys from outside
// checks that; here a smaller one is a bug of the caller and panics, so that it
// can never become "database 1".
package slot

import "fmt"

const (
	// Tables is the number of order tables in each database. Part of the stored
	// format.
	Tables = 10
	// MaxDatabases is the number of databases of the largest cluster. Part of the
	// stored format.
	MaxDatabases = 64
	// Count is the number of slots. Part of the stored format.
	Count = Tables * MaxDatabases
)

// A Slot is one of the Count pieces that keys fall into, 0 … Count-1.
type Slot int

// Of returns the slot of key.
func Of(key int64) Slot { return Slot(checked(key) % Count) }

// Table returns the table of s within its database, 0 … Tables-1.
func (s Slot) Table() int { return int(s) % Tables }

// Info returns the shard info of s, 1 … MaxDatabases.
func (s Slot) Info() int { return int(s)/Tables + 1 }

// Database returns the number of the database, 1 … n, that owns s in a cluster
// of n databases. n must be valid, see ValidSize.
func (s Slot) Database(n int) int { return DatabaseOfInfo(s.Info(), n) }

// Info returns the shard info of key, 1 … MaxDatabases.
func Info(key int64) int { return Of(key).Info() }

// Table returns the table of key, 0 … Tables-1.
func Table(key int64) int { return Of(key).Table() }

// DatabaseOfInfo returns the number of the database, 1 … n, that holds the keys
// with this shard info in a cluster of n databases.
func DatabaseOfInfo(info, n int) int { return (info-1)%n + 1 }

// ValidSize reports whether a cluster can have n databases: 8, 16, 32 or 64.
func ValidSize(n int) bool {
	switch n {
	case 8, 16, 32, 64:
		return true
	}
	return false
}

func checked(key int64) uint64 {
	if key < 1 {
		panic(fmt.Sprintf("slot: key %d is below 1", key))
	}
	return uint64(key)
}
