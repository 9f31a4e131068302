package toold_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// architecture is docs/architecture.md. What a program can check of that page is checked
// here, in repo_test.go (imports, links, blocks) and in test/cli (what is on the disk).
func architecture(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// below is a section of a document, up to the next heading of the same kind.
func below(t *testing.T, text, heading string) string {
	t.Helper()
	_, section, ok := strings.Cut(text, "\n"+heading+"\n")
	if !ok {
		t.Fatalf("docs/architecture.md has no section %q", heading)
	}
	level, _, _ := strings.Cut(heading, " ")
	section, _, _ = strings.Cut(section, "\n"+level+" ")
	return section
}

// quoted finds `names`.
var quoted = regexp.MustCompile("`([^`\n]+)`")

// TestFloors: each package stands on one floor, and imports nothing of those above it.
func TestFloors(t *testing.T) {
	patterns := make(map[string]int)
	row := regexp.MustCompile(`(?m)^\| (\d) \|[^|]+\|([^|]+)\|$`)
	for _, m := range row.FindAllStringSubmatch(below(t, architecture(t), "## Floors"), -1) {
		floor, _ := strconv.Atoi(m[1]) // a digit
		for _, q := range quoted.FindAllStringSubmatch(m[2], -1) {
			patterns[q[1]] = floor
		}
	}
	used := make(map[string]bool)
	floorOf := func(pkg string) (floor int) {
		best := "" // the longest says it best
		for pattern := range patterns {
			if covers(pattern, strings.TrimPrefix(pkg, "internal/")) && len(pattern) > len(best) {
				best = pattern
			}
		}
		used[best] = true
		return patterns[best]
	}
	for _, p := range goList(t, "./api/...", "./client/...", "./cmd/...", "./internal/...") {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		floor := floorOf(name)
		if floor == 0 {
			t.Errorf("%s stands on no floor of docs/architecture.md", name)
		}
		for _, imp := range p.Imports {
			if ours, ok := strings.CutPrefix(imp, module+"/"); ok && floorOf(ours) > floor {
				t.Errorf("%s, on floor %d, imports %s, on floor %d", name, floor, ours, floorOf(ours))
			}
		}
	}
	for pattern := range patterns {
		if !used[pattern] {
			t.Errorf("docs/architecture.md has %s on a floor; no package is called that", pattern)
		}
	}
}

// declared are all names that the code declares: "call/output.Output.Finish" for a method, of
// interfaces too, or for a field, "run.Builtin" for a function, a type, a value or a test. A
// package is called by its path below internal, and by the last part of that.
func declared(t *testing.T) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	sources(t, func(path string, src []byte) {
		f, err := parser.ParseFile(token.NewFileSet(), path, src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		add := func(name string) {
			dir := strings.TrimPrefix(filepath.Dir(path), "internal/")
			names[dir+"."+name], names[f.Name.Name+"."+name] = true, true
			if strings.HasSuffix(path, "_test.go") || f.Name.Name == "main" {
				names[name] = true
			}
		}
		for _, d := range f.Decls {
			addDeclared(d, add)
		}
	})
	return names
}

func addDeclared(d ast.Decl, add func(string)) {
	if fn, ok := d.(*ast.FuncDecl); ok {
		name := fn.Name.Name
		if fn.Recv != nil {
			name = receiver(fn) + "." + name
		}
		add(name)
		return
	}
	for _, spec := range d.(*ast.GenDecl).Specs {
		switch spec := spec.(type) {
		case *ast.ValueSpec:
			for _, id := range spec.Names {
				add(id.Name)
			}
		case *ast.TypeSpec:
			add(spec.Name.Name)
			for _, m := range members(spec.Type) {
				add(spec.Name.Name + "." + m)
			}
		}
	}
}

// members are the fields of a struct and the methods of an interface.
func members(typ ast.Expr) (names []string) {
	var list *ast.FieldList
	switch typ := typ.(type) {
	case *ast.StructType:
		list = typ.Fields
	case *ast.InterfaceType:
		list = typ.Methods
	default:
		return nil
	}
	for _, field := range list.List {
		for _, id := range field.Names {
			names = append(names, id.Name)
		}
	}
	return names
}

// maxSteps is how many things a call goes through that somebody has to keep in mind.
const maxSteps = 12

// TestSteps: the functions of the steps of a call are where the page says, and its errors are
// codes of the API.
func TestSteps(t *testing.T) {
	names, codes := declared(t), errorCodes(t)
	row := regexp.MustCompile("(?m)^\\| (\\d*) ?\\| ([a-z ]+) \\| `([^`]+)` \\|[^|]+\\|([^|]*)\\|$")
	steps := row.FindAllStringSubmatch(below(t, architecture(t), "## The life of a call"), -1)
	if len(steps) == 0 || len(steps) > maxSteps {
		t.Fatalf("a call has %d steps, want at most %d", len(steps), maxSteps)
	}
	last := 0
	for _, m := range steps {
		if !names[m[3]] || !strings.Contains(m[3], ".") {
			t.Errorf("step %s: no function is called %s", m[2], m[3])
		}
		if n, err := strconv.Atoi(m[1]); err == nil {
			if n != last+1 {
				t.Errorf("step %s is number %d after %d", m[2], n, last)
			}
			last = n
		}
		for _, q := range quoted.FindAllStringSubmatch(m[4], -1) {
			if !codes[q[1]] {
				t.Errorf("step %s: the API has no error code %s", m[2], q[1])
			}
		}
	}
}

// errorCodes are the values of client.Code.
func errorCodes(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("client/errors.go")
	if err != nil {
		t.Fatal(err)
	}
	codes := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^\tCode\w+ +(?:Code )?= "(\w+)"`).FindAllStringSubmatch(string(text), -1) {
		codes[m[1]] = true
	}
	return codes
}

// TestPageNames: the files, directories, tests and names of Go that the page speaks of exist.
func TestPageNames(t *testing.T) {
	names, text := declared(t), architecture(t)
	file := regexp.MustCompile(`^(?:[a-z_]+/)*[A-Za-z_.]+\.(?:go|md|toml)$|^(?:cmd|internal|docs|test)/[a-z/_]+$`)
	name := regexp.MustCompile(`^(?:Test\w+|(?:[a-z]+/)*[a-z]+\.\w+(?:\.\w+)?)$`)
	for _, m := range quoted.FindAllStringSubmatch(text, -1) {
		what := m[1]
		switch {
		case strings.Contains(what, "NAME") || notNames[what]:
		case file.MatchString(what):
			if !exists(what) && !exists(filepath.Join("internal/sandbox/oci", what)) { // a driver's, for one
				t.Errorf("docs/architecture.md names %s, which is not there", what)
			}
		case name.MatchString(what) && !names[what]:
			t.Errorf("docs/architecture.md names %s, which nothing declares", what)
		}
	}
}

// notNames look like names of Go and are something else.
var notNames = map[string]bool{"file.edited": true, "sandbox.driver": true}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// maxRecipe is how many steps it may take to add something.
const maxRecipe = 6

// TestRecipes: each recipe of the page is carried out by the test that it names, step by step:
// comments there are the steps, word by word and in this order.
func TestRecipes(t *testing.T) {
	list := regexp.MustCompile(`(?m)^### (To [^\n]+)\n\n<!-- recipe: ([^ ]+) -->\n((?:(?:\d\. |   )[^\n]+\n)+)`)
	text := below(t, architecture(t), "## Recipes")
	recipes := list.FindAllStringSubmatch(text, -1)
	if want := strings.Count(text, "\n### "); len(recipes) == 0 || len(recipes) != want {
		t.Fatalf("%d recipes have a list and a test, want %d", len(recipes), want)
	}
	for _, m := range recipes {
		t.Run(m[1], func(t *testing.T) {
			want, got := numbered(m[3]), carriedOut(t, m[2])
			if len(want) > maxRecipe {
				t.Errorf("it has %d steps, more than %d: make it easier to do, not to read", len(want), maxRecipe)
			}
			for i := range max(len(want), len(got)) {
				var w, g string
				if i < len(want) {
					w = want[i]
				}
				if i < len(got) {
					g = got[i]
				}
				if w != g {
					t.Errorf("step %d\nof the page: %s\nof %s: %s", i+1, w, m[2], g)
				}
			}
		})
	}
}

// numbered are the entries of a numbered list, each on one line.
func numbered(list string) (steps []string) {
	for line := range strings.Lines(list) {
		if line[0] == ' ' {
			steps[len(steps)-1] += " " + strings.TrimSpace(line)
		} else {
			steps = append(steps, strings.TrimSpace(line))
		}
	}
	return steps
}

// carriedOut are the comments of a file that begin with a number, up to an empty line.
func carriedOut(t *testing.T, path string) (steps []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range f.Comments {
		text, _, _ := strings.Cut(group.Text(), "\n\n")
		if text = strings.Join(strings.Fields(text), " "); regexp.MustCompile(`^\d\. `).MatchString(text) {
			steps = append(steps, text)
		}
	}
	return steps
}
