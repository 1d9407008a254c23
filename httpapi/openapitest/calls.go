package openapitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// A Call is one call of the contract, as a test needs it that goes through all of them: a
// call or a field that is new in openapi.yaml is in such a test by itself.
type Call struct {
	Method, Path string
	Params       []string // the names in the path, in its order
	Query        []string // the names of query parameters
	Fields       []Field  // of the body, outermost first; none: it takes no body
	example      map[string]any
}

// A Field is one field of a body: "amount", "metadata.sku", "orders[0].uid". Schema is the
// name of its component, such as Amount; "" where it has none.
type Field struct{ Path, Schema string }

// String returns the method and the path.
func (c Call) String() string { return c.Method + " " + c.Path }

// Calls returns every call of the contract but that for its own text, by their names.
func Calls(t testing.TB) (all []Call) {
	t.Helper()
	doc := Document(t)
	for path, item := range doc.Paths.Map() {
		if !strings.HasPrefix(path, "/v1/") {
			continue
		}
		for method, op := range item.Operations() {
			c := Call{Method: method, Path: path}
			for segment := range strings.SplitSeq(path, "/") {
				if name, ok := strings.CutPrefix(segment, "{"); ok {
					c.Params = append(c.Params, strings.TrimSuffix(name, "}"))
				}
			}
			for _, p := range slices.Concat(item.Parameters, op.Parameters) {
				if p.Value.In == "query" {
					c.Query = append(c.Query, p.Value.Name)
				}
			}
			if op.RequestBody != nil {
				c.body(t, doc, op.RequestBody.Value.Content["application/json"])
			}
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b Call) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// body reads the fields of a body from its schema, and what a right one is from its first
// example, by name.
func (c *Call) body(t testing.TB, doc *openapi3.T, media *openapi3.MediaType) {
	t.Helper()
	if media == nil || len(media.Examples) == 0 {
		t.Fatalf("%s has a body without an example", c)
	}
	var names []string
	for name := range media.Examples {
		names = append(names, name)
	}
	text, err := json.Marshal(media.Examples[slices.Min(names)].Value.Value)
	if err != nil {
		t.Fatal(err)
	}
	c.example = tree(t, text)
	c.fields("", media.Schema.Value, doc)
}

// fields adds the fields of an object, and of the objects in it.
func (c *Call) fields(at string, s *openapi3.Schema, doc *openapi3.T) {
	var names []string
	for name := range s.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		p := s.Properties[name]
		c.Fields = append(c.Fields, Field{at + name, p.Ref[strings.LastIndex(p.Ref, "/")+1:]})
		switch v := p.Value; {
		case v.PropertyNames != nil: // any names
			c.Fields = append(c.Fields, Field{at + name + ".sku", ""})
		case v.Items != nil && at == "" && name == "orders":
			// The contract says nothing of an item, since each has a fate of its own.
			c.fields("orders[0].", doc.Components.Schemas["NewOrder"].Value, doc)
		case v.Items != nil:
			c.fields(at+name+"[0].", v.Items.Value, doc)
		default:
			c.fields(at+name+".", v, doc)
		}
	}
}

// Body returns the example of a right body; "" for a call that takes none.
func (c Call) Body() string {
	if len(c.Fields) == 0 {
		return ""
	}
	text, _ := json.Marshal(c.example) // it was made of JSON
	return string(text)
}

// hole stands in a body for what is put in as it is.
const hole = `"\u2603 here \u2603"`

// With returns the example with fields set to texts that need not be JSON, or, by "", left
// out: pairs of a Field's path and a text.
func (c Call) With(t testing.TB, pairs ...string) string {
	t.Helper()
	text, _ := json.Marshal(c.example)
	root := tree(t, text)
	var raw []string
	for i := 0; i < len(pairs); i += 2 {
		var value any
		if pairs[i+1] != "" {
			value = json.RawMessage(fmt.Sprintf(`%s%d"`, strings.TrimSuffix(hole, `"`), i))
			raw = append(raw, string(value.(json.RawMessage)), pairs[i+1])
		}
		if !set(root, pairs[i], value) {
			t.Fatalf("%s has no field %s", c, pairs[i])
		}
	}
	text, err := json.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(raw...).Replace(string(text))
}

// set sets, or with nil removes, what is at a path.
func set(object map[string]any, path string, value any) bool {
	name, rest, deeper := strings.Cut(path, ".")
	name, index, inArray := strings.Cut(name, "[")
	switch {
	case inArray:
		n, err := strconv.Atoi(strings.TrimSuffix(index, "]"))
		list, ok := object[name].([]any)
		if err != nil || !ok || n >= len(list) || !deeper {
			return false
		}
		inner, ok := list[n].(map[string]any)
		return ok && set(inner, rest, value)
	case deeper:
		inner, ok := object[name].(map[string]any)
		if !ok {
			inner = map[string]any{}
			object[name] = inner
		}
		return set(inner, rest, value)
	case value == nil:
		delete(object, name)
	default:
		object[name] = value
	}
	return true
}

func tree(t testing.TB, text []byte) (object map[string]any) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&object); err != nil {
		t.Fatalf("an example is no object: %v", err)
	}
	return object
}

// Target returns the path with its parameters replaced: pairs of a name and a text that is
// put in as it is.
func (c Call) Target(pairs ...string) string {
	for i := 0; i < len(pairs); i += 2 {
		pairs[i] = "{" + pairs[i] + "}"
	}
	return strings.NewReplacer(pairs...).Replace(c.Path)
}

// Writes reports whether the call may change something.
func (c Call) Writes() bool { return c.Method != http.MethodGet && c.Method != http.MethodHead }
