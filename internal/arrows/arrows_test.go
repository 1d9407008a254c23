package arrows

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/octopay/octopay"

// below says for each room of the house which others it may import. A room is a folder
// with all below it; within a room anything goes. A new room must be entered here.
var below = map[string][]string{
	"":                    {}, // the contract's text
	"slot":                {},
	"shardmap":            {"slot"},
	"idgen":               {"slot"},
	"currency":            {},
	"internal/dberr":      {},
	"internal/faultproxy": {},
	"internal/certtest":   {},
	"internal/eventually": {},
	"internal/arrows":     {},
	"internal/install":    {}, // packages that tests and load tests need
	"internal/command":    {}, // how a program with commands reads its call, and ends
	"internal/twins":      {},
	"internal/decoders":   {}, // which fuzz test feeds which decoder
	"schema":              {"idgen", "shardmap", "slot"},
	"cluster":             {"internal/dberr", "schema", "shardmap", "slot"},
	"lane":                {"internal/dberr"},
	"lease":               {"cluster", "idgen", "internal/dberr", "shardmap"},
	"ordersvc":            {"cluster", "idgen", "internal/dberr", "lane", "lease", "schema", "shardmap", "slot"},
	"syncer":              {"cluster", "idgen", "internal/dberr", "lease", "schema", "shardmap", "slot"},
	"auth":                {"cluster", "internal/dberr", "schema", "shardmap"},
	"payconfig":           {"cluster", "currency", "internal/dberr", "schema", "shardmap"},
	"httpapi":             {"", "auth", "cluster", "currency", "idgen", "lane", "lease", "ordersvc", "payconfig", "schema", "shardmap", "slot", "syncer"},
	"services":            {"", "auth", "cluster", "httpapi", "idgen", "internal/command", "internal/dberr", "internal/eventually", "internal/localstack", "lane", "lease", "ordersvc", "payconfig", "schema", "shardmap", "slot", "syncer"},
	// Traffic, baselines and what they measure; nobody uses it.
	"loadtest": {"", "auth", "cluster", "httpapi", "idgen", "internal/command", "internal/dberr", "internal/install", "internal/localstack", "lane", "lease", "ordersvc", "payconfig", "schema", "services", "shardmap", "slot", "syncer"},
	// Real engines for tests and for people; of the programs only quickstart and the load
	// test have it.
	"internal/localstack": {"cluster", "internal/install", "schema", "shardmap", "slot"},
}

// pure are the rooms without I/O, and what they may use of a package that could do it.
var pure = map[string]map[string][]string{
	"slot":     nil,
	"idgen":    nil,
	"currency": nil,
	"shardmap": {"net": {"SplitHostPort"}}, // takes a text apart
	"lane":     nil,
}

// ioPackages are the packages of the standard library that reach outside the process.
var ioPackages = []string{"os", "os/exec", "net", "net/http", "database/sql", "database/sql/driver", "syscall", "io/ioutil", "log"}

// production are the programs that run in production.
var production = []string{"services/orderd", "services/syncerd", "services/octopay"}

// A pkg is what go list says of a package, without its tests.
type pkg struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
}

// look looks at every source file. go test keeps a result until something changes that
// the test looked at, and doesn't see what go list looks at.
func look(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && len(name) > 2 && strings.HasPrefix(name, "."):
			return filepath.SkipDir
		case strings.HasSuffix(name, ".go"):
			_, err = os.Stat(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func list(t *testing.T, args ...string) (pkgs []pkg) {
	t.Helper()
	look(t)
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,GoFiles,Imports"}, args...)...)
	cmd.Dir = "../.."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// own returns the folder of a package of ours.
func own(importPath string) (folder string, ok bool) {
	if importPath == module {
		return "", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

// room returns the room that a folder is in.
func room(folder string) (name string, ok bool) {
	for name = folder; ; name = path.Dir(name) {
		if name == "." {
			return "", folder == ""
		}
		if _, ok := below[name]; ok {
			return name, true
		}
	}
}

// isTest reports whether a folder holds a package for tests alone.
func isTest(folder string) bool {
	return strings.HasSuffix(folder, "test") || strings.HasPrefix(folder, "internal/localstack") || folder == "internal/faultproxy" || folder == "internal/eventually"
}

// wrong returns the imports that go against the arrows, each as a sentence.
func wrong(pkgs []pkg) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	for _, p := range pkgs {
		from, _ := own(p.ImportPath)
		at, ok := room(from)
		if !ok {
			fault("%s is in no room; enter it in this test, where it belongs", from)
			continue
		}
		for _, imported := range p.Imports {
			if imported == "testing" && !isTest(from) {
				fault("%s imports testing", from)
			}
			if _, isPure := pure[at]; isPure && slices.Contains(ioPackages, imported) && pure[at][imported] == nil {
				fault("%s does I/O: it imports %s", from, imported)
			}
			to, ours := own(imported)
			if !ours {
				continue
			}
			target, ok := room(to)
			switch {
			case !ok || target == at:
			case !slices.Contains(below[at], target):
				fault("%s imports %s, which is not below it", from, to)
			case isTest(to) && !isTest(from) && from != "services/quickstart" && from != "loadtest/rig":
				fault("%s imports %s, which is for tests", from, to)
			}
		}
	}
	return faults
}

func TestEveryImportFollowsTheArrows(t *testing.T) {
	pkgs := list(t, "./...")
	if len(pkgs) < len(below) {
		t.Fatalf("go list knows only %d packages", len(pkgs))
	}
	for _, fault := range wrong(pkgs) {
		t.Error(fault)
	}
}

func TestPurePackagesUseNothingThatReachesOut(t *testing.T) {
	for _, p := range list(t, "./...") {
		folder, _ := own(p.ImportPath)
		at, _ := room(folder)
		for imported, allowed := range pure[at] {
			for _, name := range used(t, p, imported) {
				if !slices.Contains(allowed, name) {
					t.Errorf("%s uses %s.%s", folder, imported, name)
				}
			}
		}
	}
}

// used returns the names of an imported package that p uses.
func used(t *testing.T, p pkg, imported string) (names []string) {
	t.Helper()
	for _, file := range p.GoFiles {
		f, err := parser.ParseFile(token.NewFileSet(), path.Join(p.Dir, file), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == path.Base(imported) {
					names = append(names, sel.Sel.Name)
				}
			}
			return true
		})
	}
	return names
}

func TestProductionProgramsCarryNothingOfTests(t *testing.T) {
	forbidden := []string{
		"testing",
		"github.com/nats-io/nats-server",
		"github.com/alicebob/miniredis",
		module + "/internal/localstack",
		module + "/internal/faultproxy",
	}
	for _, program := range production {
		deps := list(t, "-deps", "./"+program)
		if len(deps) < 50 {
			t.Fatalf("go list knows only %d packages of %s", len(deps), program)
		}
		for _, dep := range deps {
			for _, no := range forbidden {
				if dep.ImportPath == no || strings.HasPrefix(dep.ImportPath, no+"/") {
					t.Errorf("%s carries %s", program, dep.ImportPath)
				}
			}
		}
	}
}

// The test must be able to fail.
func TestTheArrowsFindWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		from, to, want string
	}{
		{"ordersvc/mysqlstore", module + "/syncer/stream", "not below"},
		{"syncer", module + "/ordersvc", "not below"},
		{"slot", module + "/shardmap", "not below"},
		{"idgen", module + "/shardmap", "not below"},
		{"cluster", module + "/lease", "not below"},
		{"auth", module + "/httpapi", "not below"},
		{"ordersvc", module + "/auth", "not below"},
		{"httpapi/problem", module + "/services/internal/boot", "not below"},
		{"lease", module + "/internal/localstack", "not below"},
		{"services/orderd", module + "/internal/localstack", "for tests"},
		{"services/orderd", module + "/ordersvc/storetest", "for tests"},
		{"payconfig", module + "/ordersvc", "not below"},
		{"ordersvc", module + "/payconfig", "not below"},
		{"lane", "database/sql", "does I/O"},
		{"idgen", "os", "does I/O"},
		{"ordersvc", "testing", "imports testing"},
		{"utils", "fmt", "in no room"},
		{"ordersvc", module + "/schema", ""},
		{"services/quickstart", module + "/internal/localstack", ""},
		{"loadtest/rig", module + "/internal/localstack", ""},
		{"loadtest/check", module + "/internal/localstack", "for tests"},
		{"lease/leasetest", "testing", ""},
		{"services/orderd", module + "/services/internal/boot", ""},
	} {
		got := strings.Join(wrong([]pkg{{ImportPath: module + "/" + c.from, Imports: []string{c.to}}}), "; ")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s imports %s: %q, want %q", c.from, c.to, got, c.want)
		}
	}
}
