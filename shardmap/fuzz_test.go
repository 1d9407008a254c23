package shardmap_test

import (
	"strings"
	"testing"

	"github.com/octopay/octopay/shardmap"
	"github.com/octopay/octopay/slot"
)

// FuzzParse: a map that is read is complete, and is read from its own text as the same.
func FuzzParse(f *testing.F) {
	f.Add(mustNew(f, spec(8)).Text())
	for _, text := range []string{"", "epoch: 1", "epoch: 1\n---\nepoch: 2\n", "a: &a [*a]", "epoch: -1\nservers: [{name: a}]\n", "servers: [{name: a, address: ':'}]\nmeta: a\n", "\xff", "x: 1", "uid: [{database: 99999999999999999999}]"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := shardmap.Parse(text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "shard map: ") {
				t.Fatalf("%v doesn't say what it is about", err)
			}
			return
		}
		again, err := shardmap.Parse(m.Text())
		if err != nil || again.Hash() != m.Hash() || again.Epoch() != m.Epoch() || string(again.Text()) != string(m.Text()) {
			t.Fatalf("%q is read again as %v, %v", m.Text(), again, err)
		}
		for key := int64(1); key <= slot.Count; key++ {
			if l := m.Locate(key); l != again.Locate(key) || l.Database < 1 || l.Database > m.Size() || l.Table < 0 || l.Table >= slot.Tables {
				t.Fatalf("%d is in %+v", key, l)
			}
		}
	})
}
