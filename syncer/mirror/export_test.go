package mirror

import (
	"github.com/octopay/octopay/cluster"
	"github.com/octopay/octopay/schema"
)

// KeysText returns the statement that reads the positions of a list of entries.
func KeysText(db *cluster.Database, tables []int, index string, q EntryQuery, before Position, most int) (string, []any) {
	return (&sqlShelf{db: db, tables: tables, index: index}).keysText(&q, before, most)
}

// EntriesTexts returns the statements that read entries of a table, and those beside them.
func EntriesTexts(db *cluster.Database, table int, at []Position, order int64, beside ...Beside) (entries, others string, entriesArgs, othersArgs []any) {
	var keys []key
	for _, p := range at {
		keys = append(keys, key{Position: p, table: table})
	}
	entries, entriesArgs = atKeys(keys).text(db.Schema())
	r := reading{}
	for _, b := range beside {
		r.add(table, order, b)
	}
	others, othersArgs = r.text(db.Schema())
	return entries, others, entriesArgs, othersArgs
}

// AllTables are the numbers of the tables of a database.
var AllTables = allTables

// NewsTexts returns the statements that read what was stamped since.
func NewsTexts(schemaName string, reach Reach, until schema.Millis, most int) (orders, entries string, ordersArgs, entriesArgs []any) {
	orders, ordersArgs = newOrdersOf(schemaName, &reach, until, most)
	entries, entriesArgs = newEntriesOf(schemaName, &reach, until, most)
	return orders, entries, ordersArgs, entriesArgs
}
