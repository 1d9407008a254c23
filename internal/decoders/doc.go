// Package decoders is a list: which function reads what others wrote, and which fuzz test
// states its law. Its test finds functions that read, by their names, and fails for one that
// has no fuzz test and no reason to have none. It holds no code.
package decoders
