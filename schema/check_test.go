package schema

import (
	"slices"
	"strings"
	"testing"
)

func TestASentenceForEachDifference(t *testing.T) {
	want := shape{
		{"order_1", tablePart}: "base table, InnoDB", {"order_1", orderPart}: "a,b", {"order_1", "column a"}: "int(11) not null", {"order_1", "column b"}: "text null",
		{"owner", tablePart}: "base table, InnoDB", {"owner", "column id"}: "tinyint(4) not null",
		{"", "the default collation"}: "utf8mb4_bin",
	}
	for name, c := range map[string]struct {
		change func(shape)
		want   []string
	}{
		"nothing": {func(shape) {}, nil},
		"another type": {func(s shape) { s[part{"order_1", "column b"}] = "blob null" },
			[]string{"table order_1: column b is blob null; should be text null"}},
		"a column is missing": {func(s shape) { delete(s, part{"order_1", "column b"}); s[part{"order_1", orderPart}] = "a" },
			[]string{"table order_1: column b is missing; should be there: text null"}},
		"a column is too much": {func(s shape) {
			s[part{"order_1", "column c"}] = "int(11) null"
			s[part{"order_1", orderPart}] = "a,c,b"
		},
			[]string{"table order_1: column c is int(11) null; should be not there"}},
		"another order": {func(s shape) { s[part{"order_1", orderPart}] = "b,a" },
			[]string{"table order_1: the order of columns is b,a; should be a,b"}},
		"a table is missing": {func(s shape) { delete(s, part{"owner", tablePart}); delete(s, part{"owner", "column id"}) },
			[]string{"table owner: the table is missing; should be there: base table, InnoDB"}},
		"a table is too much": {func(s shape) { s[part{"x", tablePart}] = "view"; s[part{"x", "column y"}] = "int(11) null" },
			[]string{"table x: the table is view; should be not there"}},
		"another collation": {func(s shape) { s[part{"", "the default collation"}] = "latin1_swedish_ci" },
			[]string{"the default collation is latin1_swedish_ci; should be utf8mb4_bin"}},
	} {
		is := shape{}
		for p, value := range want {
			is[p] = value
		}
		c.change(is)
		var got []string
		for _, d := range compare(is, want) {
			got = append(got, d.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestEveryLineOfAShapeHasThreeFields(t *testing.T) {
	for _, cluster := range []string{"uid", "bid", "meta"} {
		text, err := shapes.ReadFile("shapes/" + cluster + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		s, err := parseShape(string(text))
		if err != nil {
			t.Fatal(err)
		}
		if s.format() != string(text) {
			t.Errorf("%s: it isn't written as it is read", cluster)
		}
	}
	if _, err := parseShape("order_0\tcolumn a\n"); err == nil || !strings.Contains(err.Error(), "2 fields") {
		t.Errorf("a line of two fields: %v", err)
	}
}
