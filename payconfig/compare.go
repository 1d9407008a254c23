package payconfig

import "slices"

// Changes are what differs between two configs. Merchants are sorted by bid, channels by
// name.
type Changes struct {
	Unknown   bool // what becomes of merchants that aren't listed
	Merchants Listed[Merchant]
	Channels  Listed[Channel]
}

// Listed are the changes of a list. An entry is in one of them.
type Listed[T any] struct {
	Added, Removed    []T
	Enabled, Disabled []T // as they are now; other things may have changed with it
	Changed           []T // as they are now
}

func (l *Listed[T]) none() bool {
	return len(l.Added)+len(l.Removed)+len(l.Enabled)+len(l.Disabled)+len(l.Changed) == 0
}

// None reports whether nothing differs, which is so exactly if the hashes are equal.
func (c *Changes) None() bool { return !c.Unknown && c.Merchants.none() && c.Channels.none() }

// Compare returns how one config became another.
func Compare(before, now *Snapshot) Changes {
	return Changes{
		Unknown: before.refuseUnknown != now.refuseUnknown,
		Merchants: compare(before.merchants, now.merchants,
			func(m Merchant) (Merchant, bool) { return before.Merchant(m.BID) },
			func(m Merchant) (Merchant, bool) { return now.Merchant(m.BID) },
			func(m Merchant) bool { return m.Enabled }),
		Channels: compare(before.channels, now.channels,
			func(c Channel) (Channel, bool) { return before.Channel(c.Channel) },
			func(c Channel) (Channel, bool) { return now.Channel(c.Channel) },
			func(c Channel) bool { return c.Enabled }),
	}
}

func compare[T comparable](before, now []T, inBefore, inNow func(T) (T, bool), enabled func(T) bool) (l Listed[T]) {
	l.Removed = slices.DeleteFunc(slices.Clone(before), func(one T) bool {
		_, there := inNow(one)
		return there
	})
	for _, one := range now {
		old, there := inBefore(one)
		list := &l.Changed
		switch {
		case !there:
			list = &l.Added
		case old == one:
			continue
		case enabled(one) && !enabled(old):
			list = &l.Enabled
		case !enabled(one) && enabled(old):
			list = &l.Disabled
		}
		*list = append(*list, one)
	}
	return l
}
