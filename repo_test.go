// Package toold_test holds the rules of the repository as a whole: which package
// may know which, what each binary links, and how things are written. They are
// tests so that a change which breaks one says so.
package toold_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite testdata/deps-*.txt")

const module = "github.com/toold/toold"

// mayImport is the import table of docs/architecture.md: what each package may
// import of ours. A trailing "/..." stands for the package and all below it.
// Package client, wire types on the standard library alone, is every package's
// but the agent's side, which must stay small.
var mayImport = map[string][]string{
	"api":                        {},
	"client":                     {},
	"internal/tool":              {"client", "internal/tool/run", "internal/tool/run/globpath", "internal/tool/run/spelling", "internal/tool/shell"},
	"internal/tool/shell":        {},
	"internal/tool/run":          {"internal/tool/run/..."},
	"internal/tool/run/replace":  {},
	"internal/tool/run/root":     {},
	"internal/tool/run/search":   {"internal/tool/run/root"},
	"internal/tool/run/textdiff": {},
	"internal/tool/run/difftest": {},
	"internal/tool/run/textfile": {"internal/tool/run/..."},
	"internal/tool/run/readrule": {"internal/tool/run/wildcard"},
	"internal/tool/run/wildcard": {},
	"internal/tool/run/globpath": {},
	"internal/tool/run/spelling": {},
	"internal/policy":            {"client", "internal/tool", "internal/tool/run/readrule", "internal/tool/run/wildcard", "internal/tomltext"},
	"internal/tomltext":          {},
	"internal/sandbox":           {"client"},
	"internal/sandbox/control":   {},
	"internal/sandbox/cgroup":    {"client", "internal/sandbox", "internal/sandbox/process", "internal/thread"},
	"internal/sandbox/docker": {
		"client", "internal/sandbox", "internal/sandbox/cgroup", "internal/sandbox/control", "internal/sandbox/inside",
		"internal/sandbox/mount", "internal/sandbox/process", "internal/sandbox/seccomp", "internal/sandbox/transfer",
	},
	"internal/sandbox/transfer": {"internal/thread"},
	"internal/sandbox/inside":   {"client", "internal/sandbox"},
	"internal/sandbox/oci": {
		"client", "internal/sandbox", "internal/sandbox/cgroup", "internal/sandbox/control", "internal/sandbox/inside",
		"internal/sandbox/mount", "internal/sandbox/process", "internal/sandbox/seccomp",
	},
	"internal/sandbox/mount":       {"internal/sandbox", "internal/thread"},
	"internal/sandbox/process":     {"internal/sandbox"},
	"internal/sandbox/seccomp":     {},
	"internal/sandbox/sandboxtest": {"client", "internal/sandbox", "internal/agent", "internal/tool/run"},
	"internal/agent":               {"internal/tool/run/..."},
	"internal/image":               {"client"},
	"internal/audit/record":        {},
	"internal/hardening":           {"client"},
	"internal/thread":              {},
	"internal/worktree":            {"internal/thread"},
	"internal/store":               {"client"},
	"internal/session": {
		"client", "internal/agent", "internal/image", "internal/policy", "internal/sandbox", "internal/store",
		"internal/thread", "internal/tool", "internal/tool/run", "internal/tool/run/readrule", "internal/tool/shell", "internal/worktree",
	},
	"internal/metrics": {"client", "internal/policy", "internal/session"},
	"internal/audit":   {"client", "internal/audit/record", "internal/policy", "internal/session"},
	"internal/server":  {"api", "client", "internal/session", "internal/tool"},
	"internal/config":  {"client", "internal/policy", "internal/tomltext"},
	"cmd/toold":        {"client", "internal/..."},
	"cmd/toolctl":      {"client", "internal/audit/record", "internal/config", "internal/policy", "internal/tool", "internal/tool/shell"},
	"cmd/toolagent":    {"internal/agent", "internal/tool/run/..."},
}

// goPackage is what `go list -json` says of a package.
type goPackage struct {
	ImportPath string
	Dir        string
	Name       string
	Imports    []string
	Standard   bool
}

func goList(t *testing.T, args ...string) []goPackage {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,Name,Imports,Standard"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var list []goPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
}

func TestImportTable(t *testing.T) {
	for _, p := range goList(t, "./...") {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if p.ImportPath == module || strings.HasPrefix(name, "bench") || strings.HasPrefix(name, "test/") || strings.HasPrefix(name, "examples/") {
			continue
		}
		allowed, ok := mayImport[name]
		if !ok {
			t.Errorf("package %s is not in the import table: say in repo_test.go and docs/architecture.md what it may import", name)
			continue
		}
		for _, imp := range p.Imports {
			ours, isOurs := strings.CutPrefix(imp, module+"/")
			if isOurs && !slices.ContainsFunc(allowed, func(a string) bool { return covers(a, ours) }) {
				t.Errorf("%s imports %s, which the import table does not allow", name, ours)
			}
		}
		if name == "client" {
			for _, imp := range p.Imports {
				if strings.Contains(strings.Split(imp, "/")[0], ".") {
					t.Errorf("client imports %s: it stands on the standard library alone", imp)
				}
			}
		}
	}
}

func covers(pattern, pkg string) bool {
	dir, all := strings.CutSuffix(pattern, "/...")
	return pkg == dir || all && strings.HasPrefix(pkg, dir+"/")
}

// TestDependencies compares what each binary links with a list that is checked
// in, so that a new dependency shows in review. -update rewrites the lists.
func TestDependencies(t *testing.T) {
	for _, binary := range []string{"toold", "toolctl", "toolagent"} {
		t.Run(binary, func(t *testing.T) {
			got := strings.Join(linked(t, binary), "\n") + "\n"
			golden := "testdata/deps-" + binary + ".txt"
			if *update {
				if err := os.MkdirAll("testdata", 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range difference(got, string(want)) {
				t.Error(d)
			}
			if t.Failed() {
				t.Log("if this is wanted: go test . -run Dependencies -update, and the reason in the commit")
			}
		})
	}
}

// linked lists the packages outside the standard library that a binary links,
// without our own.
func linked(t *testing.T, binary string) []string {
	t.Helper()
	var list []string
	for _, p := range goList(t, "-deps", "./cmd/"+binary) {
		if !p.Standard && !strings.HasPrefix(p.ImportPath, module) {
			list = append(list, p.ImportPath)
		}
	}
	slices.Sort(list)
	return list
}

func difference(got, want string) []string {
	g, w := strings.Fields(got), strings.Fields(want)
	var diff []string
	for _, p := range g {
		if !slices.Contains(w, p) {
			diff = append(diff, "links "+p+", which is new")
		}
	}
	for _, p := range w {
		if !slices.Contains(g, p) {
			diff = append(diff, "links "+p+" no more")
		}
	}
	return diff
}

// TestAgentIsSmall: an agent runs in every session.
func TestAgentIsSmall(t *testing.T) {
	for _, p := range goList(t, "-deps", "./cmd/toolagent") {
		for _, banned := range []string{
			"net/http", "crypto/tls", "database/sql", "html/template", "text/template", "go/ast",
			"github.com/prometheus", "github.com/docker", "github.com/spf13", "github.com/santhosh-tekuri", "mvdan.cc/sh",
			module + "/client", module + "/internal/session", module + "/internal/server",
		} {
			if p.ImportPath == banned || strings.HasPrefix(p.ImportPath, banned+"/") {
				t.Errorf("toolagent links %s", p.ImportPath)
			}
		}
	}
}

// sources walks the Go files of the repository.
func sources(t *testing.T, visit func(path string, src []byte)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was somebody's for a moment
		}
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && (d.Name() == "bin" || strings.HasPrefix(d.Name(), ".git")) {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		src, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			visit(path, src)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestPackageComments: every package says in its first sentence what it is for.
func TestPackageComments(t *testing.T) {
	documented := map[string]string{} // directory → first sentence
	names := map[string]string{}
	sources(t, func(path string, src []byte) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, src, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Dir(path)
		names[dir] = f.Name.Name
		if f.Doc != nil {
			if documented[dir] != "" {
				t.Errorf("%s: the package has its comment in another file already", path)
			}
			documented[dir] = f.Doc.Text()
		}
	})
	for dir, name := range names {
		want := "Package " + name + " "
		if name == "main" {
			want = "Command " + filepath.Base(dir) + " "
		}
		if !strings.HasPrefix(documented[dir], want) {
			t.Errorf("%s: the package comment does not begin with %q", dir, want)
		}
	}
}

// maxLines is when a file should be split. It is guidance with some room: what
// belongs together may stay together.
const maxLines = 600

func TestFilesAreSmall(t *testing.T) {
	sources(t, func(path string, src []byte) {
		if n := bytes.Count(src, []byte("\n")); n > maxLines && !strings.HasSuffix(path, "_test.go") {
			t.Errorf("%s has %d lines, more than %d: split it by noun", path, n, maxLines)
		}
	})
}

func TestNames(t *testing.T) {
	banned := regexp.MustCompile(`^(util|utils|common|helpers?|misc|types|base)$`)
	sources(t, func(path string, src []byte) {
		for _, part := range append(strings.Split(filepath.Dir(path), "/"), strings.TrimSuffix(filepath.Base(path), ".go")) {
			if banned.MatchString(part) {
				t.Errorf("%s: a file or package is named for what is in it, not %q", path, part)
			}
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.Name == "init" && fn.Recv == nil && !initAllowed[path] && !strings.HasSuffix(path, "_test.go") {
				t.Errorf("%s: init functions hide what runs; do it where it is needed", path)
			}
		}
	})
}

// initAllowed: the agent's main goroutine must be locked to the main thread
// before any other exists.
var initAllowed = map[string]bool{"cmd/toolagent/main.go": true}

// TestWords: what is written here speaks of the project, and is finished.
func TestWords(t *testing.T) {
	unfinished := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)[:(]`)
	tracker := regexp.MustCompile(`(?i)\b(issue|ticket) #?\d+|\bas an AI\b|language model`)
	check := func(path string, text []byte) {
		for i, line := range strings.Split(string(text), "\n") {
			if unfinished.MatchString(line) {
				t.Errorf("%s:%d: unfinished work has no place in the tree: %s", path, i+1, strings.TrimSpace(line))
			}
			if tracker.MatchString(line) {
				t.Errorf("%s:%d: say it here, not by pointing elsewhere: %s", path, i+1, strings.TrimSpace(line))
			}
		}
	}
	for _, path := range tracked(t) {
		if strings.HasPrefix(path, "bench/results/") || strings.HasSuffix(path, ".sum") || strings.Contains(path, "testdata/") || path == "repo_test.go" {
			continue
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed, not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		check(path, text)
	}
}

// tracked lists the files of the repository; in an unpacked archive, all files.
func tracked(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("git", "-c", "safe.directory=*", "ls-files", "-z").Output()
	if err == nil && len(out) > 0 {
		return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	}
	var list []string
	sources(t, func(path string, _ []byte) { list = append(list, path) })
	return list
}

// TestLinks: what the documents point at exists.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	for _, path := range tracked(t) {
		if filepath.Ext(path) != ".md" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			target := filepath.Join(filepath.Dir(path), m[1])
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which is not there", path, m[1])
			}
		}
	}
}

// TestSecurityNamesTests: each test that the security documents name is there.
func TestSecurityNamesTests(t *testing.T) {
	var all bytes.Buffer
	sources(t, func(path string, src []byte) {
		if strings.HasSuffix(path, "_test.go") {
			all.Write(src)
		}
	})
	for _, doc := range []string{"SECURITY.md", "docs/security.md"} {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`").FindAllStringSubmatch(string(text), -1) {
			if !bytes.Contains(all.Bytes(), []byte("func "+m[1]+"(")) {
				t.Errorf("%s names %s, which no package has", doc, m[1])
			}
		}
	}
}

// TestDocsKnowTheTable: docs/architecture.md shows the import table; it must
// name every package.
func TestDocsKnowTheTable(t *testing.T) {
	text, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range mayImport {
		if !strings.Contains(string(text), fmt.Sprintf("`%s`", name)) {
			t.Errorf("docs/architecture.md does not say what %s is", name)
		}
	}
}
