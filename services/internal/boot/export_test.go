package boot

import (
	"maps"
	"slices"
)

// Programs returns the names in the list of settings.
func Programs() []string { return slices.Sorted(maps.Keys(programs)) }

// WithProfiles is withProfiles.
var WithProfiles = withProfiles
