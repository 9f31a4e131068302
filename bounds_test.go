package toold_test

import (
	"cmp"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// bounds are how much may hang together without a wall.
var bounds = map[string]struct {
	most int
	why  string
}{
	"files in a cycle": {20, "files that all use one another are understood together or not at all: cut the package where few names cross"},
	"methods":          {60, "each method may change what all others rely on: give a part of the state, and what works on it, a type of its own"},
	"fields":           {30, "nobody can say which values of so many fields belong together: group those that change together"},
	"interface":        {12, "each implementation and each fake must have all of it: ask for what the user of the interface calls"},
}

// narrow are the bounds of the packages that hold calls and sessions, through which everything
// goes: what grows there is in everybody's way.
var narrow = map[string]map[string]int{
	"internal/call":          {"files in a cycle": 10, "methods": 40},
	"internal/session":       {"files in a cycle": 10, "methods": 40},
	"internal/session/trees": {"files in a cycle": 10, "methods": 25},
}

// TestBounds: no package and no type grows into one piece that cannot be cut.
func TestBounds(t *testing.T) {
	for _, p := range goList(t, "./...") {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if len(p.GoFiles) == 0 || strings.HasPrefix(name, "bench") || strings.HasPrefix(name, "test/") {
			continue
		}
		for what, n := range measure(t, name, p) {
			_, kind, _ := strings.Cut(what, ": ")
			if bound := cmp.Or(narrow[name][kind], bounds[kind].most); n > bound {
				t.Errorf("%s: %d, more than %d: %s", what, n, bound, bounds[kind].why)
			}
		}
	}
}

// measure counts what bounds are for in one package: "package.Type: methods" → 3.
func measure(t *testing.T, name string, p goPackage) map[string]int {
	t.Helper()
	fset, counts := token.NewFileSet(), make(map[string]int)
	var files []*ast.File
	for _, file := range p.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, file), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil {
					counts[name+"."+receiver(n)+": methods"]++
				}
			case *ast.TypeSpec:
				switch typ := n.Type.(type) {
				case *ast.StructType:
					counts[name+"."+n.Name.Name+": fields"] = typ.Fields.NumFields()
				case *ast.InterfaceType:
					counts[name+"."+n.Name.Name+": interface"] = typ.Methods.NumFields()
				}
			}
			return true
		})
	}
	counts[name+": files in a cycle"] = largestCycle(uses(fset, name, files))
	return counts
}

// receiver is the name of the type that a method is of.
func receiver(fn *ast.FuncDecl) string {
	typ := fn.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.IndexListExpr:
			typ = x.X
		default:
			return types.ExprString(typ)
		}
	}
}

// noImports gives nothing of other packages: to see which file of a package uses
// which, they are not needed, and reading them would take a minute.
type noImports struct{}

func (noImports) Import(string) (*types.Package, error) {
	return nil, errors.New("not read")
}

// uses says which files of a package name something that another one declares.
func uses(fset *token.FileSet, name string, files []*ast.File) map[string]map[string]bool {
	info := types.Info{Uses: make(map[*ast.Ident]types.Object)}
	config := types.Config{Importer: noImports{}, Error: func(error) {}} // about what is not read
	pkg, _ := config.Check(name, fset, files, &info)
	graph := make(map[string]map[string]bool)
	for id, o := range info.Uses {
		if o.Pkg() != pkg || !o.Pos().IsValid() {
			continue
		}
		from, to := fset.Position(id.Pos()).Filename, fset.Position(o.Pos()).Filename
		if graph[from] == nil {
			graph[from] = make(map[string]bool)
		}
		graph[from][to] = true
	}
	return graph
}

// largestCycle is how many nodes reach one another, 1 where none do: with so few,
// what each reaches is simply looked up.
func largestCycle(graph map[string]map[string]bool) int {
	reach := make(map[string]map[string]bool)
	for from := range graph {
		seen, next := make(map[string]bool), slices.Collect(maps.Keys(graph[from]))
		for len(next) > 0 {
			n := next[len(next)-1]
			if next = next[:len(next)-1]; !seen[n] {
				seen[n] = true
				next = slices.AppendSeq(next, maps.Keys(graph[n]))
			}
		}
		reach[from] = seen
	}
	most := 1
	for from, all := range reach {
		n := 1
		for to := range all {
			if to != from && reach[to][from] {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}
