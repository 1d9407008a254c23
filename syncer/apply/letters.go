package apply

import (
	"context"
	"fmt"

	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/syncer/mirrorpb"
)

// Retry applies an open dead letter as if it came now: by a newer program that
// understands it, or into a database that no longer refuses it. The error says why
// it still can't be applied; then it stays open.
func Retry(ctx context.Context, t Target, m *shardmap.Map, l Letter) error {
	database := t.Place().Number
	g := newGatherer(m, database, l.Incarnation)
	o := Origin{Seq: l.Seq, Item: l.Item, Subject: l.Subject, Payload: l.Payload}
	if l.Item < 0 {
		g.message(o)
	} else {
		g.row(o)
	}
	if len(g.letters) > 0 {
		return fmt.Errorf("apply: the dead letter can't be applied: %s", g.letters[0].Reason)
	}
	c := g.change(Progress{})
	if c.Rows() == 0 && g.skipped == 0 {
		return fmt.Errorf("apply: the dead letter holds no row")
	}
	return t.Settle(ctx, l.LetterKey, LetterRetried, c.Orders, c.Entries)
}

// Drop gives an open dead letter up. The row in it, if it is one, is then missing
// until the reconciler finds that.
func Drop(ctx context.Context, t Target, key LetterKey) error {
	return t.Settle(ctx, key, LetterDropped, nil, nil)
}

// Group returns the group whose rows a database reads.
func Group(t Target) int { return mirrorpb.GroupOfDatabase(t.Place().Number) }
