package main

import (
	"regexp"
	"slices"
	"strings"
)

// only is an error when one of the flags was given, which says why it means nothing: a
// flag that is ignored makes people believe what isn't so.
func (c console) only(why string, flags ...string) error {
	for _, name := range flags {
		if c.given[name] {
			return usage("--%s %s", name, why)
		}
	}
	return nil
}

// sizes are how many databases a cluster can have.
var sizes = []int{8, 16, 32, 64}

func isSize(flag string, n int) error {
	if !slices.Contains(sizes, n) {
		return usage("--%s must be 8, 16, 32 or 64, not %d", flag, n)
	}
	return nil
}

var memory = regexp.MustCompile(`^[1-9][0-9]{0,8}[KMGT]?$`)

// isMemory is an error when a flag isn't as MariaDB reads a size in memory.
func isMemory(flag, text string) error {
	if !memory.MatchString(strings.ToUpper(text)) {
		return usage("--%s must be like 512M or 4G, not %q", flag, text)
	}
	return nil
}

// first returns the first error that is one.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
