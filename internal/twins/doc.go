// Package twins holds a twin of each guarded property: the program with that one guard
// taken away, in which a test of the property must fail. So no test of a guard passes
// for a reason of its own.
//
// It decides which guards have a twin, what the source reads without them, and what the
// test says then. It leaves to the packages the tests themselves, and touches nothing of
// theirs: the go command compiles another text in place of a file (-overlay). So no
// production code has a switch for it, and nothing is written into the tree.
//
// There are tests only, in this package. The short run checks that the table is still
// true of the sources and that each twin compiles, and runs the few that take no server;
// with -args -long it runs them all.
package twins
