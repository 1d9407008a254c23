// Package arrows holds the direction of imports. It has a test and nothing else: each
// package may import those below it, never those above or beside it, so that a part can
// be understood, tested and replaced without the others.
//
//	services -> httpapi -> {ordersvc, syncer, auth} -> {lease, lane, cluster, schema} -> shardmap -> slot
//	idgen -> slot
//
// ordersvc and syncer, which write the two copies of an order, know only what is stored
// (schema), not each other.
package arrows
