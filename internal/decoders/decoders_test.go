package decoders

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// fuzzed says which fuzz test feeds a decoder: a folder and a name. The decoder is named by
// its folder, its type if it has one, and its name.
var fuzzed = map[string]string{
	// A request.
	"httpapi.decodeOrder":    "httpapi.FuzzCreate",
	"httpapi.decodeBatch":    "httpapi.FuzzBatch",
	"httpapi.decodeObject":   "httpapi.FuzzPay", // and those of the other bodies, which httpapi lists
	"httpapi.parseKey":       "httpapi.FuzzQuery",
	"httpapi.parseInteger":   "httpapi.FuzzRefund",
	"httpapi.parseDigits":    "httpapi.FuzzQuery",
	"httpapi.parseNumber":    "httpapi.FuzzQuery",
	"httpapi.parseStatus":    "httpapi.FuzzQuery",
	"httpapi.parseLimit":     "httpapi.FuzzQuery",
	"httpapi.parseBound":     "httpapi.FuzzQuery",
	"httpapi.filter.next":    "httpapi.FuzzCursor",
	"httpapi.call.query":     "httpapi.FuzzQuery",
	"httpapi.API.match":      "httpapi.FuzzPath",
	"httpapi.requestID":      "httpapi.FuzzHeaders",
	"httpapi.clientAddr":     "httpapi.FuzzClientAddr",
	"httpapi.parseHop":       "httpapi.FuzzClientAddr",
	"httpapi.parsePeer":      "httpapi.FuzzClientAddr",
	"httpapi.isJSON":         "httpapi.FuzzHeaders",
	"idgen.Parse":            "idgen.FuzzParse",
	"auth.Bearer":            "auth.FuzzBearer",
	"auth.Keyring.Verify":    "auth.FuzzVerify",
	"auth.signing.verify":    "auth.FuzzVerifySignature",
	"auth.ParseID":           "auth.FuzzParseID",
	"ordersvc.ParseRef":      "ordersvc.FuzzParseRef",
	"payconfig.Decode":       "payconfig.FuzzDecode",
	"payconfig.parseKey":     "payconfig.FuzzDecode",
	"payconfig.parseInteger": "payconfig.FuzzDecode",

	// What is stored, and what travels.
	"schema.ParseMillis":          "schema.FuzzMillis",
	"schema.ParseStatus":          "schema.FuzzNames",
	"schema.ParseCloseReason":     "schema.FuzzNames",
	"schema.ParseKind":            "schema.FuzzNames",
	"schema.parse":                "schema.FuzzNames",
	"schema.Millis.Scan":          "syncer/binlog.FuzzRow",
	"schema.Status.Scan":          "syncer/binlog.FuzzRow",
	"schema.CloseReason.Scan":     "syncer/binlog.FuzzRow",
	"schema.Kind.Scan":            "syncer/binlog.FuzzRow",
	"schema.scanName":             "syncer/binlog.FuzzRow",
	"schema.nullable.Scan":        "syncer/binlog.FuzzRow",
	"syncer/binlog.plan.fill":     "syncer/binlog.FuzzRow",
	"syncer/mirrorpb.Order.Row":   "syncer/mirrorpb.FuzzOrder",
	"syncer/mirrorpb.Entry.Row":   "syncer/mirrorpb.FuzzEntry",
	"syncer/apply.split":          "syncer/apply.FuzzMessage",
	"syncer/apply.decodeRow":      "syncer/apply.FuzzMessage",
	"syncer/conflict.ParseKind":   "syncer/conflict.FuzzParseKind",
	"syncer/stream.decodeMark":    "syncer/stream.FuzzMark",
	"syncer/source.ParsePosition": "syncer/source.FuzzParsePosition",

	// Files and settings.
	"auth.ParseMasters":           "auth.FuzzParseMasters",
	"auth.ParseRole":              "auth.FuzzParseRole",
	"auth.decode":                 "auth.FuzzKeysFile",
	"shardmap.Parse":              "shardmap.FuzzParse",
	"services/internal/boot.Load": "services/internal/boot.FuzzLoad",
	"services/internal/boot.Networks.UnmarshalYAML": "services/internal/boot.FuzzNetworks",
}

// without are decoders that have no fuzz test, and why.
var without = map[string]string{
	"schema.parseShape":                "reads a text that is compiled into the program",
	"auth.scanKeys":                    "reads columns that the driver has decoded",
	"services/quickstart.parse":        "reads its command line, by package flag",
	"services/octopay.parseBound":      "reads an argument of the operator, by the readers of ids and times",
	"syncer/binlog.Source.decodeEvent": "hands bytes to the library that knows the server's format",
}

// aside are folders whose decoders read what other parts of this repository wrote, in tests
// and measurements, and the command line.
var aside = []string{"internal/", "loadtest/"}

// names are how functions that decode are called here. Scan is database/sql's; what scans in
// lower case looks through something.
var names = regexp.MustCompile(`^([pP]arse|[dD]ecode|[uU]nmarshal|Scan)([A-Z]\w*)?$`)

func TestEveryDecoderHasAFuzzTest(t *testing.T) {
	root := filepath.Join("..", "..")
	functions, fuzz := map[string]bool{}, map[string]bool{}
	set := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root {
			if err == nil {
				err = fs.SkipDir
			}
			return err
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, ".pb.go") {
			return nil
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			switch test := strings.HasSuffix(path, "_test.go"); {
			case test && strings.HasPrefix(f.Name.Name, "Fuzz"):
				fuzz[filepath.ToSlash(dir)+"."+f.Name.Name] = true
			case !test:
				functions[filepath.ToSlash(dir)+"."+typeOf(f)+f.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range functions {
		short := name[strings.LastIndexByte(name, '.')+1:]
		if !names.MatchString(short) || slices.ContainsFunc(aside, func(dir string) bool { return strings.HasPrefix(name, dir) }) {
			continue
		}
		if fuzzed[name] == "" && without[name] == "" {
			t.Errorf("%s reads what others wrote, and no fuzz test is said to feed it", name)
		}
	}
	for name, by := range fuzzed {
		if !functions[name] {
			t.Errorf("there is no %s", name)
		}
		if !fuzz[by] {
			t.Errorf("%s is said to be fed by %s, which isn't there", name, by)
		}
	}
	for name, why := range without {
		if !functions[name] || why == "" || fuzzed[name] != "" {
			t.Errorf("%s is said to need no fuzz test: %q", name, why)
		}
	}
	if len(fuzz) < 20 {
		t.Errorf("only %d fuzz tests are found", len(fuzz))
	}
}

// typeOf returns the name of a method's type and a dot; "" for a function.
func typeOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	t := f.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if generic, ok := t.(*ast.IndexExpr); ok {
		t = generic.X
	}
	if name, ok := t.(*ast.Ident); ok {
		return name.Name + "."
	}
	return ""
}

// The command that runs them all finds them by their names.
func TestMakeRunsThem(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `s/^func \(Fuzz`) || !strings.Contains(string(text), "-fuzztime $(FUZZTIME)") {
		t.Error("make fuzz runs no fuzz tests")
	}
}
