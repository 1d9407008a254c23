package schema

// OwnerGuard returns the statement that begins every transaction that writes into a
// database of a cluster; its one argument is the epoch of the writer's map. It
// share-locks the owner row, and fails with error 1242 when the epoch there is another,
// or when the row is missing: whoever writes with a map of another epoch writes nothing.
// The lock keeps the epoch from rising before the transaction's end.
//
// It also makes the transaction visible in innodb_trx, before it takes its time. The
// marks of the mirror rely on that.
func OwnerGuard(database string) string {
	// A plain IF(epoch = ?) over no row would raise nothing.
	return "SELECT IF(COUNT(IF(epoch = ?, 1, NULL)) = 1, 1, (SELECT 1 UNION SELECT 2)) FROM `" + database + "`.owner WHERE id = 1 LOCK IN SHARE MODE"
}
